"""The pictures of the README.

`FIGURES` names each one, and the function that draws it as a matplotlib `Figure`.
"""

from .cut import cuts
from .memory_by_devices import memory_by_devices
from .memory_over_time import memory_over_time
from .slow_links import slow_links
from .throughput import throughput
from .timelines import (
    gpipe_recompute_timeline,
    gpipe_timeline,
    naive_timeline,
    one_f_one_b_timeline,
    schedules,
    zoo,
)

__all__ = ["FIGURES"]

FIGURES = {
    "naive": naive_timeline,
    "gpipe": gpipe_timeline,
    "1f1b": one_f_one_b_timeline,
    "gpipe_recompute": gpipe_recompute_timeline,
    "schedules": schedules,
    "zoo": zoo,
    "slow_links": slow_links,
    "memory": memory_over_time,
    "throughput": throughput,
    "cut": cuts,
    "memory_by_devices": memory_by_devices,
}
