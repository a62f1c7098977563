"""Tied weights: one W in several places of a network, wherever it is cut."""

import numpy as np
import pytest
from cases import eighths
from compared import assert_all_same, assert_same

import minipipe as mp
from minipipe.exact import Rational, rational


def whole(rng, *shape):
    return rational(rng.integers(-12, 13, shape)) / 8


def pipeline(n_microbatches, partition):
    return mp.Pipeline(
        LANGUAGE, mp.SoftmaxCrossEntropy(), len(partition), n_microbatches, "1f1b", partition=partition
    )


def test_tied_layers_get_the_sum_of_their_gradients():
    """Equal to the gradient of one W that occurs in several places: by hand, for z = W W x with a bias of 0.
    """
    rng = np.random.default_rng(0)
    W, X, Y = whole(rng, 2, 2), whole(rng, 2, 3), whole(rng, 2, 3)
    zero = rational(np.zeros((2, 1)))
    layers = [mp.Linear(2, 2, W=W, b=zero, tie="W"), mp.Linear(2, 2, b=zero, tie="W")]
    dz = (W @ W @ X - Y) / 3
    dW = dz @ (W @ X).T + W.T @ dz @ X.T
    db = [(W.T @ dz).sum(axis=1, keepdims=True), dz.sum(axis=1, keepdims=True)]
    for n_stages in (0, 1, 2):
        net = (
            mp.Pipeline(layers, mp.MeanSquaredError(), n_stages, 2)
            if n_stages
            else mp.Sequential(layers, mp.MeanSquaredError())
        )
        net.forward_backward(X, Y)
        assert_same(tuple(net.gradients), ((dW, db[0]), (dW, db[1])))


LANGUAGE = [
    mp.Embedding(5, 3, tie="words"),
    mp.Linear(3, 3, tie="W"),
    mp.Tanh(),
    mp.Linear(3, 3, tie="W"),
    mp.Linear(3, 3, tie="W"),
    mp.Linear(3, 5, tie="words"),
]


@pytest.mark.parametrize("make", [mp.SGD, mp.RMSProp, mp.Adam, mp.AdamW])
def test_tied_layers_stay_equal_in_every_cut(make):
    """Three updates of an embedding tied to the output layer, and of three layers that share one W:
    the same bits.
    """
    rng = np.random.default_rng(0)
    X, Y = rng.integers(0, 5, (2, 6)), mp.one_hot(rng.integers(0, 5, 12), 5).reshape(5, 2, 6)
    results = []
    for partition in ([6], [1, 1, 1, 1, 1, 1], [2, 3, 1]):
        pipe = pipeline(2, partition)
        optimizer = make(learning_rate=0.1)
        for _ in range(3):
            pipe.forward_backward(X, Y)
            pipe.step(optimizer)
        W = [layer.W for layer in pipe.layers]
        assert np.array_equal(W[0], W[5]) and np.array_equal(W[1], W[3]) and np.array_equal(W[1], W[4])
        results.append(W)
    assert not np.array_equal(results[0][0], mp.Sequential(LANGUAGE, None).layers[0].W)
    assert_all_same(results)


def test_a_tie_is_a_message_there_and_one_back():
    pipe = pipeline(2, [1, 1, 1, 1, 1, 1])
    X, Y = np.zeros((1, 4), int), mp.one_hot([0, 1, 2, 3], 5)[:, None]
    pipe.forward_backward(X, Y)
    found = sorted(
        (m.label, m.source, m.to, m.n_bytes) for m in pipe.trace.messages if isinstance(m.label, str)
    )
    expected = []
    for name, layer, first, n_bytes in [("words", 5, 0, 5 * 3 * 8), ("W", 3, 1, 9 * 8), ("W", 4, 1, 9 * 8)]:
        expected += [
            (f"dW of layer {layer} ({name})", layer, first, n_bytes),
            (f"sum for layer {layer} ({name})", first, layer, n_bytes),
        ]
    assert found == sorted(expected)


@pytest.mark.parametrize(
    "first, second", [({"W": np.eye(2)}, {}), ({}, {"W": np.eye(2)}), ({"W": np.eye(2)}, {"W": np.eye(2)})]
)
def test_tied_layers_start_from_the_one_W_that_is_given(first, second):
    net = mp.Sequential(
        [mp.Linear(2, 2, tie="a", **first), mp.ReLU(), mp.Linear(2, 2, tie="a", **second)], None
    )
    assert np.array_equal(net.layers[0].W, np.eye(2)) and np.array_equal(net.layers[2].W, np.eye(2))
    assert net.layers[0].W is not net.layers[2].W


def test_tied_layers_without_a_W_start_from_that_of_the_first():
    tied, free = (
        mp.Sequential([mp.Linear(2, 2, tie=tie), mp.Linear(2, 2, tie=tie)], None) for tie in ("a", None)
    )
    assert np.array_equal(tied.layers[0].W, free.layers[0].W) and np.array_equal(
        tied.layers[1].W, free.layers[0].W
    )


def test_tied_layers_stay_equal_in_rational_numbers():
    layers = [layer.copy(eighths) for layer in mp.Sequential(LANGUAGE, None).layers]
    pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 3, 2, partition=[2, 3, 1])
    pipe.forward_backward(rational([[0, 1, 2, 1]]), rational(mp.one_hot([0, 1, 2, 3], 5)[:, None]))
    pipe.step(mp.SGD(Rational(1, 8)))
    assert np.array_equal(pipe.layers[0].W, pipe.layers[5].W)


WRONG = {
    "a tie of one": (
        [mp.ReLU(), mp.Linear(2, 2, tie="a")],
        r"only layer 1 has tie='a': give it to the layer that shares its W, too",
    ),
    "a tie of two shapes": (
        [mp.Linear(2, 3, tie="a"), mp.Linear(3, 2, tie="a")],
        r"layers \[0, 1\] share tie='a', but their W have shapes \[\(3, 2\), \(2, 3\)\]",
    ),
    "a tie of two W": (
        [mp.Linear(1, 1, W=[[1]], tie="a"), mp.ReLU(), mp.Linear(1, 1, W=[[2]], tie="a")],
        r"layers 0 and 2 share tie='a', but have different W: give it to one of them",
    ),
}


@pytest.mark.parametrize("layers, message", WRONG.values(), ids=WRONG)
def test_ties_that_cannot_be_are_refused_before_anything_runs(layers, message):
    with pytest.raises(ValueError, match=message):
        mp.Sequential(layers, None)


def test_copies_may_share_some_of_the_devices_that_have_tied_layers():
    """Two copies on devices 0, 0, 1 and 0, 0, 2: what device 0 has to say to itself, it says once."""
    layers = [mp.Linear(3, 3, tie="W") for _ in range(3)]
    orders = ["0F0 1F0 0F1 1F1 1B0 0B0 1B1 0B1", "2F0 2B0", "2F1 2B1"]
    schedule = mp.Schedule.from_text(orders, 2, copy_of=[0, 1])
    X = np.random.default_rng(0).standard_normal((3, 4))
    found = []
    for order in (schedule, "gpipe"):
        pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 3, 2, order)
        pipe.forward_backward(X, X)
        found.append([dW for dW, _ in pipe.gradients])
    assert_same(*found)
