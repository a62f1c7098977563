"""The programs of a cluster on MPI ranks: one process a device, on one computer or many."""

import pickle
from collections import deque

import numpy as np

from ..checks import listed, truth
from ..cluster import ANY, SECONDS, Compute, Label, Receive, Send, Trace, own, sent_bytes
from ..cluster.mail import check_all_received, devices_of, sent_twice, shares_of, two_wait
from ..cluster.record import SENT, Record, rows
from .threads import OVERHEAD, keep_memory, out_of_patience, patience
from .world import Pause, world

MESSAGE = 2  # the tag of messages


class Mpi:
    """The device of this process among those that run programs at once, each in a process of its own.

    Args:
        programs: as for `Cluster`, the same list on all ranks. Rank r runs the lanes of
            device r, and no others.
        synchronous: whether MPI may not store messages, but hands each over when the
            other process takes it, as with `issend`. Programs do not notice.
        shares: as for `Cluster`.
        labels: those of the spans of all devices that are more than a text and a kind,
            such as actions.

    `run()` runs them to their end. In `trace`, which all ranks must ask for, ticks are
    seconds from the start, on the clock of rank 0. Lanes take turns in one thread:
    another one goes on after each Compute, and whenever one waits. A Compute takes as
    long as its function; what the process does in between is a span called "engine".
    Values travel as mpi4py's pickles: a large array is not copied, and arrives as it
    lies.

    An exception on one rank is raised on all of them, so that all may go on; what
    nobody catches ends the job, see `World`. If a message does not come for too long,
    `TimeoutError` says which, see `Threads`.
    """

    def __init__(self, programs, synchronous=False, shares=None, labels=()):
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
        self._sending, self._end = [], None  # requests
        self._ready = deque(self._lanes)
        self._half, self._labels = Half(), {str(label): label for label in listed("labels", labels, least=0)}
        self._patience, self._read = patience(), self._world.clock.read
        self._trace = self._begin = None
        self.done, self.failure = False, None

    def __getstate__(self):
        """Return what a copy or a pickle of a finished run has: what has happened, and no devices."""
        names = "_device", "_lanes", "_ready", "_sending", "_send_message", "_read", "_end"
        nothing = dict.fromkeys(names, ())
        return self.__dict__ | nothing | {"_world": None}

    @property
    def trace(self):
        """The `Trace` of all devices, in seconds: a call that all ranks make."""
        if not self.done:
            raise RuntimeError("the programs have not been run to their end")
        if self._trace is None:
            self._world.gathered(None, "the trace")
            self._world.clock.compare()
            mine = self._half.in_common_time(self._world.clock)
            halves = self._world.gathered(mine, "the trace")
            self._trace = Trace(merged(halves, self._all_lanes, self._shares, self._labels))
        return self._trace

    def run(self, alike=None):
        """Run the programs of this rank to their end, while the other ranks run theirs.

        Args:
            alike: what must be the same on all ranks, as for `World.check_alike`.
        """
        if self._begin is not None:
            raise RuntimeError("these programs have been run: make new ones")
        keep_memory()
        self._world.check_alike({"devices": str(self._n_devices), **(alike or {})}, "the begin of a run")
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
        """Leave a run that has failed here, and let the other ranks raise the error, too.

        Messages that no rank has received stay on their way: the next run drops them,
        by their run's number.
        """
        if self._end is None:
            others = [] if hasattr(error, "of_rank") else range(self._n_devices)  # else they know it
            try:
                error = pickle.loads(pickle.dumps(error))
            except Exception:  # of a class of the user's, for example
                error = RuntimeError(f"{type(error).__name__}: {error}")
            notice = self._number, None, 0, error
            self._sending += [self._send_message(notice, to, MESSAGE) for to in others if to != self.rank]
            self._end = self._world.comm.Ibarrier()
        self._world.unsent += [*self._sending, self._end]

    def _serve_all(self):
        """Serve the lanes in turn, and messages in between; at the end wait until all ranks have theirs."""
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
                if n_running:  # a lane of this rank waits, which says more
                    raise out_of_patience(self._lanes, self._patience) from None
                raise
            pause()

    def _serve(self, lane):
        """Serve a lane up to its next Compute, or until it waits; whether it has come to its end."""
        while True:
            answer, lane.answer = lane.answer, None
            try:
                request = lane.resume(answer)
            except StopIteration:
                self._half.finish(lane, self._until_now(lane))
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
        start = self._until_now(lane)
        lane.answer = None if request.function is None else request.function(*request.args)
        lane.since = self._read()
        self._half.span(lane, request.label, start, lane.since)

    def _send(self, lane, request):
        sent, to, label = self._until_now(lane), request.to, request.label
        if to not in range(self._n_devices):
            words = f"devices are 0..{self._n_devices - 1}"
            raise ValueError(f"device {self.rank} sends {label} to device {to}: {words}")
        value = request.value
        n_bytes = request.n_bytes if value is None else sent_bytes(value)
        row = self._half.sends(lane, label, to, sent, n_bytes)
        if to == self.rank:
            self._file(self.rank, str(label), row, own(value)[0])
            return
        # a large array is sent from where it lies, so one that may be overwritten is copied
        value = value if request.stays else own(value)[0]
        self._sending.append(self._send_message((self._number, str(label), row, value), to, MESSAGE))

    def _receive(self, lane, request):
        """Tell whether the message is there; if not, the lane will go on when it arrives."""
        lane.since, label, source = self._until_now(lane), str(request.label), request.source
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
        """File all messages that have arrived, but those of a run that has failed; return whether any came.

        Raise the error of a rank that has left this run.
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
        """Put a message into the inbox, or hand it to the lane that waits for it."""
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
            self._half.waits(lane, since, lane.since, (source, row))
            self._hand_over(lane, key, from_any, lane.since)
            self._ready.append(lane)

    def _hand_over(self, lane, key, from_any, now):
        row, value, arrived = self._device.inbox.pop(key)
        self._half.receives((key[0], row), min(arrived, now), now, lane)
        lane.answer = (key[0], value) if from_any else value

    def _until_now(self, lane):
        """Return the time, and record the lane's time since its last row as the engine's own."""
        now = self._read()
        self._half.span(lane, OVERHEAD, lane.since, now)
        lane.since = now
        return now


def check_size(world, devices):
    """Raise `ValueError` unless there is one process for each device."""
    if world.size != devices:
        started = "1 process has" if world.size == 1 else f"{world.size} processes have"
        raise ValueError(
            f"{devices} devices need a process each, but {started} been started: "
            f"begin the command with mpiexec -n {devices}"
        )


# What each process writes down, and the trace of them all.

class Half:
    """What one process has seen of a run, by its own clock; lanes have the numbers of all devices' lanes.

    A message is named by its sender, and by the place of its row among those that this
    one has sent.
    """

    def __init__(self):
        self.spans = []     # rows of lane, label, start, end
        self.sent = []      # rows of label, to, sent, bytes, lane
        self.received = []  # rows of sender, its row, arrived, received, lane
        self.waited = []    # rows of lane, start, end, sender, its row
        self.finished = []  # rows of lane, time

    def span(self, lane, label, start, end):
        """Record that the lane has worked."""
        self.spans += (lane.number, label, start, end)

    def sends(self, lane, label, to, sent, n_bytes):
        """Record that the lane sends a message; return the place of its row."""
        self.sent += (label, to, sent, n_bytes, lane.number)
        return len(self.sent) // 5 - 1

    def receives(self, message, arrived, received, lane):
        """Record that the lane gets a message."""
        self.received += (*message, arrived, received, lane.number)

    def waits(self, lane, start, end, message):
        """Record that the lane has waited for a message."""
        self.waited += (lane.number, start, end, *message)

    def finish(self, lane, time):
        """Record that the program of the lane is over."""
        self.finished += (lane.number, time)

    def in_common_time(self, clock):
        """Return tables of numbers, with times of rank 0's clock, and the texts and kinds of the labels."""
        when, known = clock.common, {}  # (text, kind) of a label -> its number

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


def merged(halves, lanes, shares, labels):
    """Return the `Record` of a run on all processes.

    Args:
        halves: for each rank what `Half.in_common_time` has given there.
        lanes, shares: as for `Record`.
        labels: {text: label} of the labels that are more than a text and a kind.
    """
    record, index_of = Record(lanes, shares, SECONDS), {}
    labels = {**labels, OVERHEAD.text: OVERHEAD}
    zero = float(min(half["spans"][:, 2].min() for half in halves))
    named = [
        [labels.get(text) or (text if kind is None else Label(text, kind)) for text, kind in half["labels"]]
        for half in halves
    ]
    for rank, half in enumerate(halves):
        begun = set()
        for lane, label, start, end in half["spans"].tolist():
            start = start - zero if lane in begun else 0.0  # a process that began later had not come so far
            begun.add(lane)
            record.spans += (int(lane), named[rank][int(label)], start, end - zero)
        for row, (label, to, sent, n_bytes, lane) in enumerate(half["sent"].tolist()):
            label = named[rank][int(label)]
            index_of[rank, row] = record.sends(label, rank, int(to), sent - zero, int(n_bytes), int(lane))
        for lane, time in half["finished"].tolist():
            record.finished[int(lane)] = time - zero
    for half in halves:
        for source, row, arrived, received, lane in half["received"].tolist():
            index = index_of[source, row]
            arrived = max(arrived - zero, record.messages[index + SENT])  # clocks agree to a microsecond
            record.arrives(index, min(arrived, received - zero))
            record.receives(index, received - zero, int(lane))
        for lane, start, end, source, row in half["waited"].tolist():
            record.waits += (int(lane), start - zero, end - zero, index_of[source, row])
    return record
