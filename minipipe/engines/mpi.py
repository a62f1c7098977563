"""Run the programs of a cluster on MPI ranks, one process per device."""

from __future__ import annotations

import pickle
import platform
from collections import deque
from collections.abc import Sequence
from functools import partial
from operator import add
from time import perf_counter
from typing import Any

from ..checks import listed
from ..cluster import ANY, SECONDS, Compute, Receive, Send, Trace, copy_for_receiver, sent_bytes
from ..cluster.mail import (
    check_all_received, devices_of, no_such_device, not_a_request, sent_twice, shares_of, start_to_wait,
)
from ..cluster.record import SENT, Record, rows
from .threads import OVERHEAD, keep_memory, out_of_patience, patience
from .world import Pause, World, world

MESSAGE = 2  # the MPI tag of messages


class Mpi:
    """Run one device of a list of programs here, while other processes run the others.

    Args:
        programs: as for `Cluster`, the same list on all ranks. Rank r runs the lanes of
            device r only.
        shares: as for `Cluster`.

    `run()` runs the programs until all are done. `trace` is a call that all ranks make;
    its ticks are seconds since the start. The lanes of a rank take turns in one thread:
    the next lane runs after each Compute, and whenever a lane waits. A Compute takes as
    long as its function; the time between two requests is a span called "engine".
    Values are sent as mpi4py's out-of-band pickles: a large array is not copied, and
    keeps its memory layout.

    If one rank raises an exception, all ranks raise it, so that all may continue after
    catching it; an exception that is not caught ends the job, see `World`. If a message
    does not arrive in time, `TimeoutError` names it, see `Threads`.
    """

    def __init__(self, programs: Sequence, shares: Sequence | None = None) -> None:
        self._world, programs = world(), listed("programs", programs, least=0)
        check_size(self._world, len(programs))
        self.rank = self._world.rank
        devices, lanes = devices_of(programs)
        self._n_devices, self._device = len(devices), devices[self.rank]
        self._lanes = self._device.lanes
        self._end = None  # requests
        self._sending: list = []
        self._ready = deque(self._lanes)
        names = [(lane.device, lane.name) for lane in lanes]
        self._record = RankRecord(names, shares_of(shares, len(devices)))
        self._patience = patience()
        self._trace: Trace | None = None
        self._begin: float | None = None
        self.done = False
        self.failure: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy or a pickle keeps: the record, without MPI objects."""
        names = "_device", "_lanes", "_ready", "_sending", "_end"
        nothing = dict.fromkeys(names, ())
        return self.__dict__ | nothing | {"_world": None}

    @property
    def trace(self) -> Trace:
        """The `Trace` of all devices, in seconds. All ranks must ask for it."""
        if not self.done:
            raise RuntimeError("the programs have not finished: call run() first")
        if self._trace is None:
            mine = platform.node(), self._begin, self._record
            self._trace = Trace(merged(self._world.gathered(mine, "the trace")))
        return self._trace

    def run(self, equal: dict[str, Any] | None = None) -> None:
        """Run the programs of this rank, while the other ranks run theirs.

        Args:
            equal: {name: value} that must be equal on all ranks, see
                `World.check_equal`.
        """
        if self._begin is not None:
            raise RuntimeError("these programs have been run: make new ones")
        keep_memory()
        self._world.check_equal({"devices": str(self._n_devices), **(equal or {})}, "the begin of a run")
        self._world.n_runs += 1
        self._number = self._world.n_runs
        self._begin = perf_counter()
        try:
            self._serve_all()
            self._take_messages()
            check_all_received({self.rank: self._device})
        except BaseException as error:
            self.failure = error
            self._leave(error)
            raise
        self.done = True

    def _leave(self, error):
        """Leave a run that has failed on this rank, and send the error to the others.

        Messages that were not received stay in flight. The next run drops them, since
        they carry the number of this run.
        """
        if self._end is None:
            # an error with `of_rank` came from another rank, which has sent it to all
            others = [] if hasattr(error, "of_rank") else range(self._n_devices)
            try:
                error = pickle.loads(pickle.dumps(error))
            except Exception:  # it cannot be pickled: a class of the user's, for example
                error = RuntimeError(f"{type(error).__name__}: {error}")
            notice = self._number, None, 0, error
            self._sending += [
                self._world.comm.isend(notice, to, MESSAGE) for to in others if to != self.rank
            ]
            self._end = self._world.comm.Ibarrier()
        self._world.unsent += [*self._sending, self._end]

    def _serve_all(self):
        """Serve lanes in turn and take messages; then wait until all ranks are done."""
        n_running, pause = len(self._lanes), None
        while self._end is None or not self._end.Test():
            moved = self._take_messages()
            self._sending = [request for request in self._sending if not request.test()[0]]
            if self._ready:
                n_running -= self._serve(self._ready.popleft())
                moved = True
            elif not n_running and not self._sending and self._end is None:
                self._end = self._world.comm.Ibarrier()
            if moved:
                pause = None
                continue
            pause = pause or Pause()
            try:
                self._world.check_wait(pause, "a run")
            except TimeoutError:
                if n_running:  # a lane of this rank waits: name its message
                    raise out_of_patience(self._lanes, self._patience) from None
                raise
            pause()

    def _serve(self, lane):
        """Serve a lane up to a Compute or a wait; return whether its program ended."""
        while True:
            answer, lane.answer = lane.answer, None
            try:
                request = lane.resume(answer)
            except StopIteration:
                self._record.finished[lane.number] = self._record_overhead(lane)
                return True
            if type(request) is Compute:
                self._compute(lane, request)
                self._ready.append(lane)
                return False
            if type(request) is Send:
                self._send(lane, request)
            elif type(request) is not Receive:
                raise not_a_request(lane, request)
            elif not self._receive(lane, request):
                return False

    def _compute(self, lane, request):
        start = self._record_overhead(lane)
        lane.answer = None if request.function is None else request.function(*request.args)
        lane.since = self._now()
        self._record.spans += (lane.number, request.label, start, lane.since)

    def _send(self, lane, request):
        sent, to, label = self._record_overhead(lane), request.to, request.label
        if to not in range(self._n_devices):
            raise no_such_device(self.rank, request, self._n_devices)
        value = request.value
        n_bytes = request.n_bytes if value is None else sent_bytes(value)
        row = self._record.sends(label, self.rank, to, sent, n_bytes, lane.number)
        if to == self.rank:
            self._file(self.rank, str(label), row, copy_for_receiver(value)[0])
            return
        # MPI reads a large array in place, so one that the program may overwrite is copied
        value = value if request.stays else copy_for_receiver(value)[0]
        message = self._number, str(label), row, value
        self._sending.append(self._world.comm.isend(message, to, MESSAGE))

    def _receive(self, lane, request):
        """Let `lane` take its message if it has arrived; return False if it waits."""
        lane.since, label, source = self._record_overhead(lane), str(request.label), request.source
        if source is not ANY and source not in range(self._n_devices):
            raise no_such_device(self.rank, request, self._n_devices)
        device = self._device
        key = source, label
        if source is ANY:
            key = next((key for key in device.inbox if key[1] == label), key)
        if key in device.inbox:
            self._hand_over(lane, key, source is ANY, lane.since)
            return True
        start_to_wait(device, lane, label, source)
        return False

    def _take_messages(self):
        """File all messages that have arrived; return whether there were any.

        Messages of an earlier run that failed are dropped. A message without a label
        carries the exception of a rank that has left this run, which is raised here.
        """
        MPI, moved = self._world.MPI, False
        while True:
            status = MPI.Status()
            message = self._world.comm.improbe(MPI.ANY_SOURCE, MESSAGE, status)
            if message is None:
                return moved
            source = status.Get_source()
            number, label, row, value = self._world.wait(message.irecv(), f"a message of rank {source}")
            if number != self._number:
                continue
            if label is None:
                value.of_rank = source
                raise value
            self._file(source, label, row, value)
            moved = True

    def _file(self, source, label, row, value):
        """Put a message into the inbox, or pass it to the lane that waits for it.

        Args:
            row: the index of its row in the record of `source`.
        """
        key, device = (source, label), self._device
        if key in device.inbox:
            raise ValueError(sent_twice(source, label, self.rank))
        device.inbox[key] = row, value, self._now()
        lane = device.waiting.pop(key, None)
        from_any = lane is None and label in device.choosing
        if from_any:
            lane = device.choosing.pop(label)
        if lane is not None:
            since, lane.waits_for, lane.since = lane.since, None, self._now()
            self._record.waited += (lane.number, since, lane.since, source, row)
            self._hand_over(lane, key, from_any, lane.since)
            self._ready.append(lane)

    def _hand_over(self, lane, key, from_any, now):
        row, value, arrived = self._device.inbox.pop(key)
        self._record.taken += (key[0], row, min(arrived, now), now, lane.number)
        lane.answer = (key[0], value) if from_any else value

    def _now(self):
        return perf_counter() - self._begin

    def _record_overhead(self, lane):
        """Record the time since the lane's last span as overhead; return the time."""
        now = self._now()
        self._record.spans += (lane.number, OVERHEAD, lane.since, now)
        lane.since = now
        return now


def check_size(world: World, devices: int) -> None:
    """Raise `ValueError` unless `world` has one process for each of the `devices`."""
    if world.size != devices:
        started = "1 process has" if world.size == 1 else f"{world.size} processes have"
        raise ValueError(
            f"{devices} devices need a process each, but {started} been started: "
            f"begin the command with mpiexec -n {devices}"
        )


# The record of each process, and the trace that is made of all of them.

class RankRecord(Record):
    """What one rank records of a run, in seconds since its start.

    Args:
        lanes, shares: as for `Record`, of all devices.
    """

    def __init__(self, lanes: list[tuple[int, str]], shares: list[int]) -> None:
        super().__init__(lanes, shares, SECONDS)
        self.taken: list = []  # rows of sender, row in the sender's record, arrived, received, lane
        self.waited: list = []  # rows of lane, start, end, sender, row in the sender's record


def merged(parts: list[tuple[str, float, RankRecord]]) -> Record:
    """Return the `Record` of a run, made of the records of all ranks.

    Ranks on one computer share its clock. Clocks of several computers are not compared:
    there, the run begins at 0 on each rank. Ranks begin when all have agreed on what
    they run, so their times differ by about the latency of a message.

    Args:
        parts: for each rank, the name of its computer, the time at which it began, and
            its `RankRecord`.
    """
    first = min(begin for _, begin, _ in parts)
    share_clock = len({node for node, _, _ in parts}) == 1
    whole, rows_before = Record(parts[0][2].lanes, parts[0][2].shares, SECONDS), []
    delays = [begin - first if share_clock else 0.0 for _, begin, _ in parts]
    for rank, (delay, (_, _, of_rank)) in enumerate(zip(delays, parts)):
        record = of_rank.with_times(partial(add, delay))
        rows_before.append(len(whole.messages))
        for number, (device, _) in enumerate(whole.lanes):
            if device == rank:
                whole.spans += (number, OVERHEAD, 0.0, delay)
                whole.finished[number] = record.finished[number]
        whole.spans += record.spans
        whole.messages += record.messages
    for delay, (_, _, of_rank) in zip(delays, parts):
        for source, row, arrived, received, lane in rows(of_rank.taken, 5):
            index, received = rows_before[source] + row, received + delay
            # with clocks that differ, a message may seem to arrive before it was sent
            sent = whole.messages[index + SENT] = min(whole.messages[index + SENT], received)
            whole.arrives(index, max(arrived + delay, sent))
            whole.receives(index, received, lane)
        for lane, start, end, source, row in rows(of_rank.waited, 5):
            whole.waits += (lane, start + delay, end + delay, rows_before[source] + row)
    return whole
