"""Nested arrays as a row of numbers, which can be cut anywhere."""

from itertools import accumulate, chain

from ..checks import shown
from ..cluster import Bytes


def flattened(value):
    """The numbers of `value` in a row: a list with a vector for each of its arrays, a view where it can be.

    value: arrays or numbers, or lists, tuples and dicts of them; None has no numbers.

    >>> import numpy as np
    >>> flattened([(np.eye(2), None), 3.0])
    [array([1., 0., 0., 1.]), array([3.])]
    """
    vectors = []
    try:
        _mapped(lambda leaf: vectors.append(_vector(leaf)), value)
    except RecursionError:
        raise ValueError(f"value={shown(value)} contains itself: send a tree of arrays") from None
    return vectors


def unflattened(vectors, like):
    """The vectors of `flattened`, in the form of the value `like`.

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


def cut(vectors, n):
    """n chunks of the row, as equal as can be: the first are longer by one number, if they must be.

    Each is a list of parts of the vectors.

    >>> import numpy as np
    >>> cut([np.arange(3), np.arange(10, 12)], 3)
    [[array([0, 1])], [array([2]), array([10])], [array([11])]]
    """
    chunks, c, position = [[] for _ in range(n)], 0, 0
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


def joined(chunks, like):
    """The vectors of which `cut` has made these chunks, with the sizes of the vectors `like`.

    >>> import numpy as np
    >>> joined([[np.array([0, 1])], [np.array([2]), np.array([10])]], like=[np.ones(3), np.ones(1)])
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


def lengths(n_numbers, n):
    """How many of `n_numbers` are in each of n chunks.

    >>> lengths(5, 3)
    [2, 2, 1]
    """
    return [length(n_numbers, n, c) for c in range(n)]


def length(n_numbers, n, c):
    """Return how many of `n_numbers` are in chunk c of n: the first chunks are longer by one."""
    return n_numbers // n + (c < n_numbers % n)


def begin(n_numbers, n, c):
    """Return how many numbers are in the chunks before chunk c of n."""
    return c * (n_numbers // n) + min(c, n_numbers % n)


def added(a, b):
    """a + b, for arrays and for lists of lists of arrays."""
    if isinstance(a, list):
        return [added(*pair) for pair in zip(a, b, strict=True)]
    return a + b


def _in_a_row(parts):
    if isinstance(parts[0], Bytes):
        return Bytes(sum(part.nbytes for part in parts), parts[0].itemsize)
    from ..arrays import in_a_row  # here, so that the room loads without NumPy: Bytes need none

    return in_a_row(parts)


def _mapped(function, value):
    """`value` with `function(leaf)` in the place of each of its arrays and numbers."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: _mapped(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        make = getattr(value, "_make", type(value))
        return make([_mapped(function, item) for item in value])
    return function(value)


def _vector(leaf):
    """Return an array or a number as a vector. `Bytes` have no axes."""
    if isinstance(leaf, Bytes):
        return leaf
    from ..arrays import array_of_numbers  # here, as above

    return array_of_numbers(leaf).reshape(-1)
