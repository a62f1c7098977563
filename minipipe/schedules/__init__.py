"""Who does what in which order: pure functions (n_devices, n_microbatches) -> Schedule."""

from .actions import Action, Overlap, ScheduleWarning
from .asynchronous import pipedream, pipedream_2bw
from .bidirectional import chimera, dualpipe, dualpipe_v
from .changes import (
    RECOMPUTE, in_copies, with_all_reduce, with_recompute, with_updates, without_overlaps,
)
from .controllable_memory import v_half, v_min
from .costs import Costs
from .counting import alive_microbatches, peak_microbatches, peak_versions, staleness
from .greedy import greedy_schedule
from .interleaved import interleaved_one_f_one_b, interleaved_zero_bubble, looped_breadth_first
from .late_weights import gpipe_late_w, one_f_one_b_late_w, with_late_W
from .names import (
    ASYNCHRONOUS, BUILDERS, LATE_W, STAGES_PER_DEVICE, build, build_for_stages, names_for, names_for_stages,
)
from .one_stage_each import eager_one_f_one_b, gpipe, naive, one_f_one_b
from .replicas import data_parallel, replicated_stages
from .schedule import Schedule, ScheduleError
from .segments import costs_in_segments, in_segments
from .searching import Found, best_schedule
from .zero import with_zero
from .zero_bubble import zero_bubble_h1, zero_bubble_h2, zero_bubble_v

__all__ = [
    "ASYNCHRONOUS", "Action", "BUILDERS", "Costs", "Found", "LATE_W", "Overlap", "RECOMPUTE",
    "STAGES_PER_DEVICE", "Schedule", "ScheduleError", "ScheduleWarning", "alive_microbatches",
    "best_schedule", "build", "build_for_stages", "chimera", "costs_in_segments", "data_parallel",
    "dualpipe", "dualpipe_v", "eager_one_f_one_b", "gpipe", "gpipe_late_w", "greedy_schedule",
    "in_copies", "in_segments", "interleaved_one_f_one_b", "interleaved_zero_bubble",
    "looped_breadth_first", "naive", "names_for", "names_for_stages", "one_f_one_b", "one_f_one_b_late_w",
    "peak_microbatches", "peak_versions", "pipedream", "pipedream_2bw", "replicated_stages",
    "staleness", "v_half", "v_min", "with_all_reduce", "with_late_W", "with_recompute", "with_updates",
    "with_zero", "without_overlaps",
    "zero_bubble_h1", "zero_bubble_h2", "zero_bubble_v",
]
