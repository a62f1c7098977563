"""A simulation is a run of the same programs; and costs and links do what their numbers say.

A number is the cost of a device's share of the network, and a micro-batch counts as one on a device, however
many stages the device has.
"""

from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.order import alive_microbatches, greedy_schedule, in_copies, in_segments, peak_microbatches
from minipipe.plots.html import page_data
from minipipe.schedules import build, interleaved_one_f_one_b, names_for_stages

ZB_V = build("zb-v", 4, 8)  # M (F + B) + (K - 1) F / 2 = 25.5 ticks, and K = 4 alive
LAYERS = [mp.Linear(2, 2) for _ in range(8)]


def test_a_simulation_is_the_pipelines_run():
    """Spans, messages and waits, for every schedule with a name; the run with numbers has bytes, too."""
    X, Y = mp.datasets.digits().train
    layers, link = mp.models.mlp([64, 5, 5, 5, 10]), mp.Link(latency=1)
    for name in names_for_stages(4, 6):
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 4, 6, name, on=mp.Machine(link=link))
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


def test_halves_are_exact_beside_a_third_and_floats_otherwise():
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


def test_halves_cost_what_is_said_or_share_the_backward():
    schedule = mp.Schedule.from_text(["F0 I0 W0"])
    for costs, T in [
        (mp.Costs(F=1, B=2), 3), (mp.Costs(F=1, B=2, I=0.5), 3), (mp.Costs(F=1, B=2, W=0.5), 3),
        (mp.Costs(F=1, I=4, W=8), 13),
        (mp.Costs.from_text("F=1,B=3,W=1"), 4),
    ]:
        assert mp.simulate(schedule, costs).makespan == T
    spans = mp.simulate(schedule, mp.Costs(F=1, B=3, W=1)).spans
    assert [span.end - span.start for span in spans] == [1, 2, 1]
    words = "stage 0: I = B - W=-1 must be above 0 ticks"
    with pytest.raises(ValueError, match=words):
        mp.simulate(schedule, mp.Costs(B=2, W=3))


# Shares


def test_runs_pictures_and_pages_say_the_same_of_zb_v():
    trace = mp.simulate(ZB_V)
    pipe = mp.Pipeline(LAYERS, mp.MeanSquaredError(), 8, 8, "zb-v")
    X = np.random.default_rng(0).standard_normal((2, 16))
    pipe.forward_backward(X, X)
    assert len(pipe.schedule.devices) == 4 and pipe.trace.spans == trace.spans
    assert trace.makespan == 25.5 and repr(trace).endswith("25.5 ticks>")
    assert peak_microbatches(trace) == [4, 4, 4, 4]
    page = page_data(trace)
    assert page["makespan"] == 25.5 and max(amount for _, amount in page["memory"][0]) == 4


@pytest.mark.parametrize("v", [1, 2, 3, 4, 5])
def test_any_number_of_stages_shares_a_devices_ticks_exactly(v):
    trace = mp.simulate(interleaved_one_f_one_b(4, 8, v))
    assert trace.busy_ticks() == [24] * 4
    assert trace.makespan == (8 + Fraction(3, v)) * 3
    assert peak_microbatches(trace) == [Fraction((v - 1) * 4 + 2 * (3 - r) + 1, v) for r in range(4)]
    kind = Fraction if v in (3, 5) else (int, float)
    assert all(isinstance(time, (kind, int)) for span in trace.spans for time in (span.start, span.end))


def test_a_list_of_costs_is_stage_by_stage():
    listed = mp.Costs(F=[1] * 8, B=[2] * 8)
    assert mp.simulate(ZB_V, listed).makespan == 51 and mp.simulate(ZB_V, mp.Costs(F=2, B=4)).makespan == 51


def test_devices_with_one_stage_and_with_two_have_equal_shares():
    schedule = mp.Schedule.from_text(["0F0 1F0 1B0 0B0", "2F0 2B0"])
    assert (schedule.stages_on, schedule.sharing) == ([2, 1], [2, 2, 1])
    trace = mp.simulate(schedule)
    assert trace.busy_ticks() == [3, 3] and trace.makespan == 6
    assert alive_microbatches(trace, 0) == [(0, 0.5), (0.5, 1), (5, 0.5), (6, 0)]
    assert schedule.faults(most_alive=1) == []
    assert schedule.faults(most_alive=[0.5, 1]) == [
        "device 0: with 1F0, 1 micro-batches are alive at once, above the limit of 0.5: put a backward "
        "before it"
    ]


def test_a_device_with_two_copies_has_a_whole_share_of_each():
    for name in ("chimera", "dualpipe"):
        schedule = build(name, 4, 8)
        assert schedule.stages_on == [1] * 4 and in_copies(schedule, 2).stages_on == [1] * 8
    assert in_copies(ZB_V, 3).stages_on == [2] * 12 and in_segments(ZB_V, 3).stages_on == [6] * 4


def test_halves_are_floats_unless_a_fraction_meets_them():
    """1/2 + 1/3 is no float: with a third anywhere, all that is shared stays a fraction."""
    def starts(costs=mp.Costs(), link=mp.Link()):
        return [span.start for span in mp.simulate(build("looped", 2, 2), costs, link).spans]

    assert 0.5 in starts() and not any(isinstance(start, Fraction) for start in starts())
    for third in (mp.Link(latency=Fraction(1, 3)), {(0, 1): mp.Link(latency=Fraction(1, 3))}):
        assert Fraction(5, 6) in starts(link=third)
    assert not any(isinstance(start, float) for start in starts(mp.Costs(B=[Fraction(1, 3)] * 4)))
    assert mp.Costs(F=1, B=Fraction(2, 3)).table([2])["F"] == [Fraction(1, 2)]


def test_numbers_too_large_for_exact_floats_stay_fractions():
    for large in (2**60 + 1, 2**21 + 1):
        (F,), (B,) = (mp.Costs(F=large, B=1).table([2])[kind] for kind in "FB")
        assert (F, B) == (Fraction(large, 2), Fraction(1, 2)) and type(F) is type(B) is Fraction
    assert type(mp.Costs(F=2**21 - 1, B=1).table([2])["F"][0]) is float
    assert type(mp.Costs(F=1, B=1).table([2048])["F"][0]) is Fraction
    assert type(mp.Costs(F=1, B=[2**60]).table([2])["F"][0]) is Fraction


def test_a_limit_in_shares_is_kept_by_the_greedy_schedule():
    """V-Half keeps 3 of 4 alive; 2.5 is less than that, and two and a half is five of a device's halves."""
    half = build("v-half", 4, 8)
    assert half.faults(3) == [] and "above the limit of 2.5" in half.faults(2.5)[0]
    greedy = greedy_schedule(4, 8, most_alive=2.5, halves=True, placement=half.placement)
    assert max(peak_microbatches(mp.simulate(greedy.validate(2.5)))) == 2.5


@pytest.mark.parametrize(("costs", "B"), [
    ({}, 2), ({"F": 3}, 2), ({"I": 1}, 2), ({"I": 13, "W": 9}, 22), ({"I": 13, "W": 9, "B": 20}, 20),
    ({"I": [3, 4], "W": [1, 2]}, [4, 6]), ({"I": Fraction(1, 3), "W": Fraction(1, 6)}, Fraction(1, 2)),
])
def test_a_backward_that_is_left_out_costs_both_its_halves(costs, B):
    """So that a schedule with whole backwards and one with halves are compared in equal work."""
    assert mp.Costs(**costs).B == B


def test_a_half_for_a_device_beside_one_for_each_stage_is_refused():
    with pytest.raises(ValueError, match=r"I=\[1, 2\] and W=1: one is for a device, the other"):
        mp.Costs(I=[1, 2], W=1)


def test_costs_as_text_say_all_that_counts():
    assert mp.Costs(F=12.5, I=13, W=9).to_text() == "F=12.5,B=22,I=13,W=9"
    assert mp.Costs(F=[1, 2], message_bytes=7).to_text() == "F=1/2,B=2,message_bytes=7"
    assert mp.Costs(F=Fraction(1, 4)).to_text() == "F=0.25,B=2"  # F=1/4 would be two stages
