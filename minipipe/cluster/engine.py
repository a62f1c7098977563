"""The clock: it resumes each program when the time of its request has come."""

from heapq import heappop, heappush
from math import inf

from .accounts import Accounts
from .carrier import Carrier, Message
from .devices import devices_of
from .errors import DeadlockError, deadlock_message
from .links import Link
from .memory import own
from .requests import ANY, Compute, Receive, Send
from .record import Record
from .trace import Trace

# What happens in one tick, in this order: programs go on after what they have finished; those that came to a Compute at the
# end of a tick start it; messages enter the ports; those that wait for anybody take what has come first.
RESUME, START, PORTS, CHOOSE = range(4)


class Cluster:
    """Devices that run programs under one clock.

    programs: for each device a generator, which yields `Compute`, `Send` and `Receive` requests; or a dict of several that it
        runs at once, its lanes: {"compute": ..., "communication": ...}.
    duration: `duration(label)` gives the ticks of a `Compute` that brings none of its own, at least 0; by default, 1.
    link: the `Link` between any two devices, or a dict {(source, to): Link} of those that are not free; by default, messages
        arrive at once.
    ports: a list of `Port`s, what several links share.
    holdings: for each device a function that returns what its programs hold now, {kind: nested lists of arrays}. Given these,
        memory is counted in bytes of arrays really held: those, the arguments and the result of a Compute while it lasts
        (before and after its function, whichever is more), and the messages that have arrived and were not received yet.
    memory_limit: bytes per device; past it, `MemoryLimitError`.
    memory: the `memory` of an equal run before, which is taken for this one's: then nothing is counted.

    `tick()` moves all devices by one tick, `run()` to the end; a run costs time in proportion to the number of requests, not
    of ticks. A Compute's function is called at the start of its span. What has happened so far is in `trace`. If no device
    can move, `DeadlockError` says who waits for whom.

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

    def __init__(self, programs, duration=None, link=Link(), holdings=None, memory_limit=None, ports=(), memory=None):
        self._devices, self._lanes = devices_of(programs)
        if memory_limit is not None and holdings is None:
            raise ValueError("memory_limit needs holdings, the functions that say what each device holds")
        self.now = 0
        self.failure = None  # the exception that has stopped the run
        self._duration = duration or (lambda label: 1)
        self._agenda = [(0, RESUME, lane.number) for lane in self._lanes]  # a heap, earliest first
        self._record = Record([(lane.device, lane.name) for lane in self._lanes])
        self._carrier = Carrier(link, ports, len(self._devices), self._record)
        self._accounts = None
        if holdings is not None:
            self._accounts = Accounts(holdings, memory_limit, self._devices, self._record)
        elif memory is not None:
            self._record.memory = memory

    @property
    def memory(self):
        """What each device has held so far, for an equal run to take over."""
        return self._record.memory

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
        """Do all that happens before tick `until`, and at `until` what is finished then, but start nothing new."""
        agenda, lanes = self._agenda, self._lanes
        while agenda and agenda[0] < (until, START):
            now, phase, number = heappop(agenda)
            if phase == RESUME:
                self._resume(lanes[number], now, until)
            elif phase == START:
                self._start(lanes[number], lanes[number].postponed, now)
            elif phase == PORTS:
                self._let_through(now)
            else:
                self._choose(lanes[number], now)
        if not agenda and not self.done:
            raise DeadlockError(deadlock_message([(lane.device, *lane.waits_for) for lane in lanes if lane.waits_for]))

    def _resume(self, lane, now, until):
        """Serve the requests of one program until one of them takes time."""
        if self._accounts is not None:
            self._accounts.resumed(lane, now)
        answer, lane.answer = lane.answer, None
        resume = lane.resume
        while True:
            try:
                request = resume(answer)
            except StopIteration:
                self._finish(lane, now)
                return
            kind = type(request)
            if kind is Compute:
                if now < until:
                    self._start(lane, request, now)
                else:
                    lane.postponed = request
                    heappush(self._agenda, (now, START, lane.number))
                return
            if kind is Receive:
                message = self._receive(lane, request, now)
                if message is None:
                    return
                answer = message.value
            elif kind is Send:
                if self._send(lane, request, now):
                    self._count_received(lane, now)
                    return
                answer = None
            else:
                raise TypeError(f"the program of device {lane.device} yielded {request!r}: yield Compute, Send or Receive")

    def _count_received(self, lane, now):
        """The lane has received all that it will receive in this tick."""
        if self._accounts is not None:
            self._accounts.after_receiving(lane.device, now)

    def _finish(self, lane, now):
        self._record.finished[lane.number] = now
        self._devices[lane.device].n_running -= 1
        self._count_received(lane, now)
        if self._accounts is not None:
            self._accounts.check_limit(lane.device, now)

    def _start(self, lane, request, now):
        label, ticks = request.label, request.ticks
        if ticks is None:
            ticks = self._duration(label)
        if not 0 <= ticks < inf:
            raise ValueError(f"{label} on device {lane.device} has duration {ticks}: durations are finite and at least 0 ticks")
        if request.function is not None:
            if self._accounts is None:
                lane.answer = request.function(*request.args)
            else:
                lane.answer = self._accounts.call(lane, request.function, request.args, now)
        else:
            self._count_received(lane, now)
        end = now + ticks
        self._record.spans += (lane.number, label, now, end)
        heappush(self._agenda, (end, RESUME, lane.number))

    def _send(self, lane, request, now):
        """Hand a message over; whether the lane has to wait then."""
        source, to, label, value, n_bytes = lane.device, request.to, request.label, request.value, request.n_bytes
        if not 0 <= to < len(self._devices):
            self._check_device(to, f"device {source} sends {label} to")
        if value is not None:
            value, n_bytes = own(value)
        row = self._record.sends(label, source, to, now, n_bytes, lane.number)
        message = Message(label, source, to, value, n_bytes, row)
        receiver, key = self._devices[to], (source, label)
        if receiver.inbox.setdefault(key, message) is not message:
            raise ValueError(f"device {source} sends {label} to device {to} twice: name each message once")
        if self._carrier.is_free(source, to):
            message.arrival = now
            self._arrives(message)
            return False
        link = self._carrier.link(source, to)
        if link.rendezvous and key not in receiver.waiting and label not in receiver.choosing:
            message.sender, lane.waits_for, lane.since = lane, (label, to, True), now
            return True
        self._set_out(message, now)
        return self._blocks(message, lane, link, now)

    def _set_out(self, message, now):
        if self._carrier.set_out(message, now):
            self._arrives(message)
        else:
            heappush(self._agenda, (now, PORTS, 0))

    def _blocks(self, message, sender, link, now):
        """Whether the sender of a message that has set out waits until it has arrived; if so, it will go on then."""
        if not link.blocking or message.arrival == now:
            return False
        sender.since = now
        if message.arrival is None:
            message.sender = sender
        else:
            self._go_on_at_arrival(sender, message)
        return True

    def _go_on_at_arrival(self, sender, message):
        self._record.blocked += (sender.number, sender.since, message.arrival, message.row)
        heappush(self._agenda, (message.arrival, RESUME, sender.number))

    def _let_through(self, now):
        """At the end of a tick: messages enter the ports that are free."""
        started, passed_at = self._carrier.let_through(now)
        for message in started:
            self._arrives(message)
            if message.sender is not None:
                self._go_on_at_arrival(message.sender, message)
        for tick in passed_at:
            heappush(self._agenda, (tick, PORTS, 0))

    def _arrives(self, message):
        """It is known when a message arrives: a lane that waits for it goes on then."""
        self._record.arrives(message)
        receiver, key = self._devices[message.to], (message.source, message.label)
        if key in receiver.waiting:
            del receiver.inbox[key]
            self._deliver(receiver.waiting.pop(key), message, message.value, message.arrival)
        elif message.label in receiver.choosing:
            heappush(self._agenda, (message.arrival, CHOOSE, receiver.choosing[message.label].number))
        elif not receiver.n_running and self._accounts is not None:
            self._accounts.check_limit(message.to, message.arrival)

    def _receive(self, lane, request, now):
        """The message, if it has arrived; if not, None, and the lane will go on when it does."""
        label, source = request.label, request.source
        device = self._devices[lane.device]
        lane.since = now
        if source is ANY:
            self._count_received(lane, now)
            self._check_alone(label in device.choosing, lane, label, ANY)
            lane.waits_for, device.choosing[label] = (label, ANY, False), lane
            heappush(self._agenda, (now, CHOOSE, lane.number))
            return None
        key = source, label
        message = device.inbox.pop(key, None)
        if message is not None and message.is_held:
            self._ask(message, lane, now)
        if message is not None and message.arrival is not None and message.arrival <= now:
            self._record.receives(message, now, lane.number)
            if self._accounts is not None:
                self._accounts.has_received(lane.device)
            return message
        self._count_received(lane, now)
        if message is None or message.arrival is None:
            self._wait(lane, key, message)
        else:
            self._deliver(lane, message, message.value, message.arrival)
        return None

    def _wait(self, lane, key, message):
        """Nobody knows yet when the message of this key arrives."""
        source, label = key
        self._check_device(source, f"device {lane.device} waits for {label} from")
        device = self._devices[lane.device]
        self._check_alone(key in device.waiting, lane, label, f"device {source}")
        device.waiting[key], lane.waits_for = lane, (label, source, False)
        if message is not None:
            device.inbox[key] = message

    def _ask(self, message, lane, now):
        """A message that has waited for the receiver sets out, and its sender goes on, unless it waits until that has arrived."""
        sender, message.sender = message.sender, None
        sender.waits_for = None
        self._record.asked += (sender.number, sender.since, now, message.row, lane.number)
        self._set_out(message, now)
        if not self._blocks(message, sender, self._carrier.link(message.source, message.to), now):
            heappush(self._agenda, (now, RESUME, sender.number))

    def _choose(self, lane, now):
        """Of all messages of one name, hand over the one that has come first, or ask for the one that was sent first."""
        if lane.waits_for is None or lane.waits_for[1] is not ANY:
            return  # it has got one already
        label, device = lane.waits_for[0], self._devices[lane.device]
        messages = [message for (_, name), message in device.inbox.items() if name == label]
        coming = [message for message in messages if message.arrival is not None]
        if coming:
            first = min(coming, key=lambda message: (message.arrival, message.source))
            if first.arrival > now:
                heappush(self._agenda, (first.arrival, CHOOSE, lane.number))
            else:
                del device.inbox[first.source, label], device.choosing[label]
                self._deliver(lane, first, (first.source, first.value), now)
            return
        held = [message for message in messages if message.is_held]
        if held:
            self._ask(min(held, key=lambda message: (message.sender.since, message.source)), lane, now)

    def _deliver(self, lane, message, answer, tick):
        """Let a lane that waits go on at `tick`, with its message."""
        lane.answer, lane.waits_for = answer, None
        self._record.receives(message, tick, lane.number)
        self._record.waits += (lane.number, lane.since, tick, message.row)
        if self._accounts is not None:
            self._accounts.has_received(lane.device)
        heappush(self._agenda, (tick, RESUME, lane.number))

    def _check_alone(self, another_waits, lane, label, source):
        if another_waits:
            raise ValueError(f"two lanes of device {lane.device} wait for {label} from {source}: let one hand it on to the other")

    def _check_device(self, number, who):
        if number not in range(len(self._devices)):
            raise ValueError(f"{who} device {number}: devices are 0..{len(self._devices) - 1}")
