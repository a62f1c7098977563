"""Stages in segments: the same bits, and with recomputation the least memory for sqrt(L) of them."""

import numpy as np
import pytest

import minipipe as mp
from minipipe.schedules import build, in_segments, names_for, peak_microbatches, pipedream, with_recompute
from minipipe.verification import same_bits


@pytest.mark.parametrize("name", names_for(2, 4))
def test_segments_give_the_same_bits_in_the_same_time(name):
    """Each of n segments takes 1/n of the ticks, so nothing is later; a stage of the middle is not waited for longer."""
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((4, 9)), rng.standard_normal((2, 9))
    schedule = in_segments(build(name, 2, 4), 3)
    layers = [mp.Linear(4, 4), mp.Tanh(), mp.Linear(4, 3), mp.Fork("a"), mp.Linear(3, 3), mp.Join("a"), mp.Linear(3, 2)]
    for mode in ("never", "always"):
        assert same_bits(mp.Pipeline(layers, mp.MeanSquaredError(), 6, 4, schedule, mode), X, Y)
    whole = mp.simulate(build(name, 2, 4), mp.Costs(F=3, B=6))
    assert mp.simulate(schedule, mp.Costs(F=1, B=2)).makespan == whole.makespan
    assert max(peak_microbatches(mp.simulate(schedule))) == 3 * max(peak_microbatches(whole))


def test_recomputation_needs_least_memory_with_as_many_segments_as_the_root_of_the_layers():
    """16 equal layers on one device, one micro-batch: n inputs and the caches of 16/n layers, least for n = 4."""
    X = np.random.default_rng(0).standard_normal((8, 512))
    peaks = {}
    for n in (1, 2, 4, 8, 16):
        pipe = mp.Pipeline([mp.Linear(8, 8)] * 16, mp.MeanSquaredError(), n, 1, in_segments(build("gpipe", 1, 1), n), recompute=True)
        pipe.forward_backward(X, X)
        peaks[n] = pipe.trace.peak_bytes()[0] / X.nbytes
    kept = mp.Pipeline([mp.Linear(8, 8)] * 16, mp.MeanSquaredError(), 1, 1)
    kept.forward_backward(X, X)
    assert min(peaks, key=peaks.get) == 4
    assert peaks[4] < 12 < 16 < peaks[1] and kept.trace.peak_bytes()[0] / X.nbytes > 16


def test_updates_and_overlaps_are_cut_too():
    assert str(in_segments(pipedream(1, 1), 2)) == "device 0: 0F0 1F0 1B0 0B0 0U0 1U0"
    assert in_segments(pipedream(2, 3), 2).faults() == [] and in_segments(pipedream(2, 3), 2).versions[1] == pipedream(2, 3).versions[0]
    overlap = mp.Schedule.from_text(["F0 F1 B0 B1", "F0 1F1&1B0 B1"])
    assert "2F1&3B0 3F1&2B0" in str(in_segments(overlap, 2))
    assert with_recompute(in_segments(build("dualpipe", 2, 4), 2)).faults() == []
    with pytest.raises(ValueError, match="n=0 segments of a stage must be at least 1"):
        in_segments(build("gpipe", 2, 2), 0)
