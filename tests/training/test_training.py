"""The training loop, for both kinds of network."""

import re

import numpy as np
import pytest
from compared import assert_same, parameters

import minipipe as mp

LAYERS = [mp.Linear(2, 4), mp.Tanh(), mp.Linear(4, 2)]
X = np.random.default_rng(0).standard_normal((2, 30))
Y = mp.one_hot((X[0] > X[1]).astype(int), 2)


@pytest.mark.parametrize("model", [
    lambda: mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy()),
    lambda: mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 3, 4, "1f1b"),
], ids=["Sequential", "Pipeline"])
def test_fit_learns_and_reports_one_line_an_epoch_with_the_time_left(model):
    lines, batches = [], []

    def progress(sequence):  # as tqdm: takes the list, yields its items
        for item in sequence:
            batches.append(item)
            yield item

    history = mp.fit(
        model(), X, Y, mp.SGD(1.0), 15, 8, validation=(X, Y), progress=progress, report=lines.append
    )
    assert len(history) == len(lines) == 15 and len(batches) == 15 * 4
    assert history[-1].J < history[0].J and history[-1].score > 0.9
    for number, line in enumerate(lines, 1):
        assert re.fullmatch(rf"epoch +{number}/15   J \d+\.\d{{4}}   score \d+\.\d %   \d+ s left", line)


def test_the_time_left_is_the_time_so_far_for_each_epoch_still_to_come(monkeypatch):
    """With a clock that shows 0 s at the start and 10 s more at each end of an epoch."""
    clock = iter(range(0, 100, 10))
    monkeypatch.setattr("minipipe.training.time.perf_counter", lambda: next(clock))
    lines = []
    mp.fit(mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy()), X, Y, mp.SGD(0.1), 4, 10, report=lines.append)
    assert [line.split("   ")[-1] for line in lines] == ["30 s left", "20 s left", "10 s left", "0 s left"]


def test_the_cost_of_an_epoch_is_the_mean_over_samples():
    """Mini-batches of 8, 8, 7 and 7 samples, each with its weight; a few dozen roundings of numbers near 1.
    """
    class Still:
        learning_rate = 1

        def update(self, layers, gradients):
            pass

    net = mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy())
    (epoch,) = mp.fit(net, X, Y, Still(), 1, 8, report=None)
    assert abs(epoch.J - net.forward_backward(X, Y)) < 100 * np.finfo(float).eps


def test_mini_batches_are_shuffled_anew_and_each_sample_is_used_once_an_epoch():
    seen = []

    class Spy(mp.Sequential):
        def forward_backward(self, X, Y):
            seen.append(X[0].tolist())
            return super().forward_backward(X, Y)

    mp.fit(Spy(LAYERS, mp.SoftmaxCrossEntropy()), X, Y, mp.SGD(0.1), 2, 7, report=None)
    first, second = seen[:5], seen[5:]
    assert [len(batch) for batch in first] == [6, 6, 6, 6, 6]
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == sorted(X[0].tolist()) and first != second


def refuses_and_keeps(model, error, words, X, Y, n_epochs=1, batch_size=5, **options):
    """`fit` raises this error, and no parameter has moved."""
    before = parameters([layer.copy() for layer in model.layers])
    with pytest.raises(error, match=words):
        mp.fit(model, X, Y, mp.SGD(0.1), n_epochs, batch_size, report=None, **options)
    assert_same(parameters(model.layers), before)


HALVES = np.full((2, 4), 0.5)


@pytest.mark.parametrize("options, words", [
    ({"n_epochs": 0}, "n_epochs=0 must be at least 1"),
    ({"batch_size": 3}, "leave one of 3, too few for n_microbatches=4"),
    ({"X": np.where(X == X[1, 29], np.inf, X)},
     r"X holds NaN or infinity in 1 of 60 places, the first at index \(1, 29\)"),
    ({"validation": (np.ones((2, 4)), np.ones((1, 4)))}, "the same shape with at least 2 rows"),
    ({"validation": (np.ones((3, 4)), HALVES)}, "needs A_prev of shape"),
    ({"validation": (np.full((2, 4), np.nan), HALVES)}, "X holds NaN"),
])
def test_fit_refuses_what_does_not_fit_before_the_first_step(options, words):
    pipe = mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 3, 4)
    refuses_and_keeps(pipe, ValueError, words, **{"X": X, "Y": Y} | options)


def test_fit_stops_before_a_step_with_gradients_that_are_not_finite(monkeypatch):
    net = mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy())
    backward_weight = mp.Linear.backward_weight

    def infinite(self, dZ):
        dW, db = backward_weight(self, dZ)
        return dW + np.inf, db

    monkeypatch.setattr(mp.Linear, "backward_weight", infinite)
    words = r"epoch 1: layer 0, Linear\(.*\): the gradient is not finite"
    refuses_and_keeps(net, FloatingPointError, words, X, Y)


def test_fit_stops_when_the_cost_is_not_finite_and_keeps_the_parameters_of_the_step_before():
    huge = np.full((1, 4), 1e200)
    net = mp.Sequential([mp.Linear(1, 1, W=[[1.0]], b=[[0.0]])], mp.MeanSquaredError())
    words = "epoch 1: MeanSquaredError.*: the cost is not finite.*learning_rate is 0.1"
    refuses_and_keeps(net, FloatingPointError, words, huge, huge * 0)
