"""The gradient noise scale: both estimates are unbiased, by enumeration in rational numbers."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.noise import Noise, measured_noise, noise_from_two, noise_of_updates, steps_and_samples

GRADIENTS = [(1, 0), (3, 0), (2, 1), (2, -1)]  # |G|^2 = 4, tr(S) = 1
LOSS = mp.MeanSquaredError()


def quadratic():
    """J = |w - y|^2 / 2 for each sample: at w = 0 its gradients are -y, and the noise is that of y."""
    layers = [mp.Linear(1, 2, W=rational([[0], [0]]), bias=False)]
    return mp.Sequential(layers, LOSS), rational([[1] * 4]), rational(np.transpose(GRADIENTS))


def square(net, X, Y):
    net.forward_backward(X, Y)
    return net.gradient_norm() ** 2


@pytest.mark.parametrize("small, large", [(1, 2), (1, 3), (2, 3)])
def test_the_mean_over_all_mini_batches_is_the_truth(small, large):
    """All of the 4^B equally likely ones; a root that is not rational is rounded to 64 bits, then squared."""
    net, X, Y = quadratic()
    means = []
    for size in (small, large):
        all_chosen = map(list, product(range(4), repeat=size))
        drawn = [square(net, X[:, chosen], Y[:, chosen]) for chosen in all_chosen]
        means.append(Rational(sum(drawn)) / len(drawn))
    noise = noise_from_two(small, large, *means)
    assert abs(noise.square - 4) < Rational(1, 2**50) and abs(noise.trace - 1) < Rational(1, 2**50)


def test_the_golden_estimate():
    """Batches of 1, and the whole of 4: 5 and 4, drawn without replacement."""
    assert noise_from_two(1, 4, Rational(5), Rational(4)) == (Rational(11, 3), Rational(4, 3))
    assert Noise(Rational(11, 3), Rational(4, 3)).scale == Rational(4, 11)


def test_what_is_measured_is_near_the_truth_and_moves_nothing():
    """J = (w - y)^2 / 2 with y normal of mean 2 and deviation 3 among 4,000: |G|^2 near 4, tr(S) near 9.

    A |g|^2 of b samples has the variance 2 (9/b)^2 + 16 * 9/b, so with 400 of each size, 4 and 64, the means
    are off by 0.34 and 0.075, and the estimates by 0.083 and 1.5; five times that is allowed.
    """
    Y = 2 + 3 * np.random.default_rng(0).standard_normal((1, 4000))
    net = mp.Sequential([mp.Linear(1, 1, W=[[0.0]], bias=False)], LOSS)
    noise = measured_noise(net, np.ones_like(Y), Y, 4, 64, 400)
    assert abs(noise.square - Y.mean() ** 2) < 5 * 0.083 and abs(noise.trace - Y.var()) < 5 * 1.5
    assert net.layers[0].W == 0 and net.n_steps == 0
    assert measured_noise(net, np.ones_like(Y), Y, 4, 64, 400) == noise


def test_a_gradient_of_nothing_but_noise_has_no_scale():
    assert Noise(-0.25, 1.0).scale == Noise(0, 1.0).scale == float("inf")


@pytest.mark.parametrize("small, large, words", [
    (4, 4, "large=4 must exceed small=4"),
    (0, 4, "small=0 must be at least 1"),
    (1, 2.5, "large=2.5 must be a whole"),
])
def test_sizes_that_tell_nothing_are_refused(small, large, words):
    with pytest.raises(ValueError, match=words):
        noise_from_two(small, large, 1.0, 1.0)


def test_the_golden_prices_of_a_mini_batch():
    """At the critical size both are twice what they must; at four times it, 5/4 and 5 times."""
    assert steps_and_samples(64, 64) == (2, 2) and steps_and_samples(256, 64) == (5 / 4, 5)
    for batch in (5, 10, 40):  # whose quotients are exact in floats
        steps, samples = steps_and_samples(batch, 10)
        assert (steps - 1) * (samples - 1) == 1


def test_the_golden_noise_of_rates_and_sizes():
    """On 1,437 digits: a fifth of the rate is not quite five times the batch; 0.878 and 0.798."""
    rates = Fraction(1, 10), Fraction(1, 50)
    assert noise_of_updates(rates[0], 32, 1437) == Fraction(281, 64)
    assert noise_of_updates(rates[1], 32, 1437) == Fraction(281, 320)
    assert noise_of_updates(rates[0], 160, 1437) == Fraction(1277, 1600)
    assert noise_of_updates(rates[0], 1437, 1437) == 0


def test_prices_and_noise_of_impossible_sizes():
    with pytest.raises(ValueError, match="critical=0"):
        steps_and_samples(32, 0)
    with pytest.raises(ValueError, match="batch=1438"):
        noise_of_updates(0.1, 1438, 1437)
