"""What a trace consists of: spans of work, messages, and spans in which nothing was done."""

from typing import NamedTuple

from .devices import COMPUTE, lane_name


class Span(NamedTuple):
    """Device `device` worked on `label` from tick `start` to tick `end`, in one of its lanes."""

    device: int
    label: object
    start: float
    end: float
    lane: str = COMPUTE


class Message(NamedTuple):
    """`label` went from device `source`, sent by one of its lanes, to device `to`.

    sent, arrived, received: ticks; None if that has not happened yet.
    lane, to_lane: the lanes that have sent and received it; None if that has not happened yet.
    """

    label: object
    source: int
    to: int
    sent: float
    arrived: float | None
    received: float | None
    n_bytes: int
    lane: str = COMPUTE
    to_lane: str | None = COMPUTE


class Idle(NamedTuple):
    """A lane of device `device` did nothing from tick `start` to tick `end`, for a `reason`:

    "fill"        It waited for its first work.
    "wait"        It waited between two pieces of work.
    "send"        The link was blocking, and its message had not arrived yet.
    "rendezvous"  The other device had not asked yet for its message.
    "drain"       Its program was over, the others' were not.

    message, source: what it waited for, and from which device; for a send or a rendezvous, what it had sent,
        and to which device; for a drain, None.
    """

    device: int
    start: float
    end: float
    reason: str
    message: object = None
    source: int | None = None
    lane: str = COMPUTE

    def __str__(self):
        words = f"{lane_name(self.device, self.lane)} idle from {self.start} to {self.end}: {self.reason}"
        if self.source is None:
            return words
        return f"{words}, waiting for {self.message} {way_of(self)}"


def way_of(idle):
    """What an idle lane waits for its message to do, and which device is at the other end of its way."""
    way = {"send": "to arrive at", "rendezvous": "to be asked for by"}.get(idle.reason, "from")
    return f"{way} {end_of(idle)}"


def end_of(idle):
    """Which device is at the other end."""
    return "another lane of its own" if idle.source == idle.device else f"device {idle.source}"
