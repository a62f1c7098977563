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
    """Hand `value` to the device `to` under the name `label`. The sender goes on at once.

    The receiver gets a copy, made now: the sender may overwrite its arrays afterwards.
    """

    __slots__ = ("label", "value", "to")

    def __init__(self, label, value, to):
        self.label, self.value, self.to = label, value, to


class Receive:
    """Wait for the message `label` from the device `source`; the answer is its value, which is the receiver's own."""

    __slots__ = ("label", "source")

    def __init__(self, label, source):
        self.label, self.source = label, source


@dataclass(frozen=True)
class Link:
    """A message of n bytes occupies its link for n / bandwidth ticks and arrives `latency` ticks after that.

    latency: ticks, 0 or more. bandwidth: bytes per tick, above 0. There is one link for each ordered pair of
    devices; its messages queue up behind each other. A device's message to itself needs no link.

    >>> Link(latency=1, bandwidth=100).ticks_occupied(250)
    2.5
    """

    latency: float = 0
    bandwidth: float = math.inf

    def __post_init__(self):
        if not 0 <= self.latency < math.inf:
            raise ValueError(f"latency={self.latency} must be finite and at least 0 ticks")
        if not self.bandwidth > 0:
            raise ValueError(f"bandwidth={self.bandwidth} must be above 0 bytes per tick")

    def ticks_occupied(self, n_bytes):
        return 0 if self.bandwidth == math.inf else n_bytes / self.bandwidth
