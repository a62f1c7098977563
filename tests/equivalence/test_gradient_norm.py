"""The norm of all gradients together, and clipping by it: one number, however the network is split."""

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_same, assert_within, parameters

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import Rational, rational

TIED = [mp.Linear(3, 3, tie="W"), mp.Tanh(), mp.Linear(3, 4), mp.ReLU(), mp.Linear(4, 3), mp.Tanh(),
        mp.Linear(3, 3, tie="W"), mp.Linear(3, 2)]
LOSS = mp.MeanSquaredError()
ALL_THREE = mp.Split(replicas=2, shards=2, stages=2, microbatches=4)
SPLITS = {
    "one device": lambda layers: mp.Sequential(layers, LOSS),
    "stages": lambda layers: mp.Pipeline(layers, LOSS, 4, 3, "1f1b"),
    "copies": lambda layers: mp.DataParallel(layers, LOSS, 3, sums=mp.Sums(buckets=100)),
    "shards": lambda layers: mp.TensorParallel(layers, LOSS, 2),
    "all three": lambda layers: mp.Parallel(layers, LOSS, ALL_THREE),
}


def mini_batch(m=7, convert=eighths):
    rng = np.random.default_rng(m)
    return convert(rng.standard_normal((3, m))), convert(rng.standard_normal((2, m)))


@pytest.mark.parametrize("split", SPLITS)
def test_norm_and_clipped_step_are_those_of_the_whole_network(split):
    """In rational numbers, against the sum of squares by hand: the tied W counts once."""
    layers, (X, Y) = exact(TIED), mini_batch()
    net, whole, clip = SPLITS[split](layers), mp.Sequential(layers, LOSS), Rational(1, 4)
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
    net = mp.Sequential(layers, LOSS)
    net._gradients = [(rational([[g]]), None) for g in numbers]
    return net


def test_the_direction_stays_and_a_short_gradient_is_left_alone():
    """The norm of 3, 4 and 12 is 13."""
    assert with_gradients(3, 4, 12).gradient_norm() == 13
    for clip, factor in (("13/2", Rational(1, 2)), ("39/4", Rational(3, 4)), ("13", 1), ("14", 1)):
        net = with_gradients(3, 4, 12)
        net.step(mp.SGD(Rational(1)), clip=Rational(clip))
        assert [layer.W[0, 0] for layer in net.layers] == [-factor * g for g in (3, 4, 12)]
        assert [dW[0, 0] for dW, _ in net.gradients] == [3, 4, 12]


def test_decay_is_added_behind_the_clipping():
    net = with_gradients(3, 4, 12)
    for layer in net.layers:
        layer.W = rational([[2]])
    net.step(mp.SGD(Rational(1), weight_decay=Rational(1, 2)), clip=Rational(1))
    assert [layer.W[0, 0] for layer in net.layers] == [1 - Rational(g, 13) for g in (3, 4, 12)]


def test_fit_clips_each_update():
    """A step of plain SGD is rate times a gradient of norm 1/8 at most."""
    X, Y = mini_batch(12, np.asarray)
    net = mp.Sequential(TIED[2:6], LOSS)
    seen = []

    class Spy(mp.SGD):
        def update(self, layers, gradients):
            seen.append(np.concatenate([g.ravel() for g in leaves(gradients)]))
            super().update(layers, gradients)

    mp.fit(net, X, Y[[0, 1, 1]], Spy(0.5), 2, 4, clip=0.125, report=None)
    assert len(seen) == 6
    for step in seen:  # n squares are added up here and there, and the root halves what that is off by
        assert_within((step**2).sum() ** 0.5, 0.125, roundings=step.size + 6)


@pytest.mark.parametrize("clip, error, words", [
    (0, ValueError, "clip=0 must be above 0"),
    ("1", ValueError, "clip='1' must be a number, above 0"),
    (1, FloatingPointError, "add up to more than float64 can hold"),
])
def test_a_refused_clipping_moves_nothing(clip, error, words):
    net = mp.Sequential([mp.Linear(1, 1, W=[[1.0]], b=[[0.0]])], LOSS)
    net._gradients = [(np.array([[1e200]]), np.array([[1.0]]))]
    with pytest.raises(error, match=words):
        net.step(mp.SGD(0.1), clip=clip)
    assert net.layers[0].W == 1 and net.layers[0].b == 0 and net.n_steps == 0


def test_without_gradients_there_is_no_norm():
    with pytest.raises(RuntimeError, match="there are no gradients yet"):
        mp.Sequential(TIED, LOSS).gradient_norm()
