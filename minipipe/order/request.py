"""What is asked of a search for a schedule, and how good a schedule is at it."""

import math
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

from ..arguments import argument
from ..checks import shown, whole_numbers
from .costs import checked_costs
from .limits import check_sizes, limits_of

OBJECTIVES = ("makespan", "span")


class Request(NamedTuple):
    """The sizes, costs and limits of a schedule that is to be found, all of them checked.

    placement: the device of each stage.
    n_microbatches: how many there are.
    kinds: of actions, "FB" or "FIW"; the second one sends the gradient back, the last one frees activations.
    ticks: kind -> ticks on each stage.
    keeps: kind -> by how much more its device keeps after it, in whole numbers.
    limits: for each device, how much it can keep, in the same unit; each of its stages counts by itself.
    latency: ticks of a message between two devices.
    objective: what is to be small, one of `OBJECTIVES`.
    """

    placement: tuple
    n_microbatches: int
    kinds: str
    ticks: dict
    keeps: dict
    limits: list
    latency: float
    objective: str

    @property
    def n_stages(self):
        """How many stages there are, on all devices together."""
        return len(self.placement)

    @property
    def lags(self):
        """For each stage but the last, the ticks of a message between it and the next one."""
        return [self.latency if r != after else 0 for r, after in pairwise(self.placement)]

    def in_whole_ticks(self):
        """(request, unit): the same times in 1 / unit ticks, all whole: nothing is rounded then."""
        exact = {kind: list(map(Fraction, row)) for kind, row in self.ticks.items()}
        latency = Fraction(self.latency)
        unit = math.lcm(latency.denominator, *(cost.denominator for row in exact.values() for cost in row))
        ticks = {kind: [int(cost * unit) for cost in row] for kind, row in exact.items()}
        return self._replace(ticks=ticks, latency=int(latency * unit)), unit


def request_of(
    n_devices, n_microbatches, costs, most_alive, halves, latency, v=1, placement=None, kept_for_W=1,
    objective="makespan",
):
    """The `Request` that these arguments of `greedy_schedule` make; `ValueError` for what makes no sense."""
    n_devices, n_microbatches, v, latency = check_sizes(n_devices, n_microbatches, v, latency)
    placement = _placement(n_devices, v, placement)
    stages_on = [placement.count(device) for device in range(n_devices)]
    limits = limits_of(most_alive, stages_on, n_microbatches)
    table = checked_costs(costs).table([stages_on[device] for device in placement], [latency])
    costs.bytes_sent(len(placement))
    if not isinstance(objective, str) or objective not in OBJECTIVES:
        raise ValueError(f"objective={shown(objective)} must be one of {', '.join(map(repr, OBJECTIVES))}")
    kinds, kept = "FIW" if argument("halves", halves) else "FB", Fraction(argument("kept_for_W", kept_for_W))
    whole = kept.denominator
    keeps = {"F": whole, "B": -whole, "I": kept.numerator - whole, "W": -kept.numerator}
    ticks, keeps = ({kind: of[kind] for kind in kinds} for of in (table, keeps))
    limits = [limit * whole for limit in limits]
    return Request(tuple(placement), n_microbatches, kinds, ticks, keeps, limits, latency, objective)


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
