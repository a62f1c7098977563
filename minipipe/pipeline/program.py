"""A schedule turned into programs for the devices of a cluster."""

from dataclasses import dataclass

from ..cluster import Cluster, Compute, Receive, Send
from ..schedules import Action
from ..schedules.rules import RULES

FLUSH = ("A", "U")  # all-reduce and update, where they have costs
DIRECTION = {kind: rule.way for kind, rule in RULES.items()}  # the stage that needs the result is this many stages on
MESSAGE = {"F": "F", "B": "B", "I": "B"}  # a gradient has the same name, whether its sender halves the backward or not


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


def cluster_of(
    schedule, costs, link, perform=None, holdings=None, memory_limit=None, routes=Routes(), copies=None, flush=None
):
    """A cluster with one device per line of `schedule`.

    perform: its actions call `perform(parts, inputs)` with the parts of the action and for each of them (incoming, skips); it
    returns for each of them (outgoing, {name: what leaves by this name}). Left out, the run takes its time without any
    numbers, and its messages have the bytes that `costs` says: the run that `simulate` must equal.
    holdings, memory_limit: as for `Cluster`. copies: the stages of both copies of the network, if there are two.
    flush: `flush(device)` is a program that follows the device's last action.
    """
    neighbours, tables = Neighbours(schedule), routes.table(schedule.n_stages)
    sizes = costs.bytes_sent(schedule.n_stages)
    programs = [
        _one_after_another(
            _program(order, neighbours, perform, sizes, *tables),
            exchange_copies(neighbours, device, copies),
            *([] if flush is None else [flush(device)]),
            _after_the_flush(neighbours, device, kinds_of_the_flush(schedule, costs)),
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
        return [
            (copy, stage) for copy, places in enumerate(self.placements) for stage, place in enumerate(places) if place == device
        ]

    def device(self, stage, microbatch):
        """The device of the stage in the copy of the network that a micro-batch passes through."""
        return self.placements[self.copy_of[microbatch] if self.copy_of else 0][stage]


def _program(order, neighbours, perform, sizes, arriving, leaving):
    """One device: receive what an action needs, perform it, send its results to where they are needed."""
    n_stages, device_of = neighbours.n_stages, neighbours.device
    for action in order:
        inputs = []
        for kind, stage, i in action.parts:
            incoming, skips = None, {}
            before = stage - DIRECTION[kind]
            if before != stage and 0 <= before < n_stages:
                incoming = yield Receive((MESSAGE[kind], before, i), device_of(before, i))
            for name, source in arriving[kind][stage]:
                skips[name] = yield Receive(label_of_skip(MESSAGE[kind], source, i, name), device_of(source, i))
            inputs.append((incoming, skips))
        results = yield Compute(action, perform, action.parts, inputs)
        inputs = incoming = skips = None  # so that nothing is kept alive while the device waits for its next message
        for part, result in zip(action.parts, results or [(None, {})] * 2):
            kind, stage, i = part
            after = stage + DIRECTION[kind]
            if after != stage and 0 <= after < n_stages:
                label = part if kind != "I" else Action("B", stage, i)
                yield Send(label, result[0], device_of(after, i), sizes[min(stage, after)])
            for name, target in leaving[kind][stage]:
                yield Send(label_of_skip(MESSAGE[kind], stage, i, name), result[1].get(name), device_of(target, i))
        results = result = None


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


def kinds_of_the_flush(schedule, costs):
    """What costs time at the end of a mini-batch."""
    return [] if schedule.asynchronous else [kind for kind in FLUSH if kind in costs.table(schedule.n_stages)]


def _after_the_flush(neighbours, device, kinds):
    """A program: ticks without any numbers, which only the costs ask for."""
    for kind in kinds:
        for _, stage in neighbours.stages_on(device):
            yield Compute(Action(kind, stage, neighbours.n_microbatches - 1))


def label_of_skip(kind, stage, microbatch, name):
    """The name of a message that a skip connection sends beside the action's own."""
    return f"{stage}{kind}{microbatch} {name}"


def _one_after_another(*programs):
    for program in programs:
        yield from program
