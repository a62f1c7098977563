"""Random networks, mini-batches and pipelines for the property tests."""

import math
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from layers.every_layer import ALONE, LAYERS, TOKENS
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import rational
from minipipe.layers.activations import Elementwise
from minipipe.schedules import RECOMPUTE, Action, Overlap, Schedule, build_for_stages, names_for_stages
from minipipe.verification.rounding import FORWARD
from minipipe.verification.rounding import LOSSES as ROUNDING_OF_LOSSES

LABELS = {type(loss): labels for loss, labels in mp.losses.LOSSES.examples().values()}
LOSSES = [loss for loss, _ in mp.losses.LOSSES.examples().values()]
BOUNDED_LOSSES = [loss for loss in LOSSES if type(loss) in ROUNDING_OF_LOSSES]
ACTIVATIONS = [layer for layer, _ in LAYERS.values() if isinstance(layer, (Elementwise, mp.Softmax))]
BOUNDED = [layer for layer in ACTIVATIONS if type(layer) in FORWARD]  # those that have a rounding bound
# rational numbers grow long in larger ones
SMALL = [name for name in ALONE if math.prod(LAYERS[name][1]) <= 9]


class Case(NamedTuple):
    """A network with its loss, the size of its mini-batch, and one way to run it in a pipeline."""

    layers: list
    loss: object
    m: int
    partition: list
    n_microbatches: int
    schedule: str
    recompute: str
    seed: int

    def pipeline(self, layers, accumulate="tree"):
        return mp.Pipeline(
            layers, self.loss, len(self.partition), self.n_microbatches, self.schedule, self.recompute,
            partition=self.partition, accumulate=accumulate,
        )

    def random(self, dtype):
        """(layers, X, Y) with normally distributed numbers."""
        rng = np.random.default_rng(self.seed)
        layers = mp.Sequential(self.layers, self.loss, seed=self.seed, dtype=dtype).layers
        n_first, n_last = layers[0].n_prev, next(layer.n for layer in reversed(layers) if layer.W is not None)
        if LABELS[type(self.loss)] == "classes":
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
        return (
            [layer.copy(lambda p: np.sign(p).astype(dtype)) for layer in layers],
            np.clip(np.round(X), -2, 2).astype(dtype),
            Y.astype(dtype),
        )


def eighths(array):
    """Rational numbers with 8 below the line, near those of `array`."""
    return rational(np.round(8 * array) / 8)


@st.composite
def cases(draw, representable=False, activations=ACTIVATIONS, losses=LOSSES):
    """Networks of 1 to 3 weight layers; `representable` ones need no rounding on small whole numbers."""
    sizes = draw(st.lists(st.integers(1, 3), min_size=2, max_size=4))
    activations = [mp.ReLU()] if representable else activations
    layers = []
    for n_prev, n in pairwise(sizes):
        layers.append(mp.Linear(n_prev, n))
        if draw(st.booleans()):
            layers.append(draw(st.sampled_from(activations)))
    loss = draw(st.sampled_from([mp.MeanSquaredError()] if representable else losses))
    if loss.takes == "probabilities":
        layers.append(mp.Sigmoid())
    m = draw(st.sampled_from([1, 2, 4, 8, 16])) if representable else draw(st.integers(1, 9))
    return Case(layers, loss, m, *draw(cuts(len(layers), most=m)), draw(st.integers(0, 999)))


class Data(NamedTuple):
    """A network with a mini-batch of floats or tokens, and the most micro-batches that it can be cut into."""

    layers: list
    X: np.ndarray
    Y: np.ndarray
    n_microbatches: int
    has_batch_norm: bool

    def converted(self, number):
        """(layers, X, Y) with other numbers; `number(array)` converts, as `eighths` and `np.float32` do."""
        return [layer.copy(number) for layer in self.layers], number(self.X), number(self.Y)


@st.composite
def networks_with(draw, name):
    """`Data` for a network with this layer of `every_layer.LAYERS` and a small one, in this order
    or the other.

    Before each of them, a Linear and a Reshape make a sample of the shape that it takes; one that takes
    tokens is the first.
    """
    other = draw(st.sampled_from([name for name in SMALL if name not in TOKENS]))
    names = [name, other] if name in TOKENS else draw(st.permutations([name, other]))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    m = draw(st.integers(2, 4))
    if name in TOKENS:
        X = rng.integers(0, TOKENS[name], (*LAYERS[name][1], m))
    else:
        X = rng.standard_normal((2, m))
    network, width = [], 2
    for part in names:
        layer, shape = LAYERS[part]
        if part not in TOKENS:
            network += [mp.Linear(width, math.prod(shape)), mp.Reshape(shape)]
        network += [layer, mp.Flatten()]
        width = math.prod(layer.output_shape((*shape, m))[:-1])
    layers = mp.Sequential([*network, mp.Linear(width, 2)], None).layers
    has_batch_norm = not all(layer.alone_per_sample for layer in layers)
    most = m // 2 if has_batch_norm else m  # one sample may have no variance
    return Data(layers, X, rng.standard_normal((2, m)), most, has_batch_norm)


@st.composite
def neighbours_of(draw, name):
    """`Data` for this layer of `every_layer.LAYERS` directly between two Linear, which act at each position.

    A layer that takes tokens is the first, and has one behind it.
    """
    layer, shape = LAYERS[name]
    rng, m = np.random.default_rng(draw(st.integers(0, 999))), draw(st.integers(2, 9))
    output_shape = layer.output_shape((*shape, m))
    layers = [layer, mp.Linear(output_shape[0], 2)]
    if name in TOKENS:
        X = rng.integers(0, TOKENS[name], (*shape, m))
    else:
        layers.insert(0, mp.Linear(1, shape[0]))
        X = rng.standard_normal((1, *shape[1:], m))
    layers = mp.Sequential(layers, None).layers
    has_batch_norm = not all(layer.alone_per_sample for layer in layers)
    Y = rng.standard_normal((2, *output_shape[1:]))
    return Data(layers, X, Y, m // 2 if has_batch_norm else m, has_batch_norm)


@st.composite
def cases_with_skips(draw, layers=("linear", "bend", "normal", "drop", "block")):
    """Networks with one to four skip connections by name, of both kinds, that may nest, overlap,
    and cross any cut; often with tied weights. The width changes with each Join by concatenation,
    and the next Linear may change it again.
    """
    network, width, forks, n_names = [mp.Linear(2, 2)], 2, {}, 0
    for _ in range(draw(st.integers(2, 7))):
        kind = draw(st.sampled_from(["fork", "join", "layer"]))
        if (kind == "fork" and n_names < 4) or not n_names:
            n_names += 1
            forks[f"skip {n_names}"] = width
            network.append(mp.Fork(f"skip {n_names}"))
        elif kind == "join" and forks:
            width = _join(draw, network, width, forks)
        else:
            layer, width = draw(_layers_of_width(width, layers))
            network.append(layer)
    while forks:
        width = _join(draw, network, width, forks)
    network.append(mp.Linear(width, 2))
    if draw(st.booleans()):
        _tie(draw, network)
    m = draw(st.integers(1, 6))
    loss = draw(st.sampled_from([mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()]))
    return Case(network, loss, m, *draw(cuts(len(network), most=m)), draw(st.integers(0, 999)))


def _join(draw, network, width, forks):
    """Append a Join for one of the open `forks`; returns the width behind it."""
    name = draw(st.sampled_from(sorted(forks)))
    width_of_skip = forks.pop(name)
    how = draw(st.sampled_from(["add", "concat"])) if width == width_of_skip else "concat"
    network.append(mp.Join(name, how))
    return width if how == "add" else width + width_of_skip


@st.composite
def _layers_of_width(draw, width, kinds):
    """(a layer that takes `width` rows, the number of rows that it returns)"""
    n = draw(st.integers(1, 3))
    layer, width = {
        "linear": (mp.Linear(width, n), n),
        "bend": (draw(st.sampled_from([mp.ReLU(), mp.Tanh(), mp.LeakyReLU()])), width),
        "normal": (draw(st.sampled_from([mp.LayerNorm(width), mp.GroupNorm(1, width)])), width),
        "drop": (mp.Dropout(0.25), width),
        "block": draw(st.sampled_from([
            (mp.Residual(mp.Linear(width, 1), mp.ReLU(), mp.Dropout(0.5), mp.Linear(1, width)), width),
            (mp.Concat([], [mp.Linear(width, 1), mp.Tanh()]), width + 1),
            (mp.Add([mp.Linear(width, 2)], [mp.LayerNorm(width), mp.Linear(width, 2)]), 2),
        ])),
    }[draw(st.sampled_from(kinds))]
    return layer, width


def _tie(draw, network):
    """Give all Linear layers of one shape, of which there are several, one name."""
    shapes = [layer.parameter_shapes()[0] for layer in network if isinstance(layer, mp.Linear)]
    several = sorted(shape for shape in set(shapes) if shapes.count(shape) > 1)
    if several:
        shape = draw(st.sampled_from(several))
        for layer in network:
            if isinstance(layer, mp.Linear) and layer.parameter_shapes()[0] == shape:
                layer.tie = "tied"


@st.composite
def cuts(draw, n_layers, most, modes=tuple(RECOMPUTE)):
    """(partition, M, schedule, recompute) for a pipeline of so many layers with up to `most` micro-batches.
    """
    partition, n_microbatches = draw(compositions(n_layers)), draw(st.integers(1, most))
    return (
        partition,
        n_microbatches,
        draw(st.sampled_from(names_for_stages(len(partition), n_microbatches))),
        draw(st.sampled_from(modes)),
    )


@st.composite
def compositions(draw, total):
    """`total` as a list of positive parts: where to cut a network of `total` layers."""
    cuts = sorted(draw(st.sets(st.integers(1, total - 1)))) if total > 1 else []
    return [stop - start for start, stop in zip([0, *cuts], [*cuts, total])]


@st.composite
def valid_schedules(draw, n_stages, n_microbatches):
    """Any schedule that can run: a random order in which each action comes after those that it needs.

    Several stages may share a device, there may be two copies of the network, some backwards are in halves,
    others whole, and one that could have run before the forward that it follows may overlap with it.
    """
    copy_of = draw(st.sampled_from([(), tuple(i % 2 for i in range(n_microbatches))]))
    devices = st.lists(st.integers(0, n_stages - 1), min_size=n_stages, max_size=n_stages)
    placements = [draw(devices) for _ in range(1 + max(copy_of, default=0))]
    orders = {device: [] for device in sorted(set(sum(placements, [])))}
    done, left = (
        {("F", -1, i) for i in range(n_microbatches)} | {("I", n_stages, i) for i in range(n_microbatches)},
        [],
    )
    for stage in range(n_stages):
        for i in range(n_microbatches):
            left += [Action(kind, stage, i) for kind in draw(st.sampled_from(["FB", "FIW"]))]
    before = None
    while left:
        action = draw(st.sampled_from([action for action in left if _needs(action) <= done]))
        left.remove(action)
        order = orders[placements[copy_of[action.microbatch] if copy_of else 0][action.stage]]
        follows = before is not None and before.kind == "F" and order and order[-1] is before
        if (
            follows
            and action.kind == "B"
            and _needs(action) <= done - {tuple(before)}
            and draw(st.booleans())
        ):
            order.append(Overlap(order.pop(), action))
        else:
            order.append(action)
        before = action
        done |= {("I", *action[1:]) if action.kind == "B" else tuple(action)}
    return Schedule(tuple(map(tuple, orders.values())), n_stages, n_microbatches, copy_of=copy_of)


def _needs(action):
    kind, stage, i = action
    return {"F": {("F", stage - 1, i)}, "W": {("I", stage, i)}}.get(
        kind, {("F", stage, i), ("I", stage + 1, i)}
    )


def every_setting(n_layers, n_microbatches):
    """(partition, schedule, recompute) for every schedule with a name and several partitions;
    orders with two names come once.
    """
    partitions = [[n_layers], [1, n_layers - 1], [n_layers - 1, 1], [1] * n_layers] if n_layers > 1 else [[1]]
    for partition in partitions:
        sizes = len(partition), n_microbatches
        schedules = [build_for_stages(name, *sizes) for name in names_for_stages(*sizes)]
        for schedule in {replace(schedule, name=""): schedule for schedule in schedules}.values():
            for recompute in (False, True):
                yield partition, schedule, recompute
