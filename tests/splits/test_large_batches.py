"""The remarks of Goyal et al. 2017, arXiv 1706.02677, as identities in rational numbers, with ==.

k small mini-batches of n samples against one of k n; `pitfalls/large_batches.py` has what goes wrong.
"""

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_all_same, assert_same, state

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational

LOSS = mp.MeanSquaredError()
TENTH = Rational(1, 10)


def weights(net):
    return leaves([(layer.W, layer.b) for layer in net.layers])


def gradients(net, X, Y):
    net.forward_backward(X, Y)
    return leaves(net.gradients)


def small_and_large(layers, batches, rate, momentum=0):
    """(weights after k steps, weights after one of k times the rate, the exact gap of section 2.1)."""
    k = len(batches)
    small, large, first = (mp.Sequential(layers, LOSS) for _ in range(3))
    optimizer, moved = mp.SGD(rate, momentum), []
    for X, Y in batches:
        moved.append((gradients(small, X, Y), gradients(first, X, Y)))
        small.step(optimizer)
    large.forward_backward(*(np.concatenate(part, axis=-1) for part in zip(*batches)))
    large.step(mp.SGD(k * rate, momentum))
    gap = [rate * sum(here[i] - there[i] for here, there in moved) for i in range(len(moved[0][0]))]
    return weights(small), weights(large), gap


@pytest.mark.parametrize("k", [2, 3])
def test_the_exact_gap_of_linear_scaling(k):
    """w'(t+1) - w(t+k) = rate * sum over j of (gradient of L_j at w(t+j) - at w(t)), for a Tanh network."""
    layers = exact([mp.Linear(2, 2), mp.Tanh(), mp.Linear(2, 1)])
    rng = np.random.default_rng(k)
    batches = [(eighths(rng.standard_normal((2, 2))), eighths(rng.standard_normal((1, 2)))) for _ in range(k)]
    small, large, gap = small_and_large(layers, batches, Rational(1, 4))
    assert_same([b - a for a, b in zip(small, large, strict=True)], gap)
    assert any((d != 0).any() for d in gap)


def quadratic(targets, rate, momentum=0):
    """w after k steps from 1, and after one of k times the rate, where L_j = (w - target_j)^2 / 2."""
    layers = [mp.Linear(1, 1, W=rational([[1]]), bias=False)]
    batches = [(rational([[1]]), rational([[target]])) for target in targets]
    small, large, _ = small_and_large(layers, batches, rate, momentum)
    return small[0][0, 0], large[0][0, 0]


def test_the_golden_gaps_of_a_quadratic():
    """With curvature 1: -rate^2 g_0 for two steps; a step of k rate > 2 overshoots more than it corrects."""
    assert quadratic([0, 1], TENTH) == (Rational(91, 100), Rational(9, 10))
    assert quadratic([0] * 8, TENTH) == (Rational(43046721, 10**8), Rational(1, 5))
    assert quadratic([0] * 20, TENTH)[1] == -1 and quadratic([0] * 21, TENTH)[1] == Rational(-11, 10)


def constant_gradient(n_steps, rate, momentum):
    layer = mp.Linear(1, 1, W=rational([[0]]), bias=False)
    optimizer = mp.SGD(rate, momentum)
    for _ in range(n_steps):
        optimizer.update([layer], [(rational([[1]]), None)])
    return layer.W[0, 0]


def test_with_momentum_the_rule_is_not_exact_even_for_a_constant_gradient():
    """The large batch lags by (k - 1) rate g m / (1 - m)^2 in the end: 630 for m = 9/10 and k = 8.

    After n steps, with (k (1 - m^n) - (1 - m^(k n))) instead of (k - 1).
    """
    assert constant_gradient(2, Rational(1), Rational(1, 2)) == Rational(-5, 2)
    assert constant_gradient(1, Rational(2), Rational(1, 2)) == -2
    m = Rational(9, 10)
    for n in (1, 2, 5):
        lag = constant_gradient(n, Rational(8), m) - constant_gradient(8 * n, Rational(1), m)
        assert lag == (8 * (1 - m**n) - (1 - m ** (8 * n))) * m / (1 - m) ** 2
    assert 7 * m / (1 - m) ** 2 == 630


@pytest.mark.parametrize("rate_inside", [True, False])
@pytest.mark.parametrize("rates, nesterov, expected", [
    (("1/10", "1/100"), False, "-119/1000"),
    (("1/10", "1"), False, "-2"),
    (("1/10", "1/100"), True, "-2171/10000"),
])
def test_the_golden_steps_of_momentum_across_a_change_of_rate(rates, nesterov, expected, rate_inside):
    """Remark 2, gradient 1, m = 9/10: without the correction, -1/5 and -119/100."""
    optimizer = mp.SGD(TENTH, Rational(9, 10), nesterov, rate_inside)
    layer = mp.Linear(1, 1, W=rational([[0]]), bias=False)
    for rate in rates:
        optimizer.learning_rate = Rational(rate)
        optimizer.update([layer], [(rational([[1]]), None)])
    assert layer.W[0, 0] == Rational(expected)


def test_the_golden_steps_of_an_epoch_on_the_digits():
    """As equal as can be: "at most 1,024" of 1,437 is 719 and 718."""
    found = {}

    class Counted(mp.Sequential):
        def forward_backward(self, X, Y):
            found.setdefault(size, []).append(X.shape[-1])
            return super().forward_backward(X, Y)

    X = np.ones((1, 1437))
    for size in (32, 64, 128, 256, 512, 719, 1024, 1437):
        mp.fit(Counted([mp.Linear(1, 1)], LOSS), X, X, mp.SGD(1e-6), 1, size, report=None)
    assert [len(sizes) for sizes in found.values()] == [45, 23, 12, 6, 3, 2, 2, 1]
    assert set(found[32]) == {31, 32} and set(found[256]) == {239, 240} and found[1024] == [719, 718]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_accumulation_and_workers_have_the_same_bits(dtype):
    """8 micro-batches of 4 samples, on 1, 4 and 8 workers; batch norm has the statistics of 4 on each."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((5, 32)).astype(dtype)
    Y = mp.one_hot(rng.integers(0, 3, 32), 3, dtype)
    layers = [mp.Linear(5, 7), mp.BatchNorm(7), mp.ReLU(), mp.Dropout(0.25), mp.Linear(7, 3)]
    ends = []
    for D in (1, 4, 8):
        net = mp.DataParallel(layers, mp.SoftmaxCrossEntropy(), D, 8, dtype=dtype)
        optimizer = mp.SGD(0.5, 0.9, weight_decay=1e-4, rate_inside=True)
        for rate in (0.5, 1.0, 0.25):
            optimizer.learning_rate = rate
            J = net.forward_backward(X, Y)
            net.step(optimizer, clip=0.75)
        ends.append((J, state(net.layers)))
    assert_all_same(ends)


def test_a_residual_block_whose_last_gamma_is_0_is_its_shortcut():
    """Bit for bit; and every gradient inside is 0, but those of that gamma and beta."""
    f = [mp.Linear(3, 3, bias=False), mp.BatchNorm(3), mp.ReLU(), mp.Linear(3, 3, bias=False)]
    block = mp.Residual(*f, mp.BatchNorm(3, gamma=0))
    net = mp.Sequential([block], LOSS)
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((3, 8)), rng.standard_normal((3, 8))
    net.forward_backward(X, Y)
    assert np.array_equal(net.layers[0].forward(X), X)
    found = leaves(net.gradients)
    assert [bool(g.any()) for g in found].count(True) == 2
    assert repr(mp.models.resnet(14, last_gamma=0)).count("gamma=0") == 6  # 6 blocks
