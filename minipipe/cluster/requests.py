"""What a program can ask of the hardware, and how fast a link is.

A program is a generator. It yields a request and is resumed with the answer when the clock has reached it:

    def program():
        A_prev = yield Receive("F0", source=0)
        A = yield Compute("F0", stage.forward, 0, A_prev)
        yield Send("F0", A, to=2)
"""

import math
from dataclasses import dataclass


class Compute:
    """Work of this device, called `label`; the answer is `function(*args)`, or None without a function."""

    __slots__ = ("label", "function", "args")

    def __init__(self, label, function=None, *args):
        self.label, self.function, self.args = label, function, args


class Send:
    """Hand `value` to the device `to` under the name `label`. The sender goes on at once, unless the link is blocking.

    The receiver gets a copy, made now: the sender may overwrite its arrays afterwards. n_bytes: the size of a message
    whose value is None, in a simulation; other messages have the size of their arrays.
    """

    __slots__ = ("label", "value", "to", "n_bytes")

    def __init__(self, label, value, to, n_bytes=0):
        self.label, self.value, self.to, self.n_bytes = label, value, to, n_bytes


class Receive:
    """Wait for the message `label` from the device `source`; the answer is its value, which is the receiver's own."""

    __slots__ = ("label", "source")

    def __init__(self, label, source):
        self.label, self.source = label, source


@dataclass(frozen=True)
class Link:
    """A message of n bytes occupies its link for n / bandwidth ticks and arrives `latency` ticks after that.

    latency: ticks, 0 or more. bandwidth: bytes per tick, above 0. There is one link for each ordered pair of
    devices; its messages queue up behind each other. A device's message to itself needs no link. blocking: whether
    the sender does nothing else until its message has arrived; if not, the transfer overlaps with its work.

    >>> Link(latency=1, bandwidth=100).ticks_occupied(250)
    2.5
    """

    latency: float = 0
    bandwidth: float = math.inf
    blocking: bool = False

    def __post_init__(self):
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"latency={self.latency} must be finite and at least 0 ticks")
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth={self.bandwidth} must be above 0 bytes per tick")

    def ticks_occupied(self, n_bytes):
        return 0 if self.bandwidth == math.inf else n_bytes / self.bandwidth


def links_between(link, n_devices):
    """{(source, to): Link} from one `Link` for all pairs of devices, or a dict with one for each pair that is not free.

    >>> links_between({(0, 1): Link(latency=3)}, n_devices=2)[1, 0].latency
    0
    """
    devices = range(n_devices)
    if isinstance(link, Link):
        return {(source, to): link for source in devices for to in devices}
    if not isinstance(link, dict):
        raise ValueError(f"link={link!r} must be a Link, or a dict such as {{(0, 1): Link(latency=1)}}")
    for pair, value in link.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(device in devices for device in pair)):
            raise ValueError(f"there is no link {pair!r}: write (source, to) with devices 0..{n_devices - 1}")
        if not isinstance(value, Link):
            raise ValueError(f"the link {pair} is {value!r}: write for instance Link(latency=1)")
    return {(source, to): link.get((source, to), Link()) for source in devices for to in devices}
