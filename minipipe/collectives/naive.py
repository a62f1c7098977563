"""An all-reduce in which everybody sends to one rank."""

from .all_reduces import ALL_REDUCES


def _ticks(N, n, alpha, beta, gamma):
    added_as_they_come = n * max((N - 1) * beta + gamma, beta + (N - 1) * gamma)
    return 2 * alpha + added_as_they_come + (N - 1) * n * beta


@ALL_REDUCES(
    "naive",
    ticks=_ticks,
    numbers_sent=lambda rank, N, n: n if rank else (N - 1) * n,
    order="ranks",
    source="Dive into Deep Learning, section 13.7",
)
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
