"""What engines record while they run, and the items of a trace."""

import re
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from fractions import Fraction
from typing import Any, NamedTuple

COMPUTE = "compute"  # the lane of a device that runs one program


def lane_name(device: int, lane: str, names: Sequence[str] = ()) -> str:
    """Return the name of a lane in texts: for the compute lane, its device's name.

    Args:
        device, lane: the lane.
        names: what pictures call the devices, or [].

    >>> lane_name(2, "compute"), lane_name(0, "communication", ["device 0: d0 p0"])
    ('device 2', 'device 0: d0 p0 communication')
    """
    name = names[device] if names else f"device {device}"
    return name if lane == COMPUTE else f"{name} {lane}"


def in_a_sentence(name: str) -> str:
    """Return the `name` of a device for a sentence: parentheses instead of a colon.

    >>> in_a_sentence("device 0: d0 p0"), in_a_sentence("server")
    ('device 0 (d0 p0)', 'server')
    """
    return re.sub(": (.*)", r" (\1)", name)


TICKS, SECONDS = "ticks", "seconds"  # what a clock counts, and what it measures


def ticks(number: float) -> str:
    """Return a number of ticks as text; a fraction that needs 7 digits is not rounded.

    >>> ticks(1 / 3), ticks(Fraction(1, 2)), ticks(Fraction(1, 3))
    ('0.333333', '0.5', '1/3')
    """
    is_short = isinstance(number, Fraction) and Fraction(f"{float(number):.6g}") == number
    return f"{float(number):.6g}" if is_short or isinstance(number, float) else str(number)


def duration(number: float, unit: str) -> str:
    """Return `number` ticks or seconds as text, with their `unit`.

    >>> duration(1, "ticks"), duration(Fraction(1, 2), "ticks"), duration(0.00123456789, "seconds")
    ('1 tick', '0.5 ticks', '0.00123457 seconds')
    """
    return f"{ticks(number)} {unit[:-1] if number == 1 else unit}"


SENT, ARRIVED, RECEIVED, RECEIVER, MESSAGE_WIDTH = 3, 4, 5, 8, 9  # columns of messages, and their number
TIMES = {  # list of a `Record` -> (the width of its rows, the columns that are times)
    "spans": (4, (2, 3)), "messages": (MESSAGE_WIDTH, (SENT, ARRIVED, RECEIVED)), "waits": (4, (1, 2)),
    "blocked": (4, (1, 2)), "asked": (5, (1, 2)), "queued": (3, (1,)), "memory": (3, (1,)),
    "finished": (1, (0,)),
}


class Record:
    """All that has happened in a run. The number of a lane is its index in `lanes`.

    Each list holds its rows end to end: a tuple for each row would cost Python's
    garbage collector time, plain numbers in a long list do not. A message is identified
    by the index at which its row begins.

    Args:
        lanes: (device, name) of each lane, device by device.
        shares: for each device, how many stages share it.
        unit: the unit of all times, "ticks" or "seconds".

    `title`, `names`, `tick_is`, `even` and `stop` are those of the `Trace`.
    """

    def __init__(self, lanes: list[tuple[int, str]], shares: Any, unit: str = TICKS):
        self.unit, self.lanes, self.shares, self.title = unit, lanes, shares, ""
        self.names: list[str] = []
        self.tick_is: OneTick | None = None
        self.even: Callable[[], Any] | None = None
        self.stop: Any = None
        self.spans: list = []     # rows of lane, label, start, end
        # rows of label, source, to, sent, arrived, received, bytes, lane that sent it, lane that received it
        self.messages: list = []
        self.waits: list = []     # rows of lane, start, end, message
        self.blocked: list = []   # rows of lane, start, end, message that it has sent
        self.asked: list = []     # rows of lane, start, end, message that it has sent, lane that asked
        self.queued: list = []    # rows of message, tick when its way was free, the message in front
        self.memory: list = []    # rows of device, tick, {kind: bytes}
        self.finished: list[float | None] = [None] * len(lanes)  # the tick at which each program ended

    @property
    def n_devices(self) -> int:
        """How many devices there are."""
        return 1 + self.lanes[-1][0] if self.lanes else 0

    def sends(
        self, label: object, source: int, to: int, now: float, n_bytes: float, lane: int,
        arrival: float | None = None,
    ) -> int:
        """Record that `lane` sends a message; return the index of its row.

        Args:
            label, source, to, n_bytes: as for `Message`.
            now: the tick.
            lane: the number of the lane that sends.
            arrival: when it arrives, if that is known.
        """
        messages = self.messages
        row = len(messages)
        messages += (label, source, to, now, arrival, None, n_bytes, lane, None)
        return row

    def arrives(self, row: int, tick: float) -> None:
        """Record that the message in this row arrives at `tick`."""
        self.messages[row + ARRIVED] = tick

    def receives(self, row: int, tick: float, lane: int) -> None:
        """Record that `lane` receives the message in this row at `tick`."""
        messages = self.messages
        messages[row + RECEIVED], messages[row + RECEIVER] = tick, lane

    def snapshot(self) -> "Record":
        """Return a copy of this record that does not change when the run goes on."""
        twin = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list):
                setattr(twin, name, value[:])
        return twin

    def with_times(self, change: Callable[[float], float]) -> "Record":
        """Return a record with `change(time)` in place of each time."""
        twin = self.snapshot()
        for name, (width, columns) in TIMES.items():
            flat = getattr(twin, name)
            for column in columns:
                flat[column::width] = [None if time is None else change(time) for time in flat[column::width]]
        return twin


def rows(flat: list, width: int) -> Iterator[tuple]:
    """Return the rows, of `width` items each, that `flat` holds one after another."""
    return zip(*(flat[column::width] for column in range(width)), strict=True)


# What a tick is.

class OneTick(NamedTuple):
    """The work that one tick of a run stands for, so that two runs can be compared.

    Args:
        share: the share of the forward of the whole network, a Fraction: with F = 1, it
            is 1/K for a pipeline of K devices, 1 for a replica on one device, 1/T for T
            shards, as if each layer were split.
        samples: the samples of a micro-batch; their mean where micro-batches are
            ragged, since an action of each takes the same ticks. None for a simulation,
            which has no data.
        F: the ticks of a device's forward, from which the share follows; None if the
            costs state the share, or if `stretched` has multiplied the times.

    >>> from minipipe import Costs, simulate
    >>> from minipipe.schedules import gpipe
    >>> print(simulate(gpipe(4, 8)).tick_is)
    1 tick: the forward of 1/4 of the network for a micro-batch
    >>> print(OneTick(Fraction(1), Fraction(5, 2)))
    1 tick: the forward of the network for 5/2 samples on average
    """

    share: Fraction
    samples: Fraction | int | None = None
    F: Fraction | None = None

    def __str__(self) -> str:
        share, samples = self.share, "a micro-batch"
        if self.samples is not None:
            samples = f"{self.samples} sample{'s' * (self.samples != 1)}"
            samples += " on average" * (Fraction(self.samples).denominator > 1)
        forward = "the forward" if share <= 1 else f"{share} forwards"
        part = "" if share >= 1 else f"{share} of "
        return f"1 tick: {forward} of {part}the network for {samples}"

    @property
    def work(self) -> Fraction:
        """The forwards of the whole network, for a sample or micro-batch, in a tick."""
        return self.share * (1 if self.samples is None else self.samples)


# The items of a trace: spans of work, messages, and spans without work.

class Span(NamedTuple):
    """A lane of device `device` worked on `label` from tick `start` to tick `end`."""

    device: int
    label: object
    start: float
    end: float
    lane: str = COMPUTE


class Message(NamedTuple):
    """`label` went from device `source` to device `to`.

    Args:
        sent, arrived, received: ticks; None if that has not happened yet.
        lane, to_lane: the lanes that have sent and received it; None as above.
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
    """A lane of device `device` did nothing from tick `start` to `end`, for a `reason`:

    "fill"        It waited for its first work.
    "wait"        It waited between two pieces of work.
    "send"        The link was blocking, and its message had not arrived yet.
    "rendezvous"  The other device had not asked for its message yet.
    "drain"       Its program was over, others were not.

    Args:
        message, source: what it waited for, and from which device; for a send or a
            rendezvous, what it had sent, and to which device; for a drain, None.
    """

    device: int
    start: float
    end: float
    reason: str
    message: object = None
    source: int | None = None
    lane: str = COMPUTE


def way_of(idle: Any, names: Sequence[str] = ()) -> str:
    """Return what the awaited message must do, such as 'to arrive at device 1'.

    Args:
        idle: an `Idle` with a source.
        names: what pictures call the devices, or [].
    """
    way = {"send": "to arrive at", "rendezvous": "to be asked for by"}.get(idle.reason, "from")
    if idle.source == idle.device:
        return f"{way} another lane of its own"
    return f"{way} {in_a_sentence(lane_name(idle.source, COMPUTE, names))}"
