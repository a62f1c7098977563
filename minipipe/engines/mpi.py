"""Run the programs of a cluster on MPI ranks: one process per device, on one computer or many."""

from __future__ import annotations

import pickle
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..checks import listed, truth
from ..cluster import ANY, SECONDS, Compute, Label, Receive, Send, Trace, own, sent_bytes
from ..cluster.mail import Lane, check_all_received, devices_of, sent_twice, shares_of, two_wait
from ..cluster.record import SENT, Record, rows
from .threads import OVERHEAD, keep_memory, out_of_patience, patience
from .world import Clock, Pause, World, world

MESSAGE = 2  # the MPI tag of messages


class Mpi:
    """Run one device of a list of programs in this process, while other processes run the others.

    Args:
        programs: as for `Cluster`, the same list on all ranks. Rank r runs the lanes of
            device r only.
        synchronous: whether MPI transfers each message only when the receiver takes it
            (`issend`), instead of storing it (`isend`). Programs do not notice.
        shares: as for `Cluster`.
        labels: the labels of all devices' spans that are not just a text and a kind,
            such as actions. The trace shows them in the place of their texts.

    `run()` runs the programs until all are done. `trace` is a call that all ranks make;
    its ticks are seconds since the start, on the clock of rank 0. The lanes of a rank
    take turns in one thread: the next lane runs after each Compute, and whenever a lane
    waits. A Compute takes as long as its function; the time between two requests is a
    span called "engine". Values are sent as mpi4py's out-of-band pickles: a large array
    is not copied, and keeps its memory layout.

    If one rank raises an exception, all ranks raise it, so that all may continue after
    catching it; an exception that is not caught ends the job, see `World`. If a message
    does not arrive in time, `TimeoutError` names it, see `Threads`.
    """

    def __init__(
        self, programs: Sequence, synchronous: bool = False, shares: Sequence | None = None,
        labels: Sequence = (),
    ) -> None:
        self._world, programs = world(), listed("programs", programs, least=0)
        check_size(self._world, len(programs))
        self.rank = self._world.rank
        devices, lanes = devices_of(programs)
        self._n_devices, self._device = len(devices), devices[self.rank]
        self._lanes = self._device.lanes
        self._all_lanes = [(lane.device, lane.name) for lane in lanes]
        self._shares = shares_of(shares, len(devices))
        comm = self._world.comm
        self._send_message = comm.issend if truth("synchronous", synchronous) else comm.isend
        self._end = None  # requests
        self._sending: list = []
        self._ready = deque(self._lanes)
        self._record = RankRecord()
        self._labels = {str(label): label for label in listed("labels", labels, least=0)}
        self._patience, self._read = patience(), self._world.clock.read
        self._trace: Trace | None = None
        self._begin: float | None = None
        self.done = False
        self.failure: BaseException | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return the state for a copy or a pickle: the recorded events, without devices and MPI objects."""
        names = "_device", "_lanes", "_ready", "_sending", "_send_message", "_read", "_end"
        nothing = dict.fromkeys(names, ())
        return self.__dict__ | nothing | {"_world": None}

    @property
    def trace(self) -> Trace:
        """The `Trace` of all devices, in seconds. All ranks must ask for it."""
        if not self.done:
            raise RuntimeError("the programs have not finished: call run() first")
        if self._trace is None:
            self._world.gathered(None, "the trace")
            self._world.clock.compare()
            mine = self._record.in_rank0_time(self._world.clock)
            records = self._world.gathered(mine, "the trace")
            self._trace = Trace(merged(records, self._all_lanes, self._shares, self._labels))
        return self._trace

    def run(self, equal: dict[str, Any] | None = None) -> None:
        """Run the programs of this rank until they are done, while the other ranks run theirs.

        Args:
            equal: {name: value} that must be equal on all ranks, see
                `World.check_equal`.
        """
        if self._begin is not None:
            raise RuntimeError("these programs have been run: make new ones")
        keep_memory()
        self._world.check_equal({"devices": str(self._n_devices), **(equal or {})}, "the begin of a run")
        self._world.clock.compare(begin=True)
        self._world.n_runs += 1
        self._number = self._world.n_runs
        self._begin = self._read()
        for lane in self._lanes:
            lane.since = self._begin
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
        """Leave a run that has failed on this rank, and send the error to the other ranks.

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
            self._sending += [self._send_message(notice, to, MESSAGE) for to in others if to != self.rank]
            self._end = self._world.comm.Ibarrier()
        self._world.unsent += [*self._sending, self._end]

    def _serve_all(self):
        """Serve lanes in turn and take messages in between; then wait until all ranks are done."""
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
        """Serve a lane up to its next Compute, or until it waits; return whether its program is done."""
        while True:
            answer, lane.answer = lane.answer, None
            try:
                request = lane.resume(answer)
            except StopIteration:
                self._record.finish(lane, self._record_overhead(lane))
                return True
            if type(request) is Compute:
                self._compute(lane, request)
                self._ready.append(lane)
                return False
            if type(request) is Send:
                self._send(lane, request)
            elif type(request) is not Receive:
                words = f"the program of device {lane.device} yielded {request!r}"
                raise TypeError(f"{words}: yield Compute, Send or Receive")
            elif not self._receive(lane, request):
                return False

    def _compute(self, lane, request):
        start = self._record_overhead(lane)
        lane.answer = None if request.function is None else request.function(*request.args)
        lane.since = self._read()
        self._record.span(lane, request.label, start, lane.since)

    def _send(self, lane, request):
        sent, to, label = self._record_overhead(lane), request.to, request.label
        if to not in range(self._n_devices):
            words = f"devices are 0..{self._n_devices - 1}"
            raise ValueError(f"device {self.rank} sends {label} to device {to}: {words}")
        value = request.value
        n_bytes = request.n_bytes if value is None else sent_bytes(value)
        row = self._record.sends(lane, label, to, sent, n_bytes)
        if to == self.rank:
            self._file(self.rank, str(label), row, own(value)[0])
            return
        # MPI reads a large array in place, so one that the program may overwrite is copied
        value = value if request.stays else own(value)[0]
        self._sending.append(self._send_message((self._number, str(label), row, value), to, MESSAGE))

    def _receive(self, lane, request):
        """Hand the message over if it has arrived, and return True; otherwise let the lane wait for it."""
        lane.since, label, source = self._record_overhead(lane), str(request.label), request.source
        if source is not ANY and source not in range(self._n_devices):
            words = f"device {self.rank} waits for {label} from device {source}"
            raise ValueError(f"{words}: devices are 0..{self._n_devices - 1}")
        device = self._device
        key = source, label
        if source is ANY:
            key = next((key for key in device.inbox if key[1] == label), key)
        if key in device.inbox:
            self._hand_over(lane, key, source is ANY, lane.since)
            return True
        if label in {*device.choosing, *(name for _, name in device.waiting)}:
            raise ValueError(two_wait(self.rank, label))
        lane.waits_for = request.label, source, False
        if source is ANY:
            device.choosing[label] = lane
        else:
            device.waiting[key] = lane
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
        """Put a message into the inbox, or hand it to the lane that waits for it.

        Args:
            row: the index of the message among those that `source` has sent.
        """
        key, device = (source, label), self._device
        if key in device.inbox:
            raise ValueError(sent_twice(source, label, self.rank))
        device.inbox[key] = row, value, self._read()
        lane = device.waiting.pop(key, None)
        from_any = lane is None and label in device.choosing
        if from_any:
            lane = device.choosing.pop(label)
        if lane is not None:
            since, lane.waits_for, lane.since = lane.since, None, self._read()
            self._record.waits(lane, since, lane.since, (source, row))
            self._hand_over(lane, key, from_any, lane.since)
            self._ready.append(lane)

    def _hand_over(self, lane, key, from_any, now):
        row, value, arrived = self._device.inbox.pop(key)
        self._record.receives((key[0], row), min(arrived, now), now, lane)
        lane.answer = (key[0], value) if from_any else value

    def _record_overhead(self, lane):
        """Record the time since the lane's last span as overhead of the engine; return the time now."""
        now = self._read()
        self._record.span(lane, OVERHEAD, lane.since, now)
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

class RankRecord:
    """The events of a run in one process, with times of its own clock.

    A lane is named by its number among the lanes of all devices; a message by its
    sender and its index among the sender's messages.
    """

    def __init__(self) -> None:
        self.spans: list = []  # rows of lane, label, start, end
        self.sent: list = []  # rows of label, to, sent, bytes, lane
        self.received: list = []  # rows of sender, index of the message, arrived, received, lane
        self.waited: list = []  # rows of lane, start, end, sender, index of the message
        self.finished: list = []  # rows of lane, time

    def span(self, lane: Lane, label: Any, start: float, end: float) -> None:
        """Record that `lane` worked on `label` from `start` to `end`."""
        self.spans += (lane.number, label, start, end)

    def sends(self, lane: Lane, label: Any, to: int, sent: float, n_bytes: int) -> int:
        """Record `label`, a message of `n_bytes` that `lane` has `sent` to device `to`; return its index."""
        self.sent += (label, to, sent, n_bytes, lane.number)
        return len(self.sent) // 5 - 1

    def receives(self, message: tuple[int, int], arrived: float, received: float, lane: Lane) -> None:
        """Record when `message`, a pair (sender, index), has `arrived` and `lane` has `received` it."""
        self.received += (*message, arrived, received, lane.number)

    def waits(self, lane: Lane, start: float, end: float, message: tuple[int, int]) -> None:
        """Record that `lane` waited from `start` to `end` for `message`, a pair (sender, index)."""
        self.waited += (lane.number, start, end, *message)

    def finish(self, lane: Lane, time: float) -> None:
        """Record that the program of `lane` is done at `time`."""
        self.finished += (lane.number, time)

    def in_rank0_time(self, clock: Clock) -> dict[str, Any]:
        """Return {table: array of its rows}, with times of rank 0's clock, and the distinct "labels".

        Rows have the index of their label in the list "labels", of pairs (text, kind).
        """
        when = clock.to_rank0_time  # (text, kind) of a label -> its number
        known: dict = {}

        def number_of(label):
            kind = getattr(label, "kind", None)
            return known.setdefault((str(label), kind if isinstance(kind, str) else None), len(known))

        tables = {
            "spans": [(lane, number_of(label), when(start), when(end))
                      for lane, label, start, end in rows(self.spans, 4)],
            "sent": [(number_of(label), to, when(sent), n_bytes, lane)
                     for label, to, sent, n_bytes, lane in rows(self.sent, 5)],
            "received": [(source, row, when(arrived), when(received), lane)
                         for source, row, arrived, received, lane in rows(self.received, 5)],
            "waited": [(lane, when(start), when(end), source, row)
                       for lane, start, end, source, row in rows(self.waited, 5)],
            "finished": [(lane, when(time)) for lane, time in rows(self.finished, 2)],
        }
        return {name: np.array(table, float) for name, table in tables.items()} | {"labels": list(known)}


def merged(
    records: list[dict[str, Any]], lanes: list[tuple[int, str]], shares: list[int],
    labels: dict[str, Any],
) -> Record:
    """Return the `Record` of a run, made of the records of all processes.

    Args:
        records: for each rank, the result of `RankRecord.in_rank0_time`.
        lanes, shares: as for `Record`.
        labels: {text: label} of the labels that are not just a text and a kind.
    """
    record, index_of = Record(lanes, shares, SECONDS), {}
    labels = {**labels, OVERHEAD.text: OVERHEAD}
    zero = float(min(recorded["spans"][:, 2].min() for recorded in records))
    named = [
        [labels.get(text) or (text if kind is None else Label(text, kind)) for text, kind in own["labels"]]
        for own in records
    ]
    for rank, recorded in enumerate(records):
        begun = set()
        for lane, label, start, end in recorded["spans"].tolist():
            start = start - zero if lane in begun else 0.0  # overhead until a late process begins
            begun.add(lane)
            record.spans += (int(lane), named[rank][int(label)], start, end - zero)
        for row, (label, to, sent, n_bytes, lane) in enumerate(recorded["sent"].tolist()):
            label = named[rank][int(label)]
            index_of[rank, row] = record.sends(label, rank, int(to), sent - zero, int(n_bytes), int(lane))
        for lane, time in recorded["finished"].tolist():
            record.finished[int(lane)] = time - zero
    for recorded in records:
        for source, row, arrived, received, lane in recorded["received"].tolist():
            index = index_of[source, row]
            # clocks agree to about a microsecond, so a message may seem to arrive before it was sent
            arrived = max(arrived - zero, record.messages[index + SENT])
            record.arrives(index, min(arrived, received - zero))
            record.receives(index, received - zero, int(lane))
        for lane, start, end, source, row in recorded["waited"].tolist():
            record.waits += (int(lane), start - zero, end - zero, index_of[source, row])
    return record
