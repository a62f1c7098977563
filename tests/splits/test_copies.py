"""Copies of the network: sums meet as nodes of one tree, so gradients have the bits of one device."""

from fractions import Fraction

import numpy as np
import pytest
from cases import eighths, valid_schedules
from compared import assert_all_same, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from splits.one_network import LOSS, mini_batch
from memory.test_foresight import steps

import minipipe as mp
from minipipe.functions import leaves
from minipipe.pipeline import closing
from minipipe.schedules import (
    Schedule, build, build_for_stages, gpipe, in_copies, names_for_stages, with_all_reduce, with_updates,
)

LAYERS = mp.Sequential([mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 3), mp.Tanh(), mp.Linear(3, 2)], None).layers


def run(schedule, X, Y, layers=LAYERS, **options):
    pipe = mp.Pipeline(layers, LOSS, schedule.n_stages, schedule.n_microbatches, schedule, **options)
    return pipe.forward_backward(X, Y), pipe


def dealt(M, D):
    """One stage, M micro-batches dealt to D devices in contiguous runs as equal as can be."""
    runs = np.array_split(range(M), D)
    orders = [" ".join(f"0F{i}" for i in run) + " " + " ".join(f"0B{i}" for i in run) for run in runs]
    return Schedule.from_text(orders, M, copy_of=[c for c, run in enumerate(runs) for _ in run])


@pytest.mark.parametrize("M", range(3, 13))
def test_three_copies_on_three_devices_equal_the_full_batch_and_one_device(M):
    """Ragged: one sample more than three times M. Theorem in rationals; the same bits in both dtypes."""
    m = 3 * M + 1
    X, Y = map(eighths, mini_batch(m))
    exact = [layer.copy(eighths) for layer in LAYERS]
    full = mp.Sequential(exact, LOSS)
    J = full.forward_backward(X, Y)
    mine, pipe = run(dealt(M, 3), X, Y, exact)
    assert_same((mine, pipe.gradients), (J, full.gradients))
    for dtype in (np.float32, np.float64):
        X, Y = mini_batch(m, dtype)
        J, one = run(gpipe(1, M), X, Y, dtype=dtype)
        mine, pipe = run(dealt(M, 3), X, Y, dtype=dtype)
        assert_same((mine, pipe.gradients), (J, one.gradients))
        assert all(dW.dtype == dtype for dW in leaves(pipe.gradients))


@pytest.mark.parametrize(
    "change", [lambda schedule: schedule, with_all_reduce], ids=["implied", "in the order"]
)
@pytest.mark.parametrize("name", names_for_stages(4, 4))
def test_copies_of_any_pipeline_have_the_bits_of_one_device(name, change):
    """D = 3 copies of K = 4 stages; for Chimera and DualPipe that is 6 copies of the network."""
    schedule = change(in_copies(build_for_stages(name, 4, 4), 3))
    X, Y = mini_batch(29)
    J, one = run(gpipe(1, 12), X, Y)
    mine, pipe = run(schedule, X, Y, link=mp.Link(latency=1, bandwidth=64))
    assert_same((mine, pipe.gradients), (J, one.gradients))


@pytest.mark.parametrize("optimizer", [mp.SGD(0.125, momentum=0.5), mp.Adam(0.01)], ids=["SGD", "Adam"])
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-v", "chimera"])
def test_an_order_with_updates_trains_as_step_does(name, optimizer):
    """Three mini-batches, one copy and two: costs, parameters, and the parameters of every other copy."""
    batches = [mini_batch(m) for m in (19, 19, 23)]
    plain = mp.Pipeline(LAYERS, LOSS, 4, 8, build_for_stages(name, 4, 8))
    fresh, costs = optimizer.fresh(), []
    for batch in batches:
        costs.append(plain.forward_backward(*batch))
        plain.step(fresh)
    of_one = build_for_stages(name, 4, 8), in_copies(build_for_stages(name, 4, 4), 2)
    for schedule in map(with_updates, of_one):
        pipe = mp.Pipeline(LAYERS, LOSS, 4, 8, schedule, optimizer=optimizer)
        assert pipe.train(batches) == costs and pipe.n_steps == 3 and pipe.J == costs[-1]
        assert_same(parameters(pipe.layers), parameters(plain.layers))
        of_copies = {}
        for (index, _), stage in pipe._run.stages.items():
            of_copies.setdefault(index, []).append(stage.weights())
        for copies in of_copies.values():
            assert_all_same(copies)
        with pytest.raises(RuntimeError, match="have used the gradients up"):
            pipe.gradients  # noqa: B018
        with pytest.raises(RuntimeError, match="updates the stages itself: a step would be a second update"):
            pipe.step(optimizer)


@settings(max_examples=40)
@given(st.data())
def test_any_order_that_can_run_gives_the_bits_of_one_device(data):
    """Two copies or one, halves, overlaps, stages anywhere; all-reduces and updates in the order, or not."""
    K, M = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    schedule = data.draw(valid_schedules(K, M))
    X, Y = mini_batch(2 * M + 1)
    J, one = run(gpipe(1, M), X, Y)
    one.step(mp.SGD(0.125))
    link = data.draw(st.sampled_from([mp.Link(), mp.Link(latency=1), mp.Link(bandwidth=16)]))
    mine, pipe = run(with_all_reduce(schedule), X, Y, link=link)
    assert_same((mine, pipe.gradients), (J, one.gradients))
    mine, pipe = run(with_updates(schedule), X, Y, link=link, optimizer=mp.SGD(0.125))
    assert mine == J
    assert_same(parameters(pipe.layers), parameters(one.layers))


def test_copies_with_a_stage_on_one_device_share_it():
    """PipeDream's replicated stages: stage 0 on devices 0 and 1, stage 1 of both copies on device 2."""
    order = ["0F0 0F2 0B0 0B2", "0F1 0F3 0B1 0B3", "1F0 1F1 1B0 1B1 1F2 1F3 1B2 1B3"]
    shared = Schedule.from_text(order, copy_of=(0, 1, 0, 1))
    X, Y = mini_batch(13)
    J, one = run(gpipe(1, 4), X, Y)
    for schedule in (shared, with_all_reduce(shared)):
        mine, pipe = run(schedule, X, Y)
        assert_same((mine, pipe.gradients), (J, one.gradients))
        assert len(pipe._run.stages) == 3
    trained = mp.Pipeline(LAYERS, LOSS, 2, 4, with_updates(shared), optimizer=mp.SGD(0.5))
    one.step(mp.SGD(0.5))
    assert trained.train([(X, Y)]) == [J]
    assert_same(parameters(trained.layers), parameters(one.layers))


def test_an_all_reduce_travels_while_the_stages_below_it_still_compute():
    """Two stages on each of two devices: the sums of stage 1 travel during the backward of stage 0."""
    schedule = Schedule.from_text(["0F0 1F0 1B0 1A0 0B0 0A0", "0F1 1F1 1B1 1A1 0B1 0A1"], copy_of=(0, 1))
    trace = mp.simulate(schedule, mp.Costs(F=2, B=4, A=2), mp.Link(latency=1))
    spans = {(str(span.label), span.device): span for span in trace.spans}
    assert spans["1A0", 0].lane == "communication" and spans["0B0", 0].lane == "compute"
    for name, device in (("1A0", 0), ("1A1", 1)):  # halves and costs sent at 4, there at 5, their sums at 6
        assert (spans[name, device].start, spans[name, device].end) == (6, 7)
    assert spans["0B0", 0].start == 4
    assert trace.makespan == 10  # the lanes are free at 7, two hops later at 9, and A takes a tick
    painted = mp.simulate(mp.Schedule.from_text(["F0 B0"]), mp.Costs(A=5, U=7))
    assert painted.makespan == 3, "an order without A and U has no ticks of theirs"


def test_lanes_are_started_in_one_order_or_the_schedule_is_refused():
    order = ["0F0 1F0 1B0 0B0 1A0 0A0", "0F1 1F1 1B1 0B1 0A1 1A1"]
    with pytest.raises(mp.ScheduleError, match="1A0"):
        mp.simulate(Schedule.from_text(order, copy_of=(0, 1)))


@pytest.mark.parametrize("schedule", [
    with_updates(build("1f1b", 4, 8)), with_updates(in_copies(build("1f1b", 4, 4), 2)),
    with_all_reduce(in_copies(build("zb-v", 2, 4), 2)), with_updates(build("chimera", 4, 8)),
], ids=lambda schedule: schedule.name)
@pytest.mark.parametrize("link", [mp.Link(), mp.Link(latency=1, bandwidth=64)], ids=["free", "slow"])
def test_bytes_of_copies_and_updates_are_foreseen(schedule, link):
    """Spans, messages and the ledger of every device are those of the run, from the second mini-batch on."""
    costs = mp.Costs(F=1, B=2, A=Fraction(1, 2), U=1)
    optimizer = mp.Adam() if "U" in schedule.kinds else None
    pipe = mp.Pipeline(LAYERS, LOSS, 4, 8, schedule, costs=costs, link=link, optimizer=optimizer)
    for _ in range(2):
        pipe.forward_backward(*mini_batch(24))
    sizes = mp.footprints(LAYERS, LOSS, 4, (2,), 3, optimizer=optimizer)
    foreseen = mp.simulate(schedule, costs, link, sizes)
    for what in ("spans", "messages", "idle"):
        assert getattr(foreseen, what) == getattr(pipe.trace, what)
    for device in range(len(schedule.devices)):
        assert steps(foreseen.ledger(device)) == steps(pipe.trace.ledger(device))


def test_tied_layers_are_updated_with_the_sum_in_the_order_too():
    """With all U at the end of each device, one copy and two."""
    layers = [mp.Linear(2, 2, tie="W"), mp.Tanh(), mp.Linear(2, 2, tie="W")]
    X, Y = mini_batch(11)
    reference = mp.Pipeline(layers, LOSS, 3, 4, "1f1b")
    J = reference.forward_backward(X, Y)
    reference.step(mp.SGD(0.5))
    on_one_device = Schedule.from_text([  # here the sums of stage 0 are the last to be there
        "0F0 1F0 2F0 2B0 1B0 0B0 0F1 1F1 2F1 2B1 1B1 0B1",
        "0F2 1F2 2F2 2B2 1B2 0B2 0F3 1F3 2F3 2B3 1B3 0B3",
    ], copy_of=(0, 0, 1, 1))
    for plain in (build("1f1b", 3, 4), in_copies(build("1f1b", 3, 2), 2), on_one_device):
        pipe = mp.Pipeline(layers, LOSS, 3, 4, with_updates(plain), optimizer=mp.SGD(0.5))
        assert pipe.train([(X, Y)]) == [J]
        assert_all_same([pipe.layers[0].W, pipe.layers[2].W], reference.layers[0].W)
    early = Schedule.from_text(["0F0 1F0 2F0 2B0 2U0 1B0 1U0 0B0 0U0"])
    with pytest.raises(ValueError, match="put all its U behind all other actions"):
        mp.Pipeline(layers, LOSS, 3, 1, early, optimizer=mp.SGD(0.5))


def test_only_the_first_copy_keeps_what_a_run_that_fails_restores():
    pipe = mp.Pipeline(LAYERS, LOSS, 1, 2, with_updates(in_copies(gpipe(1, 1), 2)), optimizer=mp.Adam())
    pipe.train([mini_batch(4)])
    kept = [max(kinds.get("for a restore", 0) for _, kinds in pipe.trace.ledger(d)) for d in range(2)]
    assert kept[0] > 0 and kept[1] == 0


def test_a_stage_without_other_copies_shares_its_sums_with_nobody(monkeypatch):
    """No all-reduce among one, which would copy each gradient."""
    monkeypatch.setattr(closing, "all_reduce_sum_and_gather", None)
    J, pipe = run(gpipe(3, 4), *mini_batch(8))
    assert np.isfinite(J) and len(pipe.gradients) == len(LAYERS)
    with pytest.raises(TypeError, match="not callable"):
        run(in_copies(gpipe(3, 2), 2), *mini_batch(8))


def test_a_run_that_fails_in_an_order_with_updates_leaves_the_parameters():
    pipe = mp.Pipeline(LAYERS, LOSS, 4, 8, with_updates(build("1f1b", 4, 8)), optimizer=mp.SGD(0.1))
    pipe.train([mini_batch(16)])
    before = [layer.W.copy() for layer in pipe.layers if layer.W is not None]
    X, Y = mini_batch(16)
    with pytest.raises(FloatingPointError, match=r"MeanSquaredError\(\): the cost is not finite"):
        pipe.forward_backward(X, Y * 1e300)
    assert_same([layer.W for layer in pipe.layers if layer.W is not None], before)
    assert pipe.n_steps == 1
    schedule = with_updates(build("1f1b", 4, 8))
    stopped = mp.Pipeline(LAYERS, LOSS, 4, 8, schedule, optimizer=mp.SGD(0.1), memory_limit=400)
    before = [layer.W.copy() for layer in stopped.layers if layer.W is not None]
    with pytest.raises(mp.MemoryLimitError):
        stopped.train([mini_batch(16)])
    assert_same([layer.W for layer in stopped.layers if layer.W is not None], before)


def test_an_optimizer_where_a_dead_one_lay_is_another_one():
    """It comes with a memory of its own, after as many updates: the copies forget that of the dead one."""
    X, Y = mini_batch(4)
    net, other = mp.DataParallel(LAYERS, LOSS, 2), mp.Sequential(LAYERS, LOSS)
    dead = mp.Adam(0.1)
    net.forward_backward(X, Y)
    net.step(dead)
    address = id(dead.memory)
    del dead
    kept = []
    while len(kept) < 100 and (not kept or id(kept[-1].memory) != address):
        kept.append(mp.Adam(0.1))
    other.forward_backward(-X, Y)
    other.step(kept[-1])
    net.forward_backward(X, Y)
    net.step(kept[-1])
    assert_all_same([parameters(layers) for layers in net.replicas])


@pytest.mark.parametrize("forget", [
    lambda memory: memory.clear(),
    lambda memory: memory.update({key: [0 * array for array in arrays] for key, arrays in memory.items()}),
])
def test_copies_take_over_what_is_assigned_to_the_memory_of_an_optimizer(forget):
    """As in a warm restart, which begins with a momentum of 0."""
    X, Y = mini_batch(4)
    net, one = mp.DataParallel(LAYERS, LOSS, 2), mp.Pipeline(LAYERS, LOSS, 1, 2)
    for model in (net, one):
        optimizer = mp.SGD(0.1, momentum=0.5)
        for _ in range(2):
            model.forward_backward(X, Y)
            model.step(optimizer)
            forget(optimizer.memory)
        model.forward_backward(X, Y)
        model.step(optimizer)
    assert_all_same([parameters(layers) for layers in (*net.replicas, one.layers)])
