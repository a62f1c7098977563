"""Networks and samples for the tests of parameter servers and federated averaging."""

from fractions import Fraction

import numpy as np

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational

LAYERS = [mp.Linear(3, 4), mp.Tanh(), mp.Linear(4, 2)]
LOSS = mp.MeanSquaredError()
THIRD = [1, Fraction(1, 3)]


def clients(*sizes):
    """For each size as many samples (X, Y)."""
    rng = np.random.default_rng(len(sizes))
    return [(rng.standard_normal((3, m)), rng.standard_normal((2, m))) for m in sizes]


def exact_clients(*sizes):
    rng = np.random.default_rng(len(sizes))
    return [(rational(rng.integers(-2, 3, (3, m))), rational(rng.integers(-2, 3, (2, m)))) for m in sizes]


def mini_batches(n, m=6, dtype=np.float64):
    return [(X.astype(dtype), Y.astype(dtype)) for X, Y in clients(*[m] * n)]


def exact_mini_batches(n, m=5):
    return exact_clients(*[m] * n)


def exact_layers():
    layers = [mp.Linear(3, 2), mp.ReLU(), mp.Linear(2, 2)]
    drawn = mp.Sequential(layers, None).layers
    return [layer.copy(lambda p: rational(np.round(4 * p) / 4)) for layer in drawn]


def weights(net):
    return leaves([(layer.W, layer.b) for layer in net.layers])


def network_at(values, layers=LAYERS):
    """Return the network whose weights are `values`."""
    net = mp.Sequential(layers, LOSS)
    for array, value in zip(weights(net), values, strict=True):
        array[...] = value
    return net


def sequential(layers, batches, optimizer, **options):
    net, costs = mp.Sequential(layers, LOSS, **options), []
    for X, Y in batches:
        costs.append(net.forward_backward(X, Y))
        net.step(optimizer)
    return net, costs
