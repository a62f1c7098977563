"""The plan that is said to be the fastest is that among all, and a run of it takes what it says.

Then a profile of layers in, the fastest schedule out: from a file, from `measure`, and back to a table.
"""

import random
import re
import shlex
from fractions import Fraction

import numpy as np
import pytest
from compared import assert_within
from hypothesis import given, settings, strategies as st
from sampling import one_in

import minipipe as mp
from minipipe.cli.main import command_line, main
from minipipe.order import with_all_reduce, with_zero
from minipipe.partitioning.partition import cut_into_stages
from minipipe.planning import Nodes, plan
from minipipe.planning.pricing import Pricing, least_with_buckets
from minipipe.planning.profiles import Profiled, arrange, names_to_try, profile_of, read_profile
from minipipe.planning.search import Candidate, candidates
from minipipe.planning.without_numbers import WithoutNumbers
from minipipe.schedules import data_parallel

LOSS = mp.MeanSquaredError()
SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v")


def network(n_blocks, n=16):
    return [layer for _ in range(n_blocks) for layer in (mp.Linear(n, n), mp.Tanh())]


def everything(layers, batch, cluster, optimizer, schedules=SCHEDULES, n_shards=(1,)):
    """[(makespan, peak)] of every setting that exists, simulated to its end."""
    network = WithoutNumbers(layers, LOSS, (16,), np.float32, optimizer, "running")
    pricing = Pricing(network, layers, LOSS, "macs", cluster)
    levels = [0, 1, 2, 3] if optimizer else [0]
    found = []
    for one in candidates(
        cluster.size, batch, schedules, ("never", "always"), levels, None, n_shards, [1, 2, 4], [1, 2]
    ):
        if pricing.bound(one) is not None and pricing.exists(one):
            run = pricing.simulated(one, optimizer)
            assert pricing.bound(one) <= pricing.alone(one) * (1 + 1e-12), one
            assert pricing.with_exchange(one) <= run.makespan * (1 + 1e-12), one
            assert pricing.least_bytes(one) <= run.peak_bytes, one
            found.append((run.makespan, run.peak_bytes))
    return found


# a quick run has 9 without shards and 8 with them: there, wrong bounds skip what is faster
SEEDS = [9, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 8]


@pytest.mark.parametrize("seed, n_shards", one_in(12, SEEDS, [(1,), (1, 2, 4)]))
def test_no_setting_that_the_search_skips_is_faster(seed, n_shards):
    """Exhaustive, for random clusters, with limits at several peaks; and every bound is one."""
    chance = random.Random(seed)
    layers = network(chance.choice([2, 3, 4]))
    links = [mp.Link(chance.choice([0, 100, 3000]), chance.choice([4, 64, float("inf")])) for _ in range(2)]
    shape = chance.choice([(1, 4), (2, 2), (1, 2)])
    optimizer = chance.choice([None, mp.Adam()])
    size, batch = shape[0] * shape[1], 4 if seed % 2 else 256
    speeds = chance.choice([(), [chance.choice([1, 2]) for _ in range(size)]])
    ports = chance.choice([(), [mp.Port(8, sends=range(size))]])
    given = dict(seconds=lambda macs: macs + 500, speeds=speeds, ports=ports)
    schedules = SCHEDULES if n_shards == (1,) else ("1f1b", "zb-h1")
    runs = everything(layers, batch, Nodes(*shape, *links, **given), optimizer, schedules, n_shards)
    peaks = sorted({peak for _, peak in runs})
    for limit in (peaks[0], peaks[len(peaks) // 2], peaks[-1]):
        plans = plan(
            layers, LOSS, (16,), batch, Nodes(*shape, *links, memory=limit, **given), optimizer=optimizer,
            schedules=schedules, n_shards=n_shards, n_microbatches=[1, 2, 4], n_buckets=[1, 2], n_best=3,
        )
        expected = sorted(makespan for makespan, peak in runs if peak <= limit)[:3]
        assert [float(one.makespan) for one in plans.found] == expected
        assert all(one.peak_bytes <= limit for one in plans.found)


X = np.random.default_rng(0).standard_normal((16, 32)).astype(np.float32)


PORTS = [mp.Port(24, sends=[0, 1], receives=[0, 1]), mp.Port(16, receives=[3])]


@pytest.mark.parametrize("setting", one_in(3, [  # copies, shards, ZeRO, buckets, ports, speeds
    (1, 1, 0, 1, PORTS, (1, 2, 0.5, 1)),  # unequal devices, one stage on each
    (1, 1, 0, 1, (), ()),
    (4, 1, 0, 4, (), ()),
    (2, 1, 0, 1, PORTS, (2, 1, 2, 1)),
    (2, 1, 1, 1, (), ()),
    (2, 1, 3, 1, (), ()),
    (4, 1, 3, 4, PORTS, ()),
    (4, 1, 2, 1, (), ()),
    (1, 2, 0, 1, (), (2, 2, 1, 1)),
    (2, 2, 2, 2, (), ()),
    (2, 2, 0, 2, PORTS, ()),
    (1, 4, 0, 1, (), ()),
]))
def test_a_run_of_a_plan_takes_its_ticks_and_its_bytes(setting):
    """With arrays, after an update: makespan and peak, `==`."""
    n_replicas, n_shards, zero, n_buckets, ports, speeds = setting
    layers, optimizer = network(3), mp.Adam()
    cluster = Nodes(
        2, 2, mp.Link(50, 64), mp.Link(400, 16), seconds=lambda macs: macs + 500, ports=ports, speeds=speeds
    )
    best = plan(
        layers, LOSS, (16,), 32, cluster, optimizer=optimizer, n_replicas=[n_replicas], n_shards=[n_shards],
        zero=[zero], n_buckets=[n_buckets], n_microbatches=[4], schedules=["1f1b"],
    ).best
    assert (best.n_replicas, best.n_shards, best.zero) == (n_replicas, n_shards, zero)
    pipe = best.pipeline(layers, LOSS)
    pipe.train([(X, X)] * 2, optimizer)
    assert (pipe.trace.makespan, max(pipe.trace.peak_bytes())) == (best.makespan, best.peak_bytes)
    # three quotients, two of them of differences, and two additions
    assert_within(sum(best.shares.values()), 1.0, roundings=7)


def test_a_shard_has_its_part_of_the_work_and_its_place():
    """Half of each Linear; the numbers of devices are those that the plan's links are between."""
    cluster, layers = Nodes(2, 4, mp.Link(), mp.Link(), seconds=float), network(4)
    whole, half = (
        plan(layers, LOSS, (16,), 8, cluster, n_replicas=[2], n_shards=[T], schedules=["1f1b"],
             n_microbatches=[2]).best
        for T in (1, 2)
    )
    assert (sum(whole.costs.F), sum(half.costs.F)) == (2 * 4 * 16 * 16, 2 * 4 * 16 * 16 / 2)
    groups = half.pipeline(layers, LOSS).groups
    assert groups == {
        "tp": [[0, 1], [2, 3], [4, 5], [6, 7]], "pp": [[0, 2], [1, 3], [4, 6], [5, 7]],
        "dp": [[0, 4], [1, 5], [2, 6], [3, 7]],
    }


@pytest.mark.slow
@given(
    st.integers(2, 4), st.integers(1, 3), st.integers(0, 3), st.integers(0, 300),
    st.lists(st.tuples(st.integers(1, 900), st.integers(1, 900), st.integers(1, 4)), min_size=1, max_size=4),
)
@settings(max_examples=60)
def test_buckets_on_equal_links_take_exactly_the_bound(D, M, zero, latency, buckets):
    """F, B and the size of each bucket at random; all parts of a bucket are equally large."""
    F, B, sizes = zip(*buckets)
    layers = [mp.Linear(12 * n, 12 * after, bias=False) for n, after in zip(sizes, (*sizes[1:], 1))]
    order = data_parallel(D, D * M, len(layers))
    order = with_zero(order, zero) if zero else with_all_reduce(order)
    bytes_of = mp.footprints(
        layers, LOSS, len(layers), (12 * sizes[0],), 2, patterns=["FB"], accumulate="running"
    )
    trace = mp.simulate(order, mp.Costs(F=F, B=B), mp.Link(latency, 64), bytes_of)
    ticks = [latency + Fraction(one.parameters, 64 * D) for one in bytes_of]
    assert trace.makespan == least_with_buckets(M, F, B, ticks, ticks, zero)


def test_a_device_that_is_twice_as_fast_gets_twice_the_layers():
    cluster = Nodes(1, 3, mp.Link(), seconds=float, speeds=(1, 2, 1))
    best = plan(network(8), LOSS, (16,), 64, cluster, schedules=["gpipe"], n_replicas=[1, 3]).best
    stages = cut_into_stages(network(8), best.partition)
    assert [sum(isinstance(layer, mp.Linear) for layer in stage) for stage in stages] == [2, 4, 2]
    assert len(set(best.costs.F)) == 1


def test_slow_links_between_nodes_keep_the_pipeline_across_them():
    """Narayanan et al.'s rule: the exchange of all gradients stays inside the nodes, where links are fast."""
    for between, D in ((mp.Link(), 8), (mp.Link(bandwidth=0.01), 1)):
        cluster = Nodes(2, 4, mp.Link(), between, seconds=float)
        best = plan(
            network(8, 64), LOSS, (64,), 64, cluster, n_replicas=[1, 8], schedules=["1f1b"],
            n_microbatches=[2, 8],
        ).best
        assert best.n_replicas == D and best.bound_by == ("computing" if D == 8 else "bubble")


@pytest.mark.parametrize("layers, shape, optimizer, n_shards", [
    ([mp.Linear(4, 8), mp.BatchNorm(8), mp.Linear(8, 4)], (4,), None, [1]),   # a row needs two samples
    ([mp.Linear(4, 4), mp.MultiHeadAttention(4, 2)], (4, 3), None, [1, 2, 4]),   # two heads
    ([mp.Linear(4, 8), mp.Linear(8, 4)], (4,), mp.LAMB(0.1), [1, 2]),         # knows whole parameters
    ([mp.Linear(4, 4, tie="W"), mp.Linear(4, 4, tie="W")], (4,), mp.Adam(), [1]),
])
def test_what_would_not_run_is_not_tried(layers, shape, optimizer, n_shards):
    cluster = Nodes(1, 4, mp.Link(latency=1, bandwidth=64), seconds=float)
    plans = plan(
        layers, LOSS, shape, 8, cluster, optimizer=optimizer, n_shards=n_shards, n_best=5,
        schedules=["1f1b"],
    )
    for one in plans.found:
        assert optimizer is None or one.zero == 0
        x = np.ones((*shape, 8), np.float32)
        pipe = one.pipeline(layers, LOSS)
        pipe.forward_backward(x + np.arange(8, dtype=np.float32), x)
        assert pipe.trace.makespan == one.makespan


@pytest.mark.parametrize("layers, T, cluster, bound, makespan", [
    (network(2), 1, Nodes(1, 2, mp.Link(bandwidth=1 / 4)), 5632, 5632),
    # a pair sends less than the shape of its gradients says, and shards send parts
    ([mp.Linear(16, 16), mp.Fork("s"), mp.Linear(16, 16), mp.Join("s")], 1,
     Nodes(1, 4, mp.Link(bandwidth=1 / 4)), 4614, 7180),
    ([mp.Linear(16, 16), mp.Linear(16, 16)], 2, Nodes(2, 2, mp.Link(), mp.Link(bandwidth=1 / 4)), 2304, 2816),
], ids=["layers", "pairs", "shards"])
def test_bytes_count_in_the_bound_where_they_are_known(layers, T, cluster, bound, makespan):
    without = WithoutNumbers(layers, LOSS, (16,), np.float32, None, "running")
    pricing = Pricing(without, layers, LOSS, "macs", cluster)
    K = cluster.size // T
    one = Candidate(1, T, K, 2, 2, "1f1b", K, "never", 0)
    assert (pricing.alone(one), pricing.simulated(one, None).makespan) == (bound, makespan)


def planned(layers=network(2), shape=(16,), cluster=Nodes(), **options):
    return plan(layers, LOSS, shape, 8, cluster, **options)


@pytest.mark.parametrize("changed, words", [
    (dict(n_microbatches=3), "1 copy on 1 device, 3 micro-batches, 1f1b, recompute never"),
    (dict(n_replicas=2, n_devices=4, n_shards=2, partition=[2, 2], zero=1),
     "2 copies on 4 devices, 2 shards, 2 micro-batches, 1f1b, recompute never, ZeRO-1"),
    (dict(n_devices=2, n_shards=2, partition=[1, 3]),
     "1 copy on 2 devices, 2 shards, 2 buckets, 2 micro-batches, 1f1b, recompute never"),
])
def test_a_plan_is_said_in_a_line(changed, words):
    best = planned(schedules=["1f1b"], n_microbatches=[2], recompute=["never"]).best
    assert str(best._replace(**changed)) == words


@pytest.mark.parametrize("computing, bubble, word", [
    (0.9, 0.0, "computing"), (0.89, 0.06, "bubble"), (0.5, 0.2, "exchange"),
])
def test_a_plan_is_bound_by_what_takes_most_beside_computing(computing, bubble, word):
    shares = {"computing": computing, "bubble": bubble, "exchange": 1 - computing - bubble}
    assert planned().best._replace(shares=shares).bound_by == word


TWO = Nodes(1, 2, mp.Link())
ATTENTION = [mp.Linear(4, 8), mp.MultiHeadAttention(8, 2)]


@pytest.mark.parametrize("call, words", [
    (lambda: Nodes(1, 4), "4 devices in a node and no link between them: give it inside=Link"),
    (lambda: Nodes(2, 1), "2 nodes and no link between them: give it between=Link"),
    (lambda: Nodes(n_nodes=0), "n_nodes=0 must be at least 1"),
    (lambda: Nodes(n_nodes=1.5), "n_nodes=1.5 must be"),
    (lambda: Nodes(n_devices=0), "n_devices=0 must be at least 1"),
    (lambda: Nodes(n_devices="2"), "n_devices='2' must be"),
    (lambda: Nodes(memory=0), "memory=0 must be above 0 bytes"),
    (lambda: Nodes(memory="1GB"), "memory='1GB' must be"),
    (lambda: Nodes(seconds=3), "seconds=3 must be"),
    (lambda: Nodes(1, 2, mp.Link(), speeds=(1, 2, 1)),
     "speeds has 3 numbers for 2 devices: give one for each, or none"),
    (lambda: Nodes(1, 2, mp.Link(), speeds=(1, 0)), "speeds=0 must be"),
    (lambda: Nodes(1, 2, mp.Link(), ports=[mp.Port(1, sends=[2])]), "device 2"),
    (lambda: planned(cluster=4), "must be Nodes"),
    (lambda: planned(cluster=TWO, precision="mixed", n_shards=[2]),
     r"n_shards=\[2\] with precision='mixed': .* take n_shards=\[1\]"),
    (lambda: planned(cluster=Nodes(1, 2, mp.Link(), speeds=(1, 2)), n_replicas=[2]),    # no copy is alike
     "no schedule exists for 4 layers on 2 devices"),
    (lambda: planned(cluster=Nodes(1, 8, mp.Link()), n_replicas=[1]),
     "no schedule exists for 4 layers on 8 devices"),
    (lambda: planned(zero=[True]), "zero=True must be a whole number"),
    (lambda: planned(zero=[4]), "zero=4 must be at most 3"),
    (lambda: planned(zero=[3]), r"zero=\[3\] needs an optimizer that takes each number by itself"),
    (lambda: planned(ATTENTION, (4, 3), Nodes(1, 4, mp.Link()), n_shards=[4]), "2 heads over 4 shards"),
    (lambda: planned(n_microbatches=[3]), "divides 1 devices and batch_size=8"),
    (lambda: planned(cluster=Nodes(memory=100)), "nothing fits .* the closest, .* needs .* too many: give"),
    (lambda: planned(cluster=Nodes(memory=4_000)), "nothing fits .* the closest, .* needs .* too many: give"),
])
def test_what_cannot_be_is_said(call, words):
    with pytest.raises(ValueError, match=words):
        call()


HEADER = "name,forward,backward,weight backward,bytes\n"


@pytest.mark.slow
def test_no_schedule_with_a_name_is_faster():
    chance = random.Random(0)
    for _ in range(3):
        profile = [Profiled(f"layer {i}", *(chance.randint(1, 5) for _ in range(4))) for i in range(8)]
        link = mp.Link(chance.choice([0, 1]), chance.choice([2, float("inf")]))
        best = arrange(profile, 4, 8, link)
        assert best.makespan == mp.simulate(best.schedule, best.costs, link).makespan
        for name in names_to_try():
            try:
                assert arrange(profile, 4, 8, link, [name]).makespan >= best.makespan
            except ValueError as error:
                assert name in str(error)
        assert max(arrange(profile, 4, 8, link, most_alive=4).alive) <= 4
        assert sum(best.names, []) == [layer.name for layer in profile]


def test_a_file_is_read_by_the_names_of_its_columns(tmp_path):
    path = tmp_path / "mine.csv"
    lines = "bytes,name,Forward,weight backward,backward,notes", "10,first,1,3,2.5,x", "", "0,last,1,1,1,"
    path.write_text("\n".join(lines))
    assert read_profile(path) == [Profiled("first", 1, 2.5, 3, 10), Profiled("last", 1, 1, 1, 0)]


def test_the_table_that_the_command_writes_is_the_schedule(tmp_path, capsys):
    path, table = tmp_path / "mine.csv", tmp_path / "best.csv"
    path.write_text(HEADER + "".join(f"block {i},1,1,1,0\n" for i in range(4)))
    arguments = ["plan", "--profile", str(path), "--devices", "2", "--micro-batches", "4"]
    assert main([*arguments, "--output", str(table)]) == 0
    best = arrange(read_profile(path), 2, 4)
    assert mp.Schedule.from_csv(table).devices == best.schedule.devices
    said = capsys.readouterr().out
    assert f"{best.schedule.name}, {best.makespan:g}; work shared evenly takes 24" in said


def test_measured_layers_are_a_profile():
    layers = [mp.Linear(8, 8), mp.Tanh(), mp.Linear(8, 8), mp.Tanh()]
    X = np.ones((8, 4))
    measured = mp.measure(layers, mp.MeanSquaredError(), 4, X, X)
    profile = profile_of(measured, layers)
    assert [layer.n_bytes for layer in profile] == [256, 256, 256, 0]
    best = arrange(profile, 2, 4, unit="seconds")
    cut, machine = mp.Cut(best.partition), mp.Machine(costs=best.costs)
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), cut, 4, best.schedule, on=machine)
    X = np.ones((8, 16))
    pipe.forward_backward(X, X)
    assert pipe.trace.makespan == mp.simulate(best.schedule, best.costs).makespan


@pytest.mark.parametrize("text, words", [
    ("", "no column name, forward"),
    ("name,forward\n", "no column backward, weight backward, bytes"),
    (HEADER + "a,1,1,1\n", "line 2: 4 cells for 5 columns"),
    (HEADER + "a,1,1,x,0\n", "line 2: 1, 1, x, 0 are not all numbers"),
    (HEADER + "a,1,-1,1,0\n", "a: I=-1.0 must be at least 0"),
    (HEADER, "profile is an empty list"),
])
def test_a_file_with_mistakes_is_answered(tmp_path, text, words):
    path = tmp_path / "mine.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_profile(path) and None


def test_each_layer_of_a_profile_has_a_name():
    with pytest.raises(ValueError, match="name=3 must be a text"):
        arrange([Profiled(3, 1, 1, 1, 1)], 1, 1)


def test_the_command_for_a_network(capsys):
    network = "--model", "mlp([16, 16, 16, 10])", "--input", "16", "--batch", "16"
    arguments = ["plan", *network, "--devices", "2"]
    assert main([*arguments, "--memory", "1MiB"]) == 0
    said = capsys.readouterr().out
    assert "the fastest: " in said and "not tried: " in said and "settings" in said
    assert main([*arguments, "--memory", "100B"]) == 2
    assert "nothing fits 100 bytes a device: the closest" in capsys.readouterr().err
    assert main(["plan"]) == 2 and "give either --model" in capsys.readouterr().err
    assert main(["plan", "--profile", "none.csv"]) == 2 and "cannot read none.csv" in capsys.readouterr().err


OPTIONS = [
    ("", "zb-v, "), ("--schedules 1F1B", "1f1b, "), ("--schedules gpipe zb-h1", "zb-h1, "),
    ("--schedules greedy", "zb-h1, "), ("--devices 4", "on 4 devices"), ("-M 8", " 8 micro-batches"),
    ("--most-alive 1.5", "device: 1 1"), ("--latency 1", ""), ("--bandwidth 4", ""),
    ("--schedules 1f1b --most-alive 1", "most_alive=1: 1f1b: it keeps 2 micro-batches alive"),
    ("--schedules chimera", "schedules=['chimera'] must be a list of names out of naive"),
    ("--memory 4GiB", "--memory has no place beside --profile: a profile does not say how many bytes"),
    *((f"{words}", f"{words.partition(' ')[0]} has no place beside --profile: leave it out") for words in (
        "--input 4", "--batch-size 128", "--nodes 1", "--device A100", "--between 'InfiniBand HDR'",
        "--shards 1", "--precision float32", "--optimizer sgd",
    )),
]


def test_each_option_changes_the_plan_of_a_profile_or_is_refused(tmp_path, capsys):
    """A silent option is a wrong answer; so is one that was given its default."""
    path, plain = tmp_path / "mine.csv", None
    path.write_text(HEADER + "".join(f"block {i},1,1,1,8\n" for i in range(4)))
    command = ["plan", "--profile", str(path), "--devices", "2", "--micro-batches", "4"]
    for words, found in OPTIONS:
        status = main([*command, *shlex.split(words)])
        out, err = capsys.readouterr()
        assert found in out + err, words
        assert out != plain, f"{words} is silent"
        assert (status == 2) == (out == ""), words
        plain = out if not words else plain


def test_no_option_of_the_command_is_left_out_of_that_test():
    """All options of `plan`, but those that say what the costs are of and where the schedule is written."""
    tried = " ".join(words.replace("-M ", "--micro-batches ") for words, _ in OPTIONS)
    options = {*command_line().commands["plan"].options}
    options -= {"-h", "--help", "--model", "--profile", "--output"}
    assert options == {*re.findall(r"--[\w-]+", tried)}


@pytest.mark.parametrize("option", ["--micro-batches 8", "--latency 0", "--bandwidth 4", "--most-alive 2"])
def test_what_is_for_a_profile_is_refused_for_a_network(capsys, option):
    assert main(["plan", "--model", "mlp([16, 10])", "--input", "16", *option.split()]) == 2
    assert f"{option.split()[0]} has no place beside --model: " in capsys.readouterr().err
