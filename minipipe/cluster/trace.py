"""What happened in a run: the one source of every picture, metric and test."""

from __future__ import annotations  # a `Trace` may name itself

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from numbers import Integral
from pathlib import PurePath
from typing import Any

from ..checks import listed, real_number, shown
from ..registry import Registry
from .exchanges import Exchange, exchanges_of
from .record import COMPUTE, MESSAGE_WIDTH, Idle, Message, OneTick, Record, Span, duration, lane_name, rows
from .why import Explanation, Step, critical_path, explain

BUBBLES = {  # the four definitions of a bubble, as tables and pages call them
    "total": "idle / total time",
    "ideal": "idle / ideal (computing) time",
    "span": "idle inside each device's span",
    "worst": "idle in the worst device's span",
}


SHOWS = Registry("minipipe.plots", dict)  # name -> function (trace, ...)


class Trace:
    """A run, or the part of it that has happened so far.

    Attributes:
        spans, messages, idle: what the devices did, what they sent each other, and why
            they waited, in the order of time.
        exchanges: when devices summed gradients over replicas, gathered parameters or
            summed over shards.
        lanes: the rows of a picture: a compute lane of each device, and others in use.
        makespan: ticks from 0 to the end of the last span or program.
        title: what sentences call the run, such as "1F1B", or "".
        unit: "ticks"; or "seconds" in a run on real hardware, where all ticks are
            seconds.
        tick_is: a `OneTick`: the share of the network and the samples that a tick
            stands for; None where that is unknown, as for a program of your own.
        even: a function that simulates the run with its work divided evenly, and
            returns that `Trace`; None where stages are equal, and for a run that was
            not simulated.
        stop: where and why an order with faults stopped, a `Stop`; None for a run that
            can end.
        shares: for each device, how many stages share it.
        names: what pictures call the devices, or [].

    `busy_ticks()`, `bubble(of)`, `memory(device)`, `ledger(device)` and `peak_bytes()`
    count; `explain()` and `critical_path()` say why; `plot()`, `to_text()` and
    `to_html()` draw, and so does the last line of a notebook's cell. Two traces are
    equal if all that happened is equal.
    """

    def __init__(self, record: Record):
        self._record, self.title, self.names = record, record.title, record.names
        self.n_devices, self.shares, self.unit = record.n_devices, record.shares, record.unit
        self.tick_is, self.even, self.stop = record.tick_is, record.even, record.stop
        ends = [tick for tick in record.finished if tick is not None]
        self.makespan = max([*record.spans[3::4], *ends], default=0)

    @cached_property
    def lanes(self) -> dict[tuple[int, str], None]:
        """{(device, lane): None}: all lanes that compute, and other lanes in use."""
        used = set(self._record.spans[::4])
        lanes = enumerate(self._record.lanes)
        return {lane: None for number, lane in lanes if lane[1] == COMPUTE or number in used}

    @cached_property
    def spans(self) -> list[Span]:
        """All `Span`s, by start and device."""
        spans = []
        for number, label, start, end in rows(self._record.spans, 4):
            device, lane = self._record.lanes[number]
            spans.append(Span(device, label, start, end, lane))
        return sorted(spans, key=lambda span: (span.start, span.device))

    @cached_property
    def messages(self) -> list[Message]:
        """All `Message`s from one device to another, by the tick of sending."""
        messages = (message for message in self._message_at.values() if message.source != message.to)
        return sorted(messages, key=lambda message: (message.sent, message.source))

    @cached_property
    def _message_at(self):
        """{index of its row: `Message`}, also between two lanes of a device."""
        lanes, width, found = self._record.lanes, MESSAGE_WIDTH, {}
        for number, (*row, lane, to_lane) in enumerate(rows(self._record.messages, width)):
            receiver = None if to_lane is None else lanes[to_lane][1]
            found[width * number] = Message(*row, lanes[lane][1], receiver)
        return found

    @cached_property
    def exchanges(self) -> list[Exchange]:
        """All finished `Exchange`s of each device, by start and device.

        In a lane for exchanges, the span of the action, which takes no time, is the
        end.
        """
        return exchanges_of(self, self._record)

    @cached_property
    def queued(self) -> dict[Message, tuple[float, Message]]:
        """{queued `Message`: (tick when its way was free, the message in front)}."""
        messages, table = self._message_at, rows(self._record.queued, 3)
        return {messages[index]: (tick, messages[other]) for index, tick, other in table}

    @cached_property
    def asked(self) -> dict[Message, tuple[float, int, str]]:
        """{`Message`: (tick, device, lane) that asked for it}, if it was held."""
        lanes, messages, table = self._record.lanes, self._message_at, rows(self._record.asked, 5)
        return {messages[index]: (end, *lanes[number]) for _, _, end, index, number in table}

    @cached_property
    def awaited(self) -> dict[Idle, Message]:
        """{`Idle`: the `Message` that it waited for}, of all `Idle`s but the drains."""
        record, lanes = self._record, self._record.lanes
        first_start: dict[int, float] = {}
        for number, start in zip(record.spans[::4], record.spans[2::4], strict=True):
            first_start.setdefault(number, start)
        found = {}

        def add(number, start, end, reason, index, other):
            device, lane = lanes[number]
            if end > start:
                message = self._message_at[index]
                idle = Idle(device, start, end, reason, message.label, getattr(message, other), lane)
                found[idle] = message

        for number, start, end, index in rows(record.waits, 4):
            has_worked = start >= first_start.get(number, end)
            add(number, start, end, "wait" if has_worked else "fill", index, "source")
        for number, start, end, index in rows(record.blocked, 4):
            add(number, start, end, "send", index, "to")
        for number, start, end, index, _ in rows(record.asked, 5):
            add(number, start, end, "rendezvous", index, "to")
        return found

    @cached_property
    def idle(self) -> list[Idle]:
        """All `Idle` spans that have ended, of the lanes in `lanes`.

        In a finished run, they and `spans` cover each lane from 0 to the makespan.
        """
        drains = [
            Idle(device, finished, self.makespan, "drain", lane=lane)
            for (device, lane), finished in zip(self._record.lanes, self._record.finished, strict=True)
            if finished is not None and finished < self.makespan and (device, lane) in self.lanes
        ]
        waits = [idle for idle in self.awaited if (idle.device, idle.lane) in self.lanes]
        return sorted(waits + drains, key=lambda idle: (idle.start, idle.device))

    def spans_of(self, device: int, lane: str | None = None) -> list[Span]:
        """Return the `Span`s of a `device`, by start; only those of `lane`, if any."""
        self._check_device(device)
        names = [name for owner, name in self._record.lanes if owner == device]
        if lane is not None and not (isinstance(lane, str) and lane in names):
            raise ValueError(f"device {device} has no lane {lane!r}: it runs {', '.join(map(str, names))}")
        spans = self._spans_by_device[device]
        return spans if lane is None else [span for span in spans if span.lane == lane]

    @cached_property
    def _spans_by_device(self):
        spans: list[list[Span]] = [[] for _ in range(self.n_devices)]
        for span in self.spans:
            spans[span.device].append(span)
        return spans

    def busy_ticks(self) -> list[float]:
        """Return for each device the ticks in which it computed."""
        busy: list[float] = [0] * self.n_devices
        for number, _, start, end in rows(self._record.spans, 4):
            device, lane = self._record.lanes[number]
            if lane == COMPUTE:
                busy[device] += end - start
        return busy

    def bubble(self, of: str = "total") -> float:
        """Return the share of time that devices do not compute, by one definition.

        Args:
            of: "total", idle / (devices * makespan), GPipe's (K - 1)/(M + K - 1);
                "ideal", idle / time in which devices compute, Megatron's (K - 1)/M;
                "span", idle between a device's first start and its last end / that
                time; or "worst", the largest such share of a single device, Zero
                Bubble's rate.
        """
        if not isinstance(of, str) or of not in BUBBLES:
            raise ValueError(f"bubble of {of!r} is not defined: choose 'total', 'ideal', 'span' or 'worst'")
        busy, total = sum(self.busy_ticks()), self.n_devices * self.makespan
        if not busy:
            raise ValueError("no device has computed for any time: tick or run the cluster first")
        if of == "total":
            return (total - busy) / total
        if of == "ideal":
            return (total - busy) / busy
        of_devices = [self.spans_of(device, COMPUTE) for device in range(self.n_devices)]
        own = [spans[-1].end - spans[0].start if spans else 0 for spans in of_devices]
        if of == "span":
            return (sum(own) - busy) / sum(own)
        return max((span - work) / span for span, work in zip(own, self.busy_ticks()) if span)

    def explain(self) -> Explanation:
        """Return an `Explanation` of why the devices were idle, tick by tick."""
        return explain(self)

    def critical_path(self) -> list[Step]:
        """Return the work and transfers that add up to the makespan, as `Step`s."""
        return critical_path(self)

    def ledger(self, device: int) -> list[tuple[float, dict[str, int]]]:
        """Return what `device` holds: [(tick from which this is so, {kind: bytes})].

        A kind without bytes is left out. `ValueError` for a run that has not counted
        bytes: a network counts them with count_bytes=True, or with a limit.
        """
        if not self._record.memory:
            raise ValueError(
                "this run has not counted the bytes that devices hold: make the network with "
                "count_bytes=True, or a Cluster with holdings"
            )
        self._check_device(device)
        return self._ledgers[device]

    @cached_property
    def _ledgers(self):
        """For each device, its ledger; of messages alone, if bytes were not counted."""
        # for each device (tick, {kind: bytes} that it then holds, or None, added bytes of messages)
        changes: list[list[tuple]] = [[] for _ in range(self.n_devices)]
        for owner, tick, held in rows(self._record.memory, 3):
            changes[owner].append((tick, held, 0))
        for _, _, to, _, arrived, received, n_bytes, *_ in rows(self._record.messages, MESSAGE_WIDTH):
            if arrived is not None and arrived != received:
                changes[to].append((arrived, None, n_bytes))
                if received is not None:
                    changes[to].append((received, None, -n_bytes))
        found = []
        for of_device in changes:
            entries: dict[float, dict[str, int]] = {}
            held, messages = {}, 0
            for tick, new, n_bytes in sorted(of_device, key=lambda change: change[0]):
                held, messages = held if new is None else new, messages + n_bytes
                entries[tick] = {kind: n for kind, n in {**held, "messages": messages}.items() if n}
            found.append(list(entries.items()))
        return found

    def _check_device(self, device):
        if not isinstance(device, Integral) or device not in range(self.n_devices):
            known = f"its devices are 0 to {self.n_devices - 1}"
            raise ValueError(f"device={shown(device)} is not one of the trace: {known}")

    def memory(self, device: int) -> list[tuple[float, int]]:
        """Return the memory curve of `device`, [(tick, bytes)], see `ledger`."""
        return [(tick, sum(held.values())) for tick, held in self.ledger(device)]

    def peak_bytes(self, kinds: str | Sequence[str] | None = None) -> list[int]:
        """Return for each device the most bytes held at the start or end of a Compute.

        Temporary arrays within a Compute are not counted.

        Args:
            kinds: count only these, one or several of "parameters", "optimizer state",
                "weight versions", "gradients", "stashed inputs", "caches", "work" and
                "messages", or other kinds that programs hold.
        """
        ledgers = [self.ledger(device) for device in range(self.n_devices)]
        if kinds is not None:
            kinds = [kinds] if isinstance(kinds, str) else listed("kinds", kinds)
            known = {"work", "messages"}.union(*(held for _, _, held in rows(self._record.memory, 3)))
            unknown = [kind for kind in kinds if kind not in known]
            if unknown:
                names = ", ".join(map(repr, sorted(known)))
                raise ValueError(f"kinds has {shown(unknown[0])}, but this run counted {names}")

        def total(held):
            return sum(n_bytes for kind, n_bytes in held.items() if kinds is None or kind in kinds)

        return [max(total(held) for _, held in ledger) for ledger in ledgers]

    def plot(
        self, ax: Any = None, *, title: str | None = None, legend: bool = True, arrows: bool = False,
        critical_path: bool = False,
    ) -> Any:
        """Draw the timeline by `minipipe.plots.timeline`; return the matplotlib axes.

        Args:
            ax: matplotlib axes; new ones if None.
            title, legend, arrows: as for `minipipe.plots.timeline`.
            critical_path: whether to draw the critical path on top.
        """
        if isinstance(ax, (str, PurePath)):
            raise ValueError(f"ax={str(ax)!r} is not matplotlib axes: save({str(ax)!r}) writes a file")
        shows = SHOWS.load()
        ax = shows["timeline"](self, ax, title=title, legend=legend, arrows=arrows)
        if critical_path:
            shows["critical_path"](self, ax)
        return ax

    def save(self, path: str | PurePath, title: str | None = None) -> None:
        """Write the timeline into a file, whole or not at all.

        Args:
            path: its ending says what to write: .png, .pdf, .svg and other pictures;
                .gif, a film; .html, a page; .json, for ui.perfetto.dev.
            title: the title above a picture.
        """
        SHOWS.load()["save"](self, path, title)

    def sentence(self, rival: Trace | None = None, longer: Trace | None = None) -> str:
        """Return in one to three sentences how long the run takes, and why it is idle.

        Args:
            rival: the trace of another run in the same unit, to compare the makespans.
            longer: the trace of the same run with more micro-batches, to tell its idle
                share.

        >>> from minipipe import simulate
        >>> run = simulate("1f1b", devices=4, microbatches=8)
        >>> print(run.sentence())                                # doctest: +NORMALIZE_WHITESPACE
        1F1B takes 33 ticks and is idle 27 % of the time. Device 0 waits 6 ticks for
        1B0, the gradient of micro-batch 0, which first passes through devices 3, 2
        and 1.
        """
        return SHOWS.load()["sentence"](self, rival, longer)

    def to_text(self) -> str:
        """Return the timeline in characters, made by `minipipe.plots.text`."""
        return SHOWS.load()["text"](self)

    def to_html(self, title: str | None = None) -> str:
        """Return the timeline as an interactive page of HTML, with a `title`."""
        return SHOWS.load()["html"](self, title)

    def to_chrome_trace(self) -> dict:
        """Return the timeline for ui.perfetto.dev, a dict."""
        return SHOWS.load()["chrome_trace"](self)

    def _repr_html_(self):
        """Return the player of `to_html`, with which Jupyter shows the trace."""
        return SHOWS.load()["player"](self)

    def _repr_png_(self):
        """Return the picture of `plot`, for GitHub and exports."""
        return SHOWS.load()["still"](self)

    def stretched(self, factor: float, tick_is: OneTick | None = None) -> Trace:
        """Return the trace with all times multiplied by `factor`.

        Args:
            tick_is: what a tick then stands for, a `OneTick`.
        """
        factor = real_number("factor", factor, above=0)
        if factor == 1:
            return self

        def multiplied(time):
            product = time * factor
            return int(product) if isinstance(product, Fraction) and product.denominator == 1 else product

        record = self._record.with_times(multiplied)
        record.tick_is, record.even, record.names = tick_is, None, self.names
        return Trace(record)

    def __repr__(self):
        length = duration(self.makespan, self.unit)
        return f"<Trace of {self.n_devices} devices, {len(self.spans)} spans, {length}>"

    def __str__(self):
        """Return the timeline in characters, its length, and how much of it is idle."""
        text = f"{self.to_text()}\n{duration(self.makespan, self.unit)}"
        return f"{text}, {100 * float(self.bubble()):.1f} % idle" if any(self.busy_ticks()) else text

    def __eq__(self, other):
        if not isinstance(other, Trace):
            return NotImplemented
        names = "lanes", "spans", "messages", "idle", "queued", "_ledgers"
        return all(getattr(self, name) == getattr(other, name) for name in names)


@dataclass(frozen=True)
class Tick:
    """A tick that has passed. It is true while there is more to do; it prints itself.

    Args:
        cluster: the `Cluster` whose work in this tick is printed.
        now: its number, from 1.
        is_more: whether there is more to do.
    """

    cluster: Any
    now: float
    is_more: bool

    def __bool__(self):
        return self.is_more

    def __repr__(self):
        trace, words = self.cluster.trace, []
        for device, lane in trace.lanes:
            spans = trace.spans_of(device, lane)
            labels = [str(span.label) for span in spans if span.start < self.now and span.end > self.now - 1]
            words.append(f"{lane_name(device, lane)} {' '.join(labels) or 'waits'}")
        return f"tick {self.now}: {', '.join(words)}{'' if self else '. All is done'}"


def check_trace(trace: object) -> None:
    """Raise `ValueError` unless `trace` is a `Trace`, not a schedule or else."""
    if not isinstance(trace, Trace):
        raise ValueError(
            f"trace={shown(trace)} is not a Trace: take the trace of a network, or simulate(schedule)"
        )
