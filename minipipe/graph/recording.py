"""Calls of functions, recorded as tasks with the arrays that they read and write."""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

import numpy as np

from ..arrays import computing, leaves
from ..checks import function as checked_function, listed, one_of
from ..cluster import Cluster, Trace
from ..engines import Threads
from .tasks import Task, list_schedule, programs_of

ENGINES = {"cluster": Cluster, "threads": Threads}


class Later:
    """The future result of a recorded `call`, or its part at `path`: `later[i]`.

    Other calls take it as an argument.
    """

    def __init__(self, call: _Call, path: tuple = ()) -> None:
        self.call, self._path = call, path

    def __getitem__(self, index: Any) -> Later:
        return Later(self.call, (*self._path, index))

    def __iter__(self) -> NoReturn:
        raise TypeError("the number of parts is only known after the run: use later[0], later[1], ...")

    def __array__(self, dtype: Any = None, copy: Any = None) -> NoReturn:
        raise TypeError("this array is not computed: pass it to graph.call, or run the graph and use .value")

    @property
    def value(self) -> Any:
        """The result of the call; `RuntimeError` before the graph has run."""
        if not self.call.has_run:
            raise RuntimeError("this call has not been made yet: run the graph first")
        value = self.call.result
        for index in self._path:
            value = value[index]
        return value


class Graph:
    """Record calls of functions, and run them later, in parallel, with equal results.

    A task waits for each earlier task that uses an array of this task, if at least one
    of the two tasks writes it. Two arrays count as the same if they share a byte, such
    as two views of one array. So in every order that respects these waits, on any
    number of devices, the results are `==` to those of the calls one after the other.

    >>> graph, A = Graph(), np.arange(4.0)
    >>> B = graph.call(np.multiply, A, 2, lane=0)           # reads A; B is a `Later`
    >>> graph.call(np.add, A, 1, out=A, lane=1) is A        # writes A: waits until it is read
    True
    >>> graph.tasks[1].after, graph.run().makespan
    ((0,), 2)
    >>> B.value, A
    (array([0., 2., 4., 6.]), array([1., 2., 3., 4.]))

    Attributes:
        tasks: the list of `Task`s so far.
    """

    def __init__(self) -> None:
        self.tasks: list = []
        self._calls: list = []
        self._accesses: list = []  # (number of a task, an object that it accesses, whether it writes it)

    def call(
        self, function: Callable, *args: Any, out: np.ndarray | Later | None = None, reads: Sequence = (),
        writes: Sequence = (), ticks: float = 1, lane: int | tuple[int, str] | None = None,
    ) -> Any:
        """Record the call `function(*args)`; return its `Later`, or `out`.

        Arrays that the function returns are copied, since they may be views of arrays
        that it has read. Until the graph has run, nothing else may change the arrays.

        Args:
            function: it reads the arrays and `Later`s in `args`, also inside lists and
                tuples, and in `reads`; it writes `out` and `writes`. A method also
                writes its object, and the arrays that are attributes of the object.
                Arrays in any other object, such as a dict or a closure, are not found:
                name them in `reads` or `writes`.
            args: the function gets arrays that it only reads as read-only views, and
                lists that contain arrays as tuples.
            out: an array or a `Later` that the result is written into.
            reads, writes: lists of other objects that the function reads and writes.
            ticks, lane: as for `Task`.
        """
        checked_function("function", function)
        reads = _arrays_in(args) + listed("reads", reads, least=0)
        written = listed("writes", writes, least=0) + ([] if out is None else [out])
        owner = getattr(function, "__self__", None)
        if owner is not None and not isinstance(owner, types.ModuleType):
            written += [owner, *_arrays_in(list(getattr(owner, "__dict__", {}).values()))]
        call = _Call(function, args, out, written)
        number, kind = len(self.tasks), getattr(function, "__name__", type(function).__name__)
        accesses = [(number, one, False) for one in reads]
        accesses += [(number, one, True) for one in [Later(call), *written]]

        def are_same(one, other):
            if isinstance(one, Later) and isinstance(other, Later):
                return one.call is other.call  # parts of one result
            return one is other or _share_bytes(one, other)

        after = {
            earlier for _, one, writes_it in accesses for earlier, other, wrote_it in self._accesses
            if (writes_it or wrote_it) and are_same(one, other)
        }
        self.tasks.append(Task(f"{kind} {number}", ticks, tuple(sorted(after)), lane, kind))
        self._calls.append(call)
        self._accesses += accesses
        return Later(call) if out is None else out

    def run(
        self, engine: str = "cluster", devices: int | None = None,
        orders: Mapping[tuple[int, str], Sequence[int]] | None = None,
    ) -> Trace:
        """Make all calls; return the `Trace`. Another run makes them again.

        Args:
            engine: "cluster", in ticks on simulated devices; "threads", in seconds.
            devices: the number of devices for tasks without a lane.
            orders: {(device, lane): numbers of tasks, in order}; left out, the result
                of `list_schedule`.
        """
        one_of("engine", engine, ENGINES)
        if orders is None:
            orders = list_schedule(self.tasks, devices).orders
        programs = programs_of(self.tasks, orders, [call.make for call in self._calls])
        with computing():
            return ENGINES[engine](programs).run()


class _Call:
    """A recorded call, and its result after a run."""

    def __init__(self, function, args, out, writes):
        self.function, self.args, self.out, self.writes = function, args, out, writes
        self.result, self.has_run = None, False

    def make(self):
        """Call the function now."""
        writes = [_value(one) for one in self.writes]

        def given(arg):
            """Return `arg`, read-only if it is an array that the call only reads."""
            arg = _value(arg)
            # an empty array shares no byte, not even with itself
            if isinstance(arg, np.ndarray) and arg.size and not any(_share_bytes(arg, one) for one in writes):
                arg = arg.view()
                arg.flags.writeable = False
            return arg

        args = [_mapped(given, arg) for arg in self.args]
        if self.out is None:
            results = self.function(*args)
            self.result = _mapped(lambda one: one.copy() if isinstance(one, np.ndarray) else one, results)
        else:
            self.function(*args, out=_value(self.out))
        self.has_run = True


def _arrays_in(value):
    """Return the arrays and `Later`s in nested lists and tuples."""
    return [leaf for leaf in leaves(value) if isinstance(leaf, (np.ndarray, Later))]


def _mapped(function, value):
    """Return `function(value)`; lists and tuples with arrays become tuples of these."""
    if isinstance(value, (list, tuple)) and _arrays_in(value):
        return tuple(_mapped(function, part) for part in value)
    return function(value)


def _value(one):
    return one.value if isinstance(one, Later) else one


def _share_bytes(one, other):
    are_arrays = isinstance(one, np.ndarray) and isinstance(other, np.ndarray)
    return are_arrays and np.shares_memory(one, other)
