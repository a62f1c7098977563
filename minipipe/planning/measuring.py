"""What a network in stages will need: its seconds, measured; its bytes, counted without values."""

import copy
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import fmean, median
from typing import Any

import numpy as np

from ..arrays import computing, leaves
from ..checks import whole_number
from ..cluster import SECONDS
from ..layers import Layer, every_layer
from ..layers.layer import checked_layers
from ..layers.through import run_alone
from ..meta import MetaArray
from ..network import Network
from ..order import Action, Costs
from ..order.actions import RULES
from ..parallel.batches import MicroBatches
from ..parallel.options import Cut
from ..parallel.stage import Stage, stages_of
from ..partitioning.partition import counts_of, cut_into_stages

PATTERNS = ("FB", "FIW", "FRB", "FRIW")  # the actions that a micro-batch can go through on a stage
TIMED_KINDS = "FBRIW"  # the kinds of actions that are timed


# The bytes.

class NoValues:
    """A generator of random numbers that draws `MetaArray`s."""

    def standard_normal(self, size: Any = (), dtype: Any = "float64") -> MetaArray:
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


def without_values(layers: Iterable[Layer]) -> list[Layer]:
    """Return copies of `layers` whose parameters are `MetaArray`s: they have a shape and no values.

    A network of them takes `MetaArray`s as X and Y, runs as any other network, and
    counts the same bytes with `count_bytes=True`. But nothing is drawn, computed or
    allocated, so it may be larger than this computer's memory. Tokens are the
    exception: X is then an array of zeros.

    A layer of your own that needs values, or a NumPy function that `minipipe.meta` does
    not list, raises `TypeError` in the run.

    >>> from minipipe import Linear, MeanSquaredError, Pipeline
    >>> layers = without_values([Linear(10**6, 10**6), Linear(10**6, 1)])
    >>> net = Pipeline(layers, MeanSquaredError(), 2, 4, schedule="gpipe", dtype="float32", count_bytes=True)
    >>> J = net.forward_backward(MetaArray((10**6, 32)), MetaArray((1, 32)))
    >>> net.trace.peak_bytes()       # on device 0: W of 4 terabytes, and two partial sums of dW
    [12000076000000, 136000104]
    """
    layers = [layer.copy(copy.copy) for layer in checked_layers(layers)]
    no_values: Any = NoValues()
    for layer in layers:
        layer.initialize(no_values)
    for layer in every_layer(layers):
        for name in layer.arrays:
            if (array := getattr(layer, name)) is not None:
                setattr(layer, name, MetaArray(array.shape, array.dtype))
    return layers


# The seconds.

def one_micro_batch(stages: Sequence[Stage], pattern: str, X: Any, Y: Any) -> tuple[dict, list[int]]:
    """Run a micro-batch through all stages, each of which does the actions of `pattern`.

    Args:
        stages: the `Stage`s of a network.
        pattern: the kinds of their actions in order.
        X, Y: the samples, for stage 0, and their labels, for the last stage.

    Returns:
        ({(kind, stage): seconds}, for each stage the bytes of its message forward).
    """
    seconds, n_bytes, on_the_way = {}, [], dict[tuple, Any]()  # on_the_way: by skip connections
    line = MicroBatches([(X, Y)], 1, step=0)
    for stage in stages:
        stage.begin(line, recomputed=[(stage.index, 0)] if "R" in pattern else ())
    for kind in pattern:
        rule, incoming = RULES[kind], None
        for stage in stages if rule.way > 0 else reversed(stages):
            ends = [(rule.message, layer.join if rule.way > 0 else layer.fork) for layer in stage.layers]
            arguments = incoming, {end[1]: on_the_way.pop(end) for end in ends if end in on_the_way}
            begin = time.perf_counter()
            sent, skips = run_alone(stage.act(Action(kind, stage.index, 0), *arguments))
            seconds[kind, stage.index] = time.perf_counter() - begin
            if kind == "F":
                n_bytes.append(sum(array.nbytes for array in leaves(sent)))
            incoming = received(sent)
            on_the_way |= {(rule.message, name): received(array) for name, array in skips.items()}
    return seconds, n_bytes


def received(sent: Any) -> Any:
    """Return copies of a message's arrays, as its receiver gets them."""
    if sent is None or isinstance(sent, tuple):
        return sent and tuple(map(received, sent))
    return sent.copy()


def measure(
    layers: Sequence[Layer], loss: Any, stages: int | Cut, X: Any, Y: Any, dtype: Any = None,
    rounds: int = 5, at_once: int = 1,
) -> Costs:
    """Measure a micro-batch in the stages of a network; return `Costs` in seconds and bytes.

    `simulate(schedule, costs, link)` then predicts how long a schedule with any number
    of such micro-batches takes.

    Args:
        layers, loss: those of the network.
        stages: K, the number of stages that the layers are cut into; or a `Cut`, which
            needs no sample.
        X, Y: the micro-batch, (n[0], m) and (n[L], m).
        dtype: as for `Network`.
        rounds: how often each action is timed, in each order that it occurs in (such as
            F B, or F R I W); its time is the median.
        at_once: how many threads measure at the same time, each a network of its own; the
            seconds are their mean. Cores share the memory of a computer, so each is
            slower while the others work, as in a run.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> layers, X, Y = [Linear(3, 2), Linear(2, 1)], np.ones((3, 4)), np.ones((1, 4))
    >>> costs = measure(layers, MeanSquaredError(), 2, X, Y)
    >>> costs.unit, costs.message_bytes  # 8 * 2 * 4
    ('seconds', [64, 0])
    """
    rounds, at_once = whole_number("rounds", rounds, 1), whole_number("at_once", at_once, 1)
    if at_once > 1:
        losses = [copy.copy(loss) for _ in range(at_once)]  # each network copies the layers itself
        with computing(), ThreadPoolExecutor(at_once) as threads:
            return mean_of(list(threads.map(
                lambda own: measure(layers, own, stages, X, Y, dtype, rounds), losses
            )))
    network = Network(layers, loss, dtype=dtype)
    X, Y = network.checked_batch(X, Y)
    cut = stages if isinstance(stages, Cut) else Cut(whole_number("stages", stages, 1))
    counts = counts_of(cut if cut.sample else replace(cut, sample=(X, Y)), network.layers, loss)
    own_loss: Any = network.loss
    alone = stages_of(cut_into_stages(network.layers, counts), own_loss)
    found = defaultdict(list)
    for _ in range(rounds):
        for pattern in PATTERNS:
            with computing():
                seconds, sent = one_micro_batch(alone, pattern, X, Y)
            for place, time_of_action in seconds.items():
                found[place].append(time_of_action)
    times: Any = {kind: [median(found[kind, stage]) for stage in range(len(alone))] for kind in TIMED_KINDS}
    return Costs(**times, message_bytes=sent, unit=SECONDS)


def mean_of(several: Sequence[Costs]) -> Costs:
    """Return the mean of several `Costs` that were measured at the same time."""
    by_kind = {kind: zip(*(getattr(one, kind) for one in several)) for kind in TIMED_KINDS}
    times: Any = {kind: list(map(fmean, seconds)) for kind, seconds in by_kind.items()}
    return Costs(**times, message_bytes=several[0].message_bytes, unit=SECONDS)
