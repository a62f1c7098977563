"""The bytes that a simulation foresees are those of the arrays that the run really holds; measured times are times."""

import numpy as np
import pytest
from cases import compositions, valid_schedules
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.functions import even_slices
from minipipe.schedules import RECOMPUTE, build, names_for, with_recompute

LAYERS = [
    mp.Linear(5, 8), mp.BatchNorm(8), mp.ReLU(), mp.Linear(8, 8), mp.Tanh(), mp.Residual(mp.Linear(8, 8), mp.Dropout(0.5)), mp.LayerNorm(8),
    mp.Linear(8, 3),
]
LOSS = mp.SoftmaxCrossEntropy()


def mini_batch(m):
    rng = np.random.default_rng(m)
    return rng.standard_normal((5, m)), mp.one_hot(rng.integers(0, 3, m), 3)


def footprints(partition, m, n_microbatches):
    """For each micro-batch of m samples, the footprints of its size, measured once for each."""
    X, Y = mini_batch(m)
    sizes = [part.stop - part.start for part in even_slices(m, n_microbatches)]
    measured = {
        size: mp.measure(LAYERS, LOSS, len(partition), X[:, :size], Y[:, :size], partition, n_rounds=1).footprints for size in set(sizes)
    }
    return [measured[size] for size in sizes]


def held_and_foreseen(schedule, partition, m, link=mp.Link()):
    """(trace of the run, trace of the simulation)"""
    pipe = mp.Pipeline(LAYERS, LOSS, len(partition), schedule.n_microbatches, schedule, partition=partition, link=link)
    pipe.forward_backward(*mini_batch(m))
    return pipe.trace, mp.simulate(schedule, link=link, footprints=footprints(partition, m, schedule.n_microbatches))


@pytest.mark.parametrize("recompute", RECOMPUTE)
def test_peak_bytes_are_foreseen_for_every_schedule(recompute):
    """K = 4 stages (of 1 to 4 layers), and 17 samples in 8 ragged micro-batches."""
    sizes = footprints([2, 2, 3, 1], 17, 8)
    for name in names_for(4, 8):
        schedule = with_recompute(build(name, 4, 8), recompute)
        pipe = mp.Pipeline(LAYERS, LOSS, 4, 8, schedule, partition=[2, 2, 3, 1], link=mp.Link(latency=1))
        pipe.forward_backward(*mini_batch(17))
        foreseen = mp.simulate(schedule, link=mp.Link(latency=1), footprints=sizes)
        assert foreseen.peak_bytes() == pipe.trace.peak_bytes(), name
        assert [at_peak(foreseen, device) for device in range(foreseen.n_devices)] == [
            at_peak(pipe.trace, device) for device in range(foreseen.n_devices)
        ], name
        assert foreseen.messages == pipe.trace.messages, name


@settings(max_examples=25)
@given(st.data())
def test_bytes_are_foreseen_for_any_schedule_at_any_time(data):
    """The ledger, bytes by kind, is the same function of time where there is one copy of the network; where there are two, until they exchange."""
    partition = data.draw(compositions(len(LAYERS)))
    M = data.draw(st.integers(1, 4))
    schedule = data.draw(valid_schedules(len(partition), M))
    held, foreseen = held_and_foreseen(schedule, partition, data.draw(st.integers(2 * M, 2 * M + 3)), mp.Link(latency=data.draw(st.integers(0, 2))))
    assert foreseen.peak_bytes() == held.peak_bytes()
    end = min(max(span.end for span in held.spans_of(device)) for device in range(held.n_devices))
    for device in range(held.n_devices):
        assert steps(foreseen.ledger(device), end) == steps(held.ledger(device), end)


def steps(ledger, end):
    """Where a ledger changes, before `end`."""
    changes = [ledger[0]]
    for tick, kinds in ledger[1:]:
        if tick < end and kinds != changes[-1][1]:
            changes.append((tick, kinds))
    return changes


def at_peak(trace, device):
    """What a device holds when it holds most, by kind."""
    return max((kinds for _, kinds in trace.ledger(device)), key=lambda kinds: sum(kinds.values()))


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
    assert [footprint.parameters for footprint in measured.footprints] == [8 * 300 * 301, 8 * 8 * 300 * 301, 8 * 2 * 301]


def test_footprints_that_do_not_fit_are_refused():
    sizes = mp.measure(LAYERS, LOSS, 2, *mini_batch(4), n_rounds=1).footprints
    with pytest.raises(ValueError, match="footprints are of 3 micro-batches and 2 stages, but the schedule has 3 and 4: measure a network"):
        mp.simulate(build("gpipe", 4, 3), footprints=sizes)
    with pytest.raises(ValueError, match=r"footprints is an empty list: pass measure\(...\).footprints"):
        mp.simulate(build("gpipe", 2, 3), footprints=[])
    with pytest.raises(ValueError, match="footprints is a Measured: pass measure"):
        mp.simulate(build("gpipe", 2, 3), footprints=mp.measure(LAYERS, LOSS, 2, *mini_batch(4), n_rounds=1))
    with pytest.raises(ValueError, match="the schedule 'pipedream' keeps versions of weights, which are not foreseen"):
        mp.simulate(build("pipedream", 2, 3), footprints=sizes)
    with pytest.raises(ValueError, match="n_rounds=0 must be at least 1"):
        mp.measure(LAYERS, LOSS, 2, *mini_batch(4), n_rounds=0)
    with pytest.raises(ValueError, match="n_stages=0 must be at least 1"):
        mp.measure(LAYERS, LOSS, 0, *mini_batch(4))
    with pytest.raises(ValueError, match="tied weights and skip connections between stages send messages of their own"):
        mp.measure([mp.Linear(2, 2, tie="W"), mp.Linear(2, 2, tie="W")], mp.MeanSquaredError(), 2, np.ones((2, 2)), np.ones((2, 2)))
