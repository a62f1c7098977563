"""Data parallelism: any number of replicas and any all-reduce give the gradients of one device.

They are summed along one tree, so they have the bits of one device. Then batch norm with the statistics of
all replicas, closed forms, and replicas that stay equal from update to update.
"""

from contextlib import suppress
from fractions import Fraction

import numpy as np
import pytest
from cases import Rounding, eighths, exact, valid_schedules
from compared import assert_all_same, assert_same, parameters, state
from hypothesis import given, settings
from hypothesis import strategies as st
from memory.test_without_values import LAYERS as MIXED
from memory.test_without_values import MACHINE, THREE_COPIES, assert_counted_without_values
from memory.test_without_values import LOSS as OF_MIXED
from memory.test_without_values import mini_batch as of_mixed
from sampling import one_in
from splits.test_zero import LAYERS, LOSS, mini_batch

import minipipe as mp
from minipipe.cluster import ports
from minipipe.collectives import ALL_REDUCES, all_reduce_ticks
from minipipe.exact import Rational
from minipipe.order import Schedule, in_copies, with_all_reduce, with_updates
from minipipe.parallel import in_buckets
from minipipe.schedules import build, data_parallel, gpipe

KINDS = pytest.mark.parametrize("all_reduce", ALL_REDUCES)
SMALL = mp.Sequential([mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 3), mp.Tanh(), mp.Linear(3, 2)], None).layers


@KINDS
def test_every_replica_gets_the_same_bits(all_reduce):
    """With "owners", and others along a tree for runs of 2^j micro-batches: those of one device."""
    X, Y = mini_batch(19, np.float32)
    for D in (2, 3, 4):
        schedule = in_copies(build("1f1b", 2, 2), D)
        pipe = mp.Parallel(
            LAYERS, LOSS, stages=2, microbatches=2 * D, schedule=schedule,
            sums=mp.Sums(all_reduce=all_reduce), dtype=np.float32,
        )
        J = pipe.forward_backward(X, Y)
        stages = {}
        for (index, _), stage in pipe._run.stages.items():
            stages.setdefault(index, []).append(stage.gradients())
        for copies in stages.values():
            assert_all_same(copies)
        one = mp.Pipeline(LAYERS, LOSS, 1, 2 * D, dtype=np.float32)
        assert one.forward_backward(X, Y) == J  # costs always meet along the tree
        along_a_tree = ALL_REDUCES.facts[all_reduce].order.startswith("tree")
        if all_reduce == "owners" or (D in (2, 4) and along_a_tree):
            assert_same(pipe.gradients, one.gradients)


# Bytes and ticks


@pytest.mark.parametrize("all_reduce", one_in(2, ALL_REDUCES))
def test_bytes_without_values_are_the_same_at_every_tick(all_reduce):
    assert_counted_without_values(
        MIXED, OF_MIXED, *of_mixed(40), stages=4, microbatches=8, schedule=THREE_COPIES,
        sums=mp.Sums(all_reduce=all_reduce), **MACHINE,
    )


@KINDS
def test_the_exchange_takes_the_ticks_of_its_formula(all_reduce):
    """One layer of 16 x 15 weights and 16 biases, so 2048 bytes on 4 ports of 16 bytes a tick.

    F + B, and the all-reduce. With "owners" J travels in its messages, with the others in one of its own.
    """
    net = mp.DataParallel(
        [mp.Linear(15, 16)], LOSS, 4, sums=mp.Sums(all_reduce=all_reduce),
        link=mp.Link(latency=100), ports=ports(4, 16),
    )
    net.forward_backward(np.ones((15, 8)), np.ones((16, 8)))
    before = 0 if all_reduce == "owners" else 100
    assert net.trace.makespan == 3 + before + all_reduce_ticks(all_reduce, 4, 2048, 100, Fraction(1, 16))


def test_in_buckets_equals_pytorchs_ddp():
    """Three golden cases of DistributedDataParallel; what has no parameters joins the bucket above."""
    mib = 2**20
    assert in_buckets([1605632, 2048, 1048576, 2048, 20480, 40], (mib, 25 * mib)) == [[5, 4, 3, 2], [1, 0]]
    assert in_buckets([2048, mib] * 3, (mib, mib)) == [[5], [4, 3], [2, 1], [0]]
    assert in_buckets([4 * 10**6] * 20, (mib, 25 * mib)) == [
        [19], [18, 17, 16, 15, 14, 13, 12], [11, 10, 9, 8, 7, 6, 5], [4, 3, 2, 1, 0],
    ]
    assert in_buckets([5, 0, 5, 0], (1, 1)) == [[3, 2, 1], [0]]
    assert in_buckets([0, 5], (1, 1)) == [[1, 0]]


def test_each_stage_has_buckets_of_its_own():
    """Two copies of two stages; in each, the upper layer's gradients travel while the lower one works."""
    layers, sums = [mp.Linear(2, 2) for _ in range(4)], mp.Sums(buckets="layer")
    net = mp.Parallel(layers, LOSS, replicas=2, shards=2, stages=2, sums=sums)
    assert [len(stage.layers) for stage in net.stages] == [1, 1, 1, 1]
    assert str(net.schedule).splitlines()[:2] == [
        "device 0: 0F0 1F0 1B0 1A0 0B0 0A0", "device 1: 2F0 3F0 3B0 3A0 2B0 2A0",
    ]


# Orders


def test_replicas_get_equal_runs_of_consecutive_micro_batches():
    schedule = data_parallel(3, 8, 2)
    assert [[action.microbatch for action in order if action.kind == "F" and action.stage == 0]
            for order in schedule.devices] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert str(schedule).splitlines()[2] == "device 2: 0F6 1F6 1B6 0B6 0F7 1F7 1B7 0B7"


def run(schedule, X, Y):
    pipe = mp.Pipeline(SMALL, LOSS, schedule.n_stages, schedule.n_microbatches, schedule=schedule)
    return pipe.forward_backward(X, Y), pipe


@pytest.mark.parametrize("name", ["1f1b", "zb-v", "chimera"])
def test_an_order_with_updates_trains_as_step_does(name):
    """Two mini-batches, one replica and two: costs, and the parameters of every replica."""
    batches, optimizer = [mini_batch(m) for m in (19, 23)], mp.Adam(0.01)
    plain = mp.Pipeline(SMALL, LOSS, 4, 8, schedule=build(name, stages=4, microbatches=8))
    fresh, costs = optimizer.fresh(), []
    for batch in batches:
        costs.append(plain.forward_backward(*batch))
        plain.step(fresh)
    of_one = build(name, stages=4, microbatches=8), in_copies(build(name, stages=4, microbatches=4), 2)
    for schedule in map(with_updates, of_one):
        pipe = mp.Pipeline(SMALL, LOSS, 4, 8, schedule=schedule)
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
    pipe = mp.Pipeline(SMALL, LOSS, K, M, schedule=with_updates(schedule), link=link)
    assert pipe.train([(X, Y)], mp.SGD(0.125)) == [J]
    assert_same(parameters(pipe.layers), parameters(one.layers))


def test_an_all_reduce_overlaps_with_backwards_of_lower_stages():
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


def test_an_update_of_tied_layers_before_their_sum_is_refused():
    layers = [mp.Linear(2, 2, tie="W"), mp.Tanh(), mp.Linear(2, 2, tie="W")]
    early = Schedule.from_text(["0F0 1F0 2F0 2B0 2U0 1B0 1U0 0B0 0U0"])
    with pytest.raises(ValueError, match="put all its U after all other actions"):
        mp.Pipeline(layers, LOSS, 3, 1, schedule=early)


def test_replicas_take_over_changes_of_optimizer_memory():
    """As in a warm restart, which begins with a momentum of 0."""
    def forget(memory):
        memory.clear()

    def set_to_0(memory):
        memory.update({key: [0 * array for array in arrays] for key, arrays in memory.items()})

    (X, Y), ends = mini_batch(4), []
    for change in (forget, set_to_0):
        for net in (mp.DataParallel(SMALL, LOSS, 2), mp.Pipeline(SMALL, LOSS, 1, 2)):
            optimizer = mp.SGD(0.1, momentum=0.5)
            for _ in range(3):
                net.train([(X, Y)], optimizer)
                change(optimizer.memory)
            ends += map(parameters, net.replicas)
    assert_all_same(ends)


# Synchronised batch norm


SYNC = mp.Sums(sync_batch_norm=True)


def normal_network():
    return [
        mp.BatchNorm(2), Rounding(), mp.Linear(2, 3), mp.BatchNorm(3), mp.ReLU(), Rounding(), mp.Linear(3, 2),
        mp.BatchNorm(2, momentum=0.25), mp.Linear(2, 1),
    ]


def normal_batch(m, convert=eighths):
    rng = np.random.default_rng(m)
    return convert(rng.standard_normal((2, m))), convert(rng.standard_normal((1, m)))


@pytest.mark.parametrize("D, T, K, zero, recompute", [
    (3, 1, 1, 0, "never"), (3, 2, 1, 0, "always"), (2, 1, 2, 1, "never"), (2, 2, 1, 3, "always"),
])
def test_in_fractions_synchronised_replicas_equal_full_batch(D, T, K, zero, recompute):
    """Costs, and parameters and running statistics after two updates; the replicas are ragged."""
    net = mp.Parallel(
        exact(
            normal_network()
        ), LOSS, replicas=D, shards=T, stages=K, recompute=recompute, zero=zero, sums=SYNC
    )
    full, batches = mp.Sequential(exact(normal_network()), LOSS), [normal_batch(5), normal_batch(3)]
    costs = [model.train(batches, mp.SGD(Rational(1, 4))) for model in (net, full)]
    assert costs[0] == costs[1]
    assert_same(state(net.layers), state(full.layers))
    if T == 1 or zero:
        assert_all_same(map(state, net.replicas))


def test_a_replica_may_have_one_sample_for_batch_norm():
    layers, (X, Y) = exact([mp.BatchNorm(2), mp.Linear(2, 1)]), normal_batch(2)
    full, net = mp.Sequential(layers, LOSS), mp.DataParallel(layers, LOSS, 2, sums=SYNC)
    assert net.forward_backward(X, Y) == full.forward_backward(X, Y)
    alone = mp.DataParallel(layers, LOSS, 1, sums=SYNC)
    with pytest.raises(ValueError, match="got 1 number in a row: use at least 2 samples"):
        alone.forward_backward(X[:, :1], Y[:, :1])


def test_synchronised_batch_norm_sends_two_messages_per_layer():
    """Forward the mean and M2 of 3 rows, 48 bytes; backward two sums of 3 rows, by their owners."""
    net = mp.DataParallel([mp.Linear(2, 3), mp.BatchNorm(3), mp.Linear(3, 1)], LOSS, 2, sums=SYNC)
    net.forward_backward(*normal_batch(4, np.asarray))
    assert net.trace.makespan == 3
    sent = [m.n_bytes for m in net.trace.messages if "layers of" in str(m.label) and m.source == 0]
    assert sorted(sent) == [24, 24, 48]


def test_a_batch_norm_inside_a_layer_is_refused_by_sync_batch_norm():
    with pytest.raises(ValueError, match=r"is inside Residual.*use a Fork and a Join"):
        mp.DataParallel([mp.Residual(mp.BatchNorm(2))], LOSS, 2, sums=SYNC)


def test_a_changed_batch_norm_is_refused_by_sync_batch_norm():
    class MyBatchNorm(mp.BatchNorm):
        def forward(self, A_prev):
            return 2 * super().forward(A_prev)

    with pytest.raises(ValueError, match=r"MyBatchNorm\(4\) is a layer of your own in which samples inter"):
        mp.DataParallel([mp.Linear(4, 4), MyBatchNorm(4)], LOSS, 2, sums=SYNC)


# Closed forms


SIZE = 12 * 8  # bytes of the gradients of a Linear(3, 3)


def exposed(n_layers, of_a_bucket, N, alpha, V):
    """How long N copies run when all work is done: 2 ticks of backward a layer, V ticks for all bytes."""
    bandwidth = Fraction(2 * (N - 1) * n_layers * SIZE, N * V)
    machine = dict(costs=mp.Costs(F=n_layers, B=2 * n_layers), link=mp.Link(alpha), ports=ports(N, bandwidth))
    layers, sums = [mp.Linear(3, 3) for _ in range(n_layers)], mp.Sums(buckets=of_a_bucket * SIZE)
    net = mp.DataParallel(layers, LOSS, N, sums=sums, **machine)
    net.forward_backward(np.ones((3, N)), np.ones((3, N)))
    assert net.schedule.n_stages == n_layers // of_a_bucket
    return net.trace.makespan - 3 * n_layers


@pytest.mark.parametrize("of_a_bucket, ticks", [(1, 6), (2, 4), (4, 6)])
def test_j_is_sent_with_gradients_and_adds_no_latency(of_a_bucket, ticks):
    """4 layers; a bucket takes 2 ticks of latency and 1 a layer."""
    assert exposed(4, of_a_bucket, 2, alpha=1, V=4) == ticks


@pytest.mark.parametrize("N", [2, 3, 4])
def test_the_best_number_of_buckets_is_the_papers_square_root(N):
    """8 layers, T_b = 16, A = 1: T_b/K + K A + V - T_b ticks are exposed, least for K = sqrt(T_b/A) = 4."""
    found = {K: exposed(8, 8 // K, N, alpha=Fraction(1, 2), V=16) for K in (1, 2, 4, 8)}
    assert found == {K: Fraction(16, K) + K + 16 - 16 for K in (1, 2, 4, 8)}
    assert min(found, key=found.get) == 4


@pytest.mark.parametrize("A, makespan", [
    ([3, 3, 3, 3], 36), ([0, 3, 6, 9], 36), ([0, 2, 4, 6], 33), ([1, 2, 7, 8], 36), ([0, 0, 0, 9], 36),
])
def test_late_all_reduces_overlap_with_the_drain_of_1f1b(A, makespan):
    """(M + P - 1)(F + B) + the largest A_r - r B, for P = 4, M = 8: device r ends r B earlier."""
    order = with_all_reduce(in_copies(build("1f1b", 4, 8), 2))
    trace = mp.simulate(order, mp.Costs(F=1, B=2, A=A))
    ends = [max(s.end for s in trace.spans_of(device) if s.label.kind == "B") for device in range(4)]
    assert ends == [33, 31, 29, 27]
    assert trace.makespan == 33 + max(0, *(A[r] - 2 * r for r in range(4))) == makespan


# The replicas: separate objects, equal bit for bit

RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3, 12))


def network():
    return [
        mp.Linear(3, 4), mp.BatchNorm(4), mp.Residual(mp.Linear(4, 4), mp.Tanh()), mp.Dropout(0.25),
        mp.Linear(4, 3),
    ]


def states_of_one_device(optimizer, M=6, n_steps=3):
    """Yield the state after each step of one device with the same micro-batches."""
    net = mp.Pipeline(network(), LOSS, 1, M)
    for _ in range(n_steps):
        net.forward_backward(X, Y)
        net.step(optimizer)
        yield state(net.layers)


@pytest.mark.parametrize("optimizer", [
    mp.SGD(0.02, momentum=0.9, nesterov=True, weight_decay=0.01), mp.LAMB(0.01),
], ids=["SGD", "LAMB"])
def test_steps_leave_all_replicas_equal_to_one_device(optimizer):
    """With batch norm, dropout and momentum; before a step, each replica has the sums of all."""
    net, own = mp.DataParallel(network(), LOSS, 3, microbatches=6), optimizer.fresh()
    for expected in states_of_one_device(optimizer.fresh()):
        net.forward_backward(X, Y)
        for stage in net._run.stages.values():
            assert_same(stage.gradients(), net.gradients)
        net.step(own)
        assert_all_same(map(state, net.replicas), expected)


@pytest.mark.parametrize("D, M, zero, buckets", [
    (2, 2, 1, None), (3, 6, 1, 100), (5, 6, 2, 1), (3, 3, 3, None), (3, 6, 3, 100),
])
def test_updates_in_the_order_leave_all_replicas_equal(D, M, zero, buckets):
    """With ZeRO; no replica shares an array with another one."""
    net = mp.DataParallel(network(), LOSS, D, microbatches=M, zero=zero, sums=mp.Sums(buckets=buckets))
    optimizer = mp.Adam(0.01)
    for expected in states_of_one_device(mp.Adam(0.01), M):
        net.train([(X, Y)], optimizer)
        assert_all_same(map(state, net.replicas), expected)
    arrays = [array for layers in net.replicas for array in state(layers).values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_replicas_take_over_arrays_assigned_between_steps():
    net, one = mp.DataParallel(network(), LOSS, 3, microbatches=6), mp.Pipeline(network(), LOSS, 1, 6)
    for model in (net, one):
        adam = mp.Adam(0.01)
        for _ in range(2):
            model.forward_backward(X, Y)
            model.step(adam)
            model.layers[0].W = model.layers[0].W / 2
            model.layers[1].running_mean = model.layers[1].running_mean + 1
        model.forward_backward(X, Y)
        model.step(mp.Adam(0.02))  # another one, without state
    assert_all_same(map(state, net.replicas), state(one.layers))


@pytest.mark.parametrize("zero", [0, 3])
def test_replicas_take_over_arrays_changed_in_place(zero):
    """A run reads the layers anew."""
    net, one = mp.DataParallel(network(), LOSS, 2, zero=zero), mp.Pipeline(network(), LOSS, 1, 2)
    for model in (net, one):
        optimizer = mp.SGD(0.1)
        model.train([(X, Y)], optimizer)
        model.layers[0].W[0, 0] += 1
        assert_same(model.predict(X), mp.Sequential(model.layers, LOSS).predict(X))
        model.train([(X, Y)], optimizer)
    assert_all_same(map(state, net.replicas), state(one.layers))


@pytest.mark.parametrize("zero, buckets", [(1, None), (2, 100), (3, None)])
def test_after_a_failed_run_replicas_continue_from_before_it(zero, buckets):
    """It fails when all updates have been made: the cost is not finite."""
    states = []
    for batches in ([(X, Y), (X, 1e200 * Y), (X, Y)], [(X, Y), (X, Y)]):
        net = mp.DataParallel(network(), LOSS, 3, zero=zero, sums=mp.Sums(buckets=buckets))
        optimizer = mp.SGD(1e-9)
        for batch in batches:
            with suppress(FloatingPointError):
                net.train([batch], optimizer)
        states.append([state(layers) for layers in net.replicas])
    assert_all_same(copy for copies in states for copy in copies)


# Files of replicas


def splits():
    """Networks with optimizer state that is whole, in replicas or in shards."""
    copies = in_copies(build("1f1b", 2, 3), 2)
    return {
        "whole": lambda: mp.Pipeline(network(), LOSS, 2, 6, schedule=with_updates(build("1f1b", 2, 6))),
        "steps": lambda: mp.Pipeline(network(), LOSS, 1, 6),
        "copies": lambda: mp.Pipeline(network(), LOSS, 2, 6, schedule=with_updates(copies)),
        "zero 1": lambda: mp.DataParallel(network(), LOSS, 5, microbatches=6, zero=1),
        "zero 3": lambda: mp.DataParallel(
            network(), LOSS, 3, microbatches=6, zero=3, sums=mp.Sums(buckets=100)
        ),
        "pipelines": lambda: mp.Parallel(
            network(), LOSS, replicas=2, stages=2, microbatches=6, zero=2),
    }


def content(path):
    with np.load(path) as file:
        return dict(sorted(file.items()))


def test_checkpoints_do_not_depend_on_how_state_is_split(tmp_path):
    files, after = {}, {}
    for name, make in splits().items():
        net, optimizer = make(), mp.Adam(0.01)
        net.train([(X, Y)], optimizer)
        mp.save(tmp_path / name, net, optimizer)
        files[name] = content(tmp_path / name)
        net.train([(X, Y)], optimizer)
        after[name] = state(net.layers)
    assert "optimizer/0.0/W/1" in files["whole"]
    assert_all_same(files.values())
    for name, make in splits().items():
        net, optimizer = make(), mp.Adam(0.01)
        net.train([(X, X)], optimizer)  # it has another past, of which nothing must be left
        mp.load(tmp_path / "zero 3", net, optimizer)
        net.train([(X, Y)], optimizer)
        assert_same(state(net.layers), after["zero 3"], f"{name} after loading the file of ZeRO 3")


def test_optimizer_state_of_shards_survives_a_checkpoint(tmp_path):
    """Shards give other bits than one device; so a file of one device goes through shards, and back."""
    first, second = tmp_path / "first", tmp_path / "second"
    one, adam = splits()["whole"](), mp.Adam(0.01)
    one.train([(X, Y)] * 2, adam)
    mp.save(first, one, adam)
    for D, T in ((1, 2), (2, 3)):
        split = dict(replicas=D, shards=T, stages=2, microbatches=6)
        net, other = (mp.Parallel(network(), LOSS, **split, zero=2) for _ in "12")
        optimizer, its = mp.Adam(0.02), mp.Adam(0.03)
        mp.load(first, net, optimizer)
        mp.save(second, net, optimizer)
        assert_same(content(second), content(first))
        net.train([(X, Y)], optimizer)
        mp.save(second, net, optimizer)
        mp.load(second, other, its)
        net.train([(X, Y)], optimizer)
        other.train([(X, Y)], its)
        assert_same(state(net.layers), state(other.layers))
