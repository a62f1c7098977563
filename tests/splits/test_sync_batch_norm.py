"""Synchronised batch norm: copies of a network with the statistics, and the gradients, of the full batch."""

from dataclasses import replace

import numpy as np
import pytest
from cases import Rounding, eighths, exact
from compared import assert_all_same, assert_same, state
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.exact import Rational

LOSS = mp.MeanSquaredError()
SYNC = mp.Sums(sync_batch_norm=True)


def network():
    return [
        mp.BatchNorm(2), Rounding(), mp.Linear(2, 3), mp.BatchNorm(3), mp.ReLU(), Rounding(), mp.Linear(3, 2),
        mp.BatchNorm(2, momentum=0.25), mp.Linear(2, 1),
    ]


def mini_batch(m, convert=eighths, seed=0):
    rng = np.random.default_rng([m, seed])
    return convert(rng.standard_normal((2, m))), convert(rng.standard_normal((1, m)))


@settings(max_examples=16)
@given(st.data())
def test_in_rational_arithmetic_ragged_copies_are_the_full_batch(data):
    """Cost, gradients, and what one step makes of parameters and running statistics, moved once.

    Of D copies of K stages, each on T devices.
    """
    D, T, K = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 3))
    X, Y = mini_batch(data.draw(st.integers(max(2, D), 3 * D + 2)), seed=data.draw(st.integers(0, 9)))
    memory = mp.Memory(data.draw(st.sampled_from(["never", "always"])))
    sums = replace(SYNC, buckets=data.draw(st.sampled_from([None, 1, 100])))
    net = mp.Parallel(exact(network()), LOSS, mp.Split(D, T, K), memory=memory, sums=sums)
    full = mp.Sequential(exact(network()), LOSS)
    assert net.forward_backward(X, Y) == full.forward_backward(X, Y)
    assert_same(net.gradients, full.gradients)
    for model in (net, full):
        model.step(mp.SGD(Rational(1, 4)))
    assert_same(state(net.layers), state(full.layers))
    assert np.array_equal(net.predict(X), full.predict(X))


@pytest.mark.parametrize("zero", [1, 2, 3])
@pytest.mark.parametrize("T, K", [(1, 2), (2, 1), (2, 2)])
def test_with_zero_updates_are_those_of_the_full_batch(zero, T, K):
    """In rational numbers, two in a row; both copies end with the same parameters."""
    net = mp.Parallel(exact(network()), LOSS, mp.Split(2, T, K), memory=mp.Memory(zero=zero), sums=SYNC)
    full = mp.Sequential(exact(network()), LOSS)
    batches, optimizers = [mini_batch(m) for m in (5, 4)], [mp.SGD(Rational(1, 4)) for _ in "12"]
    assert net.train(batches, optimizers[0]) == full.train(batches, optimizers[1])
    assert_same(state(net.layers), state(full.layers))
    assert_all_same(map(state, net.replicas))


def test_a_copy_may_have_one_sample_but_not_all_together():
    layers, (X, Y) = exact([mp.BatchNorm(2), mp.Linear(2, 1)]), mini_batch(2)
    full, net = mp.Sequential(layers, LOSS), mp.DataParallel(layers, LOSS, 2, sums=SYNC)
    assert net.forward_backward(X, Y) == full.forward_backward(X, Y)
    alone = mp.DataParallel(layers, LOSS, 1, sums=SYNC)
    with pytest.raises(ValueError, match="got 1 number in a row: use at least 2 samples"):
        alone.forward_backward(X[:, :1], Y[:, :1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_all_copies_and_engines_have_the_same_bits(dtype):
    X, Y = mini_batch(13, lambda array: array.astype(dtype))
    results = []
    for engine in ("cluster", "threads"):
        layers = [mp.Linear(2, 3), mp.BatchNorm(3), mp.Tanh(), mp.Linear(3, 1)]
        net = mp.DataParallel(layers, LOSS, 3, 6, zero=1, dtype=dtype, sums=SYNC, on=mp.Machine(engine))
        costs = net.train([(X, Y), (X, Y)], mp.Adam(0.01))
        copies = [state(copy) for copy in net.replicas]
        assert_all_same(copies)
        assert all(array.dtype == dtype for array in copies[0].values())
        results.append((costs, copies[0]))
    assert_same(*results)


def test_an_action_takes_its_ticks_and_two_messages_of_statistics_a_layer():
    """Forward the mean and M2 of 3 rows, 48 bytes; backward two sums of 3 rows, by their owners."""
    layers = [mp.Linear(2, 3), mp.BatchNorm(3), mp.Linear(3, 1)]
    net = mp.DataParallel(layers, LOSS, 2, sums=SYNC)
    net.forward_backward(*mini_batch(4, np.asarray))
    assert net.trace.makespan == 3
    sent = [m.n_bytes for m in net.trace.messages if "layers of" in str(m.label) and m.source == 0]
    assert sorted(sent) == [24, 24, 48]


@pytest.mark.parametrize("M, grain, words", [
    (3, None, "the copies meet in each micro-batch, so use a multiple of 2"),
    (2, 2, "the copies meet in each micro-batch, not in each grain, so leave one of them out"),
])
def test_what_the_copies_cannot_meet_in_is_refused(M, grain, words):
    with pytest.raises(ValueError, match=words):
        mp.DataParallel(network(), LOSS, 2, M, sums=replace(SYNC, grain=grain))


def test_batch_norm_inside_a_block_is_refused():
    with pytest.raises(ValueError, match=r"is inside Residual.*use a Fork and a Join"):
        mp.DataParallel([mp.Residual(mp.BatchNorm(2))], LOSS, 2, sums=SYNC)
