"""What the size of a mini-batch does: the noise of its gradient, and trainings that differ in it alone.

`pitfalls/large_batches.py` has what goes wrong.
"""

from itertools import product

import numpy as np
import pytest
from compared import assert_within

import minipipe as mp
from figures.drawing.batch_sizes import VARIANTS, errors_of, steps_to_target
from minipipe.datasets import Dataset
from minipipe.exact import Rational, rational
from minipipe.experiments import Noise, Recipe, measured_noise, noise_from_two, train, with_batch_norm
from minipipe.models import mlp
from minipipe.rates import rates_of

# --- the noise of a gradient

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
    assert Noise(-0.25, 1.0).scale == Noise(0, 1.0).scale == float("inf"), "nothing but noise"


def test_measured_noise_is_near_the_truth_and_changes_no_parameters():
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


def test_two_equal_sizes_are_refused():
    with pytest.raises(ValueError, match="large=4 must exceed small=4"):
        noise_from_two(4, 4, 1.0, 1.0)


# --- trainings

LAYERS = mlp([64, 16, 10])
SHORT = Recipe(base=0.1, epochs=3, warm_up=1)


def few(m=200):
    (X, Y), (X_test, Y_test) = mp.datasets.digits("float32")
    return Dataset((X[:, :m].copy(), Y[:, :m].copy()), (X_test, Y_test))


def test_the_recipe_matches_the_paper():
    """Reference rate 0.1, k = 8: from 0.1 by equal steps to 0.8, which falls at 1/3, 2/3 and 8/9."""
    recipe = Recipe(epochs=9, warm_up=2)
    rates = rates_of(recipe.rate(256), [1] * 9)
    tops = [epoch[0] for epoch in rates]
    expected = [0.1, 0.45, 0.8, 0.08, 0.08, 0.08, 0.008, 0.008, 0.0008]
    # those of 0.1, of three drops by 0.1 and their products, and of the number expected
    assert_within(tops, expected, roundings=8)
    assert recipe.rate(256, "linear", "constant")(1) == 0.1 and recipe.rate(256, "linear", "none")(0) == 0.8
    assert recipe.rate(512, "square root")(2) == 0.4 and recipe.rate(512, "fixed")(2) == 0.1


def test_a_training_is_a_function_of_its_seed():
    first, again, other = (train(LAYERS, few(), SHORT, 50, seed=seed) for seed in (0, 0, 1))
    assert first == again != other and len(first.costs) == 3 and first.costs[-1] < first.costs[0]


def test_the_error_is_the_median_of_the_last_epochs():
    """Of all three here; that of the network before its training does not count."""
    data = few()
    net = mp.Sequential(LAYERS, mp.SoftmaxCrossEntropy(), dtype=np.float32)
    optimizer = mp.SGD(0.1, 0.9, weight_decay=1e-4)
    history = mp.fit(net, *data.train, optimizer, 3, 50, data.test, report=None, learning_rate=SHORT.rate(50))
    _, median, _ = sorted(epoch.score for epoch in history)
    assert train(LAYERS, data, SHORT, 50) == (100 * (1 - median), [epoch.J for epoch in history])


def test_a_training_that_overflows_is_an_outcome():
    assert train(LAYERS, few(), Recipe(base=1e30, epochs=2, warm_up=1), 50) == (100, [])


def test_variants_with_one_rate_are_trained_once(monkeypatch):
    """At the reference, k = 1, all four are one."""
    calls = []

    def counted(*arguments):
        calls.append(arguments)
        return train(*arguments)

    monkeypatch.setattr("figures.drawing.batch_sizes.train", counted)
    found = errors_of(LAYERS, few(), SHORT, (32, 100), VARIANTS, 2)
    assert len(calls) == 2 * (1 + 4) and len(found) == 2 * len(VARIANTS)
    assert len({tuple(found[name, 32]) for name in VARIANTS}) == 1


def test_steps_to_a_target_are_the_fewest_of_all_rates():
    """No step reaches less than the cost that it stops at; one more rate can only help."""
    data = few()
    slow, rate = steps_to_target(LAYERS, data, 50, [0.1], target=1.5)
    best, of_best = steps_to_target(LAYERS, data, 50, [0.1, 0.4], target=1.5)
    assert rate == 0.1 and 1 < best < slow and of_best == 0.4
    assert steps_to_target(LAYERS, data, 50, [1e-9, 1e30], target=0.1, most=20) == (21, None)


@pytest.mark.slow  # 20 trainings of 15 epochs: ten seconds
def test_the_rule_beats_the_others_where_epochs_are_few():
    """Batch 512, rate 0.02 for 32 samples, 15 epochs: measured 4.4, 8.6 and 21 % in the mean of 5 seeds."""
    data, recipe = mp.datasets.digits("float32"), Recipe(base=0.02, epochs=15, warm_up=3)
    found = errors_of(with_batch_norm([64] * 6 + [10]), data, recipe, (512,), VARIANTS, 5)
    medians = {name: np.median(errors) for (name, _), errors in found.items()}
    linear, _, root, fixed = (medians[name] for name in VARIANTS)
    assert linear < 0.8 * root and root < 0.8 * fixed and linear < 7 and fixed > 12
