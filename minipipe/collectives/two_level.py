"""An all-reduce for nodes with fast links inside."""

from fractions import Fraction
from functools import cache
from math import isqrt

from ..checks import whole_number
from .all_reduces import ALL_REDUCES
from .group import cut_into_chunks, join_chunks, length, ring_add, ring_gather
from .ring import ring, ring_numbers, ring_ticks


@cache
def default_node_size(N):
    """Return the largest divisor of N that is at most sqrt(N).

    >>> [default_node_size(N) for N in (1, 7, 12, 16)]
    [1, 1, 3, 4]
    """
    return next(size for size in range(isqrt(N), 0, -1) if N % size == 0)


def _ticks(N, n, alpha, beta, gamma):
    size = default_node_size(N)
    inside = 2 * (size - 1) * alpha + Fraction(size - 1, size) * n * (2 * beta + gamma)
    return inside + ring_ticks(N // size, Fraction(n, size), alpha, beta, gamma)


def _numbers_sent(rank, N, n):
    size = default_node_size(N)
    node, place = divmod(rank, size)
    mine, next_one = length(n, size, place), length(n, size, (place + 1) % size)
    return 2 * n - mine - next_one + ring_numbers(node, N // size, mine)


@ALL_REDUCES("two-level", ticks=_ticks, numbers_sent=_numbers_sent, order="own", source="no known paper")
def two_level(group, vectors, node_size=None):
    """For nodes with fast links inside: each chunk is added in its node, then over the nodes, then gathered.

    2 (g - 1) (alpha + n/g beta) inside, and 2 (G - 1) (alpha' + n/N beta') between, for G nodes of g ranks.

    node_size: g, how many ranks, one after the other, are in a node; it divides N. Left out, it is the
        largest divisor that is at most sqrt(N).
    """
    if node_size is None:
        node_size = default_node_size(group.size)
    node_size = whole_number("node_size", node_size, 1)
    if group.size % node_size:
        raise ValueError(f"node_size={node_size} does not divide {group.size} ranks: choose one that does")
    label = group.begin("two-level all-reduce")
    node, place = divmod(group.rank, node_size)
    inside = group.part(range(node * node_size, (node + 1) * node_size))
    between = group.part(range(place, group.size, node_size))
    chunks = cut_into_chunks(vectors, node_size)
    yield from ring_add(inside, chunks, place - 1, f"{label}: add")
    chunks[place] = yield from ring(between, chunks[place])
    yield from ring_gather(inside, chunks, place, f"{label}: gather")
    return join_chunks(chunks, vectors)
