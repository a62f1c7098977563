"""Every cost against its definition, central differences, and its promises about 1/m."""

import math
from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.exact import rational

P = [[0.2, 0.7, 0.4, 0.9], [0.8, 0.3, 0.6, 0.5]]
LOSSES = {
    "mean squared error": (mp.MeanSquaredError(), P),
    "softmax": (mp.SoftmaxCrossEntropy(), [[2.0, -1.0, 0.0, 3.0], [0.5, 1.0, 0.0, -2.0]]),
    "binary": (mp.BinaryCrossEntropy(), P),
    "binary from logits": (
        mp.BinaryCrossEntropy(from_logits=True),
        [[2.0, -1.0, 0.0, 3.0], [0.5, 1.0, 0.0, -2.0]],
    ),
}
Y = np.array([[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 0.0]])
every_loss = pytest.mark.parametrize("loss, A", LOSSES.values(), ids=LOSSES)


def by_definition(loss, a, y):
    """The cost of one sample, in plain Python."""
    if isinstance(loss, mp.MeanSquaredError):
        return sum((p - q) ** 2 for p, q in zip(a, y)) / 2
    if isinstance(loss, mp.SoftmaxCrossEntropy):
        return -sum(q * math.log(math.exp(p) / sum(map(math.exp, a))) for p, q in zip(a, y))
    if loss.from_logits:
        a = [1 / (1 + math.exp(-p)) for p in a]
    return -sum(q * math.log(p) + (1 - q) * math.log(1 - p) for p, q in zip(a, y))


@every_loss
def test_equals_its_definition(loss, A):
    """A few dozen operations on numbers below 8, each right to 4 units in the last place."""
    J = loss.forward(np.array(A), Y)
    expected = sum(by_definition(loss, a, y) for a, y in zip(np.array(A).T.tolist(), Y.T.tolist())) / 4
    assert abs(J - expected) <= 40 * 8 * 8 * np.finfo(float).eps / 2


@every_loss
def test_derivative_equals_central_differences(loss, A):
    """h^2/6 times the third derivative (below 100 here) and rounding over h both stay below 1e-7 at h = 1e-5.
    """
    A, h = np.array(A), 1e-5
    loss.forward(A, Y)
    dA = loss.backward()
    for place in np.ndindex(A.shape):
        step = np.zeros_like(A)
        step[place] = h
        assert abs((loss.forward(A + step, Y) - loss.forward(A - step, Y)) / (2 * h) - dA[place]) < 1e-7


@every_loss
def test_parts_with_the_whole_m_add_up(loss, A):
    """J = J_1 + J_2 and dA side by side, in rational arithmetic, for a ragged split."""
    exact = mp.exact.rational
    A, labels = exact(A), exact(Y)
    J = loss.forward(A, labels)
    dA = loss.backward()
    parts = []
    for part in (slice(0, 3), slice(3, 4)):
        parts.append((loss.forward(A[:, part], labels[:, part], m=4), loss.backward()))
    assert J == parts[0][0] + parts[1][0]
    assert np.array_equal(dA, np.hstack([part[1] for part in parts]))


@every_loss
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_keeps_the_dtype_of_the_predictions(loss, A, dtype):
    J = loss.forward(np.array(A, dtype), Y)  # labels in float64
    assert J.dtype == loss.backward().dtype == dtype


def test_binary_after_a_sigmoid_has_the_derivative_of_the_textbook():
    a, y = np.array([[0.25, 0.75]]), np.array([[1.0, 0.0]])
    loss = mp.BinaryCrossEntropy()
    loss.forward(a, y)
    assert np.array_equal(loss.backward(), (-y / a + (1 - y) / (1 - a)) / 2)


def test_binary_both_ways_agree_exactly_where_the_sigmoid_is_exact():
    """A Sigmoid and then BinaryCrossEntropy gives dZ = (a - y)/m, as the fused form does: == in rationals."""
    exact = mp.exact.rational
    Z, y = exact([[0.5, -2.0, 3.0]]), exact([[1, 0, 1]])
    sigmoid, loss, fused = mp.Sigmoid(), mp.BinaryCrossEntropy(), mp.BinaryCrossEntropy(from_logits=True)
    loss.forward(sigmoid.forward(Z), y)
    fused.forward(Z, y)
    assert np.array_equal(sigmoid.backward_input(loss.backward()), fused.backward())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_huge_logits_stay_finite(dtype):
    Z, y = np.array([[1e4, -1e4]], dtype), np.array([[0.0, 1.0]], dtype)
    loss = mp.BinaryCrossEntropy(from_logits=True)
    assert loss.forward(Z, y) == 1e4 and np.array_equal(loss.backward(), [[0.5, -0.5]])
    loss = mp.SoftmaxCrossEntropy()
    assert loss.forward(np.array([[1e4], [-1e4]], dtype), np.array([[0.0], [1.0]], dtype)) == 2e4


def test_certain_and_right_probabilities_cost_nothing():
    loss = mp.BinaryCrossEntropy()
    assert loss.forward(np.array([[1.0, 0.0]]), np.array([[1.0, 0.0]])) == 0
    assert np.array_equal(loss.backward(), [[-0.5, 0.5]])


def test_whole_numbers_as_predictions_do_not_round_the_labels():
    assert mp.MeanSquaredError().forward(np.array([[1, 3]]), np.array([[0.5, 1.5]])) == 0.625


def test_probabilities_whose_reciprocal_overflows_are_refused():
    with pytest.raises(ValueError, match="the cost is infinite"):
        mp.BinaryCrossEntropy().forward(np.array([[1e-40]], np.float32), np.array([[1.0]], np.float32))


def test_certain_and_wrong_probabilities_are_refused_with_the_remedy():
    with pytest.raises(ValueError, match=r"1 of 2 probabilities.*from_logits=True"):
        mp.BinaryCrossEntropy().forward(np.array([[1.0, 0.5]]), np.array([[0.0, 1.0]]))


def test_wrong_labels_are_refused_with_the_remedy():
    loss = mp.SoftmaxCrossEntropy()
    with pytest.raises(
        ValueError,
        match=r"labels have shape \(4,\), but the predictions have \(3, 4\).*one_hot\(labels, n_classes=3\)",
    ):
        loss.forward(np.zeros((3, 4)), np.zeros(4))
    with pytest.raises(ValueError, match=r"labels have shape \(3, 5\), but the predictions have \(3, 4\)"):
        loss.forward(np.zeros((3, 4)), np.zeros((3, 5)))
    with pytest.raises(ValueError, match=r"column 1 of the labels adds up to 2\.0, not 1"):
        loss.check(np.array([[1.0, 1.0], [0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"column 0 of the labels adds up to 1\.01"):
        loss.check(np.array([[0.51], [0.5]]))
    with pytest.raises(ValueError, match="or has a negative entry"):
        loss.check(np.array([[2.0], [-1.0]]))
    with pytest.raises(ValueError, match=r"lie outside 0\.\.1: put a Sigmoid before it"):
        mp.BinaryCrossEntropy().forward(np.array([[-0.5, 1.5]]), np.array([[0.0, 1.0]]))
    with pytest.raises(ValueError, match=r"1 of 2 labels lie outside 0\.\.1, the first is 2\.0"):
        mp.BinaryCrossEntropy().check(np.array([[2.0, 1.0]]))
    with pytest.raises(RuntimeError, match="call forward"):
        mp.MeanSquaredError().backward()


def test_one_hot_and_accuracy_refuse_what_they_cannot_mean():
    with pytest.raises(ValueError, match="labels run from 0 to 3, but n_classes=3 allows 0 to 2"):
        mp.one_hot([0, 3], 3)
    with pytest.raises(ValueError, match="whole numbers"):
        mp.one_hot([0.5], 3)
    with pytest.raises(ValueError, match=r"shape \(..., m\), got shape \(\) of int64"):
        mp.one_hot(2, 3)
    with pytest.raises(ValueError, match="at least 2 rows"):
        mp.accuracy(np.zeros((1, 3)), np.zeros((1, 3)))


@pytest.mark.parametrize(("a", "y"), [(0, 1), (1, 0), (0, Fraction(1, 2))])
def test_an_exact_probability_of_0_is_refused_where_the_label_says_otherwise(a, y):
    A, Y = (mp.exact.rational([[number]]) for number in (a, y))
    with pytest.raises(ValueError, match="the cost is infinite, 1 of 1 probabilities are 0 or 1 where"):
        mp.BinaryCrossEntropy().forward(A, Y)
    assert mp.BinaryCrossEntropy().forward(A, A) == 0


@pytest.mark.parametrize(("a", "y"), [(1.5, 1), (1 + 2**-52, 1), (-0.5, 0), (-(2.0**-60), 0)])
def test_what_is_no_probability_is_refused_also_where_the_label_says_the_same(a, y):
    with pytest.raises(ValueError, match=r"the predictions lie outside 0\.\.1"):
        mp.BinaryCrossEntropy().forward(np.array([[a]]), np.array([[float(y)]]))


def test_binary_cross_entropy_of_soft_labels_is_the_sum_term_by_term():
    """Labels between 0 and 1 weigh both logarithms; `==` in rationals, where log is rounded once each."""
    A = rational([[Fraction(1, 4), Fraction(2, 3), Fraction(1, 2)]])
    Y = rational([[Fraction(1, 3), Fraction(3, 4), 0]])
    terms = [y * np.log(a) + (1 - y) * np.log(1 - a) for a, y in zip(A.ravel(), Y.ravel(), strict=True)]
    assert mp.BinaryCrossEntropy().forward(A, Y) == -sum(terms) / 3
