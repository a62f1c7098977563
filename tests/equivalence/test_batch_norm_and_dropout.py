"""Two layers that are no function of A_prev alone.

BatchNorm in a pipeline counts statistics of the whole mini-batch once, or not at all. Masks of Dropout belong
to a sample at a step, whatever its company.
"""

import math
from fractions import Fraction

import numpy as np
import pytest
from cases import case, eighths, pipelines
from compared import assert_same, state
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import a_quarter_of_the_examples

import minipipe as mp
from minipipe.arrays import even_slices, grains_of
from minipipe.exact import Rational, rational
from minipipe.layers import every_layer

NETWORK = [
    mp.Linear(2, 3), mp.BatchNorm(3), mp.ReLU(), mp.Linear(3, 2), mp.BatchNorm(2, momentum=0.25),
    mp.Linear(2, 1),
]
LOSS = mp.MeanSquaredError()
PLACES = [index for index, layer in enumerate(NETWORK) if isinstance(layer, mp.BatchNorm)]
CUT = mp.Cut([3, 2, 1])
MASKED = [mp.Linear(3, 40), mp.Dropout(0.5), mp.Linear(40, 40), mp.Dropout(0.5), mp.Linear(40, 2)]


def mini_batch(m, convert=eighths, seed=0):
    rng = np.random.default_rng([m, seed])
    return convert(rng.standard_normal((2, m))), convert(rng.standard_normal((1, m)))


def pipeline(n_microbatches, recompute="never", convert=eighths):
    layers = [layer.copy(convert) for layer in mp.Sequential(NETWORK, None).layers]
    return mp.Pipeline(layers, LOSS, CUT, n_microbatches, schedule="1f1b", recompute=recompute)


def running(model):
    """[(running_mean, running_var)], as they are now."""
    return [
        (model.layers[place].running_mean.copy(), model.layers[place].running_var.copy()) for place in PLACES
    ]


class Still(mp.SGD):
    """It leaves the parameters as they are, so that a step only hands over the statistics."""

    def update(self, layers, gradients):
        pass


def train(model, X, Y):
    """A mini-batch and a step."""
    J = model.forward_backward(X, Y)
    model.step(Still(1))
    return J


def by_hand(pipe, X):
    """The running statistics after the mini-batch X, of all numbers that enter each BatchNorm."""
    expected, m, grain = [], X.shape[-1], pipe.grain
    parts = even_slices(m, pipe.n_microbatches) if grain is None else grains_of(m, grain)
    for place in PLACES:
        before, entering = [layer.copy() for layer in pipe.layers[:place]], []
        for part in parts:
            A = X[..., part]
            for layer in before:
                A = layer.forward(A)
            entering.append(A)
        layer, values = pipe.layers[place], np.concatenate(entering, axis=-1)
        share, mean = Rational(layer.momentum), values.sum(axis=1, keepdims=True) / m
        var = ((values - mean) ** 2).sum(axis=1, keepdims=True) / (m - 1)
        expected.append((
            (1 - share) * layer.running_mean + share * mean, (1 - share) * layer.running_var + share * var
        ))
    return expected


@a_quarter_of_the_examples
def test_running_statistics_match_the_whole_mini_batch(share):
    """In rational numbers; ragged micro-batches of at least 2 samples, and a second mini-batch."""
    @settings(max_examples=25 // share)
    @given(st.data(), st.integers(2, 9))
    def holds(data, m):
        drawn = case(NETWORK, LOSS, *mini_batch(m, np.array))
        pipe, *_ = data.draw(pipelines(drawn, eighths, nothing_rounds=True))
        for seed in range(2):
            X, Y = mini_batch(m, seed=seed)
            expected = by_hand(pipe, X)
            train(pipe, X, Y)
            assert_same(running(pipe), expected)

    holds()


@pytest.mark.parametrize("recompute", ["never", "always"])
def test_stepping_past_the_end_counts_once(recompute):
    X, Y = mini_batch(6)
    whole, stepped = pipeline(3, recompute), pipeline(3, recompute)
    train(whole, X, Y)
    before = running(stepped)
    stepped.start(X, Y)
    while stepped.tick():
        assert_same(running(stepped), before)
    for _ in range(3):
        stepped.tick()
    assert_same(running(stepped), before)
    for _ in range(2):
        stepped.step(Still(1))
        assert_same(running(stepped), running(whole))


def on_one_device(n_microbatches):
    return mp.Sequential(pipeline(n_microbatches).layers, LOSS)


@pytest.mark.parametrize("make", [pipeline, on_one_device])
def test_statistics_wait_for_the_step(make):
    """A second mini-batch replaces those of the first, and predictions see them after the step."""
    model, only_second = make(2), make(2)
    first, second = mini_batch(6), mini_batch(5, seed=1)
    train(only_second, *second)
    before, A = running(model), model.predict(first[0])
    for batch in (first, second):
        model.forward_backward(*batch)
        assert_same(running(model), before)
        assert np.array_equal(model.predict(first[0]), A)
    model.step(Still(1))
    assert_same(running(model), running(only_second))
    assert np.array_equal(model.predict(first[0]), only_second.predict(first[0]))
    assert not np.array_equal(model.predict(first[0]), A)


@pytest.mark.parametrize("n_microbatches", [1, 4, 7])
def test_numbers_far_from_0_lose_no_digits_of_their_variance(n_microbatches):
    """N numbers of 10^6 + noise, in float64, against the truth in rational numbers.

    Notation of `verification.verdicts`; a = max |x|, r = max x - min x, M micro-batches, L levels
    of the tree. A mean is a sum of at most N numbers divided by their count, and each level of the tree
    adds at most 5 roundings of numbers up to a: all means are off by at most d = gamma(N + 5 L + 1) a.
    A sum of squares about a mean that is off by d is too large by n d^2, and rounded N + 3 times.
    Each of the M - 1 merges adds n1 n2 / n <= N/4 times the square of a distance up to r,
    off by at most 2 d + u r: that is N/4 (2 r (2 d + u r) + (2 d + u r)^2), and rounded up to 5 times more,
    as is each level's sum.
    """
    N, u = 60, np.finfo(float).eps / 2
    X = 1e6 + np.random.default_rng(0).standard_normal((1, N))
    layers = [mp.BatchNorm(1, momentum=1), mp.Linear(1, 1)]
    pipe = mp.Pipeline(layers, LOSS, 2, n_microbatches)
    train(pipe, X, np.zeros((1, N)))
    numbers = list(rational(X).flat)
    mean = sum(numbers) / N
    M2 = sum((number - mean) ** 2 for number in numbers)

    def gamma(n):
        return n * u / (1 - n * u)

    a, r, levels = abs(X).max(), float(max(numbers) - min(numbers)), (n_microbatches - 1).bit_length()
    d = gamma(N + 5 * levels + 1) * a
    off = 2 * d + u * r
    of_M2 = N * d**2 + (n_microbatches - 1) * N / 4 * (2 * r * off + off**2)
    of_M2 += gamma(N + 3 + 6 * levels) * (float(M2) + of_M2)
    of_var = of_M2 / (N - 1) + 2 * gamma(2) * float(M2) / (N - 1)
    layer = pipe.layers[0]
    assert abs(rational(layer.running_mean)[0, 0] - mean) <= d + gamma(2) * a
    assert abs(rational(layer.running_var)[0, 0] - M2 / (N - 1)) <= of_var < 1e-6


# Dropout

def mask(layer, shape, step=0, first_sample=0):
    layer.training, layer.step, layer.first_sample = True, step, first_sample
    return layer.forward(np.ones(shape)) != 0


def drawn(p=0.5, seed=0):
    layer = mp.Dropout(p)
    layer.initialize(np.random.default_rng(seed))
    return layer


def test_seed_step_sample_and_layer_each_change_the_mask():
    """64 numbers and more agree by chance with probability 2^-64: seed, step, sample, layer, and sibling
    inside one layer.
    """
    n = 64
    layer, first = drawn(seed=2), mask(drawn(seed=2), (n, 2))
    nets = [
        mp.Sequential([mp.Dropout(), mp.Residual(mp.Dropout(), mp.Residual(mp.Dropout()))], None, seed)
        for seed in (0, 1)
    ]
    others = [
        mask(drawn(seed=3), (n, 2)),
        mask(layer, (n, 2), step=1),
        mask(layer, (n, 2), step=2**32),
        mask(layer, (n, 2), first_sample=2),
    ]
    others += [
        mask(layer, (n, 2))
        for net in nets
        for layer in every_layer(net.layers)
        if isinstance(layer, mp.Dropout)
    ]
    columns = [column.tobytes() for found in (first, *others) for column in found.T]
    assert len(others) == 4 + 2 * 3 and len(set(columns)) == len(columns)


def test_no_run_of_numbers_occurs_twice():
    """Ranges of the counter that overlapped, from sample to sample or step to step, would show as equal runs
    of 64.
    """
    layer = drawn()
    rows = [column for step in range(3) for column in mask(layer, (203, 5), step).T]
    runs = [row[start:start + 64].tobytes() for row in rows for start in range(203 - 64 + 1)]
    assert len(set(runs)) == len(runs) == 3 * 5 * 140


@pytest.mark.parametrize("p", [0.01, 0.25, 0.5, 0.9])
def test_the_share_of_zeros_is_p_and_the_expected_value_stays(p):
    """Of N independent numbers the share of zeros scatters by sqrt(p (1 - p) / N), and the mean
    of D / (1 - p), which is (1 - share) / (1 - p), by sqrt(p / ((1 - p) N)): five times that is allowed.
    So are pairs of zeros: in neighbours of a sample, in one place of two samples, of two steps,
    and of two layers, whose share is p^2.
    """
    layer, shape = drawn(p), (300, 200)
    N = math.prod(shape)
    zeros = ~mask(layer, shape)
    assert abs(zeros.mean() - p) < 5 * math.sqrt(p * (1 - p) / N)
    layer.first_sample = 0
    assert abs(layer.forward(np.ones(shape)).mean() - 1) < 5 * math.sqrt(p / (1 - p) / N)
    for left, right in [
        (zeros[1:], zeros[:-1]),
        (zeros[:, 1:], zeros[:, :-1]),
        (zeros, ~mask(layer, shape, step=1)),
        (zeros, ~mask(drawn(p, seed=1), shape)),
    ]:
        # two pairs that share a number: p^3 (1 - p)
        assert abs((left & right).mean() - p**2) < 5 * math.sqrt(p**2 * (1 - p**2) / N) * 3**0.5


def test_what_is_kept_is_divided_by_1_minus_p_without_rounding():
    layer, shape = drawn(1 / 3), (5, 12)
    kept, values = mask(layer, shape), rational(np.arange(60).reshape(shape)) / 3
    assert_same(layer.forward(values), np.where(kept, values / (1 - Fraction(1 / 3)), Rational(0)))


@pytest.mark.parametrize(
    "make",
    [
        lambda: mp.Sequential(MASKED, mp.MeanSquaredError()),
        lambda: mp.Pipeline(MASKED, mp.MeanSquaredError(), 3, 2, recompute="always"),
    ],
)
def test_the_gradient_is_a_function_of_the_step(make):
    """The same twice at one step, also after a prediction; another one at the next step, even with the
    same parameters.
    """
    model, X, Y = make(), np.ones((3, 4)), np.ones((2, 4))
    found = []
    for _ in range(2):
        J = model.forward_backward(X, Y)
        found.append((J, model.gradients[0][0].copy()))
        model.predict(X)
    assert_same(*found)
    before = state([layer.copy() for layer in model.layers], ["W"])
    model.step(mp.SGD(1e-300))
    assert_same(state(model.layers, ["W"]), before)
    assert model.forward_backward(X, Y) != found[0][0] and model.n_steps == 1


def test_wrong_calls_raise_errors_that_name_the_mistake():
    with pytest.raises(RuntimeError, match="has no key yet: call initialize"):
        mp.Dropout().forward(np.ones((2, 2)))
    layer = drawn()
    layer.forward(np.ones((2, 2)))
    layer.training = False
    layer.forward(np.ones((2, 2)))
    with pytest.raises(RuntimeError, match="backward needs the cache of a forward in training"):
        layer.backward(np.ones((2, 2)))
