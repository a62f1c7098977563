"""What shards divide, and what stays whole: one function decides, for pairs and ties.

Then what shards of a pair of layers compute, and what those of logits send. At the end, parts of each layer,
put together as its `splits` say, are the layer: in fractions, both ways.
"""

from typing import ClassVar

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_equals_full_batch, assert_same
from layers.every_layer import LAYERS, TOKENS, own_parameters, ready

import minipipe as mp
from minipipe.arrays import even_slices
from minipipe.layers import Chain, every_layer

LOSS, CLASSES = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()
rng = np.random.default_rng(0)


class MyLinear(mp.Linear):
    """A custom layer that computes something else than its base."""

    def forward(self, A_prev):
        return -super().forward(A_prev)

    def backward_input(self, dZ):
        return super().backward_input(-dZ)

    def backward_weight(self, dZ):
        return super().backward_weight(-dZ)


class MyAttention(mp.MultiHeadAttention):
    """A custom layer that computes what its base does."""


class Dense(mp.layers.Layer):
    """A = W A_prev + b, and how it is split."""

    splits: ClassVar = {"outputs": {"W": 0, "b": 0}, "inputs": {"W": 1}}

    def __init__(self, n_prev, n):
        self.W, self.b = (rng.integers(-3, 4, shape) / 4.0 for shape in ((n, n_prev), (n, 1)))

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W @ A_prev if self.b is None else self.W @ A_prev + self.b

    def backward(self, dZ):
        db = None if self.b is None else dZ.sum(axis=1, keepdims=True)
        return self.W.T @ dZ, dZ @ self.cache.T, db


class Scale(mp.layers.Layer):
    """A = W A_prev, a number for each unit."""

    splits: ClassVar = {"units": {"W": 0}}

    def __init__(self, n):
        self.W = rng.integers(1, 5, (n, 1)) / 4.0

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W * A_prev

    def backward(self, dZ):
        return self.W * dZ, (dZ * self.cache).sum(axis=1, keepdims=True), None


class Twice:
    """A mixin that doubles what its block computes."""

    def through(self, A_prev):
        return 2 * super().through(A_prev)

    def derivatives(self, dZ):
        return super().derivatives(2 * dZ)


class TwiceResidual(Twice, mp.Residual):
    pass


class TwiceChain(Twice, Chain):
    pass


def attends(*more, attention=mp.MultiHeadAttention):
    return mp.Residual(mp.LayerNorm(2), attention(2, 2), *more)


SEQUENCES = {
    "fewer hidden units than shards": [attends(), mp.TransformerBlock(2, 2, n_hidden=1)],
    "a pair, half of one's own": [
        attends(), mp.Residual(mp.LayerNorm(2), mp.Linear(2, 2), mp.ReLU(), MyLinear(2, 2))
    ],
    "attention of one's own": [attends(attention=MyAttention), attends(), attends(attention=MyAttention)],
    "a residual of one's own": [
        attends(), TwiceResidual(mp.LayerNorm(2), mp.Linear(2, 2), mp.ReLU(), mp.Linear(2, 2))
    ],
    "a chain of one's own": [attends(), TwiceChain(mp.Linear(2, 2), mp.ReLU(), mp.Linear(2, 2))],
    "a pair of convolutions": [
        attends(), mp.Residual(mp.Conv1d(2, 2, 3, padding=1), mp.ReLU(), mp.Conv1d(2, 2, 3, padding=1))
    ],
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_a_split_sequence_has_the_full_batchs_gradients(name):
    rng = np.random.default_rng(0)
    X, Y = eighths(rng.standard_normal((2, 2, 2))), eighths(rng.standard_normal((1, 2, 2)))
    net = mp.TensorParallel(exact([*SEQUENCES[name], mp.Linear(2, 1)]), LOSS, 2)
    assert_equals_full_batch(net, X, Y)


@pytest.mark.parametrize("loss", [LOSS, CLASSES])
@pytest.mark.parametrize(("kind", "how"), [
    (mp.Linear, {LOSS: "by outputs, gathered", CLASSES: "by outputs, up to the loss"}),
    (MyLinear, {LOSS: "whole", CLASSES: "whole"}),
])
def test_tied_layers_are_split_in_the_same_way(kind, how, loss):
    rng = np.random.default_rng(0)
    tokens, labels = rng.integers(0, 5, (2, 2, 3))
    layers = exact([mp.Embedding(5, 2, tie="w"), mp.Linear(2, 2), mp.Tanh(), kind(2, 5, tie="w")])
    net = mp.TensorParallel(layers, loss, 2)
    assert_equals_full_batch(net, tokens, eighths(mp.one_hot(labels, 5)))
    of_tokens = "whole" if how[loss] == "whole" else "by tokens"
    assert net.ways == [of_tokens, "by outputs, gathered", "whole", how[loss]]


def test_tied_layers_are_not_split_as_a_pair():
    """One of a pair has rows of its W, the other one columns."""
    tied = [mp.Linear(3, 3, tie="w"), mp.Tanh(), mp.Linear(3, 3, tie="w"), mp.ReLU()]
    net = mp.TensorParallel(exact([*tied, mp.Linear(3, 3)]), LOSS, 3)
    assert net.ways[0] == net.ways[2] == "by outputs, gathered"
    assert_equals_full_batch(net, *eighths(rng.standard_normal((2, 3, 4))))


@pytest.mark.parametrize("T", [2, 3])
@pytest.mark.parametrize(("layers", "how"), [
    ([Dense(3, 5), Scale(5), mp.ReLU(), Dense(5, 3)],
     ["by outputs", "unit by unit", "unit by unit", "by inputs"]),
    ([Dense(3, 4), mp.Linear(4, 3)], ["by outputs", "by inputs"]),
    ([mp.Linear(3, 4), Scale(4), MyLinear(4, 4), mp.Linear(4, 3)],
     ["by outputs, gathered", "whole", "whole", "by outputs, gathered"]),
])
def test_a_users_layer_is_split_if_it_has_splits(layers, how, T):
    net = mp.TensorParallel(exact(layers), LOSS, T)
    assert net.ways == how
    assert_equals_full_batch(net, *eighths(rng.standard_normal((2, 3, 5))))


class Gated(mp.layers.Block):
    """A = W_o (W_1 A_prev * W_2 A_prev) + b_o: a layer made of layers, which says how each is split."""

    splits: ClassVar = {"heads": ("outputs", "outputs", "inputs")}

    def __init__(self, n, n_hidden):
        super().__init__([mp.Linear(n, n_hidden), mp.Linear(n, n_hidden), mp.Linear(n_hidden, n)])

    def through(self, A_prev):
        first, second, last = self.layers
        self.kept = first.forward(A_prev), second.forward(A_prev)
        return last.forward(self.kept[0] * self.kept[1])

    def derivatives(self, dZ):
        (first, second, last), (left, right) = self.layers, self.kept
        dP = last.backward_input(dZ)
        dLeft, dRight = dP * right, dP * left
        return first.backward_input(dLeft) + second.backward_input(dRight), [dLeft, dRight, dZ]


@pytest.mark.parametrize("T", [2, 3])
def test_a_users_block_is_split_if_it_has_splits(T):
    net = mp.TensorParallel(exact([mp.Linear(3, 3), Gated(3, 4), mp.Linear(3, 3)]), LOSS, T)
    assert net.ways[1] == "by heads"
    assert_equals_full_batch(net, *eighths(rng.standard_normal((2, 3, 5))))


@pytest.mark.parametrize(("kind", "splits", "words"), [
    (Dense, {"rows of W": {"W": 0}}, r"has splits\['rows of W'\]: use one of 'outputs', 'inputs'"),
    (Dense, {"outputs": {"W": 0}}, r"has a b, but splits\['outputs'\] does not say how to cut it"),
    (Scale, {"units": {}}, r"has a W, but splits\['units'\] does not say how to cut it"),
    (Scale, {"units": {"W": None}}, r"has a W, but splits\['units'\] does not say how to cut it"),
    (Gated, {"heads": ("outputs", "inputs")}, "use 'heads', with a split that each of its 3 layers"),
    (Gated, {"outputs": ("outputs", "outputs", "inputs")}, r"has splits\['outputs'\] = .*: use 'heads'"),
    (Gated, {"heads": ("outputs", "units", "inputs")}, "with a split that each of its 3 layers states, and"),
    (Gated, {"heads": ("outputs", "inputs", "outputs")}, "and 'inputs' for the last alone"),
])
def test_wrong_splits_of_a_layer_are_refused(kind, splits, words):
    layer = kind(3) if kind is Scale else kind(3, 3)
    layer.splits = splits
    with pytest.raises(ValueError, match=words):
        mp.TensorParallel([mp.Linear(3, 3), layer], LOSS, 2)


def test_with_one_shard_splits_are_not_read():
    """These state no axis for W, which two shards would refuse."""
    layer = Scale(3)
    layer.splits = {"units": {}}
    net = mp.Parallel(exact([mp.Linear(3, 3), layer]), LOSS, replicas=2, stages=2)
    assert_equals_full_batch(net, *eighths(rng.standard_normal((2, 3, 4))))


# Exchanges


def test_two_linear_layers_are_split_by_outputs_then_inputs():
    """Z2 of the worked example; the bias is added once, to the sum of both products."""
    W1, W2 = np.array([[1.0, 2], [3, -1], [-2, 1], [0, 1]]), np.array([[1.0, 0, 2, -1], [0, 1, -1, 3]])
    pair = [mp.Linear(2, 4, W=W1, b=[[0], [1], [0], [-1]]), mp.ReLU(), mp.Linear(4, 2, W=W2, b=[[10], [20]])]
    net, X = mp.TensorParallel(exact(pair), LOSS, 2), eighths(np.array([[1.0, 2], [3, -1]]))
    assert net.predict(X).tolist() == [[17, 10], [26, 28]]
    assert_equals_full_batch(net, X, eighths(np.ones((2, 2))))


def test_a_split_softmax_sends_three_numbers_per_column():
    """64 classes, 1,024 columns, T = 4, float32: 18,432 bytes a device; dX is not needed."""
    net = mp.TensorParallel([mp.Linear(2, 64)], CLASSES, 4, dtype=np.float32)
    X, Y = np.zeros((2, 1024), np.float32), mp.one_hot(np.arange(1024) % 64, 64, np.float32)
    net.forward_backward(X, Y)
    sent = [sum(m.n_bytes for m in net.trace.messages if m.source == device) for device in range(4)]
    assert sent == [18432] * 4


# Parts of layers

# how -> the axes along which A_prev and A are cut; None where A_prev is whole, or A a sum over the devices
AXES = {
    "outputs": (None, 0), "inputs": (0, None), "units": (0, 0), "heads": (None, None), "tokens": (None, None),
}


def n_parts(layer, shape, how):
    """The least number of devices that can share an example equally, from 2; None if none can."""
    W, _ = layer.parameter_shapes()
    lengths = {"outputs": lambda: W[0], "inputs": lambda: W[1], "units": lambda: shape[0],
               "tokens": lambda: W[0], "heads": lambda: layer.n_heads}
    n = lengths[how]()
    return next((T for T in range(2, n + 1) if n % T == 0), None)


CASES = [
    (name, how)
    for name, (layer, shape) in LAYERS.items() for how in layer.splits if n_parts(layer, shape, how)
]


def pieces(array, axis, T):
    """For each of T devices its part along an axis; all of the array, if that is None."""
    if axis is None:
        return [array] * T
    before = (slice(None),) * axis
    return [array[(*before, run)] for run in even_slices(array.shape[axis], T)]


def together(arrays, axis):
    """The arrays side by side along an axis; or for None the sum of them all."""
    if arrays[0] is None:
        return None
    if axis is None:
        return sum(arrays[1:], arrays[0])
    return np.concatenate(arrays, axis)


def without_last_bias(layer):
    """b of a layer whose parts make summands is added to their sum, once."""
    last = [layer, *every_layer(layer.layers)][-1]
    last.b, last.bias = None, False


def gradients_together(layer, parts, how, found):
    """(dW, db) of the layer, or tuples of them, from those of its parts."""
    if layer.layers:
        return tuple(zip(*(
            gradients_together(inner, [part.layers[i] for part in parts], layer.splits[how][i],
                               [(dW[i], db[i]) for dW, db in found])
            for i, inner in enumerate(layer.layers)
        ), strict=True))
    axes = layer.splits[how]
    return tuple(together([pair["Wb".index(name)] for pair in found], axes.get(name)) for name in "Wb")


@pytest.mark.parametrize("name, how", CASES)
def test_the_parts_of_a_layer_add_up_to_the_whole(name, how):
    layer, A_prev, dZ = ready(name)
    layer = layer.copy(eighths)
    A_prev, dZ = A_prev if name in TOKENS else eighths(A_prev), eighths(dZ)
    T = n_parts(layer, LAYERS[name][1], how)
    of_input, of_output = AXES[how]
    if of_output is None:
        without_last_bias(layer)
    A = layer.forward(A_prev)
    parts = [layer.part(how, rank, T) for rank in range(T)]
    assert all(part.cache is None for part in parts)
    assert all(getattr(part, which) is not getattr(whole, which) for part in parts
               for (part, which), (whole, _) in zip(own_parameters(part), own_parameters(layer), strict=True))
    inputs = pieces(A_prev, of_input, T)
    found = [part.forward(own) for part, own in zip(parts, inputs, strict=True)]
    assert_same(together(found, of_output), A, "A")
    dA_prev, dW, db = layer.backward(dZ)
    backward = [part.backward(own) for part, own in zip(parts, pieces(dZ, of_output, T), strict=True)]
    assert_same(together([dA for dA, _, _ in backward], of_input), dA_prev, "dA_prev")
    assert_same(gradients_together(layer, parts, how, [pair for _, *pair in backward]), (dW, db), "dW, db")


def stated(layer):
    """{(the class that says how this layer is split, how)}"""
    kind = next(base for base in type(layer).__mro__ if "splits" in vars(base))
    return {(kind.__name__, how) for how in layer.splits}


def test_every_split_of_every_layer_was_tested():
    tried = {(next(iter(stated(LAYERS[name][0])))[0], how) for name, how in CASES}
    assert tried == set().union(*(stated(layer) for layer, _ in LAYERS.values()))
