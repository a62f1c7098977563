"""Who does what in which order: pure functions (n_stages, n_microbatches) -> Schedule."""

from .builders import BUILDERS, build, gpipe, naive, one_f_one_b, with_recompute
from .counting import peak_microbatches
from .schedule import Action, Schedule, ScheduleError

__all__ = [
    "BUILDERS", "Action", "Schedule", "ScheduleError",
    "build", "gpipe", "naive", "one_f_one_b", "peak_microbatches", "with_recompute",
]
