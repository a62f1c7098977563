"""A schedule turned into programs for the devices of a cluster."""

from dataclasses import dataclass

from ..cluster import Cluster, Compute, Link, Receive, Send
from ..schedules import Action, Costs

FLUSH = ("A", "U")  # all-reduce and update, where they have costs
DIRECTION = {"F": 1, "B": -1, "I": -1, "W": 0, "R": 0, "U": 0}  # the stage that needs the result is this many stages on
MESSAGE = {"F": "F", "B": "B", "I": "B"}                # a gradient by the same name, whether its sender halves the backward or not


def simulate(schedule, costs=Costs(), link=Link()):
    """Run `schedule` on a cluster without any arithmetic, and return the `Trace`.

    Raises `ScheduleError` for a schedule with faults, `ValueError` for costs that do not fit it.

    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(4, 8)).makespan      # (M + K - 1)(F + B) = (8 + 4 - 1)(1 + 2)
    33
    """
    schedule.validate()
    return cluster_of(schedule, costs, link).run()


@dataclass(frozen=True)
class Routes:
    """What travels besides A from stage to stage: (name, stage where it begins, stage where it ends) of skip connections."""

    skips: tuple = ()

    def table(self, n_stages):
        """({kind: for each stage, what it waits for}, {kind: ..., what it sends}), as lists of (name, other stage)."""
        arriving, leaving = ({kind: [[] for _ in range(n_stages)] for kind in DIRECTION} for _ in range(2))
        for name, begin, end in self.skips:
            for kind, source, target in (("F", begin, end), ("B", end, begin), ("I", end, begin)):
                leaving[kind][source].append((name, target))
                arriving[kind][target].append((name, source))
        return arriving, leaving


def cluster_of(schedule, costs, link, perform=None, holdings=None, memory_limit=None, routes=Routes(), copies=None, flush=None):
    """A cluster with one device per line of `schedule`.

    perform: its actions call `perform(parts, inputs)` with the parts of the action and for each of them (incoming, skips); it
    returns for each of them (outgoing, {name: what leaves by this name}). copies: the stages of both copies of the network,
    if there are two. flush: `flush(device)` is a program that follows the device's last action.
    """
    neighbours, tables, table = Neighbours(schedule), routes.table(schedule.n_stages), costs.table(schedule.n_stages)
    sizes = costs.bytes_sent(schedule.n_stages)
    programs = [
        _one_after_another(
            _program(order, neighbours, perform, sizes, *tables),
            exchange_copies(neighbours, device, copies),
            *([] if flush is None else [flush(device)]),
            _after_the_flush(neighbours, device, [kind for kind in FLUSH if kind in table and not schedule.asynchronous]),
        )
        for device, order in enumerate(schedule.devices)
    ]
    return Cluster(programs, costs.duration(schedule.n_stages), link, holdings, memory_limit)


class Neighbours:
    """On which device each stage is, for each micro-batch."""

    def __init__(self, schedule):
        self.n_stages = schedule.n_stages
        self.n_microbatches = schedule.n_microbatches
        self.placements, self.copy_of = schedule.placements, schedule.copy_of

    def stages_on(self, device):
        """The (copy, stage) that are on a device."""
        return [(copy, stage) for copy, places in enumerate(self.placements) for stage, place in enumerate(places) if place == device]

    def device(self, stage, microbatch):
        return self.placements[self.copy_of[microbatch] if self.copy_of else 0][stage]


def _program(order, neighbours, perform, sizes, arriving, leaving):
    """One device: receive what an action needs, perform it, send its results to where they are needed."""
    for action in order:
        inputs = []
        for part in action.parts:
            inputs.append((yield from _receive(part, neighbours, arriving[part.kind][part.stage])))
        results = yield Compute(action, perform, action.parts, inputs)
        inputs = None
        for part, result in zip(action.parts, results or [(None, {})] * 2):
            yield from _send(part, neighbours, sizes, leaving[part.kind][part.stage], *result)
        results = result = None


def _receive(part, neighbours, names):
    """(incoming, {name: what arrives by this name}) of a part of an action."""
    kind, stage, microbatch = part
    direction = DIRECTION[kind]
    before, incoming, skips = stage - direction, None, {}
    if direction and 0 <= before < neighbours.n_stages:
        incoming = yield Receive((MESSAGE[kind], before, microbatch), neighbours.device(before, microbatch))
    for name, source in names:
        skips[name] = yield Receive(_label(MESSAGE[kind], source, microbatch, name), neighbours.device(source, microbatch))
    return incoming, skips


def _send(part, neighbours, sizes, names, outgoing, skips):
    kind, stage, microbatch = part
    after = stage + DIRECTION[kind]
    if DIRECTION[kind] and 0 <= after < neighbours.n_stages:
        label = part if kind != "I" else Action("B", stage, microbatch)
        yield Send(label, outgoing, neighbours.device(after, microbatch), sizes[min(stage, after)])
    for name, target in names:
        yield Send(_label(MESSAGE[kind], stage, microbatch, name), skips.get(name), neighbours.device(target, microbatch))


def exchange_copies(neighbours, device, copies=None):
    """A program: the stages of the second copy hand their sums over to those of the first, and get the totals back."""
    if len(neighbours.placements) == 1:
        return
    stages_on = neighbours.stages_on(device)
    for copy, stage in stages_on:
        if copy == 1:
            yield Send(f"sums of stage {stage}", copies and copies[1][stage].sums(), neighbours.placements[0][stage])
    for copy, stage in stages_on:
        if copy == 0:
            sums = yield Receive(f"sums of stage {stage}", neighbours.placements[1][stage])
            if copies:
                copies[0][stage].absorb(sums)
            yield Send(f"totals of stage {stage}", copies and copies[0][stage].sums(), neighbours.placements[1][stage])
    for copy, stage in stages_on:
        if copy == 1:
            totals = yield Receive(f"totals of stage {stage}", neighbours.placements[0][stage])
            if copies:
                copies[1][stage].replace(totals)


def _after_the_flush(neighbours, device, kinds):
    """A program: what costs time at the end of a mini-batch, though nothing is computed here: an all-reduce, an update."""
    for kind in kinds:
        for _, stage in neighbours.stages_on(device):
            yield Compute(Action(kind, stage, neighbours.n_microbatches - 1))


def _label(kind, stage, microbatch, name):
    """The name of a message that a skip connection sends beside the action's own."""
    return f"{stage}{kind}{microbatch} {name}"


def _one_after_another(*programs):
    for program in programs:
        yield from program
