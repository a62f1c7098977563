"""What is asked of a search for a schedule, and how good a schedule is at it."""

from itertools import pairwise
from typing import NamedTuple

from ..checks import whole_numbers
from .costs import checked_costs
from .limits import check_sizes, limits_of
from .rules import RULES


class Request(NamedTuple):
    """The sizes, costs and limits of a schedule that is to be found, all of them checked.

    placement: the device of each stage.
    n_microbatches: how many there are.
    kinds: of actions, "FB" or "FIW"; the second one sends the gradient back, the last one frees activations.
    ticks: kind -> ticks on each stage.
    limits: for each device, how often it can keep the activations of a stage and a micro-batch.
    latency: ticks of a message between two devices.
    """

    placement: tuple
    n_microbatches: int
    kinds: str
    ticks: dict
    limits: list
    latency: float

    @property
    def n_stages(self):
        """How many stages there are, on all devices together."""
        return len(self.placement)

    @property
    def lags(self):
        """For each stage but the last, the ticks of a message between it and the next one."""
        return [self.latency if r != after else 0 for r, after in pairwise(self.placement)]

    def keeps_its_limits(self, schedule):
        """Whether no device of `schedule` keeps more than it may."""
        for order, limit in zip(schedule.devices, self.limits):
            alive = 0
            for action in order:
                alive += action.alive
                if alive > limit:
                    return False
        return True

    def makespan(self, schedule):
        """Ticks until the last device of `schedule` is free; each action begins when it can.

        `schedule` has no faults, this placement and these kinds.
        """
        ends = {kind: [[None] * self.n_microbatches for _ in self.placement] for kind in self.kinds}
        free, heads, waiting, lags = [0] * len(self.limits), [0] * len(self.limits), {}, self.lags
        ready = list(range(len(self.limits)))
        while ready:
            device = ready.pop()
            order = schedule.devices[device]
            for head in range(heads[device], len(order)):
                kind, stage, i = order[head]
                way, start = RULES[kind].way, free[device]
                source = stage - way
                if way and 0 <= source < self.n_stages:
                    end = ends[kind][source][i]
                    if end is None:
                        waiting[kind, source, i], heads[device] = device, head
                        break
                    start = max(start, end + lags[min(stage, source)])
                free[device] = ends[kind][stage][i] = start + self.ticks[kind][stage]
                if (kind, stage, i) in waiting:
                    ready.append(waiting.pop((kind, stage, i)))
        return max(free)


def request_of(n_devices, n_microbatches, costs, most_alive, halves, latency, v=1, placement=None):
    """The `Request` that these arguments of `greedy_schedule` make; `ValueError` for what makes no sense."""
    n_devices, n_microbatches, v, latency = check_sizes(n_devices, n_microbatches, v, latency)
    placement = _placement(n_devices, v, placement)
    stages_on = [placement.count(device) for device in range(n_devices)]
    limits = limits_of(most_alive, stages_on, n_microbatches)
    table = checked_costs(costs).table([stages_on[device] for device in placement], [latency])
    costs.bytes_sent(len(placement))
    kinds = "FIW" if halves else "FB"
    ticks = {kind: table[kind] for kind in kinds}
    return Request(tuple(placement), n_microbatches, kinds, ticks, limits, latency)


def _placement(n_devices, v, placement):
    if placement is None:
        return [stage % n_devices for stage in range(n_devices * v)]
    placement = list(whole_numbers("placement", placement, 0))
    if v != 1:
        raise ValueError(f"v={v} and placement={placement} both say where the stages are: give one of them")
    if sorted(set(placement)) != list(range(n_devices)):
        raise ValueError(
            f"placement={placement} must have each of the devices 0..{n_devices - 1}, and no others"
        )
    return placement
