"""Skip connections by name and tied weights: by hand, across stages, in messages and in memory."""

import numpy as np
import pytest
from cases import cases_with_skips, eighths, exact
from compared import assert_equals_full_batch, assert_same
from layers.every_layer import dual, own_parameters
from hypothesis import given, settings
from sampling import a_quarter_of_the_examples

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.exact import rational

LOSS = mp.MeanSquaredError()


def whole(rng, *shape):
    return rational(rng.integers(-12, 13, shape)) / 8


def linear(rng, n_prev, n):
    return mp.Linear(n_prev, n, W=whole(rng, n, n_prev), b=whole(rng, n, 1))


# --- what they compute

@pytest.mark.parametrize(
    "how, block", [("add", mp.Residual), ("concat", lambda *layers: mp.Concat(layers, []))]
)
def test_a_fork_and_its_join_are_a_residual_or_a_concat(how, block):
    rng = np.random.default_rng(0)
    inner, last = [linear(rng, 3, 2), mp.Tanh(), linear(rng, 2, 3)], linear(rng, 3 if how == "add" else 6, 2)
    X, Y = whole(rng, 3, 4), whole(rng, 2, 4)
    by_name = mp.Sequential([mp.Fork("a"), *inner, mp.Join("a", how), last], LOSS)
    as_block = mp.Sequential([block(*inner), last], LOSS)
    assert by_name.forward_backward(X, Y) == as_block.forward_backward(X, Y)
    assert_same(*([leaves(part) for part in zip(*net.gradients)] for net in (by_name, as_block)))
    assert np.array_equal(by_name.predict(X), as_block.predict(X))


@a_quarter_of_the_examples
def test_gradients_of_any_network_equal_dual_numbers_exactly(share):
    settings(max_examples=60 // share)(given(cases_with_skips())(equals_dual_numbers))()


def equals_dual_numbers(case):
    """Compare with the slope of J where all parameters move at once, tied ones in the same direction."""
    layers, X, Y = case.converted(eighths)
    net = mp.Sequential(layers, case.loss)
    J = net.forward_backward(X, Y)
    twin, rng, expected, of_tied = mp.Sequential(layers, case.loss), np.random.default_rng(1), 0, {}
    for layer, (dW, db) in zip(twin.layers, net.gradients):
        for (part, name), gradient in zip(own_parameters(layer), leaves((dW, db)), strict=True):
            D = rational(rng.integers(-4, 5, gradient.shape))
            if layer.tie is not None and name == "W" and of_tied.setdefault(layer.tie, D) is not D:
                D = of_tied[layer.tie]  # the sum of all dW has been counted already
            else:
                expected += (gradient * D).sum()
            setattr(part, name, dual(getattr(part, name), D))
    found, _, _ = twin.terms_of(slice(0, X.shape[-1]), X, Y)
    assert found.value == J and found.slope == expected


# --- in a pipeline

NETWORK = [
    mp.Linear(2, 4), mp.Fork("far"), mp.ReLU(), mp.Fork("near"), mp.Linear(4, 4), mp.Join("near"), mp.Tanh(),
    mp.Linear(4, 4), mp.Join("far", "concat"), mp.Linear(8, 2),
]


def pipeline(
    n_microbatches=3, partition=(2, 2, 3, 3), schedule="gpipe", recompute="never", layers=NETWORK,
    dtype=np.float64, count_bytes=False,
):
    cut = mp.Cut(partition)
    return mp.Pipeline(
        layers, LOSS, cut, n_microbatches, schedule=schedule, recompute=recompute, dtype=dtype,
        count_bytes=count_bytes,
    )


def mini_batch(m=7, dtype=np.float64):
    rng = np.random.default_rng(0)
    return rng.standard_normal((2, m)).astype(dtype), rng.standard_normal((2, m)).astype(dtype)


def named_messages(trace):
    """(label, source, to, bytes) of what travels for skip connections and ties."""
    return sorted((m.label, m.source, m.to, m.n_bytes) for m in trace.messages if isinstance(m.label, str))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_skip_is_a_message_between_its_two_ends(dtype):
    """Stages 0 | 1 | 2 | 3: far goes from 0 to 3, near from 1 to 2, each with 4 rows; micro-batches of 3, 2,
    2 samples. So do their derivatives, the other way round.
    """
    pipe = pipeline(dtype=dtype)
    pipe.forward_backward(*mini_batch(dtype=dtype))
    expected = []
    for name, begin, end in [("far", 0, 3), ("near", 1, 2)]:
        for i, size in enumerate([3, 2, 2]):
            n_bytes = 4 * size * np.dtype(dtype).itemsize
            expected += [
                (f"{begin}F{i} {name}", begin, end, n_bytes),
                (f"{end}B{i} {name}", end, begin, n_bytes),
            ]
    assert named_messages(pipe.trace) == sorted(expected)
    others = [m for m in pipe.trace.messages if not isinstance(m.label, str)]
    assert len(others) == 2 * 3 * 3 and all(abs(m.source - m.to) == 1 for m in others)


@pytest.mark.parametrize("name", ["main", "0F0", "sums of stage 0"])
def test_a_skip_connection_may_have_any_name(name):
    layers = exact([mp.Linear(2, 3), mp.Fork(name), mp.Linear(3, 3), mp.Join(name), mp.Linear(3, 2)])
    pipe = mp.Pipeline(layers, LOSS, 5, 4, schedule="1f1b")
    assert_equals_full_batch(pipe, *map(eighths, mini_batch()))


class Watched(mp.Tanh):
    """A Tanh that notes each of its backwards."""

    backwards = 0

    def backward_input(self, dA):
        Watched.backwards += 1
        return super().backward_input(dA)


@pytest.mark.parametrize("schedule", ["gpipe", "zb-h1"])
def test_nothing_is_computed_below_the_first_parameters(schedule, monkeypatch):
    """dX is not needed, nor the gradient of a Fork below the first parameters."""
    layers = [
        mp.Tanh(), Watched(), mp.Fork("a"), mp.Residual(mp.Tanh()), mp.Linear(2, 2), Watched(),
        mp.Linear(2, 2), mp.Join("a"),
    ]
    layers = exact(layers)
    X, Y = (eighths(part) for part in mini_batch())
    for partition in ([4, 2, 2], [2, 3, 3], [8]):
        monkeypatch.setattr(Watched, "backwards", 0)
        pipe = pipeline(3, partition, schedule, layers=layers)
        pipe.forward_backward(X, Y)
        assert Watched.backwards == 3  # of the second one, once for each micro-batch
        assert [layer.cache for layer in pipe.layers if layer.cache is not None] == []
        assert_equals_full_batch(pipe, X, Y)


# --- tied weights

def test_a_tie_is_a_message_there_and_one_back():
    layers = [
        mp.Embedding(5, 3, tie="words"), mp.Linear(3, 3, tie="W"), mp.Tanh(), mp.Linear(3, 3, tie="W"),
        mp.Linear(3, 3, tie="W"), mp.Linear(3, 5, tie="words"),
    ]
    pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 6, 2)
    pipe.forward_backward(np.zeros((1, 4), int), mp.one_hot([0, 1, 2, 3], 5)[:, None])
    expected = []
    for name, layer, first, n_bytes in [("words", 5, 0, 5 * 3 * 8), ("W", 3, 1, 9 * 8), ("W", 4, 1, 9 * 8)]:
        expected += [
            (f"dW of layer {layer} ({name})", layer, first, n_bytes),
            (f"sum for layer {layer} ({name})", first, layer, n_bytes),
        ]
    assert named_messages(pipe.trace) == sorted(expected)


ONE = {"W": np.eye(2)}


@pytest.mark.parametrize("first, second", [(ONE, {}), ({}, ONE), (ONE, ONE), ({}, {})])
def test_tied_layers_start_from_one_W(first, second):
    """That which is given, or that of the first layer as if it were not tied."""
    layers = [mp.Linear(2, 2, tie="a", **first), mp.ReLU(), mp.Linear(2, 2, tie="a", **second)]
    net, free = mp.Sequential(layers, None), mp.Sequential([mp.Linear(2, 2)], None)
    W = np.eye(2) if first or second else free.layers[0].W
    assert_same([net.layers[0].W, net.layers[2].W], [W, W])
    assert net.layers[0].W is not net.layers[2].W


# --- errors

@pytest.mark.parametrize("layers, message", [
    ([mp.Fork("a")], r"Fork\('a'\) has no Join: add Join\('a'\) to the layers"),
    ([mp.ReLU(), mp.Join("a")], r"Join\('a'\) has no Fork: add Fork\('a'\) to the layers"),
    ([mp.Join("a"), mp.ReLU(), mp.Fork("a")],
     r"Fork\('a'\) is layer 2, after its Join, layer 0"),
    ([mp.Fork("a"), mp.Fork("a"), mp.Join("a")],
     r"layers 0 and 1 both are Fork\('a'\): rename one"),
    ([mp.Fork("a"), mp.Join("a"), mp.ReLU(), mp.Join("a")],
     r"layers 1 and 3 both are Join\('a'\): rename one"),
    ([mp.ReLU(), mp.Linear(2, 2, tie="a")],
     r"only layer 1 has tie='a': give it to the layer that shares its W, too"),
    ([mp.Linear(2, 3, tie="a"), mp.Linear(3, 2, tie="a")],
     r"layers \[0, 1\] share tie='a', but their W have shapes \[\(3, 2\), \(2, 3\)\]"),
    ([mp.Linear(1, 1, W=[[1]], tie="a"), mp.ReLU(), mp.Linear(1, 1, W=[[2]], tie="a")],
     r"layers 0 and 2 share tie='a', but have different W: assign W to one of them"),
])
def test_names_that_do_not_fit_are_refused_before_anything_runs(layers, message):
    for make in (lambda: mp.Sequential(layers, None), lambda: mp.Pipeline(layers, LOSS, 1, 1)):
        with pytest.raises(ValueError, match=message):
            make()


@pytest.mark.parametrize("how, shape, message", [
    ("add", (3,), r"A_prev has shape \(3, 4\), and the skip connection \(2, 4\): make them equal"),
    ("concat", (1, 2), r"A_prev has shape \(1, 2, 4\), and the skip connection \(2, 4\): make all axes but"),
])
def test_a_join_of_shapes_that_do_not_fit_is_refused_with_both(how, shape, message):
    between = mp.Linear(2, 3) if shape == (3,) else mp.Reshape(shape)
    for partition in ([3], [1, 1, 1]):
        pipe = pipeline(1, partition, layers=[mp.Fork("a"), between, mp.Join("a", how)])
        with pytest.raises(ValueError, match=message):
            pipe.forward_backward(np.ones((2, 4)), np.ones((2, 4)))
