"""An all-reduce around a ring."""

from fractions import Fraction

from .all_reduces import ALL_REDUCES
from .group import cut_into_chunks, join_chunks, length, ring_add, ring_gather


def ring_ticks(N, n, alpha, beta, gamma):
    """Return the ticks of N - 1 steps in which chunks are added, and N - 1 in which sums are copied."""
    return 2 * (N - 1) * alpha + Fraction(N - 1, N) * n * (2 * beta + gamma)


def ring_numbers(rank, N, n):
    """Return the numbers that a rank sends: all chunks but the next one, then all but the one after that."""
    return 2 * n - length(n, N, (rank + 1) % N) - length(n, N, (rank + 2) % N)


@ALL_REDUCES(
    "ring",
    ticks=ring_ticks,
    numbers_sent=ring_numbers,
    order="own",
    source="Patarasuk and Yuan 2009; Thakur, Rabenseifner and Gropp 2005",
)
def ring(group, vectors):
    """Chunks go round a ring: N - 1 steps in which they are added, and N - 1 in which the sums are copied.

    2 (N - 1) alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma, for any N. In step s, rank r sends chunk r - s.
    No all-reduce sends fewer bytes.
    """
    label = group.begin("ring all-reduce")
    chunks = cut_into_chunks(vectors, group.size)
    yield from ring_add(group, chunks, group.rank, f"{label}: add")
    yield from ring_gather(group, chunks, group.rank + 1, f"{label}: gather")
    return join_chunks(chunks, vectors)
