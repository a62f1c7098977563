"""The trace of a run on many processes: each writes down its half of every message."""

import numpy as np

from ..cluster import SECONDS, Label
from ..cluster.record import SENT, Record, rows
from .overhead import OVERHEAD


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
        """The lane has worked."""
        self.spans += (lane.number, label, start, end)

    def sends(self, lane, label, to, sent, n_bytes):
        """The lane sends a message; the place of its row."""
        self.sent += (label, to, sent, n_bytes, lane.number)
        return len(self.sent) // 5 - 1

    def receives(self, message, arrived, received, lane):
        """The lane gets a message."""
        self.received += (*message, arrived, received, lane.number)

    def waits(self, lane, start, end, message):
        """The lane has waited for a message."""
        self.waited += (lane.number, start, end, *message)

    def finish(self, lane, time):
        """The program of the lane is over."""
        self.finished += (lane.number, time)

    def in_common_time(self, clock):
        """Tables of plain numbers, with times of the clock of rank 0; and texts and kinds of the labels."""
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
    """The `Record` of a run on all processes.

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
