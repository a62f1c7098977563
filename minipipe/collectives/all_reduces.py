"""The all-reduces: programs that sum the vectors of all ranks, on all ranks.

Each program states the closed form of its ticks. A new all-reduce is a new file in this
package.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..checks import one_of, real_number, truth, whole_number
from ..registry import Registry
from ..sums import TreeSum
from .group import (
    Group, Program, cut_into_chunks, exchanged, flattened, join_chunks, length, ring_add, ring_gather,
    unflattened,
)

OWNERS = "owners"


@dataclass(frozen=True)
class AllReduceFacts:
    """The facts that an all-reduce states about itself. Contract tests check them.

    Args:
        ticks: the closed form of its ticks: a function of N > 1 ranks, n numbers on
            each, alpha, beta, gamma and ports, see `all_reduce_ticks`. It returns None
            where it does not hold, but never for N = 2^k that divides n.
        order: the order of its additions: "tree", along the tree over the ranks, with
            the bits of one device; "tree of 2^k", that tree for N = 2^k only; "ranks",
            in the order of the ranks; or "own", another order.
        source: the paper, or "no known paper".
    """

    ticks: Callable
    order: str
    source: str


ALL_REDUCES = Registry("minipipe.collectives", AllReduceFacts)  # name -> program (group, vectors)


def all_reduce_ticks(
    algorithm: str, N: int, n: int, alpha: float = 0, beta: float = 0, gamma: float = 0, ports: bool = True
) -> float:
    """Return the ticks of an all-reduce by its closed form, which equals a run exactly.

    Args:
        algorithm: a name of `ALL_REDUCES`.
        N: the number of ranks.
        n: how many numbers each rank has; if N divides n, it may count bytes instead.
        alpha: the latency of a message, in ticks.
        beta: ticks per number sent; per byte, if n is in bytes.
        gamma: ticks per number added; per byte, if n is in bytes.
        ports: whether each rank has an ingress and an egress, see
            `minipipe.cluster.ports`; if not, only messages between the same two ranks
            share a link.

    Raises:
        ValueError: where no closed form holds, such as for N other than 2^k, or chunks
            of different lengths.

    >>> [int(all_reduce_ticks(name, 4, 1024, alpha=100, beta=1/16)) for name in ("naive", "ring", "owners")]
    [584, 696, 296]
    """
    one_of("algorithm", algorithm, ALL_REDUCES)
    N, n, ports = whole_number("N", N, 1), whole_number("n", n, 0), truth("ports", ports)
    alpha, beta, gamma = (
        real_number(name, value, least=0)
        for name, value in (("alpha", alpha), ("beta", beta), ("gamma", gamma))
    )
    if N == 1:
        return 0
    closed_form = ALL_REDUCES.facts[algorithm].ticks
    ticks = closed_form(N, n, alpha, beta, gamma, ports)
    if ticks is None:
        for ranks in (N, power_of(N)):
            numbers = -(-n // ranks) * ranks  # in chunks of one length
            if closed_form(ranks, numbers, alpha, beta, gamma, ports) is not None:
                break
        raise ValueError(
            f"{algorithm!r} has no closed form for N={N}, n={n} and ports={ports}: count the ticks of a run, "
            f"or use N={ranks} and n={numbers}"
        )
    return ticks


# All vectors are sent to one rank, which sends the sum back.

def _naive_ticks(N, n, alpha, beta, gamma, ports):
    """Return the ticks until rank 0 has added N - 1 terms, and all have the sum.

    Without ports, all terms arrive at the same time. With ports, term i of N - 1
    arrives after alpha + i n beta, and N - i additions are left then. The sum of both
    is linear in i, so its maximum is at the first or the last term.
    """
    if not ports:
        return 2 * (alpha + n * beta) + (N - 1) * n * gamma
    added_as_they_come = n * max((N - 1) * beta + gamma, beta + (N - 1) * gamma)
    return 2 * alpha + added_as_they_come + (N - 1) * n * beta


@ALL_REDUCES("naive", ticks=_naive_ticks, order="ranks", source="Dive into Deep Learning, section 13.7")
def naive(group: Group, vectors: list) -> Program:
    """Send all `vectors` to rank 0 of `group`, which adds them and sends the sum back.

    Ticks: 2 alpha + 2 (N - 1) n beta + n gamma for gamma <= beta: rank 0's ports are
    the bottleneck, and each addition but the last is done when the next term arrives.
    """
    label = group.begin("naive all-reduce")
    if group.rank > 0:
        yield group.send(0, f"{label}: term", vectors)
        return (yield group.receive(0, f"{label}: sum"))
    for rank in range(1, group.size):
        arrived = yield group.receive(rank, f"{label}: term")
        vectors = yield from group.add(vectors, arrived)
    for rank in range(1, group.size):
        yield group.send(rank, f"{label}: sum", vectors)
    return vectors


def power_of(N: int) -> int:
    """Return 2^k, the largest power of 2 that is at most N."""
    return 2 ** (N.bit_length() - 1)


def distances(size: int) -> list[int]:
    """Return the powers 1, 2, 4, ... below `size`, the number of ranks.

    >>> distances(5)
    [1, 2, 4]
    """
    return [2 ** k for k in range((size - 1).bit_length())]


def _tree_ticks(N, n, alpha, beta, gamma, ports):
    """Return 2 k (alpha + n beta) + k n gamma for N = 2^k; None for other N.

    Up, rank 0 has the sum of the first 2^i ranks after i steps, since both halves of
    these ranks take the same time. Down, the last rank has the sum after k steps.
    """
    k = N.bit_length() - 1
    return k * (2 * (alpha + n * beta) + n * gamma) if N == 2**k else None


@ALL_REDUCES("tree", ticks=_tree_ticks, order="tree", source="Thakur, Rabenseifner and Gropp 2005")
def tree(group: Group, vectors: list) -> Program:
    """Send partial sums of `vectors` up a binomial tree of `group`, and the sum down.

    Ticks: 2 k (alpha + n beta) + k n gamma for N = 2^k, with ports or without.
    """
    label, rank, children = group.begin("tree all-reduce"), group.rank, []
    for distance in distances(group.size):
        if rank & distance:
            yield group.send(rank - distance, f"{label}: up", vectors)
            vectors = yield group.receive(rank - distance, f"{label}: down")
            break
        if rank + distance < group.size:
            children.append(rank + distance)
            arrived = yield group.receive(rank + distance, f"{label}: up")
            vectors = yield from group.add(vectors, arrived)
    for child in reversed(children):  # the farthest first: it has the most ranks below it
        yield group.send(child, f"{label}: down", vectors)
    return vectors


# Partners among the first 2^k ranks. Each other rank sends its vectors to one of them, and gets the sum.

def folded(group: Group, vectors: list, label: str, among: Callable) -> Program:
    """Run `among(power, vectors)` on the first `power` = 2^k ranks.

    The other ranks send their vectors to one of them, and get the sum.

    Args:
        group, vectors: as for an all-reduce.
        label: the label of the messages.
        among: a program that sums the vectors of these ranks.
    """
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


def swapped(group: Group, partner: int, label: str, value: Any) -> Program:
    """Send `value` as `label` to rank `partner` of `group`; return what it has sent."""
    yield group.send(partner, label, value)
    return (yield group.receive(partner, label))


def _doubling_ticks(N, n, alpha, beta, gamma, ports):
    """Return k (alpha + n beta + n gamma) for k swaps if N = 2^k; else None."""
    k = N.bit_length() - 1
    return k * (alpha + n * beta + n * gamma) if N == 2**k else None


@ALL_REDUCES(
    "doubling", ticks=_doubling_ticks, order="tree of 2^k", source="Thakur, Rabenseifner and Gropp 2005"
)
def doubling(group: Group, vectors: list) -> Program:
    """Swap all `vectors` in `group` at distance 1, 2, 4, ..., and add them.

    k (alpha + n beta + n gamma) for N = 2^k: recursive doubling.
    """
    label = group.begin("doubling all-reduce")

    def among(power, vectors):
        for distance in distances(power):
            arrived = yield from swapped(group, group.rank ^ distance, label, vectors)
            vectors = yield from group.add(vectors, arrived)
        return vectors

    return (yield from folded(group, vectors, label, among))


def _halving_ticks(N, n, alpha, beta, gamma, ports):
    """Return the ticks of k steps that halve the vector, and k steps that double it.

    2 k alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma for N = 2^k that divides n; else
    None.
    """
    if N != power_of(N) or n % N:
        return None
    sent = n - n // N
    return 2 * (N.bit_length() - 1) * alpha + sent * (2 * beta + gamma)


@ALL_REDUCES(
    "halving",
    ticks=_halving_ticks,
    order="tree of 2^k",
    source="Thakur, Rabenseifner and Gropp 2005; the comments in MPICH's allreduce",
)
def halving(group: Group, vectors: list) -> Program:
    """Swap halves, quarters, ... of `vectors` in `group`, and add; then swap the sums.

    Ticks: 2 k alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma for N = 2^k. This is
    Rabenseifner's algorithm.
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


# The vectors are cut into chunks, and each chunk is summed on another rank.

def _ring_ticks(N, n, alpha, beta, gamma, ports):
    """Return (N - 1) (2 alpha + L (2 beta + gamma)), where L = ceil(n/N).

    The longest chunk, of L numbers, takes N - 1 steps that add and N - 1 that copy, one
    after the other.
    """
    return (N - 1) * (2 * alpha + length(n, N, 0) * (2 * beta + gamma))


@ALL_REDUCES(
    "ring", ticks=_ring_ticks, order="own",
    source="Patarasuk and Yuan 2009; Thakur, Rabenseifner and Gropp 2005",
)
def ring(group: Group, vectors: list) -> Program:
    """Send chunks of `vectors` round `group`, N - 1 steps to add and N - 1 to copy.

    Ticks: 2 (N - 1) alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma, for any N. In step
    s, rank r sends chunk r - s. No all-reduce sends fewer bytes.
    """
    label = group.begin("ring all-reduce")
    chunks = cut_into_chunks(vectors, group.size)
    yield from ring_add(group, chunks, group.rank, f"{label}: add")
    yield from ring_gather(group, chunks, group.rank + 1, f"{label}: gather")
    return join_chunks(chunks, vectors)


def _owners_ticks(N, n, alpha, beta, gamma, ports):
    """Return the ticks until all ranks have received the sum of the longest chunk."""
    if ports and n % N:
        return None
    at_once = N - 1 if ports else 1  # without ports, N - 1 messages take the time of one
    return 2 * alpha + length(n, N, 0) * (2 * at_once * beta + (N - 1) * gamma)


@ALL_REDUCES(OWNERS, ticks=_owners_ticks, order="tree", source="no known paper")
def owners(group: Group, vectors: list) -> Program:
    """Send chunk c of all `vectors` to rank c of `group`, which sends their sum to all.

    Ticks: 2 alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma, for any N that divides n.
    Each rank adds along the tree.
    """
    total = TreeSum(group.size)
    total.add(group.rank, vectors)
    total, _ = yield from at_owners(group, total)
    return total


def at_owners(group: Group, total: Any, value: Any = None) -> Program:
    """Sum terms that are spread over the ranks; return (the total, all ranks' `value`).

    Chunk c of all terms is sent to rank c, which adds it up in the order of the tree or
    of the ranks, and sends the sum to all ranks. Without terms, the total is None.

    Args:
        group: the `Group` of this rank.
        total: a `TreeSum` or a `RunningSum` with the terms of this rank.
        value: a small value, which is sent in the messages of the terms.
    """
    label = group.begin("owners all-reduce")
    mine, values = yield from reduce_scatter_sum_and_gather(group, total, value, f"{label}: add")
    of_all = yield from exchanged(group, lambda c: mine, f"{label}: gather")
    like = next(iter(total.pending.values()), None)
    return unflattened(join_chunks(of_all, flattened(like)), like), values


def reduce_scatter_sum_and_gather(group: Group, total: Any, value: Any, label: str = "") -> Program:
    """Return (this rank's chunk of the total, the list of all ranks' `value`).

    This is the first half of `at_owners`, and has the same bits. The chunk is a list of
    vectors.

    Args:
        group, total, value: as for `at_owners`.
        label: the label of the messages.
    """
    label = label or group.begin("owners reduce-scatter")
    cuts = {node: cut_into_chunks(flattened(term), group.size) for node, term in total.pending.items()}
    chunks = [{node: of_node[c] for node, of_node in cuts.items()} for c in range(group.size)]
    arrived = yield from exchanged(group, lambda c: (chunks[c], value), label)
    parts, values = zip(*arrived)
    mine = type(total)(total.n)
    mine.absorb(parts[0])
    for part in parts[1:]:
        yield from group.add(mine, part, type(mine).absorb)
    return mine.value if mine.pending else [], list(values)
