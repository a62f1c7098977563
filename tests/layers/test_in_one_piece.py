"""What leaves a layer, gradients, parameters and what optimizers remember lie in memory as new arrays do.

BLAS rounds a product of the same numbers differently where they lie differently, on some processors. So these
tests look at the strides of each array, and not at its numbers.
"""

import copy
from functools import partial

import numpy as np
import pytest
from cases import eighths
from compared import assert_same, parameters
from layers.every_layer import LAYERS, ready, tree

import minipipe as mp
from minipipe.arrays import converted, leaves
from minipipe.layers.through import backward_through, forward_through
from minipipe.meta import MetaArray

LOSS = mp.MeanSquaredError()


def assert_in_one_piece(arrays, name):
    for number, array in enumerate(leaves(arrays)):
        new = np.empty(array.shape, array.dtype)
        assert array.strides == new.strides, f"array {number} of {name} has strides {array.strides}"


KINDS = {
    "float32": np.float32,
    "fractions": eighths,
    "no numbers": lambda array: MetaArray(array.shape, array.dtype),
}


@pytest.mark.parametrize("kind", KINDS)
def test_results_of_layers_are_contiguous(kind):
    """All that its four methods return; one sample and one position have layouts of their own."""
    change = partial(converted, convert=KINDS[kind])
    for name, (example, _) in LAYERS.items():
        if example.takes == "tokens" and kind == "no numbers":
            continue  # tokens are numbers
        if example.layers and kind == "fractions":
            continue  # they take long, and their parts are tried
        for m in (1, 3) if example.alone_per_sample else (3,):
            layer, A_prev, dZ = ready(name, m)
            layer, A_prev, dZ = layer.copy(KINDS[kind]), tree(change, A_prev), tree(change, dZ)
            assert_in_one_piece(layer.forward(A_prev), f"A of {name}")
            for what, array in zip(("dA_prev", "dW", "db"), layer.backward(dZ), strict=True):
                assert_in_one_piece(array, f"{what} of {name}")
            layer.forward(A_prev)
            assert_in_one_piece([layer.backward_input(dZ), layer.backward_weight(dZ)], f"halves of {name}")


class Turned(mp.Layer):
    """A = W A_prev, a custom layer whose results are all transposed views."""

    def __init__(self, n):
        self.n = n

    def parameter_shapes(self):
        return (self.n, self.n), None

    def draw(self, rng):
        return rng.standard_normal((self.n, self.n))

    def forward(self, A_prev):
        self.cache = A_prev
        return (A_prev.T @ self.W.T).T

    def backward_input(self, dZ):
        return (dZ.T @ self.W).T

    def backward_weight(self, dZ):
        return (self.cache @ dZ.T).T, None


@pytest.fixture
def met(monkeypatch):
    """A list of the arrays that a `Linear` gets and uses, and of the labels that a loss gets."""
    arrays = []

    def watch(kind, name):
        method = getattr(kind, name)

        def watched(self, *args):
            arrays.extend([*args[:2 if kind is mp.MeanSquaredError else 1], getattr(self, "W", None)])
            return method(self, *args)

        monkeypatch.setattr(kind, name, watched)

    watch(mp.Linear, "forward")
    watch(mp.Linear, "backward_input")
    watch(mp.MeanSquaredError, "forward")
    return arrays


@pytest.mark.parametrize("in_network", [lambda *layers: layers, lambda *layers: [mp.Chain(*layers)]])
@pytest.mark.parametrize("m", [1, 4])
def test_results_of_a_users_layer_are_made_contiguous(m, in_network, met):
    net = mp.Sequential(in_network(Turned(3), mp.Linear(3, 3), Turned(3), mp.Linear(3, 3)), LOSS)
    forward_through(net.layers, np.ones((3, m)), {})
    _, gradients = backward_through(net.layers, np.ones((m, 3)).T, {})
    assert len(leaves(met)) == 2 * 2 * 2
    assert_in_one_piece([met, gradients], "what the layers hand on")


def layers_of(net):
    return [net.layers, *getattr(net, "replicas", ())]


def with_a_grain(layers, loss, K, M, grain):
    split = dict(stages=K, microbatches=M)
    return mp.Parallel(layers, loss, **split, schedule="gpipe", sums=mp.Sums(grain=grain))


RING = mp.Sums(all_reduce="ring")
NETWORKS = {
    "one device": mp.Sequential,
    "pipeline": lambda layers, loss: mp.Pipeline(layers, loss, min(2, len(layers)), 2),
    "pipeline with a grain": lambda layers, loss: with_a_grain(layers, loss, 1, 2, grain=2),
    "replicas": lambda layers, loss: mp.DataParallel(layers, loss, 2),
    "replicas by a ring": lambda layers, loss: mp.DataParallel(layers, loss, 2, sums=RING),
    "shards": lambda layers, loss: mp.TensorParallel(layers, loss, 2),
    "ZeRO": lambda layers, loss: mp.DataParallel(layers, loss, 2, zero=3),
}


@pytest.mark.parametrize("split", NETWORKS)
def test_parameters_assigned_as_views_are_made_contiguous(split, met):
    """A run, a prediction and an update work with copies of them, which have the same numbers."""
    X = Y = np.random.default_rng(0).standard_normal((3, 4))
    values = np.arange(9.0).reshape(3, 3) / 8
    for train in (False, True):
        net = NETWORKS[split]([mp.Linear(3, 3), mp.Tanh(), Turned(3), mp.BatchNorm(3)], LOSS)
        net.layers[0].W, net.layers[0].b, net.layers[2].W = values.T, values[:, :1], np.asfortranarray(values)
        expected = copy.deepcopy(parameters(net.layers))
        if not train:
            net.predict(X)
            assert_same(parameters(net.layers), expected)
        elif split == "ZeRO":
            net.train([(X, Y)], mp.SGD(0.1))
        else:
            net.forward_backward(X, Y)
            assert_same(parameters(net.layers), expected)
            net.step(mp.SGD(0.1))
        for layers in layers_of(net) if train else [net.layers]:
            assert_in_one_piece(list(parameters(layers).values()), "the parameters")
    assert_in_one_piece(met, "what a Linear works with")


WAYS = {
    "the other way": lambda A: A.T.copy().T, "with gaps": lambda A: A.repeat(2, axis=-1)[..., ::2],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("m", [1, 12])
def test_data_in_another_memory_layout_give_the_same_bits(m, way, met):
    """One device and a pipeline work with contiguous copies."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((5, m)), rng.standard_normal((3, m))
    layers = mp.Sequential([mp.Linear(5, 6), mp.Tanh(), mp.Linear(6, 3)], None).layers
    n_grains = -(-m // 4)
    for net in (
        mp.Sequential(layers, LOSS, grain=4), with_a_grain(layers, LOSS, 2, n_grains, grain=4),
    ):
        J = net.forward_backward(X, Y)
        gradients = net.gradients
        assert net.forward_backward(WAYS[way](X), WAYS[way](Y)) == J
        assert_same(net.gradients, gradients)
    assert_in_one_piece(met, "what layers and losses are handed")
