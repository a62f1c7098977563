"""The all-reduces, found in the files of this room, and what each states about itself."""

from collections.abc import Callable
from dataclasses import dataclass

from ..checks import one_of
from ..registry import Registry

ORDERS = "tree", "tree of 2^k", "ranks", "own"


@dataclass(frozen=True)
class AllReduceFacts:
    """What an all-reduce states about itself. Contract tests hold it to every fact.

    ticks: its closed form: a function of N > 1 ranks, n bytes on each, a multiple of N, and alpha, beta,
        gamma, as for `all_reduce_ticks`.
    numbers_sent: how many of n numbers a rank sends: a function of the rank, N > 1 and n, for any N and n.
    order: in which it adds: along the "tree" over the ranks, whose bits are those of one device; along the
        "tree of 2^k" for so many ranks; in that of the "ranks"; or in an order of its "own", with a result
        within the rounding bound. All ranks have the same bits.
    source: the paper, or "no known paper".
    exact: for which N `ticks` are those of the run: "any N"; or "2^k", and a bound for other N without ports.
    """

    ticks: Callable
    numbers_sent: Callable
    order: str
    source: str
    exact: str = "any N"

    def __post_init__(self):
        one_of("order", self.order, ORDERS)
        one_of("exact", self.exact, ["any N", "2^k"])


ALL_REDUCES = Registry("minipipe.collectives", AllReduceFacts)  # name -> program (group, vectors)
