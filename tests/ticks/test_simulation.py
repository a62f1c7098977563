"""A simulation is a run of the same programs; and costs and links do what their numbers say."""

from fractions import Fraction

import pytest

import minipipe as mp
from minipipe.schedules import names_for_stages


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
