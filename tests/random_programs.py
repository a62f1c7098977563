"""Programs and hardware drawn at random, for the engine to be tried on."""

from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

import numpy as np
from hypothesis import strategies as st

from minipipe.cluster import ANY, Cluster, Compute, Link, Port, Receive, Send

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
    """None; one in and one out for some devices; or a bus that several share."""
    devices = range(n_devices)
    some = st.lists(st.sampled_from(devices), unique=True)
    bandwidth = st.sampled_from([Fraction(1), Fraction(2), Fraction(4), Fraction(1, 3)])
    kind = draw(st.sampled_from(["none", "own", "any"]))
    if kind == "own":
        ways_out = [Port(draw(bandwidth), sends=[r]) for r in draw(some)]
        return ways_out + [Port(draw(bandwidth), receives=[r]) for r in draw(some)]
    if kind == "any":
        found = [(draw(bandwidth), draw(some), draw(some)) for _ in range(draw(st.integers(1, 3)))]
        return [Port(width, sends, receives) for width, sends, receives in found if sends or receives]
    return []


@st.composite
def settings_of_runs(draw, most_lanes=2, any_source=True, with_ports=True, n_steps=14):
    """A `Setting`. Some of them come to a deadlock: by rendezvous, or since receives have changed places."""
    n_devices = draw(st.integers(2, 4))
    programs = [
        {name: [] for name in ["compute", "communication", "third"][:draw(st.integers(1, most_lanes))]}
        for _ in range(n_devices)
    ]
    lanes = [(device, name) for device, names in enumerate(programs) for name in names]
    a_lane = st.sampled_from(lanes)
    for number in range(draw(st.integers(1, n_steps))):
        kind = draw(st.sampled_from(["compute", "compute", "message", "message"] + ["any"] * any_source))
        if kind == "compute":
            device, name = draw(a_lane)
            programs[device][name].append(Compute(f"c{number}", ticks=draw(TICKS)))
            continue
        to, receiver = draw(a_lane)
        senders = [draw(a_lane)]
        if kind == "any":
            drawn = draw(st.lists(a_lane, min_size=1, max_size=4))
            senders = {device: (device, name) for device, name in drawn}.values()
        for source, sender in senders:
            if (source, sender) != (to, receiver):
                programs[source][sender].append(Send(f"m{number}", None, to, draw(SIZES)))
                programs[to][receiver].append(Receive(f"m{number}", source if kind == "message" else ANY))
    if draw(st.integers(0, 3)) == 0:
        requests = programs[draw(st.integers(0, n_devices - 1))]["compute"]
        for first, second in list(combinations(range(len(requests)), 2))[:draw(st.integers(0, 5))]:
            requests[first], requests[second] = requests[second], requests[first]
    pairs = [(source, to) for source in range(n_devices) for to in range(n_devices)]
    link = draw(st.one_of(st.just(Link()), LINKS, st.dictionaries(st.sampled_from(pairs), LINKS)))
    return Setting(programs, link, draw(ports_of(n_devices)) if with_ports else [])
