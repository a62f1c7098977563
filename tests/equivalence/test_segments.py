"""Segments cut stages: with recomputation, sqrt(L) of them need the least memory, in the same time."""

from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.order import costs_in_segments, in_segments, peak_microbatches, with_recompute
from minipipe.schedules import build, gpipe, names_for, pipedream

KEPT = ("stashed inputs", "caches")


@pytest.mark.parametrize("name", names_for(stages=2, microbatches=4))
def test_segments_take_the_same_time(name):
    """Each of n segments takes 1/n of the ticks, so nothing is later; no stage is waited for longer."""
    whole = mp.simulate(build(name, stages=2, microbatches=4))
    in_parts = mp.simulate(in_segments(build(name, stages=2, microbatches=4), 3))
    assert in_parts.makespan == whole.makespan
    assert peak_microbatches(in_parts) == peak_microbatches(whole)


@pytest.mark.parametrize("name", names_for(stages=4, microbatches=6))
def test_an_input_for_every_sqrt_of_the_layers_is_kept(name):
    """Stages of 5, 4, 1 and 3 layers become 2, 2, 1 and 2 each, on the same devices."""
    layers = [mp.Linear(4, 4) for _ in range(13)]
    kept, roots = (
        mp.Pipeline(layers, mp.MeanSquaredError(), mp.Cut([5, 4, 1, 3]), 6, schedule=name, recompute=mode)
        for mode in ("never", "sqrt")
    )
    assert [len(stage.layers) for stage in roots.stages] == [3, 2, 2, 2, 1, 2, 1]
    for whole, parts in zip(kept.schedule.placements, roots.schedule.placements, strict=True):
        assert list(parts) == [whole[stage] for stage in (0, 0, 1, 1, 2, 3, 3)]
    recomputed = [action for order in roots.schedule.devices for action in order if action.kind == "R"]
    assert len(recomputed) == len(set(recomputed)) == 7 * 6


def test_an_input_for_every_sqrt_of_the_layers_needs_less_memory():
    """16 equal layers on each of 2 devices, one micro-batch: least memory with 4 segments.

    Each keeps 3 inputs and the caches of 4 layers, not of 16; and the last one that of the loss.

    The time: forwards of 4 and 8 ticks, then on device 1 a recomputation of 8 and a backward of 16, then on
    device 0 a backward of 8 and a recomputation of 4, of which the first of four segments, a tick, is done
    while it waits.
    """
    X = np.random.default_rng(0).standard_normal((8, 512))
    peaks = {}
    for mode in ("always", "sqrt"):
        machine = dict(costs=mp.Costs(F=[4, 8], B=[8, 16]))
        layers = [mp.Linear(8, 8) for _ in range(32)]
        pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 1, recompute=mode, **machine, count_bytes=True)
        pipe.forward_backward(X, X)
        peaks[mode] = [n_bytes / X.nbytes for n_bytes in pipe.trace.peak_bytes(KEPT)]
    assert peaks == {"always": [16, 17], "sqrt": [7, 8]}
    assert pipe.trace.makespan == 4 + 8 + 8 + 16 + 8 + 4 - 1


def test_costs_of_segments_are_shares():
    costs = mp.Costs(F=[2, 3], B=0.5, U=0, FB=[4, 5], message_bytes=[7, 8])
    costs = costs_in_segments(costs, gpipe(2, 1), [2, 3])
    assert costs == mp.Costs(
        F=[1, 1, 1, 1, 1], B=[0.25, 0.25] + [0.5 / 3] * 3, U=[0] * 5, FB=[2, 2] + [Fraction(5, 3)] * 3,
        message_bytes=[0, 7, 0, 0, 8],
    )
    with pytest.raises(ValueError, match="n has 3 numbers of segments for 2 stages"):
        costs_in_segments(mp.Costs(), gpipe(2, 1), [1, 2, 3])
    with pytest.raises(ValueError, match="F has 3 costs for 2 stages"):
        costs_in_segments(mp.Costs(F=[1, 2, 3]), gpipe(2, 1), 2)
    with pytest.raises(ValueError, match="costs=3 must be Costs"):
        mp.Pipeline([mp.Linear(2, 2)] * 2, mp.MeanSquaredError(), 1, 1, costs=3)
    modes = "'never', 'always', 'except_last', 'sqrt', 'selective'"
    with pytest.raises(ValueError, match=f"recompute='sqr' must be one of {modes}"):
        mp.Pipeline([mp.Linear(2, 2)] * 2, mp.MeanSquaredError(), 1, 1, recompute="sqr")


def test_updates_and_overlaps_are_cut_too():
    assert str(in_segments(pipedream(1, 1), 2)) == "device 0: 0F0 1F0 1B0 0B0 1U0 0U0"
    assert in_segments(pipedream(2, 3), 2).faults() == []
    assert in_segments(pipedream(2, 3), 2).versions[1] == pipedream(2, 3).versions[0]
    overlap = mp.Schedule.from_text(["F0 F1 B0 B1", "F0 1F1&1B0 B1"])
    assert "2F1&3B0 3F1&2B0" in str(in_segments(overlap, 2))
    two_stages = mp.Schedule.from_text(["0F0 1F0 0F1&1B0 1F1 0B0 1B1 0B1"])
    assert "0F1&2B0 1B0" in str(in_segments(two_stages, [1, 2]))
    assert in_segments(two_stages, [1, 2]).faults() == []
    assert with_recompute(in_segments(build("dualpipe", 2, 4), 2)).faults() == []
    for n in (2.0, None, [1, 1.5], "ab"):
        with pytest.raises(ValueError, match=r"n.* must be a"):
            in_segments(build("gpipe", 2, 2), n)
    with pytest.raises(ValueError, match="schedule='gpipe' is not a Schedule: pass one"):
        in_segments("gpipe", 2)
    with pytest.raises(ValueError, match="n\\[0\\]=0 must be at least 1"):
        in_segments(build("gpipe", 2, 2), 0)
