"""How fast messages travel."""

import math
from dataclasses import dataclass
from numbers import Real


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
        if not (isinstance(self.latency, Real) and 0 <= self.latency < math.inf):
            raise ValueError(f"latency={self.latency} must be finite and at least 0 ticks")
        if not (isinstance(self.bandwidth, Real) and self.bandwidth > 0):
            raise ValueError(f"bandwidth={self.bandwidth} must be above 0 bytes per tick: leave it out for no limit")

    def ticks_occupied(self, n_bytes):
        """How long a message of `n_bytes` keeps the link from the next one."""
        return 0 if self.bandwidth == math.inf else n_bytes / self.bandwidth


class Links:
    """The links between any two devices, and when each is free again.

    link: one `Link` for all pairs of devices, or a dict {(source, to): Link} of those that are not free.

    >>> links = Links({(0, 1): Link(latency=3, bandwidth=10)}, n_devices=2)
    >>> [links.transfer(source, to, now=0, n_bytes=20) for source, to in ((0, 1), (0, 1), (1, 0))]
    [(0, 5.0), (2.0, 7.0), (0, 0)]
    """

    def __init__(self, link, n_devices):
        devices = range(n_devices)
        if isinstance(link, Link):
            link = {(source, to): link for source in devices for to in devices}
        if not isinstance(link, dict):
            raise ValueError(f"link={link!r} must be a Link, or a dict such as {{(0, 1): Link(latency=1)}}")
        for pair, value in link.items():
            if not (isinstance(pair, tuple) and len(pair) == 2 and all(device in devices for device in pair)):
                raise ValueError(f"there is no link {pair!r}: write (source, to) with devices 0..{n_devices - 1}")
            if not isinstance(value, Link):
                raise ValueError(f"the link {pair} is {value!r}: write for instance Link(latency=1)")
        self._slow = {(source, to): value for (source, to), value in link.items() if source != to and value != Link()}
        self._free_at = {}

    def transfer(self, source, to, now, n_bytes):
        """(begin, arrival) of a message of `n_bytes` that is sent now: it begins after now if it has to queue."""
        link = self._slow.get((source, to))
        if link is None:
            return now, now
        if link.bandwidth == math.inf:
            return now, _later(now, link.latency)
        begin = max(now, self._free_at.get((source, to), 0))
        self._free_at[source, to] = leaves = _later(begin, link.ticks_occupied(n_bytes))
        return begin, _later(leaves, link.latency)

    def blocks(self, source, to):
        """Whether the sender waits until its message has arrived."""
        return (source, to) in self._slow and self._slow[source, to].blocking


def _later(now, ticks):
    """now + ticks, but never before now: 1/7 as a `Fraction`, plus 0.0, is a float that is a little less than 1/7."""
    return max(now, now + ticks)
