"""Calls that begin at once, in the background, as a framework makes those of its users."""

import queue
import threading
from contextlib import ExitStack
from time import perf_counter

from ..arrays import computing
from ..cluster import COMPUTE, Label, Trace
from ..cluster.record import SECONDS, Record
from .recording import Graph, make


class Asynchronous(Graph):
    """A `Graph` whose calls begin at once: `call` returns before they are over.

    Each lane of a device is a thread, which makes its calls in their order, each as soon as those of other
    lanes that it must wait for are over. `synchronize`, the end of the `with` block, and the `value` of a
    `Later` wait. Between a call and the next `synchronize`, nobody else may change its arrays.

    >>> import numpy as np
    >>> with Asynchronous() as later:
    ...     with later.on(0):
    ...         A = later.call(np.matmul, np.eye(2), np.ones((2, 2)))
    ...     with later.on(1):
    ...         B = later.call(np.matmul, np.eye(2), A)
    ...     trace = later.synchronize()
    >>> B.value.tolist(), trace.unit
    ([[1.0, 1.0], [1.0, 1.0]], 'seconds')
    """

    def __init__(self):
        super().__init__()
        self._threads, self._queues, self._over = [], {}, []
        self._spans, self._failure, self._begin, self._open = [], None, None, False

    def __enter__(self):
        self._stack = ExitStack()
        self._stack.enter_context(computing())
        self._begin, self._open = perf_counter(), True
        return self

    def __exit__(self, kind, error, traceback):
        try:
            self._wait()
        finally:
            self._open = False
            for of_lane in self._queues.values():
                of_lane.put(None)
            for thread in self._threads:
                thread.join()
            self._stack.close()
        if kind is None:
            self._raise()

    def call(self, function, *args, out=None, reads=(), writes=(), ticks=1, name=None, kind=""):
        """As `Graph.call`; a call outside of `on` is one of device 0."""
        if not self._open:
            raise RuntimeError("calls begin inside a `with` block: with Asynchronous() as later: ...")
        lane = (0, COMPUTE) if self._lane is None else self._lane
        result = super().call(
            function, *args, out=out, reads=reads, writes=writes, ticks=ticks, name=name, kind=kind
        )
        number = len(self.tasks) - 1
        self._over.append(threading.Event())
        if lane not in self._queues:
            self._queues[lane] = queue.Queue()
            self._threads.append(threading.Thread(target=self._work, args=(lane,), daemon=True))
            self._threads[-1].start()
        self._queues[lane].put(number)
        return result

    def synchronize(self):
        """Wait until all calls are over; the `Trace` of all so far, in seconds. Raises what a call raised."""
        self._wait()
        self._raise()
        lanes = sorted(self._queues) or [(0, COMPUTE)]
        record = Record(lanes, [1] * (1 + lanes[-1][0]), SECONDS)
        for lane, number, start, end in sorted(self._spans):
            task = self.tasks[number]
            record.spans += (lanes.index(lane), Label(str(task.name), task.kind), start, end)
        record.finished = [perf_counter() - self._begin] * len(lanes)
        return Trace(record)

    def run(self, engine="threads", n_devices=None, orders=None):
        raise RuntimeError("the calls of an Asynchronous run by themselves: use synchronize()")

    def value_of(self, later):
        """Wait for what a `Later` stands for."""
        self._over[self._calls.index(later._call)].wait()
        self._raise()
        return super().value_of(later)

    def _work(self, lane):
        """What the thread of a lane does, until it finds None."""
        while (number := self._queues[lane].get()) is not None:
            for before in self.tasks[number].after:
                self._over[before].wait()
            start = perf_counter()
            try:
                if self._failure is None:
                    make(self._calls[number])
            except BaseException as error:
                self._failure = self._failure or error
            self._spans.append((lane, number, start - self._begin, perf_counter() - self._begin))
            self._over[number].set()

    def _wait(self):
        for over in self._over:
            over.wait()

    def _raise(self):
        if self._failure is not None:
            raise self._failure

    def _remember(self, one):
        """Nothing: between a call and its end, there is no time at which to look."""
