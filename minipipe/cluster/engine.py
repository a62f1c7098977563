"""The clock: it resumes each device's program when the time of its request has come."""

from heapq import heappop, heappush
from math import inf

from .errors import DeadlockError, MemoryLimitError, deadlock_message, memory_message
from .links import Link, Links
from .memory import bytes_by_kind, own
from .requests import Compute, Receive, Send
from .trace import MESSAGE_WIDTH, RECEIVED, Record, Trace

RESUME, START = 0, 1  # at the end of a tick, devices go on after what they have finished, but start nothing new


class Cluster:
    """Devices that run programs under one clock.

    programs: one generator per device; it yields `Compute`, `Send` and `Receive` requests.
    duration: `duration(label)` gives the ticks of a `Compute`, at least 0; by default, 1.
    link: the `Link` between any two devices, or a dict {(source, to): Link} of those that are not free; by default,
    messages arrive at once.
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
        programs = list(programs)
        n_devices = len(programs)
        if holdings is not None and len(holdings) != n_devices:
            raise ValueError(f"holdings has {len(holdings)} functions for {n_devices} devices: pass one for each")
        if memory_limit is not None and holdings is None:
            raise ValueError("memory_limit needs holdings, the functions that say what each device holds")
        self.now = 0
        self.failure = None  # the exception that has stopped the run
        self._devices = [_Device(program) for program in programs]
        self._duration = duration or (lambda label: 1)
        self._links = Links(link, n_devices)
        self._holdings = holdings
        self._memory_limit = memory_limit
        self._agenda = [(0, RESUME, number) for number in range(n_devices)]  # a heap, earliest first
        self._record = Record(n_devices)

    @property
    def done(self):
        """Whether all programs have come to their end."""
        return None not in self._record.finished

    @property
    def trace(self):
        """The `Trace` of all that has happened so far."""
        return Trace(self._record.snapshot())

    def tick(self):
        """Move every device by one tick; returns whether there is more to do."""
        self.now += 1
        self._go_on(self.now)
        return not self.done

    def run(self):
        """Go on to the end of all programs, and return the trace."""
        self._go_on(inf)
        trace = self.trace
        self.now = max(self.now, trace.makespan)
        return trace

    def _go_on(self, until):
        if self.failure is not None:
            raise RuntimeError(f"this run has stopped with an error ({self.failure}): start a new one")
        try:
            self._advance(until)
        except BaseException as error:
            self.failure = error
            raise

    def _advance(self, until):
        """Do all that happens before tick `until`, and at `until` all but the start of a Compute."""
        agenda, devices = self._agenda, self._devices
        while agenda and agenda[0] < (until, START):
            now, phase, number = heappop(agenda)
            device = devices[number]
            if phase == START:
                self._start(number, device.postponed, now)
                continue
            if self._holdings is not None:
                self._check_limit(number, now)
                self._observe(number, now, [device.kept or bytes_by_kind(self._holdings[number]())])
                device.kept = None
            self._resume(number, device, now, until)
        if not agenda and not self.done:
            waiting = {number: device.waits_for for number, device in enumerate(devices) if device.waits_for}
            raise DeadlockError(deadlock_message(waiting))

    def _resume(self, number, device, now, until):
        """Serve the requests of one program until one of them takes time."""
        answer, device.answer = device.answer, None
        resume = device.resume
        while True:
            try:
                request = resume(answer)
            except StopIteration:
                self._record.finished[number] = now
                self._observe_after_receiving(number, device, now)
                self._check_limit(number, now)
                return
            kind = type(request)
            if kind is Send:
                arrival = self._send(number, request, now)
                answer = None
                if arrival > now and self._links.blocks(number, request.to):
                    self._observe_after_receiving(number, device, now)
                    self._record.blocked += (number, now, arrival, len(self._record.messages) - MESSAGE_WIDTH)
                    heappush(self._agenda, (arrival, RESUME, number))
                    return
            elif kind is Receive:
                key = (request.source, request.label)
                message = device.inbox.pop(key, None)
                if message is None:
                    self._observe_after_receiving(number, device, now)
                    self._check_device(request.source, f"device {number} waits for {request.label} from")
                    device.waits_for, device.waits_since = key, now
                    return
                arrival, answer, place = message
                if arrival > now:
                    self._observe_after_receiving(number, device, now)
                    device.waits_since = now
                    self._deliver(number, device, message)
                    return
                self._record.messages[place + RECEIVED] = now
                device.has_received = True
            elif kind is Compute:
                if now < until:
                    self._start(number, request, now)
                else:
                    device.postponed = request
                    heappush(self._agenda, (now, START, number))
                return
            else:
                raise TypeError(f"the program of device {number} yielded {request!r}: yield Compute, Send or Receive")

    def _start(self, number, request, now):
        label = request.label
        ticks = self._duration(label)
        if not 0 <= ticks < inf:
            raise ValueError(f"{label} on device {number} has duration {ticks}: durations are finite and at least 0 ticks")
        device = self._devices[number]
        if request.function is None:
            self._observe_after_receiving(number, device, now)
        else:
            device.answer, device.has_received = self._call(number, request, now), False
        end = now + ticks
        self._record.spans += (number, label, now, end)
        heappush(self._agenda, (end, RESUME, number))

    def _call(self, number, request, now):
        if self._holdings is None:
            return request.function(*request.args)
        before = bytes_by_kind(self._holdings[number]() | {"work": request.args})
        answer = request.function(*request.args)
        after = bytes_by_kind(self._holdings[number]() | {"work": (request.args, answer)})
        self._observe(number, now, [before, after])
        self._check_limit(number, now)
        self._devices[number].kept = {kind: n_bytes for kind, n_bytes in after.items() if kind != "work"}
        return answer

    def _send(self, number, request, now):
        to, label, value = request.to, request.label, request.value
        if not 0 <= to < len(self._devices):
            self._check_device(to, f"device {number} sends {label} to")
        n_bytes = request.n_bytes
        if value is not None:
            value, n_bytes = own(value)
        messages = self._record.messages
        begin, arrival = self._links.transfer(number, to, now, n_bytes)
        if begin > now:
            self._record.queued += (len(messages), begin)
        message = arrival, value, len(messages)
        messages += (label, number, to, now, arrival, None, n_bytes)
        key = (number, label)
        receiver = self._devices[to]
        if receiver.waits_for == key:
            self._deliver(to, receiver, message)
        elif receiver.inbox.setdefault(key, message) is not message:
            raise ValueError(f"device {number} sends {label} to device {to} twice: name each message once")
        elif self._record.finished[to] is not None:
            self._check_limit(to, arrival)
        return arrival

    def _check_device(self, number, who):
        if number not in range(len(self._devices)):
            raise ValueError(f"{who} device {number}: devices are 0..{len(self._devices) - 1}")

    def _deliver(self, number, device, message):
        """Resume a waiting device when its message arrives."""
        arrival, device.answer, place = message
        device.waits_for, device.has_received = None, True
        record = self._record
        record.messages[place + RECEIVED] = arrival
        record.waits += (number, device.waits_since, arrival, place)
        heappush(self._agenda, (arrival, RESUME, number))

    def _observe(self, number, now, counts):
        """Write down the largest of `counts`, each a {kind: bytes} of this device."""
        held = max(counts, key=lambda count: sum(count.values()))
        self._devices[number].held = held
        self._record.memory += (number, now, held)

    def _observe_after_receiving(self, number, device, now):
        """A device that has received something may hold it now; a Compute with a function counts by itself."""
        if device.has_received and self._holdings is not None:
            self._observe(number, now, [bytes_by_kind(self._holdings[number]())])
        device.has_received = False

    def _check_limit(self, number, now):
        """What the device has held since its last observation, and the messages that arrived before `now`.

        A device whose program is over is not observed again, so there all messages count, whenever they arrive.
        """
        if self._memory_limit is None:
            return
        device = self._devices[number]
        over = self._record.finished[number] is not None
        messages = [value for arrival, value, _ in device.inbox.values() if arrival < now or over]
        held = device.held | bytes_by_kind({"messages": messages})
        if sum(held.values()) > self._memory_limit:
            raise MemoryLimitError(memory_message(number, now, held, self._memory_limit))


class _Device:
    """Where one program stands."""

    __slots__ = ("resume", "answer", "postponed", "inbox", "waits_for", "waits_since", "held", "kept", "has_received")

    def __init__(self, program):
        self.resume = program.send
        self.answer = None       # what the program is resumed with
        self.postponed = None    # a Compute that starts when the clock goes on
        self.inbox = {}          # (source, label) -> (arrival, value, place of the message in the record)
        self.waits_for = None    # the (source, label) of a Receive that has no message yet
        self.waits_since = 0
        self.held = {}           # the bytes that it was last seen to hold, by kind
        self.has_received = False  # since its last Compute
        self.kept = None         # those that it will hold when its Compute has ended
