"""Schedules against what was published of them, counted with ==, and every fault of an order by name.

The closed forms of makespans and peaks stand in the registry; `test_every_schedule` counts them.
"""

from collections import Counter
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, example, given, settings, strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.order import (
    Action, Schedule, ScheduleError, in_copies, peak_microbatches, peak_versions, staleness, with_all_reduce,
    with_recompute, with_updates,
)
from minipipe.schedules import (
    SCHEDULES, build, chimera, dualpipe, dualpipe_v, eager_one_f_one_b, gpipe, interleaved_one_f_one_b,
    looped_breadth_first, naive, names_for, names_having, one_f_one_b, v_half, v_min, zero_bubble_h1,
    zero_bubble_h2, zero_bubble_v,
)

MISSING = "(missing): every stage needs F and B (or I and W) of micro-batches 0..1"
SIZES = [(K, M) for K in (1, 2, 3, 5, 8) for M in (1, 2, 3, 5, 8, 20)]  # M < K included


def test_the_bubble_of_the_worst_device_is_zero_bubbles_rate():
    """K = 8, M = 24, F = I = W: 22.6 % for 1F1B, 8.86 % for ZB-H1, 0 for ZB-H2 (arXiv 2401.10241)."""
    rates = {name: mp.simulate(build(name, 8, 24)).bubble("worst") for name in ("1f1b", "zb-h1", "zb-h2")}
    assert rates == {"1f1b": 21 / 93, "zb-h1": 7 / 79, "zb-h2": 0}
    for K, M in SIZES:
        assert mp.simulate(one_f_one_b(K, M)).bubble("worst") == (K - 1) / (M + K - 1)


def test_a_device_that_never_works_has_no_span_of_its_own():
    trace = mp.simulate(Schedule.from_text(["0F0 0B0", "0F1 0B1", ""], copy_of=[0, 1]))
    assert trace.n_devices == 3 and trace.bubble("span") == trace.bubble("worst") == 0


def test_recomputation_hides_in_the_bubble_while_a_device_waits():
    """GPipe with R = F: only the last device has no gap for its first R, which saves the others (K - 1) R."""
    for K, M in SIZES:
        trace = mp.simulate(with_recompute(gpipe(K, M)), mp.Costs(F=1, B=2, R=1))
        assert trace.makespan == (M + K - 1) * (1 + 1 + 2) - (K - 1) * 1


@pytest.mark.parametrize("lines, n_microbatches, faults", [
    (["F0 F1 B0 B1", "F0 B0 F1 B1 F90"], 2, ["device 1: 1F90 is unknown: micro-batches are 0..1"]),
    (["F1 F2 B1 B2", "F0 B0 F1 B1"], 2, ["device 0: 0F2 is unknown: micro-batches are 0..1",
                                         "device 0: 0B2 is unknown: micro-batches are 0..1",
                                         f"device 0 never does 0F0 {MISSING}",
                                         f"device 0 never does 0B0 {MISSING}"]),
    (["F0 F1 B0 B1"], 2, []), (["0F0 1F0 1B0 0B0 0F1 1F1 1B1 0B1", ""], 2, []),
])
def test_an_index_on_one_device_only_is_to_blame_itself(lines, n_microbatches, faults):
    schedule = Schedule.from_text(lines)
    assert (schedule.n_microbatches, schedule.faults()) == (n_microbatches, faults)


def test_a_message_has_one_line_for_each_kind_of_fault():
    lines = [" ".join(f"F{i}" for i in range(500)), "F0 F0 B0 " + " ".join(f"F{i}" for i in range(1, 500))]
    first, second = Schedule.from_text(lines).devices
    with pytest.raises(ScheduleError) as caught:
        Schedule((first, (*second, Action("Q", 1, 1))), 2, 500).validate()
    _, *shown = str(caught.value).splitlines()
    assert [line[2:50] for line in shown] == [
        "device 1: 1Q1 is of unknown kind 'Q': use F, B, ",
        "device 1: 1F0 is done already (duplicated): once",
        "device 0 never does 0B0 (missing): every stage n",
    ]
    assert len(caught.value.faults) == 1001 and shown[2].endswith(" (and 998 more like it)")


@pytest.mark.parametrize("lines, words", [
    (["F0 F1 B0", "F0 B0 F1 B1"], "device 0 never does 0B1 (missing)"),
    (["F0 F0 B0"], "device 0: 0F0 is done already (duplicated): once is enough"),
    (["F0 B0 B0"], "device 0: 0B0 is done already (duplicated): once is enough, as B, or as I and W"),
    (["B0 F0"], "device 0: 0B0 comes before its forward 0F0"),
    (["R0 F0 B0"], "device 0: 0R0 comes before its forward 0F0"),
    (["F0 B0 R0"], "device 0: 0R0 comes after 0B0, which needs it"),
    (["F0 R0 R0 B0"], "device 0: 0R0 is done already (duplicated): once is enough"),
    (["F0 B0", "0F0 0B0 1F0 1B0"], "stage 0 is on devices 0, 1"),
    (["0F0 1F0 1B0 0B0", "0F1 1F1 1B1 0B1"],
     "stage 0 is on devices 0, 1: a stage's parameters are on one device only"),
    (["0F0 0B0", "2F0 2B0"], "no device does 1F0 (missing)"),
    (["1F0 0F0 0B0 1B0"], "deadlock: device 0 cannot start 1F0 before 0F0 on device 0"),
    (["F0 B0 F1 B1", "F1 B1 F0 B0"],
     "deadlock: device 0 cannot start 0B0 before 1B0 on device 1, and device 1 cannot start 1F1 before 0F1 "
     "on device 0"),
    # Backwards in halves
    (["F0 I0", "F0 I0 W0"],
     "device 0 never does 0W0 (missing): every stage needs F and B (or I and W) of micro-batches 0..0"),
    (["F0 W0 I0", "F0 B0"], "device 0: 0W0 comes before 0I0, the other half, which it needs"),
    (["F0 B0", "F0 B0 W0"], "device 1: 1W0 is done already (duplicated): once is enough, as B, or"),
    (["F0 B0 I0 W0", "F0 B0"], "device 0: 0I0 is done already (duplicated): once is enough, as B, or"),
    (["F0 I0 W0 W0", "F0 B0"], "device 0: 0W0 is done already (duplicated): once is enough"),
    (["I0 F0 W0", "F0 B0"], "device 0: 0I0 comes before its forward 0F0"),
    (["F0 I0 R0 W0", "F0 B0"], "device 0: 0R0 comes after 0I0, which needs it"),
    (["F0 W0", "F0 B0"],
     "device 0 never does 0I0 (missing): every stage needs F and B (or I and W) of micro-batches 0..0"),
    (["F0 I0 F1 I1 W0 W1", "F1 I1 F0 I0 W0 W1"],
     "deadlock: device 0 cannot start 0I0 before 1I0 on device 1, and device 1 cannot start 1F1 before 0F1 "
     "on device 0"),
])
def test_faults_are_named_with_their_place(lines, words):
    schedule = Schedule.from_text(lines)
    assert any(words in fault for fault in schedule.faults())
    with pytest.raises(ScheduleError, match="cannot run"):
        schedule.validate()


def test_a_deadlock_names_only_those_who_wait_for_each_other():
    """Device 0 is stuck, too, but only because devices 1 and 2 are."""
    (fault,) = Schedule.from_text(["F0 F1 B0 B1", "F0 B0 F1 B1", "F1 B1 F0 B0"]).faults()
    assert fault.startswith("deadlock: device 1 cannot start 1B0") and "device 0 cannot" not in fault


def test_a_fault_has_a_place_and_a_run_ends_where_it_stops():
    lines = ["F0 F1 F2 B0 B1 B2", "F0 B0 F1 F2 B1 B2", "F0 F1 F2 B1 B0 B2"]
    trace = mp.simulate(lines, as_far_as_it_goes=True)
    assert [(str(span.label), span.start) for span in trace.spans] == [
        ("0F0", 0), ("0F1", 1), ("1F0", 1), ("0F2", 2), ("2F0", 2)
    ]
    stop = trace.stop
    assert "drain" not in [idle.reason for idle in trace.idle]
    assert (stop.n_done, str(stop)) == ([3, 1, 1], stop.faults[0])
    assert [(str(each.action), str(each.needs), each.source) for each in stop.standing.values()] == [
        ("0B0", "1B0", 1), ("1B0", "2B0", 2), ("2F1", "1F1", 1)
    ]
    lines = ["F0 Q7 B0", "device 1: F0 B0 BB"]
    with pytest.raises(ScheduleError, match="2 words are not actions") as caught:
        Schedule.from_text(lines)
    assert [(fault.device, fault.position) for fault in caught.value.faults] == [(0, 1), (1, 2)]
    faults = Schedule.from_text(["F0 F1 B0", "F0 F1&B0 B1 F7"], microbatches=2).faults()
    assert [(fault.device, fault.position) for fault in faults] == [(1, 3), (0, None)]
    assert Schedule.from_text("1F0 1B0").placement == [None, 0]


def sum_before_each_update(schedule):
    """PipeDream with data parallelism: an all-reduce of the gradients that each update applies."""
    devices = []
    for order in schedule.devices:
        devices.append([])
        for action in order:
            devices[-1] += [action] if action.kind != "U" else [Action("A", *action[1:]), action]
    return replace(schedule, devices=tuple(map(tuple, devices)))


SMALL = [(1, 1), (2, 2), (2, 3), (2, 4), (3, 3)]


@st.composite
def changed_schedules(draw):
    """A schedule of any builder in which some actions are swapped, dropped, doubled, moved or renamed.

    Some have several copies, each on devices of its own, and all-reduces and updates. Sometimes what is said
    of the copies is wrong, too.
    """
    name = draw(st.sampled_from(sorted(SCHEDULES.load())))
    K, M = draw(st.sampled_from(SMALL))
    assume(name in names_for(K, M) or (name in names_having(flush=False) and M % K == 0))
    schedule = build(name, K, M)
    schedule = in_copies(schedule, draw(st.integers(1, 2)))
    ways = [sum_before_each_update] if "U" in schedule.kinds else [with_all_reduce, with_updates]
    schedule = draw(st.sampled_from([*ways, lambda schedule: schedule]))(schedule)
    M = schedule.n_microbatches
    devices = [list(order) for order in schedule.devices]
    for change in draw(st.lists(st.sampled_from(["swap", "drop", "double", "move", "rename"]), max_size=3)):
        order, other = draw(st.sampled_from(devices)), draw(st.sampled_from(devices))
        if not order:
            continue
        place, to = draw(st.integers(0, len(order) - 1)), draw(st.integers(0, len(other)))
        if change == "swap":
            order[place], order[to % len(order)] = order[to % len(order)], order[place]
        elif change == "rename":
            _, stage, i = order[place].parts[0]
            kind, up, later = (draw(st.sampled_from(of)) for of in ("FBIWRAUX", (-1, 0, 1), (-1, 0, 1)))
            order[place] = Action(kind, stage + up, i + later)
        else:
            action = order[place] if change == "double" else order.pop(place)
            if change != "drop":
                other.insert(to, action)
    copy_of = draw(st.sampled_from([schedule.copy_of, (0, 1), (1,) * M, (0,) * M, (0, 1) * M, (-1, 2) * M]))
    return replace(schedule, devices=tuple(map(tuple, devices)), copy_of=copy_of)


def comes_to_its_end(schedule):
    """Whether every action can be done once what it needs has been, until all is complete: in rounds."""
    copy_of = schedule.copy_of or (0,) * schedule.n_microbatches
    if len(copy_of) != schedule.n_microbatches or set(copy_of) != set(range(max(copy_of) + 1)):
        return False
    stages, last = range(schedule.n_stages), schedule.n_stages - 1
    every = [(device, *part) for device in range(len(schedule.devices)) for part in schedule.parts(device)]
    kinds = {kind for _, kind, _, _ in every}
    devices_of = {s: {device for device, _, stage, _ in every if stage == s} for s in stages}
    done, home, updated = set(), {}, Counter()
    open_gradients, summed, over = {}, {}, set()  # of a stage on a device, since its last update
    lanes = [[] for _ in schedule.devices]

    def possible(device, kind, s, i):
        if kind not in "FBIWRAU" or s not in stages or i not in range(len(copy_of)):
            return False
        if home.setdefault((copy_of[i], s), device) != device:
            return False
        here, F, I, W, R = (s, device), *((k, s, i) in done for k in "FIWR")
        backward, gradients = {("B", s, i), ("I", s, i)} & done, open_gradients.get((s, device), set())
        above = s == last or {("B", s + 1, i), ("I", s + 1, i)} & done
        if kind == "A":
            return i in gradients and max(gradients) == i and here not in summed
        if kind == "U":
            alone = "A" not in kinds and len(devices_of[s]) == 1
            return i in gradients and max(gradients) == i and (here in over or alone)
        if (kind in "BW" and here in summed) or (updated[here] and not schedule.versions):
            return False
        too_new = schedule.versions and schedule.versions[s][i] > updated[here]
        return bool({
            "F": not F and not too_new and (s == 0 or ("F", s - 1, i) in done),
            "B": F and not backward and above, "I": F and not backward and above,
            "W": I and not W, "R": F and not backward and not R,
        }[kind])

    def do(device, kind, s, i):
        here = s, device
        done.add((kind, s, i))
        if kind in "BW":
            open_gradients.setdefault(here, set()).add(i)
        elif kind == "A":
            summed[here] = i
            lanes[device].append(s)
        elif kind == "U":
            updated[here] += 1
            open_gradients.pop(here)
            summed.pop(here, None)
            over.discard(here)

    def meet():
        """The all-reduces that are the first of all lanes where they belong are over."""
        for s in stages:
            if devices_of[s] and all(lanes[device][:1] == [s] for device in devices_of[s]):
                over.update((lanes[device].pop(0), device) for device in devices_of[s])
                return True
        return False

    left, moved = [list(order) for order in schedule.devices], True
    while moved:
        moved = meet()
        for device, order in enumerate(left):
            while order and all(possible(device, *part) for part in order[0].parts):
                for part in order.pop(0).parts:
                    do(device, *part)
                moved = True
    complete = all({("B", s, i), ("W", s, i)} & done for s in stages for i in range(len(copy_of)))
    all_summed = "A" not in kinds or open_gradients.keys() <= summed.keys()
    all_applied = "U" not in kinds or not open_gradients
    return complete and all_summed and all_applied and not any(left) and not any(lanes)


def goes_as_far_as_it_can(schedule, runs):
    """Each device has done the actions before the one at which it stops, and what that needs is not done."""
    try:
        trace = mp.simulate(schedule, as_far_as_it_goes=True)
    except ScheduleError:  # sizes that do not fit
        copies = list(schedule.copies)
        assert len(copies) != schedule.n_microbatches or {*copies} != {*range(schedule.n_copies)}
        return
    assert (trace.stop is None) == runs and (not runs or trace == mp.simulate(schedule))
    done = {part for span in trace.spans for part in span.label.parts}
    for device, line in enumerate(schedule.devices):
        spans = [span.label for span in trace.spans_of(device, "compute")]
        n_done = len(line) if runs else trace.stop.n_done[device]
        assert spans == [action for action in line[:n_done] if action.kind != "A"]
        if not runs and not schedule.kinds & {"A", "U"}:
            standing = trace.stop.standing.get(device)
            assert n_done == (standing.position if standing else len(line))
            assert standing is None or standing.needs not in done
            assert standing is None or standing.action == line[len(spans)]


@settings(max_examples=60)
@given(changed_schedules())
@example(Schedule.from_text(["0F0 0B0 0U0", "0F1 0B1 0A1 0U1"], copy_of=(0, 1)))  # a U without its A
def test_a_schedule_has_faults_exactly_if_it_cannot_end(schedule):
    """All that read a schedule with faults raise `ScheduleError`, and nothing else."""
    runs, faults = comes_to_its_end(schedule), schedule.faults()
    goes_as_far_as_it_can(schedule, runs)
    assert (faults == []) == runs and len(faults) == len(set(faults))
    for use in (mp.simulate, staleness, peak_versions):
        if runs:
            use(schedule)
        else:
            with pytest.raises(ScheduleError, match="cannot run"):
                use(schedule)


@pytest.mark.parametrize("call, words", [
    (lambda: build("gpip", 2, 2), "did you mean 'gpipe'"),
    (lambda: build("1F", 2, 2), "did you mean '1f1b'"),
    (lambda: build("zzz", 2, 2), "there are naive, gpipe, gpipe-fifo, 1f1b"),
    (lambda: gpipe(0, 2), "devices=0 must be at least 1"),
    (lambda: with_recompute(with_recompute(gpipe(2, 2))), "recomputes already"),
    (lambda: Schedule.from_text("F0 BB"), "device 0: 'BB' is not an action"),
    (lambda: Schedule.from_text(""), "has no actions"),
    (lambda: Schedule.from_text("F0 B999999999"), "0B999999999 is out of reach"),
    (lambda: Schedule.from_text("F0 B0", 0),
     "microbatches=0 does not fit a schedule of 2 actions: use 1, or leave it out"),
    (lambda: Schedule.from_text("F0 B0", 1.5), "microbatches=1.5 does not fit"),
    (lambda: gpipe(2, 2.5), "microbatches=2.5 must be a whole number"),
    (lambda: build("zb-v", stages=1, microbatches=4),
     "'zb-v' puts 2 stages on each device, which stages=1 does not allow: use 2"),
    (lambda: mp.simulate(gpipe(2, 2), {"F": 1}), "costs={'F': 1} must be Costs(F=..., B=...)"),
    (lambda: mp.simulate(gpipe(2, 2), mp.Costs(F=None)),
     "stage 0: F=None must be a number, above 0 ticks"),
    (lambda: mp.Costs.from_text("F"), "'' is not a number: write for instance F=1,B=2.5"),
    (lambda: mp.simulate(Schedule((), 0, 0)),
     "a schedule needs at least 1 stage and 1 micro-batch, in whole numbers, not 0 and 0"),
    (lambda: one_f_one_b(3, 5).validate(most_alive=[3, 2]), "most_alive has 2 limits for 3 devices"),
    # Sizes that do not fit: the nearest that do
    (lambda: build("interleaved", 3, 7),
     "microbatches=7 makes 2 rounds on 3 devices, which do not divide it: use 6, or another multiple of 3"),
    (lambda: build("dualpipe-v", 4, 6),
     "microbatches=6 is too few for dualpipe-v on 4 devices: use at least 8"),
    (lambda: build("dualpipe", 4, 6),
     "microbatches=6 does not fit dualpipe on 4 devices, which takes an even number of at least 8: use 8"),
    (lambda: build("dualpipe", 4, 9), "of at least 8: use 10"),
    (lambda: build("chimera", 4, 5), "an even number of at least 2: use 6"),
    (lambda: build("chimera", 3, 4),
     "chimera needs an even number of devices, devices=3 is not: use 4"),
    (lambda: build("dualpipe", 1, 4),
     "dualpipe needs an even number of devices, devices=1 is not: use 2"),
    (lambda: build("zb-v", stages=5, microbatches=8),
     "'zb-v' puts 2 stages on each device, which stages=5 does not allow: use 4 or 6"),
    (lambda: looped_breadth_first(2, 2, v=0), "v=0 must be at least 1"),
])
def test_mistakes_are_answered_with_the_remedy(call, words):
    with pytest.raises(ValueError) as error:
        call()
    assert words in str(error.value)


@pytest.mark.parametrize("stage", [-1, 1])
def test_a_stage_that_does_not_exist_is_unknown(stage):
    faults = mp.Schedule([[Action("F", stage, 0), Action("B", 0, 0)]], 1, 1).faults()
    assert faults[0] == f"device 0: {stage}F0 is unknown: stages are 0..0"


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


@pytest.mark.parametrize("costs", one_in(4, COSTS))
def test_interleaving_v_ways_has_its_closed_forms(costs):
    F, I, W = costs
    sizes = [(K, M) for K in (1, 2, 3, 4) for M in (1, K, K + 1, 2 * K, 4 * K - 1)]
    for K, M in sizes:
        for v in (1, 3):  # v = 2 is what the names stand for
            T = (M + Fraction(K - 1, v)) * (F + I + W)
            if M % K == 0:
                peak = [Fraction(min(M * v, (v - 1) * K + 2 * (K - 1 - r) + 1), v) for r in range(K)]
                assert counted(interleaved_one_f_one_b(K, M, v), F, I, W) == (T, peak), (K, M, v)
            if M >= K:
                assert counted(looped_breadth_first(K, M, v), F, I, W) == (T, [M] * K), (K, M, v)


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


def test_orders_match_the_papers():
    assert str(one_f_one_b(3, 4)) == (
        "device 0: 0F0 0F1 0F2 0B0 0F3 0B1 0B2 0B3\n"
        "device 1: 1F0 1F1 1B0 1F2 1B1 1F3 1B2 1B3\n"
        "device 2: 2F0 2B0 2F1 2B1 2F2 2B2 2F3 2B3"
    )
    assert str(gpipe(2, 3)) == "device 0: 0F0 0F1 0F2 0B2 0B1 0B0\ndevice 1: 1F0 1F1 1F2 1B2 1B1 1B0"
    assert str(build("gpipe-fifo", 1, 2)) == "device 0: 0F0 0F1 0B0 0B1"
    assert str(naive(2, 2)) == "device 0: 0F0 0B0 0F1 0B1\ndevice 1: 1F0 1B0 1F1 1B1"
    assert str(with_recompute(gpipe(1, 2))) == "device 0: 0F0 0F1 0R1 0B1 0R0 0B0"
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
