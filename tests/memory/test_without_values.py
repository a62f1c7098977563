"""A network without values counts the bytes that the same network holds with values."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from cases import compositions, valid_schedules
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.meta import MetaArray
from minipipe.order import RECOMPUTE, Action, in_copies, with_all_reduce, with_updates, with_zero
from minipipe.schedules import build, data_parallel, names_having, pipedream

LAYERS = [
    mp.Linear(5, 8), mp.BatchNorm(8), mp.ReLU(), mp.Linear(8, 8), mp.Tanh(),
    mp.Residual(mp.Linear(8, 8), mp.Dropout(0.5)), mp.LayerNorm(8), mp.Linear(8, 3),
]
CONNECTED = [  # two skip connections, two W in several places each, and a block
    mp.Linear(5, 8), mp.Fork("skip"), mp.Linear(8, 8, tie="W"), mp.BatchNorm(8),
    mp.Fork("other"), mp.Linear(8, 8, tie="V"), mp.Join("skip"),
    mp.Residual(mp.Linear(8, 8), mp.Dropout(0.5)), mp.Linear(8, 8, tie="W"), mp.Join("other", how="concat"),
    mp.Linear(16, 8), mp.Linear(8, 8, tie="V"), mp.Linear(8, 8, tie="W"), mp.Linear(8, 3),
]
SMALL = [
    mp.Linear(5, 4), mp.Fork("skip"), mp.Linear(4, 4, tie="W"), mp.BatchNorm(4), mp.Join("skip"),
    mp.Linear(4, 4, tie="W"), mp.Linear(4, 3),
]
LOSS = mp.SoftmaxCrossEntropy()
UNEVEN_CUT = mp.Cut([2, 3, 5, 4])  # of `CONNECTED`


def mini_batch(m):
    rng = np.random.default_rng(m)
    return rng.standard_normal((5, m)), mp.one_hot(rng.integers(0, 3, m), 3)


def steps(ledger):
    """Where a ledger changes."""
    changes = [ledger[0]]
    for tick, kinds in ledger[1:]:
        if kinds != changes[-1][1]:
            changes.append((tick, kinds))
    return changes


def assert_counted_without_values(layers, loss, X, Y, optimizer=None, **options):
    """Two networks, one without values, have equal traces: ticks, messages, bytes of each kind at each tick.

    optimizer: for an order that makes the updates itself, or for a step before the run.
    """
    traces, tokens = [], X.dtype.kind == "i"
    without = mp.without_values(layers), (X if tokens else MetaArray(X.shape), MetaArray(Y.shape))
    for of_layers, batch in [(layers, (X, Y)), without]:
        net = mp.Parallel(of_layers, loss, **options, count_bytes=True)
        n_batches = 7 if net.schedule.asynchronous else 1
        update = None if optimizer is None else optimizer.fresh()
        if net.has_updates:
            net.train([batch], update)
            net.train([batch] * n_batches, update)
        else:
            net.forward_backward(*batch)
            if update is not None:
                net.step(update)
                net.forward_backward(*batch)
        traces.append(net.trace)
    held, foreseen = traces
    assert foreseen.spans == held.spans and foreseen.idle == held.idle and foreseen.messages == held.messages
    assert foreseen.peak_bytes() == held.peak_bytes()
    for device in range(held.n_devices):
        assert steps(foreseen.ledger(device)) == steps(held.ledger(device))


@pytest.mark.parametrize("name, recompute", one_in(10, names_having(flush=True), RECOMPUTE))
def test_bytes_are_counted_without_values_in_every_schedule(name, recompute):
    """K = 4 stages of 2 to 5 layers, 17 samples in 8 ragged micro-batches, over a slow link, after a step."""
    assert_counted_without_values(
        CONNECTED, LOSS, *mini_batch(17), ADAM, stages=UNEVEN_CUT, microbatches=8, recompute=recompute,
        schedule=build(name, stages=4, microbatches=8), link=mp.Link(latency=1, bandwidth=64),
    )


def in_halves(n_stages, n_microbatches):
    """PipeDream with every backward in halves."""
    schedule = pipedream(n_stages, n_microbatches)
    halves = {"B": "IW"}
    devices = tuple(
        tuple(Action(kind, s, i) for whole, s, i in order for kind in halves.get(whole, whole))
        for order in schedule.devices
    )
    return replace(schedule, devices=devices)


slow = partial(pytest.param, marks=pytest.mark.slow)
ADAM, RUNNING = mp.Adam(), mp.Sums(accumulate="running")
TWO_COPIES, THREE_COPIES = in_copies(build("1f1b", 4, 4), 2), data_parallel(3, 8, 4)
MACHINE = dict(
    costs=mp.Costs(F=1, B=2, A=Fraction(1, 2), U=1), link=mp.Link(latency=1), ports=mp.cluster.ports(3, 64)
)


@pytest.mark.parametrize("schedule, M, m, layers, options", [
    ("1f1b", 6, 13, CONNECTED, dict(recompute="sqrt")),
    (TWO_COPIES, 8, 17, CONNECTED, dict(recompute="always", sums=RUNNING)),
    (with_all_reduce(in_copies(build("zb-v", 2, 4), 2)), 8, 17, LAYERS, dict(**MACHINE)),
    (with_updates(build("chimera", 4, 4)), 4, 9, LAYERS, dict(optimizer=ADAM, **MACHINE)),
    slow(with_zero(TWO_COPIES, 1), 8, 17, LAYERS, dict(optimizer=ADAM, **MACHINE)),
    slow(with_zero(THREE_COPIES, 2), 8, 40, LAYERS, dict(optimizer=ADAM, **MACHINE)),
    (with_zero(data_parallel(3, 3, 4), 3), 3, 15, LAYERS, dict(optimizer=ADAM, **MACHINE)),
    slow("pipedream", 1, 3, LAYERS, dict(optimizer=ADAM)),
    ("pipedream-vertical", 1, 3, LAYERS, dict(optimizer=mp.SGD(0.1))),
    ("pipedream-2bw", 5, 11, LAYERS, dict(optimizer=ADAM, sums=RUNNING)),
    slow(in_halves, 1, 3, LAYERS, dict(optimizer=ADAM, sums=RUNNING)),
    ("1f1b", 8, 16, LAYERS, dict(replicas=2, shards=2, stages=2, optimizer=ADAM)),
    ("zb-h1", 4, 16, LAYERS, dict(sums=mp.Sums(grain=2))),
])
def test_bytes_are_counted_without_values_in_other_orders(schedule, M, m, layers, options):
    """Segments, sums in one buffer, copies, ZeRO, updates, weight versions, shards, grains."""
    split = dict(stages=mp.Cut(4), microbatches=M, schedule=schedule)
    assert_counted_without_values(layers, LOSS, *mini_batch(m), **split | options)


@settings(max_examples=20)
@given(st.data())
def test_bytes_are_counted_without_values_in_any_order(data):
    layers = data.draw(st.sampled_from([SMALL, LAYERS]))
    cut = mp.Cut(data.draw(compositions(len(layers))))
    M = data.draw(st.integers(1, 3))
    m = data.draw(st.integers(2 * M, 2 * M + 3))
    assert_counted_without_values(
        layers, LOSS, *mini_batch(m), stages=cut, microbatches=M,
        schedule=data.draw(valid_schedules(cut.n, M)),
        sums=mp.Sums(data.draw(st.sampled_from(["tree", "running"]))),
        link=data.draw(st.sampled_from([mp.Link(), mp.Link(latency=2), mp.Link(latency=1, bandwidth=64)])),
    )


def test_nothing_is_allocated():
    """A network of 4 terabytes, and its gradients, with micro-batches of a terabyte."""
    layers = mp.without_values([mp.Linear(10**6, 10**6), mp.ReLU(), mp.Linear(10**6, 2)])
    net = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 1, dtype="float32", count_bytes=True)
    net.forward_backward(MetaArray((10**6, 250_000)), MetaArray((2, 250_000)))
    of_first, of_second = 4 * (10**12 + 10**6), 4 * (2 * 10**6 + 2)
    assert net.trace.peak_bytes(["parameters"]) == [of_first, of_second]
    assert net.trace.peak_bytes(["gradients"]) == [of_first, of_second]
    assert [message.n_bytes for message in net.trace.messages] == [10**12] * 2


def test_a_device_holds_the_tied_sum_in_addition_to_its_own_gradients():
    """Two layers, one on each device: at the end, each holds its own dW, and the sum."""
    layers, X = [mp.Linear(4, 4, tie="W"), mp.Linear(4, 4, tie="W")], np.ones((4, 2))
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 1, count_bytes=True)
    pipe.forward_backward(X, X)
    of_W, of_b = 8 * 16, 8 * 4
    at_the_end = {"parameters": of_W + of_b, "gradients": 2 * of_W + of_b}
    assert [pipe.trace.ledger(device)[-1][1] for device in (0, 1)] == [at_the_end] * 2
