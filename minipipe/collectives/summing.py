"""The sum over all ranks, on all ranks: seven programs for one result.

Each takes the `Group` and this rank's vectors (a list of arrays, see `vectors`), and returns those of the
sum. N ranks, n bytes each; alpha = latency, beta = ticks per byte on the way, gamma = ticks per byte that
is added. The ticks of each and the bytes that it sends are in `costs`.

All ranks get the same bits. Which bits they are depends on the order of the additions, and that on the
program: with floats, naive adds in the order of the ranks; tree, doubling, halving and owners along the
binary tree over the ranks (`TreeSum`; doubling and halving only if N is a power of 2); ring and two-level
begin each chunk at another rank, so that the order depends on the place of a number in its vector.

Sources: Thakur, Rabenseifner and Gropp 2005 (tree, doubling, halving, ring); Patarasuk and Yuan 2009 (the
ring sends as few bytes as can be).
"""

from ..sums import TreeSum
from .broadcasting import binomial, distances, reduce_to
from .rings import ring_add, ring_gather
from .exchanging import exchanged
from .vectors import cut, flattened, joined, unflattened


def naive(group, vectors):
    """Everybody sends to rank 0, which adds in the order of the ranks and sends the sum back.

    2 alpha + 2 (N - 1) n beta + n gamma for gamma <= beta: rank 0's ports are the bottleneck, and all but the
    last addition is over when the next term is there.
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


def tree(group, vectors):
    """A binomial tree up to rank 0, and down again.

    2 k (alpha + n beta) + k n gamma for N = 2^k.
    """
    label = group.begin("tree all-reduce")
    total = yield from reduce_to(group, vectors, 0, f"{label}: up")
    return (yield from binomial(group, total, 0, f"{label}: down"))


def doubling(group, vectors):
    """Recursive doubling: partners at distance 1, 2, 4, ... swap all that they have, and both add.

    k (alpha + n beta + n gamma) for N = 2^k; ranks beyond a power of 2 give theirs to another rank
    before, and get the sum after: 2 (alpha + n beta) + n gamma more.
    """
    label = group.begin("doubling all-reduce")

    def among(power, vectors):
        for distance in distances(power):
            arrived = yield from _swapped(group, group.rank ^ distance, label, vectors)
            vectors = yield from group.add(vectors, arrived)
        return vectors

    return (yield from _folded(group, vectors, label, among))


def halving(group, vectors):
    """Halving and doubling (Rabenseifner): partners swap a half, a quarter, ... and add, then swap the sums.

    2 k alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma for N = 2^k; with more ranks as in `doubling`.
    """
    label = group.begin("halving all-reduce")

    def among(power, vectors):
        chunks, first, behind, steps = cut(vectors, power), 0, power, []
        for distance in distances(power):
            middle = (first + behind) // 2
            mine, theirs = slice(first, middle), slice(middle, behind)
            if group.rank & distance:
                mine, theirs = theirs, mine
            partner = group.rank ^ distance
            arrived = yield from _swapped(group, partner, f"{label}: add", chunks[theirs])
            chunks[mine] = yield from group.add(chunks[mine], arrived)
            steps.append((partner, mine, theirs))
            first, behind = mine.start, mine.stop
        for partner, mine, theirs in reversed(steps):
            chunks[theirs] = yield from _swapped(group, partner, f"{label}: gather", chunks[mine])
        return joined(chunks, vectors)

    return (yield from _folded(group, vectors, label, among))


def ring(group, vectors):
    """Chunks go round a ring: N - 1 steps in which they are added, and N - 1 in which the sums are copied.

    2 (N - 1) alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma, for any N. In step s, rank r sends chunk r - s.
    """
    label = group.begin("ring all-reduce")
    chunks = cut(vectors, group.size)
    yield from ring_add(group, chunks, group.rank, f"{label}: add")
    yield from ring_gather(group, chunks, group.rank + 1, f"{label}: gather")
    return joined(chunks, vectors)


def owners(group, vectors):
    """Chunk c of everybody goes to rank c, which adds them along the tree and sends the sum to everybody.

    2 alpha + 2 (N - 1)/N n beta + (N - 1)/N n gamma, for any N.
    """
    total = TreeSum(group.size)
    total.add(group.rank, vectors)
    total, _ = yield from at_owners(group, total)
    return total


def at_owners(group, total, beside=None):
    """(the total of a sum whose terms are spread over the ranks, None if there are none; what all ranks have
    `beside`: a list)

    total: a `TreeSum` or a `RunningSum`, what this rank has added.
    beside: something small, which travels in the messages of the terms.

    Chunk c of what everybody has goes to rank c, which puts it together in the order of the ranks, and sends
    the sum to everybody.
    """
    label = group.begin("owners all-reduce")
    mine, besides = yield from own_chunk(group, total, f"{label}: add", beside)
    of_all = yield from exchanged(group, lambda c: mine, f"{label}: gather")
    like = next(iter(total.pending.values()), None)
    return unflattened(joined(of_all, flattened(like)), like), besides


def own_chunk(group, total, label, beside=None):
    """(this rank's chunk of the total of a sum whose terms are spread over the ranks: a list of vectors; what
    all ranks have `beside`: a list)

    total, beside: as for `at_owners`.
    """
    cuts = {node: cut(flattened(term), group.size) for node, term in total.pending.items()}
    chunks = [{node: of_node[c] for node, of_node in cuts.items()} for c in range(group.size)]
    return (yield from to_owners(group, chunks, type(total)(total.n), label, beside))


def to_owners(group, chunks, total, label, beside=None):
    """(the sum of chunk r of all ranks' terms, on rank r: a list of vectors; what all have `beside`: a list)

    chunks: chunk c of this rank's terms as {node: vectors} in place c.
    total: a sum without terms, which takes them up.
    """
    arrived = yield from exchanged(group, lambda c: (chunks[c], beside), label)
    parts, besides = zip(*arrived, strict=True)
    total.absorb(parts[0])
    for part in parts[1:]:
        yield from group.add(total, part, type(total).absorb)
    return total.value if total.pending else [], list(besides)


def two_level(group, vectors, node_size):
    """For nodes with fast links inside: each chunk is added in its node, then over the nodes, then gathered.

    2 (g - 1) (alpha + n/g beta) inside, and 2 (G - 1) (alpha' + n/N beta') between, for G nodes of g ranks.

    node_size: g, how many ranks, one after the other, are in a node; it divides N.
    """
    if group.size % node_size:
        raise ValueError(f"node_size={node_size} does not divide {group.size} ranks: choose one that does")
    label = group.begin("two-level all-reduce")
    node, place = divmod(group.rank, node_size)
    inside = group.part(range(node * node_size, (node + 1) * node_size))
    between = group.part(range(place, group.size, node_size))
    chunks = cut(vectors, node_size)
    yield from ring_add(inside, chunks, place - 1, f"{label}: add")
    chunks[place] = yield from ring(between, chunks[place])
    yield from ring_gather(inside, chunks, place, f"{label}: gather")
    return joined(chunks, vectors)


def _swapped(group, partner, label, value):
    """What the partner has sent, who gets `value` meanwhile."""
    yield group.send(partner, label, value)
    return (yield group.receive(partner, label))


def _folded(group, vectors, label, among):
    """`among(power, vectors)` for the first 2^k ranks; each other rank gives its vectors to one of them."""
    rank, power = group.rank, 2 ** (group.size.bit_length() - 1)
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
