"""Sums over micro-batches: in one running buffer, along a tree, or grain by grain as on one device.

They write into no array that a layer has handed over. And the norm of all gradients together, by which they
are clipped: one number, however the network is split.
"""

from functools import reduce
from itertools import product

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_same, difference, parameters
from memory.test_without_values import LOSS, mini_batch

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational
from minipipe.layers import Layer, every_layer
from minipipe.layers.through import backward_through, forward_through, prepare_forward
from minipipe.order import in_copies
from minipipe.schedules import build
from minipipe.sums import TreeSum

MSE = mp.MeanSquaredError()
DENSE = mp.Sequential([mp.Linear(5, 6), mp.Tanh(), mp.Linear(6, 3)], LOSS).layers


def pipeline(K, M, schedule, sums, layers=DENSE, loss=LOSS):
    return mp.Parallel(layers, loss, stages=K, microbatches=M, schedule=schedule, sums=sums)


def gradients(schedule, X, Y, accumulate="running", layers=DENSE):
    sums = mp.Sums(accumulate)
    pipe = pipeline(schedule.n_stages, schedule.n_microbatches, schedule, sums, layers)
    pipe.forward_backward(X, Y)
    return leaves(pipe.gradients)


def terms(X, Y, M):
    """For each micro-batch, its gradients."""
    found, m = [], X.shape[-1]
    for columns in np.array_split(range(m), M):
        LOSS.forward(forward_through(DENSE, X[:, columns], {}), Y[:, columns], m)
        found.append(leaves(backward_through(DENSE, LOSS.backward(), {})[1]))
    return found


def added(terms):
    """Their sum, from the first to the last."""
    return reduce(lambda total, term: [a + b for a, b in zip(total, term, strict=True)], terms)


def test_a_running_sum_adds_in_order_of_arrival():
    X, Y = mini_batch(24)
    of_each = terms(X, Y, 6)
    for name, order in (("gpipe-fifo", range(6)), ("gpipe", reversed(range(6)))):
        assert_same(gradients(build(name, 1, 6), X, Y), added([of_each[i] for i in order]))
    found = {name: gradients(build(name, 1, 6), X, Y) for name in ("gpipe", "gpipe-fifo")}
    assert difference(found["gpipe"], found["gpipe-fifo"])  # so the bits do depend on the schedule
    assert_same(*(gradients(build(name, 1, 6), X, Y, "tree") for name in found))


@pytest.mark.parametrize("D", [2, 3, 5])
def test_buffers_are_added_in_the_order_of_the_copies(D):
    X, Y = mini_batch(24)
    schedule, of_each = in_copies(build("1f1b", 1, 2), D), terms(X, Y, 2 * D)
    of_copies = [added(of_each[2 * copy:2 * copy + 2]) for copy in range(D)]
    assert_same(gradients(schedule, X, Y), added(of_copies))


# Arrays that layers have handed over
#
# By the contract, `backward` returns (dA_prev, dW, db), and nothing says that these are arrays of their own.
# In layers as small autograds write them, gradients may be shared, kept, or returned again.

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
)


def network(kind, way):
    W = np.array([[1, 2, 0], [0, 1, -1], [2, 0, 1], [-1, 1, 1]]) / 2
    V = np.array([[1, 0, 2, 1], [0, 1, -1, 2]]) / 2
    return [mp.Linear(3, 4, W=W, b=np.zeros((4, 1))), kind(4, way), mp.Linear(4, 2, W=V, b=np.zeros((2, 1)))]


def tiled_batch():
    """Small whole numbers, whose products and sums are exact; the first samples are the last ones again."""
    rng = np.random.default_rng(0)
    X, Y = rng.integers(-2, 3, (3, 4)), rng.integers(-2, 3, (2, 4))
    return np.tile(X, 2) * 1.0, np.tile(Y, 2) * 1.0


def plain_loop(layers, M):
    """Return the sums of (dW, db), by the layers' own forward and backward on each micro-batch."""
    (X, Y), totals = tiled_batch(), None
    for x, y in zip(np.split(X, M, axis=1), np.split(Y, M, axis=1)):
        A, found = x, []
        for layer in layers:
            A = layer.forward(A)
        MSE.forward(A, y, X.shape[1])
        dA = MSE.backward()
        for layer in reversed(layers):
            dA, dW, db = layer.backward(dA)
            found.append([None if g is None else g.copy() for g in (dW, db)])
            layer.cache = None
        found = found[::-1]
        totals = found if totals is None else [
            [None if a is None else a + b for a, b in zip(*pair)] for pair in zip(totals, found)
        ]
    return [tuple(pair) for pair in totals]


def summed(kind, way, M, K, schedule, accumulate):
    split = dict(stages=K, microbatches=M)
    net = mp.Parallel(network(kind, way), MSE, **split, schedule=schedule, sums=mp.Sums(accumulate))
    for _ in range(2):  # what a layer has kept of a run must not show in the next
        net.forward_backward(*tiled_batch())
    return net.gradients


@pytest.mark.parametrize("kind, way", list(product(KINDS, HANDED_OVER)))
def test_gradients_of_shared_arrays_equal_a_plain_loop(kind, way):
    for M, *setting in SETTINGS:
        assert_same(summed(kind, way, M, *setting), plain_loop(network(kind, way), M))


# With a grain


def result(net, X, Y):
    """(J, gradients, what the layers have counted)"""
    J = np.asarray(net.forward_backward(X, Y))
    return J, net.gradients, list(map(np.asarray, leaves([counted for _, counted in net._counted])))


def test_the_reference_of_grains_is_a_plain_loop():
    layers = [mp.Linear(5, 8), mp.BatchNorm(8), mp.Dropout(0.5), mp.Linear(8, 3)]
    net = mp.Sequential(layers, LOSS, grain=16)
    X, Y = mini_batch(50)
    J, gradients, _ = result(net, X, Y)
    total = TreeSum(4)
    with mp.arrays.blas_threads(1):
        for k, (start, stop) in enumerate([(0, 16), (16, 32), (32, 48), (48, 50)]):
            prepare_forward(every_layer(net.layers), training=True, first_sample=start)
            part = X[:, start:stop].copy()
            of_J = LOSS.forward(forward_through(net.layers, part, {}), Y[:, start:stop].copy(), 50)
            total.add(k, (of_J, backward_through(net.layers, LOSS.backward(), {})[1]))
    assert_same((J, gradients), (np.asarray(total.value[0]), total.value[1]))


def test_the_bits_on_real_digits_depend_on_the_grain_alone():
    """Products long enough for every path of BLAS; 100 digits in grains of 16, the last one of 4."""
    X, Y = (part[:, :100].astype(np.float32) for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 96), mp.ReLU(), mp.Linear(96, 64), mp.Tanh(), mp.Linear(64, 10)]
    one = result(mp.Sequential(layers, LOSS, dtype=np.float32, grain=16), X, Y)
    for K, M, schedule in [
        (1, 7, "gpipe"), (1, 1, "gpipe"), (2, 3, "1f1b"), (3, 4, "zb-h1"), (5, 7, "1f1b"), (4, 2, "zb-v"),
    ]:
        pipe = mp.Parallel(
            layers, LOSS, stages=K, microbatches=M, schedule=schedule, sums=mp.Sums(grain=16),
            recompute="always" if K > 2 else "never", dtype=np.float32,
        )
        assert_same(result(pipe, X, Y), one, f"K={K}, M={M}, {schedule}: the result")
    for D, M, buckets in [(1, None, None), (2, None, None), (3, 6, 8000), (5, None, 1), (7, 7, "ddp")]:
        sums = mp.Sums(buckets=buckets, grain=16)
        pipe = mp.DataParallel(layers, LOSS, D, microbatches=M, dtype=np.float32, sums=sums)
        assert_same(result(pipe, X, Y), one, f"D={D}, M={M}, buckets={buckets}: the result")
    for other in (None, 15, 32, 100):
        assert difference(result(mp.Sequential(layers, LOSS, dtype=np.float32, grain=other), X, Y), one)
    for M in (2, 4, 7):
        assert difference(result(mp.Pipeline(layers, LOSS, 2, M, dtype=np.float32), X, Y), one)


def test_a_stream_without_a_flush_has_the_same_bits_for_any_M():
    """PipeDream-2BW with its updates after 3 and after 6 micro-batches of the same 6 grains."""
    found = []
    for M in (3, 6):
        pipe = pipeline(3, M, "pipedream-2bw", mp.Sums(grain=4))
        found.append(pipe.train([mini_batch(24)] * 4, mp.SGD(0.1)))
    assert found[0] == found[1]
    with pytest.raises(ValueError, match="grain=4 in one run without a flush needs mini-batches of one size"):
        pipe.train([mini_batch(24), mini_batch(28)], mp.SGD(0.1))


def test_a_layer_sees_one_contiguous_grain_at_a_time(monkeypatch):
    """Numbers that lie differently may be rounded differently."""
    seen, forward = [], mp.Linear.forward

    def watched(self, A_prev):
        seen.append((self.n_prev, self.first_sample, A_prev.shape[-1], A_prev.flags.c_contiguous))
        return forward(self, A_prev)

    monkeypatch.setattr(mp.Linear, "forward", watched)
    layers = [mp.Linear(2, 3), mp.Linear(3, 1)]
    pipe = pipeline(2, 2, "naive", mp.Sums(grain=4), layers, mp.MeanSquaredError())
    pipe.forward_backward(np.ones((2, 10)), np.ones((1, 10)))
    of_one = [(2, 0, 4), (2, 4, 4), (3, 0, 4), (3, 4, 4), (2, 8, 2), (3, 8, 2)]
    assert seen == [(*one, True) for one in of_one]


def test_a_cut_that_would_fall_into_a_grain_is_refused():
    pipe = pipeline(2, 5, "gpipe", mp.Sums(grain=16))
    words = "microbatches=5 exceeds the 4 grains of 16 samples in a batch of m=50: a cut would fall into"
    with pytest.raises(ValueError, match=words):
        pipe.forward_backward(*mini_batch(50))
    pipe.forward_backward(*mini_batch(65))


# The norm, and clipping by it

TIED = [mp.Linear(3, 3, tie="W"), mp.Tanh(), mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 3), mp.Tanh(),
        mp.Linear(3, 3, tie="W"), mp.Linear(3, 2)]
ALL_THREE = dict(replicas=2, shards=2, stages=2, microbatches=4)
SPLITS = {
    "one device": lambda layers: mp.Sequential(layers, MSE),
    "stages": lambda layers: mp.Pipeline(layers, MSE, 4, 3, schedule="1f1b"),
    "copies": lambda layers: mp.DataParallel(layers, MSE, 3, sums=mp.Sums(buckets=100)),
    "shards": lambda layers: mp.TensorParallel(layers, MSE, 2),
    "all three": lambda layers: mp.Parallel(layers, MSE, **ALL_THREE),
}


def exact_batch(m=7, convert=eighths):
    rng = np.random.default_rng(m)
    return convert(rng.standard_normal((3, m))), convert(rng.standard_normal((2, m)))


@pytest.mark.parametrize("split", SPLITS)
def test_norm_and_clipped_step_match_the_whole_network(split):
    """In rational numbers, against the sum of squares by hand: the tied W counts once."""
    layers, (X, Y) = exact(TIED), exact_batch()
    net, whole, clip = SPLITS[split](layers), mp.Sequential(layers, MSE), Rational(1, 4)
    net.forward_backward(X, Y)
    whole.forward_backward(X, Y)
    counted = [pair[1:] if index == 6 else pair for index, pair in enumerate(whole.gradients)]
    norm = sum(g**2 for array in leaves(counted) for g in array.flat).sqrt()
    assert net.gradient_norm() == norm > clip
    net.step(mp.SGD(Rational(1)), clip=clip)
    before, steps = parameters(whole.layers), leaves(whole.gradients)
    moved = [array - step * (clip / norm) for array, step in zip(before.values(), steps, strict=True)]
    assert_same(list(parameters(net.layers).values()), moved)


def with_gradients(*numbers):
    """A network whose gradients are these numbers, one a layer: W = 0 there, and a cost of (w - g)^2 / 2."""
    layers = [mp.Linear(1, 1, W=rational([[0]]), bias=False) for _ in numbers]
    net = mp.Sequential(layers, MSE)
    net._gradients = [(rational([[g]]), None) for g in numbers]
    return net


def test_clipping_keeps_the_direction_and_short_gradients():
    """The norm of 3, 4 and 12 is 13."""
    assert with_gradients(3, 4, 12).gradient_norm() == 13
    for clip, factor in (("13/2", Rational(1, 2)), ("39/4", Rational(3, 4)), ("13", 1), ("14", 1)):
        net = with_gradients(3, 4, 12)
        net.step(mp.SGD(Rational(1)), clip=Rational(clip))
        assert [layer.W[0, 0] for layer in net.layers] == [-factor * g for g in (3, 4, 12)]
        assert [dW[0, 0] for dW, _ in net.gradients] == [3, 4, 12]


def test_fit_and_train_clip_as_a_step_does():
    (X, Y), clip, rate = exact_batch(), Rational(1, 8), mp.SGD(Rational(1, 2))
    by_hand, fitted, trained = (mp.Sequential(exact(TIED), MSE) for _ in range(3))
    by_hand.forward_backward(X, Y)
    by_hand.step(rate, clip=clip)
    mp.fit(fitted, X, Y, rate.fresh(), 1, X.shape[-1], clip=clip, metric=lambda A, Y: 0, report=None)
    trained.train([(X, Y)], rate, clip=clip)
    for net in (fitted, trained):
        assert_same(parameters(net.layers), parameters(by_hand.layers))


@pytest.mark.parametrize("clip, error, words", [
    (0, ValueError, "clip=0 must be above 0"),
    ("1", ValueError, "clip='1' must be a number, above 0"),
    (1, FloatingPointError, "add up to more than float64 can hold"),
])
def test_a_refused_clipping_changes_nothing(clip, error, words):
    net = mp.Sequential([mp.Linear(1, 1, W=[[1.0]], b=[[0.0]])], MSE)
    net._gradients = [(np.array([[1e200]]), np.array([[1.0]]))]
    with pytest.raises(error, match=words):
        net.step(mp.SGD(0.1), clip=clip)
    assert net.layers[0].W == 1 and net.layers[0].b == 0 and net.n_steps == 0


def test_without_gradients_there_is_no_norm():
    with pytest.raises(RuntimeError, match="there are no gradients yet"):
        mp.Sequential(TIED, MSE).gradient_norm()
