"""Programs for the engine to be tried on: a few whose devices do more than compute, others at random."""

from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from hypothesis import strategies as st

import minipipe as mp
from minipipe.cluster import ANY, COMPUTE, Cluster, Compute, Label, Link, Port, Receive, Send, Span, ports
from minipipe.cluster.record import Record
from minipipe.order import Action

COMMUNICATION = "communication"


def copies_that_add_their_gradients(ticks_of_A=1):
    """A `Trace` of three copies of a network of two stages, each copy on a device of its own.

    Device r computes micro-batch r, the later ones more slowly. As soon as a backward is done, the lane
    beside exchanges the gradients of its stage with the other devices, and adds them up in `ticks_of_A`.
    """
    programs = [{COMPUTE: compute(r), COMMUNICATION: communicate(r, 3, ticks_of_A)} for r in range(3)]
    return Cluster(programs, link=Link(latency=1)).run()


def compute(r):
    for kind, stage in (("F", 0), ("F", 1), ("B", 1), ("B", 0)):
        yield Compute(Action(kind, stage, r), ticks=1 + r if stage else 2)
        if kind == "B":
            yield Send(f"{stage}A{r} begins", None, to=r)
    for stage in (1, 0):
        yield Receive(f"{stage}A{r} is over", source=r)
        yield Compute(Action("U", stage, r), ticks=0)


def communicate(r, n_devices, ticks_of_A):
    for stage in (1, 0):
        yield Receive(f"{stage}A{r} begins", source=r)
        others = [(r + distance) % n_devices for distance in range(1, n_devices)]
        for other in others:
            yield Send(f"gradient of stage {stage}", None, to=other)
        for other in others:
            yield Receive(f"gradient of stage {stage}", source=other)
        yield Compute(Action("A", stage, r), ticks=ticks_of_A)
        yield Send(f"{stage}A{r} is over", None, to=r)


def ring(n_devices=4):
    """A `Trace` of a ring all-reduce on slow links: to add a chunk takes a tick, to store one takes none."""
    return Cluster([add_around(r, n_devices) for r in range(n_devices)], link=Link(latency=2)).run()


def add_around(r, n_devices):
    after, before = (r + 1) % n_devices, (r - 1) % n_devices
    for kind, first, ticks in (("add", r, 1), ("copy", r + 1, 0)):
        for step in range(n_devices - 1):
            sent, got = (first - step) % n_devices, (first - step - 1) % n_devices
            yield Send(f"{kind} {sent}", None, to=after)
            yield Receive(f"{kind} {got}", source=before)
            yield Compute(Label(f"{kind} {got}", kind), ticks=ticks)


def with_all_reduces(trace):
    """A `Trace` of the same work, and of an `A` of one tick for each stage of a device, in a lane beside."""
    last = {}  # {(device, stage): its last micro-batch}
    for span in trace.spans:
        place = span.device, span.label.stage
        last[place] = max(last.get(place, 0), span.label.microbatch)
    rows = [(span.device, COMPUTE, span.label, span.start, span.end) for span in trace.spans]
    for place, ((device, stage), i) in enumerate(sorted(last.items())):
        start = trace.makespan + place
        rows.append((device, COMMUNICATION, Action("A", stage, i), start, start + 1))
    return trace_of_lanes(*rows)


def trace_of_lanes(*spans):
    """A finished `Trace` of rows of device, lane, label, start, end, in which nothing was sent."""
    lanes = sorted({(device, lane) for device, lane, *_ in spans})
    record = Record(lanes, [1] * (1 + max(device for device, _ in lanes)))
    for device, lane, *span in spans:
        record.spans += (lanes.index((device, lane)), *span)
        record.finished[lanes.index((device, lane))] = span[-1]
    return mp.Trace(record)


# Programs and hardware drawn at random

TICKS = st.sampled_from([Fraction(tick, 2) for tick in (0, 0, 1, 2, 3, 4, 10)])
SIZES = st.sampled_from([0, 1, 2, 3, 8])
LINKS = st.builds(
    Link,
    latency=TICKS,
    bandwidth=st.sampled_from([float("inf"), Fraction(1), Fraction(2), Fraction(1, 2)]),
    blocking=st.booleans(),
    rendezvous=st.booleans(),
)


@dataclass
class Setting:
    """programs: for each device {lane: its requests}; link and ports as for `Cluster`."""

    programs: list
    link: object
    ports: list

    def generators(self, kept=None):
        """The programs, ready to run.

        kept: for each device the list to which each Compute adds an array of its bytes.
        """

        def run(device, requests):
            for request in requests:
                if kept is not None and type(request) is Compute:
                    args = kept[device], bytes_of(request.label)
                    request = Compute(request.label, keep, *args, ticks=request.ticks)
                yield request

        return [
            {name: run(device, requests) for name, requests in lanes.items()}
            for device, lanes in enumerate(self.programs)
        ]

    def cluster(self, kept=None):
        holdings = None if kept is None else [lambda held=held: {"kept": held} for held in kept]
        return Cluster(self.generators(kept), link=self.link, ports=self.ports, holdings=holdings)

    def __repr__(self):
        lines = [
            f"{device} {name}: " + "; ".join(map(words, requests))
            for device, lanes in enumerate(self.programs) for name, requests in lanes.items()
        ]
        return "\n".join(["", *lines, f"link={self.link}", f"ports={self.ports}"])


def words(request):
    names = [name for name in ("label", "to", "source", "n_bytes", "ticks") if hasattr(request, name)]
    return f"{type(request).__name__}({', '.join(f'{name}={getattr(request, name)}' for name in names)})"


def keep(kept, n_bytes):
    kept.append(np.zeros(n_bytes, np.uint8))


def bytes_of(label):
    """The bytes that the Compute of this label keeps in a run with memory."""
    return 1 + int(label[1:]) % 5


@st.composite
def ports_of(draw, n_devices):
    """None; one in and one out for each device, or for some; or a few that several share, such as a bus.

    Each may be for messages between nodes of 2 devices alone, or within them.
    """
    devices = range(n_devices)
    some = st.lists(st.sampled_from(devices), unique=True)
    bandwidth = st.sampled_from([Fraction(1), Fraction(2), Fraction(4), Fraction(1, 3)])
    which = st.sampled_from([{}, {"between": 2}, {"within": 2}])
    kind = draw(st.sampled_from(["none", "all", "nodes", "some", "shared"]))
    if kind == "all":
        return ports(n_devices, draw(bandwidth))
    if kind == "nodes":
        return ports(n_devices, draw(bandwidth), within=2) + ports(n_devices, draw(bandwidth), between=2)
    if kind == "some":
        ways_out = [Port(draw(bandwidth), sends=[r], **draw(which)) for r in draw(some)]
        return ways_out + [Port(draw(bandwidth), receives=[r], **draw(which)) for r in draw(some)]
    if kind == "shared":
        found = [(draw(bandwidth), draw(some), draw(some)) for _ in range(draw(st.integers(1, 3)))]
        return [
            Port(width, sends, receives, **draw(which)) for width, sends, receives in found
            if sends or receives
        ]
    return []


@st.composite
def settings_of_runs(draw, most_lanes=2, any_source=True, with_ports=True, most_requests=12):
    """A `Setting`. Some come to a deadlock: by rendezvous, or since receives have changed places."""
    n_devices = draw(st.integers(2, 4))
    programs = [
        {name: [] for name in ["compute", "communication"][:draw(st.integers(1, most_lanes))]}
        for _ in range(n_devices)
    ]
    lanes = [(device, name) for device, names in enumerate(programs) for name in names]
    a_lane = st.sampled_from(lanes)
    for number in range(draw(st.integers(most_requests // 3, most_requests))):
        kind = draw(st.sampled_from(["compute", "compute", "message", "message"] + ["any"] * any_source))
        if kind == "compute":
            device, name = draw(a_lane)
            programs[device][name].append(Compute(f"c{number}", ticks=draw(TICKS)))
            continue
        to, receiver = draw(a_lane)
        senders = [draw(a_lane)]
        if kind == "any":
            drawn = draw(st.lists(a_lane, min_size=2, max_size=5))
            senders = {device: (device, name) for device, name in drawn}.values()
        for source, sender in senders:
            if (source, sender) != (to, receiver):
                programs[source][sender].append(Send(f"m{number}", None, to, draw(SIZES)))
                programs[to][receiver].append(Receive(f"m{number}", source if kind == "message" else ANY))
    for device, name in draw(st.lists(a_lane, max_size=3)):
        requests = programs[device][name]
        if len(requests) > 1:
            place = draw(st.integers(1, len(requests) - 1))
            requests[place - 1], requests[place] = requests[place], requests[place - 1]
    pairs = [(source, to) for source in range(n_devices) for to in range(n_devices)]
    of_pairs = st.dictionaries(st.sampled_from(pairs), LINKS, min_size=1)
    link = draw(st.one_of(st.just(Link()), LINKS, LINKS, of_pairs))
    return Setting(programs, link, draw(ports_of(n_devices)) if with_ports else [])


def blame_at(trace, idle, now):
    """Return the span or message that the lane `idle` waits for at the instant `now`, by the definitions.

    It is at the end of the chain of those who wait for each other. `now` must not be an edge of anything.
    """
    while True:
        message = trace.awaited[idle]
        if idle.reason == "rendezvous":
            lane = trace.asked[message][1:]
        elif message.sent < now:
            return message
        else:
            lane = message.source, message.lane
        for span in trace.spans_of(*lane):
            if span.start < now < span.end:
                return span
        others = [other for other in trace.awaited if (other.device, other.lane) == lane]
        idle = next(other for other in others if other.start < now < other.end)


def check_path(trace, path):
    """Check that the steps of a critical path follow each other without a gap in time.

    They go from lane to lane over a message, or from the lane that asked for one to the lane that had it.
    """
    assert [0, *(step.end for step in path)] == [*(step.start for step in path), trace.makespan]
    for step, following in zip(path, path[1:]):
        second = following.what
        lanes = let_go_on(trace, step)
        if type(second) is Span:
            assert second[::4] in lanes
        elif type(step.what) is Span:
            assert (second.source, second.lane) in lanes or trace.asked.get(second, ())[1:] in lanes


def let_go_on(trace, step):
    """Return the lanes that can have gone on because of `step`: its own, and those that one of them asked."""
    if type(step.what) is Span:
        lanes = {step.what[::4]}
    else:
        message = step.what
        lanes = {(message.source, message.lane)} | {lane for lane in trace.lanes if lane[0] == message.to}
    asked = [
        (asker, (message.source, message.lane))
        for message, (tick, *asker) in trace.asked.items() if tick == step.end
    ]
    for _ in asked:
        lanes |= {sender for asker, sender in asked if tuple(asker) in lanes}
    return lanes
