"""Devices, their lanes, and how messages get from a Send to a Receive."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from ..checks import is_plain, listed, real_number, whole_numbers
from .links import Carrier, Link, MessageInFlight, Port
from .memory import Accounts, copy_for_receiver
from .record import COMPUTE, Record, lane_name
from .requests import ANY, Program, Receive, Send

if TYPE_CHECKING:
    from .clock import Agenda


# The state of the devices and their programs.

@dataclass(slots=True)
class Device:
    """A device: its programs, and its messages."""

    lanes: list[Lane] = field(default_factory=list)
    inbox: dict[tuple, MessageInFlight] = field(default_factory=dict)  # {(source, label): not yet received}
    waiting: dict[tuple, Lane] = field(default_factory=dict)  # {(source, label): the lane that waits for it}
    choosing: dict[object, Lane] = field(default_factory=dict)  # {label: the lane that waits for any device}
    n_running: int = 0  # programs that have not finished


class Lane:
    """One program of a device, and its state. number: its place among all lanes."""

    __slots__ = (
        "answer", "device", "name", "number", "program", "resume", "since", "starts", "waits_for", "work",
    )

    def __init__(self, number: int, device: int, name: str, program: Program):
        self.number, self.device, self.name = number, device, name
        self.program, self.resume = program, program.send
        self.answer: Any = None  # what `resume` passes to the program
        self.starts: Any = None  # the Compute that it starts in this tick
        # of an awaited message: (label, other device, whether the lane is its sender), see `Link.rendezvous`
        self.waits_for: tuple[Any, int | str, bool] | None = None
        self.work: Any = None  # the arguments of its Compute, and its result
        self.since: float = 0  # the tick at which it reached the Compute, or began to wait


def devices_of(programs: Sequence[Program | dict[str, Program]]) -> tuple[list[Device], list[Lane]]:
    """Return (devices, lanes) for `programs`; raise `ValueError` for other values."""
    if hasattr(programs, "send"):
        raise ValueError("programs is one program: pass a list, [program], with one for each device")
    devices: list[Device] = []
    lanes: list[Lane] = []
    for number, program in enumerate(listed("programs", programs, least=0)):
        device = Device()
        for name, of_lane in _lanes_of(program, number).items():
            lane = Lane(len(lanes), number, name, of_lane)
            lanes.append(lane)
            device.lanes.append(lane)
        device.n_running = len(device.lanes)
        devices.append(device)
    first: dict[Program, Lane] = {}
    for lane in lanes:
        other = first.setdefault(lane.program, lane)
        if other is not lane:
            who = f"{lane_name(lane.device, lane.name)} and {lane_name(other.device, other.name)}"
            raise ValueError(f"{who} have the same generator to run: call its function once for each")
    return devices, lanes


def _lanes_of(program, number):
    """Return {lane: its program} for device `number`."""
    lanes = program if isinstance(program, dict) else {COMPUTE: program}
    if COMPUTE not in lanes:
        names = f"the lanes {', '.join(map(repr, lanes))}" if lanes else "no lanes"
        raise ValueError(f"device {number} has {names}, and nothing to compute: call one of them {COMPUTE!r}")
    for name, of_lane in lanes.items():
        if not hasattr(of_lane, "send"):
            what = "a function" if callable(of_lane) else repr(of_lane)
            raise ValueError(
                f"the lane {name!r} of device {number} has {what} to run: give it a generator, as a call "
                "of a function with yield makes one, or leave the lane out"
            )
    return lanes


def shares_of(shares: Sequence[int] | None, devices: int) -> list[int]:
    """Return how many stages share each of `devices` devices: `shares`, or 1 each."""
    if shares is None:
        return [1] * devices
    shares = list(whole_numbers("shares", shares, 0))
    if len(shares) != devices:
        raise ValueError(f"shares has {len(shares)} numbers for {devices} devices: give one for each")
    return shares


# Why a run stops before its end.

class DeadlockError(RuntimeError):
    """No device can go on, and some have not finished: says who waits for whom."""


class UnreceivedError(RuntimeError):
    """All devices have finished, and some messages were never received."""


class Wait(NamedTuple):
    """A lane waits for the message `label` from the device `other`, which may be `ANY`.

    Args:
        asked: whether instead the lane has sent the message to the other device, and
            waits until that device asks for it.
    """

    device: int
    lane: str
    label: object
    other: int | str
    asked: bool

    def __str__(self):
        name = lane_name(self.device, self.lane)
        other = self.other if self.other == ANY else f"device {self.other}"
        what = f"until {other} asks for {self.label}" if self.asked else f"for {self.label} from {other}"
        return f"{name} waits {what}"


def deadlock_message(waits: Sequence[Wait]) -> str:
    """Return who waits for whom: a cycle, or a chain that ends.

    Args:
        waits: a `Wait` for each lane that has not finished.
    """
    path = [waits[0]]
    while True:
        last = path[-1]
        others = [wait for wait in waits if wait.device == last.other and wait is not last]
        if not others:
            break
        if others[0] in path:
            path, end = path[path.index(others[0]):], "a cycle, so none of them can ever go on"
            return f"deadlock: {', '.join(map(str, path))}: {end}"
        path.append(others[0])
    if last.other == ANY:
        end = "and nobody sends that any more"
    elif last.other == last.device:
        end = "it waits for itself: let another lane send that, or send it before"
    else:
        end = f"and device {last.other} has finished without {'asking for' if last.asked else 'sending'} it"
    return f"deadlock: {', '.join(map(str, path))}: {end}"


def check_all_received(devices: dict[int, Device]) -> None:
    """Raise `UnreceivedError`, with sender and label, if a message was not received.

    Args:
        devices: {number: the `Device`}, whose programs have all finished.
    """
    left = [(source, label, to) for to, device in devices.items() for source, label in device.inbox]
    if left:
        source, label, to = left[0]
        others = f", and {len(left) - 1} more messages are left" if len(left) > 1 else ""
        raise UnreceivedError(
            f"device {source} has sent {label} to device {to}, which has finished without receiving it"
            f"{others}: add a Receive of each, or leave out the Send"
        )


def sent_twice(source: int, label: object, to: int) -> str:
    """Return the error text for a `label` that `source` has sent to `to` before."""
    return f"device {source} sends {label} to device {to} twice: name each message once"


def start_to_wait(device: Device, lane: Lane, label: Any, source: int | str) -> None:
    """Let `lane` of `device` wait for the message `label` of `source`, or of `ANY`."""
    names = {name for _, name in device.waiting} if source is ANY else ()
    if label in device.choosing or label in names or (source, label) in device.waiting:
        words = f"two lanes of device {lane.device} wait for {label}"
        raise ValueError(f"{words}: let one send it to the other")
    lane.waits_for = label, source, False
    if source is ANY:
        device.choosing[label] = lane
    else:
        device.waiting[source, label] = lane


def not_a_request(lane: Lane, request: object) -> TypeError:
    """Return the error for what `lane` has yielded: `request` is not a request."""
    words = f"the program of device {lane.device} yielded {request!r}"
    return TypeError(f"{words}: yield Compute, Send or Receive")


def no_such_device(device: int, request: Send | Receive, devices: int) -> ValueError:
    """Return the error for a `request` of `device` that names none of the `devices`."""
    if isinstance(request, Send):
        what = f"sends {request.label} to device {request.to}"
    else:
        what = f"waits for {request.label} from device {request.source}"
    return ValueError(f"device {device} {what}: devices are 0..{devices - 1}")


# The messages.

class Mail:
    """The messages of a cluster: from a `Send` over a link to a `Receive`."""

    def __init__(
        self, link: Link | dict, ports: Port | Sequence[Port], devices: list[Device], agenda: Agenda,
        record: Record, accounts: Accounts | None,
    ):
        self._carrier = Carrier(link, ports, len(devices), record)
        self._devices, self._agenda, self._record, self._accounts = devices, agenda, record, accounts
        self._numbers = range(len(devices))
        self._all_free = self._carrier.all_free

    def send(self, lane: Lane, request: Send, now: float) -> bool:
        """Send the message of `request` at `now`; return whether `lane` has to wait."""
        source, to, label = lane.device, request.to, request.label
        value, n_bytes = request.value, request.n_bytes
        if to not in self._numbers:
            raise no_such_device(source, request, len(self._devices))
        if value is not None:
            # The copy is made now: devices share no memory, and the sender may overwrite its arrays at once.
            value, n_bytes = copy_for_receiver(value)
        elif not is_plain(n_bytes):
            n_bytes = real_number(f"device {source} sends {label}: n_bytes", n_bytes, least=0, clock=True)
        receiver, key = self._devices[to], (source, label)
        arrival = now if self._all_free or source == to else None
        row = self._record.sends(label, source, to, now, n_bytes, lane.number, arrival)
        # A lane that waits already takes the message at once, past the inbox: half of all messages.
        waiting = None if arrival is None else receiver.waiting.pop(key, None)
        if waiting is not None:
            self._deliver(waiting, row, value, now)
            return False
        message = MessageInFlight(label, source, to, value, n_bytes, row, arrival)
        if receiver.inbox.setdefault(key, message) is not message:
            raise ValueError(sent_twice(source, label, to))
        if arrival is not None:
            self._lies_there(message, receiver)
            return False
        if self._carrier.link(source, to).rendezvous and key not in receiver.waiting:
            self._hold(message, lane, now)
            return True
        return self._set_out(message, lane, now)

    def receive(self, lane: Lane, request: Receive, now: float) -> MessageInFlight | None:
        """Return the message that `request` of `lane` asks for, if it is there `now`.

        Otherwise return None; the lane goes on when the message arrives.
        """
        label, source = request.label, request.source
        if source is ANY:
            self.count_received(lane, now)
            start_to_wait(self._devices[lane.device], lane, label, ANY)
            self._agenda.choose(lane, now)  # at the end of this tick
            return None
        message = self._devices[lane.device].inbox.pop((source, label), None)
        if message is not None and message.is_held:
            self._ask(message, lane, now)
        if message is None or message.arrival is None:
            self._wait(lane, request, message, now)
            return None
        if message.arrival > now:  # in flight: nothing else can change when it arrives
            self.count_received(lane, now)
            self._deliver(lane, message.row, message.value, message.arrival)
            return None
        self._record.receives(message.row, now, lane.number)
        if self._accounts is not None:
            self._accounts.has_received(lane.device)
        return message

    def let_through(self, now: float) -> None:
        """Let messages enter the ports that are free, at the end of tick `now`."""
        started, passed_at = self._carrier.let_through(now)
        for message in started:
            self._arrives(message)
            if message.sender is not None:
                self._go_on_at_arrival(message)
        for tick in passed_at:
            self._agenda.let_through(tick)

    def choose(self, lane: Lane, now: float) -> None:
        """Deliver the earliest message at `now`, if `lane` still waits for any device.

        If all messages sent so far wait to be asked for, ask for the first of them. Of
        two that were sent, or have arrived, in the same tick, the message of the lower
        device comes first.
        """
        if lane.waits_for is None or lane.waits_for[1] is not ANY:
            return  # it has received one already
        label, device = lane.waits_for[0], self._devices[lane.device]
        messages = [message for (_, name), message in device.inbox.items() if name == label]
        if messages and all(message.is_held for message in messages):
            self._ask(min(messages, key=lambda message: (message.sender.since, message.source)), lane, now)
            return
        known = [message for message in messages if message.arrival is not None]
        if not known:
            return  # they queue for a port; when one has passed it, `_lies_there` lets this lane choose again
        first = min(known, key=lambda message: (message.arrival, message.source))
        if first.arrival > now:
            self._agenda.choose(lane, first.arrival)
        else:
            del device.inbox[first.source, label], device.choosing[label]
            self._deliver(lane, first.row, (first.source, first.value), now)

    def _hold(self, message, lane, now):
        """Keep a message with its sender until the receiver asks for it."""
        message.is_held, message.sender = True, lane
        lane.waits_for = message.label, message.to, True
        self._let_choose(message, now)

    def _ask(self, message, lane, now):
        """Let a held message set out; its sender may still wait for the arrival."""
        sender, message.sender, message.is_held = message.sender, None, False
        sender.waits_for = None
        if sender.since < now:
            self._record.asked += (sender.number, sender.since, now, message.row, lane.number)
        if not self._set_out(message, sender, now):
            self._agenda.go_on(sender, now)

    def _set_out(self, message, sender, now):
        """Start or queue a message; return whether its sender waits for the arrival."""
        blocking = self._carrier.link(message.source, message.to).blocking
        if not self._carrier.set_out(message, now):
            # it enters at the end of this tick, when all that compete for the port have been sent
            self._agenda.let_through(now)
        else:
            self._arrives(message)
            blocking = blocking and message.arrival > now
        if blocking:
            message.sender, sender.since = sender, now
            if message.arrival is not None:
                self._go_on_at_arrival(message)
        return blocking

    def _go_on_at_arrival(self, message):
        sender, message.sender = message.sender, None
        self._record.blocked += (sender.number, sender.since, message.arrival, message.row)
        self._agenda.go_on(sender, message.arrival)

    def _arrives(self, message):
        """Record when a message arrives; a lane that waits for it goes on then."""
        self._record.arrives(message.row, message.arrival)
        receiver, key = self._devices[message.to], (message.source, message.label)
        if key in receiver.waiting:
            del receiver.inbox[key]
            self._deliver(receiver.waiting.pop(key), message.row, message.value, message.arrival)
        else:
            self._lies_there(message, receiver)

    def _lies_there(self, message, receiver):
        """Leave a message in the inbox, since no lane waits for just this one."""
        if receiver.choosing:
            self._let_choose(message, message.arrival)
        elif not receiver.n_running and self._accounts is not None:
            self._accounts.check_limit(message.to, message.arrival)

    def _let_choose(self, message, tick):
        """Let a lane that waits for any device look at this message at `tick`."""
        lane = self._devices[message.to].choosing.get(message.label)
        if lane is not None:
            self._agenda.choose(lane, tick)

    def _wait(self, lane, request, message, now):
        """Let a lane wait for `message`, which is None if it has not been sent."""
        self.count_received(lane, now)
        source, label = request.source, request.label
        if source not in self._numbers:
            raise no_such_device(lane.device, request, len(self._devices))
        device = self._devices[lane.device]
        start_to_wait(device, lane, label, source)
        if message is not None:
            device.inbox[source, label] = message

    def _deliver(self, lane, row, answer, tick):
        """Let a waiting lane go on at `tick` with `answer`; `row` is the message's."""
        lane.answer, lane.waits_for = answer, None
        self._record.receives(row, tick, lane.number)
        self._record.waits += (lane.number, lane.since, tick, row)
        if self._accounts is not None:
            self._accounts.has_received(lane.device)
        self._agenda.go_on(lane, tick)

    def count_received(self, lane: Lane, now: float) -> None:
        """Count the bytes of the device of `lane`, if it has received some at `now`."""
        if self._accounts is not None:
            self._accounts.after_receiving(lane.device, now)
