"""Closed forms of splits, met by runs: what of an exchange is exposed, when a hybrid ends, whose bits.

At the end, a schedule whose devices stand for groups is simulated: the run of real layers in parts.
"""

from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.cluster import Cluster, ports
from minipipe.collectives import Group, all_reduce_sum
from minipipe.functions import even_slices
from minipipe.planning import simulate_in_shards
from minipipe.schedules import build, in_copies, peak_microbatches, with_all_reduce, with_recompute
from minipipe.sums import TreeSum

LOSS = mp.MeanSquaredError()
SIZE = 12 * 8  # bytes of the gradients of a Linear(3, 3)


def exposed(n_layers, of_a_bucket, N, alpha, V):
    """How long N copies run when all work is done: 2 ticks of backward a layer, V ticks for all bytes."""
    bandwidth = Fraction(2 * (N - 1) * n_layers * SIZE, N * V)
    net = mp.DataParallel(
        [mp.Linear(3, 3) for _ in range(n_layers)], LOSS, N, buckets=of_a_bucket * SIZE,
        costs=mp.Costs(F=n_layers, B=2 * n_layers), link=mp.Link(alpha), ports=ports(N, bandwidth),
    )
    net.forward_backward(np.ones((3, N)), np.ones((3, N)))
    assert net.schedule.n_stages == n_layers // of_a_bucket
    return net.trace.makespan - 3 * n_layers


@pytest.mark.parametrize("of_a_bucket, ticks", [(1, 6), (2, 4), (4, 6)])
def test_costs_travel_beside_gradients_and_add_no_latency_to_a_bucket(of_a_bucket, ticks):
    """4 layers; a bucket takes 2 ticks of latency and 1 a layer."""
    assert exposed(4, of_a_bucket, 2, alpha=1, V=4) == ticks


@pytest.mark.parametrize("N", [2, 3, 4])
def test_the_best_number_of_buckets_is_the_square_root_of_backward_by_latency(N):
    """8 layers, T_b = 16, A = 1: T_b/K + K A + V - T_b ticks are exposed, least for K = sqrt(T_b/A) = 4."""
    found = {K: exposed(8, 8 // K, N, alpha=Fraction(1, 2), V=16) for K in (1, 2, 4, 8)}
    assert found == {K: Fraction(16, K) + K + 16 - 16 for K in (1, 2, 4, 8)}
    assert min(found, key=found.get) == 4


@pytest.mark.parametrize("A, makespan", [
    ([3, 3, 3, 3], 36), ([0, 3, 6, 9], 36), ([0, 2, 4, 6], 33), ([1, 2, 7, 8], 36), ([0, 0, 0, 9], 36),
])
def test_the_sum_of_a_late_stage_hides_in_the_drain_of_1f1b(A, makespan):
    """(M + P - 1)(F + B) + the largest A_r - r B, for P = 4, M = 8: device r ends r B earlier."""
    order = with_all_reduce(in_copies(build("1f1b", 4, 8), 2))
    trace = mp.simulate(order, mp.Costs(F=1, B=2, A=A))
    ends = [max(s.end for s in trace.spans_of(device) if s.label.kind == "B") for device in range(4)]
    assert ends == [33, 31, 29, 27]
    assert trace.makespan == 33 + max(0, *(A[r] - 2 * r for r in range(4))) == makespan


@pytest.mark.parametrize("d, bubble", [(1, Fraction(31, 128)), (4, Fraction(7, 32)), (16, Fraction(1, 8))])
def test_the_bubble_of_a_hybrid_falls_with_the_number_of_copies(d, bubble):
    """n = 32 devices, b' = 128 micro-batches in all: (n - d)/b'. Narayanan et al. 2021, section 3.3.1."""
    p, M = 32 // d, 128 // d
    trace = mp.simulate(build("1f1b", p, M))
    assert Fraction(p - 1, M) == Fraction(32 - d, 128) == bubble
    assert trace.bubble("ideal") == float(bubble)


@pytest.mark.parametrize("T, P, n, batch, d, bubble", [
    pytest.param(8, 64, 3072, 3072, 6, Fraction(63, 512), marks=pytest.mark.slow),  # 65,536 actions
    (8, 8, 1536, 2304, 24, Fraction(7, 96)),
])
def test_bubbles_of_published_configurations(T, P, n, batch, d, bubble):
    """Megatron-LM's 1T and 145.6B parameters, 1 sample in a micro-batch."""
    assert n // (T * P) == d
    assert mp.simulate(build("1f1b", P, batch // d)).bubble("ideal") == float(bubble)


def product_in_shards(T, W, A, n_blocks):
    """W A, of which each of T devices has some blocks of the inner axis, added along one tree."""
    found, blocks = [], even_slices(W.shape[1], n_blocks)

    def program(rank):
        total = TreeSum(n_blocks)
        for i in range(n_blocks)[even_slices(n_blocks, T)[rank]]:
            total.add(i, W[:, blocks[i]] @ A[blocks[i]])
        found.append((yield from all_reduce_sum(Group(rank, range(T)), total)))

    Cluster([program(rank) for rank in range(T)]).run()
    assert all(np.array_equal(array, found[0]) for array in found)
    return found[0]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_fixed_blocks_of_the_inner_axis_have_the_same_bits_on_any_number_of_shards(dtype):
    """A layer that is split by inputs adds in an order that depends on T; 8 blocks and a tree do not."""
    rng = np.random.default_rng(0)
    W, A = rng.standard_normal((16, 64)).astype(dtype), rng.standard_normal((64, 8)).astype(dtype)
    blocks = [product_in_shards(T, W, A, 8) for T in (1, 2, 3, 4, 5, 8)]
    assert all(np.array_equal(Z, blocks[0]) for Z in blocks)
    plain = [product_in_shards(T, W, A, T) for T in (1, 2, 3, 4, 5, 8)]
    assert not any(np.array_equal(Z, plain[0]) for Z in plain[1:])


@pytest.mark.parametrize("N", [1, 2, 4, 8])
def test_communication_takes_a_larger_share_of_a_step_the_more_copies_there_are(N):
    """Of one mini-batch: 24/N ticks of work, and 2 (N - 1)/N of 2048 bytes at 512 bytes a tick."""
    net = mp.DataParallel(
        [mp.Linear(15, 16)], LOSS, N, costs=mp.Costs(F=Fraction(8, N), B=Fraction(16, N)),
        ports=ports(N, Fraction(512)),
    )
    net.forward_backward(np.ones((15, 8)), np.ones((16, 8)))
    communication = Fraction(2 * (N - 1), N) * 4
    assert net.trace.makespan == Fraction(24, N) + communication
    share = communication / net.trace.makespan
    assert share == Fraction(N - 1, N + 2)


# Devices that stand for groups


def stage():
    """One exchange each way: a pair in parts, behind a layer with 1 unit, which is whole."""
    return [mp.Linear(1, 1), mp.Linear(1, 4), mp.Tanh(), mp.Linear(4, 1)]


def rows(trace, of_all):
    """What was done, and which messages of 16 bytes or parts of them went where; what ends a run apart."""
    spans = [(s.device, str(s.label), s.start, s.end) for s in trace.spans]
    messages = [(m.source, m.to, m.sent, m.received, m.n_bytes) for m in trace.messages if of_all(m)]
    return sorted(spans), sorted(messages)


@pytest.mark.parametrize("name, recompute", [("gpipe", False), ("1f1b", True), ("zb-h1", False)])
def test_it_is_the_run_of_a_network_of_which_each_layer_is_in_parts(name, recompute):
    """2 stages on 2 devices each, 2 samples of 8 bytes in a micro-batch."""
    link, costs = mp.Link(latency=Fraction(1, 2), bandwidth=16), mp.Costs(F=1, B=2, message_bytes=16)
    net = mp.Hybrid(stage() + stage(), LOSS, n_shards=2, n_stages=2, n_microbatches=3, schedule=name,
                    recompute=recompute, link=link, costs=costs)
    net.forward_backward(np.ones((1, 6)), np.ones((1, 6)))
    order = with_recompute(build(name, 2, 3), "always" if recompute else "never")
    simulated = simulate_in_shards(order, 2, costs, link, exchanges=1)
    assert rows(simulated, lambda m: True) == rows(net.trace, lambda m: "sums" not in str(m.label))
    assert peak_microbatches(simulated) == peak_microbatches(net.trace)


@pytest.mark.parametrize("T, exchanges", [(2, 1), (4, 2), (3, 0)])
def test_each_exchange_takes_the_time_of_an_all_reduce(T, exchanges):
    """Two chunks of n/T bytes, one after the other, in each F and B, of which there are M + K - 1 in a row;
    and 2 (K - 1) messages of n bytes. Each pair has a link of its own.
    """
    K, M, alpha, n, bandwidth = 3, 4, Fraction(1, 4), 12 * T, 48
    link, costs = mp.Link(alpha, Fraction(bandwidth)), mp.Costs(F=1, B=2, message_bytes=n)
    trace = simulate_in_shards(build("gpipe", K, M), T, costs, link, exchanges=exchanges)
    inside = exchanges * 2 * (alpha + Fraction(12, bandwidth))
    between = 2 * (K - 1) * (alpha + Fraction(n, bandwidth))
    assert trace.n_devices == K * T and trace.makespan == (M + K - 1) * (3 + 2 * inside) + between


def test_one_shard_is_a_simulation_and_copies_do_not_meet_inside_layers():
    order, costs, link = in_copies(build("1f1b", 2, 3), 2), mp.Costs(message_bytes=3), mp.Link(1)
    assert simulate_in_shards(order, 1, costs, link) == mp.simulate(order, costs, link)
    trace = simulate_in_shards(order, 2, costs, link)
    inside = [m for m in trace.messages if "shards" in str(m.label)]
    assert inside and all(m.source // 2 == m.to // 2 for m in inside)


def test_overlaps_have_the_exchanges_of_both_parts():
    order = mp.Schedule.from_text(["0F0 0F1&0B0 0B1"])
    trace = simulate_in_shards(order, 2, link=mp.Link(1), exchanges=1)
    assert trace.makespan == 6 + 4 * 2
    overlap = [s for s in trace.spans_of(0) if "&" in str(s.label)]
    assert [s.end - s.start for s in overlap] == [1, 1, 1]
