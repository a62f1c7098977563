"""Copies of the network, and the all-reduces and updates that close a mini-batch, with every fault."""

from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from cases import valid_schedules
from minipipe.cluster import Trace
from minipipe.order import (
    Action, Costs, Overlap, Schedule, ScheduleError, ScheduleWarning, alive_microbatches, costs_in_segments,
    in_copies, in_segments, peak_microbatches, peak_versions, staleness, with_all_reduce, with_recompute,
    with_updates,
)
from minipipe.schedules import build, gpipe, names_for, names_having, one_f_one_b, pipedream

SIZES = [(1, 1), (2, 4), (4, 4), (3, 5)]


def of_every_builder():
    return [build(name, K, M) for K, M in SIZES for name in names_for(K, M)]


def positions(order, kind):
    return {action.stage: position for position, action in enumerate(order) if action.kind == kind}


# ---- all-reduces and updates that are put into an order

def test_all_reduces_start_as_early_as_possible():
    """Each follows its stage's last gradient, or the all-reduce of the next stage."""
    for schedule in of_every_builder():
        for order in with_all_reduce(in_copies(schedule, 2)).devices:
            stages = [action.stage for action in order if action.kind == "A"]
            assert stages == sorted(stages, reverse=True)
            for action, before in zip(order[1:], order):
                if action.kind == "A":
                    gradient = any(p.stage == action.stage and p.kind in "BW" for p in before.parts)
                    assert gradient or (before.kind == "A" and before.stage > action.stage), order


def test_updates_come_after_the_last_backward_or_at_the_end():
    for schedule in of_every_builder():
        updated = with_updates(schedule)
        for order in updated.devices:
            for stage, position in positions(order, "U").items():
                parts = [(k, part) for k, action in enumerate(order) for part in action.parts]
                work = [k for k, part in parts if part.stage == stage and part.kind != "U"]
                if "A" in updated.kinds:
                    assert all(action.kind == "U" for action in order[position:])
                else:
                    assert position > max(work)
                    assert all(action.kind == "U" for action in order[max(work) + 1:position])


@pytest.mark.parametrize("change, schedule, words", [
    (with_all_reduce, with_all_reduce(gpipe(2, 2)),
     "'gpipe+all-reduce' has all-reduces already: use it as it is"),
    (with_all_reduce, pipedream(2, 2), "'pipedream' has updates already, which come after the all-reduces"),
    (with_updates, with_updates(gpipe(2, 2)), "'gpipe+updates' has updates already: use it as it is"),
    (with_updates, Schedule.from_text("F0"), "0B0 (missing)"),
    (with_all_reduce, Schedule.from_text("F0"), "0B0 (missing)"),
    (lambda schedule: in_copies(schedule, 0), gpipe(2, 2),
     "n=0 must be at least 1"),
    (lambda schedule: in_copies(schedule, 1.5), gpipe(2, 2),
     "n=1.5 must be a whole number"),
])
def test_changes_that_an_order_cannot_take_are_refused(change, schedule, words):
    with pytest.raises(ValueError) as error:
        change(schedule)
    assert words in str(error.value)


@settings(max_examples=40, deadline=None)
@given(st.data(), st.integers(1, 3), st.integers(1, 4))
def test_any_schedule_with_updates_can_be_changed_further(data, K, M):
    schedule = data.draw(valid_schedules(K, M))
    n = data.draw(st.integers(1, 3))
    closed = with_updates(with_all_reduce(in_copies(schedule, n)))
    for changed in (closed, with_recompute(closed), in_segments(closed, 2)):
        assert changed.faults() == []


# ---- every fault

TWO = dict(copy_of=(0, 1))           # two copies, each with one micro-batch
AFTER = "put it after the stage's last backward"


@pytest.mark.parametrize("lines, fields, faults", [
    (["F0 A0 B0"], {}, ["device 0: 0A0 comes before the gradient of micro-batch 0 is complete"]),
    (["F0 I0 A0 W0"], {}, ["device 0: 0A0 comes before the gradient of micro-batch 0 is complete"]),
    (["F0 U0 B0"], {}, ["device 0: 0U0 comes before the gradient of micro-batch 0 is complete"]),
    (["F0 B0 U0 A0"], {}, ["device 0: 0A0 comes after 0U0, which needs it"]),
    (["F0 B0 A0 A0"], {}, ["device 0: 0A0 is done already (duplicated): once is enough"]),
    (["F0 F1 B0 A0 B1"], {}, [
        f"device 0: 0A0 comes before 0B1, whose gradient it leaves out: {AFTER}"]),
    (["F0 F1 B0 B1 A0"], {}, [
        "device 0: 0A0 comes after the backward of micro-batch 1, whose gradient it would add up, too: put "
        "it before that, or write 0A1"]),
    (["F0 F1 B0 A0 U0 B1 U1"], dict(versions=[(0, 0)]), [
        "device 0: 0U1 applies gradients that no all-reduce has added up: put 0A1 before it"]),
    (["0F0 1F0 1B0 1A0 0B0"], {}, [
        "device 0: no all-reduce of stage 0 takes in micro-batch 0: an order with some A has all of them, so "
        "put 0A0 after the stage's last backward"]),
    (["F0 B0 U0", "F0 B0"], {}, [
        "device 1: no update of stage 1 takes in micro-batch 0: an order with some U has all of them, so put "
        "1U0 after the stage's last backward"]),
    (["F0 F1 F2 B2 U2 B0 B1"], dict(versions=[(0, 0, 0)]), [
        "device 0: no update of stage 0 takes in micro-batches 0, 1: an order with some U has all of them, "
        "so put 0U1 after the stage's last backward"]),
    (["F0 B0 A0 U0", "F0 B0 U0 A0"], {}, ["device 1: 1A0 comes after 1U0, which needs it"]),
    (["F0 B0 A0 U0", "F0 B0 U0"], {}, [
        "device 1: 1U0 applies gradients that no all-reduce has added up: put 1A0 before it"]),
    (["0F0 0B0 0U0", "0F1 0B1 0U1"], TWO, [
        "stage 0 is on devices 0, 1, so an update needs the sum of their gradients: put an A before each U, "
        "as with_all_reduce does"]),
    (["0F0 0B0 0A0", "0F1 0B1"], TWO, [
        "device 1: no all-reduce of stage 0 takes in micro-batch 1: an order with some A has all of them, so "
        "put 0A1 after the stage's last backward"]),
    (["0F0 0B0 0A0 0U0 0F2 0B2 0A2 0U2", "0F1 0F3 0B1 0B3 0A3 0U3"],
     dict(copy_of=(0, 1, 0, 1), versions=[(0, 0, 1, 0)]), [
        "devices 0, 1 have 2, 1 all-reduces of stage 0: all start each of them together, so put equally "
        "many on each"]),
])
def test_every_fault_of_an_all_reduce_or_an_update_is_named(lines, fields, faults):
    schedule = Schedule.from_text(lines, **fields)
    assert schedule.faults() == faults
    with pytest.raises(ScheduleError, match="cannot run"):
        mp.simulate(schedule)


@pytest.mark.parametrize("lines, late, update", [
    (["F0 F1 B0 U0 B1", "F0 B0 U0 F1 B1"], "0B1", "0U0"),
    (["F0 B0 U0 F1 B1 U1"], "0F1", "0U0"),
    (["F0 F1 B0 U0 R1 B1 U1"], "0R1", "0U0"),
    (["F0 F1 I0 W0 U0 I1 W1 U1"], "0I1", "0U0"),
])
def test_updates_before_the_last_backward_need_versions(lines, late, update):
    """Stale weights in a synchronous schedule: without versions, an update is the last of its stage."""
    schedule = Schedule.from_text(lines)
    assert schedule.asynchronous
    first, *others = schedule.faults()
    assert first == (
        f"device 0: {late} comes after {update}, so the order updates weights but does not say which ones it "
        "works with: pass versions, for each stage a row with the number of updates in the weights for each "
        "micro-batch, or put the update after the stage's last backward"
    )
    assert len(others) == len(lines) - 1
    for use in (mp.simulate, staleness, peak_versions, Schedule.to_csv):
        with pytest.raises(ScheduleError, match="pass versions"):
            use(schedule)


def test_updates_after_the_last_backward_are_synchronous():
    at_the_end = Schedule.from_text(["0F0 1F0 1B0 1U0 0B0 0U0"]).validate()
    assert not at_the_end.asynchronous
    assert staleness(at_the_end) == [[0], [0]]
    assert peak_versions(at_the_end) == [1, 1]
    under_way = Schedule.from_text("F0 B0 U0 F1 B1 U1", versions=[(0, 1)]).validate()
    assert under_way.asynchronous and under_way.versions == ((0, 1),)
    for name in names_having(flush=False):
        assert build(name, 3, 6).asynchronous and not build(name, 1, 1).asynchronous
    assert not any(schedule.asynchronous for schedule in of_every_builder())


# ---- meetings

def crossed(first="0A0 1A0", second="1A1 0A1"):
    return Schedule.from_text([f"0F0 1F0 1B0 0B0 {first}", f"0F1 1F1 1B1 0B1 {second}"], **TWO)


def test_all_reduces_in_different_orders_are_a_deadlock():
    assert crossed("1A0 0A0").faults() == []
    assert crossed().faults() == [
        "deadlock: device 0 cannot end 0A0 before 0A1 on device 1, after 1A1, and device 1 cannot end 1A1 "
        "before 1A0 on device 0, after 0A0: start the exchanges in the same order of stages on all devices"
    ]


def test_an_update_and_an_all_reduce_can_deadlock():
    """Device 0 updates stage 1 before it goes on with stage 0, of which device 1 needs the forward."""
    lines = ["1F1 1B1 1A1 1U1 0F0 0B0 0A0 0U0", "1F0 1B0 1A0 1U0 0F1 0B1 0A1 0U1"]
    (fault,) = Schedule.from_text(lines, **TWO).faults()
    assert fault.startswith("deadlock: device 0 cannot start 1F1 before 0F1 on device 1")
    lines = ["0F0 1F1 1B1 1A1 1U1 0B0 0A0 0U0", "0F1 1F0 1B0 0B1 1A0 0A1 1U0 0U1"]
    assert Schedule.from_text(lines, **TWO).faults() == []
    lines = [
        "0F0 1F1 1B1 1A1 1U1 0F2 1F3 1B3 0B0 0B2 0A2 0U2", "0F1 0F3 1F0 1F2 1B0 1B2 1A2 1U2 0B1 0B3 0A3 0U3",
    ]
    faults = Schedule.from_text(lines, copy_of=(0, 1, 0, 1), versions=[(0, 0, 0, 0), (0, 0, 0, 0)]).faults()
    assert any("no update of stage 1 takes in micro-batch 3" in fault for fault in faults)
    lines = ["0F0 1F1 1B1 1A1 1U1 0F2 0B0 0B2 0A2 0U2", "0F1 1F0 1B0 1F2 1B2 1A2 1U2 0B1 0A1 0U1"]
    assert Schedule.from_text(lines, copy_of=(0, 1, 0)).faults() == [
        "deadlock: device 0 cannot start 1U1 before 1A1 is over, and device 0 cannot end 1A1 before 1A2 on "
        "device 1, after 1F2, and device 1 cannot start 1F2 before 0F2 on device 0"
    ]


def test_an_all_reduce_that_waits_for_another_is_not_a_deadlock():
    """The last device has started both; the sum of stage 1 waits for that of stage 0, which comes last."""
    lines = ["0F1 0B1 0A1", "1F1 1B1 1A1", "0F0 1F0 1B0 0B0 0A0 1A0"]
    assert Schedule.from_text(lines, **TWO).faults() == []


# ---- copies

def test_three_replicas_run_on_devices_of_their_own():
    """Data parallelism: K = 1 stage, D = 3; and a hybrid of 3 copies of a pipeline of 2."""
    data_parallel = Schedule.from_text(["0F0 0B0", "0F1 0B1", "0F2 0B2"], copy_of=(0, 1, 2)).validate()
    assert (data_parallel.n_copies, data_parallel.n_stages) == (3, 1)
    assert data_parallel.placements == [[0], [1], [2]]
    hybrid = in_copies(one_f_one_b(2, 4), 3).validate()
    assert hybrid.n_copies == 3
    assert hybrid.placements == [[0, 1], [2, 3], [4, 5]]
    assert hybrid.placement == [0, 1]
    assert hybrid.device_of == [{0: 0, 1: 1}, {0: 2, 1: 3}, {0: 4, 1: 5}]
    assert hybrid.copy_of == (0,) * 4 + (1,) * 4 + (2,) * 4
    with pytest.warns(ScheduleWarning, match="3 copies"):
        assert Schedule.from_csv(hybrid.to_csv(), name=hybrid.name) == hybrid
    both_ways = in_copies(build("chimera", 4, 4), 3).validate()
    assert both_ways.n_copies == 6 and both_ways.placements[4:] == [[8, 9, 10, 11], [11, 10, 9, 8]]
    assert str(build("dualpipe", 2, 4).devices[0][4]) == "1F3&0B0"
    assert str(in_copies(build("dualpipe", 2, 4), 2).devices[2][4]) == "1F7&0B4"


def test_replicas_take_the_ticks_of_one_replica():
    for schedule in of_every_builder():
        if schedule.n_copies == 1:
            alone, together = mp.simulate(schedule), mp.simulate(in_copies(schedule, 2))
            assert peak_microbatches(together) == peak_microbatches(alone) * 2
            assert max(span.end for span in together.spans) == alone.makespan


@pytest.mark.parametrize("copy_of, words", [
    ((0, 2, 0), "copy_of=(0, 2, 0) leaves copy 1 without micro-batches: number the copies without a gap"),
    ((1, 2, 3), "copy_of=(1, 2, 3) leaves copy 0 without micro-batches: number the copies without a gap"),
    ((0, 10 ** 12, 1), "leaves copy 2 without micro-batches"),
    ((2, 2, 2), "leaves copy 0 without micro-batches: where there is one copy, leave copy_of out"),
    ((0, 1.5, 1), "copy_of=(0, 1.5, 1) must have a copy, 0, 1, ..., for each of the 3 micro-batches"),
    ((0, "a", 1), "copy_of=(0, 'a', 1) must have a copy"),
    ((0, 1), "copy_of=(0, 1) must have a copy, 0, 1, ..., for each of the 3 micro-batches"),
])
def test_replicas_that_cannot_be_are_refused(copy_of, words):
    schedule = replace(gpipe(1, 3), copy_of=copy_of)
    (fault,) = schedule.faults()
    assert words in fault
    with pytest.raises(ScheduleError, match="cannot run"):
        schedule.placements  # noqa: B018


def test_copies_on_one_device_share_one_all_reduce_and_update():
    """Two copies of stage 0 on device 0, each copy's stage 1 on its own: PipeDream's replicated stages."""
    lines = ["0F0 0F1 0B0 0B1 0A1 0U1", "1F0 1B0 1A0 1U0", "1F1 1B1 1A1 1U1"]
    schedule = Schedule.from_text(lines, **TWO).validate()
    assert schedule.placements == [[0, 1], [0, 2]]
    open_end = replace(schedule, devices=tuple(order[:-2] for order in schedule.devices))
    assert with_updates(with_all_reduce(open_end)).devices == schedule.devices
    lines[0] = "0F0 0F1 0B0 0A0 0B1 0A1"
    assert "whose gradient it leaves out" in Schedule.from_text(lines, **TWO).faults()[0]
    # no other device has the stage: there is no sum to wait for
    alone = Schedule.from_text(["0F0 0F1 0B0 0B1 0U1"], **TWO).validate()
    assert with_updates(replace(alone, devices=(alone.devices[0][:-1],))).devices == alone.devices


# ---- what is written, priced and counted

def test_pytorchs_table_leaves_all_reduces_and_updates_out():
    assert with_updates(one_f_one_b(2, 4)).to_csv() == one_f_one_b(2, 4).to_csv()
    for schedule in build("chimera", 4, 4), in_copies(build("zb-v", 4, 4), 3):
        with pytest.warns(ScheduleWarning, match="replicas, and PyTorch"):
            assert with_updates(with_all_reduce(schedule)).to_csv() == schedule.to_csv()


def test_all_reduces_and_updates_take_the_ticks_of_their_costs():
    both = Overlap(Action("F", 0, 1), Action("B", 1, 0))
    order = [Action("A", 1, 0), Action("U", 0, 0), Action("F", 1, 3), both]
    assert list(map(Costs().duration(gpipe(2, 4)), order)) == [0, 0, 1, 3]
    assert list(map(Costs(F=[1, 5], A=[4, 0.5], U=3).duration(gpipe(2, 4)), order)) == [0.5, 3, 5, 3]
    assert Costs(FB=[7, 8], A=0).duration(gpipe(2, 4))(order[-1]) == 7
    assert Costs.from_text("A=1/2,U=0") == Costs(A=[1, 2], U=0)
    for text in ("all_reduce=1", "A=1,A=2"):
        with pytest.raises(ValueError, match="one cost of F, B, R, I, W, FB, A, U, message_bytes"):
            Costs.from_text(text)
    assert costs_in_segments(Costs(A=[4, 3]), gpipe(2, 1), [1, 2]).A == [4, Fraction(3, 2), Fraction(3, 2)]


def test_segments_have_all_reduces_and_updates_of_their_own():
    schedule = in_segments(with_updates(with_all_reduce(in_copies(gpipe(1, 1), 2))), 2).validate()
    assert [str(action) for action in schedule.devices[1][-4:]] == ["1A1", "0A1", "1U1", "0U1"]


def test_an_action_in_two_spans_counts_as_alive_once():
    """From the start of its first span to the end of its last."""
    F, I, W = Action("F", 0, 0), Action("I", 0, 0), Action("W", 0, 0)
    spans = [SimpleNamespace(label=label, start=start, end=end) for label, start, end in [
        (F, 0, 1), (F, 3, 4), (I, 4, 5), (W, 5, 6), ("sum", 6, 7), (W, 8, 9), (Action("A", 0, 0), 9, 10),
    ]]

    class OfSpans(Trace):
        n_devices, shares = 1, [1]

        def __init__(self):
            """Make a trace of no run."""

        def spans_of(self, device):
            return spans

    trace = OfSpans()
    assert alive_microbatches(trace, 0) == [(0, 1), (9, 0)] and peak_microbatches(trace) == [1]
