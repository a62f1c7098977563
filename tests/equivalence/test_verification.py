"""The verdicts can say no, and the rounding bounds hold against the exact result itself."""

import numpy as np
import pytest
from cases import BOUNDED, BOUNDED_LOSSES, cases, eighths, exact
from compared import assert_same, assert_within
from hypothesis import given, settings
from sampling import a_quarter_of_the_examples

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational
from minipipe.parallel.stage import Stage
from minipipe.verification import (
    equals_full_batch, equals_same_groups, rounding_bounds, same_bits, share_of_bound, verdicts,
)
from minipipe.verification.verdicts import _share


def pipe_and_batch():
    X, Y = (part[:, :12] for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 8), mp.ReLU(), mp.Linear(8, 10)]
    return mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 4), X, Y


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@a_quarter_of_the_examples
def test_one_evaluation_is_within_its_bound_of_the_true_value(share, dtype):
    """Truth is the same network in rational arithmetic, whose exp and log are right to 64 bits."""
    @settings(max_examples=60 // share)
    @given(cases(activations=BOUNDED, losses=BOUNDED_LOSSES))
    def holds(case):
        layers, X, Y = case.converted(dtype)
        for error, bound in errors_and_bounds(layers, case.loss, X, Y):
            assert np.all(error <= bound)

    holds()


@pytest.mark.parametrize(
    "loss",
    [mp.SoftmaxCrossEntropy(), mp.MeanSquaredError(), mp.BinaryCrossEntropy(from_logits=True)],
    ids=repr,
)
@pytest.mark.parametrize("activation", [mp.ReLU(), mp.Tanh(), mp.Sigmoid()], ids=repr)
def test_the_bound_is_no_blank_cheque(loss, activation):
    """For digits in float64 it stays below a billionth of J and of the largest gradient."""
    _, X, Y = pipe_and_batch()
    net = mp.Sequential([mp.Linear(64, 8, mp.xavier), activation, mp.Linear(8, 10)], loss)
    J = net.forward_backward(X, Y)
    bounds = rounding_bounds(net.layers, loss, X, Y)
    assert bounds.J < 1e-9 * J
    for (dW, _), (limit, _) in zip(net.gradients, bounds.gradients):
        assert dW is None or limit.max() < 1e-9 * abs(dW).max()


MSE, CE, LOGITS = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy(), mp.BinaryCrossEntropy(from_logits=True)
BOUNDS = [  # activation, loss, the bound of J, the sum of the bounds of all gradients, for u = 2^-11
    (mp.ReLU(), MSE, 0.02637341329, 5.995774349), (mp.ReLU(), CE, 0.04193249511, 4.007427445),
    (mp.ReLU(), LOGITS, 0.09456168807, 3.157314898),
    (mp.ReLU(), mp.BinaryCrossEntropy(), 0.1083883407, 4.556914949),
    (mp.Tanh(), MSE, 0.04659691132, 0.595947414), (mp.Tanh(), CE, 0.06115219369, 0.588823432),
    (mp.Tanh(), LOGITS, 0.1101195439, 0.3103318311),
    (mp.Tanh(), mp.BinaryCrossEntropy(), 0.1041489455, 1.194532498),
    (mp.Sigmoid(), MSE, 0.02197885827, 0.1903720876), (mp.Sigmoid(), CE, 0.05002389758, 0.2665137558),
    (mp.Sigmoid(), LOGITS, 0.1064481023, 0.1507412997),
    (mp.Sigmoid(), mp.BinaryCrossEntropy(), 0.0863959701, 0.5454076318),
]


@pytest.mark.parametrize("activation, loss, of_J, of_gradients", BOUNDS, ids=str)
def test_no_term_of_a_bound_is_lost(activation, loss, of_J, of_gradients):
    """The bounds as they were derived, recorded with ten digits; u is large, so that u^2 counts as well."""
    X, Y, b = np.array([[1, -2, 0.5], [0.25, 3, -1]]), np.array([[1.0, 0, 0], [0, 1, 1]]), [[0.625], [-0.25]]
    W1, W2 = np.array([[0.5, -0.25], [1, 0.75]]), np.array([[1, -0.5], [0.25, 2]])
    layers = [mp.Linear(2, 2, W=W1, b=b), activation, mp.Linear(2, 2, W=W2, b=b)]
    layers += [mp.Sigmoid()] if loss.takes == "probabilities" else []
    bounds = verdicts._bounds(layers, loss, X, Y, verdicts.Gamma(np.float16))
    found = [bounds.J, sum(part.sum() for part in leaves(bounds.gradients))]
    recorded = np.array([of_J, of_gradients])
    assert_within(found, recorded, bound=1e-9 * recorded, because="recorded with ten digits")


def test_two_evaluations_may_differ_by_twice_the_bound():
    assert _share(1.5, 1.0, 0.125) == 2 and _share([1.0, 2.0], [1.0, 2.25], [0.5, 0.25]) == 0.5


def errors_and_bounds(layers, loss, X, Y):
    """[(error, bound)] of J and every gradient, where truth is the same network in rational arithmetic."""
    net, exact = mp.Sequential(layers, loss), mp.Sequential([layer.copy(rational) for layer in layers], loss)
    found = [
        (rational([net.forward_backward(X, Y)])[0], exact.forward_backward(rational(X), rational(Y)), None)
    ]
    bounds = rounding_bounds(layers, loss, X, Y)
    for pair, truth, bound in zip(net.gradients, exact.gradients, bounds.gradients):
        found += [
            (rational(mine), true, limit) for mine, true, limit in zip(pair, truth, bound) if mine is not None
        ]
    found[0] = (*found[0][:2], bounds.J)
    return [(np.asarray(abs(mine - true), float), limit) for mine, true, limit in found]


def test_the_bound_holds_where_large_logits_cancel():
    """The rounding of the logits, not that of softmax, decides here."""
    layer = mp.Linear(2, 2, W=np.float32([[40970.3, -40960.7], [1.1, -0.3]]), b=np.zeros((2, 1), np.float32))
    X, Y = np.float32([[1.1, 0.7, 1.3], [1.1003, 0.7001, 1.3002]]), np.float32([[1, 0, 1], [0, 1, 0]])
    for error, bound in errors_and_bounds([layer], mp.SoftmaxCrossEntropy(), X, Y):
        assert np.all(error <= bound)


def test_the_slope_of_a_relu_is_unknown_near_0():
    """0.1 + 0.2 - 0.3 is 5.6e-17 in floats and 0 or so in truth: the slope may be 0 or 1."""
    layers = [
        mp.Linear(3, 1, W=[[1.0, 1.0, 1.0]], b=[[0.0]]),
        mp.ReLU(),
        mp.Linear(1, 1, W=[[1.0]], b=[[1.0]]),
    ]
    X, Y = np.array([[0.1], [0.2], [-0.3]]), np.array([[0.0]])
    bound = rounding_bounds(layers, mp.MeanSquaredError(), X, Y).gradients[0][1]
    assert bound[0, 0] >= 1  # db is 1 or 0


def of_every_gradient(change):
    """A wrong `Stage.gradients`, which changes each array."""
    return lambda found: [tuple(None if part is None else change(part) for part in pair) for pair in found]


def one_entry(place, number):
    """A wrong `Stage.gradients`, whose first stage has another number in one entry of W or b."""
    def change(found):
        part = found[0]["Wb".index(place)]
        part[0, 0] = number(part[0, 0])
        return found

    return change


def one_bit_more(number):
    return np.nextafter(number, np.inf)


BITS, FULL, BOUND = same_bits, equals_full_batch, lambda *run: share_of_bound(*run) <= 1


@pytest.mark.parametrize("method, change, verdicts", [
    ("gradients", of_every_gradient(np.float32), [BITS, FULL, BOUND]),
    ("gradients", of_every_gradient(np.longdouble), [BITS]),
    ("gradients", of_every_gradient(lambda part: part * (1 + 1e-9)), [BITS, FULL, BOUND]),
    ("gradients", one_entry("W", one_bit_more), [BITS, FULL]),
    ("gradients", one_entry("b", one_bit_more), [BITS, FULL]),
    ("cost", one_bit_more, [BITS]),
    ("cost", lambda J: J * (1 + 1e-9), [BITS, BOUND]),
], ids=["float32", "longdouble", "a billionth", "a bit of W", "a bit of b", "a bit of J", "a billionth of J"])
def test_what_is_wrong_in_a_pipeline_is_noticed(method, change, verdicts, monkeypatch):
    pipe, X, Y = pipe_and_batch()
    assert same_bits(pipe, X, Y) and share_of_bound(pipe, X, Y) <= 1
    spoil(pipe, method, change, monkeypatch)
    assert not any(verdict(pipe, X, Y) for verdict in verdicts)


def spoil(pipe, method, change, monkeypatch):
    """Change what `method` of the first stage of the pipeline returns, or `cost` of any stage."""
    right = getattr(Stage, method)

    def wrong(stage):
        is_meant = stage in pipe.stages and (stage is pipe.stages[0] or method == "cost")
        return change(right(stage)) if is_meant else right(stage)

    monkeypatch.setattr(Stage, method, wrong)


@pytest.mark.parametrize("wrong", [np.nan, np.inf])
def test_a_gradient_that_is_not_finite_is_never_within_the_bound(wrong, monkeypatch):
    pipe, X, Y = pipe_and_batch()
    spoil(pipe, "gradients", one_entry("W", lambda number: wrong), monkeypatch)
    with pytest.raises(FloatingPointError, match=r"layer 0, Linear\(.*\): the gradient is not finite"):
        share_of_bound(pipe, X, Y)


@pytest.mark.parametrize("layer, place", [(0, 0), (2, 0), (2, 1), (6, 1), ("J", None)])
def test_what_is_off_by_anything_is_not_that_of_the_same_groups(layer, place, monkeypatch):
    """With BatchNorm, dropout, a skip connection and a tie, in rational numbers."""
    rng = np.random.default_rng(0)
    layers = [
        mp.Linear(2, 2, tie="W"), mp.Fork("a"), mp.BatchNorm(2), mp.Dropout(0.25), mp.Linear(2, 2, tie="W"),
        mp.Join("a"), mp.Linear(2, 1),
    ]
    X, Y = eighths(rng.standard_normal((2, 5))), eighths(rng.standard_normal((1, 5)))
    pipe = mp.Pipeline(exact(layers), mp.MeanSquaredError(), 4, 2)
    assert equals_same_groups(pipe, X, Y) and not equals_full_batch(pipe, X, Y)
    gradients = mp.Pipeline.gradients.fget

    def spoilt(self):
        found = [list(pair) for pair in gradients(self)]
        found[layer][place] = found[layer][place] + Rational(1, 10**30)
        return found

    if layer == "J":
        spoil(pipe, "cost", lambda J: J + Rational(1, 10**30), monkeypatch)
    else:
        monkeypatch.setattr(mp.Pipeline, "gradients", property(spoilt))
    assert not equals_same_groups(pipe, X, Y)


def test_verdicts_compare_at_the_step_of_the_pipeline():
    """Dropout's masks change from step to step; each reference is at the same one, and stays out
    of the pipeline's way.
    """
    layers = [mp.Linear(2, 8), mp.Dropout(), mp.Linear(8, 1)]
    pipe = mp.Pipeline(exact(layers), mp.MeanSquaredError(), 2, 2)
    X, Y = eighths(np.ones((2, 4))), eighths(np.ones((1, 4)))
    for _ in range(2):
        J = pipe.forward_backward(X, Y)
        pipe.step(mp.SGD(Rational(1, 8)))
        assert equals_full_batch(pipe, X, Y) and equals_same_groups(pipe, X, Y) and same_bits(pipe, X, Y)
        assert pipe.J != J


def test_where_rounding_decides_everything_there_is_no_verdict():
    """A sigmoid of 19 in float32 is 1 to the last place, so log(1 - a) could be anything."""
    layers = [mp.Linear(1, 1, W=[[1.0]], b=[[0.0]]), mp.Sigmoid()]
    pipe = mp.Pipeline(layers, mp.BinaryCrossEntropy(), 2, 2)
    with pytest.raises(ValueError, match="no finite bound"):
        share_of_bound(pipe, np.array([[16.5, -1.0]], np.float32), np.array([[0.0, 1.0]], np.float32))
    with pytest.raises(ValueError, match="float32 and float64, not for float16"):
        share_of_bound(pipe, np.array([[1.0, -1.0]], np.float16), np.array([[0.0, 1.0]], np.float16))
    with pytest.raises(ValueError, match=r"no rounding bound is derived for LeakyReLU"):
        rounding_bounds([mp.LeakyReLU()], mp.MeanSquaredError(), np.ones((1, 1)), np.ones((1, 1)))


def test_a_bound_is_only_for_the_layer_it_was_derived_for():
    class Doubled(mp.Linear):
        def forward(self, A_prev):
            return 2 * super().forward(A_prev)

    class Named(mp.Linear):
        pass

    one = np.ones((1, 1))
    with pytest.raises(ValueError, match=r"no rounding bound is derived for Doubled\(1, 1\)"):
        rounding_bounds([Doubled(1, 1, W=one, b=one)], mp.MeanSquaredError(), one, one)
    named, plain = (rounding_bounds([kind(1, 1, W=one, b=one)], mp.MeanSquaredError(), one, one)
                    for kind in (Named, mp.Linear))
    assert_same((named.J, named.gradients), (plain.J, plain.gradients))
