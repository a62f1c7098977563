"""Who has last written, and who has since read, each stretch of memory and each object."""

from bisect import bisect_left, bisect_right

import numpy as np

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # NumPy below 2
    from numpy import byte_bounds

HARD = 1000  # steps after which two arrays that may overlap are said to do so


class _Record:
    """thing: an array or an object. writer: the last task that wrote it. readers: since then."""

    __slots__ = ("readers", "thing", "writer")

    def __init__(self, thing):
        self.thing, self.writer, self.readers = thing, None, []


class _Stretch:
    """Records of arrays that lie in the memory from `low` to `high`, by their places in it."""

    __slots__ = ("high", "low", "records")

    def __init__(self, low, high):
        self.low, self.high, self.records = low, high, {}


class Accesses:
    """What a task must wait for, because of the arrays that it reads and writes.

    Two arrays are the same thing as soon as they share a byte, such as two views of one array.

    >>> row = np.zeros(4)
    >>> accesses = Accesses()
    >>> accesses.writes(0, row[:3]), accesses.writes(1, row[3:]), accesses.reads(2, row)
    (set(), set(), {0, 1})
    >>> accesses.writes(3, row[::2])        # task 2 has read it, task 0 has written it before
    {0, 2}
    """

    def __init__(self):
        self._lows, self._stretches = [], []  # disjoint, by place in memory
        self._objects = {}

    def reads(self, task, thing):
        """The tasks before a read: those that wrote the thing last."""
        before = set()
        for record in self._overlapping(thing):
            if record.writer is not None:
                before.add(record.writer)
        record = self._record(thing)
        if record is not None:
            record.readers.append(task)
        return before - {task}

    def writes(self, task, thing):
        """The tasks before a write: those that wrote the thing last, or have read it since then."""
        before = set()
        for record in self._overlapping(thing):
            if record.writer is not None:
                before.add(record.writer)
            before.update(record.readers)
        record = self._record(thing)
        if record is not None:
            record.writer, record.readers = task, []
        return before - {task}

    def _record(self, thing):
        """The record of exactly this thing; None for an array without a byte."""
        if not isinstance(thing, np.ndarray):
            return self._objects.setdefault(id(thing), _Record(thing))
        stretch = self._stretch(thing)
        if stretch is None:
            return None
        key = thing.__array_interface__["data"][0], thing.shape, thing.strides, thing.itemsize
        return stretch.records.setdefault(key, _Record(thing))

    def _overlapping(self, thing):
        if not isinstance(thing, np.ndarray):
            return [self._record(thing)]
        stretch = self._stretch(thing)
        return [] if stretch is None else [
            record for record in stretch.records.values() if _share(record.thing, thing)
        ]

    def _stretch(self, array):
        """The one that holds the array; those that it touches become one."""
        if array.size == 0:
            return None
        low, high = byte_bounds(array)
        first = bisect_right(self._lows, low) - 1
        if first < 0 or self._stretches[first].high <= low:
            first += 1
        last = bisect_left(self._lows, high, first)
        touched = self._stretches[first:last]
        if len(touched) == 1 and touched[0].low <= low and high <= touched[0].high:
            return touched[0]
        joined = _Stretch(
            min([low, *(one.low for one in touched)]), max([high, *(one.high for one in touched)])
        )
        for one in touched:
            joined.records |= one.records
        self._lows[first:last], self._stretches[first:last] = [joined.low], [joined]
        return joined


def _share(left, right):
    """Whether two arrays share a byte; True where that is hard to say."""
    if left is right:
        return True
    if not np.may_share_memory(left, right):
        return False
    try:
        return np.shares_memory(left, right, max_work=HARD)
    except np.exceptions.TooHardError:
        return True
