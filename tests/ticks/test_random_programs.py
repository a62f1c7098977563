"""The engine against random programs: it does what a slow, plain one does, and can explain all of it.

`SlowCluster` has the rules of the cluster once more, in the plainest way. It foresees nothing: there is no
agenda, and no message knows when it will arrive. At each instant it looks at all lanes, queues and messages,
one after another, until nothing more can happen; then the clock moves to the next instant at which something
ends.
"""

from dataclasses import dataclass, field
from fractions import Fraction

from hypothesis import given, settings, strategies as st
from ticks.programs import blame_at, bytes_of, check_path, settings_of_runs

from minipipe.cluster import ANY, Compute, DeadlockError, Link, Receive, Send, Span


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
            egress = [place for place, port in enumerate(self.ports)
                      if port in ports and message.source in port.sends]
            way = (-1, *egress) if egress else (message.to,)
            self.queues.setdefault((message.source, way), []).append(message)
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
        return [
            port for port in self.ports
            if (message.source in port.sends or message.to in port.receives)
            and (port.between is None or len(nodes_of(message, port.between)) == 2)
            and (port.within is None or len(nodes_of(message, port.within)) == 1)
        ]


def nodes_of(message, n_devices):
    """The nodes of so many devices that a message meets: one or two."""
    return {message.source // n_devices, message.to // n_devices}


def ended(setting, kept=None):
    """The cluster after its run, and whether it came to a deadlock."""
    cluster = setting.cluster(kept)
    try:
        cluster.run()
    except DeadlockError:
        return cluster, True
    return cluster, False


@settings(max_examples=60)
@given(settings_of_runs())
def test_the_cluster_does_what_a_slow_and_plain_one_does(setting):
    """The same work at the same ticks, the same messages at the same ticks, and the same deadlocks."""
    cluster, stuck = ended(setting)
    slow = SlowCluster(setting.generators(), setting.link, setting.ports).run()
    trace = cluster.trace
    assert stuck == slow.stuck
    assert sorted(trace.spans) == sorted(slow.spans)
    sent = [message.row for message in slow.messages if message.source != message.to]
    assert sorted(trace.messages) == sorted(sent)


@settings(max_examples=30)
@given(settings_of_runs(most_requests=20), st.booleans())
def test_ticking_leaves_the_trace_of_running(setting, with_memory):
    """Work, messages, reasons, queues and memory; and a second run is the same as the first."""

    def kept():
        return [[] for _ in setting.programs] if with_memory else None

    cluster, stuck = ended(setting, kept())
    assert ended(setting, kept())[0].trace == cluster.trace
    stepped, stopped = setting.cluster(kept()), False
    try:
        while stepped.tick():
            assert all(span.start < stepped.now for span in stepped.trace.spans)
            assert stepped.now < 1000
    except DeadlockError as error:
        stopped = True
        assert str(error) == str(cluster.failure)
    assert stopped == stuck and stepped.trace == cluster.trace
    assert stepped.trace.asked == cluster.trace.asked and stepped.trace.awaited == cluster.trace.awaited


@settings(max_examples=40)
@given(settings_of_runs())
def test_each_instant_of_each_lane_is_explained(setting):
    """By work, or by an idle span that parts tile; and from the beginning to the end goes a critical path."""
    cluster, stuck = ended(setting)
    trace = cluster.trace
    path = trace.critical_path()
    if stuck:
        return
    check_lanes(trace)
    check_parts(trace, trace.explain())
    check_path(trace, path)


def check_lanes(trace):
    """Work and idle spans follow each other without a gap."""
    for lane in trace.lanes:
        spans = [(span.start, span.end) for span in trace.spans_of(*lane)]
        idle = [(idle.start, idle.end) for idle in trace.idle if (idle.device, idle.lane) == lane]
        assert all(start < end for start, end in idle)
        edges = sorted(spans + idle)
        assert [0, *(end for _, end in edges)] == [*(start for start, _ in edges), trace.makespan]


def check_parts(trace, explanation):
    """So do the parts of an idle span, each with what the definitions blame."""
    assert list(explanation.parts) == trace.idle
    for idle, parts in explanation.parts.items():
        assert [idle.start, *(part.end for part in parts)] == [*(part.start for part in parts), idle.end]
        for part in parts:
            if part.cause != "drain":
                assert part.blame == blame_at(trace, idle, (part.start + part.end) / 2)
    str(explanation)


@settings(max_examples=80)
@given(settings_of_runs(any_source=False, with_ports=False, most_lanes=1, most_requests=9), st.data())
def test_longer_work_on_the_critical_path_makes_the_run_longer(setting, data):
    cluster, stuck = ended(setting)
    steps = [step for step in cluster.trace.critical_path() if type(step.what) is Span]
    if stuck or not steps:
        return
    label = data.draw(st.sampled_from([step.what.label for step in steps]))
    for lanes in setting.programs:
        for request in lanes["compute"]:
            if request.label == label:
                request.ticks += Fraction(1, 64)
    assert ended(setting)[0].trace.makespan == cluster.trace.makespan + Fraction(1, 64)


@settings(max_examples=30)
@given(settings_of_runs(most_requests=20))
def test_memory_is_the_kept_arrays_and_the_waiting_messages(setting):
    """Each Compute keeps an array from its start on; a message counts from its arrival to its receipt."""
    kept = [[] for _ in setting.programs]
    trace = ended(setting, kept)[0].trace
    for device in range(trace.n_devices):
        for tick, held in trace.ledger(device):
            spans = [span for span in trace.spans_of(device) if span.start <= tick]
            waiting = [
                message for message in trace._message_at.values()
                if message.to == device and message.arrived is not None and message.arrived <= tick
                and (message.received is None or tick < message.received)
            ]
            assert held.get("kept", 0) == sum(bytes_of(span.label) for span in spans)
            assert held.get("messages", 0) == sum(message.n_bytes for message in waiting)
