"""The engine against random programs: it does what a slow, plain one does, and can explain all of it."""

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ticks.random_programs import blame_at, bytes_of, check_path, settings_of_runs
from ticks.slow_cluster import SlowCluster

from minipipe.cluster import DeadlockError, Span


def ended(setting, kept=None):
    """The cluster after its run, and whether it came to a deadlock."""
    cluster = setting.cluster(kept)
    try:
        cluster.run()
    except DeadlockError:
        return cluster, True
    return cluster, False


@settings(max_examples=60)
@given(settings_of_runs())
def test_a_slow_and_plain_cluster_does_the_same(setting):
    assert_does_the_same(setting)


@pytest.mark.slow
@settings(max_examples=200)
@given(settings_of_runs(most_requests=20))
def test_a_slow_and_plain_cluster_does_the_same_in_long_runs(setting):
    assert_does_the_same(setting)


def assert_does_the_same(setting):
    """The same work at the same ticks, the same messages at the same ticks, and the same deadlocks."""
    cluster, stuck = ended(setting)
    slow = SlowCluster(setting.generators(), setting.link, setting.ports).run()
    trace = cluster.trace
    assert stuck == slow.stuck
    assert sorted(trace.spans) == sorted(slow.spans)
    sent = [message.row for message in slow.messages if message.source != message.to]
    assert sorted(trace.messages) == sorted(sent)


@pytest.mark.slow
@settings(max_examples=100)
@given(settings_of_runs(most_requests=20), st.booleans())
def test_ticking_leaves_the_trace_of_running(setting, with_memory):
    """Work, messages, reasons, queues and memory; and a second run is the same as the first."""

    def kept():
        return [[] for _ in setting.programs] if with_memory else None

    cluster, stuck = ended(setting, kept())
    assert ended(setting, kept())[0].trace == cluster.trace
    stepped, stopped = setting.cluster(kept()), False
    try:
        while stepped.tick():
            assert all(span.start < stepped.now for span in stepped.trace.spans)
            assert stepped.now < 1000
    except DeadlockError as error:
        stopped = True
        assert str(error) == str(cluster.failure)
    assert stopped == stuck and stepped.trace == cluster.trace
    assert stepped.trace.asked == cluster.trace.asked and stepped.trace.awaited == cluster.trace.awaited


@settings(max_examples=40)
@given(settings_of_runs())
def test_each_instant_of_each_lane_is_explained(setting):
    assert_explained(setting)


@pytest.mark.slow
@settings(max_examples=100)
@given(settings_of_runs(most_requests=20))
def test_each_instant_of_each_lane_of_long_runs_is_explained(setting):
    assert_explained(setting)


def assert_explained(setting):
    """By work, or by an idle span that parts tile; and from the beginning to the end goes a critical path."""
    cluster, stuck = ended(setting)
    trace = cluster.trace
    path = trace.critical_path()
    if stuck:
        return
    check_lanes(trace)
    check_parts(trace, trace.explain())
    check_path(trace, path)


def check_lanes(trace):
    """Work and idle spans follow each other without a gap."""
    for lane in trace.lanes:
        spans = [(span.start, span.end) for span in trace.spans_of(*lane)]
        idle = [(idle.start, idle.end) for idle in trace.idle if (idle.device, idle.lane) == lane]
        assert all(start < end for start, end in idle)
        edges = sorted(spans + idle)
        assert [0, *(end for _, end in edges)] == [*(start for start, _ in edges), trace.makespan]


def check_parts(trace, explanation):
    """So do the parts of an idle span, each with what the definitions blame."""
    assert list(explanation.parts) == trace.idle
    for idle, parts in explanation.parts.items():
        assert [idle.start, *(part.end for part in parts)] == [*(part.start for part in parts), idle.end]
        for part in parts:
            if part.cause != "drain":
                assert part.blame == blame_at(trace, idle, (part.start + part.end) / 2)
    str(explanation)


@settings(max_examples=80)
@given(settings_of_runs(any_source=False, with_ports=False, most_lanes=1, most_requests=9), st.data())
def test_longer_work_on_the_critical_path_makes_the_run_longer(setting, data):
    cluster, stuck = ended(setting)
    steps = [step for step in cluster.trace.critical_path() if type(step.what) is Span]
    if stuck or not steps:
        return
    label = data.draw(st.sampled_from([step.what.label for step in steps]))
    for lanes in setting.programs:
        for request in lanes["compute"]:
            if request.label == label:
                request.ticks += Fraction(1, 64)
    assert ended(setting)[0].trace.makespan == cluster.trace.makespan + Fraction(1, 64)


@pytest.mark.slow
@settings(max_examples=60)
@given(settings_of_runs(most_requests=20))
def test_memory_is_what_work_has_kept_and_messages_that_wait(setting):
    """Each Compute keeps an array from its start on; a message counts from its arrival to its receipt."""
    kept = [[] for _ in setting.programs]
    trace = ended(setting, kept)[0].trace
    for device in range(trace.n_devices):
        for tick, held in trace.ledger(device):
            spans = [span for span in trace.spans_of(device) if span.start <= tick]
            waiting = [
                message for message in trace._message_at.values()
                if message.to == device and message.arrived is not None and message.arrived <= tick
                and (message.received is None or tick < message.received)
            ]
            assert held.get("kept", 0) == sum(bytes_of(span.label) for span in spans)
            assert held.get("messages", 0) == sum(message.n_bytes for message in waiting)
