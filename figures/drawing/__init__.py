"""The functions that draw the pictures, and one that writes tables.

`FIGURES` is {name: a function that returns a matplotlib `Figure`, a text to print, or a
`Trace` for a film}; so is `ASKED_FOR`, whose functions take longer.
"""

from .batch_sizes import error_against_batch_size, steps_against_batch_size
from .beside_pytorch import beside_pytorch
from .cut import cuts
from .hero import hero
from .memory_by_devices import memory_by_devices
from .memory_over_time import memory_over_time
from .plan import plan
from .published import tables
from .slow_links import slow_links
from .splits import splits
from .throughput import throughput
from .timelines import film, zoo

__all__ = ["ASKED_FOR", "FIGURES"]

FIGURES = {
    "hero": hero,
    "1f1b": film,
    "zoo": zoo,
    "slow_links": slow_links,
    "memory": memory_over_time,
    "throughput": throughput,
    "cut": cuts,
    "splits": splits,
    "plan": plan,
    "steps_against_batch_size": steps_against_batch_size,
}
ASKED_FOR = {
    "beside_pytorch": beside_pytorch, "error_against_batch_size": error_against_batch_size,
    "memory_by_devices": memory_by_devices, "tables": tables,
}
