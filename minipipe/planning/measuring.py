"""What a network in stages needs: seconds, measured; bytes, without values."""

import copy
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np

from ..arrays import computing
from ..checks import whole_number
from ..cluster import SECONDS
from ..description import describe
from ..layers import Layer, every_layer
from ..layers.layer import checked_layers
from ..meta import MetaArray
from ..network import Network
from ..order import Costs
from ..parallel.options import Cut
from ..partitioning.partition import counts_of, cut_into_stages, times_of_layers

TIMED_KINDS = "FBRIW"  # the kinds of actions that are timed
SHORTEST = 1e-9  # seconds of an action without work, such as W without parameters: costs are above 0


# The bytes.

class NoValues:
    """A generator of random numbers that draws `MetaArray`s."""

    def standard_normal(self, size: Any = (), dtype: Any = "float64") -> MetaArray:
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


def without_values(layers: Iterable[Layer]) -> list[Layer]:
    """Return copies of `layers` with `MetaArray`s, a shape alone, as parameters.

    A network of these takes `MetaArray`s as X and Y, runs as any other network, and
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

def measure(
    layers: Sequence[Layer], loss: Any, stages: int | Cut, X: Any, Y: Any, dtype: Any = None,
    rounds: int = 5, at_once: int = 1,
) -> Costs:
    """Measure a micro-batch in each layer; return `Costs` of stages, in seconds.

    `simulate(schedule, costs, link)` then predicts how long a schedule with any number
    of such micro-batches takes.

    Args:
        layers, loss: those of the network.
        stages: K, the number of stages that the layers are cut into; or a `Cut`, which
            needs no sample.
        X, Y: the micro-batch, (n[0], m) and (n[L], m).
        dtype: as for `Network`.
        rounds: how often each layer is timed, see `times_of_layers`.
        at_once: how many threads measure at the same time, each its own network; the
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
    layers, at_once = checked_layers(layers), whole_number("at_once", at_once, 1)
    if at_once > 1:
        losses = [copy.copy(loss) for _ in range(at_once)]  # each network copies the layers itself
        with computing(), ThreadPoolExecutor(at_once) as threads:
            return mean_of(list(threads.map(
                lambda own: measure(layers, own, stages, X, Y, dtype, rounds), losses
            )))
    cut = stages if isinstance(stages, Cut) else Cut(whole_number("stages", stages, 1))
    counts = counts_of(cut if cut.sample else replace(cut, sample=(X, Y)), layers, loss)
    network = Network(layers, loss, dtype=dtype)
    times = times_of_layers(network.layers, loss, X, Y, rounds)
    F, I, W = (
        [max(SHORTEST, sum(of_stage)) for of_stage in cut_into_stages(of_kind, counts)]
        for of_kind in zip(*times)
    )
    rows = cut_into_stages(describe(layers, np.shape(X)[:-1], network.dtype).rows, counts)
    sent = [np.shape(X)[-1] * of_stage[-1].n_bytes for of_stage in rows]
    return Costs(
        F=F, B=list(map(sum, zip(I, W))), R=F, I=I, W=W, message_bytes=[*sent[:-1], 0], unit=SECONDS
    )


def mean_of(several: Sequence[Costs]) -> Costs:
    """Return the mean of several `Costs` that were measured at the same time."""
    by_kind = {kind: zip(*(getattr(one, kind) for one in several)) for kind in TIMED_KINDS}
    times: Any = {kind: list(map(fmean, seconds)) for kind, seconds in by_kind.items()}
    return Costs(**times, message_bytes=several[0].message_bytes, unit=SECONDS)
