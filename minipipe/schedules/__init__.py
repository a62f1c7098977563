"""The schedules with a name: pure functions (devices, microbatches) -> Schedule.

A new one is one new file of this package, where `SCHEDULES` finds it. Only
`data_parallel` has no name. Functions that change a schedule are in
`minipipe.order`.
"""

# The order of these is that of all lists of names; those of other files come after them.
from .one_stage_each import data_parallel, eager_one_f_one_b, gpipe, gpipe_fifo, naive, one_f_one_b
from .interleaved import interleaved_one_f_one_b, looped_breadth_first
from .zero_bubble import (
    interleaved_zero_bubble, zero_bubble_h1, zero_bubble_h2,
    zero_bubble_v,
)
from .controllable_memory import v_half, v_min
from .bidirectional import chimera, dualpipe, dualpipe_v
from .asynchronous import pipedream, pipedream_2bw, pipedream_vertical

from ..order.names import SCHEDULES, is_name, name_of, names_having
from ..order.reading import build, names_for

_BUILT = {builder.__name__: builder for builder in SCHEDULES.load().values()}
globals().update(_BUILT)

__all__ = [
    "SCHEDULES", "build", "chimera", "data_parallel", "dualpipe",
    "dualpipe_v", "eager_one_f_one_b", "gpipe", "gpipe_fifo", "interleaved_one_f_one_b",
    "interleaved_zero_bubble", "is_name", "looped_breadth_first", "naive", "name_of", "names_for",
    "names_having", "one_f_one_b", "pipedream", "pipedream_2bw",
    "pipedream_vertical", "v_half", "v_min",
    "zero_bubble_h1", "zero_bubble_h2", "zero_bubble_v",
]
__all__ += sorted(_BUILT.keys() - {*__all__})
