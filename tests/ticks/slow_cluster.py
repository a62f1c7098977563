"""The rules of the cluster once more, in the slowest and plainest way, for the fast one to be compared with.

Nothing is foreseen here: there is no agenda, and nobody knows when a message will arrive. At each instant all
lanes, queues and messages are looked at, one after another, until nothing more can happen; then the clock
moves to the next instant at which something ends.
"""

from dataclasses import dataclass, field

from minipipe.cluster import ANY, Compute, Link, Receive, Send


@dataclass
class Lane:
    """A lane stands still until tick `ready`; or, if that is None, until what it waits for has happened."""

    device: int
    name: str
    program: object
    ready: object = 0
    answer: object = None
    starts: Compute | None = None     # a Compute that it has come to
    wants: Receive | None = None      # a message that it waits for
    over: object = None               # the tick at which its program ended


@dataclass
class Message:
    """A message is held (until it is asked for), then it queues, then it passes until `leaves`, and is there
    at `arrives`."""

    label: object
    source: int
    to: int
    n_bytes: float
    sent: object
    sender: Lane
    held: bool = False
    leaves: object = None
    arrives: object = None
    received: object = None
    receiver: object = None

    @property
    def row(self):
        times = self.sent, self.arrives, self.received
        lanes = self.sender.name, self.receiver and self.receiver.name
        return self.label, self.source, self.to, *times, self.n_bytes, *lanes


@dataclass
class SlowCluster:
    """Runs `programs`; afterwards, `spans`, `messages` and `stuck` say what has happened."""

    programs: list
    link: object = Link()
    ports: list = ()
    now: object = 0
    spans: list = field(default_factory=list)      # (device, label, start, end, lane)
    messages: list = field(default_factory=list)
    queues: dict = field(default_factory=dict)
    stuck: bool = False

    def run(self):
        self.lanes = [
            Lane(device, name, program)
            for device, lanes in enumerate(self.programs) for name, program in lanes.items()
        ]
        while any(lane.over is None for lane in self.lanes):
            while self.something_happens():
                pass
            ends = [lane.ready for lane in self.lanes if lane.ready is not None and lane.over is None]
            for message in self.messages:
                ends += [tick for tick in (message.leaves, message.arrives) if tick is not None]
            ends = [tick for tick in ends if tick > self.now]
            self.stuck = not ends and any(lane.over is None for lane in self.lanes)
            if not ends:
                break
            self.now = min(ends)
        return self

    def something_happens(self):
        """The first thing that can happen now does; whether there was one."""
        for lane in self.lanes:
            if lane.over is None and self.can_go_on(lane):
                self.go_on(lane)
                return True
        for lane in self.lanes:
            if lane.starts is not None:
                lane.ready = self.now + lane.starts.ticks
                self.spans.append((lane.device, lane.starts.label, self.now, lane.ready, lane.name))
                lane.starts = None
                return True
        if self.some_pass():
            return True
        choosing = [lane for lane in self.lanes if lane.wants is not None and lane.wants.source is ANY]
        return any(self.choose(lane) for lane in choosing)

    def can_go_on(self, lane):
        if lane.wants is not None and lane.wants.source is not ANY:
            return self.has_come(lane) is not None
        return lane.ready is not None and lane.ready <= self.now

    def has_come(self, lane):
        for message in self.unreceived(lane):
            if message.arrives is not None and message.arrives <= self.now:
                return message
        return None

    def unreceived(self, lane):
        """The messages that the lane waits for, as far as there are any."""
        source, label = lane.wants.source, lane.wants.label
        return [
            message for message in self.messages
            if message.received is None and (message.to, message.label) == (lane.device, label)
            and source in (ANY, message.source)
        ]

    def go_on(self, lane):
        if lane.wants is not None:
            self.hand_over(lane, self.has_come(lane))
        lane.ready = None
        while True:
            try:
                request = lane.program.send(lane.answer)
            except StopIteration:
                lane.over = self.now
                return
            lane.answer = None
            if type(request) is Compute:
                lane.starts = request
                return
            if type(request) is Send:
                if not self.send(lane, request):
                    return
            else:
                lane.wants = request
                if request.source is ANY:
                    return
                for message in self.unreceived(lane):
                    if message.held:
                        self.ask(message)
                message = self.has_come(lane)
                if message is None:
                    return
                self.hand_over(lane, message)

    def hand_over(self, lane, message):
        message.received, message.receiver = self.now, lane
        lane.answer = (message.source, None) if lane.wants.source is ANY else None
        lane.wants = None

    def send(self, lane, request):
        """Whether the lane goes on at once."""
        message = Message(request.label, lane.device, request.to, request.n_bytes, self.now, lane)
        self.messages.append(message)
        link = self.link_of(message)
        asked = any(
            other.wants is not None and other.device == request.to
            and (other.wants.label, other.wants.source) == (request.label, lane.device)
            for other in self.lanes
        )
        if link.rendezvous and not asked:
            message.held = True
            return False
        return self.set_out(message)

    def ask(self, message):
        message.held = False
        if self.set_out(message):
            message.sender.ready = self.now

    def set_out(self, message):
        """Whether its sender goes on at once."""
        link, ports = self.link_of(message), self.ports_of(message)
        if ports:
            pair = message.source, message.to
            egress = any(message.source in port.sends for port in ports)
            self.queues.setdefault((message.source, -1) if egress else pair, []).append(message)
            return not link.blocking
        self.pass_from(max([self.now, *self.taken(message)]), message)
        if link.blocking and message.arrives > self.now:
            message.sender.ready = message.arrives
            return False
        return True

    def some_pass(self):
        """All heads of queues that can go do, the lower device first."""
        any_did, one_did = False, True
        while one_did:
            one_did = False
            for _, queue in sorted(self.queues.items(), key=lambda item: item[0]):
                if queue and all(tick <= self.now for tick in self.taken(queue[0])):
                    message = queue.pop(0)
                    self.pass_from(self.now, message)
                    if self.link_of(message).blocking:
                        message.sender.ready = message.arrives
                    any_did = one_did = True
                    break
        return any_did

    def taken(self, message):
        """Until when its link and its ports are taken by others."""
        for other in self.messages:
            if other.leaves is not None:
                same_link = (other.source, other.to) == (message.source, message.to)
                mine = [id(port) for port in self.ports_of(message)]
                same_port = any(id(port) in mine for port in self.ports_of(other))
                if same_link or same_port:
                    yield other.leaves

    def pass_from(self, begin, message):
        link = self.link_of(message)
        bandwidth = min([link.bandwidth, *(port.bandwidth for port in self.ports_of(message))])
        message.leaves = begin + (0 if bandwidth == float("inf") else message.n_bytes / bandwidth)
        message.arrives = message.leaves + link.latency

    def choose(self, lane):
        """Whether the lane got the earliest message, or has asked for the one that was sent first."""
        messages = self.unreceived(lane)
        come = [m for m in messages if m.arrives is not None and m.arrives <= self.now]
        if come:
            self.hand_over(lane, min(come, key=lambda message: (message.arrives, message.source)))
            lane.ready = self.now
            return True
        if messages and all(message.held for message in messages):
            self.ask(min(messages, key=lambda message: (message.sent, message.source)))
            return True
        return False

    def link_of(self, message):
        if message.source == message.to:
            return Link()
        if isinstance(self.link, Link):
            return self.link
        return self.link.get((message.source, message.to), Link())

    def ports_of(self, message):
        if message.source == message.to:
            return []
        return [port for port in self.ports if message.source in port.sends or message.to in port.receives]
