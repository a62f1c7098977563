"""Copies of the network: sums meet as nodes of one tree, so gradients have the bits of one device."""

import numpy as np
import pytest
from cases import valid_schedules
from compared import assert_all_same, assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st
from splits.one_network import LOSS, mini_batch

import minipipe as mp
from minipipe.order import Schedule, in_copies, programs, with_updates
from minipipe.schedules import build, build_for_stages, gpipe

LAYERS = mp.Sequential([mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 3), mp.Tanh(), mp.Linear(3, 2)], None).layers


def run(schedule, X, Y):
    pipe = mp.Pipeline(LAYERS, LOSS, schedule.n_stages, schedule.n_microbatches, schedule)
    return pipe.forward_backward(X, Y), pipe


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "chimera"])
def test_an_order_with_updates_trains_as_step_does(name):
    """Two mini-batches, one copy and two: costs, parameters, and the parameters of every other copy."""
    batches, optimizer = [mini_batch(m) for m in (19, 23)], mp.Adam(0.01)
    plain = mp.Pipeline(LAYERS, LOSS, 4, 8, build_for_stages(name, 4, 8))
    fresh, costs = optimizer.fresh(), []
    for batch in batches:
        costs.append(plain.forward_backward(*batch))
        plain.step(fresh)
    of_one = build_for_stages(name, 4, 8), in_copies(build_for_stages(name, 4, 4), 2)
    for schedule in map(with_updates, of_one):
        pipe = mp.Pipeline(LAYERS, LOSS, 4, 8, schedule)
        assert pipe.train(batches, optimizer.fresh()) == costs and pipe.n_steps == 2 and pipe.J == costs[-1]
        assert_same(parameters(pipe.layers), parameters(plain.layers))
        of_copies = {}
        for (index, _), stage in pipe._run.stages.items():
            of_copies.setdefault(index, []).append(stage.weights())
        for copies in of_copies.values():
            assert_all_same(copies)
        with pytest.raises(RuntimeError, match="has applied the gradients itself"):
            pipe.gradients  # noqa: B018
        with pytest.raises(RuntimeError, match="updates the stages itself: a step would be a second update"):
            pipe.step(optimizer)


@settings(max_examples=40)
@given(st.data())
def test_any_order_that_can_run_gives_the_bits_of_one_device(data):
    """Two copies or one, halves, overlaps, stages anywhere; all-reduces and updates in the order."""
    K, M = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 6))
    schedule = data.draw(valid_schedules(K, M))
    X, Y = mini_batch(2 * M + 1)
    J, one = run(gpipe(1, M), X, Y)
    one.step(mp.SGD(0.125))
    link = data.draw(st.sampled_from([mp.Link(), mp.Link(latency=1), mp.Link(bandwidth=16)]))
    pipe = mp.Pipeline(LAYERS, LOSS, K, M, with_updates(schedule), on=mp.Machine(link=link))
    assert pipe.train([(X, Y)], mp.SGD(0.125)) == [J]
    assert_same(parameters(pipe.layers), parameters(one.layers))


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


def test_tied_layers_are_updated_with_the_sum_in_the_order_too():
    """With all U at the end of each device, where the sums of stage 0 are the last to be there."""
    layers = [mp.Linear(2, 2, tie="W"), mp.Tanh(), mp.Linear(2, 2, tie="W")]
    X, Y = mini_batch(11)
    reference = mp.Pipeline(layers, LOSS, 3, 4, "1f1b")
    J = reference.forward_backward(X, Y)
    reference.step(mp.SGD(0.5))
    on_one_device = Schedule.from_text([
        "0F0 1F0 2F0 2B0 1B0 0B0 0F1 1F1 2F1 2B1 1B1 0B1",
        "0F2 1F2 2F2 2B2 1B2 0B2 0F3 1F3 2F3 2B3 1B3 0B3",
    ], copy_of=(0, 0, 1, 1))
    pipe = mp.Pipeline(layers, LOSS, 3, 4, with_updates(on_one_device))
    assert pipe.train([(X, Y)], mp.SGD(0.5)) == [J]
    assert_same(parameters(pipe.layers), parameters(reference.layers))
    early = Schedule.from_text(["0F0 1F0 2F0 2B0 2U0 1B0 1U0 0B0 0U0"])
    with pytest.raises(ValueError, match="put all its U behind all other actions"):
        mp.Pipeline(layers, LOSS, 3, 1, early)


def test_an_order_with_updates_of_one_copy_gets_its_sums_where_there_are_replicas():
    batches = [mini_batch(m) for m in (9, 8)]
    net = mp.Parallel(LAYERS, LOSS, mp.Split(2, 1, 2, 4), with_updates(build_for_stages("1f1b", 2, 2)))
    plain, mine, own = mp.Parallel(LAYERS, LOSS, mp.Split(2, 1, 2, 4)), mp.Adam(0.1), mp.Adam(0.1)
    assert net.train(batches, mine) == plain.train(batches, own)
    assert_same(parameters(net.layers), parameters(plain.layers))
    assert [str(action) for action in net.schedule.devices[0][-2:]] == ["0A1", "0U1"]


def test_no_copy_keeps_anything_for_a_run_that_fails():
    """What was there before an update lies on the host."""
    pipe = mp.Pipeline(LAYERS, LOSS, 1, 2, with_updates(in_copies(gpipe(1, 1), 2)))
    pipe.train([mini_batch(4)], mp.Adam())
    assert pipe.trace.ledger(0) == pipe.trace.ledger(1)
    assert set(pipe.trace.ledger(0)[-1][1]) == {"parameters", "optimizer state"}


def test_a_stage_without_other_copies_shares_its_sums_with_nobody(monkeypatch):
    """No all-reduce among one, which would copy each gradient."""
    monkeypatch.setattr(programs, "all_reduce_sum_and_gather", None)
    J, pipe = run(gpipe(3, 4), *mini_batch(8))
    assert np.isfinite(J) and len(pipe.gradients) == len(LAYERS)
    with pytest.raises(TypeError, match="not callable"):
        run(in_copies(gpipe(3, 2), 2), *mini_batch(8))


def test_a_run_that_fails_in_an_order_with_updates_leaves_the_parameters():
    order, X, Y = with_updates(build("1f1b", 4, 8)), *mini_batch(16)
    for limit, batch, error in ((None, (X, Y * 1e300), FloatingPointError),
                                (400, (X, Y), mp.MemoryLimitError)):
        pipe = mp.Parallel(
            LAYERS, LOSS, mp.Split(stages=4, microbatches=8), order, mp.Memory(limit=limit)
        )
        if limit is None:
            pipe.train([(X, Y)], mp.SGD(0.1))
        before, n_steps = parameters([layer.copy() for layer in pipe.layers]), pipe.n_steps
        with pytest.raises(error):
            pipe.train([batch], mp.SGD(0.1))
        assert_same(parameters(pipe.layers), before)
        assert pipe.n_steps == n_steps


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
