"""The bytes that the stages of any cut of a network need for a micro-batch, counted in arrays without numbers."""

import pickle
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import numpy as np

from ..description import describe
from ..functions import whole_number
from ..layers import Embedding, Layer, every_layer
from ..meta import MetaArray
from ..optimizers import checked_optimizer
from .one_microbatch import PATTERNS, footprint, in_network, n_bytes_of, one_micro_batch, received, skips_across, stages_of
from ..partitioning.partition import counts_of


def footprints(layers, loss, n_stages, input_shape, m, partition=None, dtype=np.float64, optimizer=None, patterns=PATTERNS):
    """The `Footprint` of each stage for micro-batches of m samples, without any numbers: a list for `simulate`.

    input_shape: of one sample, such as (64,) or (3, 32, 32). dtype: of the parameters and of X. partition: as for `Pipeline`, but
    "time". optimizer: what it keeps for each parameter counts, too, as it does from its first update on. patterns: the orders
    of actions that a micro-batch may go through on a stage; fewer take less time.

    The bytes are those that `measure` finds, but no parameter is drawn and no array made, so the network may be larger than
    this computer: the layers' own forward and backward work with arrays that have a shape and no numbers, see
    `minipipe.meta`. Raises `ValueError` for what does not fit.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> huge = footprints([Linear(10**6, 10**6), Linear(10**6, 1)], MeanSquaredError(), 2, (10**6,), m=8, dtype=np.float32)
    >>> [footprint.parameters / 1e12 for footprint in huge]                   # terabytes: 4 * (10**12 + 10**6)
    [4.000004, 4.000004e-06]
    >>> from minipipe.planning import simulate
    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(2, 4), footprints=huge).peak_bytes()                   # on device 0, W and two partial sums of dW
    [12000076000000, 136000104]
    """
    if whole_number("n_stages", n_stages) < 1:
        raise ValueError(f"n_stages={n_stages} must be at least 1")
    if isinstance(partition, str) and partition == "time":
        raise ValueError("partition='time' measures, which takes numbers: use 'macs', or the list that `partition` has found")
    patterns, layers = _checked_patterns(patterns), checked_layers(layers)
    network = WithoutNumbers(layers, loss, input_shape, dtype, optimizer)
    return network.footprints(counts_of(partition, layers, n_stages, network.sample(1), loss), m, patterns)


class Kept(NamedTuple):
    """The bytes that a stage keeps of a micro-batch: its input, if it will recompute the forward, or the caches after it."""

    input: int
    caches: int


class WithoutNumbers:
    """A network of arrays without numbers, of which any cut can be counted. Stages that are alike are counted once.

    description: that of `describe`. The bytes of an array with m columns grow evenly with m, and others know nothing of m. So
    for many samples the counts are made of those for 2 and for 3, which takes less time for images. (m = 1 is a case of its
    own: there, copies may be views.)
    """

    def __init__(self, layers, loss, input_shape, dtype, optimizer):
        if isinstance(loss, type) or not hasattr(loss, "backward"):
            raise ValueError(f"loss is {loss!r}, but a backward begins at the loss: pass one, such as MeanSquaredError()")
        if optimizer is not None:
            checked_optimizer(optimizer)
        self.description = describe(layers, input_shape, dtype)
        if self.description.dtype.kind != "f":
            raise ValueError(f"dtype={dtype} must be one of floats, such as np.float32")
        of_layers = zip(layers, self.description.rows)
        outputs = [row.output_shape[0] if layer.fork else row.output_shape for layer, row in of_layers]  # a Fork puts a copy aside
        self.shapes = [self.description.input_shape, *outputs]
        self.skips = {layer.fork: shape for layer, shape in zip(layers, self.shapes) if layer.fork}
        self.names = list(map(_name, layers))
        self.layers = [layer.copy() for layer in layers]  # initialized in those stages that are counted
        self.loss, self.dtype, self.optimizer = loss, dtype, optimizer
        self.known = {}

    def footprints(self, counts, m, patterns=PATTERNS):
        """The `Footprint` of each stage for micro-batches of m samples, if `counts[s]` layers are in stage s."""
        return of_samples(m, lambda m: self._footprints(counts, m, patterns))

    def kept(self, counts, m):
        """What each stage has `Kept` of a micro-batch of m samples after its forward; the last stage's caches include the loss's.

        `footprints` say the same, but take longer: here, no stage goes backward.
        """
        return of_samples(m, lambda m: self._kept(counts, m), few=4)

    def sample(self, m):
        """(X, Y) of m samples."""
        X, Y = (arrays(shape, m, self.dtype) for shape in (self.shapes[0], self.shapes[-1]))
        if isinstance(next(layer for layer in every_layer(self.layers) if not layer.layers), Embedding):
            X = np.zeros(X.shape)  # tokens are looked at
        return X, Y

    def _stages(self, counts, m):
        """[(stage, shape of its inputs, a key that is the same for stages of equal layers)]"""
        ends = [0, *accumulate(counts)]
        return [
            (stage, self.shapes[start], (stage.index == 0, *self.names[start:end], m, repr((self.shapes[start], self._arriving(stage, m)))))
            for stage, start, end in zip(stages_of(self.layers, self.loss, counts), ends, ends[1:])
        ]

    def _footprints(self, counts, m, patterns):
        found, arriving = [], dict.fromkeys(patterns)  # what comes back to a stage in each pattern, None to the last
        for stage, shape, alike in reversed(self._stages(counts, m)):
            of_patterns = []
            for pattern, dA in arriving.items():
                key = *alike, pattern, repr(dA)
                if key not in self.known:
                    self.known[key] = self._counted(stage, shape, m, pattern, dA)
                of_pattern, arriving[pattern] = self.known[key]
                of_patterns.append(of_pattern)
            found.append(of_pattern._replace(actions={pattern: of.actions[pattern] for pattern, of in zip(patterns, of_patterns)}))
        return in_network(found[::-1], counts)

    def _kept(self, counts, m):
        found = []
        for stage, shape, alike in self._stages(counts, m):
            key = *alike, stage.loss is None
            if key not in self.known:
                A_prev = arrays(shape, m, self.dtype) if stage.index else self.sample(m)[0]
                performed = self._performed(stage, shape, m, "F")
                self.known[key] = Kept(n_bytes_of(A_prev), performed["F", stage.index].held["caches"])
            found.append(self.known[key])
        return found

    def _counted(self, stage, shape, m, pattern, dA):
        """(Footprint, what it sends back) of one stage, which gets inputs of `shape`, and dA from behind."""
        performed = self._performed(stage, shape, m, pattern, dA)
        sent_back = performed["B" if "B" in pattern else "I", stage.index].sent
        return footprint(stage, {pattern: performed}, self.optimizer), received(sent_back)

    def _arriving(self, stage, m):
        """What skip connections bring to a stage, forward and backward."""
        forks, joins = skips_across(stage.layers)
        places = [*(("F", name) for name in joins), *(("B", name) for name in forks)]
        return {(way, name): arrays(self.skips[name], m, self.dtype) for way, name in places}

    def _performed(self, stage, shape, m, pattern, dA=None):
        A_prev = arrays(shape, m, self.dtype) if stage.index else None
        with _names_the_layer():
            for layer in stage.layers:
                layer.initialize(_NoNumbers(), self.dtype)
            performed = one_micro_batch([stage], pattern, *self.sample(m), A_prev, dA, self._arriving(stage, m))
        if stage.loss is None:
            last = stage.layers[-1]
            _check_sent(performed["F", stage.index].sent, arrays(self.shapes[1 + self.layers.index(last)], m, self.dtype), last)
        return performed


def arrays(shape, m, dtype):
    """An array without numbers for m samples of `shape`; for a pair of shapes, two."""
    if shape and isinstance(shape[0], tuple):
        return tuple(arrays(part, m, dtype) for part in shape)
    return MetaArray((*shape, m), dtype)


def of_samples(m, count, few=3):
    """count(m), which for more than a few samples is made of count(2) and count(3).

    few: 3, if there will be counts for several m, which then share these two; 4, if not: that takes less time than both.

    >>> of_samples(6, lambda m: [100 + 8 * m])
    [148]
    """
    m = whole_number("m", m)
    if m < 1:
        raise ValueError(f"m={m} must be at least 1")
    return count(m) if m <= few else evenly(m, count(2), count(3))


def evenly(m, two, three):
    """The numbers for m, where `two` and `three` have those for 2 and for 3.

    >>> evenly(4, [10, {"F": (0, 5)}], [12, {"F": (0, 8)}])
    [14, {'F': (0, 11)}]
    """
    if isinstance(two, dict):
        return {key: evenly(m, two[key], three[key]) for key in two}
    if isinstance(two, (list, tuple)):
        parts = [evenly(m, *pair) for pair in zip(two, three, strict=True)]
        return type(two)(*parts) if hasattr(two, "_fields") else type(two)(parts)
    return two + (m - 2) * (three - two)


def checked_layers(layers):
    """`layers` as a list."""
    found = list(layers) if hasattr(layers, "__iter__") else []
    if not found:
        raise ValueError(f"layers={layers!r} must be a list of at least 1 layer, such as [Linear(2, 3), ReLU()]")
    return found


def _checked_patterns(patterns):
    found = list(patterns) if hasattr(patterns, "__iter__") and not isinstance(patterns, str) else []
    if not found or any(pattern not in PATTERNS for pattern in found):
        raise ValueError(f"patterns={patterns!r} must be a list out of {', '.join(PATTERNS)}")
    return found


def _check_sent(sent, expected, layer):
    """What a stage sends is what the next one is counted with."""
    if repr(sent) != repr(expected):
        raise ValueError(
            f"{layer!r} ends a stage with {sent!r}, but output_shape and the dtype of X say {expected!r}: make them agree, and let "
            "constants have the dtype of A_prev"
        )


@contextmanager
def _names_the_layer():
    """An error of a layer that is not made for arrays without numbers says which layer, and what to do."""
    try:
        yield
    except (TypeError, AttributeError, IndexError) as error:
        name, place = "the loss", error.__traceback__
        while place is not None:
            owner, place = place.tb_frame.f_locals.get("self"), place.tb_next
            name = repr(owner) if isinstance(owner, Layer) else name
        raise ValueError(
            f"{name} cannot be counted without numbers: {error}. Use functions that arrays without numbers know, see minipipe.meta, "
            "or mp.measure, which runs the layers with numbers"
        ) from error


class _NoNumbers:
    """A generator of random numbers that draws none."""

    def standard_normal(self, size=(), dtype=np.float64):
        return MetaArray(size, dtype)

    def __getattr__(self, name):
        return getattr(np.random.default_rng(0), name)


def _name(layer):
    """The same for layers that are alike."""
    try:
        return pickle.dumps(layer)
    except (pickle.PicklingError, AttributeError, TypeError):  # of a layer made inside a function, for instance
        return id(layer)
