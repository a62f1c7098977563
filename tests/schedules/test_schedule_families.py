"""Schedules against what was published of them: values, orders and bubbles, counted with ==.

The closed forms of makespans and peaks stand in the registry; `test_every_schedule` counts them.
"""

from fractions import Fraction

import pytest
from sampling import one_in

import minipipe as mp
from minipipe.order import peak_microbatches, without_overlaps
from minipipe.schedules import (
    build, chimera, dualpipe, dualpipe_v, eager_one_f_one_b, gpipe, interleaved_one_f_one_b,
    looped_breadth_first, names_for, one_f_one_b, v_half, v_min, zero_bubble_h1, zero_bubble_h2,
    zero_bubble_v,
)
from minipipe.schedules.controllable_memory import _block

COSTS = [(2, 3, 1), (1, 1, 1), (1, 2, 2), (3, 1, 2)]  # F, I, W of all of a device's stages together

LEGAL = {  # for which K and M there is a schedule, if not for all
    "interleaved": lambda K, M: M % max(1, M // K) == 0,
    "interleaved-zb": lambda K, M: M % max(1, M // K) == 0,
    "dualpipe-v": lambda K, M: M >= 2 * K,
    "dualpipe": lambda K, M: K % 2 == M % 2 == 0 and M >= 2 * K,
    "chimera": lambda K, M: K % 2 == M % 2 == 0,
}


def counted(schedule, F, I, W):
    """(makespan, peak per device) for a device's share of the network, however many stages that is."""
    trace = mp.simulate(schedule, mp.Costs(F=F, B=I + W, I=I, W=W))
    return trace.makespan, peak_microbatches(trace)


SIZES = [(K, M) for K in (1, 2, 3, 4) for M in (1, K, K + 1, 2 * K, 4 * K - 1)]


@pytest.mark.parametrize("costs", one_in(4, COSTS))
def test_interleaving_v_ways_has_its_closed_forms(costs):
    F, I, W = costs
    for K, M in SIZES:
        for v in (1, 3):  # v = 2 is what the names stand for
            T = (M + Fraction(K - 1, v)) * (F + I + W)
            if M % K == 0:
                peak = [Fraction(min(M * v, (v - 1) * K + 2 * (K - 1 - r) + 1), v) for r in range(K)]
                assert counted(interleaved_one_f_one_b(K, M, v), F, I, W) == (T, peak), (K, M, v)
            if M >= K:
                assert counted(looped_breadth_first(K, M, v), F, I, W) == (T, [M] * K), (K, M, v)


def test_no_two_passes_of_a_building_block_meet_in_a_slot():
    """Modulo the period of 6; and they would without the waiting that V-Half and V-Min have built in."""
    def meet(K, **waiting):
        return any(len({slot % 6 for slot in slots}) < 4 for slots in _block(K, **waiting))

    for K in range(1, 31):
        half, least = 0 if K % 2 else 3, 0 if K % 3 else 2
        assert not meet(K, climb=2, wait=half, turn=1) and not meet(K, climb=1, wait=least, turn=0)
        assert meet(K, climb=2, wait=0, turn=1) == (half > 0)
        assert meet(K, climb=1, wait=0, turn=0) == (least > 0)
        assert K == 1 or meet(K, climb=2, wait=half, turn=0)


@pytest.mark.parametrize("costs", one_in(2, [(1, 1, 1, 3), (2, 2, 1, 5), (3, 3, 2, 6), (1, 1, 1, 2)]))
def test_dualpipe_and_dualpipe_v_are_idle_as_their_form_says(costs):
    """F = I >= W, and F&B from max(F, B) to F + B. If overlaps gain nothing, all are idle equally long."""
    F, I, W, FB = costs
    B = I + W
    for K in range(1, 5):
        for M in (2 * K, 2 * K + 1, 2 * K + 2, 4 * K):
            both_ways = [(dualpipe(K, M), Fraction(K, 2) - 1, K + 1)] if LEGAL["dualpipe"](K, M) else []
            for schedule, factor, peak in [*both_ways, (dualpipe_v(K, M), Fraction(K - 1, 2), K + 0.5)]:
                trace = mp.simulate(schedule, mp.Costs(F=F, B=B, W=W, FB=FB))
                idle = [trace.makespan - busy for busy in trace.busy_ticks()]
                assert max(idle) == factor * (FB + B - 3 * W), (schedule.name, K, M)
                assert FB < F + B or len(set(idle)) == 1, (schedule.name, K, M)
                assert peak_microbatches(trace) == [peak] * K


@pytest.mark.parametrize("costs", one_in(2, [(1, 1, 1), (1, 1, 3), (3, 2, 2), (3, 1, 2)]))
def test_dualpipe_v_without_overlaps_has_the_makespan_of_zb_v(costs):
    """I <= W and I <= F <= B."""
    F, I, W = costs
    for K in range(1, 5):
        for M in (2 * K, 2 * K + 1, 4 * K):
            T, peak = counted(without_overlaps(dualpipe_v(K, M)), F, I, W)
            assert T == M * (F + I + W) + Fraction(K - 1, 2) * F and peak == [K + Fraction(1, 2)] * K, (K, M)


def test_three_bubbles_of_the_schedules_in_a_v():
    """K = 4, M = 8, F = I = W = 1: a device works 24. Only ZB-V never waits in between."""
    for name, T in [("zb-v", 25.5), ("v-half", 26.5), ("v-min", 29.5), ("dualpipe-v", 27)]:
        trace = mp.simulate(build(name, 4, 8))
        assert trace.bubble("total") == (T - 24) / T and trace.bubble("ideal") == (T - 24) / 24
        assert (trace.bubble("span") == 0) == (name == "zb-v")


PUBLISHED = {  # (makespan, peak) for K = 4, M = 8 and for K = 8, M = 32
    "naive": ((96, 1), (768, 1)), "gpipe": ((33, 8), (117, 32)), "gpipe-fifo": ((33, 8), (117, 32)),
    "1f1b": ((33, 4), (117, 8)), "eager-1f1b": ((33, 7), (117, 15)),
    "interleaved": ((28.5, 5.5), (106.5, 11.5)), "looped": ((28.5, 8), (106.5, 32)),
    "zb-h1": ((27, 4), (103, 8)), "zb-h2": ((27, 7), (103, 15)), "zb-v": ((25.5, 4), (99.5, 8)),
    "interleaved-zb": ((25.5, 4), (99.5, 8)), "v-half": ((26.5, 3), (104.5, 5)),
    "v-min": ((29.5, 2), (109.5, 4)), "dualpipe-v": ((27, 4.5), (103, 8.5)),
    "dualpipe": ((26, 5), (102, 9)), "chimera": ((30, 4), (126, 8)),
}


@pytest.mark.parametrize("place, K, M", [(0, 4, 8), pytest.param(1, 8, 32, marks=pytest.mark.slow)])
def test_published_values(place, K, M):
    """F = I = W = 1, B = 2, free links."""
    for name, published in PUBLISHED.items():
        T, peak = counted(build(name, K, M), 1, 1, 1)
        assert (T, max(peak)) == published[place], name


@pytest.mark.parametrize("schedule, T", [
    (gpipe(8, 32), 131), (one_f_one_b(8, 32), 185), (eager_one_f_one_b(8, 32), 131),
    (interleaved_one_f_one_b(8, 32, v=4), 234.75), (looped_breadth_first(8, 32), 120.5),
    (zero_bubble_h1(8, 32), 151), (zero_bubble_h2(8, 32), 110), (zero_bubble_v(8, 32), 137.5),
], ids=lambda value: getattr(value, "name", None))
def test_slow_links_reverse_the_ranking(schedule, T):
    """K = 8, M = 32, F = I = W = 1, and a message takes 1, whichever share of a device a stage is."""
    assert mp.simulate(schedule, link=mp.Link(latency=1)).makespan == T


def test_orders_are_those_of_the_papers():
    assert str(eager_one_f_one_b(2, 4)) == (
        "device 0: 0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3\ndevice 1: 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3"
    )
    assert str(interleaved_one_f_one_b(2, 2)) == (
        "device 0: 0F0 0F1 2F0 2F1 2B0 2B1 0B0 0B1\ndevice 1: 1F0 1F1 3F0 3B0 3F1 3B1 1B0 1B1"
    )
    assert str(looped_breadth_first(2, 2)) == (
        "device 0: 0F0 0F1 2F0 2F1 2B1 2B0 0B1 0B0\ndevice 1: 1F0 1F1 3F0 3F1 3B1 3B0 1B1 1B0"
    )
    assert str(zero_bubble_h1(2, 3)) == (
        "device 0: 0F0 0F1 0I0 0W0 0F2 0I1 0W1 0I2 0W2\ndevice 1: 1F0 1I0 1F1 1I1 1W0 1F2 1I2 1W1 1W2"
    )
    assert str(zero_bubble_h2(2, 3)) == (
        "device 0: 0F0 0F1 0F2 0I0 0W0 0I1 0W1 0I2 0W2\ndevice 1: 1F0 1I0 1F1 1I1 1F2 1I2 1W0 1W1 1W2"
    )
    assert str(zero_bubble_v(3, 5)).splitlines()[1] == (
        "device 1: 1F0 1F1 1F2 4F0 1F3 4F1 4I0 4W0 4F2 4I1 4W1 1F4 1I0 1W0 4F3 4I2 4W2 1I1 1W1 4F4 4I3 4W3 "
        "1I2 4I4 1I3 1W2 1I4 1W3 4W4 1W4"
    )
    assert str(v_min(2, 2)) == (
        "device 0: 0F0 3F0 3I0 0F1 3W0 0I0 0W0 3F1 3I1 3W1 0I1 0W1\ndevice 1: 1F0 2F0 2I0 1I0 1F1 2F1 2W0 "
        "1W0 2I1 1I1 2W1 1W1"
    )
    assert str(dualpipe(2, 4)) == (
        "device 0: 0F0 1F2 0F1 1B2 1F3&0B0 1B3 0I1 0W1\ndevice 1: 0F2 1F0 0F3 1B0 1F1&0B2 1B1 0I3 0W3"
    )
    assert str(dualpipe_v(2, 4)) == (
        "device 0: 0F0 0F1 0F2 3F0 3I0 3W0 3F1 0F3&3B1 3F2&0B0 3B2 3F3&0B1 3B3 0I2 0W2 0I3 0W3\n"
        "device 1: 1F0 2F0 1F1 2F1 1F2 2B0 2F2&1B0 1F3&2B1 2F3&1B1 2B2 1B2 2I3 1I3 2W3 1W3"
    )
    assert str(chimera(4, 4)) == (
        "device 0: 0F0 0F1 3F2 3B2 3F3 3B3 0B0 0B1\ndevice 1: 1F0 2F2 1F1 2F3 2B2 1B0 2B3 1B1\n"
        "device 2: 1F2 2F0 1F3 2F1 2B0 1B2 2B1 1B3\ndevice 3: 0F2 0F3 3F0 3B0 3F1 3B1 0B2 0B3"
    )
    for schedule in (zero_bubble_v(3, 5), v_half(3, 5), v_min(3, 5), dualpipe_v(3, 6)):
        assert schedule.placement == [0, 1, 2, 2, 1, 0]
    for schedule in (dualpipe(4, 8), chimera(4, 8)):
        assert schedule.placements == [[0, 1, 2, 3], [3, 2, 1, 0]]
        assert schedule.copy_of == (0, 0, 0, 0, 1, 1, 1, 1)
    for schedule in (interleaved_one_f_one_b(3, 3), looped_breadth_first(3, 5)):
        assert schedule.placement == [0, 1, 2, 0, 1, 2]


def test_sizes_are_refused_exactly_where_there_is_no_schedule():
    """K = 1..4, M = 1..9. New names are not in this table; what they refuse must say what fits instead."""
    for K in range(1, 5):
        for M in range(1, 10):
            legal = {name for name in PUBLISHED if name not in LEGAL or LEGAL[name](K, M)}
            assert legal == PUBLISHED.keys() & set(names_for(K, M)), (K, M)


def test_two_actions_in_the_wrong_order_are_one_fault():
    faults = mp.Schedule.from_text(["F0 W0 I0", "F0 B0"]).faults()
    assert faults == ["device 0: 0W0 comes before 0I0, the other half, which it needs"]
