"""Every cost against its definition, central differences, and its promises about 1/m."""

import copy
import math
import pickle
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from compared import assert_all_same, assert_refused, assert_same, assert_within
from memory.test_without_values import assert_counted_without_values

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.losses import LOSSES

EXAMPLES = LOSSES.examples()
every_loss = pytest.mark.parametrize("loss, labels", EXAMPLES.values(), ids=EXAMPLES)
each_shape = pytest.mark.parametrize("shape", [(2, 4), (3, 2, 4)], ids=str)


def mini_batch(loss, labels, shape=(2, 4), dtype=np.float64, seed=0):
    """(A, Y) such as the loss takes, with samples last."""
    rng = np.random.default_rng(seed)
    A = rng.uniform(0.125, 0.875, shape) if loss.takes == "probabilities" else 2 * rng.standard_normal(shape)
    if labels == "classes":
        Y = mp.one_hot(rng.integers(0, shape[0], shape[1:]), shape[0])
    elif labels == "bits":
        Y = rng.integers(0, 2, shape).astype(float)
    else:
        Y = rng.standard_normal(shape)
    return A.astype(dtype), Y.astype(dtype)


# --- what every registered loss keeps

@every_loss
@each_shape
def test_derivative_equals_central_differences(loss, labels, shape):
    """For h = 1e-5, h^2/6 times the third derivative and rounding over h both stay below 1e-7.

    The third derivative is below 2000: those of -log(a) / m from a = 1/8 on are 2 / (a^3 m), at most 256.
    """
    (A, Y), h = mini_batch(loss, labels, shape), 1e-5
    loss.forward(A, Y)
    dA = loss.backward()
    for place in np.ndindex(A.shape):
        step = np.zeros_like(A)
        step[place] = h
        slope = (loss.forward(A + step, Y) - loss.forward(A - step, Y)) / (2 * h)
        assert_within(slope, dA[place], bound=1e-7, because="the third derivative, and rounding over h")


@every_loss
@each_shape
def test_parts_with_the_whole_m_add_up(loss, labels, shape):
    """J = J_1 + J_2 and dA side by side, in rational arithmetic, for a ragged split."""
    A, Y = map(rational, mini_batch(loss, labels, shape))
    J = loss.forward(A, Y)
    dA = loss.backward()
    parts = []
    for part in (slice(0, 3), slice(3, 4)):
        parts.append((loss.forward(A[..., part], Y[..., part], m=4), loss.backward()))
    assert_same(J, parts[0][0] + parts[1][0])
    assert_same(dA, np.concatenate([part[1] for part in parts], axis=-1))
    assert type(J) is Rational and all(type(number) is Rational for number in dA.flat)


@every_loss
def test_keeps_the_dtype_of_the_predictions_and_its_arguments(loss, labels):
    for dtype in (np.float32, np.float64):
        A, Y = mini_batch(loss, labels)  # labels in float64
        A = A.astype(dtype)
        for array in (A, Y):
            array.flags.writeable = False
        J, dA = loss.forward(A, Y), loss.backward()
        assert J.dtype == dA.dtype == dtype and dA.shape == A.shape and dA.flags.c_contiguous
        assert_same(loss.backward(), dA)  # the cache is as before


@every_loss
def test_wrong_labels_are_refused(loss, labels):
    A, Y = mini_batch(loss, labels)
    for wrong in (Y[:1], Y[:, :3], Y[0]):
        with pytest.raises(ValueError, match=r"the labels have shape .*, but the predictions have \(2, 4\)"):
            loss.forward(A, wrong)
    outside = {"numbers": [np.nan, np.inf], "bits": [np.nan, -1, 2], "classes": [np.nan, 2]}[labels]
    for number in outside:
        wrong = Y.copy()
        wrong[0, 1] = number
        with pytest.raises(ValueError, match="labels"):
            loss.forward(A, wrong)


@every_loss
def test_one_object_serves_many_micro_batches(loss, labels):
    """Its cache is one value that can be taken out and put back, also into a copy."""
    loss = copy.copy(loss)
    loss.cache = None
    with pytest.raises(RuntimeError, match="backward needs the cache of a forward"):
        loss.backward()
    (A, Y), other = mini_batch(loss, labels), mini_batch(loss, labels, seed=1)
    loss.forward(A, Y)
    expected, cache = loss.backward(), loss.cache
    loss.forward(*other)
    assert not np.array_equal(loss.backward(), expected)
    loss.cache = cache
    assert_same(pickle.loads(pickle.dumps(loss)).backward(), expected)


@every_loss
def test_it_prints_as_the_call_that_makes_it(loss, labels):
    assert repr(eval(repr(loss), {type(loss).__name__: type(loss)})) == repr(loss)


@every_loss
def test_a_loss_in_the_last_stage_equals_the_full_batch(loss, labels):
    """With stages, replicas and shards, in rational numbers."""
    last = [mp.Sigmoid()] if loss.takes == "probabilities" else []
    layers = mp.Sequential([mp.Linear(3, 4), mp.Tanh(), mp.Linear(4, 2), *last], None).layers
    layers = [layer.copy(rational) for layer in layers]
    X = rational(np.random.default_rng(0).integers(-3, 4, (3, 6))) / 2
    Y = rational(mini_batch(loss, labels, (2, 6))[1])
    runs = []
    for net in (
        mp.Sequential(layers, loss), mp.Pipeline(layers, loss, 3, 4, schedule="1f1b", recompute="always"),
        mp.Pipeline(layers, loss, 2, 3, schedule="zb-h1"), mp.DataParallel(layers, loss, 3),
        mp.TensorParallel(layers, loss, 2),
    ):
        runs.append([net.forward_backward(X, Y), net.gradients])
    assert_all_same(runs)


@every_loss
def test_a_loss_has_the_same_bytes_without_values(loss, labels):
    last = [mp.Sigmoid()] if loss.takes == "probabilities" else []
    layers, X = [mp.Linear(3, 2), *last], np.ones((3, 5), np.float32)
    _, Y = mini_batch(loss, labels, (2, 5), np.float32)
    assert_counted_without_values(layers, loss, X, Y, dtype=np.float32)


# --- those of the package

def by_definition(loss, a, y):
    """The cost of one sample, in plain Python."""
    if isinstance(loss, mp.MeanSquaredError):
        return sum((p - q) ** 2 for p, q in zip(a, y)) / 2
    if isinstance(loss, mp.SoftmaxCrossEntropy):
        return -sum(q * math.log(math.exp(p) / sum(map(math.exp, a))) for p, q in zip(a, y))
    if loss.from_logits:
        a = [1 / (1 + math.exp(-p)) for p in a]
    return -sum(q * math.log(p) + (1 - q) * math.log(1 - p) for p, q in zip(a, y))


@pytest.mark.parametrize("loss, labels, shape", [
    (mp.MeanSquaredError(), "numbers", (2, 4)), (mp.BinaryCrossEntropy(), "bits", (2, 4)),
    (mp.BinaryCrossEntropy(from_logits=True), "bits", (2, 4)), (mp.SoftmaxCrossEntropy(), "classes", (2, 4)),
    (mp.SoftmaxCrossEntropy(), "classes", (3, 2, 4)),  # the mean over places and samples
], ids=repr)
def test_equals_its_definition(loss, labels, shape):
    """A few dozen operations on numbers below 8, each right to 4 units in the last place."""
    A, Y = mini_batch(loss, labels, shape)
    J = loss.forward(A, Y)
    columns = [array.reshape(len(array), -1).T.tolist() for array in (A, Y)]
    costs = [by_definition(loss, a, y) for a, y in zip(*columns)]
    assert abs(J - sum(costs) / len(costs)) <= 40 * 8 * 8 * np.finfo(float).eps / 2


def test_binary_with_a_sigmoid_equals_the_fused_form():
    """A Sigmoid and then BinaryCrossEntropy gives dZ = (a - y)/m, as the fused form does: == in rationals."""
    exact = mp.exact.rational
    Z, y = exact([[0.5, -2.0, 3.0]]), exact([[1, 0, 1]])
    sigmoid, loss, fused = mp.Sigmoid(), mp.BinaryCrossEntropy(), mp.BinaryCrossEntropy(from_logits=True)
    loss.forward(sigmoid.forward(Z), y)
    fused.forward(Z, y)
    assert np.array_equal(sigmoid.backward_input(loss.backward()), fused.backward())


def test_huge_logits_stay_finite():
    for dtype in (np.float32, np.float64):
        Z, y = np.array([[1e4, -1e4]], dtype), np.array([[0.0, 1.0]], dtype)
        loss = mp.BinaryCrossEntropy(from_logits=True)
        assert loss.forward(Z, y) == 1e4 and np.array_equal(loss.backward(), [[0.5, -0.5]])
        assert mp.SoftmaxCrossEntropy().forward(Z.T, y.T) == 2e4


def test_certain_and_right_probabilities_cost_nothing():
    loss = mp.BinaryCrossEntropy()
    for number in (np.array, rational):
        assert loss.forward(number([[1.0, 0.0]]), number([[1.0, 0.0]])) == 0
        assert np.array_equal(loss.backward(), [[-0.5, 0.5]])


def test_whole_numbers_as_predictions_do_not_round_the_labels():
    assert mp.MeanSquaredError().forward(np.array([[1, 3]]), np.array([[0.5, 1.5]])) == 0.625


SOFTMAX, BINARY = mp.SoftmaxCrossEntropy(), mp.BinaryCrossEntropy()


def test_labels_without_a_finite_cost_are_refused_with_a_remedy():
    rows = [
        (BINARY, np.float32([[1e-40]]), [[1.0]], "the cost is infinite"),  # its reciprocal overflows
        (BINARY, [[1.0, 0.5]], [[0.0, 1.0]], "1 of 2 probabilities...from_logits=True"),
        (BINARY, rational([[0]]), rational([[1]]), "infinite, 1 of 1 probabilities are 0 or 1 where"),
        (BINARY, rational([[1]]), rational([[0]]), "infinite, 1 of 1 probabilities are 0 or 1 where"),
        (BINARY, rational([[0]]), rational([[Fraction(1, 2)]]), "infinite, 1 of 1 probabilities are 0 or 1"),
        (BINARY, [[1 + 2**-52]], [[1.0]], "the predictions lie outside 0..1: put a Sigmoid before it"),
        (BINARY, [[-(2.0**-60)]], [[0.0]], "the predictions lie outside 0..1: put a Sigmoid before it"),
        (SOFTMAX, np.zeros((3, 4)), np.zeros(4),
         "labels have shape (4,), but the predictions have (3, 4)...one_hot(labels, n_classes=3)"),
        (SOFTMAX, np.zeros((2, 2)), [[1.0, 1.0], [0.0, 1.0]], "column 1 of the labels adds up to 2.0, not 1"),
        (SOFTMAX, np.zeros((2, 1)), [[0.51], [0.5]], "column 0 of the labels adds up to 1.01"),
        (SOFTMAX, np.zeros((2, 1)), [[np.nan], [1.0]], "column 0 of the labels adds up to nan"),
        (SOFTMAX, np.zeros((2, 1)), [[2.0], [-1.0]], "or has a negative entry"),
        (SOFTMAX, np.zeros((2, 1, 2)), [[[1.0, 1.0]], [[0.0, 1.0]]],
         "column 0, 1 of the labels adds up to 2.0"),
        (BINARY, [[0.5, 0.5]], [[2.0, 1.0]], "1 of 2 labels lie outside 0..1, the first is 2.0"),
        (BINARY, [[0.5, 0.5]], [[np.nan, 1.0]], "1 of 2 labels lie outside 0..1, the first is nan"),
        (mp.MeanSquaredError(), [[0.5]], [[np.nan]], "the labels hold NaN or infinity: clean the data first"),
    ]
    assert_refused([
        (partial(loss.forward, np.array(A), np.array(Y)), words) for loss, A, Y, words in rows
    ])


def test_one_hot_and_accuracy_refuse_what_they_cannot_mean():
    assert_refused([
        (lambda: mp.one_hot([0, 3], 3), "labels run from 0 to 3, but n_classes=3 allows 0 to 2"),
        (lambda: mp.one_hot([0.5], 3), "whole numbers"),
        (lambda: mp.one_hot(2, 3), "shape (..., m), got shape () of int64"),
        (lambda: mp.accuracy(np.zeros((1, 3)), np.zeros((1, 3))), "at least 2 rows"),
        (lambda: mp.accuracy(np.ones((3, 0)), np.ones((3, 0))), "of shape (3, 0): pass at least 1 sample"),
    ])


def test_binary_of_soft_labels_is_the_sum_term_by_term():
    """Labels between 0 and 1 weigh both logarithms; `==` in rationals, where log is rounded once each."""
    A = rational([[Fraction(1, 4), Fraction(2, 3), Fraction(1, 2)]])
    Y = rational([[Fraction(1, 3), Fraction(3, 4), 0]])
    terms = [y * np.log(a) + (1 - y) * np.log(1 - a) for a, y in zip(A.ravel(), Y.ravel(), strict=True)]
    assert mp.BinaryCrossEntropy().forward(A, Y) == -sum(terms) / 3


class OfClasses(mp.losses.Loss):
    """Softmax cross-entropy of logits, with the number of the class as label; it overrides forward."""

    def forward(self, A, Y, m):
        P = np.exp(A) / np.exp(A).sum(axis=0)
        self.cache = P, Y[0], m
        return -np.log(P[Y[0], np.arange(A.shape[1])]).sum() / m

    def backward(self):
        P, classes, m = self.cache
        dA = P.copy()
        dA[classes, np.arange(P.shape[1])] -= 1
        return dA / m


def test_a_loss_may_take_whole_numbers_as_indices():
    layers, classes = [mp.Linear(3, 2)], np.array([[0, 1, 1, 0]])
    X = np.random.default_rng(0).standard_normal((3, 4))
    own = mp.Pipeline(layers, OfClasses(), 1, 2)
    ours = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 1, 2)
    J = own.forward_backward(X, classes)
    assert abs(J - ours.forward_backward(X, mp.one_hot(classes[0], 2))) < 1e-15
    # A loss of logits subtracts the largest one first, which this one does not: a few roundings below 1
    assert np.allclose(own.gradients[0][0], ours.gradients[0][0], rtol=0, atol=1e-15)
