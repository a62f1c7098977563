"""Nested arrays as flat vectors, which can be cut anywhere."""

import numpy as np


def flattened(value):
    """The numbers of `value` in a row: a list with one vector for each dtype that occurs.

    value: arrays or numbers, or lists, tuples and dicts of them; None has no numbers.

    >>> flattened([(np.eye(2), None), 3.0])
    [array([1., 0., 0., 1., 3.])]
    """
    rows = {}

    def put(leaf):
        array = _as_array(leaf)
        rows.setdefault(array.dtype, []).append(array.reshape(-1))

    mapped(put, value)
    return [np.concatenate(row) for row in rows.values()]


def unflattened(vectors, like):
    """The vectors of `flattened`, in the form of the value `like`.

    >>> unflattened([np.arange(5.0)], like=[(np.eye(2), None), 3.0])
    [(array([[0., 1.],
           [2., 3.]]), None), 4.0]
    """
    rows = iter(vectors)
    rest = {}

    def taken(leaf):
        array = _as_array(leaf)
        if array.dtype not in rest:
            rest[array.dtype] = next(rows)
        row = rest[array.dtype]
        rest[array.dtype] = row[array.size:]
        numbers = row[:array.size].reshape(array.shape)
        return numbers if hasattr(leaf, "shape") else numbers.item()

    return mapped(taken, like)


def cut(vectors, n):
    """n chunks of vectors, as equal as can be: the first are longer by one number, if they must be.

    >>> cut([np.arange(5)], 3)
    [[array([0, 1])], [array([2, 3])], [array([4])]]
    """
    def chunk(vector, c):
        return vector[_start(vector.size, n, c):_start(vector.size, n, c + 1)]

    return [[chunk(vector, c) for vector in vectors] for c in range(n)]


def joined(chunks):
    """The vectors of which `cut` has made these chunks."""
    return [np.concatenate(row) for row in zip(*chunks, strict=True)]


def lengths(n_numbers, n):
    """How many of `n_numbers` are in each of the n chunks of `cut`.

    >>> lengths(5, 3)
    [2, 2, 1]
    """
    return [_start(n_numbers, n, c + 1) - _start(n_numbers, n, c) for c in range(n)]


def added(a, b):
    """a + b, for arrays and for lists of lists of arrays."""
    if isinstance(a, list):
        return [added(*pair) for pair in zip(a, b, strict=True)]
    return a + b


def _start(size, n, c):
    """Where chunk c of n begins in a vector of `size` numbers."""
    return c * (size // n) + min(c, size % n)


def mapped(function, value):
    """`value` with `function(leaf)` in the place of each of its arrays and numbers."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: mapped(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        make = getattr(value, "_make", type(value))
        return make([mapped(function, item) for item in value])
    return function(value)


def _as_array(leaf):
    return leaf if hasattr(leaf, "reshape") else np.asarray(leaf)
