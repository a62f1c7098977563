"""The all-reduces, found in the files of this room, what each states about itself, and what it costs."""

from collections.abc import Callable
from dataclasses import dataclass

from ..checks import one_of, real_number, whole_number
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


# What an all-reduce costs, in closed form: the ticks of its run and the numbers that each rank sends.
#
# N ranks, n bytes each; alpha = latency, beta = ticks per byte on the way, gamma = ticks per byte that is
# added; each rank has a port in and a port out. Each all-reduce states its own, beside its program.

def all_reduce_ticks(algorithm, N, n, alpha=0, beta=0, gamma=0):
    """The ticks of an all-reduce of n bytes, where n is a multiple of N.

    algorithm: one of the names of `all_reduce`; "two-level" with nodes of its default size.
    N: the number of ranks.
    n: bytes of each rank.
    alpha, beta, gamma: ticks, and ticks per byte.

    Of tree, doubling and halving, this is exact for N = 2^k, see `AllReduceFacts.exact`. For other N, each
    step waits for all of the one before in the formula; the run does not, and without ports it takes at most
    as long.

    >>> [int(all_reduce_ticks(name, 4, 1024, alpha=100, beta=1/16)) for name in ("naive", "ring", "owners")]
    [584, 696, 296]
    """
    one_of("algorithm", algorithm, ALL_REDUCES)
    N = whole_number("N", N, 1)
    n, alpha, beta, gamma = (
        real_number(name, value, least=0)
        for name, value in (("n", n), ("alpha", alpha), ("beta", beta), ("gamma", gamma))
    )
    return ALL_REDUCES.facts[algorithm].ticks(N, n, alpha, beta, gamma) if N > 1 else 0


def numbers_sent(algorithm, N, n):
    """How many numbers each rank sends in an all-reduce of n numbers: a list; exact for any N and n.

    >>> numbers_sent("ring", 4, 10), numbers_sent("tree", 8, 8)
    ([15, 16, 15, 14], [24, 8, 16, 8, 24, 8, 16, 8])
    """
    one_of("algorithm", algorithm, ALL_REDUCES)
    N, n = whole_number("N", N, 1), whole_number("n", n, 0)
    if N == 1:
        return [0]
    return [ALL_REDUCES.facts[algorithm].numbers_sent(rank, N, n) for rank in range(N)]
