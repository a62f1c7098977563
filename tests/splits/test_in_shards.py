"""A schedule whose devices stand for groups, simulated: the run of real layers in parts, and closed forms."""

from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.planning import simulate_in_shards
from minipipe.schedules import build, in_copies, peak_microbatches, with_recompute

LOSS = mp.MeanSquaredError()


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
