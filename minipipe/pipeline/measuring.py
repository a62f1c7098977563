"""One micro-batch through each stage alone: how long each action takes, and how many bytes it needs."""

import time
from collections import defaultdict
from statistics import median
from typing import NamedTuple

from ..cluster import bytes_by_kind, own
from ..functions import whole_number
from ..schedules import Costs, Schedule
from .partition import counts_of
from .pipeline import Pipeline

PATTERNS = ("FB", "FIW", "FRB", "FRIW")  # what can happen to a micro-batch on a stage


class Footprint(NamedTuple):
    """The bytes that a stage needs for micro-batches of one size.

    parameters, gradients, statistics: of the stage; the last two for each sum over micro-batches that is kept.
    sent: {"F": of the message to the next stage, "B": of the one back}.
    actions: {pattern: {kind: (before, after, kept)}}: what an action holds at its start and at its end beside what the stage
    keeps (arguments and results), and what the stage keeps of the micro-batch after it.
    """

    parameters: int
    gradients: int
    statistics: int
    sent: dict
    actions: dict


class Measured(NamedTuple):
    """costs: `Costs` in seconds. footprints: a `Footprint` for each stage."""

    costs: Costs
    footprints: list


def measure(layers, loss, n_stages, X, Y, partition=None, n_rounds=5):
    """What the stages of a network need for a micro-batch X (n[0], m), Y (n[L], m): `Measured` seconds and bytes.

    Each action is timed `n_rounds` times in each order that it occurs in (such as F B, or F R I W), and its time is the median.
    The result is for `simulate(schedule, measured.costs, link, measured.footprints)`, which then says how long a schedule with
    any number of such micro-batches takes, and how many bytes each device holds.
    Networks with skip connections between stages, or with tied weights, are refused: what these send is not foreseen.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> import numpy as np
    >>> measured = measure([Linear(3, 2), Linear(2, 1)], MeanSquaredError(), 2, np.ones((3, 4)), np.ones((1, 4)))
    >>> measured.footprints[0].parameters, measured.costs.message_bytes       # 8 (2 * 3 + 2), and 8 * 2 * 4
    (64, [64, 0])
    """
    for name, value in (("n_stages", n_stages), ("n_rounds", n_rounds)):
        if whole_number(name, value) < 1:
            raise ValueError(f"{name}={value} must be at least 1")
    partition = counts_of(partition, layers, n_stages, (X, Y), loss)
    seconds, actions = defaultdict(list), [{pattern: {} for pattern in PATTERNS} for _ in range(n_stages)]
    for pattern in PATTERNS:
        schedule = Schedule.from_text([" ".join(f"{kind}0" for kind in pattern)] * n_stages)
        pipe = _MeasuredPipeline(layers, loss, n_stages, 1, schedule, partition=partition)
        if pipe.ties or pipe._routes.skips:
            raise ValueError("tied weights and skip connections between stages send messages of their own: these are not foreseen")
        for _ in range(n_rounds):
            pipe.forward_backward(X, Y)
            for (kind, stage), measured in pipe.measured.items():
                seconds[kind, stage].append(measured.seconds)
                actions[stage][pattern][kind] = measured
    stages = range(n_stages)
    times = {kind: [median(seconds[kind, stage]) for stage in stages] for kind in "FBRIW"}
    footprints = [_footprint(measured) for measured in actions]
    return Measured(Costs(**times, message_bytes=[footprint.sent["F"] for footprint in footprints]), footprints)


class _Action(NamedTuple):
    seconds: float
    before: int
    held: dict  # bytes by kind
    sent: int


class _MeasuredPipeline(Pipeline):
    """A pipeline that writes down what each action of its only micro-batch needs."""

    def start(self, X, Y):
        super().start(X, Y)
        self.measured = {}

    def _perform_part(self, part, incoming, skips):
        stage = self.stages[part.stage]
        given = incoming, dict(skips)
        before = bytes_by_kind(stage.holdings() | {"work": given})["work"]
        begin = time.perf_counter()
        result = super()._perform_part(part, incoming, skips)
        seconds = time.perf_counter() - begin
        held = bytes_by_kind(stage.holdings() | {"work": (given, result)})
        self.measured[part.kind, part.stage] = _Action(seconds, before, held, own(result)[1])
        return result


def _footprint(actions):
    """The `Footprint` of a stage from its measured actions, {pattern: {kind: _Action}}."""
    statistics = actions["FB"]["F"].held["gradients"]
    return Footprint(
        parameters=actions["FB"]["F"].held["parameters"],
        gradients=actions["FB"]["B"].held["gradients"] - statistics,
        statistics=statistics,
        sent={kind: actions["FB"][kind].sent for kind in "FB"},
        actions={
            pattern: {
                kind: (action.before, action.held["work"], {name: action.held[name] for name in ("stashed inputs", "caches")})
                for kind, action in measured.items()
            }
            for pattern, measured in actions.items()
        },
    )
