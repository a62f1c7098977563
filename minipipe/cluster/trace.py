"""What happened in a run: the one source of every picture, metric and test."""

from functools import cached_property
from typing import NamedTuple


class Span(NamedTuple):
    """Device `device` worked on `label` from tick `start` to tick `end`."""

    device: int
    label: object
    start: float
    end: float


class Message(NamedTuple):
    """`label` went from `source` to device `to`. Ticks: sent, arrived, received (None: not yet)."""

    label: object
    source: int
    to: int
    sent: float
    arrived: float
    received: float | None
    n_bytes: int


class Idle(NamedTuple):
    """Device `device` did nothing from tick `start` to tick `end`, for a `reason`.

    "fill": it waited for its first work. "wait": it waited between two pieces of work. Both name the message
    that was missing. "drain": its program was over, the others' were not.
    """

    device: int
    start: float
    end: float
    reason: str
    message: object = None
    source: int | None = None

    def __str__(self):
        cause = "" if self.source is None else f", waiting for {self.message} from device {self.source}"
        return f"device {self.device} idle from {self.start} to {self.end}: {self.reason}{cause}"


class Record:
    """What the engine writes down while it runs, in columns: plain numbers make no work for the collector."""

    def __init__(self, n_devices):
        self.n_devices = n_devices
        self.end = 0
        self.finished = [None] * n_devices
        self.span_device, self.span_label, self.span_start, self.span_end = [], [], [], []
        self.label, self.source, self.to, self.sent, self.arrived, self.received, self.n_bytes = [], [], [], [], [], [], []
        self.wait_device, self.wait_start, self.wait_end, self.wait_message = [], [], [], []
        self.memory_device, self.memory_tick, self.memory_bytes = [], [], []

    def snapshot(self):
        """A record of what has happened so far, which does not change when the run goes on."""
        twin = Record(self.n_devices)
        for name, value in vars(self).items():
            setattr(twin, name, value[:] if isinstance(value, list) else value)
        return twin

    def span(self, device, label, start, end):
        self.span_device.append(device)
        self.span_label.append(label)
        self.span_start.append(start)
        self.span_end.append(end)
        if end > self.end:
            self.end = end

    def message(self, label, source, to, sent, arrived, n_bytes):
        self.label.append(label)
        self.source.append(source)
        self.to.append(to)
        self.sent.append(sent)
        self.arrived.append(arrived)
        self.received.append(None)
        self.n_bytes.append(n_bytes)
        return len(self.label) - 1

    def wait(self, device, start, end, number):
        if end > start:
            self.wait_device.append(device)
            self.wait_start.append(start)
            self.wait_end.append(end)
            self.wait_message.append(number)

    def memory(self, device, tick, n_bytes):
        self.memory_device.append(device)
        self.memory_tick.append(tick)
        self.memory_bytes.append(n_bytes)


class Trace:
    """A run, or the part of it that has happened so far.

    makespan: ticks from 0 to the end of the last span. All lists are in the order of time.
    """

    def __init__(self, record):
        self._record = record
        self.n_devices = record.n_devices
        self.makespan = record.end

    @cached_property
    def spans(self):
        """All `Span`s, by start and device."""
        record = self._record
        columns = zip(record.span_device, record.span_label, record.span_start, record.span_end)
        return sorted((Span(*row) for row in columns), key=lambda span: (span.start, span.device))

    @cached_property
    def messages(self):
        """All `Message`s from one device to another, by the tick in which they were sent."""
        r = self._record
        columns = zip(r.label, r.source, r.to, r.sent, r.arrived, r.received, r.n_bytes)
        return sorted((Message(*row) for row in columns if row[1] != row[2]), key=lambda message: (message.sent, message.source))

    @cached_property
    def idle(self):
        """All `Idle` spans. Together with `spans` they cover every device from 0 to the makespan."""
        r = self._record
        first_start = {}
        for device, start in zip(r.span_device, r.span_start):
            first_start.setdefault(device, start)
        idle = []
        for device, start, end, number in zip(r.wait_device, r.wait_start, r.wait_end, r.wait_message):
            reason = "wait" if start >= first_start.get(device, end) else "fill"
            idle.append(Idle(device, start, end, reason, r.label[number], r.source[number]))
        for device, finished in enumerate(r.finished):
            if finished is not None and finished < self.makespan:
                idle.append(Idle(device, finished, self.makespan, "drain"))
        return sorted(idle, key=lambda span: (span.start, span.device))

    def spans_of(self, device):
        """The `Span`s of one device."""
        return [span for span in self.spans if span.device == device]

    def busy_ticks(self):
        """For each device, the ticks in which it computed."""
        busy = [0] * self.n_devices
        for device, start, end in zip(self._record.span_device, self._record.span_start, self._record.span_end):
            busy[device] += end - start
        return busy

    def bubble(self, of):
        """The share of time that devices are idle, summed over devices. Three shares go by the name of bubble:

        of="total": idle / (devices * makespan). GPipe's (K - 1)/(M + K - 1).
        of="ideal": idle / time in which they compute. Megatron's (K - 1)/M.
        of="span":  idle between a device's first start and its last end / that time.
        """
        if not self._record.span_device:
            raise ValueError("nothing has been computed yet: tick or run the cluster first")
        busy = sum(self.busy_ticks())
        total = self.n_devices * self.makespan
        if of == "total":
            return (total - busy) / total
        if of == "ideal":
            return (total - busy) / busy
        if of == "span":
            own = sum(spans[-1].end - spans[0].start for spans in map(self.spans_of, range(self.n_devices)) if spans)
            return (own - busy) / own
        raise ValueError(f"bubble of {of!r} is not defined: choose 'total', 'ideal' or 'span'")

    def memory(self, device):
        """The memory curve of a device: a list of `(tick, bytes)`, each valid until the next."""
        r = self._record
        if not r.memory_tick:
            raise ValueError("this run counted no memory: only a run with real arrays does")
        changes = []
        level = 0
        for owner, tick, n_bytes in zip(r.memory_device, r.memory_tick, r.memory_bytes):
            if owner == device:
                changes.append((tick, n_bytes - level))
                level = n_bytes
        for to, arrived, received, n_bytes in zip(r.to, r.arrived, r.received, r.n_bytes):
            if to == device and arrived != received:
                changes.append((arrived, n_bytes))
                if received is not None:
                    changes.append((received, -n_bytes))
        curve, level = {}, 0
        for tick, change in sorted(changes, key=lambda item: item[0]):
            level += change
            curve[tick] = level
        return list(curve.items())

    def peak_bytes(self):
        """For each device, the most bytes that it held at once."""
        return [max(n_bytes for _, n_bytes in self.memory(device)) for device in range(self.n_devices)]

    def plot(self, ax=None, until=None):
        """The timeline, drawn by `minipipe.plots.timeline`; returns the matplotlib axes."""
        from ..plots import timeline

        return timeline(self, ax=ax, until=until)

    def to_text(self):
        """The timeline in characters, written by `minipipe.plots.text`."""
        from ..plots import text

        return text(self)

    def __eq__(self, other):
        if not isinstance(other, Trace):
            return NotImplemented
        mine, theirs = self._record, other._record
        return (
            (self.spans, self.messages, self.idle) == (other.spans, other.messages, other.idle)
            and mine.n_devices == theirs.n_devices
            and sorted(zip(mine.memory_device, mine.memory_tick, mine.memory_bytes))
            == sorted(zip(theirs.memory_device, theirs.memory_tick, theirs.memory_bytes))
        )
