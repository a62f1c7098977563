"""Layers made of layers: sums and concatenations by hand, what they cost, and optimizers on their
nested parameters.
"""

import math

import numpy as np
import pytest
from cases import eighths
from compared import assert_same

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.functions import leaves
from minipipe.layers import every_layer


def whole(rng, *shape):
    return rational(rng.integers(-12, 13, shape)) / 8


def linear(rng, n_prev, n):
    return mp.Linear(n_prev, n, W=whole(rng, n, n_prev), b=whole(rng, n, 1))


# --- against the layers that they are made of, put together by hand

def by_hand(branches, A_prev, parted):
    """(the branches' outputs, dA_prev, [[dW of a branch's layers]], [[db]]), where parted(outputs) is each
    branch's own dZ.
    """
    outputs, twins = [], [[layer.copy() for layer in branch] for branch in branches]
    for branch in twins:
        A = A_prev
        for layer in branch:
            A = layer.forward(A)
        outputs.append(A)
    dA_prev, dW, db = 0, [], []
    for branch, dZ in zip(twins, parted(outputs)):
        pairs = []
        for layer in reversed(branch):
            dZ, *pair = layer.backward(dZ)
            pairs.insert(0, pair)
        dA_prev = dA_prev + dZ
        dW.append(tuple(pair[0] for pair in pairs))
        db.append(tuple(pair[1] for pair in pairs))
    return outputs, dA_prev, tuple(dW), tuple(db)


def three_branches(rng, *n):
    return [
        [linear(rng, 3, n[0])],
        [mp.Tanh(), linear(rng, 3, 4), mp.LeakyReLU(0.25), linear(rng, 4, n[1])],
        [linear(rng, 3, n[2]), mp.ReLU()],
    ]


@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 2)])
def test_add_is_the_sum_of_its_branches(shape):
    rng = np.random.default_rng(0)
    branches, A_prev, dZ = three_branches(rng, 2, 2, 2), whole(rng, *shape), whole(rng, 2, *shape[1:])
    layer = mp.Add(*branches)
    A, results = layer.forward(A_prev), layer.backward(dZ)
    outputs, *expected = by_hand(branches, A_prev, lambda outputs: [dZ] * 3)
    for place in np.ndindex(A.shape):
        assert A[place] == sum(output[place] for output in outputs)
    assert_same(results, expected)


@pytest.mark.parametrize("shape", [(3, 4), (3, 2, 2)])
def test_concat_puts_its_branches_one_below_the_other(shape):
    rng = np.random.default_rng(0)
    branches, A_prev, dZ = three_branches(rng, 2, 1, 3), whole(rng, *shape), whole(rng, 6, *shape[1:])
    layer = mp.Concat(*branches)
    A, results = layer.forward(A_prev), layer.backward(dZ)
    outputs, *expected = by_hand(branches, A_prev, lambda outputs: [dZ[:2], dZ[2:3], dZ[3:]])
    for row, (branch, of_branch) in enumerate([(0, 0), (0, 1), (1, 0), (2, 0), (2, 1), (2, 2)]):
        assert np.array_equal(A[row], outputs[branch][of_branch])
    assert_same(results, expected)


def test_residual_adds_what_entered_to_what_its_layers_make_of_it():
    rng = np.random.default_rng(0)
    inner, A_prev, dZ = [linear(rng, 3, 4), mp.ReLU(), linear(rng, 4, 3)], whole(rng, 3, 4), whole(rng, 3, 4)
    layer = mp.Residual(*inner)
    A, (dA_prev, dW, db) = layer.forward(A_prev), layer.backward(dZ)
    (output,), through, dW_inner, db_inner = by_hand([inner], A_prev, lambda outputs: [dZ])
    assert np.array_equal(A, A_prev + output) and np.array_equal(dA_prev, dZ + through)
    assert_same((dW, db), (((), *dW_inner), ((), *db_inner)))


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
    ],
    ids=repr,
)
def test_macs_are_the_multiplications_that_a_forward_does(layer, shape, others):
    layer = layer.copy()
    layer.initialize(np.random.default_rng(0))
    layer = layer.copy(counted)
    A_prev = np.ones(shape) if isinstance(layer, mp.Embedding) else counted(np.ones(shape))
    Counted.n = 0
    layer.forward(A_prev)
    assert Counted.n == layer.macs(shape) + others


# --- optimizers and training

EVERY = {
    "SGD": lambda one: mp.SGD(one / 8),
    "SGD, momentum": lambda one: mp.SGD(
        one / 8, one / 2, nesterov=True, rate_inside=True, weight_decay=one / 4
    ),
    "RMSProp": lambda one: mp.RMSProp(one / 8, one / 2, one / 1024),
    "Adam": lambda one: mp.Adam(one / 8, (one / 2, one / 2), one / 1024),
    "AdamW": lambda one: mp.AdamW(one / 8, (one / 2, one / 2), one / 1024, one / 4),
}


@pytest.mark.parametrize("optimizer", EVERY.values(), ids=EVERY)
def test_an_optimizer_steps_a_transformer_block_as_it_steps_its_parts(optimizer):
    """Three updates with random gradients, among them one whole layer without: the same bits, each array
    by itself.
    """
    rng = np.random.default_rng(0)
    block = mp.TransformerBlock(4, 2, n_hidden=3)
    block.initialize(rng)
    twin, of_block, of_parts = block.copy(), optimizer(1.0), optimizer(1.0)
    parts = [part for part in every_layer([twin]) if isinstance(part.W, np.ndarray)]
    frozen = parts[3]
    before = frozen.copy()
    for _ in range(3):
        gradients = {
            part: tuple(None if part is frozen else rng.standard_normal(p.shape) for p in (part.W, part.b))
            for part in parts
        }
        nested = tuple(nested_gradients(twin, gradients, place) for place in (0, 1))
        of_block.update([mp.ReLU(), block], [(None, None), nested])
        of_parts.update(parts, [gradients[part] for part in parts])
    assert_same((frozen.W, frozen.b), (before.W, before.b))
    assert len(parts) == 8
    assert_same((block.W, block.b), (twin.W, twin.b))
    assert len({id(array) for array in leaves((block.W, block.b, twin.W, twin.b))}) == 4 * 8


def nested_gradients(layer, gradients, place):
    if isinstance(layer.W, tuple):
        return tuple(nested_gradients(part, gradients, place) for part in layer.layers)
    return gradients[layer][place] if layer in gradients else None


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


TRAINED = [
    mp.Linear(2, 3),
    mp.Residual(mp.LayerNorm(3), mp.Linear(3, 2), mp.ReLU(), mp.Dropout(0.5), mp.Linear(2, 3)),
    mp.BatchNorm(3),
    mp.Linear(3, 1),
]


def fitted(model, X, Y, optimizer, batch_size):
    """(the costs of two epochs, the parameters and running statistics afterwards)"""
    history = mp.fit(model, X, Y, optimizer, n_epochs=2, batch_size=batch_size, report=None)
    arrays = [getattr(part, name) for part in every_layer(model.layers) for name in part.arrays]
    return [epoch.J for epoch in history], [array for array in arrays if array is not None]


@pytest.mark.parametrize("optimizer", EVERY.values(), ids=EVERY)
def test_fit_trains_them_in_a_pipeline_with_the_bits_of_one_device(optimizer):
    """With one micro-batch, every product is the same one; 7 samples make mini-batches of 4 and 3."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, 7)), rng.standard_normal((1, 7))
    whole = fitted(mp.Sequential(TRAINED, mp.MeanSquaredError()), X, Y, optimizer(1.0), 4)
    pipe = fitted(mp.Pipeline(TRAINED, mp.MeanSquaredError(), 4, 1, recompute=True), X, Y, optimizer(1.0), 4)
    assert whole[0] == pipe[0] and whole[0][0] != whole[0][1]
    assert_same(whole[1], pipe[1])


def test_fit_trains_them_with_ragged_micro_batches_exactly():
    """In rational numbers; without BatchNorm, whose statistics are those of the micro-batches."""
    rng = np.random.default_rng(0)
    layers = [layer.copy(eighths) for layer in mp.Sequential(TRAINED[:2] + TRAINED[3:], None).layers]
    X, Y = whole(rng, 2, 3), whole(rng, 1, 3)
    results = [
        fitted(model, X, Y, mp.SGD(Rational(1, 8)), 3)
        for model in (
            mp.Sequential(layers, mp.MeanSquaredError()),
            mp.Pipeline(layers, mp.MeanSquaredError(), 3, 2, "1f1b", recompute=True),
        )
    ]
    assert_same(*results)


# --- errors

TANH = mp.Tanh()
WRONG = {
    "a class": (
        lambda: mp.Chain(mp.ReLU),
        r"Chain is made of layers, got <class .*: pass layer objects, such as ReLU\(\)",
    ),
    "a list for a layer": (
        lambda: mp.Residual([mp.ReLU()]),
        r"made of layers, got \[ReLU\(\)\]: pass layer objects",
    ),
    "a number for a branch": (lambda: mp.Add(3), r"made of layers, got 3: pass layer objects"),
    "no branch": (lambda: mp.Concat(), r"Concat needs at least 1 branch, got 0: pass lists of layers"),
    "a Fork inside": (
        lambda: mp.Residual(mp.Fork("a")),
        r"Fork\('a'\) stands inside a layer made of layers: skip connections by name and ties belong",
    ),
    "a Join far inside": (
        lambda: mp.Chain(mp.Add([mp.Join("a")])),
        r"Join\('a'\) stands inside a layer made of layers",
    ),
    "a tie inside": (
        lambda: mp.Add([mp.Linear(2, 2, tie="a")]),
        r"Linear\(2, 2, tie='a'\) stands inside a layer made of layers",
    ),
    "one object twice": (
        lambda: mp.Chain(TANH, mp.Linear(2, 2), TANH),
        r"the same Tanh\(\) stands in two places, but it has one cache: make an object",
    ),
    "one object in two branches": (
        lambda: mp.Add([TANH], [mp.Residual(TANH)]),
        r"the same Tanh\(\) stands in two places",
    ),
}


@pytest.mark.parametrize("make, message", WRONG.values(), ids=WRONG)
def test_what_cannot_be_a_block_is_refused_at_construction(make, message):
    with pytest.raises(ValueError, match=message):
        make()


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
