"""Nested arrays as a row of numbers, exchanges of its chunks, and groups of devices."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import chain
from typing import Any

from ..checks import real_number, shown, whole_number, whole_numbers
from ..cluster import Bytes, Compute, Label, Receive, Send, sent_bytes
from ..cluster.memory import mapped

Program = Generator[Any, Any, Any]  # yields `Compute`, `Send` and `Receive`, and returns a result


def flattened(value: Any) -> list:
    """Return the list of flat vectors of all arrays in `value`, views where possible.

    Args:
        value: arrays or numbers, or lists, tuples and dicts of them; None has no
            numbers.

    >>> import numpy as np
    >>> flattened([(np.eye(2), None), 3.0])
    [array([1., 0., 0., 1.]), array([3.])]
    """
    vectors = []

    def append_vector(leaf):
        if not isinstance(leaf, Bytes):  # `Bytes` have no axes
            from ..arrays import array_of_numbers  # here, so that the package loads without NumPy

            leaf = array_of_numbers(leaf).reshape(-1)
        vectors.append(leaf)

    mapped(append_vector, value)
    return vectors


def unflattened(vectors: Iterable, like: Any) -> Any:
    """Return `vectors` in the structure of `like`: the inverse of `flattened`.

    >>> import numpy as np
    >>> unflattened([np.arange(4.0), np.array([4.0])], like=[(np.eye(2), None), 3.0])
    [(array([[0., 1.],
           [2., 3.]]), None), 4.0]
    """
    rest = iter(vectors)

    def shaped(leaf):
        vector = next(rest)
        if not hasattr(leaf, "shape"):
            return vector.item()
        return vector.reshape(leaf.shape) if leaf.shape else vector.reshape(())[()]

    return mapped(shaped, like)


def cut_into_chunks(vectors: list, n: int) -> list[list]:
    """Cut the row of vectors into n chunks, each a list of parts of vectors.

    Their lengths differ by at most one number; the first chunks are the longer ones.

    >>> import numpy as np
    >>> cut_into_chunks([np.arange(3), np.arange(10, 12)], 3)
    [[array([0, 1])], [array([2]), array([10])], [array([11])]]
    """
    c, position, n_numbers = 0, 0, sum(vector.size for vector in vectors)
    chunks: list = [[] for _ in range(n)]
    ends = [begin(n_numbers, n, c + 1) for c in range(n)]
    for vector in vectors:
        start = 0
        while start < vector.size:
            while position == ends[c]:
                c += 1
            stop = min(vector.size, start + ends[c] - position)
            chunks[c].append(vector[start:stop])
            position += stop - start
            start = stop
    return chunks


def join_chunks(chunks: Iterable[Iterable], like: Iterable) -> list:
    """Join chunks to vectors: the inverse of `cut_into_chunks`.

    Args:
        chunks: a result of `cut_into_chunks`.
        like: vectors of the same sizes as the result.

    >>> import numpy as np
    >>> join_chunks([[np.array([0, 1])], [np.array([2]), np.array([10])]], like=[np.ones(3), np.ones(1)])
    [array([0, 1, 2]), array([10])]
    """
    parts, vectors = chain(*chunks), []
    for vector in like:
        row, size = [vector[:0]], 0
        while size < vector.size:
            row.append(next(parts))
            size += row[-1].size
        vectors.append(row[-1] if len(row) <= 2 else _in_a_row(row[1:]))
    return vectors


def length(n_numbers: int, n: int, c: int) -> int:
    """Return the length of chunk c of n: the first n_numbers mod n have one more."""
    return n_numbers // n + (c < n_numbers % n)


def begin(n_numbers: int, n: int, c: int) -> int:
    """Return the index of the first number of chunk c, of n chunks of `n_numbers`."""
    return c * (n_numbers // n) + min(c, n_numbers % n)


def added(a: Any, b: Any) -> Any:
    """Return a + b, for arrays and for nested lists of arrays."""
    if isinstance(a, list):
        return [added(*pair) for pair in zip(a, b, strict=True)]
    return a + b


def _in_a_row(parts):
    if isinstance(parts[0], Bytes):
        return Bytes(sum(part.nbytes for part in parts), parts[0].itemsize)
    import numpy as np  # here, as above

    return np.concatenate(parts)


# All ranks send at the same time: each to all others, or to the next in a ring.

def exchanged(group: Group, part_of: Callable[[int], Any], label: str) -> Program:
    """Return the list of the parts that all ranks have for this rank.

    Each rank sends to the next rank first, then to the one after it, so that messages
    do not queue at one port: alpha + (N - 1) n beta for n bytes to each.

    Args:
        group: the `Group` of this rank.
        part_of: a function of c that returns this rank's part for rank c.
        label: the label of the messages.
    """
    size, rank = group.size, group.rank
    for step in range(1, size):
        yield group.send(rank + step, label, part_of((rank + step) % size))
    parts = [part_of(rank)] * size
    for step in range(1, size):
        parts[rank - step] = yield group.receive(rank - step, label)
    return parts


def ring_add(group: Group, chunks: list, first: int, label: str) -> Program:
    """Reduce-scatter around a ring: in the end, chunk `first` + 1 is the sum.

    Args:
        group: the `Group` of this rank.
        chunks: the list of N chunks, whose entries are replaced.
        first: the index, mod N, of the chunk that this rank sends first. It is one more
            than that of the rank before.
        label: the label of the messages.
    """
    for step in range(group.size - 1):
        there, here = (first - step) % group.size, (first - step - 1) % group.size
        yield group.send(group.rank + 1, f"{label} {step}", chunks[there])
        arrived = yield group.receive(group.rank - 1, f"{label} {step}")
        chunks[here] = yield from group.add(chunks[here], arrived)


def ring_gather(group: Group, chunks: list, own: int, label: str) -> Program:
    """All-gather around a ring.

    Args:
        group, chunks, label: as for `ring_add`.
        own: the index, mod N, of the chunk that this rank has. It is one more than that
            of the rank before.
    """
    for step in range(group.size - 1):
        there, here = (own - step) % group.size, (own - step - 1) % group.size
        yield group.send(group.rank + 1, f"{label} {step}", chunks[there])
        chunks[here] = yield group.receive(group.rank - 1, f"{label} {step}")


# The devices that take part in a collective.

class Group:
    """The devices that take part in collectives. In MPI: a communicator.

    Each device makes its own `Group`. All ranks must call the same collectives in the
    same order: the label of a message has the number of the call.

    Args:
        rank: the index of this device in `devices`.
        devices: the numbers of all devices of the group, the same list on each.
        name: a prefix of the labels, if a device communicates in several groups at
            once.
        gamma: ticks per byte that is added to another.
        stays: whether no rank changes a sent value before the end of the run, as for
            `Send`.
    """

    def __init__(
        self, rank: int, devices: Sequence[int], name: str = "", gamma: float = 0, stays: bool = False
    ) -> None:
        self.devices, self.name, self.stays = list(whole_numbers("devices", devices, 0)), name, stays
        self.gamma = real_number("gamma", gamma, least=0, note=" ticks", clock=True)
        if len(set(self.devices)) < len(self.devices):
            raise ValueError(f"devices={self.devices} has a device twice: name each once")
        self.rank = whole_number("rank", rank)
        if self.rank not in range(self.size):
            raise ValueError(f"rank={shown(rank)} is not in the group of {self.size}: ranks count from 0")
        self._n_calls = 0

    @property
    def size(self) -> int:
        """N, the number of ranks."""
        return len(self.devices)

    def part(self, ranks: Sequence[int]) -> Group:
        """Return the group of some of these ranks, which include this rank."""
        name = f"{self.name}{self._n_calls} of {ranks[0]}: "
        devices = [self.devices[rank] for rank in ranks]
        return Group(ranks.index(self.rank), devices, name, self.gamma, self.stays)

    def begin(self, collective: str) -> str:
        """Return the label of the next call of `collective`, the same on all ranks."""
        self._n_calls += 1
        return f"{self.name}{collective} {self._n_calls}"

    def send(self, to: int, label: str, value: Any) -> Send:
        """Return the request to send `value` as `label` to the rank `to` mod N."""
        return Send(label, value, self.devices[to % self.size], stays=self.stays)

    def receive(self, source: int, label: str) -> Receive:
        """Return the request to receive `label` from the rank `source` mod N."""
        return Receive(label, self.devices[source % self.size])

    def add(self, mine: Any, arrived: Any, function: Callable = added) -> Program:
        """Return `function(mine, arrived)`: a program of gamma ticks per byte."""
        if not self.gamma:
            return function(mine, arrived)
        ticks = self.gamma * sent_bytes(arrived)
        return (yield Compute(Label("add", "add"), function, mine, arrived, ticks=ticks))
