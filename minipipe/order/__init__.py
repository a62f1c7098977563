"""Who does what in which order: `Schedule`, its actions, costs, faults and run.

Where to read: `actions` has the kinds of work, `schedule` an order of them, `faults`
what is wrong with one, `counting` what follows from it; `changes` makes one from
another, `greedy` and `searching` find one; `programs` turns it into programs for the
devices of a cluster, `simulate` runs these without numbers.

The schedules that have a name are in `minipipe.schedules`.
"""

from .actions import Action, Fault, Overlap, ScheduleError, ScheduleWarning
from .changes import (
    RECOMPUTE, costs_in_segments, in_copies, in_segments, with_all_reduce, with_recompute, with_updates,
    with_zero,
)
from .costs import Costs
from .counting import alive_microbatches, peak_microbatches, peak_versions, staleness
from .greedy import greedy_schedule
from .playing import Standing, Stop
from .schedule import Schedule
from .searching import Found, best_schedule
from .simulate import simulate

__all__ = [
    "Action", "Costs", "Fault", "Found", "Overlap", "RECOMPUTE", "Schedule", "ScheduleError",
    "ScheduleWarning", "Standing", "Stop",
    "alive_microbatches", "best_schedule", "costs_in_segments", "greedy_schedule", "in_copies", "in_segments",
    "peak_microbatches", "peak_versions", "simulate", "staleness", "with_all_reduce", "with_recompute",
    "with_updates", "with_zero",
]
