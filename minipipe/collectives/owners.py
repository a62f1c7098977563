"""An all-reduce in which each chunk has an owner; sums whose terms are spread over the ranks."""

from fractions import Fraction

from ..sums import TreeSum
from .all_reduces import ALL_REDUCES
from .group import cut_into_chunks, exchanged, flattened, join_chunks, length, unflattened

OWNERS = "owners"


@ALL_REDUCES(
    OWNERS,
    ticks=lambda N, n, alpha, beta, gamma: 2 * alpha + Fraction(N - 1, N) * n * (2 * beta + gamma),
    numbers_sent=lambda rank, N, n: n + (N - 2) * length(n, N, rank),
    order="tree",
    source="no known paper",
)
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
    return unflattened(join_chunks(of_all, flattened(like)), like), besides


def own_chunk(group, total, label, beside=None):
    """(this rank's chunk of the total of a sum whose terms are spread over the ranks: a list of vectors; what
    all ranks have `beside`: a list)

    total, beside: as for `at_owners`.
    """
    cuts = {node: cut_into_chunks(flattened(term), group.size) for node, term in total.pending.items()}
    chunks = [{node: of_node[c] for node, of_node in cuts.items()} for c in range(group.size)]
    return (yield from to_owners(group, chunks, type(total)(total.n), label, beside))


def to_owners(group, chunks, total, label, beside=None):
    """(the sum of chunk r of all ranks' terms, on rank r: a list of vectors; what all have `beside`: a list)

    chunks: chunk c of this rank's terms as {node: vectors} in place c.
    total: a sum without terms, which takes them up.
    """
    arrived = yield from exchanged(group, lambda c: (chunks[c], beside), label)
    parts, besides = zip(*arrived)
    total.absorb(parts[0])
    for part in parts[1:]:
        yield from group.add(total, part, type(total).absorb)
    return total.value if total.pending else [], list(besides)
