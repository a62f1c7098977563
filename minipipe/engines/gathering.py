"""The trace of a run on many processes: each writes down, by its own clock, its half of every message."""

import platform
from time import perf_counter

import numpy as np

from ..cluster import SECONDS, Label
from ..cluster.record import SENT, Record, rows
from .threads import OVERHEAD


# The clocks of several computers, read as one.

N_ROUND_TRIPS = 200


class Clock:
    """The clock of this process, and what rank 0's shows at the same time.

    comm: an MPI communicator.
    read: the function that reads the clock, in seconds.

    At each `compare`, all other ranks ask rank 0 for its time. If the answer t1 took from t0 to t2, then the
    clock of rank 0 is ahead by t1 - (t0 + t2)/2, with an error of at most half the round trip; of some
    hundred, the shortest counts. Clocks run at speeds of their own, so between two comparisons the lead
    moves in a straight line. Ranks of one computer share its clock, and need not ask. Source: Cristian 1989,
    Distributed Computing 3.
    """

    def __init__(self, comm, read=perf_counter):
        self._comm, self.read = comm, read
        self._is_shared = read is perf_counter and _on_one_computer(comm)
        self._leads = [(0.0, 0.0)]  # (time of this clock, lead of rank 0's)

    def compare(self, begin=False):
        """Compare the clocks, at the begin and at the end of a run: a call that all ranks make.

        begin: whether this is the first of the two calls.
        """
        if self._is_shared:
            return
        comm, question, answer = self._comm, np.empty(0), np.empty(1)
        for rank in range(1, comm.size):
            trips = []
            for _ in range(N_ROUND_TRIPS):
                if comm.rank == 0:
                    comm.Recv(question, rank)
                    answer[0] = self.read()
                    comm.Send(answer, rank)
                elif comm.rank == rank:
                    sent = self.read()
                    comm.Send(question, 0)
                    comm.Recv(answer, 0)
                    trips.append((self.read() - sent, sent, answer[0]))
            if trips:
                length, sent, answered = min(trips)
                middle = sent + length / 2
                self._leads = [*([] if begin else self._leads[:1]), (middle, answered - middle)]

    def common(self, time):
        """Return what the clock of rank 0 shows when this one shows `time`."""
        (begin, lead), (end, last_lead) = self._leads[0], self._leads[-1]
        if end > begin:
            lead += (last_lead - lead) * (time - begin) / (end - begin)
        return time + lead


def _on_one_computer(comm):
    name = np.frombuffer(platform.node().encode()[:256].ljust(256, b"\0"), np.uint8)
    names = np.empty((comm.size, 256), np.uint8)
    comm.Allgather(name, names)
    return bool((names == names[0]).all())


# What each process writes down, and the trace of them all.

class Half:
    """What one process has seen of a run, by its own clock; lanes have the numbers of all devices' lanes.

    A message is named by its sender, and by the place of its row among those that this one has sent.
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

    halves: for each rank what `Half.in_common_time` has given there.
    lanes, shares: as for `Record`.
    labels: {text: label} of the labels that are more than a text and a kind.
    """
    record, index_of = Record(lanes, shares, SECONDS), {}
    zero = float(min(half["spans"][:, 2].min() for half in halves))
    named = [[_label(*label, labels) for label in half["labels"]] for half in halves]
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


def _label(text, kind, labels):
    if text == OVERHEAD.text:
        return OVERHEAD
    return labels.get(text) or (text if kind is None else Label(text, kind))
