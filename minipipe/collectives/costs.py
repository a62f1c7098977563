"""What a collective costs, in closed form: the ticks of its run and the numbers that each rank sends.

N ranks, n bytes each; alpha = latency, beta = ticks per byte on the way, gamma = ticks per byte that is
added; each rank has a port in and a port out. k = log2 N. Sources: Thakur, Rabenseifner and Gropp 2005;
the comments on the algorithms in MPICH's `allreduce`.
"""

from fractions import Fraction

from ..checks import one_of, real_number, whole_number
from .broadcasting import distances
from .calls import ALL_REDUCES
from .vectors import lengths

MOST_RANKS = 10**6  # that a list has a number for


def all_reduce_ticks(algorithm, N, n, alpha=0, beta=0, gamma=0):
    """The ticks of an all-reduce of n bytes, where n is a multiple of N.

    algorithm: one of the names of `all_reduce`.
    N: the number of ranks.
    n: bytes of each rank.
    alpha, beta, gamma: ticks, and ticks per byte.

    Of tree, doubling and halving, this is exact for N = 2^k. For other N, each step waits for all of the one
    before in the formula; the run does not, and without ports it takes at most as long.

    >>> [int(all_reduce_ticks(name, 4, 1024, alpha=100, beta=1/16)) for name in ("naive", "ring", "owners")]
    [584, 696, 296]
    """
    one_of("algorithm", algorithm, ALL_REDUCES)
    N, n = whole_number("N", N, 1), real_number("n", n, least=0)
    alpha, beta, gamma = (
        real_number(name, value, least=0)
        for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma))
    )
    if N == 1:
        return 0
    power = _power(N)
    k = power.bit_length() - 1
    way = alpha + n * beta  # of all of it, to one other rank
    beyond = 0 if N == power else 2 * way + n * gamma
    most, share = Fraction(power - 1, power), Fraction(N - 1, N)
    added_as_they_come = n * max((N - 1) * beta + gamma, beta + (N - 1) * gamma)
    formulas = {
        "naive": 2 * alpha + added_as_they_come + (N - 1) * n * beta,
        "tree": (N - 1).bit_length() * (2 * way + n * gamma),
        "doubling": k * (way + n * gamma) + beyond,
        "halving": 2 * k * alpha + most * n * (2 * beta + gamma) + beyond,
        "ring": 2 * (N - 1) * alpha + share * n * (2 * beta + gamma),
        "owners": 2 * alpha + share * n * (2 * beta + gamma),
    }
    return formulas[algorithm]


def numbers_sent(algorithm, N, n):
    """How many numbers each rank sends in an all-reduce of n numbers: a list; exact for any N and n.

    >>> numbers_sent("ring", 4, 10), numbers_sent("tree", 8, 8)
    ([15, 16, 15, 14], [24, 8, 16, 8, 24, 8, 16, 8])
    """
    one_of("algorithm", algorithm, ALL_REDUCES)
    N, n = whole_number("N", N, 1, MOST_RANKS), whole_number("n", n, 0)
    if N == 1:
        return [0]
    chunk = lengths(n, N)
    formulas = {
        "naive": lambda r: n if r else (N - 1) * n,
        "tree": lambda r: n * (min(r, 1) + sum(r % (2 * d) == 0 and r + d < N for d in distances(N))),
        "doubling": lambda r: _beyond(r, N, n, n * (_power(N).bit_length() - 1)),
        "halving": lambda r: _beyond(r, N, n, _halves(r, _power(N), n)),
        "ring": lambda r: 2 * n - chunk[(r + 1) % N] - chunk[(r + 2) % N],
        "owners": lambda r: n + (N - 2) * chunk[r],
    }
    return [formulas[algorithm](r) for r in range(N)]


def _power(N):
    """The largest power of 2 that is at most N."""
    return 2 ** (N.bit_length() - 1)


def _beyond(r, N, n, among_power):
    """What rank r sends, with the ranks beyond a power of 2, of which each has a partner below."""
    power = _power(N)
    if r >= power:
        return n
    return among_power + (n if r + power < N else 0)


def _halves(r, power, n):
    """What rank r of 2^k sends by halving: all but its own chunk to add; then all that it has, k times."""
    chunk = lengths(n, power)
    first, behind, kept = 0, power, []
    for distance in distances(power):
        middle = (first + behind) // 2
        first, behind = (middle, behind) if r & distance else (first, middle)
        kept.append(sum(chunk[first:behind]))
    return n - chunk[first] + sum(kept) if kept else 0
