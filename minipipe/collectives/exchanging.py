"""All ranks send at once: each to all others, or to the next one in a ring."""

from ..checks import checked_name
from ..arguments import argument


def exchanged(group, part_of, label):
    """What all ranks have for this one, a list in the order of the ranks.

    part_of: `part_of(c)` is what this rank has for rank c.

    Each sends to the next rank first, then to the one after that, so that they do not all queue at one port:
    alpha + (N - 1) n beta for n bytes to each.
    """
    checked_name("label", label)
    argument("group", group)
    argument("part_of", part_of)
    size, rank = group.size, group.rank
    for step in range(1, size):
        yield group.send(rank + step, label, part_of((rank + step) % size))
    parts = [part_of(rank)] * size
    for step in range(1, size):
        parts[rank - step] = yield group.receive(rank - step, label)
    return parts


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
