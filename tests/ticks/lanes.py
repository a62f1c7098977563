"""Runs whose devices do something beside their computing, for the tests of pictures."""

import minipipe as mp
from minipipe.cluster import COMPUTE, Label
from minipipe.cluster.record import Record
from minipipe.order import Action

COMMUNICATION = "communication"


def copies_that_add_their_gradients(ticks_of_A=1):
    """A `Trace` of three copies of a network of two stages, each copy on a device of its own.

    Device r computes micro-batch r, the later ones more slowly. As soon as a backward is done, the lane
    beside exchanges the gradients of its stage with the other devices, and adds them up in `ticks_of_A`.
    """
    programs = [{COMPUTE: compute(r), COMMUNICATION: communicate(r, 3, ticks_of_A)} for r in range(3)]
    return mp.Cluster(programs, link=mp.Link(latency=1)).run()


def compute(r):
    for kind, stage in (("F", 0), ("F", 1), ("B", 1), ("B", 0)):
        yield mp.Compute(Action(kind, stage, r), ticks=1 + r if stage else 2)
        if kind == "B":
            yield mp.Send(f"{stage}A{r} begins", None, to=r)
    for stage in (1, 0):
        yield mp.Receive(f"{stage}A{r} is over", source=r)
        yield mp.Compute(Action("U", stage, r), ticks=0)


def communicate(r, n_devices, ticks_of_A):
    for stage in (1, 0):
        yield mp.Receive(f"{stage}A{r} begins", source=r)
        others = [(r + distance) % n_devices for distance in range(1, n_devices)]
        for other in others:
            yield mp.Send(f"gradient of stage {stage}", None, to=other)
        for other in others:
            yield mp.Receive(f"gradient of stage {stage}", source=other)
        yield mp.Compute(Action("A", stage, r), ticks=ticks_of_A)
        yield mp.Send(f"{stage}A{r} is over", None, to=r)


def ring(n_devices=4):
    """A `Trace` of a ring all-reduce on slow links: to add a chunk takes a tick, to store one takes none."""
    return mp.Cluster([add_around(r, n_devices) for r in range(n_devices)], link=mp.Link(latency=2)).run()


def add_around(r, n_devices):
    after, before = (r + 1) % n_devices, (r - 1) % n_devices
    for kind, first, ticks in (("add", r, 1), ("copy", r + 1, 0)):
        for step in range(n_devices - 1):
            sent, got = (first - step) % n_devices, (first - step - 1) % n_devices
            yield mp.Send(f"{kind} {sent}", None, to=after)
            yield mp.Receive(f"{kind} {got}", source=before)
            yield mp.Compute(Label(f"{kind} {got}", kind), ticks=ticks)


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
