"""Closed forms and published figures of splits, met by runs: what is exposed, and when a hybrid ends.

At the end, a schedule whose devices stand for groups is simulated: the run of real layers in parts.
"""

from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.cluster import ports
from minipipe.order import in_copies, with_all_reduce
from minipipe.schedules import build

LOSS = mp.MeanSquaredError()
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
def test_costs_travel_with_gradients_and_add_no_latency(of_a_bucket, ticks):
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
def test_the_sum_of_a_late_stage_hides_in_the_drain_of_1f1b(A, makespan):
    """(M + P - 1)(F + B) + the largest A_r - r B, for P = 4, M = 8: device r ends r B earlier."""
    order = with_all_reduce(in_copies(build("1f1b", 4, 8), 2))
    trace = mp.simulate(order, mp.Costs(F=1, B=2, A=A))
    ends = [max(s.end for s in trace.spans_of(device) if s.label.kind == "B") for device in range(4)]
    assert ends == [33, 31, 29, 27]
    assert trace.makespan == 33 + max(0, *(A[r] - 2 * r for r in range(4))) == makespan


# Published figures


@pytest.mark.parametrize("K, M, bubble", [
    (32, 128, Fraction(31, 128)), (8, 32, Fraction(7, 32)), (2, 8, Fraction(1, 8)), (8, 96, Fraction(7, 96)),
    pytest.param(64, 512, Fraction(63, 512), marks=pytest.mark.slow),  # 65,536 actions
])
def test_published_bubbles(K, M, bubble):
    """(n - d)/128 of n = 32 devices in d copies and 128 micro-batches, arXiv 2104.04473, section 3.3.1; those
    of Megatron-LM's networks of 145.6 billion parameters, 24 copies, and of a trillion, 6 copies.
    """
    assert Fraction(K - 1, M) == bubble
    assert mp.simulate(build("1f1b", K, M)).bubble("ideal") == float(bubble)
