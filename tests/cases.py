"""Random networks, mini-batches and pipelines for the property tests."""

import math
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from layers.every_layer import ALONE, LAYERS, TOKENS
from hypothesis import strategies as st
from settings import rounded

import minipipe as mp
from minipipe.arrays import converted
from minipipe.exact import rational
from minipipe.layers.activations import Elementwise
from minipipe.collectives import ALL_REDUCES
from minipipe.order import Action, Overlap, Schedule, in_copies, in_segments, with_all_reduce
from minipipe.schedules import build, names_for

LABELS = {type(loss): labels for loss, labels in mp.losses.LOSSES.examples().values()}
LOSSES = [loss for loss, _ in mp.losses.LOSSES.examples().values()]
ACTIVATIONS = [layer for layer, _ in LAYERS.values() if isinstance(layer, (Elementwise, mp.Softmax))]
# rational numbers grow long in larger ones
SMALL = [name for name in ALONE if math.prod(LAYERS[name][1]) <= 9]


class Case(NamedTuple):
    """A network, its loss and a mini-batch; least: how many samples each micro-batch must have."""

    layers: list
    loss: object
    X: np.ndarray
    Y: np.ndarray
    least: int

    @property
    def m(self):
        return self.X.shape[-1]

    def converted(self, number):
        """Return (layers, X, Y) with other numbers. number: converts an array, as `eighths` does.

        Floats need no `Rounding`, and without it a stage has our layers alone, whose gradients take up sums.
        """
        X, Y = converted(self.X, number), converted(self.Y, number)
        layers = [layer for layer in self.layers if X.dtype == object or not isinstance(layer, Rounding)]
        return [layer.copy(number) for layer in layers], X, Y


def case(layers, loss, X, Y, seed=0):
    """A `Case` whose weights are drawn; with batch norm, as one sample may have no variance, 2 at least."""
    layers = mp.Sequential(layers, None, seed=seed).layers
    return Case(layers, loss, X, Y, 1 if all(layer.alone_per_sample for layer in layers) else 2)


def labels(rng, loss, n, m):
    """Random Y for this loss: one of n classes, or n bits."""
    if LABELS[type(loss)] == "classes":
        return mp.one_hot(rng.integers(0, n, m), n)
    return rng.integers(0, 2, (n, m)).astype(float)


def eighths(array):
    """Rational numbers with 8 below the line, near those of `array`."""
    return rational(np.round(8 * array) / 8)


def exact(layers):
    """Return copies of layers in rational numbers, with weights that are drawn where there are none yet."""
    return [layer.copy(eighths) for layer in mp.Sequential(layers, None).layers]


class Rounding(Elementwise):
    """A = Z, and dZ = dA, with rational numbers rounded to 1/1024, so that they do not grow in each layer.

    A rounding is a function of one number, so exact equations of sums over samples stay exact. `Rounded` of
    `settings.py` is a ReLU that does so, too.
    """

    def forward(self, Z):
        return rounded(Z) if Z.dtype == object else Z

    backward_input = forward


@st.composite
def cases(draw, representable=False):
    """Networks of 1 to 3 weight layers; `representable` ones need no rounding, in float32 either.

    Their weights are -1, 0 and 1, their inputs -2..2. With ReLU, mean squared error and m a power of two up
    to 16, each value is a multiple of 1/(2m) and below 2^24 of them: |Z| <= 2 * 3 + 1, then 22, then 67,
    and 2m J <= 16 * 3 * 68^2 < 2^18.
    """
    sizes = [draw(st.sampled_from([2, 3, 1])) for _ in range(draw(st.sampled_from([3, 4, 2])))]
    activations = [mp.ReLU()] if representable else ACTIVATIONS
    layers = []
    for n_prev, n in pairwise(sizes):
        layers.append(mp.Linear(n_prev, n))
        if not draw(st.booleans()):
            layers.append(draw(st.sampled_from(activations)))
    loss = draw(st.sampled_from([mp.MeanSquaredError()] if representable else LOSSES))
    if loss.takes == "probabilities":
        layers.append(mp.Sigmoid())
    m = draw(st.sampled_from([4, 8, 2, 16, 1] if representable else [5, 7, 3, 4, 6, 2, 8, 9, 1]))
    seed = draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    drawn = case(layers, loss, rng.standard_normal((sizes[0], m)), labels(rng, loss, sizes[-1], m), seed)
    if representable:
        X = np.clip(np.round(drawn.X), -2, 2)
        return drawn._replace(layers=[layer.copy(np.sign) for layer in drawn.layers], X=X)
    return drawn


@st.composite
def networks_with(draw, name):
    """A `Case` of a network with this layer of `every_layer.LAYERS` and a small one, in this order
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
        network += [layer.copy(), mp.Flatten(), Rounding()]
        width = math.prod(layer.output_shape((*shape, m))[:-1])
    return case([*network, mp.Linear(width, 2)], mp.MeanSquaredError(), X, rng.standard_normal((2, m)))


@st.composite
def neighbours_of(draw, name):
    """A `Case` of this layer of `every_layer.LAYERS` directly between two Linear, which act at each position.

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
    return case(layers, mp.MeanSquaredError(), X, rng.standard_normal((2, *output_shape[1:])))


@st.composite
def cases_with_skips(draw):
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
            layer, width = draw(_layers_of_width(width))
            network.append(layer)
    while forks:
        width = _join(draw, network, width, forks)
    network.append(mp.Linear(width, 2))
    if draw(st.booleans()):
        _tie(draw, network)
    m = draw(st.sampled_from([4, 5, 3, 6, 2, 1]))
    loss = draw(st.sampled_from([mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()]))
    seed = draw(st.integers(0, 999))
    rng = np.random.default_rng(seed)
    return case(network, loss, rng.standard_normal((2, m)), labels(rng, loss, 2, m), seed)


def _join(draw, network, width, forks):
    """Append a Join for one of the open `forks`; returns the width behind it."""
    name = draw(st.sampled_from(sorted(forks)))
    width_of_skip = forks.pop(name)
    how = draw(st.sampled_from(["add", "concat"])) if width == width_of_skip else "concat"
    network.append(mp.Join(name, how))
    return width if how == "add" else width + width_of_skip


@st.composite
def _layers_of_width(draw, width):
    """(a layer that takes `width` rows, the number of rows that it returns)"""
    n = draw(st.integers(1, 3))
    kinds = {
        "linear": (mp.Linear(width, n), n),
        "bend": (draw(st.sampled_from([mp.ReLU(), mp.Tanh(), mp.LeakyReLU()])), width),
        "normal": (draw(st.sampled_from([mp.LayerNorm(width), mp.GroupNorm(1, width)])), width),
        "drop": (mp.Dropout(0.25), width),
        "block": draw(st.sampled_from([
            (mp.Residual(mp.Linear(width, 1), mp.ReLU(), mp.Dropout(0.5), mp.Linear(1, width)), width),
            (mp.Concat([], [mp.Linear(width, 1), mp.Tanh()]), width + 1),
            (mp.Add([mp.Linear(width, 2)], [mp.LayerNorm(width), mp.Linear(width, 2)]), 2),
        ])),
    }
    return kinds[draw(st.sampled_from(list(kinds)))]


def _tie(draw, network):
    """Give all Linear layers of one shape, of which there are several, one name."""
    shapes = [layer.parameter_shapes()[0] for layer in network if isinstance(layer, mp.Linear)]
    several = sorted(shape for shape in set(shapes) if shapes.count(shape) > 1)
    if several:
        shape = draw(st.sampled_from(several))
        for layer in network:
            if isinstance(layer, mp.Linear) and layer.parameter_shapes()[0] == shape:
                layer.tie = "tied"


SEQUENCES = [  # tokens in, a column of five logits for each place out
    [
        mp.Embedding(5, 4, tie="words"), mp.PositionalEmbedding(4, 3), mp.Dropout(0.25),
        mp.TransformerBlock(4, 2, 3, causal=True, dropout=0.5), mp.LayerNorm(4), mp.Linear(4, 5, tie="words"),
    ],
    [
        mp.Embedding(5, 2), mp.Fork("past"), mp.MultiHeadAttention(2, 1), mp.Join("past"), mp.Fork("far"),
        mp.Linear(2, 2), mp.Tanh(), mp.Join("far", "concat"), mp.GroupNorm(2, 4), mp.Linear(4, 5),
    ],
]


@st.composite
def sequences(draw, most=3):
    """Attention, dropout, tied words and skip connections; sequences of 2 places."""
    m = most - draw(st.integers(0, most - 1))
    rng = np.random.default_rng(m)
    tokens, Y = rng.integers(0, 5, (2, m)), mp.one_hot(rng.integers(0, 5, (2, m)), 5)
    return case(draw(st.sampled_from(SEQUENCES)), mp.SoftmaxCrossEntropy(), tokens, Y)


NORMALISED = [
    mp.Conv2d(1, 2, 2), mp.BatchNorm(2), mp.ReLU(), mp.Fork("skip"), mp.Dropout(0.25),
    mp.Residual(mp.Pad([1, 0]), mp.Conv2d(2, 2, (3, 1)), mp.BatchNorm(2)), mp.Join("skip", "concat"),
    mp.GroupNorm(2, 4), mp.GlobalAvgPool(), mp.Concat([mp.Linear(4, 2), mp.BatchNorm(2)], []),
    mp.Linear(6, 2),
]


@st.composite
def normalised_images(draw, most=5):
    """Convolutions, and batch norm in blocks and between them."""
    m = most - draw(st.integers(0, most - 2))
    rng = np.random.default_rng(m)
    X, Y = rng.standard_normal((1, 3, 3, m)), rng.standard_normal((2, m))
    return case(NORMALISED, mp.MeanSquaredError(), X, Y)


# Hypothesis prefers the first of several values, and 0 and False, so what is interesting comes first.
#
# What a network may be told. All of these keep the bits of one device, on any floats:
MODES = ["except_last", "sqrt", "selective", "always", "never"]
ENGINES = [*["cluster"] * 5, "threads"]  # threads take a multiple of the time
BUCKETS = [100, "layer", None]
# Of these, only "tree" and "owners" do; with the others the result is `==` where nothing rounds.
ACCUMULATE, EXCHANGES = ["running", "tree"], [*ALL_REDUCES]


@st.composite
def pipelines(draw, case, number, nothing_rounds):
    """(a pipeline with any cut, order and options for this case, its X, its Y), at any step of a training.

    number: converts all numbers. nothing_rounds: whether sums may be added in any order.
    """
    layers, X, Y = case.converted(number)
    grains = [grain for grain in range(case.least, 5) if not 0 < case.m % grain < case.least]
    grain = draw(st.sampled_from([None, None, None, *grains]))
    most = case.m // case.least if grain is None else -(-case.m // grain)
    counts, n_copies = draw(compositions(len(layers))), draw(st.sampled_from([1, 2, 3]))
    n_copies = min(n_copies, most)
    M = most // n_copies
    M -= draw(st.integers(0, M - 1))
    schedule = draw(orders(len(counts), M, n_copies))
    split = dict(stages=mp.Cut(counts), microbatches=schedule.n_microbatches)
    recompute = draw(st.sampled_from(MODES))
    if recompute == "selective" and all(layer.recomputes is None for layer in mp.layers.every_layer(layers)):
        recompute = "always"
    buckets = None if "A" in schedule.kinds else draw(st.sampled_from(BUCKETS))
    sums = mp.Sums(buckets=buckets, grain=grain)
    if nothing_rounds and grain is None:
        sums = mp.Sums(draw(st.sampled_from(ACCUMULATE)), draw(st.sampled_from(EXCHANGES)), buckets)
    pipe = mp.Parallel(
        layers, case.loss, **split, schedule=schedule, recompute=recompute, sums=sums,
        engine=draw(st.sampled_from(ENGINES)),
    )
    pipe.n_steps = draw(st.integers(0, 3))
    return pipe, X, Y


@st.composite
def orders(draw, n_stages, n_microbatches, n_copies):
    """Any schedule that can run, or one with a name, in segments; and in copies."""
    if draw(st.booleans()):
        schedule = draw(valid_schedules(n_stages, n_microbatches))
    else:
        n_segments = draw(st.sampled_from([n for n in (1, 2, 3) if n_stages % n == 0]))
        sizes = dict(stages=n_stages // n_segments, microbatches=n_microbatches)
        schedule = build(draw(st.sampled_from(names_for(**sizes))), **sizes)
        schedule = in_segments(schedule, n_segments)
    schedule = in_copies(schedule, n_copies)
    return with_all_reduce(schedule) if draw(st.booleans()) else schedule


@st.composite
def compositions(draw, total):
    """`total` as a list of positive parts: where to cut a network of `total` layers."""
    cuts = [place for place in range(1, total) if not draw(st.booleans())]
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
