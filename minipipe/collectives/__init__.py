"""Collectives: programs by which many devices sum, share or exchange what they have.

Where to read: `calls` is what a program can say, `summing` has the all-reduces, `rings` and
`broadcasting` the ways that they go, `compressing` has sums in fewer bytes, `group` who takes part, `costs`
what it costs in closed form.
"""

from .calls import (
    ALL_REDUCES, OWNERS, all_gather, all_reduce, all_reduce_sum, all_reduce_sum_and_gather, all_to_all,
    barrier, broadcast, reduce, reduce_scatter, reduce_scatter_sum_and_gather,
)
from .compressing import Feedback, LowRank, Majority, MomentumFeedback, Quantised, ScaledSign, TopK
from .costs import all_reduce_ticks, numbers_sent
from .exchanging import exchanged
from .group import Group

__all__ = [
    "ALL_REDUCES", "OWNERS", "Group", "all_gather", "all_reduce", "all_reduce_ticks", "all_reduce_sum",
    "all_reduce_sum_and_gather", "all_to_all", "barrier", "broadcast", "exchanged", "numbers_sent", "reduce",
    "reduce_scatter", "reduce_scatter_sum_and_gather",
    "Feedback", "LowRank", "Majority", "MomentumFeedback", "Quantised", "ScaledSign", "TopK",
]
