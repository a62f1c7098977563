"""SGD against sums over all past gradients, LARS and LAMB against their papers and PyTorch; refusals."""

import copy
import math
from itertools import product

import numpy as np
import pytest
from compared import assert_same, assert_within, parameters

import minipipe as mp
from minipipe.exact import Rational, rational

HALF, QUARTER = Rational(1, 2), Rational(1, 4)
RATES = [HALF, HALF, QUARTER, HALF]  # the learning rate changes twice
OF_W = [Rational(g) for g in (1, -3, QUARTER, 2)]
OF_B = [Rational(g) for g in (2, HALF, -1, 0)]


def sgd(t, g, momentum, nesterov):
    """The step without its learning rate: u = sum of momentum^(t-i) g_i, which unrolls u = momentum u + g."""
    u = sum(momentum ** (t - i) * g[i] for i in range(t + 1))
    return g[t] + momentum * u if nesterov else u


def by_the_equations(start, gradients, momentum, nesterov, decay, decoupled):
    """The parameter after each of the updates, one number at a time."""
    W, g, path = start, [], []
    for t, (rate, gradient) in enumerate(zip(RATES, gradients)):
        g.append(gradient if decoupled else gradient + decay * W)
        shrunk = W - rate * decay * W if decoupled else W
        W = shrunk - rate * sgd(t, g, momentum, nesterov)
        path.append(W)
    return path


def by_the_optimizer(optimizer, number):
    """The same for W, which starts at 1, and b, which starts at 2; `number` makes an array of a nested list.
    """
    layer = mp.Linear(1, 1, W=number([[1]]), b=number([[2]]))
    path = []
    for rate, dW, db in zip(RATES, OF_W, OF_B):
        optimizer.learning_rate = number([rate])[0]
        gradient = number([[dW]]), number([[db]])
        for part in gradient:
            part.flags.writeable = False  # the gradients are not written into
        optimizer.update([mp.ReLU(), layer], [(None, None), gradient])
        path.append((layer.W[0, 0], layer.b[0, 0]))
    return [list(column) for column in zip(*path)]


@pytest.mark.parametrize("decay, decoupled", [(0, False), (QUARTER, False), (QUARTER, True)])
@pytest.mark.parametrize("momentum, nesterov, rate_inside", [
    (0, False, False), *product([HALF], [False, True], [False, True]),
])
def test_sgd_follows_its_equations_step_by_step(momentum, nesterov, rate_inside, decay, decoupled):
    """Both forms of the momentum follow the one sum, through the changes of the learning rate.

    In rational numbers, and in float64, where none of these numbers needs rounding.
    """
    expected = [
        by_the_equations(start, gradients, momentum, nesterov, decay, decoupled)
        for start, gradients in [(Rational(1), OF_W), (Rational(2), OF_B)]
    ]
    for number, one in [(rational, Rational), (lambda values: np.array(values, np.float64), float)]:
        optimizer = mp.SGD(one(1), one(momentum), nesterov, rate_inside, one(decay), decoupled)
        assert by_the_optimizer(optimizer, number) == expected


# --- LARS and LAMB against their papers, and against PyTorch: goldens of 20 steps on tensors of float64

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


def problem(t, W, b):
    """Gradients of a least squares problem that changes with t, as in the run with PyTorch."""
    A = np.array([[math.cos(2 * i + 5 * k + t) for k in range(4)] for i in range(3)])
    Y = np.array([[math.sin(i - k) for k in range(4)] for i in range(2)])
    dZ = (W @ A + b - Y) / 4
    return dZ @ A.T, dZ.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("optimizer, W, b", [
    (
        mp.LARS(0.5, 0.9, weight_decay=0.01, trust=0.05),
        [[0.5011768018578765, 0.40679541601423963, 0.8502499108645486],
         [-0.6483833865932491, -0.5979566806586047, -0.6361763701137513]],
        [[-0.3305907372159421], [-0.3704708379921268]],
    ),
    (
        mp.LAMB(0.05, weight_decay=0.01),
        [[0.5115162578608924, 0.4817612305461694, 0.6187605347636542],
         [-0.623098151133463, -0.669189584294896, -0.6294782484802302]],
        [[-0.08469549948444366], [-0.24772165914268962]],
    ),
], ids=["LARS", "LAMB"])
def test_twenty_steps_end_where_pytorch_ends(optimizer, W, b):
    """Goldens by PyTorch 2.13, autograd and tensors of float64, with the papers' equations written out, LARS
    with the rate inside v and the correction; the rate falls to a quarter at half time.
    """
    rate, moved, ends = optimizer.learning_rate, 2.0**-20, []
    for start in (0, moved):
        W_start = np.array([[math.sin(3 * i + j + 1) for j in range(3)] for i in range(2)]) + start
        layer, own = mp.Linear(3, 2, W=W_start, b=np.array([[0.5], [-0.25]])), copy.deepcopy(optimizer)
        for t in range(20):
            own.learning_rate = rate if t < 10 else rate / 4
            own.update([layer], [problem(t, layer.W, layer.b)])
        ends.append(np.hstack([layer.W, layer.b]))
    # 20 steps of some 100 roundings of numbers below 2, which grow on the way as little as a first one does
    assert abs(ends[1] - ends[0]).max() < 2 * moved
    assert_within(ends[0], np.hstack([W, b]), roundings=2 * 20 * 100, of=2)


# --- errors

ONE = [(np.ones((1, 2)), np.ones((1, 2)))]


@pytest.mark.parametrize("make, words", [
    (lambda: mp.SGD(learning_rate=float("nan")), "learning_rate=nan must be"),
    (lambda: setattr(mp.Adam(), "learning_rate", -1), "learning_rate=-1 must be above 0"),
    (lambda: mp.SGD(0.1, nesterov=True), "nesterov=True with momentum=0: it needs a momentum above 0"),
    (lambda: mp.RMSProp(epsilon=0), "epsilon=0 must be above 0"),
    (lambda: mp.Adam(betas=(0.9, 1)), "beta2=1 must be at least 0 and below 1"),
    (lambda: mp.LARS(1, bounds=1), r"bounds=1 must be a list, even of one: \[1\]"),
    (lambda: mp.LARS(1, bounds=[1]), r"bounds has 1 numbers: pass a pair \(least, most\)"),
    (lambda: mp.LAMB(1, bounds=(2, 1)), r"bounds\[1\]=1 must be at least 2"),
    (lambda: mp.DataParallel([mp.Linear(1, 1)], mp.MeanSquaredError(), 2, zero=1).train(ONE, mp.LARS(1)),
     r"LARS looks at whole parameters, of which each device has a part where 'data-parallel\+zero 1'"),
    (lambda: mp.Parallel([mp.Linear(2, 2)], mp.MeanSquaredError(), mp.Split(shards=2),
                         mp.Schedule.from_text(["F0 B0 U0"])).train(ONE, mp.LAMB(1)),
     "LAMB looks at whole parameters, of which each device has a part where 'custom'"),
])
def test_what_optimizers_cannot_be_or_work_with_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def gradients_of(layers):
    return [(layer.W, layer.b) for layer in layers]


@pytest.mark.parametrize("optimizer", [mp.SGD(0.1, 0.9), mp.RMSProp(), mp.AdamW()], ids=repr)
def test_an_optimizer_with_a_memory_belongs_to_one_network(optimizer):
    first, other = (
        mp.Sequential([mp.Linear(2, n), mp.Tanh(), mp.Linear(n, 2)], None).layers for n in (4, 3)
    )
    optimizer.update(first, gradients_of(first))
    before = parameters([layer.copy() for layer in other])
    with pytest.raises(ValueError, match=f"make a new {type(optimizer).__name__} for each network"):
        optimizer.update(other, gradients_of(other))
    assert_same(parameters(other), before)
    optimizer.update(first, gradients_of(first))


def test_gradients_that_do_not_belong_to_the_layers_are_refused():
    layers = mp.Sequential([mp.Linear(2, 4), mp.Linear(4, 2)], None).layers
    gradients = gradients_of(layers)
    for wrong, words in (
        (gradients[:1], "2 layers but 1 gradients"),
        (gradients[:1] * 2, r"layer 1: W has shape \(2, 4\), but its gradient has \(4, 2\)"),
    ):
        with pytest.raises(ValueError, match=words):
            mp.SGD(0.1).update(layers, wrong)
