"""What overflows is refused by the name of the layer, and a refused step moves nothing.

NumPy's own answer is infinity, which some layers turn into plain numbers again: 1/s is 0 for an infinite
variance, tanh of infinity is 1. The cost then looks like any other.
"""

import numpy as np
import pytest
from compared import assert_same
from layers.every_layer import LAYERS, ready, tree

import minipipe as mp
from minipipe.functions import leaves
from minipipe.layers import every_layer
from minipipe.layers.through import handed_on
from minipipe.schedules import build, in_copies, with_all_reduce, with_updates

LOSS = mp.MeanSquaredError()


def state(model):
    """All that a step can move."""
    arrays = [getattr(part, name) for part in every_layer(model.layers) for name in part.arrays]
    return [None if array is None else array.copy() for array in arrays]


def linear(n_prev, n, size):
    return mp.Linear(n_prev, n, W=np.full((n, n_prev), size, np.float32), b=np.zeros((n, 1), np.float32))


def on_one_device(layers):
    return mp.Sequential(layers, LOSS, dtype=np.float32)


def in_a_pipeline(layers):
    return mp.Pipeline(layers, LOSS, len(layers), 2, "1f1b", dtype=np.float32)


def in_an_order_with_updates(layers):
    order = with_updates(with_all_reduce(in_copies(build("1f1b", len(layers), 2), 2)))
    return mp.Pipeline(layers, LOSS, len(layers), 4, order, optimizer=mp.Adam(0.1), dtype=np.float32)


def without_a_flush(layers):
    return mp.AsynchronousPipeline(layers, LOSS, len(layers), mp.SGD(0.1), dtype=np.float32)


def trained(model, X, Y):
    """After one mini-batch and its update."""
    if isinstance(model, mp.AsynchronousPipeline):
        return model.train([(X, Y)])
    J = model.forward_backward(X, Y)
    if getattr(model, "_optimizers", None) is None:
        model.step(mp.SGD(0.1))
    return J


MAKERS = [on_one_device, in_a_pipeline, in_an_order_with_updates, without_a_flush]
ONES, ZEROS = np.ones((2, 8), np.float32), np.zeros((1, 8), np.float32)
OUTLIER = np.random.default_rng(0).standard_normal((2, 8)).astype(np.float32)
OUTLIER[0, 1] = 1e20  # its square is beyond float32
BEHIND = [mp.Linear(2, 2), mp.BatchNorm(2), mp.Linear(2, 1)]

UPDATE = "layer ., Linear.*(W after this update|what Adam remembers for W) is not finite"
OVERFLOWS = {  # name: (layers, X, words)
    "BatchNorm": ([mp.BatchNorm(2), *BEHIND], OUTLIER, r"layer 0, BatchNorm\(2\): the variance of its input"),
    "LayerNorm": ([mp.LayerNorm(2), *BEHIND], OUTLIER, r"layer 0, LayerNorm\(2\): the variance of its input"),
    "GroupNorm": ([mp.GroupNorm(1, 2), *BEHIND], OUTLIER, r"layer 0, GroupNorm\(1, 2\): the variance"),
    "hidden by Tanh": ([linear(2, 2, 1e30), mp.Tanh(), *BEHIND], OUTLIER, "layer 0, Linear.*: its output"),
    "in a layer": (
        [mp.Residual(linear(2, 2, 1e30), mp.Tanh()), *BEHIND], OUTLIER, r"layer 0, Linear\(2, 2\): its output"
    ),
    "scores": (
        [mp.Reshape((2, 1)), linear(2, 2, 1e15), mp.MultiHeadAttention(2, 1), mp.Flatten(), *BEHIND],
        OUTLIER / 1e20 * 1e6, "layer 2, MultiHeadAttention.*: the product of its keys and queries",
    ),
    "the cost": ([linear(2, 1, 1)], OUTLIER, rf"MeanSquaredError\(\): the cost is not finite|{UPDATE}"),
    "a gradient": (  # before the first update: the output is 2e3, as is its derivative, and dW = 2e3 * 1e36
        [linear(2, 2, 1e-33), linear(2, 1, 0.5)], ONES * 1e36, rf"layer 0, Linear.*the gradient|{UPDATE}"
    ),
}


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("name", OVERFLOWS)
def test_an_overflow_is_refused_by_name_and_moves_nothing(make, name):
    """Also in an order with updates, where some stages have made theirs by then."""
    layers, X, words = OVERFLOWS[name]
    model = make(layers)
    trained(model, X * 0 + np.arange(8, dtype=np.float32) / 8, ZEROS)
    before, n_steps = state(model), model.n_steps
    with pytest.raises(FloatingPointError, match=words):
        trained(model, X, ZEROS)
    assert_same(state(model), before)
    assert model.n_steps == n_steps


@pytest.mark.parametrize("make", [on_one_device, in_a_pipeline])
@pytest.mark.parametrize(("name", "words"), [("the cost", "the cost is"), ("a gradient", "the gradient")])
def test_a_cost_or_gradient_that_overflows_is_refused_before_any_step(make, name, words):
    layers, X, _ = OVERFLOWS[name]
    model = make(layers)
    with pytest.raises(FloatingPointError, match=words):
        model.forward_backward(X, ZEROS)
    with pytest.raises(RuntimeError):
        model.step(mp.SGD(0.1))


@pytest.mark.parametrize("make", MAKERS)
def test_predictions_refuse_an_overflow(make):
    with pytest.raises(FloatingPointError, match=r"layer 1, Linear.*: its output"):
        make([mp.ReLU(), linear(2, 1, 1e30)]).predict(abs(OUTLIER))


@pytest.mark.parametrize("make", [on_one_device, in_a_pipeline])
def test_running_statistics_that_overflow_refuse_the_step(make):
    """The data are float64, the running variances float32; those of the first layer have been moved by then.
    """
    model = make([mp.BatchNorm(2), linear(2, 2, 1), mp.BatchNorm(2), mp.Linear(2, 1)])
    model.layers[1].W = np.full((2, 2), 1e20)
    model.forward_backward(np.random.default_rng(0).standard_normal((2, 8)), ZEROS)
    before, optimizer = state(model), mp.SGD(0.1, momentum=0.9)
    with pytest.raises(FloatingPointError, match=r"layer 2, BatchNorm.*: running_var is not finite"):
        model.step(optimizer)
    assert_same(state(model), before)
    assert model.n_steps == 0 and not optimizer.memory


SEEN = mp.Chain, mp.Embedding  # the layers of a Chain are; tokens are not numbers
UNSEEN = [name for name, (layer, _) in LAYERS.items() if not (layer.can_overflow or isinstance(layer, SEEN))]


@pytest.mark.parametrize("name", UNSEEN)
def test_layers_whose_output_is_not_looked_at_cannot_overflow(name):
    """The largest numbers that there are, of either sign, stay finite."""
    layer, A_prev, _ = ready(name, dtype=np.float32)
    A_prev = tree(lambda A: np.sign(A) * np.finfo(np.float32).max, A_prev)
    with np.errstate(over="ignore"):
        assert all(np.isfinite(A).all() for A in leaves(layer.forward(A_prev)))


def test_a_layer_of_a_user_is_looked_at():
    class Square(mp.ReLU):
        can_overflow = True

        def forward(self, Z):
            super().forward(Z)
            return Z * Z

    with np.errstate(over="ignore"), pytest.raises(FloatingPointError, match=r"Square\(\): its output"):
        handed_on(Square(), OUTLIER)


def test_both_arrays_of_a_pair_are_looked_at():
    class Squares(mp.layers.Layer):
        def forward(self, A_prev):
            return A_prev.astype(np.float64), A_prev * A_prev

    with np.errstate(over="ignore"), pytest.raises(FloatingPointError, match=r"output .* float32 ends at"):
        handed_on(Squares(), OUTLIER)
    A, squares = handed_on(Squares(), OUTLIER / 1e5)
    assert np.array_equal(A.astype(np.float32) ** 2, squares)
