"""The bytes of arrays that are really held, and their accounts during a run."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ..checks import shown

if TYPE_CHECKING:
    from .mail import Device, Lane
    from .record import Record


class Bytes:
    """A number of bytes that stands for an array in a run without arrays.

    As an array in a collective, it can be cut, sent and added.

    Args:
        nbytes: the bytes of the array.
        itemsize: the bytes of one entry; a slice has a whole number of entries.
    """

    __slots__ = ("itemsize", "nbytes")

    def __init__(self, nbytes: int, itemsize: int = 1):
        self.nbytes, self.itemsize = nbytes, itemsize

    size = property(lambda self: self.nbytes // self.itemsize)
    shape = property(lambda self: (self.size,))

    def reshape(self, *shape: int) -> Bytes:
        """Return self: `Bytes` have a size and no shape."""
        return self

    def __getitem__(self, part: slice) -> Bytes:
        return Bytes(len(range(self.size)[part]) * self.itemsize, self.itemsize)

    def __add__(self, other: object) -> Bytes:
        """Return self: the sum of two arrays has the bytes of one."""
        return self


class Counted(dict):
    """{kind: bytes} of what a device holds and works with, in a run without arrays."""


def bytes_by_kind(holdings: dict) -> dict[str, int]:
    """Return {kind: bytes} for `holdings`, {kind: nested arrays}; a buffer counts once.

    A view keeps the whole of its buffer alive, so the buffer is what counts. A buffer
    that is held under several kinds counts under the first. `Bytes` count as many bytes
    as they say.

    >>> import numpy as np
    >>> A = np.zeros((2, 3))
    >>> bytes_by_kind({"stash": [A, (A, None)], "work": {"view": A[:, :1]}})
    {'stash': 48, 'work': 0}
    """
    if not isinstance(holdings, dict):
        raise ValueError(f"holdings={shown(holdings)} must be a dict {{kind: arrays}}")
    seen: list[dict[int, int]] = []
    n_bytes = dict.fromkeys(holdings, 0)
    for kind, value in holdings.items():
        for found in [value, buffers(value.rest)] if isinstance(value, Shelf) else [buffers(value)]:
            again = set().union(*(found.keys() & before.keys() for before in seen))
            n_bytes[kind] += found.n_bytes if isinstance(found, Shelf) else sum(found.values())
            n_bytes[kind] -= sum(found[number] for number in again)
            seen.append(found)
    return n_bytes


class Shelf(dict):
    """{id of a buffer: its bytes} of all items of `Kept`s, updated as they come and go.

    A look at all items would take time in proportion to their number, and there is one
    for each action.

    Args:
        rest: arrays that are no items, looked at again in each count.

    Attributes:
        n_bytes: the bytes of all items.
    """

    def __init__(self, rest: Any = ()):
        self.rest, self.n_bytes, self._n_items = rest, 0, Counter[int]()

    def count(self, found: dict[int, int], n: int) -> None:
        """Count an item with the buffers `found`, which comes (n = 1) or goes (-1)."""
        for number, size in found.items():
            self._n_items[number] += n
            if not self._n_items[number]:
                self.n_bytes -= self.pop(number)
            elif number not in self:
                self[number] = size
                self.n_bytes += size


class Kept(dict):
    """{micro-batch: nested arrays}, counted by `shelf`; an item keeps its arrays."""

    def __init__(self, shelf: Shelf):
        self._shelf = shelf
        self._found: dict[Any, dict[int, int]] = {}

    def __setitem__(self, i, value):
        super().__setitem__(i, value)
        self._found[i] = buffers(value)
        self._shelf.count(self._found[i], 1)

    def pop(self, i):
        """Remove item i and return it."""
        self._shelf.count(self._found.pop(i), -1)
        return super().pop(i)


WITHOUT_ARRAYS = frozenset([type(None), bool, int, float, str])  # a fast check for most values


def is_array(value: Any) -> bool:
    """Tell whether `value` is an array of NumPy or a meta array, with an axis.

    This package must load without NumPy, so it looks for what only arrays have: unlike
    NumPy's numbers, they can be written to.
    """
    return hasattr(value, "dtype") and hasattr(value, "__setitem__") and value.shape != ()


def buffers(value: Any) -> dict[int, int]:
    """Return {id of a buffer: its bytes} for all arrays in nested `value`."""
    found: dict[int, int] = {}
    rest = [value]
    while rest:
        value = rest.pop()
        kind = type(value)
        if kind in WITHOUT_ARRAYS:
            continue
        if kind is Bytes:
            found[id(value)] = value.nbytes
        elif is_array(value):
            while value.base is not None and is_array(value.base):
                value = value.base
            found[id(value)] = value.nbytes
        elif isinstance(value, dict):
            rest.extend(value.values())
        elif isinstance(value, (list, tuple)):
            rest.extend(value)
    return found


def sent_bytes(value: Any) -> int:
    """Return the size of a message that carries `value`: the bytes of its arrays.

    >>> import numpy as np
    >>> sent_bytes([np.zeros(3), ("a word", None)])
    24
    """
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return sum(map(sent_bytes, value))
    return value.nbytes if type(value) is Bytes or is_array(value) else 0


def copy_for_receiver(value: Any) -> tuple[Any, int]:
    """Return (a copy of `value` that shares no array with it, its `sent_bytes`)."""
    if is_array(value):  # most messages are arrays
        return value.copy(), value.nbytes
    return mapped(_copied, value), sent_bytes(value)


def mapped(function: Callable, value: Any) -> Any:
    """Return `value` with `function(leaf)` in place of each leaf of nested values."""
    if value is None:
        return None
    if isinstance(value, dict):
        return {key: mapped(function, item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return getattr(value, "_make", type(value))([mapped(function, item) for item in value])
    return function(value)


def _copied(leaf):
    if type(leaf) is Bytes:
        return Bytes(leaf.nbytes, leaf.itemsize)
    if is_array(leaf):
        return leaf.copy()
    try:
        return copy.deepcopy(leaf)
    except TypeError as error:
        raise ValueError(
            f"{shown(leaf)} cannot be sent, because {error}: send arrays, numbers and texts, "
            "or lists, tuples and dicts of them"
        ) from None


# The bytes that each device holds, recorded whenever they change.

NO_WORK = {"work": 0}


class MemoryLimitError(MemoryError):
    """A device held more bytes than its limit: says what it was holding."""


class Accounts:
    """Counts what is held, records it, and stops a run above the limit."""

    def __init__(
        self, holdings: Sequence[Callable[[], dict]], limit: float | None, devices: list[Device],
        record: Record,
    ):
        holdings = list(holdings)
        if len(holdings) != len(devices):
            count = f"{len(holdings)} functions for {len(devices)} devices"
            raise ValueError(f"holdings has {count}: pass one for each")
        self._holdings, self._limit, self._devices, self._record = holdings, limit, devices, record
        self._last: list[dict] = [{} for _ in devices]  # the bytes that each device held last, by kind
        # the bytes that a device will hold when its Compute is over: known already if no other lane works
        self._next: list[dict | None] = [None] * len(devices)
        self._received: set[int] = set()  # devices that received something since they were last counted

    def resumed(self, lane: Lane, now: float) -> None:
        """Count what the device of `lane` holds at `now`, when its Compute is over."""
        lane.work = None
        number = lane.device
        self.check_limit(number, now)
        self._observe(number, now, self._next[number] or self._held(number))
        self._next[number] = None

    def call(self, lane: Lane, function: Callable, args: tuple, now: float) -> Any:
        """Return function(*args), called for `lane` at `now`.

        The bytes that the device holds before or after it count, whichever are more.
        """
        number = lane.device
        lane.work = args
        before = self._held(number)
        answer = function(*args)
        lane.work = args, answer
        after = self._held(number)
        self._observe(number, now, after if sum(after.values()) > sum(before.values()) else before)
        if len(self._devices[number].lanes) == 1:
            self._next[number] = after | NO_WORK
        self._received.discard(number)
        self.check_limit(number, now)
        return answer

    def has_received(self, number: int) -> None:
        """Note that device `number` has received something, and may hold more."""
        self._received.add(number)

    def after_receiving(self, number: int, now: float) -> None:
        """Count what device `number` holds if it has received something at `now`."""
        if number in self._received:
            self._observe(number, now, self._held(number))
            self._received.discard(number)

    def check_limit(self, number: int, now: float) -> None:
        """Raise `MemoryLimitError` if device `number` is above its limit at `now`.

        It holds the bytes of the last count, and messages that arrived before `now`. A
        device whose programs have finished is not checked again, so messages that
        arrive later count, too.
        """
        if self._limit is None:
            return
        device = self._devices[number]
        messages = [
            message.value for message in device.inbox.values()
            if message.arrival is not None and (message.arrival < now or not device.n_running)
        ]
        held = self._last[number] | bytes_by_kind({"messages": messages})
        total = sum(held.values())
        if total > self._limit:
            holdings = ", ".join(f"{kind} {n_bytes:,}" for kind, n_bytes in held.items() if n_bytes)
            raise MemoryLimitError(
                f"device {number} holds {total:,} bytes at tick {now}, above its limit of {self._limit:,}: "
                f"{holdings}; raise the limit by {total - self._limit:,} bytes, or give the device less to "
                "keep"
            )

    def _held(self, number):
        """Return {kind: bytes} that the device holds, and that its lanes work with."""
        held = self._holdings[number]()
        works = []
        for lane in self._devices[number].lanes:
            if lane.work is not None:
                works.append(lane.work)
        if type(held) is Counted:
            return dict(held) if works else held | NO_WORK
        return bytes_by_kind(held | {"work": works} if works else held)

    def _observe(self, number, now, held):
        """Record {kind: bytes} of the device."""
        self._last[number] = held
        self._record.memory += (number, now, held)
