"""Training with older weights as the update rules of the papers say it, in plain loops; and networks and
samples for the tests of parameter servers and federated averaging.
"""

from fractions import Fraction
from inspect import signature

import numpy as np

import minipipe as mp
from minipipe.arrays import even_slices, leaves
from minipipe.exact import rational
from minipipe.schedules import SCHEDULES

LAYERS = [mp.Linear(3, 4), mp.Tanh(), mp.Linear(4, 2)]
LOSS = mp.MeanSquaredError()
THIRD = [1, Fraction(1, 3)]


def per_update(name, K):
    """The micro-batches of an update on K devices: K for a builder that can make it after several, else 1."""
    return K if "per_update" in signature(SCHEDULES[name]).parameters else 1


def by_the_rule(layers, loss, partition, batches, optimizer, n, rule):
    """(costs, layers after the last update), with no pipeline at all.

    w(t + 1) = w(t) - update(grad f(w_0(..), w_1(..), ...)), where `rule` says the version of each stage.
    """
    ends = np.cumsum(partition)
    stage_of = [int(np.searchsorted(ends, index, side="right")) for index in range(len(layers))]
    history = [mp.Sequential(layers, loss).layers]  # one list of layers after each update
    costs = []
    for t, (X, Y) in enumerate(batches):
        versions = [rule(len(partition), stage, t) for stage in stage_of]
        at = [history[version][index].copy() for index, version in enumerate(versions)]
        parts = []
        for part in even_slices(X.shape[-1], n):
            A = X[..., part]
            for layer in at:
                A = layer.forward(A)
            J, dA, gradients = loss.forward(A, Y[..., part], X.shape[-1]), loss.backward(), []
            for layer in reversed(at):
                dA, dW, db = layer.backward(dA)
                gradients.insert(0, (dW, db))
            parts.append((J, gradients))
        J, gradients = pairwise_sum(parts)
        newest = [layer.copy() for layer in history[-1]]
        optimizer.update(newest, gradients)
        history.append(newest)
        costs.append(J)
    return costs, history[-1]


def pairwise_sum(terms):
    """((0 + 1) + (2 + 3)) + ..., neighbours first."""
    while len(terms) > 1:
        left_over = terms[-1:] if len(terms) % 2 else []
        terms = [added(a, b) for a, b in zip(terms[::2], terms[1::2])] + left_over
    return terms[0]


def added(a, b):
    """The sum of two (J, gradients)."""
    gradients = [
        tuple(None if g is None else g + h for g, h in zip(*pair)) for pair in zip(a[1], b[1])
    ]
    return a[0] + b[0], gradients


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
