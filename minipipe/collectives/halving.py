"""An all-reduce by halving and doubling."""

from fractions import Fraction

from .all_reduces import ALL_REDUCES
from .broadcasting import distances
from .doubling import folded, power_of, sent_beyond, swapped, ticks_beyond
from .group import begin, cut_into_chunks, join_chunks, length


def _ticks(N, n, alpha, beta, gamma):
    power = power_of(N)
    k, most = power.bit_length() - 1, Fraction(power - 1, power)
    return 2 * k * alpha + most * n * (2 * beta + gamma) + ticks_beyond(N, n, alpha, beta, gamma)


def _numbers_sent(rank, N, n):
    return sent_beyond(rank, N, n, _halves(rank, power_of(N), n))


def _halves(rank, power, n):
    """What a rank of 2^k sends: all but its own chunk to add; then all that it has, k times."""
    first, behind, kept = 0, power, 0
    for distance in distances(power):
        middle = (first + behind) // 2
        first, behind = (middle, behind) if rank & distance else (first, middle)
        kept += begin(n, power, behind) - begin(n, power, first)
    return n - length(n, power, first) + kept


@ALL_REDUCES(
    "halving",
    ticks=_ticks,
    numbers_sent=_numbers_sent,
    order="tree of 2^k",
    source="Thakur, Rabenseifner and Gropp 2005; the comments in MPICH's allreduce",
    exact="2^k",
)
def halving(group, vectors):
    """Halving and doubling (Rabenseifner): partners swap a half, a quarter, ... and add, then swap the sums.

    2 k alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma for N = 2^k; with more ranks as in `doubling`.
    """
    label = group.begin("halving all-reduce")

    def among(power, vectors):
        chunks, first, behind, steps = cut_into_chunks(vectors, power), 0, power, []
        for distance in distances(power):
            middle = (first + behind) // 2
            mine, theirs = slice(first, middle), slice(middle, behind)
            if group.rank & distance:
                mine, theirs = theirs, mine
            partner = group.rank ^ distance
            arrived = yield from swapped(group, partner, f"{label}: add", chunks[theirs])
            chunks[mine] = yield from group.add(chunks[mine], arrived)
            steps.append((partner, mine, theirs))
            first, behind = mine.start, mine.stop
        for partner, mine, theirs in reversed(steps):
            chunks[theirs] = yield from swapped(group, partner, f"{label}: gather", chunks[mine])
        return join_chunks(chunks, vectors)

    return (yield from folded(group, vectors, label, among))
