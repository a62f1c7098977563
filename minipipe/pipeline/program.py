"""A schedule turned into programs for the devices of a cluster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..cluster import Cluster, Compute, Link, Receive, Send

DIRECTION = {"F": 1, "B": -1, "R": 0}  # the stage that needs the result is this many stages on


@dataclass(frozen=True)
class Costs:
    """Ticks of a forward, a backward and a recompute: a number, or a list with one number per stage.

    R left out is F, since a recompute is a forward again.

    >>> Costs.from_text("F=1,B=2.5")
    Costs(F=1, B=2.5, R=None)
    """

    F: float | Sequence[float] = 1
    B: float | Sequence[float] = 2
    R: float | Sequence[float] | None = None

    @classmethod
    def from_text(cls, text):
        """Costs from "F=1,B=2"; several numbers for one kind, "F=1/1/3", are its costs stage by stage."""
        costs = {}
        for part in text.split(","):
            kind, _, value = part.partition("=")
            kind = kind.strip()
            if kind not in DIRECTION or kind in costs:
                raise ValueError(f"costs {text!r}: {part!r} is not one cost of F, B or R, write for instance F=1,B=2,R=1")
            numbers = [_number(word, text) for word in value.split("/")]
            costs[kind] = numbers[0] if len(numbers) == 1 else numbers
        return cls(**costs)

    def table(self, n_stages):
        """{kind: list of ticks over the stages}; `ValueError` for a cost that no clock can keep."""
        return {
            "F": _per_stage("F", self.F, n_stages),
            "B": _per_stage("B", self.B, n_stages),
            "R": _per_stage("R", self.F if self.R is None else self.R, n_stages),
        }


def simulate(schedule, costs=Costs(), link=Link()):
    """Run `schedule` on a cluster without any arithmetic, and return the `Trace`.

    Raises `ScheduleError` for a schedule with faults, `ValueError` for costs that do not fit it.

    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(4, 8)).makespan      # (M + K - 1)(F + B) = (8 + 4 - 1)(1 + 2)
    33
    """
    schedule.validate()
    return cluster_of(schedule, costs, link).run()


def cluster_of(schedule, costs, link, perform=None, holdings=None, memory_limit=None):
    """A cluster with one device per line of `schedule`, whose actions call `perform(action, incoming)`."""
    ticks = costs.table(schedule.n_stages)
    placement = schedule.placement
    return Cluster(
        [_program(order, placement, perform) for order in schedule.devices],
        duration=lambda action: ticks[action[0]][action[1]],
        link=link,
        holdings=holdings,
        memory_limit=memory_limit,
    )


def _program(order, placement, perform):
    """One device: receive what an action needs, perform it, send its result to where it is needed."""
    n_stages = len(placement)
    for action in order:
        kind, stage, microbatch = action
        direction = DIRECTION[kind]
        before, after = stage - direction, stage + direction
        incoming = None
        if direction and 0 <= before < n_stages:
            incoming = yield Receive((kind, before, microbatch), placement[before])
        outgoing = yield Compute(action, perform, action, incoming)
        if direction and 0 <= after < n_stages:
            yield Send(action, outgoing, placement[after])
        outgoing = None


def _per_stage(kind, cost, n_stages):
    costs = list(cost) if hasattr(cost, "__len__") else [cost] * n_stages
    if len(costs) != n_stages:
        raise ValueError(f"{kind} has {len(costs)} costs for {n_stages} stages: give one number, or one per stage")
    for stage, ticks in enumerate(costs):
        if not 0 < ticks < math.inf:
            raise ValueError(f"{kind}={ticks} on stage {stage}: a cost is a finite number of ticks above 0")
    return costs


def _number(word, text):
    try:
        return int(word)
    except ValueError:
        pass
    try:
        return float(word)
    except ValueError:
        raise ValueError(f"costs {text!r}: {word!r} is not a number") from None
