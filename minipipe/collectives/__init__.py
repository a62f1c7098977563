"""Collectives: programs by which many devices sum, share or exchange what they have.

Where to read: `calls` has what a program calls; `all_reduces` the all-reduces, each
with its closed form; `group` who takes part, and the exchanges that all of these use.

All ranks get the same bits of a sum. Which bits depends on the order of the additions,
and so on the program: `AllReduceFacts.order`.
"""

from .all_reduces import ALL_REDUCES, OWNERS, all_reduce_ticks, reduce_scatter_sum_and_gather
from .calls import (
    all_gather, all_reduce, all_reduce_sum, all_reduce_sum_and_gather, all_to_all, reduce_scatter,
)
from .group import Group, exchanged

ALL_REDUCES.load()

__all__ = [
    "ALL_REDUCES", "OWNERS", "Group", "all_gather", "all_reduce", "all_reduce_ticks", "all_reduce_sum",
    "all_reduce_sum_and_gather", "all_to_all", "exchanged", "reduce_scatter", "reduce_scatter_sum_and_gather",
]
