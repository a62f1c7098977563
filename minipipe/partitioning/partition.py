"""The cost of each layer, counted, measured or given, and where to cut a network."""

import time
from collections.abc import Callable, Sequence
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from ..arrays import computing
from ..checks import shown, whole_number
from ..description import describe, parameters_of_layers, without_samples
from ..layers import Layer, every_layer
from ..layers.layer import checked_layers, take_statistics
from ..layers.through import (
    backward_program, first_with_parameters, forward_through, handed_on, prepare_forward, run_alone,
    weight_gradients,
)
from ..losses import Loss
from ..network import Network
from .solvers import checked, equal_counts, min_max


# The costs of the layers.

COUNTED = {"macs": "macs", "bytes": "n_bytes"}  # kind of cost -> its name in a `Description`
COST_KINDS = ("parameters", *COUNTED, "time")
CUT_BY = ("count", *COST_KINDS)  # what a `Cut` can balance


class Times(NamedTuple):
    """Seconds of a layer: forward F, input gradient I, weight gradient W."""

    F: float
    I: float
    W: float


def costs_of_layers(
    layers: Sequence[Layer], by: str | Callable | Sequence = "parameters", input_shape: tuple | None = None,
    sample: tuple | None = None, loss: Loss | None = None,
) -> list:
    """Return the list of the layers' costs, for a partition.

        "parameters"   entries of W and b; a W that layers share counts at the first
        "macs"         multiply-accumulates of a forward of one sample
        "bytes"        of the output for one sample in float32
        "time"         seconds of forward and backward, see `times_of_layers`
        a function     by(layer, input_shape); the shape is that of one sample there
        a list         these costs

    Only "time" creates the parameters. With all others the network may be larger than
    the memory of this computer.

    Args:
        layers: a list of layers.
        by: what to count, one of the above.
        input_shape: the shape of one sample, such as (64,) or (3, 32, 32), which
            "macs", "bytes" and a function need.
        sample: a micro-batch (X, Y), which "time" needs; the others can take
            input_shape from its X.
        loss: the network's loss, which "time" needs.

    Raises:
        ValueError: if an argument is missing, or a cost is negative or not finite.

    >>> from minipipe.layers import Linear, ReLU
    >>> layers = [Linear(64, 32), ReLU(), Linear(32, 10)]
    >>> costs_of_layers(layers)
    [2080, 0, 330]
    >>> costs_of_layers(layers, "macs", (64,)), costs_of_layers(layers, "bytes", (64,))
    ([2048, 0, 320], [128, 128, 40])
    >>> costs_of_layers(layers, lambda layer, input_shape: 1 + layer.macs((*input_shape, 1)), (64,))
    [2049, 1, 321]
    """
    layers = checked_layers(layers)
    if not isinstance(by, str) and hasattr(by, "__iter__"):
        return checked("by", by, len(layers))
    if not callable(by) and by not in COST_KINDS:
        raise ValueError(
            f"by={shown(by)} is not known: use one of {', '.join(map(repr, COST_KINDS))}, "
            "a function (layer, input_shape), or a list of costs"
        )
    if by == "parameters":
        return parameters_of_layers(layers)
    if by == "time":
        if sample is None or loss is None:
            raise ValueError(
                "by='time' needs a sample to measure with: pass sample=(X, Y), a micro-batch, and the loss"
            )
        return [sum(times) for times in times_of_layers(layers, loss, *_pair(sample))]
    if input_shape is None and sample is None:
        raise ValueError(
            f"by={by!r} needs the shape of the input: "
            "pass input_shape, such as X.shape[:-1], or sample=(X, Y)"
        )
    if input_shape is None:
        input_shape = np.shape(_pair(sample)[0])[:-1]
    description = describe(layers, input_shape)
    if by in COUNTED:
        return [getattr(row, COUNTED[by]) for row in description.rows]
    costs = []

    def add(layer, shape):
        costs.append(by(layer, without_samples(shape)))
        return layer.output_shape(shape)

    forward_through(layers, (*description.input_shape, 1), {}, call=add)
    return checked("by", costs, len(layers))


def _pair(sample):
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        raise ValueError(
            f"sample={type(sample).__name__} must be a pair (X, Y): "
            "for instance sample=(X[:, :32], Y[:, :32])"
        )
    return sample


def times_of_layers(
    layers: Sequence[Layer], loss: Loss, X: np.ndarray, Y: np.ndarray, rounds: int = 5
) -> list[Times]:
    """Return the `Times` of each layer with a micro-batch, in seconds.

    Args:
        layers: a list of layers.
        loss: the network's loss; the last layer's times include it.
        X: (n[0], m), the samples of the micro-batch.
        Y: (n[L], m), their labels.
        rounds: each time is the median of this number of rounds through the whole
            network, after one round for warming up.

    So a disturbance in less than half of the rounds has no effect. Layers before the
    first one with parameters have no backward: I and W are 0.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [ReLU(), Linear(500, 500), Linear(500, 1)]
    >>> times = times_of_layers(layers, MeanSquaredError(), np.ones((500, 50)), np.ones((1, 50)))
    >>> times[0].I, times[1].F > times[2].F > 0
    (0.0, True)
    """
    rounds = whole_number("rounds", rounds, 1)
    network = Network(layers, loss)
    X, Y = network.checked_batch(X, Y)
    with computing():
        timed = [_one_round(network, X, Y) for _ in range(rounds + 1)][1:]
    return [Times(*map(median, zip(*of_rounds))) for of_rounds in zip(*timed)]


def _one_round(network, X, Y):
    """Return the list of the layers' `Times` in one forward and backward."""
    layers, all_layers = network.layers, list(every_layer(network.layers))
    prepare_forward(all_layers, training=True)
    F, I, W = [], [0.0] * len(layers), [0.0] * len(layers)
    laps = [time.perf_counter()]

    def lap():
        """Return the seconds since the last lap."""
        laps.append(time.perf_counter())
        return laps[-1] - laps[-2]

    def forward(layer, A):
        A = handed_on(layer, A)
        F.append(lap())
        return A

    A = forward_through(layers, X, {}, forward)
    network.loss.forward(A, Y)
    F[-1] += lap()
    dA = network.loss.backward()
    I[-1] = lap()
    skips, first = {}, first_with_parameters(layers)
    for index in range(len(layers) - 1, first - 1, -1):
        layer, halves = layers[index], {}
        dA = run_alone(backward_program([layer], dA, skips, index > first, halves.__setitem__))
        I[index] += lap()
        for half in halves.values():
            weight_gradients(layer, half)
            W[index] = lap()
    for owner in (*layers[:first], network.loss):
        owner.cache = None
    take_statistics(all_layers)
    return list(map(Times, F, I, W))


# Where to cut.

def partition(
    layers: Sequence[Layer], stages: int, by: str | Callable | Sequence = "parameters",
    input_shape: tuple | None = None, sample: tuple | None = None, loss: Loss | None = None,
) -> list[int]:
    """Return the layers of each stage of the cut whose largest stage is smallest.

    Args:
        layers: a list of layers.
        stages: K.
        by: the size of a layer: "parameters", "macs", "bytes", "time", a function
            (layer, input_shape) -> cost, or a list with a cost for each layer.
        input_shape: the shape of one sample, which "macs", "bytes" and a function need.
        sample, loss: a micro-batch (X, Y) and the loss, which "time" needs.

    For GPipe's cuts, pass `costs_of_layers` to `min_variance` (of its paper) or
    `histogram` (of its code) of `minipipe.partitioning`.

    >>> from minipipe.layers import Linear, ReLU
    >>> layers = [Linear(64, 64), ReLU(), Linear(64, 64), ReLU(), Linear(64, 256), ReLU(), Linear(256, 10)]
    >>> partition(layers, 2), partition(layers, 2, by="bytes", input_shape=(64,))
    ([4, 3], [5, 2])
    """
    return min_max(costs_of_layers(layers, by, input_shape, sample, loss), whole_number("stages", stages))


def counts_of(cut: Any, layers: Sequence[Layer], loss: Loss | None) -> list[int]:
    """Return the number of layers in each stage of a `Cut`.

    Args:
        cut: the `Cut`, of `minipipe.parallel.options`.
        layers: a list of layers.
        loss: the network's loss, which "time" needs.
    """
    by, n_layers = cut.by, len(layers)
    if isinstance(cut.stages, tuple):
        counts = list(cut.stages)
        if sum(counts) != n_layers:
            raise ValueError(
                f"stages={shown(counts)} adds up to {sum(counts)} for {n_layers} layers: "
                f"give the stages {n_layers} layers in all"
            )
        return counts
    if cut.n > n_layers:
        raise ValueError(
            f"{cut.n} stages do not fit {n_layers} layers: use at most {n_layers}, so that each has a layer"
        )
    if by == "count":
        return equal_counts(n_layers, cut.n)
    if cut.sample is None and by != "parameters":
        raise ValueError(f"by={shown(by)} needs data to find the costs: pass sample=(X, Y), a micro-batch")
    return partition(layers, cut.n, by, sample=cut.sample, loss=loss)


def cut_into_stages(layers: Sequence[Layer], counts: Sequence[int]) -> list:
    """Return `layers` as one list per stage, with `counts[s]` layers in stage s."""
    rest = iter(layers)
    return [[next(rest) for _ in range(count)] for count in counts]
