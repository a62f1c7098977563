"""Every idle tick has one cause and something to blame; the critical path adds up to the makespan."""

import pickle
import re
from fractions import Fraction

import matplotlib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure

import minipipe as mp
from cases import valid_schedules
from ticks.programs import blame_at, check_path
from ticks.test_cluster import receiver, sender
from minipipe.cluster import (
    Cluster, Compute, IdlePart, Link, Message, Receive, Send, Step, critical_path, describe_path,
)
from minipipe.schedules import build

matplotlib.use("Agg")

LINKS = [
    Link(), Link(latency=1), Link(latency=Fraction(1, 3), bandwidth=Fraction(3, 2)), Link(bandwidth=1),
    Link(latency=2, blocking=True), {(0, 1): Link(latency=5), (1, 0): Link(latency=1, bandwidth=1)},
]


def test_the_repr_is_one_line():
    explained = mp.simulate(build("1f1b", 8, 32)).explain()
    assert repr(explained) == "<Explanation of 8 devices, 117 ticks, idle: fill 28, wait 84, drain 56>"
    assert repr(mp.simulate(build("gpipe", 1, 1)).explain()) == "<Explanation of 1 devices, 3 ticks, idle: 0>"


@st.composite
def runs(draw):
    """Traces of simulations with whole numbers and fractions as ticks: all sums are exact."""
    K, M = draw(st.integers(2, 4)), draw(st.integers(1, 3))
    schedule = draw(valid_schedules(K, M))
    ticks = st.sampled_from([Fraction(1), Fraction(2), Fraction(3, 2), Fraction(5)])
    per_stage = st.lists(ticks, min_size=K, max_size=K)
    update = draw(st.sampled_from([None, 0, 1]))
    costs = mp.Costs(F=draw(per_stage), B=draw(per_stage), U=update, message_bytes=draw(st.integers(0, 3)))
    link = draw(st.sampled_from(LINKS if len(schedule.devices) > 1 else [Link()]))
    return mp.simulate(schedule, costs, link)


@settings(max_examples=30, deadline=None)
@given(runs())
def test_the_parts_tile_the_idle_time_with_its_causes(trace):
    explanation = trace.explain()
    for idle, parts in explanation.parts.items():
        assert [idle.start, *(part.end for part in parts)] == [*(part.start for part in parts), idle.end]
    for device, (row, busy) in enumerate(zip(explanation.table().values(), trace.busy_ticks())):
        assert sum(row.values()) == trace.makespan - busy
        own = [parts for idle, parts in explanation.parts.items() if idle.device == device]
        assert sum(part.end - part.start for parts in own for part in parts) == trace.makespan - busy
    # the definitions once more, word by word, for one instant in each part
    for idle, parts in trace.explain().parts.items():
        for part in parts:
            now = (part.start + part.end) / 2
            assert (part.cause, part.blame) == cause_at(trace, idle, now)


def cause_at(trace, idle, now):
    """(cause, blame) of `idle` at the instant `now`, which is no edge of anything."""
    first = min((span.start for span in trace.spans if span.device == idle.device), default=trace.makespan)
    if idle.reason == "drain":
        for each in trace.exchanges:
            if each.device == idle.device and each.lane != idle.lane and each.start < now < each.end:
                return "exchange", each
        return "drain", None
    blame = blame_at(trace, idle, now)
    is_exchange = type(blame) is Message and str(blame.label).startswith("stage ")
    if is_exchange and (now >= first or idle.device in (blame.source, blame.to)):
        return "exchange", blame
    if now < first and idle.reason != "send":
        return "fill", blame
    if type(blame) is Message:
        return "link", blame
    device, kind = idle.device, blame.label.kind
    own = [s.end - s.start for s in trace.spans if s.device == device and s.label.kind == kind]
    return "imbalance" if own and now > blame.start + max(own) else "wait", blame


@pytest.mark.parametrize("name", ["gpipe", "1f1b"])
def test_equal_stages_on_free_links_only_fill_wait_and_drain(name):
    """Of GPipe's bubble, K (K - 1)(F + B) in all, (K - 1 - r)(F + B) on device r are no fill and no drain."""
    for K, M, F, B in [(2, 3, 1, 2), (4, 8, 1, 2), (5, 7, 3, 4), (3, 1, 2, 1)]:
        explanation = mp.simulate(build(name, K, M), mp.Costs(F=F, B=B)).explain()
        assert explanation.totals() == {
            "fill": F * K * (K - 1) // 2, "wait": (F + B) * K * (K - 1) // 2, "drain": B * K * (K - 1) // 2,
        }
        waits = [row["wait"] for row in explanation.table().values()]
        assert waits == [(F + B) * (K - 1 - r) for r in range(K)]
        assert sum(explanation.totals().values()) == K * (K - 1) * (F + B)


def test_imbalance_is_at_most_what_equal_stages_would_save():
    """Measured on a grid: the ticks called imbalance are no more than the idle ticks saved
    if all stages cost the least."""
    for name in ("naive", "gpipe", "1f1b"):
        for F in ([1, 1, 3, 1], [2, 1, 1, 4], [3, 2, 1, 1], [1, 2, 2, 2]):
            for M in (1, 4, 8):
                idle, least = (simulated(name, M, costs).totals() for costs in (F, [min(F)] * 4))
                assert idle.get("imbalance", 0) <= sum(idle.values()) - sum(least.values())
                assert "imbalance" not in least and ("imbalance" in idle or M == 1)


def simulated(name, n_microbatches, F):
    return mp.simulate(build(name, len(F), n_microbatches), mp.Costs(F=F, B=[2 * f for f in F])).explain()


def test_rounding_of_floats_is_not_an_imbalance():
    trace = mp.simulate(build("1f1b", 4, 9), mp.Costs(F=0.1, B=0.7), Link(latency=0.3))
    assert "imbalance" not in trace.explain().totals()


def test_more_than_rounding_is_an_imbalance():
    """Roundings are at most 2**-50 of the makespan, which is 1 + 6/2**52 here: 6/2**52 ticks are more."""
    longer = 0.25 + 6 * 2.0**-52
    explanation = mp.simulate(build("gpipe", 2, 1), mp.Costs(F=[0.25, longer], B=[0.25, 0.25])).explain()
    assert explanation.totals()["imbalance"] == 6 * 2.0**-52


def test_no_message_is_early_where_fractions_meet_floats():
    """Fraction(1, 7) + 0.0 is a float below 1/7: without care, idle time ends before the message begins."""
    assert float(Fraction(1, 7)) < Fraction(1, 7)
    for link in (mp.Link(bandwidth=0.1), mp.Link(latency=0.0, blocking=True)):
        trace = mp.simulate(build("gpipe", 2, 2), mp.Costs(F=Fraction(1, 7), B=2), link)
        assert all(message.arrived >= message.sent for message in trace.messages)
        parts = trace.explain().parts
        for idle in trace.idle:
            assert sum(part.end - part.start for part in parts[idle]) == idle.end - idle.start


def test_a_send_that_blocks_is_the_fault_of_its_link():
    trace = mp.simulate(build("gpipe", 2, 2), link=Link(latency=3, blocking=True))
    first = trace.messages[0]
    (waits,) = [idle for idle in trace.idle if idle[:3] == (0, 1, 4)]
    assert trace.explain().describe(waits) == (
        "device 0 waits 3 ticks, from 1 to 4, for 0F0 to arrive at device 1: link 3 (0 -> 1: 0F0)"
    )
    assert trace.explain().parts[waits] == [IdlePart(1, 4, "link", first)]


def test_labels_may_be_anything():
    def left():
        yield Compute(["no", "hash"])
        yield Send("x", 1, to=1)
        yield Receive("y", source=1)

    def right():
        yield Compute("a")
        yield Receive("x", source=0)
        yield Compute("b")
        yield Compute("nothing")
        yield Send("y", 1, to=0)

    ticks = {"a": 1, "b": 3, "nothing": 0}
    trace = Cluster([left(), right()], duration=lambda label: ticks.get(str(label), 2)).run()
    assert trace.explain().table() == {0: {"wait": 3}, 1: {"wait": 1}}
    assert trace.explain().describe(trace.idle[0]) == (
        "device 1 waits 1 tick, from 1 to 2, for x from device 0: wait 1 (device 0: ['no', 'hash'])"
    )
    assert describe_path(trace.critical_path()) == (
        "device 0  ['no', 'hash']  0 to 2\ndevice 1  b               2 to 5\nwork 5 + links 0 = 5 ticks"
    )


def test_the_explanation_in_words():
    trace = mp.simulate(build("1f1b", 3, 5), mp.Costs(F=[1, 1, 2], B=[2, 2, 3]), Link(latency=0.5))
    assert str(trace.explain()) == (
        "idle ticks          fill     wait imbalance     link    drain     idle\n"
        "device 0               0       12         2        4        0       18\n"
        "device 1             1.5      5.5         6      2.5      2.5       18\n"
        "device 2               3        0         0        0        5        8\n"
        "all                  4.5     17.5         8      6.5      7.5       44\n"
        "of 3 x 33 ticks     4.5%    17.7%      8.1%     6.6%     7.6%    44.4%\n"
        "with equal stages: 29.6667 ticks instead of 33, 10.1 % less\n"
        "\n"
        "the longest waits:\n"
        "device 0 waits 8 ticks, from 3 to 11, for 1B0 from device 1: wait 5 (device 1: 1F1 1B0; "
        "device 2: 2F0 2B0), imbalance 2 (device 2: 2F0 2B0), link 1 (2 -> 1: 2B0; 1 -> 0: 1B0)\n"
        "device 1 waits 5 ticks, from 3.5 to 8.5, for 2B0 from device 2: "
        "wait 2.5 (device 2: 2F0 2B0), imbalance 2 (device 2: 2F0 2B0), link 0.5 (2 -> 1: 2B0)\n"
        "device 0 waits 3 ticks, from 23 to 26, for 1B3 from device 1: "
        "wait 2 (device 1: 1B3), link 1 (2 -> 1: 2B3; 1 -> 0: 1B3)"
    )


def test_nothing_to_explain():
    empty = Cluster([]).trace
    assert empty.explain().table() == {} and empty.explain().totals() == {} and empty.critical_path() == []
    assert str(empty.explain()) == "(nothing has been computed yet)"
    assert describe_path([]) == "work 0 + links 0 = 0 ticks"
    alone = mp.simulate(build("gpipe", 1, 2)).explain()
    assert alone.table() == {0: {}} and "longest" not in str(alone)


def test_a_run_can_be_explained_at_any_tick():
    layers, X, link = [mp.Linear(2, 2) for _ in range(3)], np.ones((2, 4)), Link(latency=2)
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 3, 4, schedule="1f1b", link=link)
    pipe.start(X, X)
    more = True
    while more:
        more = pipe.tick()
        trace = pipe.trace
        for idle, parts in trace.explain().parts.items():
            assert ([part.cause for part in parts] == ["drain"]) == (idle.reason == "drain")
        check_path(trace, trace.critical_path())
    assert trace.explain().totals() == mp.simulate(pipe.schedule, link=link).explain().totals()


def test_the_critical_path_prefers_the_device_itself_between_equal_causes():
    """GPipe with one tick for F and B: 0B0 could begin after 0B1, or when 1B0 arrives, in the same tick."""
    trace = mp.simulate(build("gpipe", 2, 2), mp.Costs(F=1, B=1))
    path = trace.critical_path()
    assert " ".join(str(step.what.label) for step in path) == "0F0 0F0 1F0 1F1 1B1 1B1 0B1 0B0"
    assert path[1] == Step(trace.messages[0], 1, 1)


def test_a_queue_on_a_link_is_walked_back_to_its_first_message():
    """10 bytes a tick and latency 3: each message holds the link for 2.5 ticks, from the first tick on."""
    trace = Cluster([sender(3), receiver(3)], link=Link(latency=3, bandwidth=10)).run()
    first, second, third = trace.messages
    assert trace.queued == {second: (3.5, first), third: (6.0, second)}
    assert critical_path(trace) == [
        Step(trace.spans[0], 0, 1), Step(first, 1, 3.5), Step(second, 3.5, 6), Step(third, 6, 11.5),
        Step(trace.spans[-1], 11.5, 12.5),
    ]
    assert describe_path(critical_path(trace)).splitlines() == [
        "device 0     make 0  0 to 1", "link 0 -> 1  0 1 2   1 to 11.5", "device 1     use 2   11.5 to 12.5",
        "work 2 + links 10.5 = 12.5 ticks",
    ]
    alone = describe_path(critical_path(mp.simulate(build("gpipe", 1, 4))))
    assert alone.startswith("device 0  0F0 0F1 0F2 ... 2 more ... 0B2 0B1 0B0  0 to 12\n")


def test_unequal_stages_are_compared_with_equal_ones():
    """The same run, with a device's share of the work: formulas say how long it takes."""
    link, ports = Link(latency=1, bandwidth=4), mp.cluster.ports(4, 1)
    rows = [
        # GPipe: (M + K - 1)(F + B), F = 2, B = 3
        ("gpipe", dict(F=[1, 3, 2, 2], B=[3, 4, 1, 4]), {}, (8 + 4 - 1) * (2 + 3)),
        ("gpipe", dict(F=[0.5, 1.5, 1, 1], B=[2.5, 2, 2, 1.5]), {}, (8 + 4 - 1) * 3),
        # two stages a device: F = 1/2 and B = 3/2 of each stage
        ("interleaved", dict(F=[0.5, 1] + [0.25, 0.5] * 2 + [0.5] * 2, B=[1, 2] * 4), {},
         mp.simulate("interleaved", mp.Costs(F=1, B=3)).makespan),
        ("1f1b", dict(F=[1, 2, 1, 2], message_bytes=[1, 2, 3, 4]), dict(link=link, ports=ports),
         mp.simulate("1f1b", mp.Costs(F=1.5, message_bytes=[1, 2, 3, 4]), link, ports=ports).makespan),
    ]
    for name, costs, machine, makespan in rows:
        trace = mp.simulate(name, mp.Costs(**costs), **machine)
        assert trace.even().makespan == makespan < trace.makespan, name
        words = f"with equal stages: {makespan:.6g} ticks instead of {trace.makespan:.6g}, "
        [line] = [line for line in str(trace.explain()).splitlines() if line.startswith(words)]
        assert float(line[len(words):-len(" % less")]) == round(100 * (1 - makespan / trace.makespan), 1)
        assert pickle.loads(pickle.dumps(trace)).even() == trace.even() and trace.even().even is None
    for costs in (mp.Costs(), mp.Costs(F=[1] * 4, B=[2] * 4), mp.Costs(message_bytes=[1, 2, 3, 4])):
        trace = mp.simulate("gpipe", costs)
        assert trace.even is None and "with equal stages" not in str(trace.explain())


def test_a_long_path_leaves_out_the_lines_in_its_middle():
    def lines(name, K, M):
        trace = mp.simulate(build(name, K, M), link=Link(1))
        return [re.split("  +", line) for line in describe_path(trace.critical_path()).splitlines()]

    assert lines("naive", 2, 4)[:5] == [
        ["device 0", "0F0", "0 to 1"], ["link 0 -> 1", "0F0", "1 to 2"], ["device 1", "1F0 1B0", "2 to 5"],
        ["link 1 -> 0", "1B0", "5 to 6"], ["device 0", "0B0 0F1", "6 to 9"],
    ]
    for name, K, M in (("naive", 2, 4), ("1f1b", 4, 64), ("zb-v", 4, 32)):
        *path, total = lines(name, K, M)
        times = [line[2].split(" to ") for line in path]
        assert [begin for begin, _ in times] == ["0", *(end for _, end in times[:-1])], name
        assert total[0].endswith(f"= {times[-1][1]} ticks")
        assert len(path) <= 41 and (name != "1f1b" or path[20][0] == "..."), name


def test_a_path_may_end_with_a_message():
    def first():
        yield Compute("work")
        yield Send("flush", None, to=1)

    def last():
        yield Compute("work")
        yield Receive("flush", source=0)

    trace = Cluster([first(), last()], link=Link(latency=4)).run()
    assert trace.critical_path() == [Step(trace.spans[0], 0, 1), Step(trace.messages[0], 1, 5)]
    assert trace.explain().table() == {0: {"link": 0, "drain": 4}, 1: {"link": 4, "drain": 0}}


def test_a_path_ends_with_a_span_rather_than_with_a_message():
    def first():
        yield Receive("late", source=1)

    def last():
        yield Compute("a")
        yield Send("late", None, to=0)
        yield Compute("b")

    trace = Cluster([first(), last()], link=Link(latency=1)).run()
    assert [step.what.label for step in trace.critical_path()] == ["a", "b"]


def test_a_path_along_a_queue_is_drawn_as_one_line():
    queue = Cluster([sender(3), receiver(3)], link=Link(latency=3, bandwidth=10)).run()
    queue = queue.plot(Figure().add_subplot(), critical_path=True)
    assert [list(line.get_xdata()) for line in queue.lines] == [[1, 11.5]]


def test_a_drain_is_described_in_its_own_words():
    trace = mp.simulate(build("gpipe", 2, 2))
    drain = next(idle for idle in trace.idle if idle.reason == "drain")
    assert trace.explain().describe(drain) == "device 1 is done and idle for 2 ticks, from 7 to 9"


FIRST = "1F1B takes {} and is idle {} % of the time. "
WAIT = (
    "Device 0 waits 6 ticks for 1B0, the gradient of micro-batch 0, which first passes through devices 3, 2 "
    "and 1."
)


@pytest.mark.parametrize("name, costs, link, words", [
    ("1f1b", {}, 0, FIRST.format("33 ticks", 27) + WAIT),
    ("1f1b", {"F": [1, 1, 9, 1], "B": [2, 2, 9, 2]}, 0, FIRST.format("150 ticks", 64) + (
        "Devices wait 293 ticks in all for work that takes longer than their own on device 2."
    )),
    ("1f1b", {}, 3, FIRST.format("81 ticks", 70) + (
        "Devices wait 106 ticks in all for messages that are under way, 24 of them from device 2 to device 1."
    )),
    ("zb-h2", {}, 0, (
        "Zero Bubble ZB-H2 takes 27 ticks and is idle 11 % of the time. Devices are idle for 12 ticks before "
        "their first work and after their last: the pipeline fills and drains."
    )),
])
def test_a_sentence_names_the_largest_cause_of_what_is_idle(name, costs, link, words):
    assert mp.simulate(build(name, 4, 8), mp.Costs(**costs), mp.Link(link)).sentence() == words


def test_a_sentence_compares_two_runs_and_a_run_with_more_micro_batches():
    sizes = [("1f1b", 4, 8), ("gpipe", 4, 8), ("1f1b", 4, 16)]
    trace, rival, longer = (mp.simulate(build(*of)) for of in sizes)
    assert trace.sentence(rival, longer) == (
        "1F1B takes 33 ticks, as many as GPipe, and is idle 27 % of the time. It keeps 4 micro-batches at "
        f"once, and GPipe keeps 8. {WAIT} With 16 micro-batches it would be idle 16 % of the time."
    )
    assert ", 6 fewer than 1F1B, and is" in mp.simulate(build("zb-h1", 4, 8)).sentence(trace)
    alone, waves = (mp.simulate(build(name, 1, 4)) for name in ("1f1b", "gpipe"))
    assert "It keeps 1 micro-batch at once, and GPipe keeps 4." in alone.sentence(waves)
    stopped = mp.simulate(["F0 B0", "B0 F0"], as_far_as_it_goes=True)
    for other in (mp.simulate(build(*sizes[0]), mp.Costs(unit="seconds")), stopped):
        with pytest.raises(ValueError, match="pass a finished run in ticks"):
            trace.sentence(other)
    assert rival.sentence().endswith("micro-batch 7, which first passes through devices 3, 2 and 1.")
    idle = max(trace.idle, key=lambda idle: (idle.end - idle.start, -idle.device))
    assert [str(span.label) for span in trace.explain().blamed(idle)] == ["3B0", "2B0", "1B0"]
