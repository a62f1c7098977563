"""The bytes that a simulation foresees are those of the arrays that a run really holds."""

from dataclasses import replace
from fractions import Fraction
from functools import partial

import numpy as np
import pytest
from cases import compositions, valid_schedules
from compared import assert_refused
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.order import RECOMPUTE, Action, Schedule, in_copies, with_all_reduce, with_updates, with_zero
from minipipe.parallel.batches import MicroBatches
from minipipe.planning import measuring
from minipipe.planning.measuring import Measured
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


def footprints(cut, m, n_microbatches, optimizer=None, layers=LAYERS, sums=mp.Sums()):
    """For each micro-batch of a mini-batch of m samples, the footprints of its size, without numbers."""
    line = MicroBatches([mini_batch(m)], n_microbatches, 0)
    sizes = [labels.shape[-1] for labels in line.labels]
    of_size = {
        size: [of_stage._replace(accumulate=sums.accumulate)
               for of_stage in mp.footprints(layers, LOSS, cut, (5,), size, optimizer=optimizer)]
        for size in set(sizes)
    }
    return [of_size[size] for size in sizes]


def steps(ledger):
    """Where a ledger changes."""
    changes = [ledger[0]]
    for tick, kinds in ledger[1:]:
        if kinds != changes[-1][1]:
            changes.append((tick, kinds))
    return changes


def assert_same_bytes(foreseen, held):
    """The same bytes of each kind on each device at each tick, and messages of the same size."""
    assert foreseen.messages == held.messages
    assert foreseen.peak_bytes() == held.peak_bytes()
    for device in range(held.n_devices):
        assert steps(foreseen.ledger(device)) == steps(held.ledger(device))


def assert_foreseen(
    schedule, M, m, layers, cut=mp.Cut(4), recompute="never", optimizer=None, sums=mp.Sums(), **machine
):
    """A run of mini-batches of m samples has the ticks, messages and bytes that a simulation foresees.

    optimizer: for an order that makes the updates itself; it has its state from a run before.
    """
    split, memory = dict(stages=cut, microbatches=M), dict(recompute=recompute, count_bytes=True)
    pipe = mp.Parallel(layers, LOSS, **split, schedule=schedule, **memory, sums=sums, **machine)
    n_batches = 7 if pipe.schedule.asynchronous else 1
    if optimizer is None:
        pipe.forward_backward(*mini_batch(m))
    else:
        optimizer = optimizer.fresh()
        pipe.train([mini_batch(m)], optimizer)
        pipe.train([mini_batch(m)] * n_batches, optimizer)
    units = mp.Cut([len(stage.layers) for stage in pipe.stages])
    sizes = n_batches * footprints(units, m, M, optimizer, layers, sums)
    foreseen = mp.simulate(pipe.schedule, footprints=sizes, all_reduce=sums.all_reduce, **machine)
    assert foreseen.spans == pipe.trace.spans and foreseen.idle == pipe.trace.idle
    assert_same_bytes(foreseen, pipe.trace)


@pytest.mark.parametrize("name, recompute", one_in(10, names_having(flush=True), RECOMPUTE))
def test_bytes_are_foreseen_in_every_schedule(name, recompute):
    """K = 4 stages of 2 to 5 layers, 17 samples in 8 ragged micro-batches, over a slow link."""
    schedule, slow = build(name, stages=4, microbatches=8), dict(link=mp.Link(latency=1, bandwidth=64))
    assert_foreseen(schedule, 8, 17, CONNECTED, UNEVEN_CUT, recompute, **slow)


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
])
def test_bytes_are_foreseen_in_other_orders_and_options(schedule, M, m, layers, options):
    """Segments, sums in one buffer, copies, ZeRO, updates, weight versions."""
    assert_foreseen(schedule, M, m, layers, **options)


def test_what_a_step_and_a_mini_batch_have_left_is_foreseen():
    pipe = mp.Pipeline(CONNECTED, LOSS, UNEVEN_CUT, 8, schedule="1f1b", count_bytes=True)
    pipe.forward_backward(*mini_batch(17))
    pipe.step(ADAM)
    pipe.forward_backward(*mini_batch(17))
    sizes = footprints(UNEVEN_CUT, 17, 8, ADAM, CONNECTED)
    assert_same_bytes(mp.simulate(pipe.schedule, footprints=sizes), pipe.trace)


@settings(max_examples=20)
@given(st.data())
def test_bytes_are_foreseen_in_any_order(data):
    """The ledger, bytes by kind, is the same function of time; the exchange between two copies included."""
    layers = data.draw(st.sampled_from([SMALL, LAYERS]))
    cut = mp.Cut(data.draw(compositions(len(layers))))
    M = data.draw(st.integers(1, 3))
    schedule = data.draw(valid_schedules(cut.n, M))
    m = data.draw(st.integers(2 * M, 2 * M + 3))
    sums = mp.Sums(data.draw(st.sampled_from(["tree", "running"])))
    link = data.draw(st.sampled_from([
        mp.Link(), mp.Link(latency=2), mp.Link(latency=1, bandwidth=64), mp.Link(latency=3, blocking=True),
    ]))
    assert_foreseen(schedule, M, m, layers, cut, sums=sums, link=link)


def test_the_sum_of_tied_gradients_is_held_beside_a_devices_own():
    """Two layers, one on each device: at the end, each holds its own dW, and the sum."""
    layers, X = [mp.Linear(4, 4, tie="W"), mp.Linear(4, 4, tie="W")], np.ones((4, 2))
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 1, count_bytes=True)
    pipe.forward_backward(X, X)
    of_W, of_b = 8 * 16, 8 * 4
    at_the_end = {"parameters": of_W + of_b, "gradients": 2 * of_W + of_b}
    assert [pipe.trace.ledger(device)[-1][1] for device in (0, 1)] == [at_the_end] * 2


def test_measured_footprints_know_skips_and_ties_too():
    for cut in (UNEVEN_CUT, 1, 2):
        measured = mp.measure(CONNECTED, LOSS, cut, *mini_batch(6), rounds=1).footprints
        assert mp.footprints(CONNECTED, LOSS, cut, (5,), 6) == measured


def test_several_that_measure_at_once_give_their_mean(monkeypatch):
    """Each thread has layers of its own; of what they have measured, each number is the mean."""
    networks, seconds, foreseen = [], iter([1.0, 3.0]), mp.footprints(LAYERS, LOSS, 2, (5,), 4)
    one_micro_batch = measuring.one_micro_batch

    def timed(stages, pattern, X, Y):
        if not any(stages is one for one, _ in networks):
            networks.append((stages, next(seconds)))
        of_one = next(time for one, time in networks if one is stages)
        performed = one_micro_batch(stages, pattern, X, Y)
        return {place: action._replace(seconds=of_one) for place, action in performed.items()}

    monkeypatch.setattr(measuring, "one_micro_batch", timed)
    measured = mp.measure(LAYERS, LOSS, 2, *mini_batch(4), rounds=2, at_once=2)
    assert all(getattr(measured.costs, kind) == [2.0, 2.0] for kind in "FBRIW")
    first, second = ({id(part) for stage in stages for part in (*stage.parts, stage.loss)}
                     for stages, _ in networks)
    assert first & second == {id(None)}
    assert measured.footprints == foreseen
    assert measured.costs.message_bytes == [footprint.sent["F"] for footprint in measured.footprints]


def test_measured_costs_are_seconds_of_each_stage():
    """A stage of 8 products of 200x200 takes longer than one of 1, and bytes are those of a message."""
    n, m = 200, 100
    layers = [mp.Linear(n, n), *[mp.Linear(n, n) for _ in range(8)], mp.Linear(n, 2)]
    X = np.random.default_rng(0).standard_normal((n, m))
    measured = mp.measure(layers, mp.MeanSquaredError(), mp.Cut([1, 8, 1]), X, X[:2])
    costs = measured.costs
    for kind in "FBRIW":
        first, second, third = getattr(costs, kind)
        assert 0 < first < second > third > 0
    assert costs.message_bytes == [8 * n * m, 8 * n * m, 0]
    trace = mp.simulate(build("1f1b", 3, 6), costs, mp.Link(bandwidth=1e9), measured.footprints)
    assert 6 * (costs.F[1] + costs.B[1]) < trace.makespan and trace.messages[0].n_bytes == 8 * n * m
    parameters = [footprint.parameters for footprint in measured.footprints]
    assert parameters == [8 * n * (n + 1), 8 * 8 * n * (n + 1), 8 * 2 * (n + 1)]


SIZES = mp.footprints(LAYERS, LOSS, 2, (5,), 4)
UNEVEN = replace(Schedule.from_text(["F0 B0 U0 F1 B1 F2 B2 U2"]), versions=((0, 1, 1),))


def test_footprints_that_do_not_fit_are_refused():
    no_list = "must be a list with a Footprint for each stage, or such a list for each micro-batch: pass"
    rows = [
        (build("gpipe", 4, 3), SIZES,
         "are of 3 micro-batches and 2 stages, but the schedule has 3 and 4: make"),
        (build("gpipe", 2, 2), [SIZES, SIZES[:1]],
         "footprints are of 2 micro-batches and 1, 2 stages, but the schedule has 2 and 2"),
        *((build("gpipe", 2, 2), junk, no_list) for junk in (
            [None, None], [SIZES, None], [SIZES[0], 3], [tuple(SIZES)] * 2, [], Measured(None, SIZES)
        )),
        (build("zb-h1", 2, 3), mp.footprints(LAYERS, LOSS, 2, (5,), 4, patterns=["FB"]),
         "does FIW on stage 0, but the footprints are of FB: make them with patterns=['FIW'"),
        (UNEVEN, mp.footprints(LAYERS, LOSS, 1, (5,), 4),
         "apply [1, 2] micro-batches: their bytes are only foreseen where all apply equally many"),
        (with_zero(in_copies(build("gpipe", 2, 2), 2), 1), mp.footprints(SMALL, LOSS, 2, (5,), 4),
         "of tied layers (W) do not foresee ZeRO, which 'gpipe in 2 copies+zero 1' has: leave out tie, or"),
    ]
    assert_refused([
        (partial(mp.simulate, schedule, footprints=junk), words) for schedule, junk, words in rows
    ])


def test_measure_needs_a_round_a_stage_and_a_thread():
    X, Y = mini_batch(4)
    assert_refused([
        (lambda: mp.measure(LAYERS, LOSS, 2, X, Y, rounds=0), "rounds=0 must be at least 1"),
        (lambda: mp.measure(LAYERS, LOSS, 0, X, Y), "stages=0 must be at least 1"),
        (lambda: mp.measure(LAYERS, LOSS, 2, X, Y, at_once=0), "at_once=0 must be at least 1"),
    ])
