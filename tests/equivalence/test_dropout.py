"""Dropout: masks that belong to a sample at a step, whatever its company; their share of zeros."""

import math
from fractions import Fraction

import numpy as np
import pytest
from compared import assert_same, state
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import rational
from minipipe.layers import every_layer

LAYERS = [mp.Linear(3, 40), mp.Dropout(0.5), mp.Linear(40, 40), mp.Dropout(0.5), mp.Linear(40, 2)]


def mask(layer, shape, step=0, first_sample=0):
    layer.training, layer.step, layer.first_sample = True, step, first_sample
    return layer.forward(np.ones(shape)) != 0


def drawn(p=0.5, seed=0):
    layer = mp.Dropout(p)
    layer.initialize(np.random.default_rng(seed))
    return layer


@settings(max_examples=60)
@given(
    shape=st.lists(st.integers(1, 20), min_size=1, max_size=3),
    m=st.integers(1, 9),
    first=st.integers(0, 2**40),
    step=st.integers(0, 2**40),
    data=st.data(),
)
def test_a_sample_has_the_same_mask_in_any_split(shape, m, first, step, data):
    layer = drawn()
    whole = mask(layer, (*shape, m), step, first)
    start = data.draw(st.integers(0, m - 1))
    stop = data.draw(st.integers(start + 1, m))
    part = mask(layer, (*shape, stop - start), step, first + start)
    assert np.array_equal(part, whole[..., start:stop])


def test_all_that_names_a_mask_changes_it():
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


@pytest.mark.parametrize("p", [0, 0.25, 1 / 3])
def test_equals_loops_given_the_mask(p):
    """In rational numbers: each one is 0, or divided by 1 - p without any rounding, forward
    and backward alike.
    """
    rng = np.random.default_rng(0)
    layer, shape = drawn(p), (5, 3, 4)
    kept = mask(layer, shape)
    assert p == 0 or 0 < kept.sum() < kept.size
    for run in (layer.forward, layer.backward_input):
        values = rational(rng.integers(-8, 9, shape)) / 3
        A = run(values)
        for place in np.ndindex(shape):
            assert A[place] == (values[place] / (1 - Fraction(p)) if kept[place] else 0)


@pytest.mark.parametrize(
    "make",
    [
        lambda: mp.Sequential(LAYERS, mp.MeanSquaredError()),
        lambda: mp.Pipeline(LAYERS, mp.MeanSquaredError(), 3, 2, recompute="always"),
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


def test_networks_of_one_seed_have_the_same_masks_and_copies_keep_theirs():
    first, second = (mp.Sequential(LAYERS, None) for _ in range(2))
    third = mp.Sequential(first.layers, None, seed=7)
    for place in (1, 3):
        masks = [mask(net.layers[place], (64, 2)) for net in (first, second, third)]
        assert np.array_equal(masks[0], masks[1]) and np.array_equal(masks[0], masks[2])
    assert LAYERS[1].key is None


@pytest.mark.parametrize("p", [1, -0.1, 1.5, float("nan")])
def test_impossible_shares_are_refused(p):
    with pytest.raises(ValueError, match=f"p={p} must be at least 0 and below 1, the probability of 0"):
        mp.Dropout(p)


def test_wrong_calls_say_what_is_wrong():
    with pytest.raises(RuntimeError, match="has no key yet: call initialize"):
        mp.Dropout().forward(np.ones((2, 2)))
    layer = drawn()
    layer.forward(np.ones((2, 2)))
    layer.training = False
    layer.forward(np.ones((2, 2)))
    with pytest.raises(RuntimeError, match="backward needs the cache of a forward in training"):
        layer.backward(np.ones((2, 2)))
