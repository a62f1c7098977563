"""Pipelines without a flush: each gradient is taken at the weights that the papers' update rules name."""

import copy
import math
import weakref
from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from asynchronous.by_the_rule import by_the_rule
from cases import compositions, eighths
from compared import assert_same, parameters
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.cluster.memory import buffers
from minipipe.order import Schedule, ScheduleError, peak_versions, staleness
from minipipe.parallel.stage import Holdings, Stage
from minipipe.schedules import pipedream, pipedream_2bw, pipedream_vertical

# name -> (K, stage s, update t) -> how many updates the weights have had that the gradient is computed at
RULES = {
    "pipedream": lambda K, s, t: max(0, t - (K - 1) + s),
    "pipedream-vertical": lambda K, s, t: max(0, t - (K - 1)),
    "pipedream-2bw": lambda K, s, t: max(0, t - 1),
}


@st.composite
def streams(draw):
    """(name of the schedule, layers, partition, n, batches, optimizer), in floats or in rational numbers."""
    name = draw(st.sampled_from(sorted(RULES)))
    number = draw(st.sampled_from([np.float64, np.float32, eighths]))
    if number is eighths:
        layers, most = [mp.Linear(2, 3), mp.ReLU(), mp.Linear(3, 2)], 4
        optimizer = mp.SGD(Fraction(1, 8))
    else:
        layers, most = [mp.Linear(2, 3), mp.Tanh(), mp.Linear(3, 2), mp.ReLU(), mp.Linear(2, 2)], 5
        optimizer = draw(st.sampled_from([mp.SGD(0.1), mp.SGD(0.05, momentum=0.9), mp.Adam(0.01)]))
    layers = [layer.copy(number) for layer in mp.Sequential(layers, None).layers]
    partition = draw(compositions(len(layers)))
    n = draw(st.integers(len(partition), len(partition) + 2)) if name == "pipedream-2bw" else 1
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    sizes = draw(st.lists(st.integers(n, n + 3), min_size=1, max_size=most))
    batches = [tuple(number(A) for A in rng.standard_normal((2, 2, m))) for m in sizes]
    return name, layers, partition, n, batches, optimizer


@settings(max_examples=60)
@given(streams())
def test_gradients_match_the_update_rule(stream):
    """Bitwise: costs and parameters after the last update, so every update before it, too."""
    (name, layers, partition, n, batches, optimizer), loss = stream, mp.MeanSquaredError()
    pipe = mp.Pipeline(layers, loss, mp.Cut(partition), n, schedule=name)
    own, by_rule = optimizer.fresh(), optimizer.fresh()
    costs, trained = by_the_rule(layers, loss, partition, batches, by_rule, n, RULES[name])
    assert_same(pipe.train(batches, own), costs)
    assert_same(parameters(pipe.layers), parameters(trained))
    assert_same(dict(own.memory), dict(by_rule.memory))


def pipeline(schedule="pipedream", n=1):
    layers, loss = mp.models.mlp([64, 8, 8, 10]), mp.SoftmaxCrossEntropy()
    return mp.Pipeline(layers, loss, 3, n, schedule=schedule)


def batches(n_batches, m=16):
    X, Y = mp.datasets.digits().train
    return [(X[:, m * t:m * (t + 1)], Y[:, m * t:m * (t + 1)]) for t in range(n_batches)]


@pytest.mark.parametrize("K", [1, 2, 3, 8])
def test_staleness_and_versions_equal_their_closed_forms(K):
    for M in (1, K, 2 * K, 4 * K):
        schedule = pipedream(K, M)
        assert staleness(schedule) == [[min(i, K - 1 - s) for i in range(M)] for s in range(K)]
        if M >= 2 * K:
            assert peak_versions(schedule) == [K - r for r in range(K)]
            assert max(peak_versions(pipedream_vertical(K, M))) == K
        assert staleness(pipedream_vertical(K, M)) == [[min(i, K - 1) for i in range(M)]] * K
    for n_updates in (1, 2, 5):
        schedule = pipedream_2bw(K, n_updates * K)
        assert staleness(schedule) == [[min(i // K, 1) for i in range(n_updates * K)]] * K
        assert peak_versions(schedule) == [min(2, n_updates)] * K or K == 1
    assert staleness(mp.schedules.one_f_one_b(K, 4)) == [[0] * 4] * K


def test_a_run_that_fails_leaves_everything_as_it_was():
    pipe, optimizer = pipeline(), mp.SGD(0.1, momentum=0.9)
    pipe.train(batches(3), optimizer)
    before, remembered = parameters(pipe.layers), copy.deepcopy(dict(optimizer.memory))
    huge = [(X * 1e300, Y) for X, Y in batches(4)]
    with pytest.raises(FloatingPointError, match=r"layer 4, Linear.*: its output is not finite"):
        pipe.train(batches(2) + huge, optimizer)
    assert_same(parameters(pipe.layers), before)
    assert_same(dict(optimizer.memory), remembered)
    assert pipe.n_steps == optimizer.n_updates == 3
    twin, another = pipeline(), mp.SGD(0.1, momentum=0.9)
    twin.train(batches(3), another)
    assert pipe.train(batches(5)[3:], optimizer) == twin.train(batches(5)[3:], another)


TIED = [mp.Linear(2, 2, tie="W"), mp.Linear(2, 2, tie="W")]


@pytest.mark.parametrize("make, words", [
    (lambda: pipeline("pipedream", 4), "microbatches=4: 'pipedream' makes an update after each micro-batch"),
    (lambda: pipeline("pipedream-2bw", 2), "per_update=2 micro-batches on 3 devices: use at least 3"),
    (lambda: pipeline("pipedream-2bw", 3).train(batches(2, m=2), mp.SGD(0.1)),
     "microbatches=3 exceeds the batch of m=2 samples: use at most 2"),
    (lambda: pipeline().start(*batches(1)[0], mp.SGD(0.1)),
     "the order of 'pipedream' updates the stages itself: use train([(X, Y), ...], optimizer)"),
    (lambda: pipeline(mp.schedules.one_f_one_b).start(*batches(1)[0], mp.SGD(0.1)),
     "the order of '1f1b' has no U for an optimizer: pass it to step(optimizer)"),
    (lambda: pipedream_2bw(2, 7), "microbatches=7 is not a multiple of per_update=2: use 8"),
    (lambda: mp.Pipeline(TIED, mp.MeanSquaredError(), 2, 1, schedule=pipedream(2, 2)),
     "tie='W': tied weights need a flush, which the order of 'pipedream' does not have on each device"),
    (lambda: mp.Pipeline(mp.models.mlp([4, 4, 4]), mp.MeanSquaredError(), 2, 2, schedule=pipedream(2, 2)),
     "makes 2 updates with 2 micro-batches, but microbatches=2 for each: use 1"),
    (lambda: pipeline().forward_backward(*batches(1)[0]),
     "the order of 'pipedream' updates the stages itself: use train([(X, Y), ...], optimizer)"),
])
def test_wrong_options_of_asynchronous_orders_are_refused(make, words):
    with pytest.raises(ValueError) as error:
        make()
    assert words in str(error.value)


def test_versions_that_do_not_exist_yet_are_a_fault():
    right = pipedream(3, 6)
    early = Schedule(right.devices, 3, 6, versions=((0, 0, 0, 2, 2, 3), *right.versions[1:]))
    assert early.faults() == [
        "device 0: 0F3 needs the weights after 2 updates, but there were only 1 by then"
    ]
    assert right.faults(most_alive=2) == [
        "device 0: with 0F2, 3 micro-batches are alive at once, above the limit of 2: "
        "put a backward before it"
    ]
    assert Schedule(right.devices, 3, 6, versions=((0,),)).faults() == [
        "versions has rows of lengths [1]: give it 3 rows, one for each stage, of 6 numbers"
    ]
    lines = ["F0 U0 B0", "F0 B0 U0"]
    assert Schedule.from_text(lines).faults() == [
        "device 0: 0U0 comes before the gradient of micro-batch 0 is complete"
    ]


UPDATES_ASTRAY = {
    "F0 F1 B0 B1 U1 U0":
        "device 0: 0U0 has nothing to apply: an update before it applied the gradient of micro-batch 0",
    "F0 F1 B0 B1 U0":
        "device 0: 0U0 comes after the backward of micro-batch 1, whose gradient it would apply, too: "
        "put it before that, or write 0U1",
}


@pytest.mark.parametrize("line", UPDATES_ASTRAY)
def test_an_update_is_named_by_the_last_gradient_that_it_applies(line):
    schedule = Schedule.from_text(line)
    assert schedule.faults() == [UPDATES_ASTRAY[line]]
    for use in (mp.simulate, staleness, peak_versions):
        with pytest.raises(ScheduleError, match="0U0"):
            use(schedule)


def test_an_update_before_an_older_backward_has_one_gradient():
    """B1 U1 B0 U0 is an order, though an odd one: each update has one gradient."""
    assert staleness(replace(Schedule.from_text("F0 F1 B1 U1 B0 U0"), versions=((0, 0),))) == [[1, 0]]


@pytest.mark.parametrize("changes, words", [
    (dict(versions=((0, 0), (0, -1))),
     "versions has -1: it counts the updates in the weights, so write whole numbers of at least 0"),
    (dict(versions=((0, 0), (0, None))), "versions has None: it counts the updates"),
    (dict(copy_of=(1, 1)),
     "copy_of=(1, 1) leaves copy 0 without micro-batches: where there is one copy, leave copy_of out"),
    (dict(copy_of=(0, -1)), "copy_of=(0, -1) must have a copy, 0, 1, ..., for each of the 2 micro-batches"),
])
def test_wrong_versions_or_copy_of_are_named_by_all_readers(changes, words):
    schedule = replace(pipedream(2, 2), **changes)
    assert schedule.faults() == [fault for fault in schedule.faults() if words in fault] != []
    for use in (mp.simulate, staleness, peak_versions, Schedule.to_csv, lambda schedule: schedule.placements):
        with pytest.raises(ScheduleError) as error:
            use(schedule)
        assert words in str(error.value)


def test_a_limit_of_nan_micro_batches_is_exceeded_by_every_device():
    """NaN is below, above and equal to nothing: compared the wrong way round, it lets everything pass."""
    assert len(pipedream(2, 3).faults(most_alive=math.nan)) == 2


FLUSHED = {1: "F0 B0 U0", 2: "F0 F1 B0 B1 U0 U1"}  # for each number of micro-batches
ONE_BY_ONE = {1: "F0 B0 U0", 2: "F0 B0 U0 F1 B1 U1"}
HALFWAY = {2: "F0 F1 B1 U1 B0 U0", 4: "F0 F1 F2 F3 B1 U1 B0 B2 B3 U3"}


def first_weights(schedule):
    """Each gradient is said to be of the first weights."""
    return replace(schedule, versions=((0,) * schedule.n_microbatches,) * schedule.n_stages)


@pytest.mark.parametrize("schedule, n, words", [
    (lambda K, M: pipedream(K, M + 1), 1,
     "has 3 stages, 2 micro-batches and 1 copies of the network: make it with 3, 1 and 1"),
    (lambda K, M: pipedream(K + 1, M), 1,
     "has 4 stages, 1 micro-batches and 1 copies of the network: make it with 3, 1 and 1"),
    (lambda K, M: replace(pipedream(K, M), copy_of=(0, 1)[:M]), 1,
     "and 2 copies of the network: make it with 3, 2 and 1"),
    (lambda K, M: first_weights(Schedule.from_text([FLUSHED[M]] * K)), 1, "0U0 comes after the backward of"),
    (lambda K, M: Schedule.from_text([ONE_BY_ONE[M]] * K), 1, "pass versions, for each stage a row"),
    (lambda K, M: first_weights(Schedule.from_text([HALFWAY[M]] * K)), 2,
     "applies micro-batches [1] in update 0 of stage 0, but mini-batch 0 is [0, 1]: "
     "put one U after the last backward of each"),
])
def test_custom_schedules_are_checked_before_anything_runs(schedule, n, words):
    with pytest.raises(ValueError) as error:
        pipeline(schedule, n).train(batches(2, m=4), mp.SGD(0.1))
    assert words in str(error.value)


@pytest.mark.parametrize(("name", "M"), [("pipedream", 1), ("pipedream-vertical", 1), ("pipedream-2bw", 4)])
@pytest.mark.parametrize("optimizer", [mp.SGD(0.1), mp.Adam()], ids=["SGD", "Adam"])
def test_every_living_version_of_the_weights_is_counted(name, M, optimizer, monkeypatch):
    """By weak references to all arrays that a stage has ever worked with, whenever bytes are counted.

    Beside them, the network has its weights of before the run, until it is over; no version that was dropped.
    """
    alive, weights, count = {}, Stage.weights, Holdings.__call__  # stage -> references to its arrays

    def remembered_weights(stage):
        found = weights(stage)
        alive.setdefault(id(stage), []).extend(weakref.ref(array) for array in found if array is not None)
        return found

    def checked_count(holdings):
        found = count(holdings)
        (stage,) = holdings._stages
        counted = buffers([found["parameters"], found["weight versions"]])
        arrays = buffers([ref() for ref in alive[id(stage)]])
        assert counted.items() <= arrays.items() and arrays.keys() - counted.keys() <= before.keys()
        most[0] = max(most[0], len(counted) // 2)  # W and b of a version
        return found

    layers, most = [mp.Linear(8, 8), mp.Tanh(), mp.Linear(8, 8), mp.Linear(8, 8), mp.Linear(8, 8)], [0]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 4, M, schedule=name, count_bytes=True)
    optimizer = optimizer.fresh()
    X = np.random.default_rng(0).standard_normal((8, 8))
    pipe.train([(X, X)] * 2, optimizer)
    before = buffers([pair for layer in pipe.layers for pair in (layer.W, layer.b)])
    monkeypatch.setattr(Stage, "weights", remembered_weights)
    monkeypatch.setattr(Holdings, "__call__", checked_count)
    pipe.train([(X, X)] * 9, optimizer)
    assert most[0] == max(peak_versions(pipe.schedule)) > 1
    assert len(alive) == 4
    for stage in pipe.stages:  # and all others are let go when it is over
        arrays = buffers([ref() for ref in alive[id(stage)]])
        assert arrays == buffers([(layer.W, layer.b) for layer in stage.layers])


def test_results_before_a_stream_has_run_name_train():
    pipe = mp.Pipeline([mp.Linear(1, 1)], mp.MeanSquaredError(), 1, 1, schedule="pipedream")
    words = r"nothing has run yet: call train\(\[\(X, Y\), ...\], optimizer\)"
    for missing in (lambda: pipe.trace, lambda: pipe.gradients, lambda: pipe.J, pipe.tick):
        with pytest.raises(RuntimeError, match=words):
            missing()
