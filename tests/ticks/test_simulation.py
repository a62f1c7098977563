"""A simulation is a run of the same programs; and costs and links do what their numbers say."""

from fractions import Fraction

import pytest
from cases import valid_schedules
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.planning.simulation import simulation_of
from minipipe.schedules import names_for_stages

TICKS = st.fractions(min_value=Fraction(1, 4), max_value=3, max_denominator=4)
LINKS = st.builds(
    mp.Link,
    latency=st.fractions(0, 2, max_denominator=3),
    bandwidth=st.sampled_from([float("inf"), Fraction(2), Fraction(1, 2)]),
    blocking=st.booleans(),
)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data(), st.integers(1, 4), st.integers(1, 5))
def test_stepping_through_a_simulation_leaves_the_trace_of_running_it(data, n_stages, n_microbatches):
    """Exact fractions: unequal stages, each link its own, some of them blocking or queueing."""
    schedule = data.draw(valid_schedules(n_stages, n_microbatches))
    per_stage = st.lists(TICKS, min_size=n_stages, max_size=n_stages)
    costs = mp.Costs(
        F=data.draw(per_stage), B=data.draw(TICKS) + 3, W=data.draw(TICKS),
        message_bytes=data.draw(st.lists(st.integers(0, 5), min_size=n_stages, max_size=n_stages)),
    )
    devices = range(len(schedule.devices))
    link = data.draw(st.dictionaries(st.tuples(st.sampled_from(devices), st.sampled_from(devices)), LINKS))
    trace = mp.simulate(schedule, costs, link)
    stepped = simulation_of(schedule, costs, link)
    while stepped.tick():
        pass
    assert stepped.trace == trace


def test_a_simulation_is_the_pipelines_run():
    """Spans, messages and waits, for every schedule with a name; the run with numbers has bytes, too."""
    X, Y = mp.datasets.digits().train
    layers, link = mp.models.mlp([64, 5, 5, 5, 10]), mp.Link(latency=1)
    for name in names_for_stages(4, 6):
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 4, 6, name, link=link)
        pipe.forward_backward(X[:, :12], Y[:, :12])
        simulated = mp.simulate(pipe.schedule, link=link)
        assert (pipe.trace.spans, pipe.trace.idle) == (simulated.spans, simulated.idle)
        without_bytes = [[message[:6] for message in trace.messages] for trace in (pipe.trace, simulated)]
        assert without_bytes[0] == without_bytes[1]


TWO = ["F0 F1 B0 B1", "F0 B0 F1 B1"]


def makespan(lines=TWO, link=mp.Link(), **costs):
    return mp.simulate(mp.Schedule.from_text(lines), mp.Costs(**costs), link).makespan


def test_one_slow_link_among_free_ones():
    """Forwards go 0 to 1, gradients 1 to 0. 1F1B on two devices has no slack: it pays a latency of 5 once."""
    assert makespan() == 9
    assert makespan(link={(0, 1): mp.Link(latency=5)}) == makespan(link={(1, 0): mp.Link(latency=5)}) == 14


def test_the_same_costs_are_exact_beside_a_third_and_quick_beside_whole_numbers():
    """Half of a backward is a fraction beside a latency of a third, else a float; whichever comes first."""
    for latencies in ([1, Fraction(1, 3)], [Fraction(1, 3), 1]):
        costs, found = mp.Costs(F=1, B=1), {}
        for latency in latencies:
            trace = mp.simulate(mp.schedules.build("zb-h1", 2, 2), costs, mp.Link(latency=latency))
            found[latency] = {type(span.end - span.start) for span in trace.spans if span.label.kind == "I"}
        assert found == {1: {float}, Fraction(1, 3): {Fraction}}


def test_message_sizes_need_bandwidth():
    """A message of 6 bytes occupies its link for 3 ticks: F0 is there at 4, F1 at 7, as it has to wait."""
    schedule = mp.Schedule.from_text(["F0 F1 B0 B1", "F0 F1 B0 B1"])
    trace = mp.simulate(schedule, mp.Costs(message_bytes=[6, 0]), mp.Link(bandwidth=2))
    assert [(message.sent, message.arrived, message.n_bytes) for message in trace.messages] == [
        (1, 4, 6), (2, 7, 6), (10, 13, 6), (12, 16, 6),
    ]


def test_a_blocking_send_keeps_its_device_from_working():
    """Device 0 may start F1 only when F0 has arrived, at 1 + 2; then it is idle, for the reason "send"."""
    trace = mp.simulate(mp.Schedule.from_text(TWO), link=mp.Link(latency=2, blocking=True))
    assert [(span.start, str(span.label)) for span in trace.spans_of(0)][:2] == [(0, "0F0"), (3, "0F1")]
    first = trace.idle[0] if trace.idle[0].device == 0 else trace.idle[1]
    assert first[:4] == (0, 1, 3, "send") and "waiting for 0F0 to arrive at device 1" in str(first)
    idle = sum(span.end - span.start for span in trace.idle)
    assert idle + sum(trace.busy_ticks()) == 2 * trace.makespan


def test_an_overlap_costs_what_is_said_or_both():
    lines = ["F0 F1 B0 B1", "F0 1F1&1B0 B1"]
    assert makespan(lines) == 1 + 1 + (1 + 2) + 2 + 2 and makespan(lines, FB=2) == 1 + 1 + 2 + 2 + 2
    assert makespan(lines, FB=[9, 2.5]) == 1 + 1 + 2.5 + 2 + 2


def test_updates_take_their_ticks_where_the_order_has_them():
    trace = mp.simulate(mp.Schedule.from_text(["F0 F1 B0 B1 U1", "F0 B0 F1 B1 U1"]), mp.Costs(U=[4, 3]))
    assert [str(trace.spans_of(device)[-1].label) for device in (0, 1)] == ["0U1", "1U1"]
    assert trace.makespan == 9 + 4
    with pytest.raises(ValueError, match="stage 0: U=-1 must be at least 0 ticks"):
        makespan(U=-1)


@pytest.mark.parametrize("link, words", [
    ({(0, 2): mp.Link(latency=1)}, "there is no link (0, 2): write (source, to) with devices 0..1"),
    ({"0->1": mp.Link(latency=1)}, "there is no link '0->1': write (source, to) with devices 0..1"),
    ({(0, 1): 3}, "the link (0, 1) is 3: write for instance Link(latency=1)"),
    (1, "link=1 must be a Link, or a dict such as {(0, 1): Link(latency=1)}"),
])
def test_links_that_do_not_exist_are_refused(link, words):
    with pytest.raises(ValueError) as error:
        makespan(link=link)
    assert words in str(error.value)
