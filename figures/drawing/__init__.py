"""The functions that draw the pictures.

`FIGURES` names each one, and the function that draws it as a matplotlib `Figure`.
"""

from functools import partial

from .batch_sizes import learning_rates, steps_against_batch_size
from .cut import cuts
from .hero import hero
from .memory_by_devices import memory_by_devices
from .memory_over_time import memory_over_time
from .slow_links import slow_links
from .splits import splits
from .throughput import throughput
from .timelines import TIMELINES, one_timeline, schedules, zoo

__all__ = ["FIGURES"]

FIGURES = {
    "hero": hero,
    **{name: partial(one_timeline, name) for name in TIMELINES},
    "schedules": schedules,
    "zoo": zoo,
    "slow_links": slow_links,
    "memory": memory_over_time,
    "throughput": throughput,
    "cut": cuts,
    "splits": splits,
    "memory_by_devices": memory_by_devices,
    "learning_rates": learning_rates,
    "steps_against_batch_size": steps_against_batch_size,
}
