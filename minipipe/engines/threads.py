"""Run the programs of a cluster on threads: the same results, in measured seconds.

The first sections serve MPI ranks, too: the label of an engine's overhead, the time
limit of waits, the reuse of freed memory, and the measurement of a link.
"""

from __future__ import annotations

import contextvars
import ctypes
import os
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from math import inf
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from ..checks import real_number, whole_number
from ..cluster import ANY, Compute, DeadlockError, Label, Link, Receive, Send, Trace, copy_for_receiver
from ..cluster.mail import (
    Lane, UnreceivedError, Wait, check_all_received, deadlock_message, devices_of, no_such_device,
    not_a_request, sent_twice, shares_of, start_to_wait,
)
from ..cluster.record import ARRIVED, SECONDS, Record
from ..state import uninterrupted


OVERHEAD = Label("engine", "overhead")  # a span in which a lane copies a message, or waits for its turn


# How long a program may wait on real hardware before the run fails.

PATIENCE_VARIABLE = "MINIPIPE_PATIENCE"  # the environment variable with the seconds
DEFAULT_PATIENCE = 600


def patience() -> float:
    """Return how many seconds a wait may take: `MINIPIPE_PATIENCE`, or else 600."""
    text = os.environ.get(PATIENCE_VARIABLE)
    if text is None:
        return DEFAULT_PATIENCE
    try:
        return real_number(PATIENCE_VARIABLE, float(text), above=0)
    except ValueError:
        raise ValueError(
            f"{PATIENCE_VARIABLE}={text!r} must be seconds, a number above 0, such as 60"
        ) from None


def out_of_patience(lanes: Iterable[Lane], seconds: float) -> TimeoutError:
    """Return a `TimeoutError` that names the messages and the work of all `lanes`.

    Args:
        lanes: the `Lane`s. `starts` of a lane that computes is its Compute.
        seconds: how long the wait took.
    """
    waits = [str(Wait(lane.device, lane.name, *lane.waits_for)) for lane in lanes if lane.waits_for]
    works = [f"device {lane.device} works on {lane.starts.label}" for lane in lanes if lane.starts]
    return TimeoutError(
        f"{', '.join(waits + works)}: for more than {seconds:g} seconds. "
        f"If that is not a mistake, set {PATIENCE_VARIABLE} to more seconds"
    )


# Memory that one micro-batch frees stays with the process, for the next micro-batch.

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # glibc's malloc.h
LARGEST_MMAP_THRESHOLD = 2**25  # bytes, the most that glibc accepts


@cache
def keep_memory() -> None:
    """Keep freed memory in this process for its next arrays, except those above 32 MiB.

    By default, glibc returns free memory at the end of the heap to the system. The next
    micro-batch asks for it again, and the system fills each page with zeros at its
    first use: 2 to 7 % of a step of two processes with layers of 1,024 units, 15 to 27
    % with four simulated replicas of a small network. Other C libraries have no such
    setting, so nothing happens there. Source: mallopt(3).
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if os.name == "posix" else None
    if mallopt is not None:
        mallopt(TRIM_THRESHOLD, 2**31 - 1)
        mallopt(MMAP_THRESHOLD, LARGEST_MMAP_THRESHOLD)


# How long a message takes, as programs see it.

ROUND_TRIPS = 20  # messages of each size, there and back


def measured_link(engine: Callable[[list], Any], devices: int, n_bytes: int) -> Link:
    """Return the latency and bandwidth between devices 0 and 1 as a `Link`, in seconds.

    Args:
        engine: the class that runs the programs: `Threads`, or `Mpi`, where all ranks
            make this call.
        devices: the number of devices.
        n_bytes: the size of the larger messages; the smaller ones have one byte.

    A message of n bytes takes latency + n / bandwidth, measured as half of a round
    trip, in the median of 20. It includes the sender's copy, the transfer, and the time
    until the receiving program continues.

    >>> from ..cluster import Cluster
    >>> from functools import partial
    >>> measured_link(partial(Cluster, link=Link(latency=4, bandwidth=64)), 2, 129)
    Link(latency=4.0, bandwidth=64.0, blocking=False, rendezvous=False)
    """
    devices, n_bytes = whole_number("devices", devices, 1), whole_number("n_bytes", n_bytes, 0)
    if devices == 1 or n_bytes <= 1:
        return Link()
    labels = {size: [f"{size} {number}" for number in range(ROUND_TRIPS)] for size in (1, n_bytes)}
    machine = engine([_there_and_back(device, labels) for device in range(devices)])
    machine.run()
    there, back = ({str(message.label): message for message in machine.trace.messages if message.to == to}
                   for to in (1, 0))
    small, large = (
        median((back[label].received - there[label].sent) / 2 for label in of_size)
        for of_size in labels.values()
    )
    bandwidth = (n_bytes - 1) / (large - small) if large > small else inf
    return Link(max(0, small - 1 / bandwidth), bandwidth)


def _there_and_back(device, labels):
    """Send messages to device 1 and back. labels: {bytes: a label per round trip}."""
    for n_bytes, of_size in labels.items():
        value = np.zeros(n_bytes, np.uint8)
        for label in of_size:
            if device == 0:
                yield Send(label, value, to=1)
                yield Receive(label, source=1)
            elif device == 1:
                yield Receive(label, source=0)
                yield Send(label, value, to=0)


# The threads.

CHECK_INTERVAL = 0.05  # seconds after which the main thread looks whether a lane has timed out


class Threads:
    """Run the programs of several devices at once, each lane in a thread.

    Args:
        programs: as for `Cluster`. Their results have the same bits as there.
        shares: as for `Cluster`.

    Attributes:
        failure: the exception that has stopped the run, or None.

    `run()` runs the programs until all are done. In `trace`, ticks are seconds since
    the start. A Compute takes as long as its function, and a message as long as its
    copy; the time between two requests of a lane is a span called "engine". NumPy lets
    other threads run while it works on large arrays, but the Python code of two threads
    takes turns. Links, ports and byte counts exist only in the simulation.

    An exception in one program stops all programs, and `run` raises it. If all wait,
    `DeadlockError` names the messages that they wait for. If a program waits longer
    than `MINIPIPE_PATIENCE` seconds, by default 600, for another that still computes,
    `TimeoutError` names both. The computation then continues in its thread, but nothing
    reads its result.

    >>> def left():
    ...     yield Send("news", "hello", to=1)
    >>> def right():
    ...     print((yield Receive("news", source=0)))
    >>> trace = Threads([left(), right()]).run()
    hello
    """

    def __init__(self, programs: Sequence, shares: Sequence | None = None) -> None:
        self._devices, self._lanes = devices_of(programs)
        lanes = [(lane.device, lane.name) for lane in self._lanes]
        self._record = Record(lanes, shares_of(shares, len(self._devices)), SECONDS)
        self._patience = patience()
        self._lock = threading.Lock()  # guards everything that several threads change
        self._changed = [threading.Condition(self._lock) for _ in self._lanes]  # to wake a single lane
        self._spans: list = [[] for _ in self._lanes]
        self._begin: Any = None
        self.failure: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle keeps: the record, without locks."""
        nothing = dict.fromkeys(("_devices", "_lanes", "_lock", "_changed"), ())
        return self.__dict__ | nothing

    @property
    def done(self) -> bool:
        """Whether all programs are done."""
        return None not in self._record.finished

    @property
    def trace(self) -> Trace:
        """The `Trace` of the run, in seconds."""
        return Trace(self._record.snapshot())

    def run(self) -> Trace:
        """Run all programs until they are done; return the trace."""
        if self._begin is not None:
            raise RuntimeError("these programs have been run: make new ones")
        keep_memory()
        threads = []
        for lane in self._lanes:
            context = contextvars.copy_context()  # threads keep the caller's np.errstate
            threads.append(threading.Thread(target=context.run, args=(self._drive, lane), daemon=True))
        self._begin = perf_counter()
        try:
            with uninterrupted():  # in a start, Ctrl-C may come out of CPython's Event as a RuntimeError
                for thread in threads:
                    thread.start()
            for thread in threads:
                while thread.is_alive() and not isinstance(self.failure, TimeoutError):
                    thread.join(CHECK_INTERVAL)
        except BaseException as error:  # Ctrl-C: wait until the running computations are done
            self._stop(error)
            for thread in threads:
                if thread.is_alive():
                    thread.join()
            raise
        for spans in self._spans:
            self._record.spans += spans
        if self.failure is not None:
            raise self.failure
        try:
            check_all_received(dict(enumerate(self._devices)))
        except UnreceivedError as error:
            self.failure = error
            raise
        return self.trace

    def _drive(self, lane):
        """Serve the requests of one lane until its program is done or the run stops."""
        serve, answer = {Compute: self._compute, Send: self._send, Receive: self._receive}, None
        try:
            while True:
                try:
                    request = lane.resume(answer)
                except StopIteration:
                    self._finish(lane)
                    return
                if type(request) not in serve:
                    raise not_a_request(lane, request)
                answer = serve[type(request)](lane, request)
        except BaseException as error:
            self._stop(error)

    def _compute(self, lane, request):
        self._check_running()
        start = self._record_overhead(lane)
        lane.starts = request
        answer = None if request.function is None else request.function(*request.args)
        lane.starts = None
        lane.since = self._now()
        self._spans[lane.number] += (lane.number, request.label, start, lane.since)
        return answer

    def _send(self, lane, request):
        sent = self._record_overhead(lane)
        source, to, label = lane.device, request.to, request.label
        if to not in range(len(self._devices)):
            raise no_such_device(source, request, len(self._devices))
        # a copy for the receiver: the sender may write into its array after the send
        value, n_bytes = None, request.n_bytes
        if request.value is not None:
            value, n_bytes = copy_for_receiver(request.value)
        with self._lock:
            self._check_running()
            row = self._record.sends(label, source, to, sent, n_bytes, lane.number)
            self._record.arrives(row, self._now())
            receiver = self._devices[to]
            if (source, label) in receiver.inbox:
                raise ValueError(sent_twice(source, label, to))
            receiver.inbox[source, label] = row, value
            waiting = receiver.waiting.pop((source, label), None) or receiver.choosing.pop(label, None)
            if waiting is not None:
                waiting.waits_for = None
                self._changed[waiting.number].notify()

    def _receive(self, lane, request):
        since = self._record_overhead(lane)
        source, label, device = request.source, request.label, self._devices[lane.device]
        if source is not ANY and source not in range(len(self._devices)):
            raise no_such_device(lane.device, request, len(self._devices))
        with self._lock:
            self._check_running()
            found, now = _take_message(device, source, label), since
            if found is None:
                start_to_wait(device, lane, label, source)
                self._wait(lane)
                found = _take_message(device, source, label)
            row, answer = found
            if self._record.messages[row + ARRIVED] > since:  # it has waited, for the message or the lock
                lane.since = now = self._now()
                self._record.waits += (lane.number, since, now, row)
            self._record.receives(row, now, lane.number)
        return answer

    def _finish(self, lane):
        self._record_overhead(lane)
        with self._lock:
            self._record.finished[lane.number] = lane.since
            self._check_not_all_wait()

    def _wait(self, lane):
        """Wait until another lane wakes this one, or the run stops."""
        self._check_not_all_wait()
        moves = self._changed[lane.number].wait_for(
            lambda: lane.waits_for is None or self.failure is not None, self._patience
        )
        self._check_running()
        if not moves:
            raise out_of_patience(self._lanes, self._patience)

    def _check_not_all_wait(self):
        waits = [Wait(lane.device, lane.name, *lane.waits_for) for lane in self._lanes if lane.waits_for]
        if waits and len(waits) == self._record.finished.count(None):
            raise DeadlockError(deadlock_message(waits))

    def _check_running(self):
        if self.failure is not None:
            raise _Stopped

    def _stop(self, error):
        """Stop the run with this error, and wake all lanes that wait."""
        with self._lock:
            if self.failure is None:
                self.failure = error
            for changed in self._changed:
                changed.notify_all()

    def _now(self):
        return perf_counter() - self._begin

    def _record_overhead(self, lane):
        """Record the time since the lane's last span as overhead; return the time."""
        now = self._now()
        self._spans[lane.number] += (lane.number, OVERHEAD, lane.since, now)
        lane.since = now
        return now


class _Stopped(Exception):
    """Ends a lane because another lane has failed."""


def _take_message(device, source, label):
    """Remove the message that a Receive asks for; return (row, answer), or None."""
    if source is not ANY:
        return device.inbox.pop((source, label), None)
    rows = [(row, sender) for (sender, name), (row, _) in device.inbox.items() if name == label]
    if not rows:
        return None
    row, sender = min(rows)
    return row, (sender, device.inbox.pop((sender, label))[1])
