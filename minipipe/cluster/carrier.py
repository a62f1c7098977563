"""Who carries messages: when each sets out, and when it arrives."""

from collections import deque

from .links import Link, checked_ports, later, links_between, ticks_to_pass


class Message:
    """A message from its send on.

    row: where the record has it.
    arrival: the tick, None as long as nobody can tell.
    sender: the lane that waits until the receiver asks for the message, or until it has arrived; None if nobody does.
    """

    __slots__ = ("label", "source", "to", "value", "n_bytes", "row", "arrival", "sender")

    def __init__(self, label, source, to, value, n_bytes, row):
        self.label, self.source, self.to, self.value, self.n_bytes, self.row = label, source, to, value, n_bytes, row
        self.arrival = self.sender = None

    @property
    def is_held(self):
        """Whether it has not set out, since the receiver has not asked for it."""
        return self.sender is not None and self.sender.waits_for is not None


class Carrier:
    """The links and ports of a cluster, and the messages that wait for them.

    A message that passes no port is given its arrival as soon as it sets out: its link is free at a known tick, and each link
    serves in order. A message that passes a port is put into a queue: that of its sender's egress, or, if the sender has none,
    that of its link. The head of a queue starts when all that it passes is free; nothing is reserved before.
    """

    def __init__(self, link, ports, n_devices, record):
        self._links = links_between(link, n_devices)
        self._ports = checked_ports(ports, n_devices)
        self._record = record
        self._occupied = {}  # link (source, to) or number of a port -> (tick at which it is free, row of its last message)
        self._queues = {}    # (source, ) or (source, to) -> its messages
        self._all_free = not (self._links or self._ports)

    def is_free(self, source, to):
        """Whether a message arrives when it is sent."""
        return self._all_free or source == to

    def link(self, source, to):
        """The `Link` between two devices."""
        return self._links.get((source, to), FREE)

    def set_out(self, message, now):
        """Start `message`, or put it into the queue of its port. Whether it has an arrival then."""
        source, to = message.source, message.to
        ports = self._ports_between(source, to) if self._ports else ()
        if ports:
            has_egress = any(source in self._ports[number].sends for number in ports)
            self._queues.setdefault((source,) if has_egress else (source, to), deque()).append((message, now))
            return False
        link = self.link(source, to)
        bandwidth, passed = link.bandwidth, ((source, to),) if link.bandwidth < FREE.bandwidth else ()
        self._start(message, now, max(now, self._free_at(passed)), passed, bandwidth)
        return True

    def let_through(self, now):
        """Start all heads of queues whose way is free at tick `now`: a list of them, and the ticks at which they have passed."""
        started, passed_at = [], set()
        while (queue := self._queue_that_can_go_on(now)) is not None:
            message, since = queue.popleft()
            passed_at.add(self._start(message, since, now, *self._way(message)))
            started.append(message)
        return started, passed_at

    def _queue_that_can_go_on(self, now):
        """The first by device number whose head finds its way free; None if there is none."""
        for _, queue in sorted(self._queues.items()):
            if queue and self._free_at(self._way(queue[0][0])[0]) <= now:
                return queue
        return None

    def _way(self, message):
        """(the link and ports that a message occupies, the smallest of their bandwidths)"""
        pair = message.source, message.to
        ports = self._ports_between(*pair)
        bandwidth = min(self.link(*pair).bandwidth, *(self._ports[number].bandwidth for number in ports))
        return (pair, *ports), bandwidth

    def _ports_between(self, source, to):
        """The numbers of the ports that a message passes."""
        return [number for number, port in enumerate(self._ports) if source in port.sends or to in port.receives]

    def _free_at(self, passed):
        return max((self._occupied[resource][0] for resource in passed if resource in self._occupied), default=0)

    def _start(self, message, since, begin, passed, bandwidth):
        """Let it pass from tick `begin` on, for which it has waited since tick `since`; returns the tick at which it has passed."""
        if begin > since:
            in_front = max((self._occupied[resource] for resource in passed if resource in self._occupied), key=lambda use: use[0])
            self._record.queued += (message.row, begin, in_front[1])
        leaves = later(begin, ticks_to_pass(message.n_bytes, bandwidth))
        for resource in passed:
            self._occupied[resource] = leaves, message.row
        message.arrival = later(leaves, self.link(message.source, message.to).latency)
        return leaves


FREE = Link()
