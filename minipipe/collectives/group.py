"""Nested arrays as a row of numbers, how chunks of it are exchanged, and the group of devices that do so."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from itertools import accumulate, chain
from typing import Any

from ..checks import real_number, shown, whole_number, whole_numbers
from ..cluster import Bytes, Compute, Label, Receive, Send, sent_bytes

Program = Generator[Any, Any, Any]  # yields `Compute`, `Send` and `Receive`, and returns a result


def flattened(value: Any) -> list:
    """Return the numbers of `value` in a row: a list with a vector for each of its arrays.

    A vector is a view of its array where that is possible.

    Args:
        value: arrays or numbers, or lists, tuples and dicts of them; None has no
            numbers.

    >>> import numpy as np
    >>> flattened([(np.eye(2), None), 3.0])
    [array([1., 0., 0., 1.]), array([3.])]
    """
    vectors = []

    def append_vector(leaf):
        if not isinstance(leaf, Bytes):  # which have no axes
            from ..arrays import array_of_numbers  # here, so that the room loads without NumPy

            leaf = array_of_numbers(leaf).reshape(-1)
        vectors.append(leaf)

    _mapped(append_vector, value)
    return vectors


def unflattened(vectors: Iterable, like: Any) -> Any:
    """Return the vectors of `flattened`, in the form of the value `like`.

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

    return _mapped(shaped, like)


def cut_into_chunks(vectors: list, n: int) -> list[list]:
    """Return n chunks of the row, each a list of parts of the vectors.

    They are as equal as can be: if they must differ, the first are longer by one
    number.

    >>> import numpy as np
    >>> cut_into_chunks([np.arange(3), np.arange(10, 12)], 3)
    [[array([0, 1])], [array([2]), array([10])], [array([11])]]
    """
    c, position = 0, 0
    chunks: list = [[] for _ in range(n)]
    ends = list(accumulate(lengths(sum(vector.size for vector in vectors), n)))
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
    """Return the vectors of which `cut_into_chunks` has made these chunks.

    Args:
        like: vectors of the same sizes.

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


def lengths(n_numbers: int, n: int) -> list[int]:
    """Return how many of `n_numbers` are in each of n chunks.

    >>> lengths(5, 3)
    [2, 2, 1]
    """
    return [length(n_numbers, n, c) for c in range(n)]


def length(n_numbers: int, n: int, c: int) -> int:
    """Return how many of `n_numbers` are in chunk c of n: the first chunks are longer by one."""
    return n_numbers // n + (c < n_numbers % n)


def begin(n_numbers: int, n: int, c: int) -> int:
    """Return how many numbers are in the chunks before chunk c of n."""
    return c * (n_numbers // n) + min(c, n_numbers % n)


def added(a: Any, b: Any) -> Any:
    """Return a + b, for arrays and for lists of lists of arrays."""
    if isinstance(a, list):
        return [added(*pair) for pair in zip(a, b, strict=True)]
    return a + b


def _in_a_row(parts):
    if isinstance(parts[0], Bytes):
        return Bytes(sum(part.nbytes for part in parts), parts[0].itemsize)
    from ..arrays import in_a_row  # here, as above

    return in_a_row(parts)


def _mapped(function, value):
    """Return `value` with `function(leaf)` in the place of each of its arrays and numbers."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        make = getattr(value, "_make", type(value))
        return make([_mapped(function, item) for item in value])
    return function(value)


# All ranks send at once: each to all others, or to the next one in a ring.

def exchanged(group: Group, part_of: Callable[[int], Any], label: str) -> Program:
    """Return what all ranks have for this one, a list in the order of the ranks.

    Args:
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


def ring_add(group: Group, chunks: list, first: int, label: str) -> Program:
    """Reduce and scatter around a ring: after N - 1 steps, the chunk `first` + 1 is the sum over all ranks.

    Args:
        chunks: N of them; a list, whose entries are replaced.
        first: the chunk that this rank sends first, counted around; the chunk after
            that of the rank before.
    """
    for step in range(group.size - 1):
        there, here = (first - step) % group.size, (first - step - 1) % group.size
        yield group.send(group.rank + 1, f"{label} {step}", chunks[there])
        arrived = yield group.receive(group.rank - 1, f"{label} {step}")
        chunks[here] = yield from group.add(chunks[here], arrived)


def ring_gather(group: Group, chunks: list, own: int, label: str) -> Program:
    """Gather around a ring: each rank begins with the chunk `own`, the one after that of the rank before."""
    for step in range(group.size - 1):
        there, here = (own - step) % group.size, (own - step - 1) % group.size
        yield group.send(group.rank + 1, f"{label} {step}", chunks[there])
        chunks[here] = yield group.receive(group.rank - 1, f"{label} {step}")


# Along a binomial tree, from all ranks to one, and from one to all.

def distances(size: int) -> list[int]:
    """Return 1, 2, 4, ..., below the number of ranks.

    >>> distances(5)
    [1, 2, 4]
    """
    return [2 ** k for k in range((size - 1).bit_length())]


def reduce_to(group: Group, vectors: list, root: int, label: str) -> Program:
    """Add up the vectors of all ranks, along the binary tree over the ranks from the rank `root` on.

    k (alpha + n beta + n gamma) for N = 2^k; for other N see `_tree_ticks` in
    `all_reduces.py`. The root gets the sum, other ranks get partial sums.
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


def binomial(group: Group, vectors: list, root: int, label: str) -> Program:
    """Give all ranks the vectors of the rank `root`: who has them sends them on, the farthest rank first.

    k (alpha + n beta) for k = floor(log2 N); with ports n beta more, unless N = 2^k:
    then the root's message to the farthest rank goes first, and the next one waits for
    it.
    """
    place = (group.rank - root) % group.size
    for distance in reversed(distances(group.size)):
        if place % (2 * distance) == distance:
            vectors = yield group.receive(group.rank - distance, label)
        elif place % (2 * distance) == 0 and place + distance < group.size:
            yield group.send(group.rank + distance, label, vectors)
    return vectors


# Who takes part in a collective, and what one of them can ask for.

class Group:
    """The devices that talk to each other, and which of them this one is; each device makes its own.

    Args:
        rank: the place of this device among them, from 0 on.
        devices: the numbers of all devices of the group, the same list on each.
        name: what the labels of its messages begin with, if a device talks in several
            groups at once.
        gamma: ticks per byte that is added to another.
        stays: whether the ranks leave what they send as it is to the end of the run, as
            for `Send`.

    All ranks of a group must call the same collectives in the same order: each call has
    a number, by which its messages find each other. MPI calls a group a communicator.
    Raises `ValueError` for a rank that is not there.
    """

    def __init__(
        self, rank: int, devices: Sequence[int], name: str = "", gamma: float = 0, stays: bool = False
    ) -> None:
        self.devices, self.name, self.stays = list(whole_numbers("devices", devices, 0)), name, stays
        self.gamma = real_number("gamma", gamma, least=0, note=" ticks", clock=True)
        if len(set(self.devices)) < len(self.devices):
            raise ValueError(f"devices={self.devices} has a device twice: name each once")
        self.rank = self.check("rank", rank)
        self._n_calls = 0

    @property
    def size(self) -> int:
        """How many ranks there are, N."""
        return len(self.devices)

    def part(self, ranks: Sequence[int]) -> Group:
        """Return a group of some of these ranks, this one among them."""
        name = f"{self.name}{self._n_calls} of {ranks[0]}: "
        devices = [self.devices[rank] for rank in ranks]
        return Group(ranks.index(self.rank), devices, name, self.gamma, self.stays)

    def check(self, name: str, rank: int) -> int:
        """Return `rank` as a Python int; `ValueError` unless it is in the group. name: that errors have."""
        rank = whole_number(name, rank)
        if rank not in range(self.size):
            raise ValueError(f"{name}={shown(rank)} is not in the group of {self.size}: ranks count from 0")
        return rank

    def begin(self, collective: str) -> str:
        """Return the label of the next call, the same on all ranks."""
        self._n_calls += 1
        return f"{self.name}{collective} {self._n_calls}"

    def send(self, to: int, label: str, value: Any) -> Send:
        """Return a request: send to the rank `to`, counted around the group."""
        return Send(label, value, self.devices[to % self.size], stays=self.stays)

    def receive(self, source: int, label: str) -> Receive:
        """Return a request: receive from the rank `source`, counted around the group."""
        return Receive(label, self.devices[source % self.size])

    def add(self, mine: Any, arrived: Any, function: Callable = added) -> Program:
        """Return `function(mine, arrived)`, as a program: gamma ticks for each byte that has arrived."""
        if not self.gamma:
            return function(mine, arrived)
        ticks = self.gamma * sent_bytes(arrived)
        return (yield Compute(Label("add", "add"), function, mine, arrived, ticks=ticks))
