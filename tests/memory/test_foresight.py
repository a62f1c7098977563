"""The bytes that a simulation foresees are those of the arrays that a run really holds."""

from dataclasses import replace

import numpy as np
import pytest
from cases import compositions, valid_schedules
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.functions import even_slices
from minipipe.planning import measuring
from minipipe.schedules import (
    RECOMPUTE, Action, Schedule, build, build_for_stages, names_for_stages, pipedream, with_recompute,
)

LAYERS = [
    mp.Linear(5, 8), mp.BatchNorm(8), mp.ReLU(), mp.Linear(8, 8), mp.Tanh(),
    mp.Residual(mp.Linear(8, 8), mp.Dropout(0.5)), mp.LayerNorm(8), mp.Linear(8, 3),
]
CONNECTED = [  # two skip connections, and two W in several places each
    mp.Linear(5, 8), mp.Fork("skip"), mp.Linear(8, 8, tie="W"), mp.Tanh(),
    mp.Fork("other"), mp.Linear(8, 8, tie="V"), mp.Join("skip"),
    mp.ReLU(), mp.Linear(8, 8, tie="W"), mp.Join("other", how="concat"),
    mp.Linear(16, 8), mp.Linear(8, 8, tie="V"), mp.Linear(8, 8, tie="W"), mp.Linear(8, 3),
]
LOSS = mp.SoftmaxCrossEntropy()


def mini_batch(m):
    rng = np.random.default_rng(m)
    return rng.standard_normal((5, m)), mp.one_hot(rng.integers(0, 3, m), 3)


def footprints(partition, m, n_microbatches, optimizer=None, layers=LAYERS):
    """For each micro-batch of a mini-batch of m samples, the footprints of its size, without numbers."""
    sizes = [part.stop - part.start for part in even_slices(m, n_microbatches)]
    of_size = {
        size: mp.footprints(layers, LOSS, len(partition), (5,), size, partition, optimizer=optimizer)
        for size in set(sizes)
    }
    return [of_size[size] for size in sizes]


def assert_same_bytes(foreseen, held):
    """The same bytes of each kind on each device at each tick, and messages of the same size."""
    assert foreseen.messages == held.messages
    assert foreseen.peak_bytes() == held.peak_bytes()
    for device in range(held.n_devices):
        assert steps(foreseen.ledger(device)) == steps(held.ledger(device))


@pytest.mark.parametrize("name, recompute", one_in(3, names_for_stages(4, 8), RECOMPUTE))
def test_the_bytes_of_every_schedule_are_foreseen_at_every_tick(name, recompute):
    """K = 4 stages of 1 to 3 layers, 17 samples in 8 ragged micro-batches.

    Before the first update, and after it, with Adam's state.
    """
    schedule = with_recompute(build_for_stages(name, 4, 8), recompute)
    link, partition = mp.Link(latency=1), [2, 2, 3, 1]
    pipe = mp.Pipeline(LAYERS, LOSS, 4, 8, schedule, partition=partition, link=link)
    for optimizer in (None, mp.Adam()):
        pipe.forward_backward(*mini_batch(17))
        sizes = footprints(partition, 17, 8, optimizer)
        foreseen = mp.simulate(schedule, link=link, footprints=sizes)
        assert_same_bytes(foreseen, pipe.trace)
        assert foreseen == pipe.trace
        if optimizer is None:
            pipe.step(mp.Adam())


def in_halves(n_stages, n_microbatches):
    """PipeDream with every backward in halves."""
    schedule = pipedream(n_stages, n_microbatches)
    halves = {"B": "IW"}
    devices = tuple(
        tuple(Action(kind, s, i) for whole, s, i in order for kind in halves.get(whole, whole))
        for order in schedule.devices
    )
    return replace(schedule, devices=devices)


LINKS = [mp.Link(), mp.Link(latency=2), mp.Link(latency=1, bandwidth=64), mp.Link(latency=3, blocking=True)]


@pytest.mark.parametrize("name, recompute", one_in(6, names_for_stages(4, 8), RECOMPUTE))
def test_the_bytes_of_skip_connections_and_tied_weights_are_foreseen_at_every_tick(name, recompute):
    """What they send in between and at the end, over slow and blocking links."""
    schedule = with_recompute(build_for_stages(name, 4, 8), recompute)
    for number, link in enumerate(LINKS):
        partition = [[2, 3, 5, 4], [1, 6, 2, 5], [4, 3, 6, 1], [5, 4, 4, 1]][number]
        costs = mp.Costs(F=1, B=2)
        pipe = mp.Pipeline(CONNECTED, LOSS, 4, 8, schedule, partition=partition, link=link, costs=costs)
        pipe.forward_backward(*mini_batch(17))
        foreseen = mp.simulate(schedule, costs, link, footprints(partition, 17, 8, layers=CONNECTED))
        assert_same_bytes(foreseen, pipe.trace)
        assert foreseen == pipe.trace


def test_the_sum_of_tied_gradients_is_held_beside_a_devices_own():
    """Two layers, one on each device: at the end, each holds its own dW, and the sum."""
    layers, X = [mp.Linear(4, 4, tie="W"), mp.Linear(4, 4, tie="W")], np.ones((4, 2))
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 1)
    pipe.forward_backward(X, X)
    of_W, of_b = 8 * 16, 8 * 4
    at_the_end = {"parameters": of_W + of_b, "gradients": 2 * of_W + of_b}
    assert [pipe.trace.ledger(device)[-1][1] for device in (0, 1)] == [at_the_end] * 2


def test_measured_footprints_know_skips_and_ties_too():
    for counts in ([2, 3, 5, 4], [14], [7, 7]):
        measured = mp.measure(CONNECTED, LOSS, len(counts), *mini_batch(6), counts, n_rounds=1).footprints
        assert mp.footprints(CONNECTED, LOSS, len(counts), (5,), 6, counts) == measured


@pytest.mark.parametrize(("name", "M"), [
    ("pipedream", 1), ("pipedream-vertical", 1), ("pipedream-2bw", 4), ("pipedream-2bw", 5), (in_halves, 1),
])
@pytest.mark.parametrize("optimizer", [mp.SGD(0.1), mp.Adam()], ids=["SGD", "Adam"])
def test_the_bytes_of_asynchronous_schedules_are_foreseen_at_every_tick(name, M, optimizer):
    """Weight versions among them: 7 mini-batches of M ragged micro-batches.

    They come behind 2 others, so that the optimizer has its state.
    """
    partition, link, m = [2, 2, 3, 1], mp.Link(latency=1), 2 * M + 1
    pipe = mp.AsynchronousPipeline(LAYERS, LOSS, 4, optimizer, name, M, partition=partition, link=link)
    pipe.train([mini_batch(m)] * 2)
    pipe.train([mini_batch(m)] * 7)
    assert any("weight versions" in held for _, held in pipe.trace.ledger(0))
    sizes = 7 * footprints(partition, m, M, optimizer)
    assert_same_bytes(mp.simulate(pipe.schedule, link=link, footprints=sizes), pipe.trace)


@settings(max_examples=20)
@given(st.data())
def test_bytes_are_foreseen_for_any_schedule_at_any_time(data):
    """The ledger, bytes by kind, is the same function of time; the exchange between two copies included."""
    layers = data.draw(st.sampled_from([LAYERS, CONNECTED]))
    partition = data.draw(compositions(len(layers)))
    M = data.draw(st.integers(1, 4))
    schedule = data.draw(valid_schedules(len(partition), M))
    m, link = data.draw(st.integers(2 * M, 2 * M + 3)), mp.Link(latency=data.draw(st.integers(0, 2)))
    pipe = mp.Pipeline(layers, LOSS, len(partition), M, schedule, partition=partition, link=link)
    pipe.forward_backward(*mini_batch(m))
    sizes = footprints(partition, m, M, layers=layers)
    assert_same_bytes(mp.simulate(schedule, link=link, footprints=sizes), pipe.trace)


def steps(ledger):
    """Where a ledger changes."""
    changes = [ledger[0]]
    for tick, kinds in ledger[1:]:
        if kinds != changes[-1][1]:
            changes.append((tick, kinds))
    return changes


def test_several_that_measure_at_once_give_their_mean(monkeypatch):
    """Each thread has layers of its own; of what they have measured, each number is the mean."""
    networks, seconds = [], iter([1.0, 3.0])
    one_micro_batch = measuring.one_micro_batch

    def timed(stages, pattern, X, Y):
        if not any(stages is one for one, _ in networks):
            networks.append((stages, next(seconds)))
        of_one = next(time for one, time in networks if one is stages)
        performed = one_micro_batch(stages, pattern, X, Y)
        return {place: action._replace(seconds=of_one) for place, action in performed.items()}

    monkeypatch.setattr(measuring, "one_micro_batch", timed)
    measured = mp.measure(LAYERS, LOSS, 2, *mini_batch(4), n_rounds=2, at_once=2)
    assert all(getattr(measured.costs, kind) == [2.0, 2.0] for kind in "FBRIW")
    first, second = ({id(part) for stage in stages for part in (*stage.parts, stage.loss)}
                     for stages, _ in networks)
    assert first & second == {id(None)}
    assert measured.footprints == mp.footprints(LAYERS, LOSS, 2, (5,), 4)
    assert measured.costs.message_bytes == [footprint.sent["F"] for footprint in measured.footprints]
    with pytest.raises(ValueError, match="at_once"):
        mp.measure(LAYERS, LOSS, 2, *mini_batch(4), at_once=0)


def test_measured_costs_are_seconds_of_each_stage():
    """A stage of 8 products of 300x300 takes longer than one of 1, and bytes are those of a message."""
    layers = [mp.Linear(300, 300), *[mp.Linear(300, 300) for _ in range(8)], mp.Linear(300, 2)]
    X = np.random.default_rng(0).standard_normal((300, 200))
    measured = mp.measure(layers, mp.MeanSquaredError(), 3, X, X[:2], [1, 8, 1])
    costs = measured.costs
    for kind in "FBRIW":
        first, second, third = getattr(costs, kind)
        assert 0 < first < second > third > 0
    assert costs.message_bytes == [8 * 300 * 200, 8 * 300 * 200, 0]
    trace = mp.simulate(build("1f1b", 3, 6), costs, mp.Link(bandwidth=1e9), measured.footprints)
    assert 6 * (costs.F[1] + costs.B[1]) < trace.makespan and trace.messages[0].n_bytes == 8 * 300 * 200
    parameters = [footprint.parameters for footprint in measured.footprints]
    assert parameters == [8 * 300 * 301, 8 * 8 * 300 * 301, 8 * 2 * 301]


def test_footprints_that_do_not_fit_are_refused():
    sizes = mp.measure(LAYERS, LOSS, 2, *mini_batch(4), n_rounds=1).footprints
    message = "footprints are of 3 micro-batches and 2 stages, but the schedule has 3 and 4: make them for"
    with pytest.raises(ValueError, match=message):
        mp.simulate(build("gpipe", 4, 3), footprints=sizes)
    message = "footprints are of 2 micro-batches and 1, 2 stages, but the schedule has 2 and 2"
    with pytest.raises(ValueError, match=message):
        mp.simulate(build("gpipe", 2, 2), footprints=[sizes, sizes[:1]])
    for i, junk in ((0, [None, None]), (1, [sizes, None]), (0, [sizes[0], 3]), (0, [tuple(sizes)] * 2)):
        message = rf"footprints\[{i}\] is .*, but must be a list with a Footprint for each stage"
        with pytest.raises(ValueError, match=message):
            mp.simulate(build("gpipe", 2, 2), footprints=junk)
    message = r"footprints is an empty list: pass footprints\(...\) or measure\(...\).footprints"
    with pytest.raises(ValueError, match=message):
        mp.simulate(build("gpipe", 2, 3), footprints=[])
    with pytest.raises(ValueError, match=r"footprints is a Measured: pass footprints\(...\)"):
        mp.simulate(build("gpipe", 2, 3), footprints=mp.measure(LAYERS, LOSS, 2, *mini_batch(4), n_rounds=1))
    message = r"does FIW on stage 0, but the footprints are of FB: make them with patterns=\['FIW'"
    with pytest.raises(ValueError, match=message):
        mp.simulate(build("zb-h1", 2, 3), footprints=mp.footprints(LAYERS, LOSS, 2, (5,), 4, patterns=["FB"]))
    uneven = replace(Schedule.from_text(["F0 B0 U0 F1 B1 F2 B2 U2"]), versions=((0, 1, 1),))
    message = r"apply \[1, 2\] micro-batches: their bytes are only foreseen where all apply equally many"
    with pytest.raises(ValueError, match=message):
        mp.simulate(uneven, footprints=mp.footprints(LAYERS, LOSS, 1, (5,), 4))
    with pytest.raises(ValueError, match="n_rounds=0 must be at least 1"):
        mp.measure(LAYERS, LOSS, 2, *mini_batch(4), n_rounds=0)
    with pytest.raises(ValueError, match="n_stages=0 must be at least 1"):
        mp.measure(LAYERS, LOSS, 0, *mini_batch(4))
