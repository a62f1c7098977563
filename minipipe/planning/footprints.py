"""The bytes that each stage of a network needs for a micro-batch, by arrays without numbers."""

import copy
import pickle
from itertools import accumulate, pairwise

import numpy as np

from ..arrays import floats
from ..checks import listed, one_of, shown, whole_number
from ..description import describe
from ..layers import Layer, every_layer
from ..layers.layer import checked_layers
from ..meta import MetaArray
from ..optimizers import checked_optimizer
from ..parallel.options import Cut
from ..parallel.stage import stages_of
from ..partitioning.partition import cut_into_stages
from .measuring import (
    PATTERNS, counts_for, footprint, in_network, one_micro_batch, received, sends_back, skips_across,
)


def footprints(
    layers, loss, stages, input_shape, m, dtype="float64", optimizer=None, patterns=PATTERNS,
):
    """Return the `Footprint` of each stage for micro-batches of m samples: a list for `simulate`.

    layers: a list of them.
    loss: an object, such as MeanSquaredError(): a backward begins at the loss.
    stages: K, the parts that the layers are cut into; or a `Cut`, which needs no sample; "time" takes
        numbers, and is refused.
    input_shape: of one sample, such as (64,) or (3, 32, 32).
    m: the samples of a micro-batch.
    dtype: of the parameters and of X.
    optimizer: what it keeps for each parameter counts, too, as it does from its first update on.
    patterns: the orders of actions that a micro-batch may go through on a stage; fewer take less time.

    Gradients are summed along the tree; `footprint._replace(accumulate="running")` is for sums in one buffer,
    as for `Sums`. A network with a `grain` keeps more sums than this.

    They are the bytes at the start and the end of each action; a layer needs more for a moment in between.
    `measure` finds the same, but here no parameter is drawn and no array made, so the network may
    be larger than this computer: the layers' own forward and backward work with arrays that have a shape and
    no numbers, see `minipipe.meta`. Raises `ValueError` for what does not fit.

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
    layers = checked_layers(layers)
    network = WithoutNumbers(layers, loss, input_shape, dtype, optimizer)
    if isinstance(stages, Cut) and isinstance(stages.by, str) and stages.by == "time":
        raise ValueError(
            "by='time' measures, which takes numbers: use by='macs', or Cut(counts), with the list of counts "
            "that `partition` has found"
        )
    counts = counts_for(stages, layers, network.loss, network.sample(1))
    return network.footprints(counts, whole_number("m", m, 1), patterns)


# What a network without numbers needs: a generator that draws nothing, and errors that name the layer.

class NoNumbers:
    """A generator of random numbers that draws none."""

    def standard_normal(self, size=(), dtype="float64"):
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


def say_who_fails(owner, methods, name=None):
    """Wrap `methods` of a layer or loss: a `ValueError` names the one that needs numbers, with a remedy.

    name: of the owner in the error; None: its code.
    Of layers within layers, the innermost is named: the `ValueError` that it raises passes through the
    others.
    """
    def saying(method):
        def called(*arguments):
            try:
                return method(*arguments)
            except (TypeError, AttributeError, IndexError) as error:
                who = name or repr(owner)
                raise ValueError(
                    f"{who} cannot be counted without numbers: {error}. Use functions that arrays without "
                    "numbers know, see minipipe.meta, or mp.measure, which runs the layers with numbers"
                ) from error
        return called

    for method in methods:
        setattr(owner, method, saying(getattr(owner, method)))


# The network.

class WithoutNumbers:
    """A network of arrays without numbers, of which any cut can be counted.

    layers, loss, input_shape, dtype, optimizer: as for `footprints`.

    Stages that are equal are counted once.
    """

    def __init__(self, layers, loss, input_shape, dtype, optimizer):
        if isinstance(loss, (type, Layer)) or not hasattr(loss, "backward"):
            raise ValueError(
                f"loss is {shown(loss)}, but a backward begins at the loss: pass one, such as "
                "MeanSquaredError()"
            )
        if optimizer is not None:
            checked_optimizer(optimizer)
        dtype = floats(dtype)
        self.description = describe(layers, input_shape, dtype)
        outputs = [
            row.output_shape[0] if layer.fork else row.output_shape  # the other one is what a Fork puts aside
            for layer, row in zip(layers, self.description.rows)
        ]
        self.shapes = [self.description.input_shape, *outputs]
        self.skips = {layer.fork: shape for layer, shape in zip(layers, self.shapes) if layer.fork}
        self.names = list(map(_name, layers))
        self.layers = [layer.copy(dtype.type) for layer in layers]  # initialized in stages that are counted
        self.loss, self.dtype, self.optimizer = copy.copy(loss), dtype, optimizer
        for layer in every_layer(self.layers):
            say_who_fails(layer, ("initialize", "forward", "backward_input", "backward_weight"))
        say_who_fails(self.loss, ("forward", "backward"), "the loss")
        self.known = {}

    def footprints(self, counts, m, patterns):
        """Return the `Footprint` of each stage s, of `counts[s]` layers, for micro-batches of m samples."""
        found = []
        coming_back = dict.fromkeys(patterns)  # to a stage, in each pattern; None to the last
        for stage, shape, key in reversed(self._stages(counts, m)):
            of_pattern = {}
            for pattern in patterns:
                of_pattern[pattern], coming_back[pattern] = self._counted(
                    stage, shape, key, m, pattern, coming_back[pattern]
                )
            actions = {pattern: counted.actions[pattern] for pattern, counted in of_pattern.items()}
            found.append(of_pattern[patterns[-1]]._replace(actions=actions))
        return in_network(found[::-1], counts)

    def sample(self, m):
        """Return (X, Y) of m samples."""
        X, Y = (arrays(shape, m, self.dtype) for shape in (self.shapes[0], self.shapes[-1]))
        if self.layers[0].takes == "tokens":  # an embedding reads their numbers
            X = np.zeros(X.shape)
        return X, Y

    def _stages(self, counts, m):
        """Return [(stage, shape of its inputs, a key that equal stages share)]."""
        found = []
        stages, ends = stages_of(cut_into_stages(self.layers, counts), self.loss), accumulate([0, *counts])
        for stage, (start, end) in zip(stages, pairwise(ends)):
            shape = self.shapes[start]
            given = repr((shape, self._arriving(stage, m)))
            found.append((stage, shape, (stage.index == 0, *self.names[start:end], m, given)))
        return found

    def _counted(self, stage, shape, key, m, pattern, dA):
        """Return (the `Footprint` of a stage, what it sends back).

        shape: of its inputs.
        key: that of `_stages`.
        dA: the derivative that it receives; None for the last stage.
        """
        key = *key, pattern, repr(dA)
        if key not in self.known:
            performed = self._performed(stage, shape, m, pattern, dA)
            counted = footprint(stage, {pattern: performed}, self.optimizer)
            sent_back = performed[sends_back(pattern), stage.index].sent
            self.known[key] = counted, received(sent_back)
        return self.known[key]

    def _arriving(self, stage, m):
        """Return {(message, name): what this skip connection brings to the stage}, forward and backward."""
        forks, joins = skips_across(stage.layers)
        places = [*(("F", name) for name in joins), *(("B", name) for name in forks)]
        return {(message, name): arrays(self.skips[name], m, self.dtype) for message, name in places}

    def _performed(self, stage, shape, m, pattern, dA):
        """Run `one_micro_batch` for this stage alone; it must send what the next one is counted with."""
        for layer in stage.layers:
            layer.initialize(NoNumbers(), self.dtype)
        A_prev = arrays(shape, m, self.dtype) if stage.index else None
        arriving = self._arriving(stage, m)
        performed = one_micro_batch([stage], pattern, *self.sample(m), A_prev, dA, arriving)
        if stage.loss is None:
            last = stage.layers[-1]
            expected = arrays(self.shapes[1 + self.layers.index(last)], m, self.dtype)
            sent = performed["F", stage.index].sent
            if repr(sent) != repr(expected):
                raise ValueError(
                    f"{last!r} ends a stage with {sent!r}, but output_shape and the dtype of X say "
                    f"{expected!r}: make them agree, and let constants have the dtype of A_prev"
                )
        return performed


def arrays(shape, m, dtype):
    """Return an array without numbers for m samples of `shape`; for a pair of shapes, two."""
    if shape and isinstance(shape[0], tuple):
        return tuple(arrays(part, m, dtype) for part in shape)
    return MetaArray((*shape, m), dtype)


def _name(layer):
    """Return bytes that equal layers share, or else the layer's id."""
    try:
        return pickle.dumps(layer)
    except (pickle.PicklingError, AttributeError, TypeError):  # its class stands in a function, for instance
        return id(layer)
