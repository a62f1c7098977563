"""Stages on several devices each, as PipeDream replicates them: one gradient, and only their sums travel."""

import numpy as np
import pytest
from cases import eighths
from compared import J_and_gradients, assert_equals_full_batch, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from splits.one_network import EXACT, LAYERS, LOSS, mini_batch

import minipipe as mp
from minipipe.exact import Rational
from minipipe.order import with_all_reduce, with_recompute, with_updates
from minipipe.schedules import replicated_stages

REPLICAS = st.lists(st.integers(1, 4), min_size=1, max_size=4)


@settings(max_examples=40)
@given(REPLICAS, st.integers(4, 20))
def test_every_order_runs_to_its_end(replicas, M):
    assert replicated_stages(replicas, M).faults() == []
    assert with_updates(replicated_stages(replicas, M)).faults() == []


@settings(max_examples=5)
@given(REPLICAS, st.integers(4, 9), st.integers(0, 5), st.booleans())
def test_in_rational_arithmetic_the_gradients_are_the_full_batchs(replicas, M, more, recompute):
    order = with_recompute(replicated_stages(replicas, M), "always" if recompute else "never")
    net = mp.Pipeline(EXACT, LOSS, len(replicas), M, order)
    assert_equals_full_batch(net, *map(eighths, mini_batch(M + more)))


@pytest.mark.parametrize("change", [lambda order: order, with_all_reduce], ids=["at the end", "in the order"])
def test_any_floats_have_the_bits_of_one_device(change):
    X, Y = mini_batch(17)
    one = mp.Pipeline(LAYERS, LOSS, 1, 8)
    net = mp.Pipeline(LAYERS, LOSS, 3, 8, change(replicated_stages([3, 2, 1], 8)))
    assert_same(J_and_gradients(net, X, Y), J_and_gradients(one, X, Y))


def test_updates_of_all_replicas_are_those_of_the_full_batch():
    optimizer = mp.SGD(Rational(1, 4), momentum=Rational(1, 2))
    net = mp.Pipeline(EXACT, LOSS, 3, 6, with_updates(replicated_stages([2, 1, 3], 6)))
    full, own = mp.Sequential(EXACT, LOSS), optimizer.fresh()
    for m in (7, 6):
        X, Y = map(eighths, mini_batch(m))
        assert net.train([(X, Y)], own) == [full.forward_backward(X, Y)]
        full.step(optimizer)
    for stage in net._run.stages.values():
        assert_same(parameters(stage.layers), parameters(net.stages[stage.index].layers))
    assert_same(parameters(net.layers), parameters(full.layers))


@pytest.mark.parametrize("replicas, ahead", [
    ([7, 1], 2), ([9, 5, 1, 1], 2), ([2, 1, 1], 2), ([1, 1, 1, 1], 4),
])
def test_the_first_stage_goes_ahead_by_the_papers_number(replicas, ahead):
    """NOAM = ceil(devices / devices of the first stage)."""
    kinds = [action.kind for action in replicated_stages(replicas, 20 * max(replicas)).devices[0]]
    assert kinds.index("B") == ahead


def test_without_replicas_it_is_1f1b():
    assert replicated_stages([1, 1, 1], 6).devices == mp.schedules.one_f_one_b(3, 6).devices


def test_a_stage_that_takes_twice_as_long_on_two_devices_keeps_all_busy():
    """The last device is never idle between its first action and its last."""
    trace = mp.simulate(replicated_stages([2, 1], 40), mp.Costs(F=[2, 1], B=[4, 2]))
    assert trace.makespan == 40 * 3 + 2 + 4


def test_only_gradients_of_replicated_stages_travel_among_replicas():
    """Of 12 numbers, each of two devices sends half, and half of the sum; a stage on one device sends none.

    The micro-batches of a device are no run, so with the tree it has two partial sums to send at first.
    """
    layers = [mp.Linear(3, 4, bias=False), mp.Linear(4, 100, bias=False)]
    for accumulate, times in (("running", 1), ("tree", 2)):
        split, order = mp.Split(stages=2, microbatches=4), replicated_stages([2, 1], 4)
        net = mp.Parallel(layers, LOSS, split, order, sums=mp.Sums(accumulate))
        net.forward_backward(np.ones((3, 4)), np.ones((100, 4)))
        sent = [m.n_bytes for m in net.trace.messages if "all-reduce" in str(m.label)]
        assert sum(sent) == 2 * (times * 48 + 48)


@pytest.mark.parametrize("replicas, M, words", [
    ([2, 0], 4, "replicas=0"), ([], 4, "replicas"), ([3, 1], 2, "a stage on 3 devices, but 2 micro-batches"),
])
def test_what_does_not_fit_is_refused(replicas, M, words):
    with pytest.raises(ValueError, match=words):
        replicated_stages(replicas, M)
