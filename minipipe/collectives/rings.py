"""Chunks that go round a ring of ranks."""


def ring_add(group, chunks, first, label):
    """A reduce-scatter: after N - 1 steps, the chunk `first` + 1 is the sum over all ranks.

    chunks: N of them; a list, whose entries are replaced.
    first: the chunk that this rank sends first, counted around; the chunk after that of the rank before.
    """
    for step in range(group.size - 1):
        there, here = (first - step) % group.size, (first - step - 1) % group.size
        yield group.send(group.rank + 1, f"{label} {step}", chunks[there])
        arrived = yield group.receive(group.rank - 1, f"{label} {step}")
        chunks[here] = yield from group.add(chunks[here], arrived)


def ring_gather(group, chunks, own, label):
    """An all-gather: each rank has the chunk `own`, the one after that of the rank before."""
    for step in range(group.size - 1):
        there, here = (own - step) % group.size, (own - step - 1) % group.size
        yield group.send(group.rank + 1, f"{label} {step}", chunks[there])
        chunks[here] = yield group.receive(group.rank - 1, f"{label} {step}")
