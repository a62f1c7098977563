"""How fast messages travel over links and through shared ports, and their queues."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import permutations
from math import inf

from typing import TYPE_CHECKING, Any

from ..checks import items_of, real_number, shown, whole_number, whole_numbers

if TYPE_CHECKING:
    from .record import Record


def _checked_bandwidth(value):
    note = " bytes per tick: leave it out for no limit"
    return real_number("bandwidth", value, above=0, note=note, infinite=True, clock=True)


@dataclass(frozen=True)
class Link:
    """The link between each ordered pair of devices, over which messages queue.

    A message of n bytes occupies its link for n / bandwidth ticks, and arrives
    `latency` ticks after that. A device's message to itself needs no link.

    Args:
        latency: ticks, 0 or more.
        bandwidth: bytes per tick, above 0.
        blocking: whether the sender waits until its message has arrived; if not, the
            transfer overlaps with its work.
        rendezvous: whether a message leaves only when the receiver asks for it, and the
            sender waits until then, as with a synchronous send in MPI.
    """

    latency: float = 0
    bandwidth: float = inf
    blocking: bool = False
    rendezvous: bool = False

    def __post_init__(self):
        latency = real_number("latency", self.latency, least=0, note=" ticks", clock=True)
        object.__setattr__(self, "latency", latency)
        object.__setattr__(self, "bandwidth", _checked_bandwidth(self.bandwidth))


FREE = Link()  # every message arrives when it is sent


@dataclass(frozen=True)
class Port:
    """A port that several links share: messages pass one at a time.

    Args:
        bandwidth: bytes per tick, above 0.
        sends: the devices whose outgoing messages pass through this port.
        receives: the devices whose incoming messages pass through it.
        between: g, if it takes only messages between two nodes of g devices; devices
            are numbered node by node.
        within: g, if it takes only messages within a node of g devices.

    A message that passes several ports and a link starts when all of them are free, and
    occupies all of them for as long as the narrowest takes. The messages that leave a
    device through the same ports form one queue, first in, first out. Of several that
    could start in the same tick, the message of the lowest device does.

    >>> nic = Port(16, sends=[0], between=4)                # from device 0 to other nodes
    >>> nic.takes(0, 3), nic.takes(0, 4)
    (False, True)
    >>> bus = Port(16, sends=range(4), receives=range(4))   # four devices on one bus
    """

    bandwidth: float
    sends: Sequence[int] = ()
    receives: Sequence[int] = ()
    between: int | None = None
    within: int | None = None

    def __post_init__(self):
        object.__setattr__(self, "bandwidth", _checked_bandwidth(self.bandwidth))
        for name in ("between", "within"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, whole_number(name, getattr(self, name), 1))
        for name in ("sends", "receives"):
            object.__setattr__(self, name, whole_numbers(name, getattr(self, name), 0))
        if not (self.sends or self.receives):
            raise ValueError(f"{self} is of no device: name those that send or receive through it")
        if self.between is not None and self.within is not None and self.between % self.within == 0:
            raise ValueError(
                f"between={self.between} with within={self.within} takes no message: those within "
                f"{self.within} devices stay within {self.between}: leave one of the two out"
            )

    def takes(self, source: int, to: int) -> bool:
        """Tell whether messages from `source` to `to` pass through this port."""
        if source not in self.sends and to not in self.receives:
            return False
        leaves = self.between is None or source // self.between != to // self.between
        return leaves and (self.within is None or source // self.within == to // self.within)


def ports(
    devices: int, bandwidth: float, between: int | None = None, within: int | None = None
) -> list[Port]:
    """Return an egress and an ingress for each device, as `Cluster` takes them.

    Args:
        devices: the number of devices.
        bandwidth: bytes per tick of each port.
        between, within: the messages that pass them, as for `Port`; all, if left out.

    >>> cluster = ports(8, 450, within=4) + ports(8, 50, between=4)     # two nodes with NVLink and NICs
    >>> [port.bandwidth for port in cluster if port.takes(0, 4)]
    [50, 50]
    """
    found = []
    for r in range(whole_number("devices", devices, 1)):
        found.append(Port(bandwidth, sends=(r,), between=between, within=within))
        found.append(Port(bandwidth, receives=(r,), between=between, within=within))
    return found


def links_between(link: Link | dict[tuple[int, int], Link], devices: int) -> dict[tuple[int, int], Link]:
    """Return {(source, to): Link} for the pairs of devices whose links are not free.

    Args:
        link: one `Link` for all pairs of devices, or a dict {(source, to): Link}.
        devices: the number of devices.

    >>> links_between({(0, 1): Link(latency=3)}, devices=2)
    {(0, 1): Link(latency=3, bandwidth=inf, blocking=False, rendezvous=False)}
    """
    n = whole_number("devices", devices, 0)
    numbers = range(n)
    if isinstance(link, Link):
        link = {} if link == FREE else {(source, to): link for source in numbers for to in numbers}
    if not isinstance(link, dict):
        raise ValueError(f"link={shown(link)} must be a Link, or a dict such as {{(0, 1): Link(latency=1)}}")
    for pair, value in link.items():
        if not (isinstance(pair, tuple) and len(pair) == 2 and all(device in numbers for device in pair)):
            raise ValueError(f"there is no link {pair!r}: write (source, to) with devices 0..{n - 1}")
        if not isinstance(value, Link):
            raise ValueError(f"the link {pair} is {shown(value)}: write for instance Link(latency=1)")
    return {(source, to): value for (source, to), value in link.items() if source != to and value != FREE}


def in_nodes(devices: int, node_size: int, inside: Link, between: Link) -> dict[tuple[int, int], Link]:
    """Return {(source, to): Link} for devices in nodes, numbered node by node.

    Args:
        devices: the number of devices.
        node_size: the number of devices per node.
        inside: the `Link` between two devices of one node.
        between: the `Link` between devices of two nodes.

    >>> links = in_nodes(4, 2, Link(latency=1), Link(latency=10))
    >>> links[0, 1].latency, links[1, 2].latency
    (1, 10)
    """
    node_size, devices = whole_number("node_size", node_size, 1), whole_number("devices", devices, 1)
    pairs = permutations(range(devices), 2)
    return {(r, s): inside if r // node_size == s // node_size else between for r, s in pairs}


def checked_ports(ports: Port | Sequence[Port], devices: int) -> list[Port]:
    """Return `ports` as a list; raise `ValueError` unless they fit the `devices`."""
    devices = whole_number("devices", devices, 0)
    found = items_of(ports)
    found = [ports] if found is None else found
    for port in found:
        if not isinstance(port, Port):
            wanted = "a list of Port(bandwidth, sends=[...], receives=[...])"
            raise ValueError(f"ports has {shown(port)}: pass {wanted}")
        for device in (*port.sends, *port.receives):
            if device not in range(devices):
                raise ValueError(f"{port} is of device {device}: devices are 0..{devices - 1}")
    return found


# The carrier of messages: when each leaves, and when it arrives.

@dataclass(slots=True, eq=False)
class MessageInFlight:
    """A message that has been sent and not received."""

    label: Any
    source: int
    to: int
    value: Any
    n_bytes: float
    row: int  # the index of its row in the record
    arrival: Any  # the tick; None while it is unknown
    sender: Any = None  # the lane that waits until the message is asked for, or has arrived
    is_held: bool = False  # whether it waits until its receiver asks for it


class Carrier:
    """The links and ports of a cluster, and the messages that wait for them.

    A message that passes no port gets its arrival as soon as it leaves: each link
    serves in order, and the tick when it is free is known. A message that passes a port
    goes into a queue, whose head starts when its link and all its ports are free. It
    reserves none of them before, so a message that needs only one of them may overtake
    it.
    """

    def __init__(self, link: Link | dict, ports: Port | Sequence[Port], devices: int, record: Record):
        self._links = links_between(link, devices)
        self._ports = checked_ports(ports, devices)
        self._record = record
        self._ways: dict = {}    # {(source, to): what `_way` returns for it}
        self._passed: dict = {}  # {link (source, to), or number of a port: (tick when free, row of its last)}
        self._queues: dict = {}  # {queue, see `_way`: its messages, and since when each of them waits}
        self.all_free = not (self._links or self._ports)  # then a message arrives when it is sent

    def link(self, source: int, to: int) -> Link:
        """Return the `Link` from device `source` to device `to`."""
        return self._links.get((source, to), FREE)

    def set_out(self, message: MessageInFlight, now: float) -> bool:
        """Start or queue `message` at `now`; return whether its arrival is known."""
        passes, _, queue = self._way(message)
        if queue is None:
            self._start(message, now, max(now, self._free_at(passes)))
            return True
        self._queues.setdefault(queue, deque()).append((message, now))
        return False

    def let_through(self, now: float) -> tuple[list[MessageInFlight], set[float]]:
        """Start the heads of all queues whose link and ports are free at tick `now`.

        Return these messages, and the ticks at which they will have passed.
        """
        started, passed_at = [], set()
        # Of several queues that could start in this tick, the lowest device comes first: one rule for ties,
        # so that a run does not depend on the order in which programs were resumed.
        for _, queue in sorted(self._queues.items()):
            while queue and self._free_at(self._way(queue[0][0])[0]) <= now:
                message, since = queue.popleft()
                passed_at.add(self._start(message, since, now))
                started.append(message)
        return started, passed_at

    def _way(self, message):
        """Return what a message passes, the smallest bandwidth there, and its queue.

        It passes the link (source, to) and the ports, given by number; or nothing, (),
        over a link of unlimited bandwidth without ports. The queue is (source, the
        ports by which it leaves), or (source, (), to) if it only enters by ports; None
        without a port.
        """
        source, to = pair = message.source, message.to
        if pair not in self._ways:
            bandwidth = self.link(source, to).bandwidth
            ports = {number: port for number, port in enumerate(self._ports) if port.takes(source, to)}
            egress = tuple(number for number, port in ports.items() if source in port.sends)
            passes = (pair, *ports) if ports or bandwidth < inf else ()
            queue = None if not ports else (source, egress) if egress else (source, (), to)
            bandwidth = min([bandwidth, *(port.bandwidth for port in ports.values())])
            self._ways[pair] = passes, bandwidth, queue
        return self._ways[pair]

    def _free_at(self, passes):
        """Return the tick from which all that a message passes is free."""
        return max((self._passed[what][0] for what in passes if what in self._passed), default=0)

    def _start(self, message, since, begin):
        """Let a message pass from tick `begin`; return when it has passed."""
        passes, bandwidth, _ = self._way(message)
        if begin > since:
            before = [self._passed[what] for what in passes if what in self._passed]
            _, in_front = max(before, key=lambda use: use[0])
            self._record.queued += (message.row, begin, in_front)
        # Never earlier than now: in Python, the `Fraction` 1/7 plus 0.0 is a float, a little less than 1/7.
        leaves = max(begin, begin + (0 if bandwidth == inf else message.n_bytes / bandwidth))
        for what in passes:
            self._passed[what] = leaves, message.row
        message.arrival = max(leaves, leaves + self.link(message.source, message.to).latency)
        return leaves
