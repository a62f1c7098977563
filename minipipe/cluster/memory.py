"""Bytes of arrays that are really held."""

import copy

from ..checks import shown


class Bytes:
    """So many bytes without any array: what a run without numbers holds in the place of arrays.

    itemsize: the bytes of a number, for those who cut it.
    """

    __slots__ = ("itemsize", "nbytes")

    def __init__(self, nbytes, itemsize=1):
        self.nbytes, self.itemsize = nbytes, itemsize

    size = property(lambda self: self.nbytes // self.itemsize)
    shape = property(lambda self: (self.size,))

    def reshape(self, *shape):
        """It has no axes."""
        return self

    def __getitem__(self, part):
        return Bytes(len(range(self.size)[part]) * self.itemsize, self.itemsize)

    def __add__(self, other):
        """The sum of two arrays has the bytes of one."""
        return self


class Counted(dict):
    """{kind: bytes} of what a device holds and works with, where no arrays are left to be counted."""


def bytes_by_kind(holdings):
    """{kind: bytes} for {kind: nested lists, tuples and dicts of arrays}, each buffer counted once.

    A view keeps the whole of its buffer alive, so the buffer is what counts. A buffer that is held under
    several kinds counts under the first. `Bytes` count as many bytes as they say.

    >>> import numpy as np
    >>> A = np.zeros((2, 3))
    >>> bytes_by_kind({"stash": [A, (A, None)], "work": {"view": A[:, :1]}})
    {'stash': 48, 'work': 0}
    """
    if not isinstance(holdings, dict):
        raise ValueError(f"holdings={shown(holdings)} must be a dict {{kind: arrays}}")
    seen = {}
    n_bytes = {}
    total = 0
    for kind, value in holdings.items():
        seen.update(value if type(value) is Buffers else Buffers(value))
        before, total = total, sum(seen.values())
        n_bytes[kind] = total - before
    return n_bytes


WITHOUT_ARRAYS = frozenset([type(None), bool, int, float, str])  # most of what stands beside arrays


def is_array(value: object) -> bool:
    """Tell whether `value` is an array of NumPy, or one without numbers, with at least one axis.

    The room must load without NumPy, so it asks what an array can do: be written to, unlike NumPy's numbers.
    """
    return hasattr(value, "dtype") and hasattr(value, "__setitem__") and len(value.shape) > 0


class Buffers(dict):
    """{id of a buffer: its bytes} for all arrays in nested lists, tuples and dicts, which stay as they are.

    It can stand for those in `bytes_by_kind`, which then need not walk through them again.
    """

    def __init__(self, value=()):
        rest = [value]
        while rest:
            value = rest.pop()
            kind = type(value)
            if kind in WITHOUT_ARRAYS:
                continue
            if kind is tuple or kind is list:
                rest += value
            elif kind is Bytes:
                self[id(value)] = value.nbytes
            elif is_array(value):
                while is_array(getattr(value, "base", None)):
                    value = value.base
                self[id(value)] = value.nbytes
            elif kind is Buffers:
                self.update(value)
            elif isinstance(value, dict):
                rest.extend(value.values())
            elif isinstance(value, (list, tuple)):
                rest.extend(value)


def sent_bytes(value):
    """The size of a message that carries `value`: the bytes of its arrays.

    >>> import numpy as np
    >>> sent_bytes([np.zeros(3), ("a word", None)])
    24
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        try:
            return sum(map(sent_bytes, value))
        except RecursionError:
            raise ValueError(f"value={shown(value)} contains itself: send a tree of arrays") from None
    return value.nbytes if type(value) is Bytes or is_array(value) else 0


def own(value):
    """(copy, bytes): `value` with arrays that share nothing with it, and its `sent_bytes`."""
    kind = type(value)
    if kind is Bytes:  # most messages are one of these two
        return Bytes(value.nbytes, value.itemsize), value.nbytes
    if is_array(value):
        return value.copy(), value.nbytes
    try:
        return _copied(value), sent_bytes(value)
    except RecursionError:
        raise ValueError(f"value={shown(value)} contains itself: send a tree of arrays") from None


def _copied(value):
    if type(value) is Bytes:
        return Bytes(value.nbytes, value.itemsize)
    if is_array(value):
        return value.copy()
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return getattr(value, "_make", type(value))([_copied(item) for item in value])
    try:
        return copy.deepcopy(value)
    except TypeError as error:
        raise ValueError(
            f"{shown(value)} cannot be sent, because {error}: send arrays, numbers and texts, "
            "or lists, tuples and dicts of them"
        ) from None
