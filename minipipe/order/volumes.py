"""The run of a schedule whose devices exchange and hold so many bytes, without a network that has them."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from ..cluster import Bytes, Compute, Counted, Link, Trace
from ..collectives import Group, all_reduce
from .actions import RULES
from .costs import Costs
from .programs import Wires, WithoutNumbers, cluster_of, programs_of_schedule

EXCHANGING = "FRBI"  # kinds of work within which shards exchange activations, or the gradients of these


class Volumes(NamedTuple):
    """The bytes of each stage. All are lists with whole numbers.

    shared: what the shards of a stage sum in each forward, and in each backward, of a micro-batch.
    gradients: of the stage, which copies of the network sum.
    activations: what a device keeps of a micro-batch from its forward to its backward; None: not counted.
    parameters: what it always holds.
    """

    shared: Sequence[int]
    gradients: Sequence[int]
    activations: Sequence[int] | None = None
    parameters: Sequence[int] | None = None


def simulate_volumes(schedule, costs: Costs, link: Link, volumes: Volumes, shards: int = 1) -> Trace:
    """Return the `Trace` of a schedule whose stages exchange and hold the bytes of `volumes`.

    Args:
        schedule: a `Schedule`; where it has several copies of the network, these exchange gradients.
        costs: the ticks of each action, and the bytes of each message between stages.
        link: for all pairs of devices.
        volumes: the bytes of each stage.
        shards: how many devices stand for one of the schedule: they have numbers that follow each other, do
            the same actions, and sum `volumes.shared` after each forward and backward.

    >>> from ..schedules import gpipe
    >>> simulate_volumes(gpipe(1, 1), Costs(), Link(bandwidth=1), Volumes([4], [0]), shards=2).makespan
    11.0
    """
    n = shards * len(schedule.devices)
    held = [Counted(parameters=0, activations=0) for _ in range(n)]
    counts = volumes.activations is not None
    sent = costs.bytes_sent(schedule.n_stages)

    def keep(device, action, sign):
        """Count what an action keeps, before it (sign = 1), or what it lets go (sign = -1)."""
        for part in action.parts if counts else ():
            if part.alive * sign > 0:
                held[device]["activations"] += sign * volumes.activations[part.stage]

    def outlet(kind, stage, _):
        """Return (what an action sends to the next stage, or back; {})."""
        neighbour = stage + RULES[kind].way
        is_inside = neighbour != stage and 0 <= neighbour < schedule.n_stages
        return Bytes(sent[min(stage, neighbour)]) if is_inside else None, {}

    def perform_on(device):
        first = device - device % shards
        group = Group(device - first, range(first, first + shards), f"shards of device {first // shards}: ")

        def perform(action, inputs):
            keep(device, action, 1)
            yield Compute(action, keep, device, action, -1)
            for part in action.parts if shards > 1 else ():
                if part.kind in EXCHANGING:
                    yield from all_reduce(group, Bytes(volumes.shared[part.stage]))
            return [outlet(*part) for part in action.parts]

        return perform

    programs = [None] * n
    for shard in range(shards):
        wires = Wires(schedule, ranks=range(shard, n, shards))
        places = [(stage, device) for device in wires.ranks for stage in wires.stages_on(device)]
        stages = {place: WithoutNumbers(volumes.gradients[place[0]]) for place in places}
        programs[shard::shards] = programs_of_schedule(wires, perform_on, stages)
        for stage, device in places if counts else ():
            held[device]["parameters"] += volumes.parameters[stage]
    holdings = [partial(Counted, each) for each in held] if counts else None
    shares = [n_stages for n_stages in schedule.stages_on for _ in range(shards)]
    return cluster_of(programs, schedule, costs, link, holdings, shares=shares).run()
