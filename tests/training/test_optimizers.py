"""Each optimizer against its equations, as sums over all past gradients, in rational numbers, with ==."""

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


def sgd(t, g, momentum, nesterov=False):
    """The step without its learning rate: u = sum of momentum^(t-i) g_i, which unrolls u = momentum u + g."""
    u = sum(momentum ** (t - i) * g[i] for i in range(t + 1))
    return g[t] + momentum * u if nesterov else u


def rmsprop(t, g, rho, epsilon):
    return g[t] / (average(t, [x * x for x in g], rho).sqrt() + epsilon)


def adam(t, g, betas, epsilon):
    m, v = (
        average(t, values, beta) / (1 - beta ** (t + 1))
        for values, beta in zip((g, [x * x for x in g]), betas)
    )
    return m / (v.sqrt() + epsilon)


def average(t, values, share):
    return Rational((1 - share) * sum(share ** (t - i) * values[i] for i in range(t + 1)))


def by_the_equations(step, start, gradients, options, decay, decoupled):
    """The parameter after each of the updates, one number at a time."""
    W, g, path = start, [], []
    for t, (rate, gradient) in enumerate(zip(RATES, gradients)):
        g.append(gradient if decoupled else gradient + decay * W)
        shrunk = W - rate * decay * W if decoupled else W
        W = shrunk - rate * step(t, g, **options)
        path.append(W)
    return path


def by_the_optimizer(optimizer, number, gradients_of_W=OF_W, gradients_of_b=OF_B):
    """The same for W, which starts at 1, and b, which starts at 2; `number` makes an array of a nested list.
    """
    layer = mp.Linear(1, 1, W=number([[1]]), b=number([[2]]))
    path = []
    for rate, dW, db in zip(RATES, gradients_of_W, gradients_of_b):
        optimizer.learning_rate = number([rate])[0]
        gradient = number([[dW]]), number([[db]])
        for part in gradient:
            part.flags.writeable = False  # the gradients are not written into
        optimizer.update([mp.ReLU(), layer], [(None, None), gradient])
        path.append((layer.W[0, 0], layer.b[0, 0]))
    return [list(column) for column in zip(*path)]


SMALL = Rational(1, 1024)
ADAPTIVE = [
    (mp.RMSProp, rmsprop, {"rho": HALF, "epsilon": SMALL}),
    (mp.Adam, adam, {"betas": (HALF, Rational(3, 4)), "epsilon": SMALL}),
]


@pytest.mark.parametrize("decay, decoupled", [(0, False), (QUARTER, False), (QUARTER, True)])
@pytest.mark.parametrize("momentum, nesterov, rate_inside", [
    (0, False, False), *product([HALF], [False, True], [False, True]),
])
def test_sgd_follows_its_equations_step_by_step(momentum, nesterov, rate_inside, decay, decoupled):
    """Both forms of the momentum follow the one sum, through the changes of the learning rate.

    In rational numbers, and in float64, where none of these numbers needs rounding.
    """
    expected = [
        by_the_equations(
            sgd, start, gradients, {"momentum": momentum, "nesterov": nesterov}, decay, decoupled
        )
        for start, gradients in [(Rational(1), OF_W), (Rational(2), OF_B)]
    ]
    for number, one in [(rational, Rational), (lambda values: np.array(values, np.float64), float)]:
        optimizer = mp.SGD(one(1), one(momentum), nesterov, rate_inside, one(decay), decoupled)
        assert by_the_optimizer(optimizer, number) == expected


@pytest.mark.parametrize("decay, decoupled", [(0, False), (QUARTER, False), (QUARTER, True)])
@pytest.mark.parametrize("kind, step, options", ADAPTIVE, ids=["RMSProp", "Adam"])
def test_adaptive_optimizers_follow_their_equations_step_by_step(kind, step, options, decay, decoupled):
    expected = [
        by_the_equations(step, start, gradients, options, decay, decoupled)
        for start, gradients in [(Rational(1), OF_W), (Rational(2), OF_B)]
    ]
    optimizer = kind(Rational(1), **options, weight_decay=decay, decoupled=decoupled)
    assert by_the_optimizer(optimizer, rational) == expected
    if decoupled and kind is mp.Adam:
        assert by_the_optimizer(mp.AdamW(Rational(1), **options, weight_decay=decay), rational) == expected


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("kind, step, options", ADAPTIVE, ids=["RMSProp", "Adam"])
def test_adaptive_optimizers_in_floats_are_as_near_as_rounding_allows(kind, step, options, dtype):
    """With gradients above 0 nothing cancels, so relative errors add: at t = 4, at most 3 t + 3 roundings
    in m and in v^, half as many in its root, 4 for the rest of the step: fewer than 30, each at most u.
    W itself is rounded 4 times, at no more than |W| + |steps| < 8.
    """
    gradients = [abs(g) + 1 for g in OF_W]
    expected = by_the_equations(step, Rational(1), gradients, options, 0, False)
    in_floats = {
        name: tuple(map(float, value)) if isinstance(value, tuple) else float(value)
        for name, value in options.items()
    }
    path, _ = by_the_optimizer(
        kind(1.0, **in_floats), lambda values: np.array(values, dtype), gradients, gradients
    )
    assert {type(value) for value in path} == {dtype}
    assert all(
        abs(Rational(float(mine)) - true) <= (30 + 4) * 8 * float(np.finfo(dtype).eps) / 2
        for mine, true in zip(path, expected)
    )


def test_scaling_the_loss_is_scaling_the_learning_rate_only_without_weight_decay():
    """Goyal et al., section 2.2 and remark 1: W - rate decay W - rate k g is not W - k rate decay W - k
    rate g.
    """
    k = 4

    def after_one_step(rate, scale, decay):
        layer = mp.Linear(1, 1, W=[[1.0]], b=[[2.0]])
        mp.SGD(rate, weight_decay=decay).update(
            [layer], [(np.array([[scale * 0.5]]), np.array([[scale * 0.25]]))]
        )
        return layer.W[0, 0], layer.b[0, 0]

    assert after_one_step(0.125, k, decay=0) == after_one_step(k * 0.125, 1, decay=0)
    assert after_one_step(0.125, k, decay=0.5) == (1 - 0.125 * 0.5 - 0.25, 2 - 0.125 * 0.5 * 2 - 0.125)
    assert after_one_step(k * 0.125, 1, decay=0.5) == (
        1 - k * 0.125 * 0.5 - 0.25,
        2 - k * 0.125 * 0.5 * 2 - 0.125,
    )


def test_a_layer_without_b_is_updated_too():
    layer = mp.Linear(1, 1, W=[[1.0]], b=[[2.0]])
    mp.SGD(0.5).update([layer], [(np.array([[1.0]]), None)])
    assert (layer.W[0, 0], layer.b[0, 0]) == (0.5, 2)


@pytest.mark.parametrize("make, words", [
    (lambda: mp.SGD(learning_rate=0), "learning_rate=0 must be above 0"),
    (lambda: mp.SGD(learning_rate=float("nan")), "learning_rate=nan"),
    (lambda: setattr(mp.Adam(), "learning_rate", -1), "learning_rate=-1 must be above 0"),
    (lambda: mp.SGD(0.1, momentum=1), "momentum=1 must be at least 0 and below 1"),
    (lambda: mp.SGD(0.1, nesterov=True), "nesterov=True with momentum=0: it needs a momentum above 0"),
    (lambda: mp.SGD(0.1, weight_decay=-1), "weight_decay=-1 must be at least 0"),
    (lambda: mp.RMSProp(rho=1.5), "rho=1.5 must be at least 0 and below 1"),
    (lambda: mp.RMSProp(epsilon=0), "epsilon=0 must be above 0"),
    (lambda: mp.Adam(betas=(0.9, 1)), "beta2=1 must be at least 0 and below 1"),
])
def test_impossible_optimizers_are_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def gradients_of(layers):
    return [
        (None, None) if layer.W is None else (np.ones_like(layer.W), np.ones_like(layer.b))
        for layer in layers
    ]


def unchanged(layers, gradients, optimizer, words):
    before = parameters([layer.copy() for layer in layers])
    with pytest.raises(ValueError, match=words):
        optimizer.update(layers, gradients)
    assert_same(parameters(layers), before)


@pytest.mark.parametrize(
    "optimizer",
    [mp.SGD(0.1, 0.9), mp.RMSProp(), mp.Adam(), mp.AdamW()],
    ids=lambda optimizer: type(optimizer).__name__,
)
def test_an_optimizer_with_a_memory_belongs_to_one_network(optimizer):
    first = mp.Sequential([mp.Linear(2, 4), mp.Tanh(), mp.Linear(4, 2)], None).layers
    optimizer.update(first, gradients_of(first))
    other = mp.Sequential([mp.Linear(2, 4), mp.Linear(4, 3), mp.Linear(3, 2)], None).layers
    unchanged(
        other, gradients_of(other), optimizer, f"make a new {type(optimizer).__name__} for each network"
    )
    optimizer.update(first, gradients_of(first))


def test_gradients_that_do_not_belong_to_the_layers_are_refused():
    layers = mp.Sequential([mp.Linear(2, 4), mp.Linear(4, 2)], None).layers
    gradients = gradients_of(layers)
    unchanged(layers, gradients[:1], mp.SGD(0.1), "2 layers but 1 gradients")
    unchanged(
        layers,
        [gradients[0], gradients[0]],
        mp.SGD(0.1),
        r"layer 1: W has shape \(2, 4\), but its gradient has \(4, 2\)",
    )


def test_a_refused_update_does_not_count():
    """Adam divides by 1 - beta^t: the update after a refused one has the t that it would have had anyway."""
    def after(*gradients):
        layer, optimizer = mp.Linear(1, 1, W=[[1.0]], b=[[0.0]]), mp.Adam(0.1)
        layer.W, layer.b = layer.W.astype(np.float32), layer.b.astype(np.float32)
        for g in gradients:
            pair = np.float32([[g]]), np.float32([[g]])
            try:
                optimizer.update([layer], [pair])
            except FloatingPointError:
                assert g == 1e30
        return layer.W

    assert np.array_equal(after(1, 1e30, 2, 1e30, 3), after(1, 2, 3))
