"""The best schedule against every order there is and the closed forms, and the greedy one against both."""

import itertools
import random
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.order import Action, Costs, best_schedule, greedy_schedule, peak_microbatches
from minipipe.order.greedy import named_schedules, request_of, timed
from minipipe.schedules import build, interleaved_one_f_one_b, names_for, one_f_one_b

V = {K: [*range(K), *reversed(range(K))] for K in range(1, 9)}


def simulated(schedule, costs, latency=0):
    return mp.simulate(schedule, costs, mp.Link(latency=latency)).makespan


# ---- the search against every order of the labelled actions

def orders(device, M, kinds, limit, in_turn=False):
    """Every order of a device's actions in which a micro-batch's kinds follow one another.

    limit: the most micro-batches that are alive.
    in_turn: only those in which each kind takes the micro-batches as they come.
    """
    def complete(order, next_kind):
        if len(order) == M * len(kinds):
            yield tuple(order)
        alive = sum(0 < count < len(kinds) for count in next_kind)
        for i, count in enumerate(next_kind):
            follows = not in_turn or i == 0 or next_kind[i - 1] > count
            if count < len(kinds) and (count or alive < limit) and follows:
                rest = next_kind[:i] + [count + 1] + next_kind[i + 1:]
                yield from complete([*order, Action(kinds[count], device, i)], rest)
    return complete([], [0] * M)


def shortest_of_all(K, M, ticks, latency, kinds, limits, in_turn=False):
    """The smallest makespan over all orders of all devices: nothing is assumed about waiting."""
    best = float("inf")
    for devices in itertools.product(*(list(orders(r, M, kinds, limits[r], in_turn)) for r in range(K))):
        best = min(best, makespan_of(devices, K, ticks, latency))
    return best


def makespan_of(devices, K, ticks, latency):
    ends, free, heads = {}, [0] * K, [0] * K
    moved = True
    while moved:
        moved = False
        for r, order in enumerate(devices):
            while heads[r] < len(order):
                kind, _, i = order[heads[r]]
                source = {"F": r - 1, "B": r + 1, "I": r + 1, "W": -1}[kind]
                if 0 <= source < K and (kind, source, i) not in ends:
                    break
                arrival = ends[kind, source, i] + latency if 0 <= source < K else 0
                free[r] = ends[kind, r, i] = max(free[r], arrival) + ticks[kind][r]
                heads[r] += 1
                moved = True
    return max(free) if all(head == len(order) for head, order in zip(heads, devices)) else float("inf")


@pytest.mark.parametrize("K, M, halves, times", [
    (2, 2, False, 40), (2, 2, True, 12), (3, 2, False, 20), (2, 3, False, 3),
])
def test_no_order_of_the_labelled_actions_is_shorter(K, M, halves, times):
    """Unequal stages, any limits, free and slow links: this enumeration takes no order for granted."""
    draw = random.Random(K + 10 * M + halves)
    for _ in range(times):
        ticks = {kind: [draw.randint(1, 6) for _ in range(K)] for kind in "FBIW"}
        limits, latency = [draw.randint(1, M) for _ in range(K)], draw.choice([0, 0, 1, 3])
        found = best_schedule(K, M, Costs(**ticks), limits, halves, latency)
        assert found.proved
        shortest = shortest_of_all(K, M, ticks, latency, "FIW" if halves else "FB", limits)
        assert found.makespan == shortest, (ticks, limits, latency)


@pytest.mark.parametrize("K, M, halves, limits, F, B, I, W", [
    (4, 3, False, [2, 3, 3, 3], [7, 3, 5, 1], [2, 2, 8, 4], None, None),
    pytest.param(4, 3, False, [3, 2, 3, 1], [6, 5, 7, 1], [9, 7, 7, 2], None, None, marks=pytest.mark.slow),
    (2, 3, True, [2, 2], [5, 9], [12, 11], [7, 3], [5, 8]),
    (2, 3, True, [2, 2], [5, 5], [13, 15], [5, 7], [8, 8]),
])
def test_no_part_is_dropped_for_one_that_only_looks_better(K, M, halves, limits, F, B, I, W):
    """Two partial schedules with the same actions done differ in what is free, or arrives, one tick later."""
    found = best_schedule(K, M, Costs(F=F, B=B, I=I, W=W), limits, halves)
    ticks = {"F": F, "B": B, "I": I, "W": W}
    assert found.makespan == shortest_of_all(K, M, ticks, 0, "FIW" if halves else "FB", limits, in_turn=True)


# ---- the search against the closed forms

@pytest.mark.parametrize("costs", one_in(2, [(1, 2), (1, 1), (3, 1), (2, 5)]))
def test_no_schedule_with_k_minus_r_alive_is_shorter_than_1f1b(costs):
    F, B = costs
    for K, M in itertools.product(range(1, 5), range(1, 5)):
        found = best_schedule(K, M, Costs(F=F, B=B), [K - r for r in range(K)])
        assert found.proved and found.makespan == (M + K - 1) * (F + B)
        assert found.makespan == simulated(one_f_one_b(K, M), Costs(F=F, B=B))


def test_unequal_stages_can_beat_1f1b_in_its_memory():
    costs = Costs(F=[2, 4, 1], B=[6, 1, 1])
    found = best_schedule(3, 5, costs, [3, 2, 1])
    assert found.proved and found.makespan == 43 and simulated(one_f_one_b(3, 5), costs) == 45


def test_one_micro_batch_at_a_time_is_the_naive_schedule():
    assert best_schedule(3, 4, most_alive=1).makespan == 3 * 4 * (1 + 2)


@pytest.mark.parametrize("costs", one_in(2, [(2, 2, 1), (1, 1, 1), (2, 3, 1), (3, 2, 2)]))
def test_the_zero_bubble_schedules_are_the_best_in_their_memory(costs):
    """K alive: M(F+B) + (K-1)(F+I-W), that of ZB-H1; 2K - 1 alive and I <= F: M(F+B) + (K-1)F, that of ZB-H2.

    The second is a bound without any limit: the last stage cannot begin before (K-1)F, and then has M(F+B) to
    do.
    """
    F, I, W = costs
    costs = Costs(F=F, B=I + W, I=I, W=W)
    for K, M in [(2, 3), (2, 6), (3, 5)]:
        within_K, within_twice = (best_schedule(K, M, costs, limit, halves=True) for limit in (K, 2 * K - 1))
        assert within_K.proved and within_K.makespan == M * (F + I + W) + (K - 1) * (F + I - W)
        assert within_K.makespan == simulated(build("zb-h1", K, M), costs)
        if I <= F:
            assert within_twice.makespan == M * (F + I + W) + (K - 1) * F
            assert within_twice.makespan == simulated(build("zb-h2", K, M), costs)
            assert within_twice.proved
            assert within_twice.makespan == best_schedule(K, M, costs, halves=True).makespan


def test_a_search_that_gives_up_says_so():
    """Unequal stages for which the schedule that the search starts from is not the best one."""
    costs = Costs(F=[2, 5, 3], B=[12, 5, 2], I=[7, 3, 1])
    short, full = (best_schedule(3, 3, costs, 2, halves=True, most_nodes=most) for most in (1, 10_000))
    assert (short.proved, short.bound, short.makespan, short.n_nodes) == (False, 52, 60, 1)
    assert simulated(short.schedule.validate(2), costs) == 60
    assert (full.proved, full.bound, full.makespan) == (True, 52, 52)


def test_a_search_has_a_limit_of_time_and_tells_what_it_has_found(monkeypatch):
    """A clock that goes on by a second for each look at it, and a report at each."""
    monkeypatch.setattr(time, "perf_counter", itertools.count().__next__)
    costs, told = Costs(F=[2, 5, 3], B=[12, 5, 2], I=[7, 3, 1]), []
    found = best_schedule(3, 3, costs, 2, halves=True, seconds=20, on_progress=told.append)
    assert told[-1] == found and (found.proved, len(told)) == (False, 19)
    assert [each.n_nodes for each in told[:-1]] == [*range(18)]
    makespans = [each.makespan for each in told]
    assert makespans == sorted(makespans, reverse=True) and makespans[0] == 60
    assert all(each.bound == 52 and simulated(each.schedule, costs) == each.makespan for each in told)


def test_nodes_are_bounded_before_the_first_complete_schedule():
    """384 actions, so a search that goes on to its first complete schedule looks at 384 nodes."""
    found = best_schedule(8, 16, Costs(), 4, halves=True, latency=1, most_nodes=20)
    assert not found.proved and found.n_nodes == 20
    assert found.bound < found.makespan == simulated(found.schedule.validate(4), Costs(), latency=1)


@pytest.mark.slow
def test_in_a_profile_of_a_gpu_the_search_proves_zb_h1_at_once():
    """ZB-H1's 1310.405 is the bound (Qi et al. 2023, 1.5B on 8 devices, in ms); one node will do."""
    costs = Costs(F=18.522, B=18.086 + 9.337, I=18.086, W=9.337)
    found = best_schedule(8, 24, costs, 8, halves=True, latency=0.601, most_nodes=20)
    assert found.proved and found.makespan == simulated(build("zb-h1", 8, 24), costs, 0.601)
    greedy = greedy_schedule(8, 24, costs, 8, halves=True, latency=0.601)
    assert simulated(greedy, costs, 0.601) == found.makespan


@pytest.mark.slow
def test_a_search_starts_from_names_in_the_kinds_asked_for():
    """Interleaved 1F1B with four stages a device, where no halves are wanted, and with each B as I and W."""
    schedule = interleaved_one_f_one_b(4, 8, v=4)
    for halves in (False, True):
        greedy = greedy_schedule(4, 8, halves=halves, v=4)
        assert simulated(greedy, Costs()) <= simulated(schedule, Costs())
        assert greedy.kinds == set("FIW" if halves else "FB")


@pytest.mark.parametrize("K, M", [
    (2, 3), (4, 4), (5, 3), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in [(3, 8), (4, 8)]),
])
def test_search_prefers_the_order_with_less_memory_if_equally_fast(K, M):
    """As 1F1B does: min(M, K - r) micro-batches on device r; with halves, no more than that on any device."""
    for search in (lambda *sizes: best_schedule(*sizes).schedule), greedy_schedule:
        found = mp.simulate(search(K, M))
        assert found.makespan == 3 * (M + K - 1)
        assert peak_microbatches(found) == [min(M, K - r) for r in range(K)]
    halves = best_schedule(K, M, Costs(F=1, I=1, W=1), halves=True).schedule
    assert max(peak_microbatches(mp.simulate(halves))) <= min(M, K)


def test_costs_of_tenths_are_compared_without_rounding():
    costs = Costs(F=0.1, B=0.2, I=0.1)
    for limit in (3, 5):
        found = best_schedule(3, 5, costs, limit, halves=True)
        assert found.proved and found.bound == found.makespan == simulated(found.schedule, costs)


# ---- both

sizes = st.tuples(st.integers(1, 3), st.integers(1, 4))
numbers = st.one_of(st.integers(1, 9), st.floats(0.1, 9))


@settings(max_examples=25, deadline=None)
@given(st.data(), sizes, st.booleans(), st.sampled_from([0, 1, 2.5]))
def test_a_schedule_that_is_found_keeps_limit_and_makespan(data, size, halves, latency):
    K, M = size
    F, I, W = (data.draw(st.lists(numbers, min_size=K, max_size=K)) for _ in range(3))
    costs = Costs(F=F, B=[i + w for i, w in zip(I, W)], I=I, W=W)
    limits = data.draw(st.lists(st.integers(1, M), min_size=K, max_size=K))
    found = best_schedule(K, M, costs, limits, halves, latency, most_nodes=50)
    greedy = greedy_schedule(K, M, costs, limits, halves, latency=latency)
    assert found.makespan == simulated(found.schedule.validate(limits), costs, latency)
    rounding = 1 - 1e-14 * 3 * K * M  # a sum of at most 3KM costs, each addition off by 2^-53 of it
    assert simulated(greedy.validate(limits), costs, latency) >= found.bound * rounding


@settings(max_examples=25, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 4), st.booleans())
def test_the_greedy_schedule_never_gets_stuck(data, K, M, halves):
    """Stages anywhere, and only just room for one micro-batch on each device, or a little more."""
    more = data.draw(st.lists(st.integers(0, K - 1), max_size=4))
    placement = data.draw(st.permutations([*range(K), *more]))
    limits = [placement.count(r) + data.draw(st.integers(0, 2)) for r in range(K)]
    schedule = greedy_schedule(K, M, most_alive=limits, halves=halves, placement=placement)
    assert schedule.validate(limits).placement == list(placement)


# ---- the greedy schedule against the closed forms

@pytest.mark.parametrize("K, M", [
    (3, 6), *(pytest.param(*sizes, marks=pytest.mark.slow) for sizes in [(4, 8), (5, 12), (7, 14), (8, 16)]),
])
def test_the_greedy_schedule_reaches_the_closed_forms(K, M):
    assert simulated(greedy_schedule(K, M, most_alive=[K - r for r in range(K)]), Costs()) == (M + K - 1) * 3
    for F, I, W in [(1, 1, 1), (2, 2, 1), (1, 2, 1)]:
        costs = Costs(F=F, B=I + W, I=I, W=W)
        limits = K, 2 * K - 1
        within_K, within_twice = (greedy_schedule(K, M, costs, limit, halves=True) for limit in limits)
        assert simulated(within_K, costs) == M * (F + I + W) + (K - 1) * (F + I - W)
        assert simulated(within_twice, costs) == M * (F + I + W) + (K - 1) * F
    in_a_v = greedy_schedule(K, M, Costs(), K, halves=True, placement=V[K])
    assert simulated(in_a_v, Costs()) == M * 3 + (K - 1) / 2


def test_several_stages_on_each_device_without_halves():
    """Interleaved 1F1B takes 28.5 ticks with 5.5 alive; the order of its variant with halves needs 4, so that
    is found, however much there is room for.
    """
    for limit in 4, 5.5:
        greedy = greedy_schedule(4, 8, Costs(), limit, v=2)
        assert greedy.placement == [0, 1, 2, 3] * 2 and simulated(greedy.validate(limit), Costs()) == 28.5
        assert greedy.name == "interleaved-zb+whole"


def test_the_greedy_schedule_knows_how_long_messages_take():
    """46 ticks with whole backwards and 39 with halves are also the best; without it, 49 and 41."""
    for halves, T in [(False, 46), (True, 39)]:
        greedy = greedy_schedule(4, 8, Costs(), 4, halves, latency=1)
        assert simulated(greedy, Costs(), latency=1) == T
        assert best_schedule(4, 8, Costs(), 4, halves, latency=1).makespan == T


# ---- names, W that needs less than is kept for I, and the longest span of a device

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
    K, M = draw(st.integers(1, 4)), draw(st.integers(1, 5))
    placement = draw(st.sampled_from([[*range(K)], [*range(K)] * 2, V[K]]))
    v = len(placement) // K
    F, I, W = (draw(st.lists(st.integers(1, 9), min_size=v * K, max_size=v * K)) for _ in range(3))
    return dict(
        devices=K, microbatches=M, costs=Costs(F=F, B=[i + w for i, w in zip(I, W)], I=I, W=W),
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
def test_no_name_is_better_and_no_device_keeps_too_much(request):
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
def test_the_clock_of_a_search_matches_a_simulation(request, allowance):
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


def test_a_w_is_put_where_it_fits_or_waits_too_long():
    """Device 0 waits 2 ticks for 1I0, and would wait 4 for 1I1; its W take 4, or 5 and do not fit."""
    schedule = mp.Schedule.from_text(["F0 F1 I0 I1 W0 W1", "F0 I0 F1 I1 W0 W1"])
    orders = {}
    for W, allowance in [(4, 100), (5, 5), (5, 6)]:
        asked = request_of(2, 2, Costs(F=4, B=2 + W, I=2, W=W), None, True, latency=0)
        orders[W, allowance] = " ".join(map(str, timed(asked, schedule.devices, allowance).orders[0]))
    in_the_gap, behind = "0F0 0F1 0I0 0W0 0I1 0W1", "0F0 0F1 0I0 0I1 0W0 0W1"
    assert orders == {(4, 100): in_the_gap, (5, 5): in_the_gap, (5, 6): behind}


def test_a_w_makes_room_for_a_forward_within_the_limit():
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


# ---- what is refused

SEARCHES = {"best": best_schedule, "greedy": greedy_schedule}
OF_BOTH = [
    (dict(devices=0, microbatches=4), "devices=0 must be at least 1"),
    (dict(most_alive=0), "device 0: most_alive=0 must be at least 1"),
    (dict(most_alive=[2, -1]), "device 1: most_alive=-1 must be at least 1"),
    (dict(most_alive=[2, 1, 1]), "most_alive has 3 limits for 2 devices: give one number, or one per device"),
    (dict(most_alive=0.5), "device 0: most_alive=0.5 must be at least 1"),
    (dict(most_alive=2j), "device 0: most_alive=2j must be a number"),
    (dict(costs=Costs(F=-1)), "stage 0: F=-1 must be above 0 ticks"),
    (dict(costs=Costs(F=[1, 2, 3])), "F has 3 costs for 2 stages"),
    (dict(latency=-1), "latency=-1 must be at least 0 ticks"),
]


@pytest.mark.parametrize("search, arguments, words", [
    *((search, *row) for search in SEARCHES for row in OF_BOTH),
    ("best", dict(costs=Costs(A=3)), "leave A and U out"),
    ("best", dict(most_nodes=0), "most_nodes=0 must be at least 1"),
    ("greedy", dict(v=2, most_alive=0.5), "device 0: most_alive=0.5 must be at least 1"),
    ("greedy", dict(v=0), "v=0 must be at least 1"),
    ("greedy", dict(placement=[0, 2]), "placement=[0, 2] must have each of the devices 0..1"),
    ("greedy", dict(placement=[0, 1, 1, 0], v=2), "give one of them"),
    ("greedy", dict(objective="time"), "objective='time' must be one of 'makespan', 'span'"),
    ("greedy", dict(halves=True, kept_for_W=1.5), "kept_for_W=1.5 must be at least 0 and at most 1"),
    ("greedy", dict(halves=True, kept_for_W="all"), "kept_for_W='all' must be a number"),
])
def test_arguments_that_make_no_sense_are_refused(search, arguments, words):
    with pytest.raises(ValueError) as error:
        SEARCHES[search](**dict(devices=2, microbatches=4) | arguments)
    assert words in str(error.value)
