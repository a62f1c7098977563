"""A simulation is a run of the same programs; costs and links do what they say; traces say what a tick is.

A number is the cost of a device's share of the network, and a micro-batch counts as one on a device, however
many stages the device has.
"""

import pickle
from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.cluster import OneTick
from minipipe.order import alive_microbatches, greedy_schedule, peak_microbatches
from minipipe.plots import in_one_unit
from minipipe.schedules import SCHEDULES, build, names_for

ZB_V = build("zb-v", 4, 8)  # M (F + B) + (K - 1) F / 2 = 25.5 ticks, and K = 4 alive


def test_a_simulation_is_the_pipelines_run():
    """Spans, messages and waits, for every schedule with a name; the run with numbers has bytes, too."""
    X, Y = mp.datasets.digits().train
    layers, link = mp.models.mlp([64, 5, 5, 5, 10]), mp.Link(latency=1)
    for name in names_for(stages=4, microbatches=6):
        pipe = mp.Pipeline(layers, mp.SoftmaxCrossEntropy(), 4, 6, schedule=name, link=link)
        pipe.forward_backward(X[:, :12], Y[:, :12])
        simulated = mp.simulate(pipe.schedule, link=link)
        assert (pipe.trace.spans, pipe.trace.idle) == (simulated.spans, simulated.idle)
        without_bytes = [[message[:6] for message in trace.messages] for trace in (pipe.trace, simulated)]
        assert without_bytes[0] == without_bytes[1]


@pytest.mark.parametrize("link, words", [
    ({(0, 2): mp.Link(latency=1)}, "there is no link (0, 2): write (source, to) with devices 0..1"),
    ({"0->1": mp.Link(latency=1)}, "there is no link '0->1': write (source, to) with devices 0..1"),
    ({(0, 1): 3}, "the link (0, 1) is 3: write for instance Link(latency=1)"),
    (1, "link=1 must be a Link, or a dict such as {(0, 1): Link(latency=1)}"),
])
def test_links_that_do_not_exist_are_refused(link, words):
    with pytest.raises(ValueError) as error:
        mp.simulate(build("1f1b", 2, 2), link=link)
    assert words in str(error.value)


def test_halves_have_given_costs_or_share_that_of_the_backward():
    schedule = mp.Schedule.from_text(["F0 I0 W0"])
    for costs, T in [
        (mp.Costs(F=1, B=2), 3), (mp.Costs(F=1, B=2, I=0.5), 3), (mp.Costs(F=1, B=2, W=0.5), 3),
        (mp.Costs(F=1, I=4, W=8), 13),
        (mp.Costs.from_text("F=1,B=3,W=1"), 4),
    ]:
        assert mp.simulate(schedule, costs).makespan == T
    spans = mp.simulate(schedule, mp.Costs(F=1, B=3, W=1)).spans
    assert [span.end - span.start for span in spans] == [1, 2, 1]
    for costs, words in [
        (mp.Costs(B=2, W=3), "stage 0: I = B - W=-1 must be above 0 ticks"),
        (mp.Costs(U=-1), "stage 0: U=-1 must be at least 0 ticks"),
    ]:
        with pytest.raises(ValueError, match=words):
            mp.simulate(schedule, costs)


# Shares


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


def test_I_of_each_stage_with_W_of_a_device_is_refused():
    with pytest.raises(ValueError, match=r"I=\[1, 2\] and W=1: give two lists, two numbers"):
        mp.Costs(I=[1, 2], W=1)


# What a tick is, and several runs in one unit

LOSS = mp.MeanSquaredError()
NETWORK = [layer for _ in range(4) for layer in (mp.Linear(8, 8), mp.ReLU())][:-1]


def run(network, m):
    network.forward_backward(np.ones((8, m)), np.ones((8, m)))
    return network.trace


def pipeline(m=32, **options):
    return run(mp.Pipeline(NETWORK, LOSS, 4, 8, **options), m)


def copies(m=32, M=8, **options):
    return run(mp.DataParallel(NETWORK, LOSS, 4, microbatches=M, **options), m)


def shards(m=32, **options):
    return run(mp.TensorParallel(NETWORK, LOSS, 4, **options), m)


def simulated(name="gpipe", K=4, M=8, **costs):
    return mp.simulate(build(name, K, M), mp.Costs(**costs))


def unknown():
    def program():
        yield mp.cluster.Compute("work", ticks=5)

    return mp.cluster.Cluster([program()]).run()


# What a tick is

RUNS = {  # name -> (run, what a tick of it is)
    "pipeline": (pipeline, "the forward of 1/4 of the network for 4 samples"),
    "copies": (copies, "the forward of the network for 4 samples"),
    "shards": (shards, "the forward of 1/4 of the network for 32 samples"),
    "ragged": (lambda: pipeline(9), "the forward of 1/4 of the network for 9/8 samples on average"),
    "one sample": (lambda: pipeline(8), "the forward of 1/4 of the network for 1 sample"),
    "F = 2": (lambda: pipeline(costs=mp.Costs(F=2, B=4)), "the forward of 1/8 of the network for 4 samples"),
    "F = 0.1": (lambda: copies(costs=mp.Costs(F=0.1, B=0.2)), "10 forwards of the network for 4 samples"),
    "sqrt": (lambda: pipeline(recompute="sqrt"), "the forward of 1/4 of the network for 4 samples"),
    "share": (
        lambda: simulated(F=[1, 2, 3, 2], share=0.125), "the forward of 1/8 of the network for a micro-batch"
    ),
    "two stages": (lambda: simulated("zb-v"), "the forward of 1/4 of the network for a micro-batch"),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_trace_says_what_its_tick_is(name):
    make, words = RUNS[name]
    assert str(make().tick_is) == f"1 tick: {words}"


@pytest.mark.parametrize("split, options", [
    (dict(stages=4, microbatches=8), {}), (dict(stages=3, microbatches=5), {"schedule": "zb-h1"}),
    (dict(replicas=4, microbatches=6), {}), (dict(shards=2, microbatches=3), {}),
    (dict(replicas=2, shards=2, stages=2, microbatches=4), {"costs": mp.Costs(F=3, B=1)}),
    (
        dict(replicas=2, shards=2, stages=2, microbatches=4),
        {"recompute": "sqrt", "sums": mp.Sums(buckets="layer")}
    ),
])
def test_all_forwards_are_the_whole_network_for_all_samples(split, options):
    """Ticks in F, over all devices, times the share and the samples of a tick: 1 network x 19 samples."""
    trace = run(mp.Parallel(NETWORK, LOSS, **split, **options), m=19)
    ticks = sum(span.end - span.start for span in trace.spans if str(getattr(span.label, "kind", "")) == "F")
    assert ticks * trace.tick_is.work == 19


@pytest.mark.parametrize("name", SCHEDULES)
def test_forwards_of_a_schedule_are_the_network_a_micro_batch(name):
    trace = simulated(name, 4, 8, F=Fraction(1, 2), B=3)
    assert trace.tick_is == OneTick(Fraction(1, 2), None, Fraction(1, 2))
    if all(len(span.label.parts) == 1 for span in trace.spans):  # not the ticks of a backward as well
        forwards = [span for span in trace.spans if getattr(span.label, "kind", "") == "F"]
        assert sum(span.end - span.start for span in forwards) * trace.tick_is.work == 8


def test_seconds_lists_and_own_programs_say_nothing_of_ticks():
    assert unknown().tick_is is simulated(F=[1, 2, 3, 4]).tick_is is simulated(unit="seconds").tick_is is None
    assert copies(engine="threads").tick_is is None


def test_the_tick_stays_with_copied_runs_and_with_equal_ones():
    network = mp.Pipeline(NETWORK, LOSS, 4, 8)
    first, second = run(network, 32).tick_is, run(network, 32).tick_is
    again = pickle.loads(pickle.dumps(network)).trace.tick_is
    assert first == second == again == OneTick(Fraction(1, 4), 4, 1)
    network.start(np.ones((8, 16)), np.ones((8, 16)))
    network.tick()
    assert network.trace.tick_is == OneTick(Fraction(1, 4), 2, 1)


# Several runs in one unit

def makespans(traces):
    return {name: trace.makespan for name, trace in traces.items()}


def test_three_splits_that_took_33_and_6_and_3_ticks_in_one_unit():
    """A tick is 1/4 x 4, 1 x 4 and 1/4 x 32 samples: 1, 4 and 8 of the smallest."""
    traces = {"network": pipeline(), "data": copies(), "layer": shards()}
    assert makespans(traces) == {"network": 33, "data": 6, "layer": 3}
    found, unit = in_one_unit(traces)
    assert makespans(found) == {"network": 33, "data": 24, "layer": 24}
    assert str(unit) == "1 tick: the forward of 1/4 of the network for 4 samples"
    assert found["network"] is traces["network"] and found["data"].tick_is == found["layer"].tick_is == unit
    assert in_one_unit(found)[0] == found
    assert [found[name].bubble() for name in found] == [traces[name].bubble() for name in traces]
    figure = mp.plots.compare(traces)
    assert [ax.get_xlim() for ax in figure.axes] == [(0, 33)] * 3
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "", f"time ({unit})"]
    assert figure.axes[2].get_title("left") == "layer: 24 ticks, idle 0 % of the time"


@pytest.mark.parametrize("name, options", [
    ("1f1b", {}), ("zb-v", {"latency": 0}), ("zb-h1", {"blocking": True}), ("gpipe", {"rendezvous": True}),
])
def test_a_stretched_trace_is_a_run_of_stretched_costs_and_links(name, options):
    factor, options = Fraction(3, 2), {"latency": Fraction(1, 3), **options}
    schedule, X = build(name, 2, 4), np.ones((8, 16))

    def trace(factor):
        net = mp.Pipeline(
            [mp.Linear(8, 8) for _ in range(4)], LOSS, schedule.n_stages, 4, schedule=schedule,
            count_bytes=True,
            link=mp.Link(**options | {"latency": factor * options["latency"]}, bandwidth=128 / factor),
            costs=mp.Costs(F=1 * factor, B=2 * factor, I=1 * factor, W=1 * factor),
            ports=mp.cluster.ports(2, 128 / factor),
        )
        net.forward_backward(X, X)
        return net.trace

    first = trace(Fraction(1))
    found, expected = first.stretched(factor), trace(factor)
    assert found == expected and found != first
    assert [found.ledger(d) for d in range(2)] == [expected.ledger(d) for d in range(2)]
    assert found.awaited == expected.awaited and found.asked == expected.asked
    assert found.queued == expected.queued and found.critical_path() == expected.critical_path()
    assert str(found.explain()) == str(expected.explain())
    assert isinstance(trace(Fraction(1)).stretched(12).makespan, int) and found.tick_is is None


AS_THEY_ARE = {  # simulations that stay as they are
    "more micro-batches, of the same size": lambda: {"one": simulated(), "two": simulated("zb-v", 4, 16)},
    "other costs of the same forward": lambda: {"fast": simulated(F=1), "slow": simulated(F=2, B=4)},
    "a list of costs": lambda: {"list": simulated(F=[1, 2, 1, 1]), "one": simulated(), "mine": unknown()},
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_simulations_without_a_common_unit_are_not_stretched(name):
    traces = AS_THEY_ARE[name]()
    found, unit = in_one_unit(traces)
    assert all(found[one] is traces[one] for one in traces) and unit is None
    if name.startswith("more"):
        assert mp.plots.compare(traces).axes[-1].get_xlabel() == "time (ticks)"


def test_runs_of_the_same_work_stay_as_they_are():
    """1/4 x 8 samples: the share of a device, or, with F = 4 for all of the network, a quarter of that."""
    traces = {"network": pipeline(64), "data": copies(64, costs=mp.Costs(F=4, B=8)), "simulated": simulated()}
    found, unit = in_one_unit(traces)
    assert all(found[name] is traces[name] for name in traces)
    assert str(unit) == "1 tick: the forward of 1/4 of the network for 8 samples"
    assert mp.plots.compare(traces).axes[-1].get_xlabel() == f"time ({unit})"
    found, unit = in_one_unit(traces | {"mine": unknown()})
    assert found["data"] is traces["data"] and unit is None
    assert in_one_unit({}) == ({}, None)


REFUSED = {
    "a program of one's own beside different ticks": (
        lambda: {"network": pipeline(), "data": copies(), "mine": unknown()},
        r"have no common unit: network has 1 tick: the forward of 1/4 of the network for 4 samples; "
        r"data has .*; mine has ticks that it does not explain. To compare, multiply the costs of data by 4$",
    ),
    "a simulation beside runs of other samples": (
        lambda: {"small": pipeline(), "large": pipeline(64), "simulated": simulated()},
        "no common unit: .*leave the simulation out, which knows no samples, or run a network on samples",
    ),
    "slower devices beside another share": (
        lambda: {"one": pipeline(), "slow": pipeline(costs=mp.Costs(F=2, B=4)), "data": copies()},
        "no common unit: .*multiply the costs of one by 2 and multiply the costs of data by 8$",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ticks_without_a_common_unit_are_refused_with_the_remedy(name):
    make, words = REFUSED[name]
    traces = make()
    for show in (in_one_unit, mp.plots.compare):
        with pytest.raises(ValueError, match=words):
            show(traces)


def test_multiplied_costs_give_a_common_unit():
    traces = {"network": pipeline(), "data": copies(costs=mp.Costs(F=4, B=8)), "mine": unknown()}
    assert in_one_unit(traces)[0]["data"].makespan == 24 and mp.plots.compare(traces)


def test_schedules_on_fewer_devices_are_compared_in_one_unit():
    """One device works through 4 times as much in a tick as each of four: 4 x 24 ticks."""
    found = mp.compare(build("gpipe", 1, 8), build("1f1b", 4, 8))
    assert makespans(found) == {"gpipe": 96, "1f1b": 33}
    assert "1 tick: the forward of 1/4 of the network for a micro-batch.\n" in repr(found)
    assert found.plot().axes[-1].get_xlabel() == f"time ({found.tick_is})"
    assert mp.compare("gpipe", "1f1b").tick_is is None


@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-v", "chimera", "dualpipe"])
def test_a_slow_device_is_slow_for_each_copy_of_its_stages(name):
    """Costs by device: each F of device 1 takes three times what it takes elsewhere, whatever its stage."""
    schedule = build(name, 4, 8)
    costs = mp.Costs(F=[1, 3, 1, 1], B=[2, 5, 2, 2], by="device")
    trace, equal = mp.simulate(schedule, costs), mp.simulate(schedule)
    assert trace.makespan > equal.makespan
    assert mp.Costs.from_text("F=1/3/1/1,B=2/5/2/2,by=device") == costs
    for device in range(4):
        found, usual = (
            {str(span.label): span.end - span.start for span in of.spans_of(device)} for of in (trace, equal)
        )
        F, B = (3, 5) if device == 1 else (1, 2)
        for action in schedule.devices[device]:
            ticks = {"F": F, "B": B, "I": Fraction(B, 2), "W": Fraction(B, 2), "F&B": F + B}[action.kind]
            assert found[str(action)] == ticks / schedule.stages_on[device]
        assert device == 1 or found == usual
    if name == "1f1b":
        assert trace == mp.simulate(schedule, mp.Costs(F=[1, 3, 1, 1], B=[2, 5, 2, 2]))
        assert trace.even().makespan == mp.simulate(schedule, mp.Costs(F=1.5, B=2.75)).makespan
    with pytest.raises(ValueError, match="F has 3 costs for 4 devices: give one number, or one per device"):
        mp.simulate(schedule, mp.Costs(F=[1, 1, 1], by="device"))
    layers = [mp.Linear(2, 2) for _ in range(schedule.n_stages)]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), schedule.n_stages, 8, schedule=name, costs=costs)
    pipe.forward_backward(np.ones((2, 8)), np.ones((2, 8)))
    assert pipe.trace.makespan == trace.makespan
