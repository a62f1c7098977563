"""A schedule turned into programs for the devices of a cluster."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from ..cluster import Cluster, Compute, Link, Receive, Send
from ..schedules import Action

DIRECTION = {"F": 1, "B": -1, "I": -1, "W": 0, "R": 0}  # the stage that needs the result is this many stages on
MESSAGE = {"F": "F", "B": "B", "I": "B"}                # a gradient by the same name, whether its sender halves the backward or not


@dataclass(frozen=True)
class Costs:
    """Ticks of each kind of action: a number, or a list with one number per stage.

    F forward, B backward, R recompute, and I and W, the halves of a backward. R left out is F, since a recompute is a
    forward again; I and W left out are B / 2 each, and one of them left out is B minus the other.

    >>> Costs.from_text("F=1,B=2.5")
    Costs(F=1, B=2.5, R=None, I=None, W=None)
    """

    F: float | Sequence[float] = 1
    B: float | Sequence[float] = 2
    R: float | Sequence[float] | None = None
    I: float | Sequence[float] | None = None
    W: float | Sequence[float] | None = None

    @classmethod
    def from_text(cls, text):
        """Costs from "F=1,B=2"; several numbers for one kind, "F=1/1/3", are its costs stage by stage."""
        costs = {}
        for part in text.split(","):
            kind, _, value = part.partition("=")
            kind = kind.strip()
            if kind not in DIRECTION or kind in costs:
                raise ValueError(f"costs {text!r}: {part!r} is not one cost of F, B, R, I or W, write for instance F=1,B=2,R=1")
            numbers = [_number(word, text) for word in value.split("/")]
            costs[kind] = numbers[0] if len(numbers) == 1 else numbers
        return cls(**costs)

    def table(self, n_stages):
        """{kind: list of ticks over the stages}; `ValueError` for a cost that no clock can keep."""
        F, B = _per_stage("F", self.F, n_stages), _per_stage("B", self.B, n_stages)
        R = F if self.R is None else _per_stage("R", self.R, n_stages)
        halves = {kind: None if cost is None else _per_stage(kind, cost, n_stages) for kind, cost in (("I", self.I), ("W", self.W))}
        I, W = halves["I"], halves["W"]
        if I is None:
            I = [b / 2 for b in B] if W is None else _per_stage("I = B - W", [b - w for b, w in zip(B, W)], n_stages)
        if W is None:
            W = _per_stage("W = B - I", [b - i for b, i in zip(B, I)], n_stages)
        return {"F": F, "B": B, "R": R, "I": I, "W": W}


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


def cluster_of(schedule, costs, link, perform=None, holdings=None, memory_limit=None, routes=Routes(), flush=None):
    """A cluster with one device per line of `schedule`.

    perform: its actions call `perform(action, incoming, skips)`, which returns (outgoing, {name: what leaves by this
    name}). flush: `flush(device)` is a program that follows the device's last action.
    """
    ticks = costs.table(schedule.n_stages)
    placement = schedule.placement
    tables = routes.table(schedule.n_stages)
    programs = [_program(order, placement, perform, *tables) for order in schedule.devices]
    if flush is not None:
        programs = [_one_after_another(program, flush(device)) for device, program in enumerate(programs)]
    return Cluster(
        programs,
        duration=lambda action: ticks[action[0]][action[1]],
        link=link,
        holdings=holdings,
        memory_limit=memory_limit,
    )


def _program(order, placement, perform, arriving, leaving):
    """One device: receive what an action needs, perform it, send its results to where they are needed."""
    n_stages = len(placement)
    for action in order:
        kind, stage, microbatch = action
        direction = DIRECTION[kind]
        before, after = stage - direction, stage + direction
        incoming = None
        if direction and 0 <= before < n_stages:
            incoming = yield Receive((MESSAGE[kind], before, microbatch), placement[before])
        skips = {}
        for name, source in arriving[kind][stage]:
            skips[name] = yield Receive(_label(MESSAGE[kind], source, microbatch, name), placement[source])
        outgoing, skips = (yield Compute(action, perform, action, incoming, skips)) or (None, skips)
        if direction and 0 <= after < n_stages:
            yield Send(action if kind != "I" else Action("B", stage, microbatch), outgoing, placement[after])
        for name, target in leaving[kind][stage]:
            yield Send(_label(MESSAGE[kind], stage, microbatch, name), skips.get(name), placement[target])
        outgoing = skips = None


def _label(kind, stage, microbatch, name):
    """The name of a message that a skip connection sends beside the action's own."""
    return f"{stage}{kind}{microbatch} {name}"


def _one_after_another(*programs):
    for program in programs:
        yield from program


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
