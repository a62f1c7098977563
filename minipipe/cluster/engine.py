"""The clock: it resumes each device's program when the time of its request has come."""

import math
from heapq import heappop, heappush

from .errors import DeadlockError, MemoryLimitError, deadlock_message, memory_message
from .memory import bytes_by_kind, own
from .requests import Compute, Link, Receive, Send
from .trace import Record, Trace

RESUME, START = 0, 1  # at one instant, devices that have finished something go on before anything new starts


class Cluster:
    """Devices that run programs under one clock.

    programs: one generator per device; it yields `Compute`, `Send` and `Receive` requests.
    duration: `duration(label)` gives the ticks of a `Compute`, any number above 0; by default, 1.
    link: latency and bandwidth between two devices; by default, messages arrive at once.
    holdings: one function per device that returns what its program holds now, {kind: nested lists of arrays}.
    Given these, memory is counted in bytes of arrays really held: those, the arguments and the result of a
    Compute while it lasts (before and after its function, whichever is more), and the messages that have
    arrived and were not received yet. memory_limit: bytes per device; past it, `MemoryLimitError`.

    `tick()` moves all devices by one tick, `run()` to the end; a run costs time in proportion to the number
    of requests, not of ticks. A Compute's function is called at the start of its span. What has happened so
    far is in `trace`.

    >>> def left():
    ...     yield Compute("work")
    ...     yield Send("news", "hello", to=1)
    >>> def right():
    ...     news = yield Receive("news", source=0)
    ...     yield Compute(f"read {news}")
    >>> cluster = Cluster([left(), right()], duration=lambda label: 2)
    >>> cluster.run().spans
    [Span(device=0, label='work', start=0, end=2), Span(device=1, label='read hello', start=2, end=4)]
    """

    def __init__(self, programs, duration=None, link=Link(), holdings=None, memory_limit=None):
        self._programs = list(programs)
        n_devices = len(self._programs)
        if holdings is not None and len(holdings) != n_devices:
            raise ValueError(f"holdings has {len(holdings)} functions for {n_devices} devices: pass one for each")
        if memory_limit is not None and holdings is None:
            raise ValueError("memory_limit needs holdings, the functions that say what each device holds")
        self.now = 0
        self._duration = duration or (lambda label: 1)
        self._link = link
        self._holdings = holdings
        self._held = [{} for _ in range(n_devices)]
        self._memory_limit = memory_limit
        self._agenda = [(0, RESUME, device) for device in range(n_devices)]  # a heap, earliest first
        self._answers = [None] * n_devices      # what each program is resumed with
        self._postponed = [None] * n_devices    # a Compute that starts when the clock goes on
        self._inboxes = [{} for _ in range(n_devices)]  # (source, label) -> (arrival, value, number of the message)
        self._waiting = {}                      # device -> the (source, label) that it waits for
        self._waiting_since = [0] * n_devices
        self._link_free = {}                    # (source, to) -> tick
        self._record = Record(n_devices)

    @property
    def done(self):
        """Whether all programs have come to their end."""
        return not self._agenda and not self._waiting

    @property
    def trace(self):
        """The `Trace` of all that has happened so far."""
        return Trace(self._record.snapshot())

    def tick(self):
        """Move every device by one tick; returns whether there is more to do."""
        self.now += 1
        self._advance(self.now)
        return not self.done

    def run(self):
        """Go on to the end of all programs, and return the trace."""
        self._advance(math.inf)
        self.now = max(self.now, self._record.end)
        return self.trace

    def _advance(self, until):
        """Do all that happens before tick `until`, and at `until` all but the start of a Compute."""
        agenda, answers = self._agenda, self._answers
        while agenda and agenda[0] < (until, START):
            now, phase, device = heappop(agenda)
            if phase == START:
                self._start(device, self._postponed[device], now)
                continue
            if self._holdings is not None:
                self._check_limit(device, now, [m for m in self._inboxes[device].values() if m[0] < now])
                self._observe(device, now, [bytes_by_kind(self._holdings[device]())])
            resume = self._programs[device].send
            try:
                while True:
                    request = resume(answers[device])
                    answers[device] = None
                    kind = type(request)
                    if kind is Compute:
                        if now < until:
                            self._start(device, request, now)
                        else:
                            self._postponed[device] = request
                            heappush(agenda, (now, START, device))
                        break
                    elif kind is Send:
                        self._send(device, request, now)
                    elif kind is Receive:
                        if not self._receive(device, request, now):
                            break
                    else:
                        raise TypeError(
                            f"the program of device {device} yielded {request!r}: yield Compute, Send or Receive"
                        )
            except StopIteration:
                self._record.finished[device] = now
        if self._waiting and not agenda:
            raise DeadlockError(deadlock_message(self._waiting))

    def _start(self, device, request, now):
        label = request.label
        ticks = self._duration(label)
        if not 0 < ticks < math.inf:
            raise ValueError(f"{label} on device {device} has duration {ticks}: durations are finite and above 0 ticks")
        if request.function is None:
            pass
        elif self._holdings is None:
            self._answers[device] = request.function(*request.args)
        else:
            before = bytes_by_kind(self._holdings[device]() | {"work": request.args})
            answer = self._answers[device] = request.function(*request.args)
            after = bytes_by_kind(self._holdings[device]() | {"work": (request.args, answer)})
            self._observe(device, now, [before, after])
            self._check_limit(device, now, [m for m in self._inboxes[device].values() if m[0] <= now])
        end = now + ticks
        self._record.span(device, label, now, end)
        heappush(self._agenda, (end, RESUME, device))

    def _send(self, device, request, now):
        to, label, value = request.to, request.label, request.value
        if not 0 <= to < len(self._programs):
            raise ValueError(f"device {device} sends {label} to device {to}: devices are 0..{len(self._programs) - 1}")
        arrival, n_bytes = now, 0
        if value is not None:
            value, n_bytes = own(value)
        if to != device:
            leaves = max(now, self._link_free.get((device, to), 0)) + self._link.ticks_occupied(n_bytes)
            self._link_free[device, to] = leaves
            arrival = leaves + self._link.latency
        number = self._record.message(label, device, to, now, arrival, n_bytes)
        key = (device, label)
        if self._waiting.get(to) == key:
            del self._waiting[to]
            self._deliver(to, key, arrival, value, number)
        elif key in self._inboxes[to]:
            raise ValueError(f"device {device} sends {label} to device {to} twice: name each message once")
        else:
            self._inboxes[to][key] = arrival, value, number

    def _receive(self, device, request, now):
        """Whether the message is there already; if not, the device waits."""
        key = (request.source, request.label)
        message = self._inboxes[device].get(key)
        self._waiting_since[device] = now
        if message is None:
            self._waiting[device] = key
            return False
        arrival, value, number = message
        if arrival > now:
            self._deliver(device, key, arrival, value, number)
            return False
        del self._inboxes[device][key]
        self._record.received[number] = now
        self._answers[device] = value
        return True

    def _deliver(self, device, key, arrival, value, number):
        """Resume a waiting device when its message arrives."""
        self._inboxes[device].pop(key, None)
        self._record.received[number] = arrival
        self._record.wait(device, self._waiting_since[device], arrival, number)
        self._answers[device] = value
        heappush(self._agenda, (arrival, RESUME, device))

    def _observe(self, device, now, counts):
        """Write down the largest of `counts`, each a {kind: bytes} of this device."""
        held = max(counts, key=lambda count: sum(count.values()))
        self._held[device] = held
        self._record.memory(device, now, sum(held.values()))

    def _check_limit(self, device, now, messages):
        if self._memory_limit is None:
            return
        held = self._held[device] | bytes_by_kind({"messages": [value for _, value, _ in messages]})
        if sum(held.values()) > self._memory_limit:
            raise MemoryLimitError(memory_message(device, now, held, self._memory_limit))
