"""Why a run stopped before its end."""

from typing import NamedTuple

from .record import lane_name
from .requests import ANY


class DeadlockError(RuntimeError):
    """No device can move, and not all have finished: the message says who waits for what from whom."""


class MemoryLimitError(MemoryError):
    """A device held more bytes than its limit: the message lists what it was holding."""


class UnreceivedError(RuntimeError):
    """All devices have finished, and messages are left that none of them has received."""


class Wait(NamedTuple):
    """A lane waits for the message `label` from the device `other`, which may be `ANY`.

    asked: whether it is the other way round: it has sent the message to the other device, and waits until
        that asks for it.
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


def deadlock_message(waits):
    """Who waits for whom: a cycle, or a chain that ends where nobody can help any more.

    waits: a `Wait` for each lane that is not over.

    >>> deadlock_message([Wait(0, "compute", "x", 1, False)])
    'deadlock: device 0 waits for x from device 1: and device 1 has finished without sending it'
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


def check_all_received(devices):
    """Raise `UnreceivedError` if a message lies in an inbox, with its sender and its label.

    devices: {number: the `Device`}, whose programs have all come to their end.
    """
    left = [(source, label, to) for to, device in devices.items() for source, label in device.inbox]
    if left:
        source, label, to = left[0]
        others = f", and {len(left) - 1} more messages are left" if len(left) > 1 else ""
        raise UnreceivedError(
            f"device {source} has sent {label} to device {to}, which has finished without receiving it"
            f"{others}: add a Receive of each, or leave out the Send"
        )


def sent_twice(source, label, to):
    """Why a message cannot be sent as long as another one of its name lies in the inbox."""
    return f"device {source} sends {label} to device {to} twice: name each message once"


def two_wait(device, label):
    """Why two lanes of a device cannot wait for messages of one name."""
    return f"two lanes of device {device} wait for {label}: let one hand it on to the other"


def which_devices(devices):
    """Which devices there are, for those who have named another one."""
    return f"devices are 0..{len(devices) - 1}"


def memory_message(device, now, held, limit):
    """What a device held at tick `now`, above its limit. held: {kind: bytes}."""
    total = sum(held.values())
    holdings = ", ".join(f"{what} {n_bytes:,}" for what, n_bytes in held.items() if n_bytes)
    return (
        f"device {device} holds {total:,} bytes at tick {now}, above its limit of {limit:,}: {holdings}; "
        f"raise the limit by {total - limit:,} bytes, or give the device less to keep"
    )
