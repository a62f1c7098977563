"""Who carries messages: when each sets out, and when it arrives."""

from collections import deque
from math import inf

from .links import FREE, checked_ports, later, links_between, ticks_to_pass


class Message:
    """A message from its send on.

    row: where the record has it.
    arrival: the tick, None as long as nobody can tell.
    is_held: whether it has not set out, since the receiver has not asked for it.
    sender: the lane that waits until the message is asked for, or until its arrival is known; None without
        one.
    """

    __slots__ = ("label", "source", "to", "value", "n_bytes", "row", "arrival", "is_held", "sender")

    def __init__(self, label, source, to, value, n_bytes, row, arrival):
        self.label, self.source, self.to = label, source, to
        self.value, self.n_bytes, self.row, self.arrival = value, n_bytes, row, arrival
        self.sender, self.is_held = None, False


class Carrier:
    """The links and ports of a cluster, and the messages that wait for them.

    A message that passes no port is given its arrival as soon as it sets out: its link is free at a known
    tick, and each link serves in order. A message that passes a port is put into a queue: that of its
    sender's egress, or, if the sender has none, that of its link. The head of a queue starts when all that it
    passes is free; nothing is reserved before.
    """

    def __init__(self, link, ports, n_devices, record):
        self._links = links_between(link, n_devices)
        self._ports = checked_ports(ports, n_devices)
        self._record = record
        self._ways = {}    # {(source, to): `_way` of this pair}
        self._passed = {}  # {link (source, to), or number of a port: (tick when it is free, row of its last)}
        self._queues = {}  # {(source, ) or (source, to): its messages, and since when each of them waits}
        self.all_free = not (self._links or self._ports)  # then a message arrives when it is sent

    def link(self, source, to):
        """The `Link` between two devices."""
        return self._links.get((source, to), FREE)

    def set_out(self, message, now):
        """Start `message`, or put it into the queue of its port. Whether it has an arrival then."""
        passes, _, queue = self._way(message)
        if queue is None:
            self._start(message, now, max(now, self._free_at(passes)))
            return True
        self._queues.setdefault(queue, deque()).append((message, now))
        return False

    def let_through(self, now):
        """Start the heads of all queues whose way is free at tick `now`.

        Returns a list of these messages, and the ticks at which they will have passed.
        """
        started, passed_at = [], set()
        for _, queue in sorted(self._queues.items()):  # ties: by device number
            while queue and self._free_at(self._way(queue[0][0])[0]) <= now:
                message, since = queue.popleft()
                passed_at.add(self._start(message, since, now))
                started.append(message)
        return started, passed_at

    def _way(self, message):
        """(the link and ports that a message occupies, the smallest of their bandwidths, its queue or None).

        A link that lets everything pass at once is not occupied.
        """
        pair = message.source, message.to
        if pair not in self._ways:
            self._ways[pair] = self._find_way(*pair)
        return self._ways[pair]

    def _find_way(self, source, to):
        bandwidth, numbers, has_egress = self.link(source, to).bandwidth, [], False
        for number, port in enumerate(self._ports):
            if source in port.sends or to in port.receives:
                bandwidth = min(bandwidth, port.bandwidth)
                numbers.append(number)
                has_egress |= source in port.sends
        if numbers:
            return ((source, to), *numbers), bandwidth, (source, ) if has_egress else (source, to)
        return ((source, to), ) if bandwidth < inf else (), bandwidth, None

    def _free_at(self, passes):
        """The tick from which on all that a message passes is free."""
        return max((self._passed[what][0] for what in passes if what in self._passed), default=0)

    def _start(self, message, since, begin):
        """Let it pass from tick `begin` on, for which it has waited since tick `since`.

        Returns the tick at which it will have passed.
        """
        passes, bandwidth, _ = self._way(message)
        if begin > since:
            before = [self._passed[what] for what in passes if what in self._passed]
            _, in_front = max(before, key=lambda use: use[0])
            self._record.queued += (message.row, begin, in_front)
        leaves = later(begin, ticks_to_pass(message.n_bytes, bandwidth))
        for what in passes:
            self._passed[what] = leaves, message.row
        message.arrival = later(leaves, self.link(message.source, message.to).latency)
        return leaves
