"""One micro-batch through each stage alone: how long each action takes, and how many bytes it needs."""

import copy
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from statistics import fmean, median
from typing import NamedTuple

from ..arrays import computing
from ..checks import whole_number
from ..cluster import SECONDS
from ..network import Network
from ..optimizers import checked_optimizer
from ..order import Costs
from .one_microbatch import PATTERNS, counts_for, footprint, in_network, one_micro_batch, stages_of

TIMED_KINDS = "FBRIW"  # of the actions that are timed


class Measured(NamedTuple):
    """costs: `Costs` in seconds. footprints: a `Footprint` for each stage."""

    costs: Costs
    footprints: list


def measure(layers, loss, stages, X, Y, dtype="float64", optimizer=None, rounds=5, at_once=1):
    """What the stages of a network need for a micro-batch: `Measured` seconds and bytes.

    layers, loss: of the network.
    stages: K, the parts that the layers are cut into; or a `Cut`, which needs no sample.
    X, Y: the micro-batch, (n[0], m) and (n[L], m).
    dtype: as for `Sequential`.
    optimizer: if given, what it keeps for each parameter counts, too.
    rounds: how often each action is timed, in each order that it occurs in (such as F B, or F R I W); its
        time is the median.
    at_once: how many threads measure at the same time, each a network of its own; the seconds are their mean.
        Cores share the memory of a computer, so each is slower while the others work, as they do in a run.

    The result is for `simulate(schedule, measured.costs, link, measured.footprints)`, which then says how
    long a schedule with any number of such micro-batches takes, and how many bytes each device holds.
    `footprints` gives the bytes alone, without any parameters or data.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> layers, X, Y = [Linear(3, 2), Linear(2, 1)], np.ones((3, 4)), np.ones((1, 4))
    >>> measured = measure(layers, MeanSquaredError(), 2, X, Y)
    >>> measured.footprints[0].parameters, measured.costs.message_bytes  # 8 (2 * 3 + 2), and 8 * 2 * 4
    (64, [64, 0])
    """
    rounds, at_once = whole_number("rounds", rounds, 1), whole_number("at_once", at_once, 1)
    if optimizer is not None:
        checked_optimizer(optimizer)
    if at_once > 1:
        losses = [copy.copy(loss) for _ in range(at_once)]  # of layers, each network makes copies by itself
        setting = stages, X, Y, dtype, optimizer, rounds
        with computing(), ThreadPoolExecutor(at_once) as threads:
            of_threads = list(threads.map(lambda own: measure(layers, own, *setting), losses))
        return Measured(mean_of([one.costs for one in of_threads]), of_threads[0].footprints)
    network = Network(layers, loss, dtype=dtype)
    X, Y = network.checked_batch(X, Y)
    counts = counts_for(stages, network.layers, loss, (X, Y))
    alone = stages_of(network.layers, network.loss, counts)
    seconds = defaultdict(list)
    for _ in range(rounds):
        with computing():
            performed = {pattern: one_micro_batch(alone, pattern, X, Y) for pattern in PATTERNS}
        for actions in performed.values():
            for place, action in actions.items():
                seconds[place].append(action.seconds)
    times = {kind: [median(seconds[kind, stage]) for stage in range(len(alone))] for kind in TIMED_KINDS}
    footprints = in_network([footprint(stage, performed, optimizer) for stage in alone], counts)
    sent = [of_stage.sent["F"] for of_stage in footprints]
    return Measured(Costs(**times, message_bytes=sent, unit=SECONDS), footprints)


def mean_of(several):
    """The `Costs` in the mean of those that several have measured at the same time."""
    times = {kind: list(map(fmean, zip(*(getattr(one, kind) for one in several)))) for kind in TIMED_KINDS}
    return Costs(**times, message_bytes=several[0].message_bytes, unit=SECONDS)
