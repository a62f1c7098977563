"""What may be handed in: numbers leave their door as Python's own, and all else is refused in a sentence."""

import copy
import gzip
import math
import os
import pickle
import signal
import subprocess
import sys
import tracemalloc
from fractions import Fraction
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from compared import assert_same, difference, parameters

import minipipe as mp
from minipipe.checks import is_plain, real_number, whole_number
from minipipe.cli.main import main
from minipipe.interrupted import stop
from minipipe.partitioning import loads
from minipipe.schedules import (
    best_schedule, build, dualpipe, gpipe, greedy_schedule, in_copies, in_segments, pipedream_2bw, staleness,
    with_recompute, with_updates,
)

LAYERS = [mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 1)]
X, Y = np.ones((2, 4)), np.ones((1, 4))
BANANA = mp.datasets.text.characters("banana")


def network(**options):
    return mp.Sequential(LAYERS, mp.MeanSquaredError(), **options)


def pipeline(**options):
    return mp.Pipeline(LAYERS, mp.MeanSquaredError(), **({"n_stages": 2, "n_microbatches": 2} | options))


def fitted(**options):
    return mp.fit(network(), X, Y, mp.SGD(0.1), n_epochs=1, batch_size=2, report=None, **options)


def stepped(optimizer):
    net = network()
    net.forward_backward(X, Y)
    net.step(optimizer)


def stream(batches):
    return mp.AsynchronousPipeline(LAYERS, mp.MeanSquaredError(), 2, mp.SGD(0.1)).train(batches)


def simulate_gpipe():
    return mp.simulate(gpipe(2, 2))


def carried(n_bytes, bandwidth):
    """The makespan of three messages in a row."""
    def sender():
        for k in range(3):
            yield mp.Send(f"message {k}", None, 1, n_bytes=n_bytes)

    def receiver():
        for k in range(3):
            yield mp.Receive(f"message {k}", 0)

    return mp.Cluster([sender(), receiver()], link=mp.Link(bandwidth=bandwidth)).run().makespan


def simulated(costs=mp.Costs(), link=mp.Link()):
    return mp.simulate(gpipe(4, 8), costs, link).makespan


SUM = (8 + 4 - 1) * 3  # ticks of GPipe with F = 1 and B = 2
IN_NUMPY = {  # what -> (the makespan with NumPy's numbers, that with Python's)
    "costs": (lambda: simulated(mp.Costs(F=np.int32(10**8), B=np.int32(2 * 10**8))), 10**8 * SUM),
    "costs in a list": (lambda: simulated(mp.Costs(F=[np.int8(50)] * 4, B=[np.int8(100)] * 4)), 50 * SUM),
    "costs in an array": (lambda: simulated(mp.Costs(F=np.full(4, 50, np.int8), B=100)), 50 * SUM),
    "bytes": (
        lambda: simulated(mp.Costs(message_bytes=np.int32(10**9)), mp.Link(bandwidth=1)), 20 * 10**9 + 12
    ),
    "latency": (lambda: simulated(link=mp.Link(latency=np.int8(100))), SUM + 600),
    "ticks of a Compute": (
        lambda: mp.Cluster([(mp.Compute(k, ticks=np.int8(100)) for k in range(3))]).run().makespan, 300
    ),
    "duration": (
        lambda: mp.Cluster([(mp.Compute(k) for k in range(3))], lambda _: np.int8(100)).run().makespan, 300
    ),
    "bytes of a Send": (lambda: carried(np.int8(100), np.int8(1)), 300),
    "sizes": (lambda: mp.simulate(build("interleaved", np.int8(64), np.int8(64))).makespan > 0, True),
    "sizes of two directions": (
        lambda: mp.simulate(build("chimera", np.int8(64), np.int8(64))).makespan,
        mp.simulate(build("chimera", 64, 64)).makespan,
    ),
    "units": (lambda: mp.Linear(np.int8(100), np.int8(100)).macs((100, 100)), 10**6),
}


@pytest.mark.parametrize("name", IN_NUMPY)
def test_numpys_numbers_do_not_overflow(name):
    make, expected = IN_NUMPY[name]
    found = make()
    assert found == expected and type(found) in (int, float, bool, Fraction)


def test_links_and_ports_have_pythons_numbers():
    link, port = mp.Link(np.float32(0.5), np.int8(100)), mp.Port(np.longdouble(2), [0])
    assert [type(number) for number in (link.latency, link.bandwidth, port.bandwidth)] == [float, int, float]
    assert mp.Link(latency=Fraction(1, 3)).latency == Fraction(1, 3)


def test_a_rational_number_may_meet_a_clock_in_floats():
    third = mp.exact.Rational(1, 3)
    assert simulated(mp.Costs(F=third, B=0.5), mp.Link(latency=third)) > 0
    assert mp.Cluster([(mp.Compute(ticks, ticks=ticks) for ticks in (0.5, third))]).run().makespan > 0.8


def test_costs_do_not_change_when_a_list_that_made_them_does():
    given = [1, 2]
    costs = mp.Costs(F=given)
    given[0] = 100
    assert costs.F == [1, 2]


@pytest.mark.parametrize("far", [1e308, 5e-324, 10**400, Fraction(1, 10**400), math.inf, math.nan, -1, True])
def test_numbers_that_would_make_the_clock_infinite_are_refused(far):
    for make in (
        lambda: simulated(mp.Costs(F=far)),
        lambda: simulated(mp.Costs(B=[far, 1, 1, 1])),
        lambda: simulated(mp.Costs(message_bytes=far)),
        lambda: mp.Link(latency=far),
        lambda: mp.Cluster([(mp.Compute(k, ticks=far) for k in range(2))]).run(),
        lambda: carried(far, 1),
    ):
        with pytest.raises(ValueError, match=r"out of reach|must be"):
            make()
    if far != math.inf:
        with pytest.raises(ValueError, match=r"bandwidth=.* (is out of reach|must be)"):
            mp.Link(bandwidth=far)
        with pytest.raises(ValueError, match=r"bandwidth=.* (is out of reach|must be)"):
            mp.Port(far, [0])


def test_what_goes_through_without_a_further_check_is_what_a_check_would_let_through():
    finite = (0, 1, 0.5, Fraction(1, 3), 10**100, 10**101, 5e-324, 1e-99, -1, np.int8(1), np.float64(1))
    for number in (*finite, True, math.nan, math.inf, "1", None):
        try:
            checked = real_number("ticks", number, least=0, clock=True)
        except ValueError:
            checked = None
        assert is_plain(number) == (checked is not None and type(checked) is type(number))


NO_TRACEBACK = {
    "units that are not whole": (lambda: mp.Linear(2.5, 3), "n_prev=2.5 must be a whole number"),
    "units in words": (lambda: mp.Linear("a", 3), "n_prev='a' must be a whole number"),
    "a truth for a number": (lambda: mp.Linear(True, 3), "n_prev=True must be a whole number"),
    "a name for how to begin": (lambda: mp.Linear(2, 3, "he"), "initialization='he' must be a function"),
    "a list for a tie": (lambda: mp.Linear(2, 3, tie=[]), "tie=[] must be a text"),
    "a number for a tie": (lambda: mp.Embedding(2, 3, tie=3), "tie=3 must be a text"),
    "channels that are not whole": (lambda: mp.Conv2d(2.5, 3, 3), "in_channels=2.5 must be a whole number"),
    "groups that are no int": (lambda: mp.Conv2d(2, 2, 3, groups=2.0), "groups=2.0 must be a whole number"),
    "a kernel in words": (lambda: mp.Conv2d(2, 2, "3"), "kernel_size='3' must be a whole number, or a tuple"),
    "one width": (lambda: mp.Pad(1), "Pad(1): pass a list, with a width for each spatial axis"),
    "half a width": (lambda: mp.Pad([1.5]), "widths[0][0]=1.5 must be a whole number"),
    "a width in words": (lambda: mp.Pad(["ab"]), "widths[0]='ab' must be a list of whole numbers"),
    "one length": (lambda: mp.Reshape(3), "shape=3 must be a list of whole numbers, even of one"),
    "half a length": (lambda: mp.Reshape((2.5,)), "shape[0]=2.5 must be a whole number"),
    "a share in words": (lambda: mp.Dropout("a"), "p='a' must be a number, at least 0 and below 1"),
    "a slope in words": (lambda: mp.LeakyReLU(None), "negative_slope=None must be a number"),
    "no seed": (lambda: pipeline(seed=None), "seed=None must be a whole number"),
    "a seed below 0": (lambda: network(seed=-1), "seed=-1 must be at least 0"),
    "no seed for the shuffling": (lambda: fitted(seed=None), "seed=None must be a whole number"),
    "an unknown dtype": (lambda: pipeline(dtype="foo"), "dtype='foo' is not known"),
    "an unknown dtype of a table": (lambda: mp.describe(LAYERS, (2,), "foo"), "dtype='foo' is not known"),
    "an unknown dtype of labels": (lambda: mp.one_hot([0], 2, "foo"), "dtype='foo' is not known"),
    "an array for recompute": (lambda: pipeline(recompute=[]), "recompute=[] must be one of"),
    "an array with numbers for recompute": (
        lambda: pipeline(recompute=np.ones(2)), "recompute=array([1., 1.]) must be one of"
    ),
    "a class as partition": (lambda: pipeline(partition=np.float32), "is a class: pass a name, a function"),
    "a rate in words": (lambda: mp.SGD("a"), "learning_rate='a' must be a number, above 0"),
    "no rate": (lambda: mp.SGD(None), "learning_rate=None must be a number, above 0"),
    "an infinite rate": (lambda: mp.SGD(math.inf), "learning_rate=inf must be finite"),
    "a momentum in words": (lambda: mp.SGD(0.1, "a"), "momentum='a' must be a number"),
    "one beta": (lambda: mp.Adam(betas=0.9), "betas=0.9 must be a list"),
    "three betas": (lambda: mp.Adam(betas=(0.9, 0.9, 0.9)), "betas has 3 numbers: pass a pair"),
    "None for a line": (lambda: mp.Schedule.from_text([None]), "lines=[None] must be texts, one per device"),
    "a number for lines": (lambda: mp.Schedule.from_text(3), "lines=3 must be a list"),
    "a number for costs": (lambda: best_schedule(2, 2, costs=3), "costs=3 must be Costs(F=..., B=...)"),
    "a number for costs of rules": (lambda: greedy_schedule(2, 2, costs=3), "costs=3 must be Costs("),
    "a latency in words": (lambda: best_schedule(2, 2, latency="a"), "latency='a' must be a number"),
    "nodes in words": (lambda: best_schedule(2, 2, most_nodes="a"), "most_nodes='a' must be a whole number"),
    "stages that are not whole": (lambda: mp.partition(LAYERS, 2.0), "n_stages=2.0 must be a whole number"),
    "a number for layers": (lambda: mp.partition(3, 2), "layers=3 must be a list"),
    "a number for a network": (lambda: mp.Sequential(3, None), "layers=3 must be a list"),
    "a limit in words": (
        lambda: mp.Cluster([], holdings=[], memory_limit="1"), "memory_limit='1' must be a number, above 0"
    ),
    "a text for a schedule": (lambda: with_updates("gpipe"), "schedule='gpipe' is not a Schedule: pass one"),
    "a number for a schedule": (lambda: with_recompute(3), "schedule=3 is not a Schedule: pass one"),
    "a list for a schedule": (lambda: in_copies([], 2), "schedule=[] is not a Schedule: pass one"),
    "a number for what is counted": (lambda: staleness(3), "schedule=3 is not a Schedule: pass one"),
    "a number for orders": (lambda: mp.Schedule(3, 1, 1), "devices=3 must be a list"),
    "a number for an order": (lambda: mp.Schedule([3], 1, 1), "devices[0]=3 must be a list"),
    "a number for an action": (lambda: mp.Schedule([[3]], 1, 1), "3 is no action: use Schedule.from_text"),
    "a number for copies": (lambda: mp.Schedule.from_text(["F0 B0"], copy_of=3), "copy_of=3 must be a list"),
    "a number for versions": (lambda: mp.Schedule((), 1, 1, versions=3), "versions=3 must be a list"),
    "a stream of parts that are not whole": (
        lambda: pipedream_2bw(2, 4, 2.5), "per_update=2.5 must be a whole number"
    ),
    "half a device": (lambda: mp.cluster.ports(1.5, 1), "n_devices=1.5 must be a whole number"),
    "too many devices for one link": (
        lambda: mp.cluster.links_between(mp.Link(1), 10**5), "a Link between each two of 100000 devices"
    ),
    "an array for widths": (lambda: mp.Pad(np.array(1)), "Pad(array(1)): pass a list"),
    "an array for mini-batches": (lambda: stream(np.array(3)), "batches must be a list of pairs (X, Y)"),
    "a number for a score": (lambda: fitted(metric=3), "metric=3 must be a function"),
    "a number for progress": (lambda: fitted(progress=3), "progress=3 must be a function"),
    "a text for an optimizer": (lambda: stepped("sgd"), "optimizer is 'sgd': pass an object, such as SGD("),
    "a dict for an optimizer": (lambda: stepped({}), "optimizer is {}: pass an object, such as SGD("),
    "a class for an optimizer": (lambda: stepped(mp.SGD), "SGD'>: pass an object, such as SGD("),
    "an array for limits": (lambda: best_schedule(2, 2, most_alive=np.array("a")), "most_alive="),
    "an array for segments": (lambda: in_segments(gpipe(2, 2), np.array(2.0)), "must be a whole number"),
    "a number for a folder": (lambda: mp.datasets.mnist(3), "folder=3 must be a path"),
    "a list for a folder": (lambda: mp.datasets.cifar10([]), "folder=[] must be a path"),
    "a number for a text": (lambda: BANANA.encode(3), "text=3 must be a str"),
    "a share above 1": (lambda: BANANA.split(1.5), "test_share=1.5 must be at least 0 and at most 1"),
    "a share below 0": (lambda: BANANA.split(-0.5), "test_share=-0.5 must be at least 0 and at most 1"),
    "a share beyond all": (lambda: BANANA.split(1e308), "test_share=1e+308 must be at least 0 and at most 1"),
    "too many ports": (lambda: mp.cluster.ports(10**400, 1), "must be at most 4,000,000"),
    "a share in a list": (lambda: BANANA.split([1]), "test_share=[1] must be a number"),
    "a number for loads": (lambda: loads(3, [1]), "costs=3 must be a list"),
    "a number for sizes": (lambda: mp.models.mlp(3), "sizes=3 must be a list of whole numbers"),
    "a number for a shape": (lambda: mp.models.lenet5(3), "input_shape=3 must be a list of whole numbers"),
    "what is no number at all": (lambda: mp.exact.rational([None]), "holds what is no number"),
    "a number for costs in text": (lambda: mp.Costs.from_text(3), "costs=3 must be a text"),
    "an array for a bubble": (lambda: simulate_gpipe().bubble(np.ones(2)), "bubble of array([1., 1.])"),
    "a class for a width": (lambda: mp.plots.text(simulate_gpipe(), int), "must be a whole number"),
    "an array for a padding": (lambda: mp.Conv1d(1, 1, 3, padding=np.ones((2, 2))), "must be a whole number"),
    "an array for a transposed padding": (
        lambda: mp.ConvTranspose1d(1, 1, 3, padding=np.ones((2, 2))), "must be a whole number",
    ),
    "an array for a mode": (lambda: with_recompute(gpipe(1, 1), np.ones(2)), "recompute=array([1., 1.])"),
    "an array for an order": (lambda: pipeline(schedule=np.ones(2)), "schedule=array([1., 1.]) is not"),
    "an array for footprints": (
        lambda: mp.simulate(gpipe(1, 1), footprints=np.ones(2)), "footprints is a ndarray: pass"
    ),
    "a number for the layers of copies": (
        lambda: mp.DataParallel(3, mp.MeanSquaredError(), 2), "layers=3 must be a list"
    ),
    "a list for the devices of DualPipe": (lambda: build("dualpipe", [], 4), "n_devices=[] must be a whole"),
    "costs for the devices of DualPipe": (
        lambda: dualpipe(mp.Costs(), 4), "n_devices=Costs(F=1, B=2, R=None"
    ),
    "a number for whose micro-batches": (
        lambda: mp.Schedule.from_text(["F0 B0"], copy_of=3.5), "copy_of=3.5 must be a list"
    ),
    "more samples than there are": (
        lambda: mp.what_fits(LAYERS, mp.MeanSquaredError(), (2,), 10**400, 10**9),
        "must be at most 1,000,000,000",
    ),
    "a number for predictions": (lambda: mp.MeanSquaredError().forward(3, Y), "A=array(3) is one number"),
    "a layer for labels": (lambda: mp.MeanSquaredError().forward(Y, mp.ReLU()), "Y holds ReLU() at"),
    "half a sample": (lambda: mp.MeanSquaredError().forward(Y, Y, 2.5), "m=2.5 must be a whole number"),
    "an array for a truth": (lambda: mp.SGD(0.1, 0.9, np.ones(2)), "nesterov=array([1., 1.])"),
    "a text for a truth": (lambda: mp.models.transformer(3, 2, 1, 1, 3, tied=3), "tied=3 must be True or"),
    "an array for how": (lambda: mp.Join("a", np.ones(2)), "how=array([1., 1.])"),
    "words for numbers": (lambda: mp.exact.rational(["a"]), "holds what is no number"),
    "half a device of a trace": (lambda: simulate_gpipe().spans_of(0.0), "device=0.0 is not one"),
    "an array for a lane": (lambda: simulate_gpipe().spans_of(0, np.ones(2)), "device 0 has no lane array("),
    "an array of nothing for an order": (lambda: mp.Schedule(np.array([[None]]), 1, 1), "None is no"),
    "a class for predictions": (lambda: mp.MeanSquaredError().forward(np.float32, Y), "A holds <class"),
    "too many samples": (lambda: mp.MeanSquaredError().forward(Y, Y, 10**400), "must be at most 1,000,"),
    "an array for dropout": (lambda: mp.TransformerBlock(2, 1, dropout=np.ones(2)), "dropout=array("),
    "arrays for names": (
        lambda: mp.what_fits(LAYERS, mp.MeanSquaredError(), (2,), 4, 10**9, schedules=np.ones((2, 2))),
        "must be a list of names",
    ),
    "a number for the dtype of buckets": (
        lambda: mp.DataParallel(LAYERS, mp.MeanSquaredError(), 2, buckets=9, dtype=2.5), "dtype=2.5 is not"
    ),
    "an array for buckets": (
        lambda: mp.DataParallel(LAYERS, mp.MeanSquaredError(), 2, buckets=np.ones(2)), "buckets=array("
    ),
    "lists that differ": (lambda: mp.accuracy([[1.0, 0.0]], [[1, 0]]), "accuracy compares two arrays"),
}


@pytest.mark.parametrize("name", NO_TRACEBACK)
def test_a_mistake_is_answered_with_a_sentence(name):
    call, words = NO_TRACEBACK[name]
    with pytest.raises(ValueError) as complaint:
        call()
    assert words in str(complaint.value)


@pytest.mark.parametrize("limit", ["1", [1], math.nan, 0, -1, True])
def test_a_limit_of_memory_is_a_number_of_bytes_everywhere(limit):
    for call in (
        lambda: pipeline(memory_limit=limit),
        lambda: mp.what_fits(LAYERS, mp.MeanSquaredError(), (2,), 4, limit),
        lambda: mp.Cluster([], holdings=[], memory_limit=limit),
    ):
        with pytest.raises(ValueError, match=r"memory_limit=.* must be .*above 0 bytes"):
            call()


def test_layers_may_come_from_a_generator():
    def generator():
        return (layer for layer in LAYERS)

    for make in (lambda layers: mp.Sequential(layers, mp.MeanSquaredError()),
                 lambda layers: mp.Pipeline(layers, mp.MeanSquaredError(), 2, 2),
                 lambda layers: mp.describe(layers, (2,)),
                 lambda layers: mp.partition(layers, 2),
                 lambda layers: mp.footprints(layers, mp.MeanSquaredError(), 2, (2,), 4),
                 lambda layers: mp.what_fits(layers, mp.MeanSquaredError(), (2,), 4, 10**9)):
        assert repr(make(generator())) == repr(make(LAYERS))
    assert mp.measure(generator(), mp.MeanSquaredError(), 2, X, Y, n_rounds=1).footprints


def test_lists_will_do_for_a_loss():
    loss = mp.MeanSquaredError()
    assert loss.forward([[1.0, 3.0]], [[0, 1]]) == 1.25 and loss.backward().tolist() == [[0.5, 1.0]]


def test_a_page_has_any_title():
    assert "<title>7/2</title>" in simulate_gpipe().to_html(title=mp.exact.Rational(7, 2))


def test_lists_will_do_for_accuracy():
    assert mp.accuracy([[1.0, 0.0], [0.0, 1.0]], [[1, 1], [0, 0]]) == 0.5


def test_a_stride_beyond_the_text_leaves_one_window():
    X, Y = BANANA.windows(2, 10**30)
    assert X.tolist() == [[1], [0]] and Y.shape == (3, 2, 1)


@pytest.mark.parametrize(
    "make",
    [
        lambda: build("gpipe", 10**6, 10**6),
        lambda: gpipe(4, 10**8),
        lambda: build("pipedream", 10**4, 10**4),
        lambda: build("zb-v", 2 * 10**3, 10**4),
        lambda: greedy_schedule(10**4, 10**4),
        lambda: best_schedule(10**4, 10**4),
        lambda: in_copies(gpipe(2, 2), 10**7),
        lambda: in_segments(gpipe(2, 2), 10**7),
    ],
)
def test_a_schedule_that_would_fill_the_memory_is_refused(make):
    with pytest.raises(ValueError, match=r"a schedule of .* actions exceeds the limit of 4,000,000: use"):
        make()


@pytest.mark.parametrize(
    "make",
    [
        lambda: mp.models.resnet(6000002),
        lambda: mp.models.amoebanet_d(3000000, 8),
        lambda: mp.models.transformer(5, 8, 2, 10**7),
    ],
)
def test_a_network_of_too_many_layers_is_refused(make):
    with pytest.raises(ValueError, match="must be at most 10,000"):
        make()


def test_a_huge_number_is_named_without_its_digits():
    with pytest.raises(ValueError, match="m=a number of too many digits to be shown must be at most 5"):
        whole_number("m", 10**5000, most=5)


def test_a_number_for_a_path_is_refused():
    with pytest.raises(mp.ScheduleError, match="source=3 must be a path, or the table as text"):
        mp.Schedule.from_csv(3)


def test_a_file_without_an_end_is_refused_before_it_fills_the_memory(tmp_path, monkeypatch):
    monkeypatch.setattr("minipipe.schedules.csv_format.MOST_CHARACTERS", 1000)
    (tmp_path / "long.csv").write_text("0F0,0B0\n" + 1000 * ",")
    with pytest.raises(mp.ScheduleError, match=r"long.csv has more than 1,000 characters.*use fewer devices"):
        mp.Schedule.from_csv(tmp_path / "long.csv")


def test_a_number_of_a_stage_that_no_schedule_has_is_no_action():
    with pytest.raises(mp.ScheduleError, match="is not an action"):
        mp.Schedule.from_text([f"F{10**10}"])


def test_a_run_under_way_is_not_copied_and_one_that_is_over_is():
    pipe = pipeline()
    pipe.start(X, Y)
    pipe.tick()
    for make in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(RuntimeError, match="this run is under way, and its programs cannot be copied"):
            make(pipe)
    while pipe.tick():
        pass
    before = parameters([layer.copy() for layer in pipe.layers])
    for make in (copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))):
        twin = make(pipe)
        assert twin.J == pipe.J and twin.trace == pipe.trace
        twin.step(mp.SGD(0.1))
        assert twin.forward_backward(X, Y) < pipe.J
        assert difference(parameters(twin.layers), before) and twin.stages[0].layers[0] is twin.layers[0]
        assert_same(parameters(pipe.layers), before)


def test_a_pipeline_that_has_failed_and_one_without_a_flush_can_be_copied_too():
    pipe = pipeline(memory_limit=1)
    with pytest.raises(mp.MemoryLimitError):
        pipe.forward_backward(X, Y)
    with pytest.raises(mp.MemoryLimitError):
        copy.deepcopy(pipe).forward_backward(X, Y)
    pipe = mp.AsynchronousPipeline(LAYERS, mp.MeanSquaredError(), 2, mp.SGD(0.1))
    pipe.train([(X, Y)] * 3)
    assert pickle.loads(pickle.dumps(pipe)).train([(X, Y)]) == pipe.train([(X, Y)])


@pytest.mark.parametrize("name", ["layers", "loss", "n_stages", "n_microbatches"])
def test_what_a_pipeline_was_made_of_cannot_be_exchanged(name):
    pipe, net = pipeline(), network()
    for model in (pipe, net) if name in ("layers", "loss") else (pipe,):
        with pytest.raises(AttributeError):
            setattr(model, name, getattr(model, name))
    for layers in (pipe.layers, pipe.stages[0].layers, net.layers):
        with pytest.raises(TypeError):
            layers[0] = mp.Linear(2, 3)
    with pytest.raises(TypeError):
        pipe.stages[0] = pipe.stages[1]
    assert repr(net).startswith("Sequential([Linear(2, 3), ")
    assert repr(pipe.stages[1]) == "Stage(1, [Linear(3, 1)])"


def test_data_that_change_between_two_ticks_do_not_reach_the_run():
    given = X.copy(), Y.copy()
    pipe = pipeline(n_microbatches=4)
    J = pipe.forward_backward(*given)
    dW = pipe.gradients[0][0]
    pipe.start(*given)
    for array in given:
        array[:] = 1e6
    while pipe.tick():
        pass
    assert pipe.J == J and np.array_equal(pipe.gradients[0][0], dW)


def test_a_rational_cost_beyond_all_floats_stops_the_training_in_a_sentence():
    layers = [layer.copy(mp.exact.rational) for layer in network().layers]
    net = mp.Sequential(layers, mp.MeanSquaredError())
    W = net.layers[0].W.copy()
    with pytest.raises(FloatingPointError, match="epoch 1: the cost is a rational number beyond all floats"):
        mp.fit(net, mp.exact.rational(X) * 10**400, mp.exact.rational(Y), mp.SGD(1), 1, 4, report=None)
    assert (net.layers[0].W == W).all()


def test_huge_rational_numbers_have_a_repr_and_are_refused_in_a_sentence():
    huge = mp.exact.Rational(10**5000)
    assert repr(huge) == "Rational(a number of 16610 bits, over one of 1)"
    for function in (huge.exp, (-huge).log, (-huge).sqrt):
        with pytest.raises(ValueError, match=r"of Rational\(a number of 16610 bits"):
            function()


@pytest.mark.parametrize("model", ["mlp({[]: 1})", 200 * "mlp(", "mlp(1 + 'a')", "mlp", "mlp(*3)"])
def test_a_model_that_is_no_call_is_answered_in_a_sentence(capsys, model):
    assert main(["fit", "--memory", "1GiB", "--model", model]) == 2
    assert "is not a call: write for instance" in capsys.readouterr().err


def test_out_of_memory_is_said_where_python_says_nothing(capsys, monkeypatch):
    def fails(options):
        raise MemoryError

    monkeypatch.setattr("minipipe.cli.verify.run", fails)
    assert main(["verify"]) == 2 and capsys.readouterr().err == "minipipe: error: out of memory\n"


def test_ctrl_c_while_the_package_is_imported_ends_with_status_130_and_without_a_traceback(tmp_path):
    """A module in the place of NumPy interrupts its own import."""
    (tmp_path / "numpy.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGINT)\n")
    path = os.pathsep.join([str(tmp_path), str(Path(mp.__file__).parent.parent)])
    # jobs in the background ignore Ctrl-C, and hand that on to those that they start
    heeding = (lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) if os.name == "posix" else None
    for start, status in (["-m", "minipipe"], 130), (["-c", "import minipipe"], -signal.SIGINT):
        ended = subprocess.run(
            [sys.executable, *start], env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True,
            preexec_fn=heeding,
        )
        assert ended.returncode == status
        assert ended.stderr == "minipipe: stopped\n" or start[0] == "-c"


def test_ctrl_c_later_ends_with_status_130_too(capsys, monkeypatch):
    def interrupted(options):
        os.kill(os.getpid(), signal.SIGINT)

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr("minipipe.cli.verify.run", interrupted)
    try:
        signal.signal(signal.SIGINT, stop)
        assert main(["verify"]) == 130 and capsys.readouterr().err == "minipipe: stopped\n"
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_gzip_file_is_unpacked_no_further_than_its_header_says(tmp_path):
    """20 MB of zeros behind a header that announces none, and one that announces more than fits."""
    bomb = gzip.compress(bytes([0, 0, 8, 3]) + bytes(12) + bytes(20 * 10**6))
    far = gzip.compress(bytes([0, 0, 8, 3]) + b"\xff" * 12)
    labels = bytes([0, 0, 8, 1, 0, 0, 0, 0])
    for images, words in (
        (bomb, "holds more than 16 bytes, but its header announces"),
        (far, "bytes, above the limit of 1,073,741,824"),
    ):
        for name in ("train", "t10k"):
            (tmp_path / f"{name}-images-idx3-ubyte.gz").write_bytes(images)
            (tmp_path / f"{name}-labels-idx1-ubyte").write_bytes(labels)
        tracemalloc.start()
        with pytest.raises(ValueError, match=words):
            mp.datasets.mnist(tmp_path)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 10**6


def test_a_file_of_cifar_is_unpacked_no_further_than_the_original(tmp_path, monkeypatch):
    monkeypatch.setattr(import_module("minipipe.datasets.cifar10"), "MOST_RECORDS", 2)
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        (tmp_path / f"{name}.bin").write_bytes(gzip.compress(bytes(3 * 3073)))
    with pytest.raises(ValueError, match="holds 6,147 bytes, expected a multiple of"):
        mp.datasets.cifar10(tmp_path)


def test_a_schedule_without_micro_batches_or_stages_is_faulty():
    for sizes in ((1, 0), (0, 1), (1, -1), (1.5, 1), (1, "2"), (None, 1)):
        (fault,) = mp.Schedule((), *sizes).faults()
        assert fault.startswith("a schedule needs at least 1 stage and 1 micro-batch, in whole numbers, not ")


def test_no_layer_keeps_the_cache_of_a_micro_batch_between_two_ticks():
    for name in ("gpipe", "zb-h1"):
        pipe = pipeline(schedule=name)
        pipe.start(X, Y)
        while pipe.tick():
            assert [one.cache for one in (*pipe.layers, pipe.loss)] == [None] * (len(pipe.layers) + 1)
        assert [one.cache for one in (*pipe.layers, pipe.loss)] == [None] * (len(pipe.layers) + 1)


def test_each_mini_batch_of_a_stream_has_masks_of_its_own():
    """One stage without a flush is plain SGD, and its t-th mini-batch is the t-th step."""
    layers = [mp.Linear(2, 8), mp.Dropout(0.5), mp.Linear(8, 1)]
    pipe = mp.AsynchronousPipeline(layers, mp.MeanSquaredError(), 1, mp.SGD(0.1))
    net, optimizer = mp.Sequential(layers, mp.MeanSquaredError()), mp.SGD(0.1)
    costs = []
    for _ in range(6):
        costs.append(net.forward_backward(X, Y))
        net.step(optimizer)
    assert pipe.train([(X, Y)] * 2) + pipe.train([(X, Y)] * 4) == costs
    assert np.array_equal(pipe.layers[0].W, net.layers[0].W)


def test_mini_batches_may_come_from_a_generator():
    assert stream((X, Y) for _ in range(3)) == stream([(X, Y)] * 3)


def test_a_schedule_of_more_stages_than_can_be_worked_on_is_faulty():
    (fault,) = mp.Schedule((), 10**4, 10**4).faults()
    assert fault.endswith("make more than 4,000,000 actions: use fewer")


def test_a_message_to_a_device_that_is_done_counts_when_it_arrives_there():
    def sender():
        yield mp.Compute("work", ticks=2)
        yield mp.Send("news", np.zeros(10), to=1)

    def done():
        yield mp.Compute("work")

    holdings = [lambda: {"stash": []}] * 2
    cluster = mp.Cluster([sender(), done()], None, mp.Link(latency=3), holdings, memory_limit=79)
    with pytest.raises(mp.MemoryLimitError, match="device 1 holds 80 bytes at tick 5, above its limit of"):
        cluster.run()
