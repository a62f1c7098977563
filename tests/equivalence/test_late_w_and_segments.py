"""Two changes of any schedule, their time, their memory, and the same gradients as before.

Late W makes the weight gradients of all micro-batches in one wide product, at the end. Segments cut stages:
with recomputation, sqrt(L) of them need the least memory.
"""

from dataclasses import replace
from fractions import Fraction
from itertools import product

import numpy as np
import pytest
from cases import eighths, exact
from compared import assert_same, difference
from layers.every_layer import LAYERS, ready

import minipipe as mp
from minipipe.arrays import even_slices, leaves
from minipipe.layers.through import put_aside, weight_gradients
from minipipe.order import (
    Schedule, costs_in_segments, in_segments, peak_microbatches, with_all_reduce, with_recompute,
    with_updates,
)
from minipipe.parallel.totals import late_gradients
from minipipe.schedules import (
    SCHEDULES, build, gpipe, names_for, names_having, pipedream, with_late_W,
)
from minipipe.sums import TreeSum

KEPT = ("stashed inputs", "caches")
RUNS = [(1, "gpipe-late-w", "never"), (3, "1f1b-late-w", "always"), (4, "naive, late", "sqrt")]
WITH_PARAMETERS = [name for name in LAYERS if leaves(ready(name)[0].W)]
LATE_W = names_having(late_w=True)
ORDERS = {name: SCHEDULES[name] for name in LATE_W}
ORDERS |= {"naive, late": lambda K, M: with_late_W(build("naive", stages=K, microbatches=M))}


@pytest.mark.parametrize("name", LATE_W)
@pytest.mark.parametrize("F, I, W, late_W", [(1, 1, 1, None), (2, 3, 1, 1), (1, 2, 2, 1), (3, 1, 2, 5)])
def test_the_makespan_of_late_W_is_its_closed_form(name, F, I, W, late_W):
    for K in (1, 2, 3, 5):
        for M in (1, K, 2 * K + 1):
            trace = mp.simulate(build(name, K, M), mp.Costs(F=F, B=I + W, I=I, W=W, late_W=late_W))
            each = W if late_W is None else late_W
            assert trace.makespan == (M + K - 1) * (F + I) + M * each
            assert peak_microbatches(trace) == [M] * K
            for device in range(K):
                *_, last = trace.spans_of(device)
                assert (str(last.label), last.end - last.start) == (f"{device}W*{M - 1}", M * each)
                assert last.start == (M + K - 1) * (F + I) - device * I


def test_costs_are_a_share_for_each_micro_batch():
    costs = mp.Costs.from_text("F=1,B=2,late_W=3/5")
    assert mp.simulate(build("1f1b-late-w", 2, 4), costs).spans_of(1)[-1].end == 5 * 2 - 1 + 4 * 5
    halves = with_late_W(build("interleaved", 2, 4))
    assert [span.end - span.start for span in mp.simulate(halves).spans_of(0)[-2:]] == [2, 2]
    with pytest.raises(ValueError, match="stage 0: late_W"):
        mp.simulate(build("1f1b-late-w", 2, 4), mp.Costs(late_W=0))


def halves_of(name, M, dtype, m=24):
    """(layer, what it puts aside for each of M micro-batches, and for one with all samples)"""
    layer, A_prev, dZ = ready(name, m, dtype)
    found = []
    for part in [*even_slices(m, M), slice(0, m)]:
        layer.forward(A_prev[..., part].copy())
        layer.backward_input(np.ascontiguousarray(dZ[..., part]))
        found.append(put_aside(layer, np.ascontiguousarray(dZ[..., part])))
    return layer, found[:-1], found[-1]


def test_dW_has_the_bits_of_the_full_batch_however_it_is_cut():
    """On any floats, given the same A_prev and dZ: 24 samples in 7 and 24 micro-batches, some ragged."""
    names = [name for name in WITH_PARAMETERS if LAYERS[name][0].joins_samples]
    assert names
    for name, dtype, M in product(names, (np.float32, np.float64), (7, 24)):
        layer, halves, whole = halves_of(name, M, dtype)
        case = f"{name}, {np.dtype(dtype)}, M={M}: (dW, db)"
        assert_same(late_gradients(layer, halves), weight_gradients(layer, whole), case)


def test_a_layer_without_a_wide_product_sums_along_the_tree():
    kinds = mp.Linear, mp.Embedding, mp.layers.convolution.Kernel
    for name in (name for name in WITH_PARAMETERS if not LAYERS[name][0].layers):
        joins = isinstance(LAYERS[name][0], kinds)
        assert LAYERS[name][0].joins_samples == joins, name
        if not joins:
            layer, halves, _ = halves_of(name, 5, np.float64)
            total = TreeSum(5)
            for i, half in enumerate(halves):
                total.add(i, weight_gradients(layer, half))
            assert_same(late_gradients(layer, halves), total.value, f"{name}: (dW, db)")


def exact_forward(dtype):
    """A network that rounds nothing between its samples' numbers but elementwise, which no cut changes.

    Each W has one power of two in every row and column, so a product is a product with that alone.
    """
    rng, layers = np.random.default_rng(0), []
    for _ in range(4):
        W = np.zeros((9, 9))
        W[np.arange(9), rng.permutation(9)] = rng.choice([-2.0, -1.0, -0.5, 0.5, 1.0, 2.0], 9)
        b = rng.standard_normal((9, 1))
        layers += [mp.Linear(9, 9, W=W.astype(dtype), b=b.astype(dtype)), mp.Tanh()]
    return layers


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bits_depend_on_no_M_K_order_or_recomputation(dtype):
    """They are those of `Sequential`, on any floats, as A_prev and dZ are the same here for every cut.

    Sums over micro-batches have others, or the test would prove nothing.
    """
    rng, layers = np.random.default_rng(1), exact_forward(dtype)
    X, Y = rng.standard_normal((2, 9, 20)).astype(dtype)
    whole = mp.Sequential(layers, mp.MeanSquaredError())
    whole.forward_backward(X, Y)
    for M in (1, 3, 20):
        for K, order, mode in RUNS:
            pipe = mp.Pipeline(layers, mp.MeanSquaredError(), K, M, schedule=ORDERS[order], recompute=mode)
            pipe.forward_backward(X, Y)
            assert_same(pipe.gradients, whole.gradients, f"M={M}, K={K}, {order}: gradients")
    summed = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 7)
    summed.forward_backward(X, Y)
    assert difference(summed.gradients, whole.gradients)


def test_a_stage_keeps_every_A_prev_and_dZ_until_its_W():
    """Stage 0 has Linear(8, 8), Tanh, Tanh; 6 micro-batches of 5 samples.

    In arrays of 8 * 5 numbers: 3 of each after its forward, or its recomputation, 2 after its input gradient.
    """
    layers = [mp.Linear(8, 8), mp.Tanh(), mp.Tanh(), mp.Linear(8, 8), mp.Tanh(), mp.Tanh()]
    X = np.random.default_rng(0).standard_normal((8, 30))
    for recompute, most in [("never", 6 * 3), ("always", 5 * 2 + 3)]:
        pipe = mp.Pipeline(
            layers, mp.MeanSquaredError(), 2, 6, schedule="gpipe-late-w", recompute=recompute,
            count_bytes=True
        )
        pipe.forward_backward(X, X)
        ends = {str(span.label): span.end for span in pipe.trace.spans_of(0)}
        caches = {tick: held.get("caches", 0) / (8 * 5 * 8) for tick, held in pipe.trace.ledger(0)}
        assert (max(caches.values()), caches[ends["0I0"]], caches[ends["0W*5"]]) == (most, 6 * 2, 0)


@pytest.mark.parametrize("lines, copy_of, words", [
    ("F0 F1 I0 W*1 I1", (), "device 0: 0W*1 comes before 0I1, the other half, which it needs"),
    ("F0 F1 W*1 I0 I1", (), "device 0: 0W*1 comes before 0I0, the other half, which it needs"),
    ("F0 F1 I0 I1 W*0", (), "0W*0 leaves out micro-batches behind 0, but takes in all: write 0W*1"),
    ("F0 F1 I0 I1 W0 W*1", (), "does 0W0 and also 0W*1, which takes it in (duplicated): use one of them"),
    ("F0 F1 B0 I1 W*1", (), "does 0B0 and also its half 0W*1 (duplicated): use B, or I and W"),
    ("F0 F1 I0 I1 W*1 W*1", (), "does 0W*1 2 times (duplicated): once is enough"),
    ("F0 F1 I0 W*1", (), "never does 0I1 (missing)"),
    ("F0 F1 I0 I1", (), "never does 0W1 (missing)"),
    ("F0 F1 I0 I1 A1 W*1", (), "0A1 comes before the gradient of micro-batch 1 is complete"),
    ("F0 F1 I0 I1 W*1 U0", (), "0U0 comes after the backward of micro-batch 1"),
    ("F0 F1 I0 I1 W*1", (0, 1), "in one product, but copies of the network share the device: use a W for"),
    ("F0 F1 I0 I1 W*1", (1, 0), "in one product, but copy_of says that those of a copy do not follow each"),
])
def test_what_is_wrong_with_an_order_is_said(lines, copy_of, words):
    faults = Schedule.from_text([lines], microbatches=2, copy_of=copy_of).faults()
    assert any(words in fault for fault in faults), faults
    assert not any("W*" in fault and "missing" in fault for fault in faults)


def test_weights_that_change_on_the_way_are_refused():
    late = build("1f1b-late-w", 2, 4)
    moving = replace(late, versions=((0,) * 4,) * 2)
    assert "versions say that weights change on the way" in moving.faults()[0]
    for make, words in [
        (lambda: with_late_W(late), "has late W already"),
        (lambda: with_late_W(with_updates(gpipe(2, 4))), "has U, which takes in gradients"),
        (lambda: with_late_W(with_all_reduce(gpipe(2, 4))), "has A, which takes in gradients"),
        (lambda: with_late_W(build("chimera", 2, 4)), "has 2 copies of the network"),
        (lambda: late.to_csv(), r"in one product \(0W\*3\), for which PyTorch's table has no cell"),
        (lambda: Schedule.from_csv("0F0,0I0,0W*0"), r"'0W\*0' is not an action"),
    ]:
        with pytest.raises(ValueError, match=words):
            make()
    layers = [mp.Linear(2, 2), mp.Linear(2, 2)]
    with pytest.raises(ValueError, match="updates weights but does not say which ones it works with"):
        mp.Pipeline(
            layers, mp.MeanSquaredError(), 2, 2,
            schedule=lambda K, M: with_updates(build("1f1b-late-w", K, M)))


def test_late_W_goes_with_updates_segments_and_other_stages():
    mixed = Schedule.from_text(["F0 F1 I0 I1 W*1", "F0 B0 F1 I1 W1"])
    assert mixed.faults() == []
    for schedule in (with_updates(mixed), with_all_reduce(mixed), in_segments(mixed, 2)):
        assert schedule.faults() == [] and mp.simulate(schedule).makespan > 0
    assert str(with_updates(build("gpipe-late-w", 1, 2))) == "device 0: 0F0 0F1 0I1 0I0 0W*1 0U1"
    assert [action.kind for action in with_late_W(build("interleaved", 2, 2)).devices[1][-2:]] == ["W*", "W*"]


@pytest.mark.parametrize("name", LATE_W)
@pytest.mark.parametrize("D, M", [(2, 3), (3, 2)])
def test_each_copy_has_a_late_W_of_its_own_micro_batches(D, M, name):
    """In rational numbers; each copy keeps its M until then, and the bytes that it holds are foreseen."""
    layers, loss = [mp.Linear(6, 8), mp.Tanh(), mp.Linear(8, 8), mp.Linear(8, 6)], mp.MeanSquaredError()
    X = np.random.default_rng(0).standard_normal((6, 4 * D * M))
    split = dict(replicas=D, shards=1, stages=2, microbatches=D * M, numbering="tp-pp-dp")
    whole, net = mp.Sequential(exact(layers), loss), mp.Parallel(exact(layers), loss, **split, schedule=name)
    ragged = eighths(X[:, :D * M + 1])
    assert net.forward_backward(ragged, ragged) == whole.forward_backward(ragged, ragged)
    assert_same(net.gradients, whole.gradients)
    assert peak_microbatches(net.trace) == [M] * (2 * D)
    assert str(net.schedule.devices[2][-1]) == f"0W*{2 * M - 1}"
    floats = mp.Parallel(layers, loss, **split, schedule=name, count_bytes=True)
    floats.forward_backward(X, X)
    sizes = mp.footprints(layers, loss, 2, (6,), 4)
    assert mp.simulate(floats.schedule, footprints=sizes).peak_bytes() == floats.trace.peak_bytes()


# Segments

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
