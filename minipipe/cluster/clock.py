"""The clock: what is due in each tick, and the programs that it resumes then."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from math import inf
from typing import Any

from ..checks import function, is_plain, real_number
from .links import Link, Port
from .mail import (
    DeadlockError, Lane, Mail, Wait, check_all_received, deadlock_message, devices_of, not_a_request,
    shares_of,
)
from .memory import Accounts
from .record import TICKS, Record
from .requests import Compute, Program, Receive, Send
from .trace import Tick, Trace


# What is due, tick by tick.

class Due:
    """All that happens in the tick number `tick`. Lanes are given by their numbers.

    The order is:

    1. All programs whose Compute or wait is over go on, up to their next one. Here
       `Cluster.tick` stops, after the ends and before the starts.
    2. A Compute starts.
    3. Messages enter ports. Only now is it known which of them wait, so a tie is
       decided among all of them.
    4. Lanes that wait for any device choose. A message that went through a port without
       delay counts, too.

    After each step the order begins anew, since work of no ticks ends in the same tick.
    Of several lanes, the one with the lowest number comes first.
    """

    __slots__ = ("choosing", "ports", "resuming", "starting", "tick")

    def __init__(self, tick: float):
        self.tick = tick
        self.resuming: list[int] = []  # a heap of the lanes whose programs go on
        self.starting: list[int] = []  # a heap of the lanes that start a Compute
        self.ports: float | None = None  # the tick, if messages enter the ports that are free then
        self.choosing: dict[int, float] = {}  # {lane that waits for any device: the tick at which it chooses}

    @property
    def is_over(self) -> bool:
        """Whether nothing more happens in this tick."""
        return not (self.resuming or self.starting or self.choosing) and self.ports is None


class Agenda:
    """The ticks at which something is due; 2 and 2.0 are one tick."""

    def __init__(self) -> None:
        self._ticks: list[float] = []  # a heap
        self._due: dict[float, Due] = {}

    @property
    def first(self) -> Due | None:
        """The earliest `Due`, or None."""
        return self._due[self._ticks[0]] if self._ticks else None

    def drop_first(self) -> None:
        """Drop the earliest tick, which is over."""
        del self._due[heappop(self._ticks)]

    def go_on(self, lane: Lane, tick: float) -> None:
        """Let the program of `lane` go on at this tick."""
        lane.since = tick
        heappush((self._due.get(tick) or self._add(tick)).resuming, lane.number)

    def let_through(self, tick: float) -> None:
        """Let messages enter the ports that are free at this tick."""
        due = self._due.get(tick) or self._add(tick)
        if due.ports is None:
            due.ports = tick

    def choose(self, lane: Lane, tick: float) -> None:
        """Let `lane`, which waits for any device, choose a message at `tick`."""
        due = self._due.get(tick) or self._add(tick)
        due.choosing.setdefault(lane.number, tick)

    def _add(self, tick):
        heappush(self._ticks, tick)
        due = self._due[tick] = Due(tick)
        return due


class Cluster:
    """Devices that run programs under one clock.

    Args:
        programs: for each device a generator, which yields `Compute`, `Send` and
            `Receive` requests; or a dict of several that run at once, its lanes:
            {"compute": ..., "communication": ...}.
        duration: `duration(label)` gives the ticks of a `Compute` that brings none of
            its own, at least 0; by default, 1.
        link: the `Link` between any two devices, or a dict {(source, to): Link} of
            those that are not free; by default, messages arrive at once.
        ports: a `Port`, which several links share, or a list of them.
        holdings: for each device a function that returns what its programs hold now,
            {kind: nested lists of arrays}. Given these, memory is counted in bytes: of
            those arrays, of the arguments and the result of a Compute while it lasts,
            and of messages that have arrived and were not received yet.
        memory_limit: bytes per device; above it, the run stops with `MemoryLimitError`.
        shares: for each device, how many stages it has, by default 1. A micro-batch on
            one of n stages counts as 1/n micro-batch alive on the device.
        unit: what a tick is, "ticks" or "seconds", for the trace.

    Attributes:
        now: the current tick.
        failure: the exception that has stopped the run, or None.
        record: the `Record` that `trace` reads.

    `tick()` moves all devices by one tick, `run()` to the end; a run costs time in
    proportion to the number of requests, not of ticks. A Compute's function is called
    at the start of its span. If no device can go on, `DeadlockError` says who waits for
    whom; if all have finished and a message was not received, `UnreceivedError` names
    it.

    >>> def left():
    ...     yield Compute("work")
    ...     yield Send("news", "hello", to=1)
    >>> def right():
    ...     news = yield Receive("news", source=0)
    ...     yield Compute(f"read {news}", ticks=3)
    >>> for span in Cluster([left(), right()], duration=lambda label: 2).run().spans:
    ...     print(*span)
    0 work 0 2 compute
    1 read hello 2 5 compute
    """

    def __init__(
        self, programs: Sequence[Program | dict[str, Program]],
        duration: Callable[[Any], float] | None = None, link: Link | dict = Link(),
        holdings: Sequence[Callable[[], dict]] | None = None, memory_limit: float | None = None,
        ports: Port | Sequence[Port] = (), shares: Sequence[int] | None = None, unit: str = TICKS,
    ):
        self._devices, self._lanes = devices_of(programs)
        if memory_limit is not None and holdings is None:
            raise ValueError("memory_limit needs holdings, the functions that say what each device holds")
        if memory_limit is not None:
            note = " bytes, such as 8 * 2**30"
            memory_limit = real_number("memory_limit", memory_limit, above=0, note=note, infinite=True)
        self.now: float = 0
        self.failure: BaseException | None = None
        self._duration = (lambda label: 1) if duration is None else function("duration", duration)
        self._agenda = Agenda()
        for lane in self._lanes:
            self._agenda.go_on(lane, 0)
        self.record = Record(
            [(lane.device, lane.name) for lane in self._lanes], shares_of(shares, len(self._devices)), unit
        )
        self._accounts = None
        if holdings is not None:
            self._accounts = Accounts(holdings, memory_limit, self._devices, self.record)
        self._mail = Mail(link, ports, self._devices, self._agenda, self.record, self._accounts)

    def __getstate__(self) -> dict:
        """Return what a copy or a pickle keeps of a finished run: its record."""
        if not self.done and self.failure is None:
            raise RuntimeError(
                "this run is not finished, and its programs cannot be copied: call run() first"
            )
        nothing = dict.fromkeys(("_devices", "_lanes", "_duration", "_accounts", "_mail"), ())
        return self.__dict__ | nothing

    @property
    def done(self) -> bool:
        """Whether all programs have finished."""
        return None not in self.record.finished

    @property
    def trace(self) -> Trace:
        """The `Trace` of all that has happened so far."""
        return Trace(self.record.snapshot())

    def tick(self) -> Tick:
        """Move all devices by one tick; return a `Tick`, true until all is done."""
        self.now += 1
        self._advance(self.now)
        return Tick(self, self.now, not self.done)

    def run(self) -> Trace:
        """Run all programs to their end, and return the trace."""
        self._advance(inf)
        trace = self.trace
        self.now = max(self.now, trace.makespan)
        return trace

    def _advance(self, until):
        """Do all that happens before tick `until`; at `until`, only end spans.

        So after `tick()` a trace shows whole ticks: what starts at `until` belongs to
        the next one.
        """
        if self.failure is not None:
            raise RuntimeError(f"this run has stopped with an error ({self.failure}): start a new one")
        agenda = self._agenda
        try:
            while (due := agenda.first) is not None and due.tick <= until:
                self._do(due, due.tick == until)
                if not due.is_over:
                    return  # only at `until`: what starts then is left for the next call
                agenda.drop_first()
            if due is None and not self.done:
                waits = [lane for lane in self._lanes if lane.waits_for]
                waits = [Wait(lane.device, lane.name, *lane.waits_for) for lane in waits]
                raise DeadlockError(deadlock_message(waits))
            if self.done:
                check_all_received(dict(enumerate(self._devices)))
        except BaseException as error:
            self.failure = error
            if agenda.first is not None:
                self.now = agenda.first.tick
            raise

    def _do(self, due, only_ends):
        """Do all that is due in one tick; with `only_ends`, end spans, but start none.

        Each lane keeps its own number of the tick: one may count 2, another 2.0, and
        exact lanes stay exact.
        """
        lanes, resuming, starting = self._lanes, due.resuming, due.starting
        while True:
            while resuming:
                lane = lanes[heappop(resuming)]
                self._resume(lane, lane.since, starting)
            if only_ends:
                return
            if starting:
                lane = lanes[heappop(starting)]
                self._start(lane, lane.since)
            elif due.ports is not None:
                now, due.ports = due.ports, None
                self._mail.let_through(now)
            elif due.choosing:
                number = min(due.choosing)
                self._mail.choose(lanes[number], due.choosing.pop(number))
            else:
                return

    def _resume(self, lane, now, starting):
        """Serve the requests of one program until one of them takes time."""
        if self._accounts is not None:
            self._accounts.resumed(lane, now)
        answer, lane.answer = lane.answer, None
        resume = lane.resume
        while True:
            try:
                request = resume(answer)
            except StopIteration:
                self.record.finished[lane.number] = now
                self._devices[lane.device].n_running -= 1
                self._mail.count_received(lane, now)
                if self._accounts is not None:
                    self._accounts.check_limit(lane.device, now)
                return
            kind = type(request)
            if kind is Compute:
                lane.starts = request
                heappush(starting, lane.number)
                return
            if kind is Receive:
                message = self._mail.receive(lane, request, now)
                if message is None:
                    return
                answer = message.value
            elif kind is Send:
                if self._mail.send(lane, request, now):
                    self._mail.count_received(lane, now)
                    return
                answer = None
            else:
                raise not_a_request(lane, request)

    def _start(self, lane, now):
        """Call the function of a Compute; the lane goes on when its ticks are over."""
        request, lane.starts = lane.starts, None
        label, ticks = request.label, request.ticks
        if ticks is None:
            ticks = self._duration(label)
        if not is_plain(ticks):
            ticks = real_number(f"{label} on device {lane.device}: ticks", ticks, least=0, clock=True)
        if request.function is not None:
            if self._accounts is None:
                lane.answer = request.function(*request.args)
            else:
                lane.answer = self._accounts.call(lane, request.function, request.args, now)
        else:
            self._mail.count_received(lane, now)
        end = now + ticks
        self.record.spans += (lane.number, label, now, end)
        self._agenda.go_on(lane, end)
