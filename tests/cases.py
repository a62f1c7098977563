"""Random networks, mini-batches and pipelines for the property tests."""

from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import rational
from minipipe.schedules import BUILDERS, Action, Schedule, build

LOSSES = {
    "mean squared error": mp.MeanSquaredError(),
    "softmax": mp.SoftmaxCrossEntropy(),
    "binary": mp.BinaryCrossEntropy(),
    "binary from logits": mp.BinaryCrossEntropy(from_logits=True),
}


BOUNDED = [mp.ReLU(), mp.Sigmoid(), mp.Tanh()]  # the activations that `verification.rounding_bounds` knows
ACTIVATIONS = [*BOUNDED, mp.LeakyReLU(), mp.GELU(), mp.SiLU(), mp.Softplus(), mp.Softmax()]


class Case(NamedTuple):
    """A network with its loss, the size of its mini-batch, and one way to run it in a pipeline."""

    layers: list
    loss: object
    m: int
    partition: list
    n_microbatches: int
    schedule: str
    recompute: bool
    seed: int

    def pipeline(self, layers):
        return mp.Pipeline(layers, self.loss, len(self.partition), self.n_microbatches, self.schedule, self.recompute,
                           partition=self.partition)

    def random(self, dtype):
        """(layers, X, Y) with normally distributed numbers."""
        rng = np.random.default_rng(self.seed)
        layers = mp.Sequential(self.layers, self.loss, seed=self.seed, dtype=dtype).layers
        n_first, n_last = layers[0].n_prev, next(layer.n for layer in reversed(layers) if layer.W is not None)
        if isinstance(self.loss, mp.SoftmaxCrossEntropy):
            Y = mp.one_hot(rng.integers(0, n_last, self.m), n_last)
        else:
            Y = rng.integers(0, 2, (n_last, self.m))
        return layers, rng.standard_normal((n_first, self.m)).astype(dtype), Y.astype(dtype)

    def exact(self):
        """The same as rational numbers with small denominators."""
        layers, X, Y = self.random(np.float64)
        return [layer.copy(eighths) for layer in layers], eighths(X), rational(Y)

    def whole(self, dtype):
        """The same with weights -1, 0, 1 and inputs -2..2. With ReLU, mean squared error, m a power of two up
        to 16, and at most 3 layers of at most 3 units, each value is a multiple of 1/(2m) and below 2^24 of
        them, so float32 holds every intermediate result exactly: |Z| <= 2 * 3 + 1, then 22, then 67, and
        2m J <= 16 * 3 * 68^2 < 2^18."""
        layers, X, Y = self.random(np.float64)
        return [layer.copy(lambda p: np.sign(p).astype(dtype)) for layer in layers], np.clip(np.round(X), -2, 2).astype(dtype), Y.astype(dtype)


def eighths(array):
    """Rational numbers with 8 below the line, near those of `array`."""
    return rational(np.round(8 * array) / 8)


@st.composite
def cases(draw, representable=False, activations=ACTIVATIONS):
    """Networks of 1 to 3 weight layers; `representable` ones need no rounding on small whole numbers."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    activations = [mp.ReLU()] if representable else activations
    layers = []
    for n_prev, n in zip(sizes, sizes[1:]):
        layers.append(mp.Linear(n_prev, n))
        if draw(st.booleans()):
            layers.append(draw(st.sampled_from(activations)))
    loss = LOSSES["mean squared error"] if representable else draw(st.sampled_from(list(LOSSES.values())))
    if loss is LOSSES["binary"]:
        layers.append(mp.Sigmoid())
    m = draw(st.sampled_from([1, 2, 4, 8, 16])) if representable else draw(st.integers(1, 9))
    return Case(
        layers, loss, m, draw(compositions(len(layers))), draw(st.integers(1, m)), draw(st.sampled_from(list(BUILDERS))),
        draw(st.booleans()), draw(st.integers(0, 999)),
    )


@st.composite
def compositions(draw, total):
    """`total` as a list of positive parts: where to cut a network of `total` layers."""
    cuts = sorted(draw(st.sets(st.integers(1, total - 1)))) if total > 1 else []
    return [stop - start for start, stop in zip([0, *cuts], [*cuts, total])]


@st.composite
def valid_schedules(draw, n_stages, n_microbatches):
    """Any schedule that can run: a random order in which each action comes after those that it needs."""
    orders = [[] for _ in range(n_stages)]
    done, left = set(), [Action(kind, s, i) for s in range(n_stages) for i in range(n_microbatches) for kind in "FB"]
    while left:
        possible = [
            action for action in left
            if (action.kind == "F" and (action.stage == 0 or Action("F", action.stage - 1, action.microbatch) in done))
            or (action.kind == "B" and Action("F", action.stage, action.microbatch) in done
                and (action.stage == n_stages - 1 or Action("B", action.stage + 1, action.microbatch) in done))
        ]
        action = draw(st.sampled_from(possible))
        left.remove(action)
        done.add(action)
        orders[action.stage].append(action)
    return Schedule(tuple(map(tuple, orders)), n_stages, n_microbatches)


def every_setting(n_layers, n_microbatches):
    """(partition, schedule, recompute) for every schedule with a name and several partitions."""
    partitions = [[n_layers], [1, n_layers - 1], [n_layers - 1, 1], [1] * n_layers] if n_layers > 1 else [[1]]
    for partition in partitions:
        for name in BUILDERS:
            for recompute in (False, True):
                yield partition, build(name, len(partition), n_microbatches), recompute
