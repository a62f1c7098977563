"""An all-reduce by recursive doubling, and what all need that work among 2^k ranks."""

from .all_reduces import ALL_REDUCES
from .broadcasting import distances


def _ticks(N, n, alpha, beta, gamma):
    k = power_of(N).bit_length() - 1
    return k * (alpha + n * beta + n * gamma) + ticks_beyond(N, n, alpha, beta, gamma)


@ALL_REDUCES(
    "doubling",
    ticks=_ticks,
    numbers_sent=lambda rank, N, n: sent_beyond(rank, N, n, n * (power_of(N).bit_length() - 1)),
    order="tree of 2^k",
    source="Thakur, Rabenseifner and Gropp 2005",
    exact="2^k",
)
def doubling(group, vectors):
    """Recursive doubling: partners at distance 1, 2, 4, ... swap all that they have, and both add.

    k (alpha + n beta + n gamma) for N = 2^k; ranks beyond a power of 2 give theirs to another rank
    before, and get the sum after: 2 (alpha + n beta) + n gamma more.
    """
    label = group.begin("doubling all-reduce")

    def among(power, vectors):
        for distance in distances(power):
            arrived = yield from swapped(group, group.rank ^ distance, label, vectors)
            vectors = yield from group.add(vectors, arrived)
        return vectors

    return (yield from folded(group, vectors, label, among))


def power_of(N):
    """Return the largest power of 2 that is at most N."""
    return 2 ** (N.bit_length() - 1)


def folded(group, vectors, label, among):
    """`among(power, vectors)` for the first 2^k ranks; each other rank gives its vectors to one of them."""
    rank, power = group.rank, power_of(group.size)
    if rank >= power:
        yield group.send(rank - power, f"{label}: before", vectors)
        return (yield group.receive(rank - power, f"{label}: after"))
    if rank + power < group.size:
        arrived = yield group.receive(rank + power, f"{label}: before")
        vectors = yield from group.add(vectors, arrived)
    vectors = yield from among(power, vectors)
    if rank + power < group.size:
        yield group.send(rank + power, f"{label}: after", vectors)
    return vectors


def ticks_beyond(N, n, alpha, beta, gamma):
    """Return the ticks that `folded` adds where N is not a power of 2."""
    return 0 if N == power_of(N) else 2 * (alpha + n * beta) + n * gamma


def sent_beyond(rank, N, n, among_power):
    """Return the numbers that a rank sends in `folded`. among_power: those that it sends among the 2^k."""
    power = power_of(N)
    if rank >= power:
        return n
    return among_power + (n if rank + power < N else 0)


def swapped(group, partner, label, value):
    """Send `value` to the partner; return what the partner has sent."""
    yield group.send(partner, label, value)
    return (yield group.receive(partner, label))
