"""A trace says what its tick is; traces of different ticks come onto one axis in one unit, or not at all."""

import pickle
from fractions import Fraction

import numpy as np
import pytest

import minipipe as mp
from minipipe.cluster import OneTick, in_one_unit
from minipipe.order import in_copies
from minipipe.planning import footprints, simulate_in_shards
from minipipe.schedules import SCHEDULES, build

LOSS = mp.MeanSquaredError()
LAYERS = [layer for _ in range(4) for layer in (mp.Linear(8, 8), mp.ReLU())][:-1]


def run(network, m):
    network.forward_backward(np.ones((8, m)), np.ones((8, m)))
    return network.trace


def pipeline(m=32, **options):
    return run(mp.Pipeline(LAYERS, LOSS, 4, 8, **options), m)


def copies(m=32, M=8, **options):
    return run(mp.DataParallel(LAYERS, LOSS, 4, M, **options), m)


def shards(m=32, **options):
    return run(mp.TensorParallel(LAYERS, LOSS, 4, **options), m)


def simulated(name="gpipe", K=4, M=8, **costs):
    return mp.simulate(build(name, K, M), mp.Costs(**costs))


def unknown():
    def program():
        yield mp.Compute("work", ticks=5)

    return mp.Cluster([program()]).run()


def on(**costs):
    return mp.Machine(costs=mp.Costs(**costs))


# What a tick is

RUNS = {  # name -> (run, what a tick of it is)
    "pipeline": (pipeline, "the forward of 1/4 of the network for 4 samples"),
    "copies": (copies, "the forward of the network for 4 samples"),
    "shards": (shards, "the forward of 1/4 of the network for 32 samples"),
    "ragged": (lambda: pipeline(9), "the forward of 1/4 of the network for 9/8 samples on average"),
    "one sample": (lambda: pipeline(8), "the forward of 1/4 of the network for 1 sample"),
    "F = 2": (lambda: pipeline(on=on(F=2, B=4)), "the forward of 1/8 of the network for 4 samples"),
    "F = 0.1": (lambda: copies(on=on(F=0.1, B=0.2)), "10 forwards of the network for 4 samples"),
    "sqrt": (lambda: pipeline(recompute="sqrt"), "the forward of 1/4 of the network for 4 samples"),
    "share": (
        lambda: simulated(F=[1, 2, 3, 2], share=0.125), "the forward of 1/8 of the network for a micro-batch"
    ),
    "two stages": (lambda: simulated("zb-v"), "the forward of 1/4 of the network for a micro-batch"),
    "copies in shards": (
        lambda: simulate_in_shards(in_copies(build("gpipe", 2, 2), 2), 3),
        "the forward of 1/6 of the network for a micro-batch",
    ),
}


@pytest.mark.parametrize("name", RUNS)
def test_a_trace_says_what_its_tick_is(name):
    make, words = RUNS[name]
    assert str(make().tick_is) == f"1 tick: {words}"


@pytest.mark.parametrize("split, options", [
    (mp.Split(stages=4, microbatches=8), {}), (mp.Split(stages=3, microbatches=5), {"schedule": "zb-h1"}),
    (mp.Split(4, microbatches=6), {}), (mp.Split(shards=2, microbatches=3), {}),
    (mp.Split(2, 2, 2, microbatches=4), {"on": on(F=3, B=1)}),
    (mp.Split(2, 2, 2, microbatches=4), {"memory": mp.Memory("sqrt"), "sums": mp.Sums(buckets="layer")}),
])
def test_the_ticks_of_all_forwards_are_the_whole_network_for_all_samples(split, options):
    """Ticks in F, over all devices, times the share and the samples of a tick: 1 network x 19 samples."""
    trace = run(mp.Parallel(LAYERS, LOSS, split, **options), m=19)
    ticks = sum(span.end - span.start for span in trace.spans if str(getattr(span.label, "kind", "")) == "F")
    assert ticks * trace.tick_is.work == 19


@pytest.mark.parametrize("name", SCHEDULES)
def test_the_ticks_of_all_forwards_of_a_schedule_are_the_network_for_each_micro_batch(name):
    trace = simulated(name, 4, 8, F=Fraction(1, 2), B=3)
    assert trace.tick_is == OneTick(Fraction(1, 2), None, Fraction(1, 2))
    if all(len(span.label.parts) == 1 for span in trace.spans):  # not the ticks of a backward as well
        forwards = [span for span in trace.spans if getattr(span.label, "kind", "") == "F"]
        assert sum(span.end - span.start for span in forwards) * trace.tick_is.work == 8


def test_seconds_lists_and_programs_of_ones_own_do_not_say_what_a_tick_is():
    assert unknown().tick_is is simulated(F=[1, 2, 3, 4]).tick_is is simulated(unit="seconds").tick_is is None
    assert copies(on=mp.Machine("threads")).tick_is is None


def test_it_stays_with_a_run_that_is_copied_and_with_one_that_takes_over_its_bytes():
    network = mp.Pipeline(LAYERS, LOSS, 4, 8)
    first, second = run(network, 32).tick_is, run(network, 32).tick_is
    again = pickle.loads(pickle.dumps(network)).trace.tick_is
    assert first == second == again == OneTick(Fraction(1, 4), 4, 1)
    network.start(np.ones((8, 16)), np.ones((8, 16)))
    network.tick()
    assert network.trace.tick_is == OneTick(Fraction(1, 4), 2, 1)


# Several runs in one unit

def makespans(traces):
    return {name: trace.makespan for name, trace in traces.items()}


def test_three_splits_of_one_network_that_took_33_and_6_and_3_ticks():
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
def test_a_stretched_trace_is_the_run_with_stretched_costs_and_links(name, options):
    factor, options = Fraction(3, 2), {"latency": Fraction(1, 3), **options}
    layers = [mp.Linear(8, 8) for _ in range(4)]
    schedule = build(name, 2, 4)
    of_stages = footprints(layers, LOSS, schedule.n_stages, (8,), 4)

    def trace(factor):
        link = mp.Link(**options | {"latency": factor * options["latency"]}, bandwidth=128 / factor)
        costs = mp.Costs(F=1 * factor, B=2 * factor, I=1 * factor, W=1 * factor)
        return mp.simulate(schedule, costs, link, of_stages, ports=mp.cluster.ports(2, 128 / factor))

    first = trace(Fraction(1))
    found, expected = first.stretched(factor), trace(factor)
    assert found == expected and found != first
    assert [found.ledger(d) for d in range(2)] == [expected.ledger(d) for d in range(2)]
    assert found.awaited == expected.awaited and found.asked == expected.asked
    assert found.in_front == expected.in_front and found.critical_path() == expected.critical_path()
    assert str(found.explain()) == str(expected.explain())
    assert isinstance(trace(Fraction(1)).stretched(12).makespan, int) and found.tick_is is None


AS_THEY_ARE = {  # simulations that stay as they are
    "more micro-batches, of the same size": lambda: {"one": simulated(), "two": simulated("zb-v", 4, 16)},
    "other costs of the same forward": lambda: {"fast": simulated(F=1), "slow": simulated(F=2, B=4)},
    "a list of costs": lambda: {"list": simulated(F=[1, 2, 1, 1]), "one": simulated(), "mine": unknown()},
}


@pytest.mark.parametrize("name", AS_THEY_ARE)
def test_simulations_that_stay_as_they_are(name):
    traces = AS_THEY_ARE[name]()
    found, unit = in_one_unit(traces)
    assert all(found[one] is traces[one] for one in traces) and unit is None
    if name.startswith("more"):
        assert mp.plots.compare(traces).axes[-1].get_xlabel() == "time (ticks)"


def test_runs_of_the_same_work_stay_as_they_are_and_the_axis_says_what_it_is():
    """1/4 x 8 samples: the share of a device, or, with F = 4 for all of the network, a quarter of that."""
    traces = {"network": pipeline(64), "data": copies(64, on=on(F=4, B=8)), "simulated": simulated()}
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
        r"differ, and one is unknown: network has 1 tick: the forward of 1/4 of the network for 4 samples; "
        r"data has .*; mine has ticks that it does not explain. To compare, multiply the costs of data by 4$",
    ),
    "a simulation beside runs of other samples": (
        lambda: {"small": pipeline(), "large": pipeline(64), "simulated": simulated()},
        "no common unit, since a simulation knows no samples: .*Leave the simulation out, or run a network",
    ),
    "slower devices beside another share": (
        lambda: {"one": pipeline(), "slow": pipeline(on=on(F=2, B=4)), "data": copies()},
        "so do the costs of the same forward: .*equally fast, multiply the costs of one by 2 and multiply "
        "the costs of data by 8; otherwise",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ticks_without_a_common_unit_are_refused_with_the_remedy(name):
    make, words = REFUSED[name]
    traces = make()
    for show in (in_one_unit, mp.plots.compare):
        with pytest.raises(ValueError, match=words):
            show(traces)


def test_the_remedy_helps():
    traces = {"network": pipeline(), "data": copies(on=on(F=4, B=8)), "mine": unknown()}
    assert in_one_unit(traces)[0]["data"].makespan == 24 and mp.plots.compare(traces)


def test_schedules_of_other_numbers_of_devices_are_compared_in_one_unit():
    """One device works through 4 times as much in a tick as each of four: 4 x 24 ticks."""
    found = mp.compare(build("gpipe", 1, 8), build("1f1b", 4, 8))
    assert makespans(found) == {"gpipe": 96, "1f1b": 33}
    assert "1 tick: the forward of 1/4 of the network for a micro-batch.\n" in repr(found)
    assert found.plot().axes[-1].get_xlabel() == f"time ({found.tick_is})"
    assert mp.compare("gpipe", "1f1b").tick_is is None
