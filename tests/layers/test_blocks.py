"""Layers made of layers: sums and concatenations by hand, what they cost, and optimizers on their
nested parameters.
"""

import math

import numpy as np
import pytest
from compared import assert_same
from layers.every_layer import is_pair, linear_cell, tree

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational
from minipipe.layers import every_layer


def whole(rng, *shape):
    return rational(rng.integers(-12, 13, shape)) / 8


def linear(rng, n_prev, n):
    return mp.Linear(n_prev, n, W=whole(rng, n, n_prev), b=whole(rng, n, 1))


# --- against the layers that they are made of, put together by hand

@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 2)])
def test_branches_are_added_or_put_one_below_the_other_or_added_to_what_entered(shape):
    """Forward alone: their backward is that of the contract of every layer."""
    rng = np.random.default_rng(0)
    A_prev = whole(rng, *shape)
    first, second, third = (linear(rng, 3, 3) for _ in range(3))
    branches = [first], [second, mp.ReLU(), third]
    through_first = first.forward(A_prev)
    through_others = third.forward(np.maximum(second.forward(A_prev), 0))
    assert np.array_equal(mp.Add(*branches).forward(A_prev), through_first + through_others)
    assert np.array_equal(mp.Concat(*branches).forward(A_prev), [*through_first, *through_others])
    assert np.array_equal(mp.Residual(*branches[1]).forward(A_prev), A_prev + through_others)


def test_branches_without_layers_hand_on_what_they_get():
    A_prev, dZ = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0]])
    for layer, A, dA_prev in [
        (mp.Residual(), 2 * A_prev, 2 * dZ),
        (mp.Concat([], []), np.vstack([A_prev] * 2), 2 * dZ),
        (mp.Chain(), A_prev, dZ),
    ]:
        assert np.array_equal(layer.forward(A_prev), A)
        assert np.array_equal(layer.backward_input(np.vstack([dZ] * len(A))), dA_prev)


def test_branches_may_begin_with_tokens():
    """Two embeddings of the same tokens, added up, are one whose W is the sum; tokens have no derivative."""
    rng = np.random.default_rng(0)
    tables = [mp.Embedding(5, 2) for _ in range(2)]
    for table in tables:
        table.W = whole(rng, 5, 2)
    for layer in (mp.Add(*tables), mp.Concat(*tables)):
        net = mp.Sequential([layer], mp.MeanSquaredError())
        tokens, rows = rng.integers(0, 5, (3, 4)), 2 if isinstance(layer, mp.Add) else 4
        assert net.forward_backward(rational(tokens), whole(rng, rows, 3, 4)) > 0
        assert layer.forward(tokens).shape == (rows, 3, 4)
        dA_prev, dW, _ = layer.backward(whole(rng, rows, 3, 4))
        assert dA_prev is None and [part.shape for part in leaves(dW)] == [(5, 2)] * 2


# --- costs

class Counted(float):
    """A number that counts how often it is multiplied."""

    n = 0

    def __mul__(self, other):
        Counted.n += 1
        return Counted(float(self) * float(other))

    def __add__(self, other):
        return Counted(float(self) + float(other))

    def __radd__(self, other):
        return Counted(float(self) + float(other))

    def __sub__(self, other):
        return Counted(float(self) - float(other))

    def __truediv__(self, other):
        return Counted(float(self) / float(other))

    def exp(self):
        return Counted(math.exp(self))


def counted(array):
    values = np.empty(np.shape(array), object)
    values.flat = [Counted(value) for value in np.asarray(array).flat]
    return values


@pytest.mark.parametrize(
    "layer, shape, others",
    [
        (mp.Linear(3, 4), (3, 5), 0),
        (mp.Linear(3, 4), (3, 2, 5), 0),
        (mp.Conv2d(2, 4, (2, 3), groups=2), (2, 4, 5, 2), 0),
        (mp.Conv1d(2, 3, 2, stride=2, dilation=2, bias=False), (2, 7, 2), 0),
        (mp.ConvTranspose1d(2, 3, 3, stride=2), (2, 4, 2), 0),
        (mp.Chain(mp.Linear(3, 4), mp.Flatten(), mp.Linear(8, 2)), (3, 2, 5), 0),
        (mp.Add([mp.Linear(3, 4)], mp.Linear(3, 4)), (3, 5), 0),
        (mp.Concat([mp.Linear(3, 4), mp.Linear(4, 1)], []), (3, 5), 0),
        (mp.Residual(mp.Linear(3, 1), mp.Linear(1, 3)), (3, 5), 0),
        # each score by 1/sqrt(d_h), and one to make this constant
        (mp.MultiHeadAttention(4, 2), (4, 3, 2), 2 * 3**2 * 2 + 1),
        (mp.Embedding(5, 2), (3, 4), 0),
        (mp.PositionalEmbedding(2, 3), (2, 3, 4), 0),
        (linear_cell(3, 4), ((3, 5), (4, 5)), 0),
    ],
    ids=repr,
)
def test_macs_are_the_multiplications_that_a_forward_does(layer, shape, others):
    layer = layer.copy()
    layer.initialize(np.random.default_rng(0))
    layer = layer.copy(counted)
    A_prev = tuple(map(np.ones, shape)) if is_pair(shape) else np.ones(shape)
    if not isinstance(layer, mp.Embedding):
        A_prev = tree(counted, A_prev)
    Counted.n = 0
    layer.forward(A_prev)
    assert Counted.n == layer.macs(shape) + others


# --- optimizers

def test_an_optimizer_steps_a_block_as_it_steps_its_parts():
    """Three updates with nested gradients, among them one whole layer without: each array by itself."""
    rng = np.random.default_rng(0)
    block = mp.Chain(mp.Linear(3, 2), mp.Residual(mp.Linear(2, 2), mp.LayerNorm(2)), mp.Linear(2, 1))
    block.initialize(rng)
    twin, of_block, of_parts = block.copy(), mp.Adam(0.125), mp.Adam(0.125)
    parts = [part for part in every_layer([twin]) if isinstance(part.W, np.ndarray)]
    frozen, before = parts[1], parts[1].copy()
    for _ in range(3):
        pairs = [[rng.standard_normal(p.shape) for p in (part.W, part.b)] for part in parts]
        pairs[1] = None, None
        nested = tuple((first, ((), (second, third)), fourth) for first, second, third, fourth in zip(*pairs))
        of_block.update([mp.ReLU(), block], [(None, None), nested])
        of_parts.update(parts, pairs)
    assert_same((frozen.W, frozen.b), (before.W, before.b))
    assert_same((block.W, block.b), (twin.W, twin.b))


def test_gradients_of_another_form_change_nothing():
    layer = mp.Chain(mp.Linear(2, 2), mp.Linear(2, 2))
    layer.initialize(np.random.default_rng(0))
    before, right = layer.copy(), np.ones((2, 2))
    for dW in [(right,), (right, np.ones((2, 3))), ((right, right), None)]:
        with pytest.raises(ValueError):
            mp.SGD(0.5).update([layer], [(dW, None)])
        assert_same((layer.W, layer.b), (before.W, before.b))
    with pytest.raises(ValueError, match=r"layer 0: W has shape \(\), but its gradient has \(2, 2\)"):
        mp.SGD(0.5).update([mp.ReLU()], [(right, None)])


# --- errors

@pytest.mark.parametrize(
    "layer, message",
    [
        (
            mp.Add([mp.Linear(2, 3)], []),
            r"the branches have outputs of shapes \[\(3, 4\), \(2, 4\)\], "
            "which cannot be added: make them equal",
        ),
        (
            mp.Residual(mp.Linear(2, 3)),
            r"Residual\(Linear\(2, 3\)\): the branches have outputs of shapes \[\(2, 4\), \(3, 4\)\]",
        ),
        (
            mp.Concat([mp.Linear(2, 3)], [mp.Reshape((1, 2))]),
            r"shapes \[\(3, 4\), \(1, 2, 4\)\], which must agree in all axes but the first",
        ),
    ],
    ids=repr,
)
def test_branches_that_do_not_fit_are_refused_with_both_shapes(layer, message):
    layer.initialize(np.random.default_rng(0))
    for call in (lambda: layer.forward(np.ones((2, 4))), lambda: layer.output_shape((2, 4))):
        with pytest.raises(ValueError, match=message):
            call()


def test_the_parts_of_a_block_are_its_own_once_a_network_has_copied_it():
    block = mp.Residual(mp.Linear(2, 2))
    first, second = (mp.Sequential([block, block], None) for _ in range(2))
    arrays = [
        id(array) for net in (first, second) for layer in net.layers for array in leaves((layer.W, layer.b))
    ]
    assert len(arrays) == len(set(arrays)) == 8 and leaves(block.W) == []
    assert not np.array_equal(leaves(first.layers[0].W)[0], leaves(first.layers[1].W)[0])
