"""A message from each rank to each other one, all at once."""


def exchanged(group, part_of, label):
    """What all ranks have for this one, a list in the order of the ranks.

    part_of: `part_of(c)` is what this rank has for rank c.

    Each sends to the next rank first, then to the one after that, so that they do not all queue at one port:
    alpha + (N - 1) n beta for n bytes to each.
    """
    size, rank = group.size, group.rank
    for step in range(1, size):
        yield group.send(rank + step, label, part_of((rank + step) % size))
    parts = [part_of(rank)] * size
    for step in range(1, size):
        parts[rank - step] = yield group.receive(rank - step, label)
    return parts
