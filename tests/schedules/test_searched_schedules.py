"""The search for a small makespan or longest device span, where W may need less than is kept for I."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.schedules import Costs, best_schedule, build, greedy_schedule, names_for
from minipipe.schedules.filling import timed
from minipipe.schedules.named import named_schedules
from minipipe.schedules.request import request_of

V = {K: [*range(K), *reversed(range(K))] for K in range(1, 33)}


def most_kept(schedule, kept_for_W):
    """The most micro-batches that a device keeps: 1 from F to B or I, `kept_for_W` from I to W."""
    most, v = 0, schedule.n_stages // len(schedule.devices)
    for order in schedule.devices:
        kept = 0
        for action in order:
            kept += {"F": 1, "B": -1, "I": kept_for_W - 1, "W": -kept_for_W}[action.kind]
            most = max(most, kept / v)
    return most


@st.composite
def requests(draw):
    """Arguments of `greedy_schedule` with costs and shares whose sums are exact."""
    K, M = draw(st.integers(1, 5)), draw(st.integers(1, 9))
    placement = draw(st.sampled_from([[*range(K)], [*range(K)] * 2, V[K]]))
    v = len(placement) // K
    F, I, W = (draw(st.lists(st.integers(1, 9), min_size=v * K, max_size=v * K)) for _ in range(3))
    return dict(
        n_devices=K, n_microbatches=M, costs=Costs(F=F, B=[i + w for i, w in zip(I, W)], I=I, W=W),
        most_alive=draw(st.one_of(st.none(), st.integers(1, 2 * K))), halves=draw(st.booleans()),
        placement=placement, latency=draw(st.sampled_from([0, 0.5, 3])),
        kept_for_W=draw(st.sampled_from([0, 0.25, 0.5, 1])),
    )


def makespan_and_span(schedule, request):
    """(the makespan, the longest span of a device)"""
    trace = mp.simulate(schedule, request["costs"], mp.Link(latency=request["latency"]))
    spans = map(trace.spans_of, range(trace.n_devices))
    return trace.makespan, max(of_device[-1].end - of_device[0].start for of_device in spans)


@pytest.mark.slow
@settings(max_examples=30)
@given(requests())
def test_no_schedule_with_a_name_is_better_and_no_device_keeps_too_much(request):
    """Not in its makespan, nor in its longest span of a device if a search looks for that."""
    limit = request["most_alive"] or float("inf")
    of_makespan, of_span = (greedy_schedule(**request, objective=of) for of in ("makespan", "span"))
    least, shortest = makespan_and_span(of_makespan, request)[0], makespan_and_span(of_span, request)[1]
    for schedule in (of_makespan, of_span):
        assert not request["halves"] or most_kept(schedule, request["kept_for_W"]) <= limit
    for schedule in [*named_schedules(request_of(**request)), of_makespan, of_span]:
        makespan, span = makespan_and_span(schedule, request)
        if most_kept(schedule, request["kept_for_W"]) <= limit:
            assert least <= makespan and shortest <= span


@pytest.mark.slow
@settings(max_examples=30)
@given(requests().filter(lambda request: len(request["placement"]) == request["n_devices"]))
def test_no_schedule_with_a_name_is_better_than_the_best_so_far(request):
    """Even if the search looks at few nodes."""
    asked = {name: request[name] for name in request if name not in ("placement", "kept_for_W")}
    found = best_schedule(**asked, most_nodes=5)
    for schedule in named_schedules(request_of(**request)):
        if most_kept(schedule, 1) <= (request["most_alive"] or float("inf")):
            assert found.makespan <= makespan_and_span(schedule, request)[0]


def test_the_names_that_a_search_knows_are_all_that_fit():
    """In halves and without, with the stages in a row, round and round, and in a V."""
    K, M = 4, 8
    for halves in (False, True):
        for placement in ([*range(K)], [*range(K)] * 2, V[K]):
            asked = request_of(K, M, Costs(), None, halves, latency=0, placement=placement)
            known = [schedule.devices for schedule in named_schedules(asked)]
            for name in names_for(K, M):
                schedule = build(name, K, M)
                same = schedule.n_copies == 1 and schedule.placement == placement
                if same and schedule.kinds <= set("FIW" if halves else "FB"):
                    assert schedule.devices in known, name


@settings(max_examples=40, deadline=None)
@given(requests(), st.sampled_from([None, 0, 5, 1000]))
def test_the_clock_of_a_search_is_that_of_a_simulation(request, allowance):
    """Starts, ends and orders, with the W where they are or put into gaps."""
    asked = request_of(**request | {"most_alive": None})
    for schedule in named_schedules(asked):
        clock = timed(asked, schedule.devices, allowance)
        trace = mp.simulate(clock.schedule("again"), request["costs"], mp.Link(latency=request["latency"]))
        spans = [trace.spans_of(device) for device in range(trace.n_devices)]
        assert clock.begun == [of_device[0].start for of_device in spans]
        assert clock.free == [of_device[-1].end for of_device in spans]
        if allowance is None:
            assert tuple(map(tuple, clock.orders)) == schedule.devices


def test_a_w_is_put_where_it_fits_and_else_where_waiting_would_exceed_the_allowance():
    """Device 0 waits 2 ticks for 1I0, and would wait 4 for 1I1; its W take 4, or 5 and do not fit."""
    schedule = mp.Schedule.from_text(["F0 F1 I0 I1 W0 W1", "F0 I0 F1 I1 W0 W1"])
    orders = {}
    for W, allowance in [(4, 100), (5, 5), (5, 6)]:
        asked = request_of(2, 2, Costs(F=4, B=2 + W, I=2, W=W), None, True, latency=0)
        orders[W, allowance] = " ".join(map(str, timed(asked, schedule.devices, allowance).orders[0]))
    in_the_gap, behind = "0F0 0F1 0I0 0W0 0I1 0W1", "0F0 0F1 0I0 0I1 0W0 0W1"
    assert orders == {(4, 100): in_the_gap, (5, 5): in_the_gap, (5, 6): behind}


def test_a_w_makes_room_for_a_forward_and_no_order_exceeds_the_limit():
    """Room for 2: W0 must come before F2 if all is kept for it, and need not if nothing is."""
    text = ["F0 F1 I0 W0 F2 I1 W1 I2 W2", "F0 I0 W0 F1 I1 W1 F2 I2 W2"]
    schedule, costs = mp.Schedule.from_text(text), Costs(F=1, B=10, I=1, W=9)
    orders = {}
    for kept_for_W in (1, 0):
        asked = request_of(2, 3, costs, 2, True, latency=0, kept_for_W=kept_for_W)
        orders[kept_for_W] = " ".join(map(str, timed(asked, schedule.devices, allowance=1000).orders[0]))
    assert orders[1] == "0F0 0F1 0I0 0W0 0F2 0I1 0I2 0W1 0W2"
    assert orders[0] == "0F0 0F1 0I0 0F2 0I1 0I2 0W0 0W1 0W2"
    narrow = request_of(2, 3, costs, 1, True, latency=0)
    assert timed(narrow, schedule.devices) is None and timed(narrow, schedule.devices, 0) is None
