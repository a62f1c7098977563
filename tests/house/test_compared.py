"""Differences of each kind are seen, and told by name with both values."""

import numpy as np
import pytest
from compared import assert_equals_full_batch, assert_same, assert_within, difference

import minipipe as mp
from minipipe.exact import Rational, rational

THIRD = rational([[1, 2]]) / 3


TOLD = [
    ([], [1], "the result has length 0, expected 1"),
    ([1, 2], [1], "the result has length 2, expected 1"),
    ({"J": 1}, {"J": 1, "dW": 2}, "the result has other keys: [] too many, ['dW'] missing"),
    ({"b": 1, "W": 1}, {"W": 1, "b": 1}, "[] too many, [] missing, in the order ['b', 'W']"),
    ({"W": np.zeros((2, 1))}, {"W": np.zeros(2)}, "W has shape (2, 1), expected (2,)"),
    ([(1, np.float32(2))], [(1, 2.0)], "part 1 of part 0 of the result has dtype float32, expected float64"),
    ([0], [0.0], "part 0 of the result has dtype int64, expected float64"),
    (None, np.zeros(1), "the result differs: found None, expected [0.]"),
    ([1], np.array([1]), "the result differs: found [1], expected [1]"),
    (np.nan, np.nan, "the result differs: found nan, expected nan"),
    (1.0, 1 + 2**-52, "the result differs: found 1.0, expected 1.0000000000000002"),
    (THIRD, rational([[1, 2]]), "at [0, 0], in 2 of 2 entries: found 1/3, expected 1\nfound:\n[[1/3 2/3]]"),
    ("gpipe", "1f1b", "the result differs: found 'gpipe', expected '1f1b'"),
]


def test_a_difference_is_told_and_equal_values_have_none():
    for found, expected, words in TOLD:
        assert words in difference(found, expected)
        with pytest.raises(AssertionError):
            assert_same(found, expected)
    value = {"J": 1.0, "gradients": [(THIRD, None), np.zeros((0, 3), np.float32)], "name": "gpipe"}
    assert_same(value, {**value, "gradients": [[THIRD.copy(), None], np.zeros((0, 3), np.float32)]})


def test_the_wrong_gradient_of_a_network_is_named():
    class Wrong(mp.Linear):
        def backward_weight(self, *args):
            dW, db = super().backward_weight(*args)
            return dW, db + Rational(1, 2) * (dW.shape == (1, 2))

    layers = [Wrong(1, 2, W=THIRD.T, b=THIRD.T), mp.ReLU(), Wrong(2, 1, W=THIRD, b=THIRD[:, :1])]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 2)
    with pytest.raises(AssertionError, match=r"db of layer 2 differs at \[0, 0\].* found 5/3, expected 7/6"):
        assert_equals_full_batch(pipe, THIRD, THIRD)


def test_a_tolerance_is_a_number_of_roundings_or_has_a_reason():
    assert_within(1 + 2**-51, 1.0, roundings=5)
    assert_within(np.float32(1), 1 + 2.0**-23, roundings=3)
    assert_within([1.0, 1.5], [1.0, 1.25], bound=0.25, because="steps of a quarter")
    assert_within(2.0**-53, 0.0, roundings=1, of=1)
    for found, expected, reason in [
        (1 + 2**-51, 1.0, dict(roundings=3)),
        (np.nan, 1.0, dict(roundings=3)),
        ([1.0], 1.0, dict(roundings=3)),
        (1.0, 1.5, dict(bound=0.25, because="steps of a quarter")),
        (1.0, 1.0, dict(bound=0.25)),
        (1.0, 1.0, {}),
    ]:
        with pytest.raises(AssertionError):
            assert_within(found, expected, **reason)
