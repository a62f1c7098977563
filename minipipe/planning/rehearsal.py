"""A run of any split of any network, in which there are only arrays without numbers."""

from itertools import product

import numpy as np

from ..arguments import argument
from ..checks import function
from ..layers import every_layer
from ..layers.layer import checked_layers
from ..meta import MetaArray
from ..parallel import Parallel
from .no_numbers import NoNumbers
from .without_numbers import WithoutNumbers


def rehearse(build, layers, loss, input_shape, m, dtype="float64", optimizer=None):
    """The `Trace` of a mini-batch of m samples in the network `build(layers, loss)`, foreseen.

    build: build(layers, loss) makes it: a `Pipeline`, `DataParallel`, `TensorParallel` or `Parallel`.
    layers, loss: of the network; it is handed layers whose parameters are arrays without numbers.
    input_shape: of one sample, such as (64,) or (3, 32, 32).
    dtype: of the parameters and of X; pass it to the network, too.
    optimizer: what `step` or `train` is called with; what it keeps counts, as from the first update on.
        Left out, the mini-batch is the first one, which an order that makes the updates itself cannot be.

    The network runs its own programs, so ticks, messages and the bytes that each device holds are those of a
    training, for all splits and all orders; but nothing is computed, no parameter is drawn, and no array is
    made, so it may be larger than this computer. Raises `ValueError` for what does not fit.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> from minipipe.parallel import TensorParallel
    >>> layers = [Linear(10**6, 10**6), ReLU(), Linear(10**6, 10**6)]
    >>> build = lambda layers, loss: TensorParallel(layers, loss, n_shards=8)
    >>> trace = rehearse(build, layers, MeanSquaredError(), (10**6,), m=4)
    >>> [n_bytes / 1e12 for n_bytes in trace.peak_bytes(["parameters"])[:2]]     # 8 bytes of 2 * 10**12 / 8
    [2.000009, 2.000009]
    """
    m = argument("m", m)
    known = WithoutNumbers(checked_layers(layers), loss, input_shape, dtype, optimizer)
    network, batch = function("build", build)(without_arrays(layers, dtype), loss), known.sample(m)
    if not isinstance(network, Parallel):
        raise ValueError(
            f"build returns a {type(network).__name__}, which has no devices: return a Pipeline, "
            "DataParallel, TensorParallel or Parallel"
        )
    if optimizer is None:
        if network.has_updates:
            raise ValueError(
                f"the order of {network.schedule.name!r} updates the stages itself: pass optimizer=..., such "
                "as SGD(learning_rate=0.1)"
            )
        network.run_to_the_end(network.schedule, [batch])
        return network.trace
    optimizer = optimizer.fresh()
    network.check_training(optimizer)
    for _ in range(2):
        network.run_to_the_end(network.schedule, [batch], optimizer if network.has_updates else None)
        if not network.has_updates:
            network.step(optimizer)
    return network.trace


def without_arrays(layers, dtype):
    """Copies of `layers`, whose parameters are arrays without numbers."""
    layers = [layer.copy() for layer in layers]
    for layer in layers:
        layer.initialize(NoNumbers(), dtype)
    for layer, name in product(every_layer(layers), ("W", "b")):  # a scale of ones, for instance
        if isinstance(getattr(layer, name), np.ndarray):
            setattr(layer, name, MetaArray(getattr(layer, name).shape, dtype))
    return layers
