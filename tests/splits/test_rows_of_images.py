"""Convolutions split by the rows of the image, by channels or by samples: one gradient, and what travels."""

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_equals_full_batch
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp

LOSS = mp.MeanSquaredError()


def network(kernel=3, dilation=1):
    return [
        mp.Conv2d(1, 2, kernel, padding="same", dilation=dilation), mp.ReLU(), mp.Dropout(0.25),
        mp.Conv2d(2, 2, (3, 1), padding=(1, 0), bias=False), mp.Tanh(), mp.Conv2d(2, 1, 1), mp.MaxPool2d(2),
        mp.Flatten(),
    ]


@settings(max_examples=6)
@given(st.data())
def test_in_rational_arithmetic_the_gradients_are_the_full_batchs(data):
    """Kernels that reach further than one row, several in a row, and copies and stages besides."""
    T, D, K = data.draw(st.sampled_from([(2, 1, 1), (3, 1, 1), (2, 2, 1), (2, 1, 2), (1, 1, 1)]))
    kernel, dilation = data.draw(st.sampled_from([(3, 1), (5, 1), (3, 2), (1, 1)]))
    rng = np.random.default_rng(data.draw(st.integers(0, 9)))
    X, Y = eighths(rng.standard_normal((1, 6, 4, 3))), eighths(rng.standard_normal((2, 3)))
    layers = exact([*network(kernel, dilation), mp.Linear(6, 2)])
    memory = mp.Memory(data.draw(st.sampled_from(["never", "always"])))
    net = mp.Parallel(layers, LOSS, mp.Split(D, mp.Shards(T, rows=True), K, 2), memory=memory)
    assert T == 1 or (net.ways[:6] == ["by rows"] * 6 and net.ways[6] == "whole")
    assert_equals_full_batch(net, X, Y)


def bytes_sent(trace, word):
    return sum(message.n_bytes for message in trace.messages if word in str(message.label))


def test_what_the_four_splits_of_a_convolution_send():
    """3 x 3, 16 -> 16 channels, images of 32 x 32, m = 8, float32, N = 4: bytes in all."""
    layers = [mp.Conv2d(16, 16, 3, padding=1), mp.ReLU(), mp.Conv2d(16, 16, 3, padding=1)]
    X = np.zeros((16, 32, 32, 8), np.float32)

    def trace_of(build, layers):
        return mp.rehearse(build, layers, LOSS, X.shape[:-1], 8, dtype="float32")

    def shards(layers, loss, rows=False):
        return mp.TensorParallel(layers, loss, mp.Shards(4, rows=rows), dtype="float32")

    by_rows = trace_of(lambda layers, loss: shards(layers, loss, rows=True), layers[:1])
    assert bytes_sent(by_rows, "rows") == 98_304  # forward; the first layer sends no derivative back
    halves = trace_of(lambda layers, loss: shards(layers, loss, rows=True), [layers[0], layers[2]])
    assert bytes_sent(halves, "rows") == 3 * 98_304  # of the second layer back, too
    by_outputs = trace_of(shards, layers[:1])
    assert bytes_sent(by_outputs, "all-gather") == 1_572_864
    pair = trace_of(shards, layers)  # the second one by inputs: a sum of all devices' outputs
    assert bytes_sent(pair, "all-reduce") == 3_145_728
    copies = trace_of(lambda layers, loss: mp.DataParallel(layers, loss, 4, dtype="float32"), layers[:1])
    assert bytes_sent(copies, "owners all-reduce") == 55_680


@pytest.mark.parametrize("rows, words", [
    (7, "7 positions over 2 shards: use a number of shards that divides 7"),
    (2, "a kernel that reaches 2 rows beyond its own needs as many on each device, not 1"),
])
def test_rows_that_do_not_fit_are_refused(rows, words):
    net = mp.TensorParallel([mp.Conv2d(1, 1, 5, padding=2), mp.Flatten()], LOSS, mp.Shards(2, rows=True))
    with pytest.raises(ValueError, match=words):
        net.forward_backward(np.ones((1, rows, 4, 2)), np.ones((4 * rows, 2)))


def test_what_changes_the_number_of_rows_is_not_split_so():
    layers = [mp.Conv2d(1, 2, 3), mp.Conv2d(2, 2, 3, stride=2, padding=1), mp.Conv2d(2, 2, 2, padding="same")]
    with pytest.raises(ValueError, match="rows=True splits nothing here: it needs convolutions"):
        mp.TensorParallel(layers, LOSS, mp.Shards(2, rows=True))
    kept = mp.TensorParallel([mp.Conv2d(1, 1, 3, padding=1), *layers], LOSS, mp.Shards(2, rows=True))
    assert [words.startswith("by rows") for words in kept.ways] == [True, False, False, False]
