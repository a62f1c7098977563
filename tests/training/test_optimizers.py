"""SGD against its equations, as sums over all past gradients and through changes of the rate; refusals."""

from itertools import product

import numpy as np
import pytest
from compared import assert_same, parameters

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


@pytest.mark.parametrize("make, words", [
    (lambda: mp.SGD(learning_rate=float("nan")), "learning_rate=nan must be"),
    (lambda: setattr(mp.Adam(), "learning_rate", -1), "learning_rate=-1 must be above 0"),
    (lambda: mp.SGD(0.1, nesterov=True), "nesterov=True with momentum=0: it needs a momentum above 0"),
    (lambda: mp.RMSProp(epsilon=0), "epsilon=0 must be above 0"),
    (lambda: mp.Adam(betas=(0.9, 1)), "beta2=1 must be at least 0 and below 1"),
])
def test_impossible_optimizers_are_refused(make, words):
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
