"""Calls of plain functions, recorded as tasks with the arrays that they read and write."""

import copy
import types
import zlib
from bisect import bisect_left, bisect_right
from contextlib import contextmanager
from functools import partial

import numpy as np

from ..arrays import computing
from ..checks import function as checked_function, listed, one_of, shown
from ..cluster import COMPUTE, Cluster
from ..engines import Threads
from .tasks import Task, earliest_finish, list_schedule, programs_of

try:
    from numpy.lib.array_utils import byte_bounds
except ImportError:  # NumPy below 2
    from numpy import byte_bounds


# Arrays inside of lists, tuples, dicts and `functools.partial`, at any depth.

CONTAINERS = (list, tuple, dict, partial)


def contents_of(value):
    """Return what a container holds, in order; for anything else an empty list.

    >>> contents_of({"a": 1, "b": [2]}), contents_of(partial(max, 1, key=abs))
    ([1, [2]], [<built-in function max>, 1, <built-in function abs>])
    """
    if isinstance(value, partial):
        return [value.func, *value.args, *value.keywords.values()]
    if isinstance(value, dict):
        return list(value.values())
    return list(value) if isinstance(value, (list, tuple)) else []


def nodes(value, kept=()):
    """Yield `value`, and all that it holds at any depth, but not what the containers in `kept` hold.

    >>> list(nodes([1, (2, [])]))
    [[1, (2, [])], 1, (2, []), 2, []]
    """
    yield value
    for part in [] if _is_among(value, kept) else contents_of(value):
        yield from nodes(part, kept)


def mapped(function, value, kept=()):
    """Return `value` with `function(leaf)` for each leaf; a container of which nothing changes stays itself.

    kept: containers that stay as they are, with all that they hold.

    >>> from operator import neg
    >>> mapped(neg, [1, {"a": (2,)}])
    [-1, {'a': (-2,)}]
    """
    if not isinstance(value, CONTAINERS):
        return function(value)
    if _is_among(value, kept):
        return value
    parts = contents_of(value)
    new = [mapped(function, part, kept) for part in parts]
    return value if all(a is b for a, b in zip(parts, new)) else with_parts(value, new)


def snapshot(value, is_leaf, kept=()):
    """Return `value` as it is now: containers that hold a leaf, at any depth, are copied, others stay.

    is_leaf: `is_leaf(node)` says whether it is one.
    kept: containers that stay themselves.
    """
    if is_leaf(value) or _is_among(value, kept) or not any(map(is_leaf, nodes(value))):
        return value
    return with_parts(value, [snapshot(part, is_leaf, kept) for part in contents_of(value)])


def with_parts(value, parts):
    """Return a container like `value` that holds `parts` instead."""
    if isinstance(value, partial):
        n = 1 + len(value.args)
        return partial(parts[0], *parts[1:n], **dict(zip(value.keywords, parts[n:], strict=True)))
    if isinstance(value, tuple):
        return type(value)(*parts) if hasattr(value, "_fields") else type(value)(parts)
    new = copy.copy(value)
    if isinstance(value, dict):
        new.update(zip(value, parts, strict=True))
    else:
        new[:] = parts
    return new


def _is_among(value, kept):
    return any(value is one for one in kept)


# Who has last written, and who has since read, each stretch of memory and each object.

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
            record for record in stretch.records.values() if _share_bytes(record.thing, thing)
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


def _share_bytes(left, right):
    """Whether two arrays share a byte; True where that is hard to say."""
    if left is right:
        return True
    if not np.may_share_memory(left, right):
        return False
    try:
        return np.shares_memory(left, right, max_work=HARD)
    except np.exceptions.TooHardError:
        return True


# The calls, and the graph of them.

ENGINE_CLASSES = {"one": Cluster, "cluster": Cluster, "threads": Threads}


class Later:
    """What a recorded call will return; it may be handed to other calls, and `later[i]` is a part of it.

    value: what it has returned; `RuntimeError` before the graph has run.
    """

    def __init__(self, graph, call, path=()):
        self._graph, self._call, self._path = graph, call, path

    def __getitem__(self, index):
        return Later(self._graph, self._call, (*self._path, index))

    def __iter__(self):
        raise TypeError("how many parts a call returns is known when it has run: use later[0], later[1], ...")

    def __array__(self, dtype=None, copy=None):
        raise TypeError("this array is not there yet: hand it to graph.call, or run the graph and use .value")

    @property
    def value(self):
        return self._graph.value_of(self)


class _Call:
    """A recorded call: function, args, out, what it reads besides, and what it writes.

    result: what it has returned. is_over: whether it has.
    """

    __slots__ = ("args", "function", "is_over", "name", "out", "reads", "result", "writes")

    def __init__(self, name, function, args, out, reads, writes):
        self.name, self.function, self.args, self.out = name, function, args, out
        self.reads, self.writes = reads, writes
        self.result, self.is_over = None, False


class Graph:
    """Calls that are recorded now and made later, in any order that gives the numbers of this one.

    `call` records a call, with the arrays that it reads and writes. A task waits for those before it that
    wrote what it reads or writes, or read what it writes; views of one array are the same thing where they
    share a byte. So the results are `==` those of the calls one after the other, in every order that keeps to
    that, on any number of devices.

    >>> graph, A = Graph(), np.arange(4.0)
    >>> with graph.on(0):
    ...     B = graph.call(np.multiply, A, 2)               # reads A; B is a `Later`
    >>> with graph.on(1):
    ...     graph.call(np.add, A, 1, out=A) is A            # writes A: waits until it is read
    True
    >>> graph.tasks[1].after, graph.run().makespan
    ((0,), 2)
    >>> B.value, A
    (array([0., 2., 4., 6.]), array([1., 2., 3., 4.]))

    tasks: the list of `Task`s so far.
    """

    def __init__(self):
        self.tasks, self._calls = [], []
        self._accesses, self._lane, self._untouched = Accesses(), None, {}

    @contextmanager
    def on(self, device, lane=COMPUTE):
        """In this `with` block, calls are tasks of this lane of a device; outside, of any device."""
        before, self._lane = self._lane, (device, lane)
        try:
            yield self
        finally:
            self._lane = before

    def call(self, function, *args, out=None, reads=(), writes=(), ticks=1, name=None, kind=""):
        """Record `function(*args)`, or `function(*args, out=out)`; returns its `Later`, or `out`.

        function: any function. What it reads are the arrays and `Later`s among its arguments, and `reads`;
            what it writes are `out` and `writes`. Those inside of lists, tuples and dicts count, too, and
            those of a `functools.partial`, whose `out` is written. If it is a method, its object counts as
            written, with the arrays that this holds. What a closure holds, or another object among the
            arguments, is not seen: name it.
        args: handed on as they are now, arrays that are only read as views that cannot be written. A list or
            dict with arrays that the function changes must be among `writes`.
        out: an array or a `Later` that the result is written into.
        reads, writes: more of what is read and written: arrays, `Later`s, or any objects.
        ticks: that it takes on the cluster; for a call on any device, a tuple may have one for each.
        name, kind: as for `Task`; left out, the function's name.

        What it returns is an array of its own: a view of an argument is copied.
        """
        checked_function("function", function)
        reads, writes = listed("reads", reads, 0), listed("writes", writes, 0)
        inner, reads = function, [function, *args, *reads]
        while isinstance(inner, partial):
            writes.append(inner.keywords.get("out"))
            inner = inner.func
        owner = getattr(inner, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            writes += [owner, *_arrays_of(owner)]
        if out is not None:
            writes.append(out)
        for one in nodes([reads, writes]):
            if isinstance(one, Later) and one._graph is not self:
                raise ValueError("a Later of another graph is handed to this one: use its value")
        kind = kind or _name_of(inner)
        number, name = len(self.tasks), f"{_name_of(inner)} {len(self.tasks)}" if name is None else name
        task, before = Task(name, ticks, (), self._lane, kind), set()
        for read in _things(reads):
            before |= self._accesses.reads(number, self._thing(read))
            self._remember(read)
        for written in [one for one in nodes(writes) if one is not None and one is not writes]:
            self._remember(written)
            before |= self._accesses.writes(number, self._thing(written))
        self.tasks.append(task._replace(after=tuple(sorted(before))))
        function, args = snapshot((function, args), _is_thing, kept=writes)
        call = _Call(name, function, args, out, _things(reads), writes)
        self._calls.append(call)
        self._accesses.writes(number, call)
        return Later(self, call) if out is None else out

    def schedule(self, n_devices=None, priority=None):
        """The `Listed` orders of `list_schedule`; with unequal devices, of `earliest_finish`."""
        if priority is None and any(task.ticks.__class__ is tuple for task in self.tasks):
            return earliest_finish(self.tasks, n_devices)
        return list_schedule(self.tasks, n_devices, priority)

    def run(self, engine="cluster", n_devices=None, orders=None):
        """Make all calls; returns the `Trace`.

        engine: "one", one after the other as they were recorded; "cluster", in ticks on simulated devices;
            "threads", a thread for each lane, in seconds.
        n_devices: for tasks that may run on any.
        orders: {(device, lane): numbers of tasks, in order}; left out, those of `schedule`.

        A further run makes the same calls again. `ValueError` if an array that the graph reads was changed
        since it was recorded, or since the last run: nothing is computed then.
        """
        one_of("engine", engine, ENGINE_CLASSES)
        if engine == "one":
            tasks = [task._replace(ticks=_one(task.ticks), lane=0) for task in self.tasks]
            orders = {(0, COMPUTE): list(range(len(tasks)))}
        else:
            tasks, orders = self.tasks, self.schedule(n_devices).orders if orders is None else orders
            if sorted(number for numbers in orders.values() for number in numbers) != [*range(len(tasks))]:
                raise ValueError(f"orders must have each of the {len(tasks)} tasks once, in one of the lanes")
        self._check_untouched()
        for call in self._calls:
            call.result, call.is_over = None, False
        functions = [partial(make, call) for call in self._calls]
        with computing():
            trace = ENGINE_CLASSES[engine](programs_of(tasks, orders, functions)).run()
        self._untouched = {key: (array, _checksum(array)) for key, (array, _) in self._untouched.items()}
        return trace

    def value_of(self, later):
        """What a `Later` of this graph stands for."""
        return _resolved(later)

    def _thing(self, one):
        return one._call if isinstance(one, Later) else one

    def _remember(self, one):
        """The numbers of an array that comes from outside, as they are now."""
        if isinstance(one, np.ndarray):
            key = id(one)
            if key not in self._untouched:
                self._untouched[key] = one, _checksum(one)

    def _check_untouched(self):
        for array, total in self._untouched.values():
            if _checksum(array) != total:
                raise ValueError(
                    f"an array of shape {array.shape} was changed behind the graph's back, since a call with "
                    "it was recorded: run the graph first, or record the change, graph.call(np.copyto, "
                    "array, values, writes=[array])"
                )


def make(call):
    """Call the function of a task now."""
    read, writes = (_things(mapped(_resolved, things)) for things in (call.reads, call.writes))
    given = mapped(lambda leaf: _read_only(_resolved(leaf), writes), [call.function, call.args], call.writes)
    function, args = given
    before = list(map(id, nodes(given, call.writes)))
    try:
        more = {} if call.out is None else {"out": mapped(_resolved, call.out)}
        result = function(*args, **more)
    except ValueError as error:
        if "read-only" not in str(error):
            raise
        raise _written(call, "an array") from error
    if before != list(map(id, nodes(given, call.writes))):
        raise _written(call, "a list or a dict")
    if call.out is None:
        call.result = mapped(lambda leaf: _own(leaf, read + writes), result)
    call.is_over = True


def _written(call, what):
    return ValueError(
        f"task {call.name!r} writes into {what} that it was only said to read: name it in writes"
    )


def _is_thing(one):
    return isinstance(one, (Later, np.ndarray))


def _things(value):
    """The arrays and `Later`s in `value`, at any depth."""
    return list(filter(_is_thing, nodes(value)))


def _resolved(one):
    if not isinstance(one, Later):
        return one
    if not one._call.is_over:
        raise RuntimeError(f"task {one._call.name!r} has not run yet: run the graph first")
    value = one._call.result
    for index in one._path:
        value = value[index]
    return value


def _read_only(arg, writes):
    """A view that cannot be written, unless the array is among those that are said to be."""
    if not isinstance(arg, np.ndarray) or arg.size == 0:
        return arg
    if any(np.may_share_memory(arg, other) for other in writes):
        return arg
    view = arg.view()
    view.flags.writeable = False
    return view


def _own(result, things):
    """A copy of the result, if it is a view of one of these arrays."""
    if isinstance(result, np.ndarray) and any(np.may_share_memory(result, one) for one in things):
        return result.copy()
    return result


def _arrays_of(owner):
    values = vars(owner).values() if hasattr(owner, "__dict__") else ()
    return [value for value in nodes(list(values)) if isinstance(value, np.ndarray)]


def _checksum(array):
    """A check sum of its numbers."""
    if array.dtype.hasobject:
        return zlib.crc32(repr(array.tolist()).encode())
    return zlib.crc32(np.ascontiguousarray(array).view(np.uint8).data) if array.size else 0


def _name_of(function):
    return getattr(function, "__name__", None) or shown(function)


def _one(ticks):
    return ticks[0] if ticks.__class__ is tuple else ticks
