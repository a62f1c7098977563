"""From one rank to all, and from all to one."""

import math

from .group import cut_into_chunks, join_chunks, ring_gather


def distances(size):
    """1, 2, 4, ..., below the number of ranks.

    >>> distances(5)
    [1, 2, 4]
    """
    return [2 ** k for k in range((size - 1).bit_length())]


def reduce_to(group, vectors, root, label):
    """The sum over all ranks on the rank `root`, added along the binary tree over the ranks from there on.

    k (alpha + n beta) + k n gamma for N = 2^k. What other ranks get are partial sums.
    """
    place = (group.rank - root) % group.size
    for distance in distances(group.size):
        if place & distance:
            yield group.send(group.rank - distance, label, vectors)
            return vectors
        if place + distance < group.size:
            arrived = yield group.receive(group.rank + distance, label)
            vectors = yield from group.add(vectors, arrived)
    return vectors


def binomial(group, vectors, root, label):
    """The vectors of the rank `root`: whoever has them sends them on, the farthest rank first.

    k (alpha + n beta) for N = 2^k.
    """
    place = (group.rank - root) % group.size
    for distance in reversed(distances(group.size)):
        if place % (2 * distance) == distance:
            vectors = yield group.receive(group.rank - distance, label)
        elif place % (2 * distance) == 0 and place + distance < group.size:
            yield group.send(group.rank + distance, label, vectors)
    return vectors


def scatter_and_gather(group, vectors, root, label):
    """Each rank gets a chunk, along a binomial tree, and the chunks go round a ring.

    (k + N - 1) alpha + 2 (N - 1)/N n beta for N = 2^k: fewer bytes than `binomial`, more messages.
    """
    place = (group.rank - root) % group.size
    chunks = cut_into_chunks(vectors, group.size)
    for distance in reversed(distances(group.size)):
        if place % (2 * distance) == distance:
            chunks[place:place + distance] = yield group.receive(group.rank - distance, f"{label}: scatter")
        elif place % (2 * distance) == 0 and place + distance < group.size:
            there = slice(place + distance, place + 2 * distance)
            yield group.send(group.rank + distance, f"{label}: scatter", chunks[there])
    yield from ring_gather(group, chunks, place, f"{label}: gather")
    return join_chunks(chunks, vectors)


def chain(group, vectors, root, label, n_segments):
    """Segments of the vectors go from rank to rank: while one is handed on, the next one arrives.

    (N - 2 + s) (alpha + n/s beta) for s segments, if a rank sends one after the other has arrived (blocking
    links); least for s = sqrt((N - 2) n beta/alpha). If not, (N - 1) (alpha + n/s beta) + (s - 1) n/s beta.
    """
    place = (group.rank - root) % group.size
    segments = cut_into_chunks(vectors, n_segments)
    for number in range(n_segments):
        if place > 0:
            segments[number] = yield group.receive(group.rank - 1, f"{label} {number}")
        if place + 1 < group.size:
            yield group.send(group.rank + 1, f"{label} {number}", segments[number])
    return join_chunks(segments, vectors)


def best_segments(size, n_bytes, alpha, beta):
    """How many segments make the `chain` shortest over blocking links.

    >>> best_segments(6, n_bytes=1024, alpha=16, beta=1/16)
    4
    """
    return max(1, round(math.sqrt((size - 2) * n_bytes * beta / alpha)))
