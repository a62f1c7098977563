"""The bytes that each stage of a network needs for a micro-batch, by arrays without numbers."""

import copy

import numpy as np

from ..arrays import floats
from ..checks import listed, one_of, shown, whole_number
from ..description import describe
from ..layers import Layer
from ..layers.layer import checked_layers
from ..meta import MetaArray
from ..optimizers import checked_optimizer
from ..parallel.options import Cut
from ..parallel.stage import stages_of
from ..partitioning.partition import cut_into_stages
from .measuring import PATTERNS, counts_for, footprints_of, one_micro_batch


def footprints(
    layers, loss, stages, input_shape, m, dtype="float64", optimizer=None, patterns=PATTERNS,
):
    """Return the `Footprint` of each stage for micro-batches of m samples: a list for `simulate`.

    They are the bytes at the start and the end of each action; a layer needs more for a
    moment in between. `measure` finds the same. Here no parameter is drawn and no array
    made, so the network may be larger than this computer: the layers' own forward and
    backward work with arrays that have a shape and no numbers, see `minipipe.meta`.

    Gradients are summed along the tree; `footprint._replace(accumulate="running")` is for
    sums in one buffer, as for `Sums`. A network with a `grain` keeps more sums than this.

    Args:
        layers: a list of them.
        loss: an object, such as MeanSquaredError(): a backward begins at the loss.
        stages: K, the parts that the layers are cut into; or a `Cut`, which needs no
            sample; "time" takes numbers, and is refused.
        input_shape: of one sample, such as (64,) or (3, 32, 32).
        m: the samples of a micro-batch.
        dtype: of the parameters and of X.
        optimizer: what it keeps for each parameter counts, too, as it does from its first
            update on.
        patterns: the orders of actions that a micro-batch may go through on a stage;
            fewer take less time.

    Raises:
        ValueError: for what does not fit, and for a layer that needs numbers.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [Linear(10**6, 10**6), Linear(10**6, 1)]
    >>> huge = footprints(layers, MeanSquaredError(), 2, (10**6,), m=8, dtype="float32")
    >>> [footprint.parameters / 1e12 for footprint in huge]       # terabytes: 4 * (10**12 + 10**6)
    [4.000004, 4.000004e-06]
    >>> from minipipe.order import simulate
    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(2, 4), footprints=huge).peak_bytes()       # on device 0, W and two partial sums of dW
    [12000076000000, 136000104]
    >>> huge = [footprint._replace(accumulate="running") for footprint in huge]
    >>> simulate(gpipe(2, 4), footprints=huge).peak_bytes()       # W and one sum of dW
    [8000136000000, 136000104]
    """
    patterns = [one_of("patterns", pattern, PATTERNS) for pattern in listed("patterns", patterns)]
    layers, m = checked_layers(layers), whole_number("m", m, 1)
    if isinstance(loss, (type, Layer)) or not hasattr(loss, "backward"):
        raise ValueError(
            f"loss is {shown(loss)}, but a backward begins at the loss: pass one, such as MeanSquaredError()"
        )
    if isinstance(stages, Cut) and isinstance(stages.by, str) and stages.by == "time":
        raise ValueError(
            "by='time' measures, which takes numbers: use by='macs', or Cut(counts), with the list of counts "
            "that `partition` has found"
        )
    if optimizer is not None:
        checked_optimizer(optimizer)
    dtype = floats(dtype)
    description, loss = describe(layers, input_shape, dtype), copy.copy(loss)

    def sample(m):
        X = MetaArray((*description.input_shape, m), dtype)
        if layers[0].takes == "tokens":  # an embedding reads their numbers
            X = np.zeros(X.shape)
        return X, MetaArray((*description.rows[-1].output_shape, m), dtype)

    counts = counts_for(stages, layers, loss, sample(1))
    layers = [layer.copy(dtype.type) for layer in layers]
    of_stages = stages_of(cut_into_stages(layers, counts), loss)
    try:
        for layer in layers:
            layer.initialize(NoNumbers(), dtype)
        performed = {pattern: one_micro_batch(of_stages, pattern, *sample(m)) for pattern in patterns}
    except (TypeError, AttributeError, IndexError) as error:
        raise ValueError(
            f"a layer or the loss cannot be counted without numbers: {error}. Use functions that arrays "
            "without numbers know, see minipipe.meta, or mp.measure, which runs the layers with numbers"
        ) from error
    return footprints_of(of_stages, performed, optimizer)


class NoNumbers:
    """A generator of random numbers that draws none."""

    def standard_normal(self, size=(), dtype="float64"):
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)
