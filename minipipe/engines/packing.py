"""A value as one row of bytes, and back: what processes send to each other, without pickles.

    MAGIC, the length of the header (8 bytes each), the header, the arrays

The header is JSON. It says of each array its dtype, its shape and where it begins, and of everything around
the arrays what it is. So a receiver need not know what will come, and refuses what it cannot be. Arrays need
not be copied into the row: they can also follow it, each by itself.
"""

import json
import sys
import zlib
from math import prod

import numpy as np

MAGIC, PIECES = (np.frombuffer(word, np.uint8) for word in (b"minipipe", b"inpieces"))
START = 16  # where the header begins
ALIGNED = 16  # arrays begin at multiples of that, as new ones do in memory
DTYPE_KINDS = "biufc"  # numbers of a fixed size
FOLDED = 2**15  # bytes, of which a check sum is computed in the place of more


def pack(value, note=None):
    """Return a new array of bytes with all of `value`, which may change afterwards.

    value: arrays, numbers, strings, or lists, tuples, named tuples and dicts of them.
    note: what stands in the header beside it, such as the name of the message: a JSON value.

    Raises `ValueError` for rational numbers, which are Python's objects without bytes of their own, and
    `TypeError` for what is no number at all.

    >>> unpack(pack([np.eye(2), {"a": (1, None)}], note="F0"))
    ([array([[1., 0.],
           [0., 1.]]), {'a': (1, None)}], 'F0')
    """
    packed, begin, arrays = _with_header(MAGIC, value, note)
    end = begin
    for place, array in arrays:
        packed[end:begin + place] = 0  # equal values have equal bytes, in the gaps, too
        end = begin + place + array.nbytes
        packed[begin + place:end].view(array.dtype).reshape(array.shape)[...] = array
    return packed


def in_pieces(value, note=None):
    """Return the rows that `pack` puts into one: first the header, then each array, which is not copied.

    value, note: as for `pack`.

    >>> [len(piece) for piece in in_pieces([np.eye(2), (1, None)])]
    [96, 32]
    """
    header, _, arrays = _with_header(PIECES, value, note)
    return [header, *(np.ascontiguousarray(array).reshape(-1).view(np.uint8) for _, array in arrays)]


def _with_header(magic, value, note):
    """Return (a new row of bytes that begins with the header; its end; [(place behind the end, array)]).

    magic: what the row begins with: `MAGIC`, and it has places for the arrays, or `PIECES`.
    """
    arrays = []
    header = json.dumps([note, _header_entry(value, arrays)]).encode()
    begin = _next(START + len(header))
    size = begin + (arrays[-1][0] + arrays[-1][1].nbytes if arrays and magic is MAGIC else 0)
    packed = np.empty(size, np.uint8)
    packed[:8], packed[8:START] = magic, np.frombuffer(np.int64(len(header)).tobytes(), np.uint8)
    packed[START:begin] = np.frombuffer(header.ljust(begin - START), np.uint8)
    return packed, begin, arrays


def unpack(packed, next_piece=None):
    """Return (the value, the note) of which `pack` has made these bytes; the arrays lie in them.

    next_piece: needed if it is the first row of `in_pieces`: `next_piece(n)` is the next, of n bytes.

    Raises `ValueError` for bytes that are something else, or too few or too many.
    """
    n = len(packed)
    length = int(packed[8:START].view(np.int64)[0]) if n >= START else -1
    magic = packed[:8].tobytes()
    if magic not in (MAGIC.tobytes(), PIECES.tobytes()) or not 0 < length <= n - START:
        raise ValueError(f"{n} bytes arrived that are no message of minipipe: use one version on all ranks")
    note, described = json.loads(packed[START:START + length].tobytes())
    reader = _Reader(packed, _next(START + length), None if magic == MAGIC.tobytes() else next_piece)
    value = reader.read(described)
    if reader.end != n:
        raise ValueError(f"the message {note!r} says that it has {reader.end} bytes, but {n} arrived")
    return value, note


def check_sum(arrays):
    """Return a number by which processes compare their arrays, in the time that it takes to read them.

    Of a large array, the bytes are folded, one piece of `FOLDED` upon the other, before they are summed: so
    it does not notice where whole pieces have changed places.

    >>> check_sum([np.arange(4)]) == check_sum([np.arange(4)]) != check_sum([np.array([0, 1, 3, 2])])
    True
    """
    total = 0
    for array in arrays:
        _check_fixed_size(array)
        row = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        n = len(row) // FOLDED * FOLDED
        pieces = row[:n].view(np.uint64).reshape(-1, FOLDED // 8)
        for part in (f"{array.dtype} {array.shape}".encode(), np.bitwise_xor.reduce(pieces), row[n:]):
            total = zlib.crc32(part, total)
    return total


def _check_fixed_size(array):
    if array.dtype.kind not in DTYPE_KINDS:
        raise ValueError(
            f"numbers of {array.dtype} have no fixed size, so processes cannot send them: use floats, or "
            "engine='cluster' for rational numbers"
        )


def _header_entry(value, arrays):
    """Return the header's entry of `value`; add its arrays to `arrays`."""
    if value is None or type(value) in (bool, int, str):
        return value
    if type(value) is float:
        return ["float", value.hex()]
    if isinstance(value, (np.ndarray, np.generic)):
        _check_fixed_size(value)
        place = _next(arrays[-1][0] + arrays[-1][1].nbytes) if arrays else 0
        arrays.append((place, np.asarray(value)))
        kind = "array" if isinstance(value, np.ndarray) else "number"
        return [kind, value.dtype.str, value.shape, place]
    if isinstance(value, dict):
        return ["dict", [[_header_entry(part, arrays) for part in item] for item in value.items()]]
    if isinstance(value, (list, tuple)):
        kind = type(value).__name__ if type(value) in (list, tuple) else None
        if kind is None and not hasattr(value, "_make"):
            raise TypeError(f"processes cannot send a {type(value).__name__}: use lists, tuples and dicts")
        kind = kind or f"{type(value).__module__}:{type(value).__qualname__}"
        return [kind, [_header_entry(part, arrays) for part in value]]
    raise TypeError(
        f"processes send arrays, numbers and strings, and lists, tuples and dicts of them, "
        f"not a {type(value).__name__}"
    )


class _Reader:
    """Reads the arrays that lie in `packed` from `begin` on, or that come. end: behind the last of them."""

    def __init__(self, packed, begin, next_piece):
        self._packed, self._begin, self.end, self._next_piece = packed, begin, begin, next_piece

    def read(self, described):
        """Return the value that an entry of the header describes."""
        if not isinstance(described, list):
            return described
        kind, what, *place = described
        if kind == "float":
            return float.fromhex(what)
        if place:
            array = self._array(np.dtype(what), *place)
            return array if kind == "array" else array[()]
        if kind == "dict":
            return {self.read(key): self.read(part) for key, part in what}
        parts = [self.read(part) for part in what]
        if kind in ("list", "tuple"):
            return parts if kind == "list" else tuple(parts)
        return _named_tuple(kind)(parts)

    def _array(self, dtype, shape, place):
        n_bytes = dtype.itemsize * prod(shape)
        if self._next_piece is not None:
            return self._next_piece(n_bytes).view(dtype).reshape(shape)
        begin = self._begin + place
        self.end = begin + n_bytes
        if self.end > len(self._packed):
            raise ValueError(
                f"an array of {dtype} with shape {tuple(shape)} needs {self.end} bytes, "
                f"but {len(self._packed)} arrived"
            )
        return self._packed[begin:self.end].view(dtype).reshape(shape)


def _named_tuple(name):
    """Return the `_make` of a named tuple's class, which this process must have imported, too."""
    module, _, path = name.partition(":")
    make = getattr(getattr(sys.modules.get(module), path, None), "_make", None)
    if make is None:
        raise ValueError(f"a {path} of {module} arrived, which this rank does not know: import it there")
    return make


def _next(place):
    """Return the next multiple of `ALIGNED`."""
    return -(-place // ALIGNED) * ALIGNED
