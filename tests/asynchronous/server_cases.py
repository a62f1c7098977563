"""Networks and mini-batches for the tests of parameter servers."""

from fractions import Fraction

import numpy as np

import minipipe as mp
from minipipe.exact import rational
from minipipe.functions import leaves

LAYERS = [mp.Linear(3, 4), mp.Tanh(), mp.Linear(4, 2)]
LOSS = mp.MeanSquaredError()
THIRD = [1, Fraction(1, 3)]


def mini_batches(n, m=6, dtype=np.float64):
    rng = np.random.default_rng([n, m])
    return [(rng.standard_normal((3, m)).astype(dtype), rng.standard_normal((2, m)).astype(dtype))
            for _ in range(n)]


def exact_mini_batches(n, m=5):
    rng = np.random.default_rng(n)
    return [(rational(rng.integers(-2, 3, (3, m))), rational(rng.integers(-2, 3, (2, m)))) for _ in range(n)]


def exact_layers():
    layers = [mp.Linear(3, 2), mp.ReLU(), mp.Linear(2, 2)]
    drawn = mp.Sequential(layers, None).layers
    return [layer.copy(lambda p: rational(np.round(4 * p) / 4)) for layer in drawn]


def weights(net):
    return leaves([(layer.W, layer.b) for layer in net.layers])


def sequential(layers, batches, optimizer, **options):
    net, costs = mp.Sequential(layers, LOSS, **options), []
    for X, Y in batches:
        costs.append(net.forward_backward(X, Y))
        net.step(optimizer)
    return net, costs
