"""LARS and LAMB against their papers, what decays in a layer of one's own, and what optimizers refuse."""

import numpy as np
import pytest

import minipipe as mp
from minipipe.exact import Rational, rational

BETAS = Rational(9, 10), Rational(999, 1000)
TINY = Rational(1, 2**200)  # an epsilon that is nothing beside any root here


def after(optimizer, W, *gradients, b=0):
    """W and b after updates with these gradients of W; those of b are 1."""
    layer = mp.Linear(len(W[0]), 1, W=rational(W), b=rational([[b]]))
    for g in gradients:
        optimizer.update([layer], [(rational(g), rational([[1]]))])
    return layer.W.tolist()[0], layer.b[0, 0]


def test_the_golden_step_of_lars():
    """||W|| = 5, ||g|| = 1: local = 5/1000 / (1 + 5/2000) = 2/401, and v = local * (g + W/2000)."""
    optimizer = mp.LARS(Rational(1), Rational(0), weight_decay=Rational(1, 2000), trust=Rational(1, 1000))
    W, b = after(optimizer, [[3, 4]], [[Rational(3, 5), Rational(4, 5)]])
    assert W == [Rational(2997, 1000), Rational(3996, 1000)]
    assert b == -1  # without trust and decay


def test_what_is_remembered_has_the_rates_of_its_own_time():
    """W = 4, g = 1 and 2: the other algorithm, today's `local` for the whole sum, ends in 1539/500."""
    optimizer = mp.LARS(Rational(1), Rational(9, 10), trust=Rational(1, 10))
    assert after(optimizer, [[4]], [[1]], [[2]])[0] == [Rational(72, 25)]


def test_lars_with_bounds_keeps_local_between_them():
    """trust ||W|| / ||g|| would be 5, and 1/20."""
    for g, local in (([[3, 4]], Rational(2)), ([[300, 400]], Rational(1, 10))):
        bounds = Rational(1, 10), Rational(2)
        optimizer = mp.LARS(Rational(1), Rational(0), trust=Rational(5), bounds=bounds)
        assert after(optimizer, [[3, 4]], g)[0] == [3 - local * g[0][0], 4 - local * g[0][1]]


def test_lamb_with_bounds_keeps_the_norm_of_W_between_them():
    """||W|| = 50 moves by 1/10 of it, and with phi of at most 10 by 1/10 of that; unclipped by default."""
    for bounds, size in ((None, 50), ((Rational(0), Rational(10)), 10), ((Rational(80), Rational(90)), 80)):
        optimizer = mp.LAMB(Rational(1, 10), BETAS, TINY, weight_decay=0, bounds=bounds)
        W, _ = after(optimizer, [[30, 40]], [[1, 1]])
        assert abs((W[0] - 30) ** 2 + (W[1] - 40) ** 2 - Rational(size, 10) ** 2) < Rational(1, 2**40)


@pytest.mark.parametrize("kind", [mp.LARS, mp.LAMB])
def test_a_parameter_of_zeros_moves_by_the_plain_step(kind):
    """The ratio is 1 there, not 0 and not 0/0; a gradient of zeros moves nothing."""
    plain, options = mp.SGD, {"momentum": Rational(1, 2)}
    if kind is mp.LAMB:
        plain, options = mp.Adam, {"betas": BETAS, "epsilon": TINY, "weight_decay": 0}
    makes = kind(Rational(1), **options), plain(Rational(1), **options)
    own, theirs = (after(optimizer, [[0, 0]], [[3, 4]]) for optimizer in makes)
    assert own == theirs and own[0] != [0, 0]
    assert after(kind(Rational(1), **options), [[3, 4]], [[0, 0]])[0] == [3, 4]


class RootMeanSquare(mp.Layer):
    """A normalisation of one's own, but for its division, which says that its W is no weight."""

    decays = ()

    def __init__(self):
        self.W, self.b = np.ones((2, 1)), np.ones((2, 1))


class Shift(RootMeanSquare):
    decays = ("b",)


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_layer_of_ones_own_says_what_decays_where_weights_only(weights_only):
    layers, zeros = [RootMeanSquare(), Shift()], np.zeros((2, 1))
    mp.SGD(0.5, weight_decay=0.5, weights_only=weights_only).update(layers, [(zeros, zeros)] * 2)
    moved = [not np.array_equal(array, np.ones((2, 1))) for layer in layers for array in (layer.W, layer.b)]
    assert moved == [not weights_only, not weights_only, not weights_only, True]


# --- errors

ONE = [(np.ones((1, 2)), np.ones((1, 2)))]


@pytest.mark.parametrize("make, words", [
    (lambda: setattr(mp.Adam(), "learning_rate", -1), "learning_rate=-1 must be above 0"),
    (lambda: mp.SGD(0.1, nesterov=True), "nesterov=True with momentum=0: it needs a momentum above 0"),
    (lambda: mp.RMSProp(epsilon=0), "epsilon=0 must be above 0"),
    (lambda: mp.Adam(betas=(0.9, 1)), "beta2=1 must be at least 0 and below 1"),
    (lambda: mp.LARS(1, bounds=1), r"bounds=1 must be a list, even of one: \[1\]"),
    (lambda: mp.LARS(1, bounds=[1]), r"bounds has 1 numbers: pass a pair \(least, most\)"),
    (lambda: mp.LAMB(1, bounds=(2, 1)), r"bounds\[1\]=1 must be at least 2"),
    (lambda: mp.DataParallel([mp.Linear(1, 1)], mp.MeanSquaredError(), 2, zero=1).train(ONE, mp.LARS(1)),
     r"LARS looks at whole parameters, of which each device has a part where 'data-parallel\+zero 1'"),
    (lambda: mp.TensorParallel([mp.Linear(2, 2)], mp.MeanSquaredError(), 2, schedule="F0 B0 U0").train(
        ONE, mp.LAMB(1)),
     "LAMB looks at whole parameters, of which each device has a part where 'custom'"),
])
def test_what_optimizers_cannot_be_or_work_with_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()
