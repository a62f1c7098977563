"""Learning rates that move: the published curves, in rational numbers, and how the training follows them."""

import math
from fractions import Fraction

import numpy as np
import pytest
from cases import exact
from compared import assert_same, assert_within, parameters

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.order import with_updates
from minipipe.rates import (
    ConstantWarmUp, GradualWarmUp, StepDecay, linear_scaled, rates_of, square_root_scaled,
)
from minipipe.schedules import build

TENTH = Rational(1, 10)
K = 32  # from 256 samples to 8,192
GOYAL = GradualWarmUp(StepDecay(K * TENTH, [30, 60, 80], factor=TENTH), TENTH, epochs=5)
LAYERS = [mp.Linear(2, 4), mp.Tanh(), mp.Linear(4, 2)]


def data(m=30):
    X = np.random.default_rng(0).standard_normal((2, m))
    return X, mp.one_hot((X[0] > X[1]).astype(int), 2)


def test_the_gradual_warm_up_of_goyal_et_al():
    """156 updates an epoch: from 1/10 in 780 equal increments to 16/5, which the update behind them has."""
    rates = sum(rates_of(GOYAL, [156] * 6, exact=True), [])
    assert rates[0] == TENTH and rates[780] == Rational(16, 5) == rates[-1]
    assert {b - a for a, b in zip(rates[:780], rates[1:781])} == {Rational(31, 7800)}
    assert rates[390] == Rational(33, 20) and sum(rates[:780]) / 780 == Rational(25709, 15600)
    at_epochs = [GOYAL(Rational(epoch)) for epoch in range(6)]
    assert at_epochs == [Rational(n) for n in ("1/10", "18/25", "67/50", "49/25", "129/50", "16/5")]
    at_drops = [GOYAL(t) for t in (29, Rational(2999, 100), 30, 60, 80)]
    assert at_drops == [Rational(n) for n in ("16/5", "16/5", "8/25", "4/125", "2/625")]


def test_a_constant_warm_up_jumps_to_the_rate_without_it():
    rate = ConstantWarmUp(StepDecay(K * TENTH, [2, 4], TENTH), TENTH, epochs=3)
    jump = [K * TENTH**2, K * TENTH**3]
    assert [rate(t) for t in (0, 2, Rational(29, 10), 3, 4)] == [TENTH, TENTH, TENTH, *jump]


def test_a_gradual_warm_up_ends_without_a_jump_at_a_rate_that_changes():
    rate = GradualWarmUp(lambda t: 1 - t / 4, 0.125, epochs=2)
    assert rate(2) == 0.5
    assert_within(rate(2 - 2**-40), 0.5, bound=2**-41, because="both move by less than half in an epoch")
    assert rate(0) == 0.125
    assert rate(1) == (0.125 + rate(2)) / 2


def test_the_times_of_updates_are_floats_unless_exact():
    seen = []
    rates_of(lambda t: seen.append(t) or 1, [3, 2])
    assert seen == [0, 1 / 3, 2 / 3, 1, 1.5]
    rates_of(lambda t: seen.append(t) or 1, [3], exact=True)
    assert seen[5:] == [0, Fraction(1, 3), Fraction(2, 3)]


def test_a_warm_up_may_last_longer_than_a_call():
    assert rates_of(GradualWarmUp(1, 0.5, epochs=2), [1]) == [[0.5]]
    assert rates_of(GradualWarmUp(1, 0.5, epochs=2), [1, 1], first=2) == [[0.75], [1]]
    assert rates_of(0.5, [1, 2]) == [[0.5], [0.5, 0.5]]


def test_the_rules_of_scaling_mean_the_whole_mini_batch():
    """8,192 samples are 32 times 256; they may have 256 workers of 32, and k is not their number."""
    assert linear_scaled(TENTH, 8192) == Rational(16, 5)
    assert linear_scaled(0.1, 128) == 0.05 and repr(linear_scaled(1, 512)) == "2.0"
    assert square_root_scaled(0.5, 1024, reference=64) == 2.0


class Spy(mp.SGD):
    """It lists the rate of each update."""

    def __init__(self, learning_rate):
        super().__init__(learning_rate)
        self.seen = []

    def update(self, layers, gradients):
        self.seen.append(self.learning_rate)
        super().update(layers, gradients)


def test_fit_sets_the_rate_once_before_each_update():
    """Once for each update, not once for each worker or micro-batch."""
    for M in (1, 2, 4):
        optimizer, net = Spy(9.0), mp.Pipeline(LAYERS, mp.SoftmaxCrossEntropy(), 2, M)
        rate = GradualWarmUp(1.0, start=0.25, epochs=2)
        mp.fit(net, *data(), optimizer, 3, 8, learning_rate=rate, report=None)
        assert optimizer.seen == [0.25 + 0.75 * i / 8 for i in range(8)] + [1.0] * 4


def test_fit_has_rational_rates_for_rational_numbers():
    X, Y = rational(np.ones((1, 3))), rational(np.ones((1, 3)))
    net = mp.Sequential([mp.Linear(1, 1, W=rational([[2]]), b=rational([[0]]))], mp.MeanSquaredError())
    rate = GradualWarmUp(TENTH, start=TENTH / 2, epochs=1)
    optimizer = Spy(TENTH)
    mp.fit(net, X, Y, optimizer, 2, 1, learning_rate=rate, report=None)
    assert optimizer.seen == [Rational(1, 20), Rational(1, 15), Rational(1, 12), TENTH, TENTH, TENTH]


def test_a_batch_that_grows_in_the_place_of_a_rate_that_falls():
    """30 samples in mini-batches of at most 4, 4, 12 and 30."""
    X, Y = data()
    sizes = []

    class Sizes(mp.Sequential):
        def forward_backward(self, X, Y):
            sizes.append(X.shape[-1])
            return super().forward_backward(X, Y)

    net = Sizes(LAYERS, mp.SoftmaxCrossEntropy())
    grows = lambda t: int(StepDecay(4, at=[2, 3], factor=3)(t))
    mp.fit(net, X, Y, mp.SGD(0.1), 4, grows, learning_rate=lambda t: 0.1 + t, report=None)
    assert sizes == 2 * [4, 4, 4, 4, 4, 4, 3, 3] + 3 * [10] + [30]


@pytest.mark.parametrize("rate, words", [
    (lambda t: math.nan if t >= 1 else 1, r"learning_rate at update 1 of epoch 2, t=1,=nan must be above 0"),
    (lambda t: math.inf, "learning_rate at update 1 of epoch 1, t=0,=inf must be finite"),
    (lambda t: 1 - t, "learning_rate at update 1 of epoch 2, t=1,=0.0 must be above 0"),
    (lambda t: "0.1", "'0.1' must be a number, above 0"),
    ("fast", "learning_rate='fast' must be a function"),
])
def test_rates_that_no_training_can_use_are_refused_at_first(rate, words):
    X, Y = data()
    net = mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy())
    before = parameters([layer.copy() for layer in net.layers])
    with pytest.raises(ValueError, match=words):
        mp.fit(net, X, Y, mp.SGD(0.1), 2, 8, learning_rate=rate, report=None)
    assert_same(parameters(net.layers), before)


@pytest.mark.parametrize("make, words", [
    (lambda: StepDecay(0.1, 30), r"at=30 must be a list, even of one: \[30\]"),
    (lambda: StepDecay("0.1", [30]), "rate='0.1' must be a number, above 0, or a function of t"),
    (lambda: StepDecay(0.1, [30], factor=0), "factor=0 must be above 0"),
    (lambda: GradualWarmUp(0.1, start=0), "start=0 must be above 0"),
    (lambda: GradualWarmUp(0.1, 0.1, epochs=0), "epochs=0 must be above 0"),
])
def test_impossible_rates_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


SMALL, LOSS = [mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 2)], mp.MeanSquaredError()
DIVIDED = {
    "stages": lambda layers: mp.Pipeline(layers, LOSS, 2, 2, schedule=with_updates(build("gpipe", 2, 2))),
    "shards": lambda layers: mp.Parallel(
        layers, LOSS, shards=2, stages=2, microbatches=2, schedule=with_updates(build("gpipe", 2, 2))),
    "ZeRO 3": lambda layers: mp.DataParallel(layers, LOSS, 2, zero=3),
    "shards and ZeRO 2": lambda layers: mp.Parallel(
        layers, LOSS, replicas=2, shards=2, zero=2),
    "servers": lambda layers: mp.ParameterServer(layers, LOSS, 2, servers=2),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_a_learning_rate_changed_between_two_runs_is_used(name):
    """In fractions, with momentum, whose memory lies in the stages and servers."""
    half = Rational(1, 2)
    optimizer, plain = mp.SGD(half, momentum=half), mp.SGD(half, momentum=half)
    net, one = DIVIDED[name](exact(SMALL)), mp.Sequential(exact(SMALL), LOSS)
    batches = rational(np.random.default_rng(0).integers(-8, 9, (3, 2, 2, 4))) / 8
    for rate, batch in zip((half, half / 2, half / 4), batches, strict=True):
        optimizer.learning_rate = plain.learning_rate = rate
        net.train([tuple(batch)], optimizer)
        one.forward_backward(*batch)
        one.step(plain)
    assert_same(parameters(net.layers), parameters(one.layers))
