"""Collectives: programs by which many devices sum, share or exchange what they have.

Where to read: `calls` is what a program can say; `naive`, `tree`, `doubling`, `halving`, `ring`, `owners` and
`two_level` have an all-reduce each, with its closed forms (a new one is one new file), and `all_reduces` what
each of them states; `broadcasting` has the ways from one rank to all and back, `group` who takes part.

All ranks get the same bits of a sum. Which bits they are depends on the order of the additions, and that on
the program: `AllReduceFacts.order`.
"""

# The order of these is that of all lists of names; those of other files come after them.
from . import naive, tree, doubling, halving, ring, owners, two_level  # noqa: F401

from .all_reduces import ALL_REDUCES, all_reduce_ticks, numbers_sent
from .calls import (
    all_gather, all_reduce, all_reduce_sum, all_reduce_sum_and_gather, all_to_all, barrier, broadcast,
    reduce, reduce_scatter, reduce_scatter_sum_and_gather,
)
from .group import Group, exchanged
from .owners import OWNERS

ALL_REDUCES.load()

__all__ = [
    "ALL_REDUCES", "OWNERS", "Group", "all_gather", "all_reduce", "all_reduce_ticks", "all_reduce_sum",
    "all_reduce_sum_and_gather", "all_to_all", "barrier", "broadcast", "exchanged", "numbers_sent", "reduce",
    "reduce_scatter", "reduce_scatter_sum_and_gather",
]
