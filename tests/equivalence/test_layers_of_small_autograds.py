"""Right layers as small autograds write them: their gradients may be shared, kept, or returned again.

By the contract, `backward` returns (dA_prev, dW, db), and nothing says that these are arrays of their own. So
sums over micro-batches write into none of them: each gradient is that of a plain loop.
"""

from itertools import product

import numpy as np
import pytest
from compared import assert_same

import minipipe as mp
from minipipe.layers import Layer

LOSS = mp.MeanSquaredError()


def unbroadcast(gradient, shape):
    """Sum over each axis along which an array of `shape` was broadcast; of one sample, return it itself."""
    for axis, n in enumerate(shape):
        if n == 1 and gradient.shape[axis] != 1:
            gradient = gradient.sum(axis=axis, keepdims=True)
    return gradient


# What a layer hands over for a gradient g.

def kept(layer, g):
    """The layer reads its last gradients again: they must be as they were."""
    assert all(np.array_equal(array, before) for array, before in layer.kept)
    layer.kept.append((g, g.copy()))
    return g


def found_again(layer, g):
    """Equal gradients are one array."""
    return layer.found.setdefault((g.shape, g.dtype, g.tobytes()), g)


HANDED_OVER = {"as it is": lambda layer, g: g, "kept": kept, "found again": found_again}


# Layers with a `way` to hand over each of their gradients.

class Handing(Layer):
    def __init__(self, n, way):
        self.n, self.way, self.kept, self.found = n, way, [], {}

    def handed(self, *gradients):
        return tuple(None if g is None else HANDED_OVER[self.way](self, g) for g in gradients)


class Offset(Handing):  # A = A_prev + b
    def __init__(self, n, way):
        super().__init__(n, way)
        self.b = np.arange(n).reshape(n, 1) / 4

    def forward(self, A_prev):
        self.cache = A_prev.shape
        return A_prev + self.b.astype(A_prev.dtype)

    def backward(self, dZ):
        return dZ, *self.handed(None, unbroadcast(dZ, self.b.shape))


class TwoOffsets(Handing):  # A = A_prev + W + b: one array is the gradient of both
    def __init__(self, n, way):
        super().__init__(n, way)
        self.W, self.b = np.full((n, 1), 0.5), np.full((n, 1), 0.25)

    def forward(self, A_prev):
        self.cache = A_prev.shape
        return A_prev + (self.W + self.b).astype(A_prev.dtype)

    def backward(self, dZ):
        (g,) = self.handed(unbroadcast(dZ, self.b.shape))
        return dZ, g, g


class OffsetAndItsInput(Offset):  # dA_prev is the array of db, too, if there is one sample
    def backward(self, dZ):
        (db,) = self.handed(unbroadcast(dZ, self.b.shape))
        return db if dZ.shape[-1] == 1 else dZ, None, db


class DenseInHalves(Handing):  # A = W A_prev + b; dW and db are views of one array
    def __init__(self, n, way):
        super().__init__(n, way)
        self.W, self.b = np.eye(n) + 0.25, np.full((n, 1), 0.25)

    def forward(self, A_prev):
        self.cache = A_prev
        return self.W.astype(A_prev.dtype) @ A_prev + self.b.astype(A_prev.dtype)

    def backward_input(self, dZ):
        return self.W.T.astype(dZ.dtype) @ dZ

    def backward_weight(self, dZ):
        both = np.concatenate([dZ @ self.cache.T, unbroadcast(dZ, self.b.shape)], axis=1)
        return self.handed(both[:, :self.n], both[:, self.n:])


KINDS = Offset, TwoOffsets, OffsetAndItsInput, DenseInHalves
SETTINGS = (  # M, K, schedule, how gradients are summed
    (8, 1, "gpipe", "tree"), (8, 3, "1f1b", "running"), (4, 2, "zb-h1", "tree"),
    (8, 3, "gpipe-late-w", "tree"),
)


def network(kind, way):
    W = np.array([[1, 2, 0], [0, 1, -1], [2, 0, 1], [-1, 1, 1]]) / 2
    V = np.array([[1, 0, 2, 1], [0, 1, -1, 2]]) / 2
    return [mp.Linear(3, 4, W=W, b=np.zeros((4, 1))), kind(4, way), mp.Linear(4, 2, W=V, b=np.zeros((2, 1)))]


def mini_batch():
    """Small whole numbers, whose products and sums are exact; the first samples are the last ones again."""
    rng = np.random.default_rng(0)
    X, Y = rng.integers(-2, 3, (3, 4)), rng.integers(-2, 3, (2, 4))
    return np.tile(X, 2) * 1.0, np.tile(Y, 2) * 1.0


def plain_loop(layers, M):
    """Return the sums of (dW, db), by the layers' own forward and backward on each micro-batch."""
    (X, Y), totals = mini_batch(), None
    for x, y in zip(np.split(X, M, axis=1), np.split(Y, M, axis=1)):
        A, found = x, []
        for layer in layers:
            A = layer.forward(A)
        LOSS.forward(A, y, X.shape[1])
        dA = LOSS.backward()
        for layer in reversed(layers):
            dA, dW, db = layer.backward(dA)
            found.append([None if g is None else g.copy() for g in (dW, db)])
            layer.cache = None
        found = found[::-1]
        totals = found if totals is None else [
            [None if a is None else a + b for a, b in zip(*pair)] for pair in zip(totals, found)
        ]
    return [tuple(pair) for pair in totals]


def gradients(kind, way, M, K, schedule, accumulate):
    split = dict(stages=K, microbatches=M)
    net = mp.Parallel(network(kind, way), LOSS, **split, schedule=schedule, sums=mp.Sums(accumulate))
    for _ in range(2):  # what a layer has kept of a run must not show in the next
        net.forward_backward(*mini_batch())
    return net.gradients


@pytest.mark.parametrize("kind, way", list(product(KINDS, HANDED_OVER)))
def test_gradients_of_shared_arrays_equal_a_plain_loop(kind, way):
    for M, *setting in SETTINGS:
        assert_same(gradients(kind, way, M, *setting), plain_loop(network(kind, way), M))
