"""What no layer, loss or model can be made of, or take, is refused by name, and a refused step moves nothing.

Data are arrays of finite real numbers, whatever their dtype. Where one overflows, NumPy's own answer is
infinity, which some layers turn into plain numbers again: 1/s is 0 for an infinite variance, tanh of infinity
is 1. The cost then looks like any other.
"""

from decimal import Decimal
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from compared import assert_refused, assert_same, state
from layers.every_layer import LAYERS, dual, ready, slopes, tree

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational
from minipipe.layers.through import handed_on
from minipipe.losses import LOSSES
from minipipe.order import in_copies, with_all_reduce, with_updates
from minipipe.schedules import build

LOSS = mp.MeanSquaredError()
NETWORK = [mp.Linear(2, 3), mp.Tanh(), mp.Linear(3, 1)]
X, Y = np.array([[1.0, 2.0, 3.0, 4.0], [0.5, 0.0, -1.0, 2.0]]), np.array([[1.0, 0.0, 1.0, 0.5]])


def before(model):
    """All that a step can move, as it is now."""
    return state([layer.copy() for layer in model.layers]), model.n_steps


def assert_nothing_moved(model, earlier):
    assert_same(state(model.layers), earlier[0])
    assert model.n_steps == earlier[1]


def on_one_device(layers, dtype):
    return mp.Sequential(layers, LOSS, dtype=dtype)


def in_a_pipeline(layers, dtype):
    return mp.Pipeline(layers, LOSS, len(layers), 2, schedule="1f1b", dtype=dtype)


def in_an_order_with_updates(layers, dtype):
    order = with_updates(with_all_reduce(in_copies(build("1f1b", len(layers), 2), 2)))
    return mp.Pipeline(layers, LOSS, len(layers), 4, schedule=order, dtype=dtype)


def without_a_flush(layers, dtype):
    return mp.Pipeline(layers, LOSS, len(layers), 1, schedule="pipedream", dtype=dtype)


every_model = pytest.mark.parametrize(
    "make", [on_one_device, in_a_pipeline, in_an_order_with_updates, without_a_flush]
)
both_models = pytest.mark.parametrize("make", [on_one_device, in_a_pipeline])


def trained(model, X, Y, optimizer=None):
    """Return the cost of one mini-batch, after its update."""
    return model.train([(X, Y)], mp.Adam(0.1) if optimizer is None else optimizer)[0]


# --- arguments

TANH = mp.Tanh()


def embedded(tokens):
    return mp.Sequential([mp.Embedding(5, 2)], None).layers[0].forward(np.array(tokens))


def test_wrong_arguments_of_layers_and_models_are_refused():
    """tests/doors has a sweep over bounds, such as "must be at least 1"."""
    assert_refused([
        # Linear
        (lambda: mp.Linear(3, 2).forward(np.zeros((4, 5))),
         "Linear(3, 2) needs A_prev of shape (3, m), got (4, 5)"),
        (lambda: mp.Linear(3, 2, W=np.zeros((3, 2))), "W has shape (3, 2), but Linear(3, 2) needs (2, 3)"),
        # convolutions
        (lambda: mp.Conv2d(4, 6, 3, groups=4),
         "groups=4 does not divide both in_channels=4 and out_channels=6: use a divisor of 2"),
        (lambda: mp.Conv2d(1, 1, (3, 3, 3)),
         "kernel_size=(3, 3, 3) has 3 numbers for 2 axes: give one per axis"),
        (lambda: mp.Conv1d(1, 1, 0), "kernel_size=0 must be at least 1"),
        (lambda: mp.Conv1d(1, 1, 2.5), "kernel_size=2.5 must be a whole number"),
        (lambda: mp.Conv1d(1, 1, 3, padding="full"), "padding='full' is not known: use \"same\""),
        (lambda: mp.Conv1d(1, 1, 3, padding="same", stride=2),
         'padding="same" keeps the length, which stride=(2,) cannot'),
        (lambda: mp.Conv2d(3, 2, 3).forward(np.zeros((2, 5, 5, 3))),
         "needs A_prev of shape (3, H, W, m), got (2, 5, 5, 3)"),
        (lambda: mp.Conv2d(3, 2, 5, padding=1).output_shape((3, 6, 2, 3)),
         "spans (5, 5) places does not fit ... lengths (6, 2) "
         "with padding ((1, 1), (1, 1)): 5 > 2 + 2"),
        (lambda: mp.ConvTranspose1d(1, 1, 1, padding=1).output_shape((1, 1, 3)),
         "lengths (1,) would become (-1,), but each must be at least 1: use less padding"),
        # pooling and reshaping
        (lambda: mp.MaxPool1d(3, padding=2), "padding=2 exceeds kernel_size // 2, 1"),
        (lambda: mp.MaxPool2d(2).forward(np.zeros((3, 4, 5))),
         "needs A_prev of shape (C, H, W, m), got (3, 4, 5)"),
        (lambda: mp.GlobalAvgPool().forward(np.zeros((3, 4))),
         "needs A_prev of shape (C, ..., m) with spatial axes, got (3, 4)"),
        (lambda: mp.Reshape((0, 2)), "shape[0]=0 must be at least 1"),
        (lambda: mp.Reshape((3, 4)).forward(np.zeros((2, 5, 7))),
         "needs 12 numbers in a sample, got 10 in A_prev (2, 5, 7)"),
        (lambda: mp.Pad([-1]), "widths[0][0]=-1 must be at least 0"),
        (lambda: mp.Pad([1, 1]).forward(np.zeros((1, 2, 3))),
         "needs A_prev of shape (C, *2 spatial axes, m), got (1, 2, 3)"),
        # activations and normalisation
        (lambda: mp.Dropout(1), "p=1 must be at least 0 and below 1, the probability of 0"),
        (lambda: mp.GroupNorm(4, 6), "n_groups=4 does not divide the n=6 channels: use a divisor of 6"),
        (lambda: mp.LayerNorm(2, epsilon=0),
         "epsilon=0 must be above 0: it keeps equal numbers from being divided by 0"),
        (lambda: mp.LayerNorm(3).forward(np.ones((4, 2))),
         "needs A_prev of shape (3, ..., m), got (4, 2): samples are the last axis"),
        (lambda: mp.GroupNorm(3, 3).forward(np.ones(3)), "got (3,)"),
        # sequences
        (lambda: mp.MultiHeadAttention(6, 4), "n_heads=4 does not divide d=6: use a divisor of 6"),
        (lambda: embedded([[0, 5]]),
         "Embedding(5, 2): tokens run from 0 to 5, but it knows 0 to 4: use a larger n_tokens"),
        (lambda: embedded([[0, 0.5]]), "needs whole numbers as tokens, got 0.5"),
        (lambda: mp.PositionalEmbedding(2, 3).output_shape((2, 4, 1)),
         "T=4 positions exceed n_places=3"),
        (lambda: mp.PositionalEmbedding(2, 3).output_shape((3, 3, 1)),
         "needs A_prev of shape (2, T, m), got (3, 3, 1)"),
        (lambda: mp.MultiHeadAttention(4, 2).output_shape((5, 3, 1)),
         "needs A_prev of shape (4, T, m), got (5, 3, 1)"),
        # layers made of layers
        (lambda: mp.Chain(mp.ReLU),
         "layers[0] is <class ...: pass a layer object"),
        (lambda: mp.Concat(), "Concat needs at least 1 branch, got 0: pass lists of layers"),
        (lambda: mp.Residual(mp.Fork("a")),
         "Fork('a') is inside a layer: skips and ties belong"),
        (lambda: mp.Add([mp.Linear(2, 2, tie="a")]),
         "Linear(2, 2, tie='a') is inside a layer"),
        (lambda: mp.Chain(TANH, mp.Linear(2, 2), TANH),
         "the same Tanh() is in two places of a block: make an object"),
        # models
        (lambda: mp.models.mlp([3]), "sizes=[3] must have at least 2 numbers of units"),
        (lambda: mp.models.mlp([3, 2], mp.ReLU()),
         "activation=ReLU() must make a layer: pass a class, such as ReLU"),
        (lambda: mp.models.lenet5((28, 28)), "input_shape=(28, 28) must be (channels, H, W)"),
        (lambda: mp.models.lenet5(padding=(1, 1, 1)),
         "padding=(1, 1, 1) must have one number for each of the two"),
        (lambda: mp.models.amoebanet_d(4, 16), "L=4 normal cells must be a multiple of 3"),
        (lambda: mp.models.amoebanet_d(3, 12), "D=12 filters must be a multiple of 8"),
        # descriptions, which name the place
        (lambda: mp.describe([mp.Linear(3, 4), mp.ReLU(), mp.Linear(5, 2)], (3,)),
         "layers[2], Linear(5, 2), does not fit: Linear(5, 2) needs A_prev of shape (5, m), got "
         "(4, 1)"),
        (lambda: mp.describe(mp.models.lenet5(), (3, 28, 28)),
         "layers[0], Reshape((1, 28, 28)), does not fit: ... needs 784 numbers in a sample, got 2352"),
        (lambda: mp.describe(mp.models.amoebanet_d(3, 8), (3, 40, 40)),
         "layers[6], ReductionCell(16), does not fit"),
        (lambda: mp.describe([mp.ReLU, mp.ReLU()], (3,)),
         "layers[0] is <class ...ReLU'>: pass a layer object"),
        (lambda: mp.describe([mp.ReLU()], 3),
         "input_shape=3 must be the shape of one sample, a tuple such as (64,)"),
        (lambda: mp.describe([mp.ReLU()], (3, 0)), "input_shape[1]=0 must be at least 1"),
    ])


# --- data

def objects(array, value=None):
    array = array.astype(object)
    if value is not None:
        array[0, 1] = value
    return array


def masked(array):
    return np.ma.masked_array(array, array > 1)


WRONG = {
    "nothing": (lambda array: np.where(array == array[0, 1], None, array), "holds None at index (0, 1)"),
    "NaN among objects": (lambda array: objects(array, np.nan), "holds nan at index (0, 1): pass numbers"),
    "infinity among fractions": (
        lambda array: objects(rational(array), float("inf")), "holds inf at index (0, 1): pass numbers",
    ),
    "a text among objects": (lambda array: objects(array, "2"), "holds '2' at index (0, 1): pass numbers"),
    "a complex number": (lambda array: objects(array, 1j), "holds 1j at index (0, 1): pass numbers"),
    "a decimal": (lambda array: objects(array, Decimal(1)), "holds Decimal('1') at index"),
    "an integer beyond floats": (
        lambda array: objects(array, 10**400), "holds an integer too large for float64: scale it",
    ),
    "an array with a mask": (masked, "is a masked array, whose mask would be lost: fill it"),
    "texts": (lambda array: array.astype(str), "is an array of <U...: pass real numbers"),
    "complex numbers": (lambda array: array + 0j, "is an array of complex128: pass real numbers"),
    "lists of different lengths": (lambda array: [[1.0, 2.0], [3.0]], "cannot be turned into an array"),
    "NaN": (lambda array: array * np.nan, "holds NaN or infinity in ... of ... places, the first at index"),
}


@pytest.mark.parametrize("make", [on_one_device, in_a_pipeline, without_a_flush])
def test_data_that_are_not_finite_numbers_change_nothing(make):
    model = make(NETWORK, np.float64)
    trained(model, X, Y)
    earlier = before(model)
    for spoil, words in WRONG.values():
        assert_refused([
            (lambda: trained(model, spoil(X), Y), f"X...{words}"),
            (lambda: trained(model, X, spoil(Y)), f"Y...{words}"),
            (lambda: model.predict(spoil(X)), f"X...{words}"),
        ])
    assert_nothing_moved(model, earlier)


def test_accuracy_refuses_numbers_that_are_not_finite():
    A = np.array([[1.0, 2.0, 0.0], [0.5, 0.0, 1.0]])
    for spoil, words in WRONG.values():
        assert_refused([
            (lambda: mp.accuracy(spoil(A), A), words), (lambda: mp.accuracy(A, spoil(A)), words),
        ])


@pytest.mark.parametrize("make", [on_one_device, without_a_flush])
def test_objects_that_are_plain_numbers_are_floats(make):
    """They come with pandas; an optimizer that has made a step goes on with them."""
    plain, as_objects = make(NETWORK, np.float64), make(NETWORK, np.float64)
    optimizers = mp.Adam(0.1), mp.Adam(0.1)
    for _ in range(2):
        J = trained(plain, X, Y, optimizers[0])
        assert trained(as_objects, objects(X), objects(Y, 0), optimizers[1]) == J
        assert_same(state(as_objects.layers), state(plain.layers))
    truths = np.array([[True, False], [1, 0]], dtype=object)
    assert np.array_equal(plain.predict(truths), plain.predict(np.eye(2)[[0, 0]]))


def test_all_numbers_are_exact_if_one_is():
    net = mp.Sequential([layer.copy(rational) for layer in mp.Sequential(NETWORK, LOSS).layers], LOSS)
    J, gradients = net.forward_backward(rational(X), rational(Y)), net.gradients
    mixed = objects(X, Fraction(2))
    assert_same((net.forward_backward(mixed, objects(Y, Fraction(0))), net.gradients), (J, gradients))
    assert all(type(value) is Rational for value in net.predict(mixed).flat)


def test_a_loss_that_is_called_directly_checks_its_labels():
    A = np.full((2, 1), 0.5)
    for loss, _ in LOSSES.examples().values():
        assert_refused([
            (lambda: loss.forward(A, np.array([[None], [1.0]])), "Y holds None at index"),
            (lambda: loss.forward(A, masked(np.array([[2.0], [0.0]]))), "Y is a masked array"),
        ])


def test_the_derivative_is_exact_if_labels_do_not_add_up_to_1():
    """By dual numbers: P - Y would be off by 0.0009 at the largest logit."""
    rng, loss = np.random.default_rng(0), mp.SoftmaxCrossEntropy()
    Z, D = rational(rng.standard_normal((3, 2, 4))), rational(rng.integers(-4, 5, (3, 2, 4)))
    Y = rational(np.full((3, 2, 4), 0.25))
    Y[0] += Rational(2509, 10**4)
    loss.forward(Z, Y)
    dZ = loss.backward()
    J = np.array([loss.forward(dual(Z, D), Y)], dtype=object)
    assert slopes(J)[0] == (dZ * D).sum()


def test_trainings_that_fit_cannot_run_are_refused():
    flushes, updates = "without a flush, for which fit would wait: use train", (
        "clip=1.0 with the order of ...: leave clip out, or use an order without"
    )
    pair = "validation=... must be a pair (X, Y)"
    for make, options, words in [
        (without_a_flush, {}, flushes), (in_an_order_with_updates, {"clip": 1.0}, updates),
        *((on_one_device, {"validation": junk}, pair) for junk in (X, 3, (X, Y, X), [X], "XY", {"X": X})),
    ]:
        model = make(NETWORK, np.float64)
        earlier, fit = before(model), partial(mp.fit, model, X, Y, mp.SGD(0.1), 1, 4, report=None)
        assert_refused([(partial(fit, **options), words)])
        assert_nothing_moved(model, earlier)


# --- what overflows, or becomes 0

@pytest.mark.parametrize("make", [mp.Adam, mp.RMSProp])
def test_an_epsilon_that_is_0_in_the_gradients_dtype_is_refused(make):
    """1e-8 is 0 in float16; a gradient of 0 would be divided by it."""
    net, optimizer = mp.Sequential(NETWORK, LOSS, dtype=np.float16), make(0.01)
    X = np.array([[1, 2], [0, 0]], np.float16)
    net.forward_backward(X, Y[:, :2].astype(np.float16))
    earlier = before(net)
    with pytest.raises(ValueError, match="epsilon=1e-08 is 0 in float16: use a larger one, such as 1e-03"):
        net.step(optimizer)
    assert_nothing_moved(net, earlier)
    assert optimizer.memory == {}
    net.step(make(0.01, epsilon=1e-3))
    assert all(np.isfinite(array).all() for array in state(net.layers).values())
    assert make(0.01, epsilon=1e-300).epsilon == 1e-300  # float64 has it


@pytest.mark.parametrize("layer", [mp.LayerNorm(2, 1e-9), mp.BatchNorm(2, 1e-9), mp.GroupNorm(1, 2, 1e-9)])
def test_an_epsilon_that_vanishes_next_to_a_variance_is_refused(layer):
    net = mp.Sequential([layer, mp.Linear(2, 1)], LOSS, dtype=np.float16)
    ones = np.ones((2, 4), np.float16)
    for call in (lambda: net.forward_backward(ones, ones[:1]), lambda: net.predict(ones)):
        with pytest.raises(ValueError, match=r"epsilon=1e-09 is 0 in float16: use .*, such as 1e-03"):
            call()
    assert np.isfinite(mp.Sequential(net.layers, LOSS, dtype="float64").forward_backward(ones, ones[:1]))


def linear(n_prev, n, size):
    return mp.Linear(n_prev, n, W=np.full((n, n_prev), size, np.float32), b=np.zeros((n, 1), np.float32))


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


@every_model
def test_an_overflow_error_names_the_layer_and_changes_nothing(make):
    """Also in an order with updates, in which some stages have already updated."""
    for layers, X, words in OVERFLOWS.values():
        model = make(layers, np.float32)
        trained(model, X * 0 + np.arange(8, dtype=np.float32) / 8, ZEROS, mp.SGD(0.1))
        earlier = before(model)
        with pytest.raises(FloatingPointError, match=words):
            trained(model, X, ZEROS, mp.SGD(0.1))
        assert_nothing_moved(model, earlier)


@both_models
def test_a_cost_or_gradient_that_overflows_leaves_no_step_to_do(make):
    for name, words in (("the cost", "the cost is"), ("a gradient", "the gradient")):
        layers, X, _ = OVERFLOWS[name]
        model = make(layers, np.float32)
        with pytest.raises(FloatingPointError, match=words):
            model.forward_backward(X, ZEROS)
        with pytest.raises(RuntimeError):
            model.step(mp.SGD(0.1))


@every_model
def test_predictions_refuse_an_overflow(make):
    with pytest.raises(FloatingPointError, match=r"layer 1, Linear.*: its output"):
        make([mp.ReLU(), linear(2, 1, 1e30)], np.float32).predict(abs(OUTLIER))


@both_models
def test_running_statistics_that_overflow_refuse_the_step(make):
    """Those of the first layer have already been updated when the error is raised."""
    class Enlarging(mp.BatchNorm):
        def commit(self, moments):
            super().commit(moments._replace(M2=moments.M2 * np.float32(2.0**127)))

    model = make([mp.BatchNorm(2), linear(2, 2, 1), Enlarging(2), mp.Linear(2, 1)], np.float32)
    model.forward_backward(np.random.default_rng(0).standard_normal((2, 8)), ZEROS)
    earlier, optimizer = before(model), mp.SGD(0.1, momentum=0.9)
    with pytest.raises(FloatingPointError, match=r"layer 2, Enlarging.*: running_var is not finite"):
        model.step(optimizer)
    assert_nothing_moved(model, earlier)
    assert not optimizer.memory


SEEN = mp.Chain, mp.Embedding  # the layers of a Chain are; tokens are not numbers
UNSEEN = [name for name, (layer, _) in LAYERS.items() if not (layer.can_overflow or isinstance(layer, SEEN))]


def test_layers_whose_output_is_not_checked_cannot_overflow():
    """The largest numbers that there are, of either sign, stay finite."""
    for name in UNSEEN:
        layer, A_prev, _ = ready(name, dtype=np.float32)
        A_prev = tree(lambda A: np.sign(A) * np.finfo(np.float32).max, A_prev)
        with np.errstate(over="ignore"):
            assert all(np.isfinite(A).all() for A in leaves(layer.forward(A_prev))), name


def test_an_overflow_in_either_array_of_a_pair_is_refused():
    class Squares(mp.layers.Layer):
        def forward(self, A_prev):
            return A_prev.astype(np.float64), A_prev * A_prev

    with np.errstate(over="ignore"), pytest.raises(FloatingPointError, match=r"output .* float32 ends at"):
        handed_on(Squares(), OUTLIER)
    A, squares = handed_on(Squares(), OUTLIER / 1e5)
    assert np.array_equal(A.astype(np.float32) ** 2, squares)
