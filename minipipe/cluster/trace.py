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
    that was missing. "send": the link was blocking, and its message to device `source` had not arrived yet. "drain": its
    program was over, the others' were not.
    """

    device: int
    start: float
    end: float
    reason: str
    message: object = None
    source: int | None = None

    def __str__(self):
        cause = ""
        if self.source is not None:
            way = "to arrive at" if self.reason == "send" else "from"
            cause = f", waiting for {self.message} {way} device {self.source}"
        return f"device {self.device} idle from {self.start} to {self.end}: {self.reason}{cause}"


MESSAGE_WIDTH = len(Message._fields)
RECEIVED = Message._fields.index("received")


class Record:
    """What the engine writes down while it runs.

    Each list holds one row after another, end to end: plain numbers in a long list make no work for
    Python's garbage collector, a tuple for each row would.
    """

    def __init__(self, n_devices):
        self.n_devices = n_devices
        self.spans = []     # rows of device, label, start, end
        self.messages = []  # rows of label, source, to, sent, arrived, received, bytes
        self.waits = []     # rows of device, start, end, place of the message in `messages`
        self.blocked = []   # rows of device, start, end, place of the message that it has sent
        self.queued = []    # rows of place of a message, tick at which its link was free for it
        self.memory = []    # rows of device, tick, {kind: bytes}
        self.finished = [None] * n_devices  # the tick at which each program ended

    def snapshot(self):
        """A record of what has happened so far, which does not change when the run goes on."""
        twin = Record(self.n_devices)
        for name in ("spans", "messages", "waits", "blocked", "queued", "memory", "finished"):
            setattr(twin, name, getattr(self, name)[:])
        return twin


def _sorted_memory(record):
    return sorted(_rows(record.memory, 3), key=lambda row: row[:2])


def _rows(flat, width):
    return zip(*(flat[column::width] for column in range(width)))


class Trace:
    """A run, or the part of it that has happened so far; `Pipeline.trace`, `simulate` and `Cluster.run` give one.

    spans, messages, idle: what the devices did, what went between them, and why they waited, in the order of time.
    makespan: ticks from 0 to the end of the last span or program. `busy_ticks()`, `bubble(of)`, `memory(device)`,
    `ledger(device)` and `peak_bytes()` count; `explain()` and `critical_path()` say why; `plot()`, `to_text()` and `to_html()`
    show. Two traces are equal if all that happened is.
    """

    def __init__(self, record):
        self._record = record
        self.n_devices = record.n_devices
        self.makespan = max([*record.spans[3::4], *(tick for tick in record.finished if tick is not None)], default=0)

    @cached_property
    def spans(self):
        """All `Span`s, by start and device."""
        return sorted((Span(*row) for row in _rows(self._record.spans, 4)), key=lambda span: (span.start, span.device))

    @cached_property
    def messages(self):
        """All `Message`s from one device to another, by the tick in which they were sent."""
        messages = (Message(*row) for row in _rows(self._record.messages, 7))
        return sorted((m for m in messages if m.source != m.to), key=lambda m: (m.sent, m.source))

    @cached_property
    def queued(self):
        """{message: the tick at which its link was free for it}, for each `Message` that had to queue behind others."""
        row = self._record.messages
        return {Message(*row[place:place + MESSAGE_WIDTH]): tick for place, tick in _rows(self._record.queued, 2)}

    @cached_property
    def idle(self):
        """All `Idle` spans that are over. In a finished run, they and `spans` cover every device from 0 to the makespan."""
        first_start = {}
        for span in self.spans:
            first_start.setdefault(span.device, span.start)
        idle = []
        for device, start, end, place in _rows(self._record.waits, 4):
            if end > start:
                reason = "wait" if start >= first_start.get(device, end) else "fill"
                label, source = self._record.messages[place:place + 2]
                idle.append(Idle(device, start, end, reason, label, source))
        for device, start, end, place in _rows(self._record.blocked, 4):
            label, _, to = self._record.messages[place:place + 3]
            idle.append(Idle(device, start, end, "send", label, to))
        for device, finished in enumerate(self._record.finished):
            if finished is not None and finished < self.makespan:
                idle.append(Idle(device, finished, self.makespan, "drain"))
        return sorted(idle, key=lambda span: (span.start, span.device))

    def spans_of(self, device):
        """The `Span`s of one device."""
        return self._spans_by_device[device]

    @cached_property
    def _spans_by_device(self):
        spans = [[] for _ in range(self.n_devices)]
        for span in self.spans:
            spans[span.device].append(span)
        return spans

    def busy_ticks(self):
        """For each device, the ticks in which it computed."""
        return list(self._busy_ticks)

    @cached_property
    def _busy_ticks(self):
        busy = [0] * self.n_devices
        for device, _, start, end in _rows(self._record.spans, 4):
            busy[device] += end - start
        return busy

    def bubble(self, of):
        """The share of time that devices are idle, summed over devices. Three shares go by the name of bubble:

        of="total": idle / (devices * makespan). GPipe's (K - 1)/(M + K - 1).
        of="ideal": idle / time in which they compute. Megatron's (K - 1)/M.
        of="span":  idle between a device's first start and its last end / that time.
        """
        if not self._record.spans:
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

    def explain(self, most_alive=None):
        """Why the devices were idle, tick by tick: an `Explanation`. The rules are in `minipipe.cluster.explanation`."""
        from .explanation import explain

        return explain(self, most_alive)

    def critical_path(self):
        """The work and transfers that add up to the makespan, as a list of `Step`s; see `minipipe.cluster.critical_path`."""
        from .critical_path import critical_path

        return critical_path(self)

    def ledger(self, device):
        """What a device holds: a list of `(tick, {kind: bytes})`, each valid until the next; a kind without bytes is left out."""
        if not self._record.memory:
            raise ValueError("this run counted no memory: only a run with real arrays does, or a simulation with footprints")
        if device not in range(self.n_devices):
            raise ValueError(f"device={device!r} is not one of the trace: its devices are 0 to {self.n_devices - 1}")
        changes = [(tick, held, 0) for owner, tick, held in _rows(self._record.memory, 3) if owner == device]
        for _, _, to, _, arrived, received, n_bytes in _rows(self._record.messages, 7):
            if to == device and arrived != received:
                changes.append((arrived, None, n_bytes))
                if received is not None:
                    changes.append((received, None, -n_bytes))
        entries, held, messages = {}, {}, 0
        for tick, new, n_bytes in sorted(changes, key=lambda change: change[0]):
            held, messages = held if new is None else new, messages + n_bytes
            entries[tick] = {kind: n for kind, n in {**held, "messages": messages}.items() if n}
        return list(entries.items())

    def memory(self, device):
        """The memory curve of a device: a list of `(tick, bytes)`, each valid until the next."""
        return [(tick, sum(held.values())) for tick, held in self.ledger(device)]

    def peak_bytes(self, kinds=None):
        """For each device, the most bytes that it held at once; of these kinds alone, such as ("stashed inputs", "caches")."""
        def total(held):
            return sum(n_bytes for kind, n_bytes in held.items() if kinds is None or kind in kinds)

        return [max(total(held) for _, held in self.ledger(device)) for device in range(self.n_devices)]

    def plot(self, ax=None, until=None, title=None, legend=True, arrows=False, memory=False, critical_path=False):
        """The timeline, drawn by `minipipe.plots.timeline`, with the critical path if wanted; returns the matplotlib axes.

        memory: with the memory curves below, drawn by `minipipe.plots.timeline_with_memory`; then `ax` is a pair of axes, and so
        is what is returned.
        """
        from .. import plots

        ax = (plots.timeline_with_memory if memory else plots.timeline)(self, ax, until, title, legend, arrows)
        if critical_path:
            plots.critical_path(self, ax[0] if memory else ax, until)
        return ax

    def to_text(self):
        """The timeline in characters, written by `minipipe.plots.text`."""
        from ..plots import text

        return text(self)

    def to_html(self, path=None, title=None):
        """The timeline as an interactive web page, made by `minipipe.plots.html`: its text, or the file `path`."""
        from ..plots import html

        return html(self, path, title)

    def to_chrome_trace(self, path=None, tick="1 ms"):
        """The timeline as a dict, or as JSON in the file `path`, for ui.perfetto.dev; made by `minipipe.plots.chrome_trace`."""
        from ..plots import chrome_trace

        return chrome_trace(self, path, tick)

    def __repr__(self):
        return f"<Trace of {self.n_devices} devices, {len(self.spans)} spans, {self.makespan} ticks>"

    def __eq__(self, other):
        if not isinstance(other, Trace):
            return NotImplemented
        return (
            (self.n_devices, self.spans, self.messages, self.idle) == (other.n_devices, other.spans, other.messages, other.idle)
            and self.queued == other.queued
            and _sorted_memory(self._record) == _sorted_memory(other._record)
        )
