"""What may be handed in as data: arrays of finite real numbers, whatever their dtype; all else is refused."""

from decimal import Decimal
from fractions import Fraction

import numpy as np
import pytest
from compared import assert_same
from layers.duals import dual, slopes
from layers.test_overflow import state

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.schedules import build, with_updates

LAYERS = [mp.Linear(2, 3), mp.Tanh(), mp.Linear(3, 1)]
LOSS = mp.MeanSquaredError()
X, Y = np.array([[1.0, 2.0, 3.0, 4.0], [0.5, 0.0, -1.0, 2.0]]), np.array([[1.0, 0.0, 1.0, 0.5]])
MODELS = {
    "on one device": lambda: mp.Sequential(LAYERS, LOSS),
    "in a pipeline": lambda: mp.Pipeline(LAYERS, LOSS, 2, 2),
    "without a flush": lambda: mp.AsynchronousPipeline(LAYERS, LOSS, 2, mp.Adam(0.1)),
}


def trained(model, X, Y, optimizer=None):
    if isinstance(model, mp.AsynchronousPipeline):
        return model.train([(X, Y)])[0]
    J = model.forward_backward(X, Y)
    model.step(mp.Adam(0.1) if optimizer is None else optimizer)
    return J


def objects(array, value=None):
    array = array.astype(object)
    if value is not None:
        array[0, 1] = value
    return array


def masked(array):
    return np.ma.masked_array(array, array > 1)


WRONG = {
    "nothing": (lambda array: np.where(array == array[0, 1], None, array), r"holds None at index \(0, 1\)"),
    "NaN among objects": (lambda array: objects(array, np.nan), r"holds nan at index \(0, 1\): pass numbers"),
    "infinity among fractions": (
        lambda array: objects(rational(array), float("inf")), r"holds inf at index \(0, 1\): pass numbers",
    ),
    "a text among objects": (lambda array: objects(array, "2"), r"holds '2' at index \(0, 1\): pass numbers"),
    "a complex number": (lambda array: objects(array, 1j), r"holds 1j at index \(0, 1\): pass numbers"),
    "a decimal": (lambda array: objects(array, Decimal(1)), r"holds Decimal\('1'\) at index"),
    "an integer beyond floats": (
        lambda array: objects(array, 10**400), "holds an integer beyond all floats: scale it",
    ),
    "an array with a mask": (masked, "is a masked array, whose mask would be lost: fill it"),
    "texts": (lambda array: array.astype(str), "is an array of <U.*: pass real numbers"),
    "complex numbers": (lambda array: array + 0j, "is an array of complex128: pass real numbers"),
    "lists of different lengths": (lambda array: [[1.0, 2.0], [3.0]], "is no array: setting an array"),
    "NaN": (lambda array: array * np.nan, "holds NaN or infinity in . of . places, the first at index"),
}


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
@pytest.mark.parametrize("name", WRONG)
def test_data_that_are_no_finite_numbers_are_refused_and_move_nothing(name, make):
    spoil, words = WRONG[name]
    model = make()
    trained(model, X, Y)
    before, n_steps = state(model), model.n_steps
    for data, which in (((spoil(X), Y), "X"), ((X, spoil(Y)), "Y")):
        with pytest.raises(ValueError, match=f"{which}.*{words}"):
            trained(model, *data)
    with pytest.raises(ValueError, match=f"X.*{words}"):
        model.predict(spoil(X))
    assert_same(state(model), before)
    assert model.n_steps == n_steps


@pytest.mark.parametrize("name", WRONG)
def test_accuracy_is_that_of_finite_numbers_only(name):
    spoil, words = WRONG[name]
    A = np.array([[1.0, 2.0, 0.0], [0.5, 0.0, 1.0]])
    with pytest.raises(ValueError, match=words):
        mp.accuracy(spoil(A), A)
    with pytest.raises(ValueError, match=words):
        mp.accuracy(A, spoil(A))


@pytest.mark.parametrize("make", MODELS.values(), ids=MODELS)
def test_objects_that_are_plain_numbers_are_floats(make):
    """They come with pandas; an optimizer that has made a step goes on with them."""
    plain, as_objects = make(), make()
    optimizers = mp.Adam(0.1), mp.Adam(0.1)
    for _ in range(2):
        J = trained(plain, X, Y, optimizers[0])
        assert trained(as_objects, objects(X), objects(Y, 0), optimizers[1]) == J
        assert_same(state(as_objects), state(plain))
    truths = np.array([[True, False], [1, 0]], dtype=object)
    assert np.array_equal(plain.predict(truths), plain.predict(np.eye(2)[[0, 0]]))


def test_all_numbers_are_exact_if_one_is():
    net = mp.Sequential([layer.copy(rational) for layer in mp.Sequential(LAYERS, LOSS).layers], LOSS)
    J, gradients = net.forward_backward(rational(X), rational(Y)), net.gradients
    mixed = objects(X, Fraction(2))
    assert_same((net.forward_backward(mixed, objects(Y, Fraction(0))), net.gradients), (J, gradients))
    assert all(type(value) is Rational for value in net.predict(mixed).flat)


@pytest.mark.parametrize("make", [mp.Adam, mp.RMSProp])
def test_an_epsilon_that_is_0_in_the_gradients_dtype_is_refused_with_one_that_is_not(make):
    """1e-8 is 0 in float16; a gradient of 0 would be divided by it."""
    net, optimizer = mp.Sequential(LAYERS, LOSS, dtype=np.float16), make(0.01)
    X = np.array([[1, 2], [0, 0]], np.float16)
    net.forward_backward(X, Y[:, :2].astype(np.float16))
    before = state(net)
    with pytest.raises(ValueError, match="epsilon=1e-08 is 0 in float16: use a larger one, such as 1e-03"):
        net.step(optimizer)
    assert_same(state(net), before)
    assert optimizer.memory == {} and net.n_steps == 0
    net.step(make(0.01, epsilon=1e-3))
    assert all(np.isfinite(array).all() for array in state(net) if array is not None)
    assert make(0.01, epsilon=1e-300).epsilon == 1e-300  # float64 has it


@pytest.mark.parametrize("layer", [mp.LayerNorm(2, 1e-9), mp.BatchNorm(2, 1e-9), mp.GroupNorm(1, 2, 1e-9)])
def test_an_epsilon_that_is_0_beside_a_variance_is_refused_too(layer):
    net = mp.Sequential([layer, mp.Linear(2, 1)], LOSS, dtype=np.float16)
    ones = np.ones((2, 4), np.float16)
    for call in (lambda: net.forward_backward(ones, ones[:1]), lambda: net.predict(ones)):
        with pytest.raises(ValueError, match=r"epsilon=1e-09 is 0 in float16: use .*, such as 1e-03"):
            call()
    assert np.isfinite(net.forward_backward(np.ones((2, 4)), np.ones((1, 4))))


@pytest.mark.parametrize("loss", mp.losses.LOSSES.examples())
def test_a_loss_that_is_called_directly_checks_its_labels(loss):
    loss, _ = mp.losses.LOSSES.examples()[loss]
    A = np.full((2, 1), 0.5)
    with pytest.raises(ValueError, match="Y holds None at index"):
        loss.forward(A, np.array([[None], [1.0]]))
    with pytest.raises(ValueError, match="Y is a masked array"):
        loss.forward(A, masked(np.array([[2.0], [0.0]])))


def test_the_derivative_is_exact_for_labels_that_do_not_add_up_to_1():
    """By dual numbers: P - Y would be off by 0.0009 at the largest logit."""
    rng, loss = np.random.default_rng(0), mp.SoftmaxCrossEntropy()
    Z, D = rational(rng.standard_normal((3, 2, 4))), rational(rng.integers(-4, 5, (3, 2, 4)))
    Y = rational(np.full((3, 2, 4), 0.25))
    Y[0] += Rational(2509, 10**4)
    loss.forward(Z, Y)
    dZ = loss.backward()
    J = np.array([loss.forward(dual(Z, D), Y)], dtype=object)
    assert slopes(J)[0] == (dZ * D).sum()


@pytest.mark.parametrize("validation", [X, 3, (X, Y, X), [X], "XY", {"X": X, "Y": Y}])
def test_validation_data_are_a_pair(validation):
    net = mp.Sequential(LAYERS, LOSS)
    before = state(net)
    with pytest.raises(ValueError, match=r"(?s)validation=.* must be a pair \(X, Y\)"):
        mp.fit(net, X, Y, mp.SGD(0.1), 1, 2, validation=validation, report=None)
    assert_same(state(net), before)


def test_a_training_that_could_make_no_step_moves_nothing():
    """The order's own updates would already be made when the step is refused."""
    order = with_updates(build("1f1b", 2, 2))
    pipe = mp.Pipeline(LAYERS, LOSS, 2, 2, order, optimizer=mp.Adam(0.1))
    before = state(pipe)
    for model in (pipe, MODELS["without a flush"]()):
        with pytest.raises(RuntimeError, match="a step would be a second update; use train"):
            mp.fit(model, X, Y, mp.SGD(0.1), 1, 4, report=None)
    assert_same(state(pipe), before)
    assert pipe.n_steps == 0
    with pytest.raises(ValueError, match="pass an object, such as SGD"):
        mp.fit(mp.Sequential(LAYERS, LOSS), X, Y, mp.SGD, 1, 4, report=None)
