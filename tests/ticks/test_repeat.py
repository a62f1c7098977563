"""Runs without a clock, equal to one before: its trace, and the numbers of a run under the clock."""

import pickle
from functools import partial

import numpy as np
import pytest
from asynchronous.by_the_rule import per_update
from compared import assert_same, state
from hypothesis import given, settings
from engines.on_engines import LOSS, mini_batch, network
from ticks.random_programs import settings_of_runs
from sampling import one_in

import minipipe as mp
from minipipe.cluster import Cluster, Compute, DeadlockError, Receive, Repeat, Send
from minipipe.functions import leaves
from minipipe.parallel import DataParallel, Hybrid, TensorParallel
from minipipe.schedules import (
    RECOMPUTE, build, in_copies, names_for_stages, names_having, with_all_reduce, with_updates, with_zero,
)

NEVER_REACHED = 10**15  # bytes: with a limit, each run is under the clock
COSTS, LINK = mp.Costs(F=2, B=3, U=1), mp.Link(latency=1, bandwidth=64)


@pytest.fixture
def without_clock(monkeypatch):
    """A function that runs another one, which fails if any clock moves."""

    def run(function):
        with monkeypatch.context() as patched:
            patched.setattr(Cluster, "run", None)
            return function()

    return run


def pair(make):
    """(a network whose runs may be repeats, one whose runs are all under the clock)"""
    return make(), make(memory_limit=NEVER_REACHED)


def batch(m, seed):
    X, Y = mini_batch(m)
    return X + np.float32(seed), Y * np.float32(1 + seed)


def assert_repeats(without_clock, make, m=19):
    """The second run is as the first. Adam's memory makes the third another one, which the fourth repeats."""
    repeated, watched = pair(make)
    adams = mp.Adam(0.01), mp.Adam(0.01)
    for seed in range(4):
        run = partial(repeated.forward_backward, *batch(m, seed))
        J = without_clock(run) if seed in (1, 3) else run()
        assert J == watched.forward_backward(*batch(m, seed)) == watched.J
        assert_same(repeated.gradients, watched.gradients)
        assert repeated.trace == watched.trace
        for pipe, adam in zip((repeated, watched), adams):
            pipe.step(mp.SGD(0.01) if seed == 0 else adam)
    assert_same(state(repeated.layers), state(watched.layers))


@pytest.mark.parametrize("name, recompute", one_in(4, names_for_stages(4, 8), [*RECOMPUTE, "sqrt"]))
def test_every_schedule_repeats_itself(without_clock, name, recompute):
    make = partial(
        mp.Pipeline, network("tie"), LOSS, 4, 8, name, recompute, dtype=np.float32, costs=COSTS, link=LINK
    )
    assert_repeats(without_clock, make)


@pytest.mark.parametrize("options", [
    {"accumulate": "running"}, {"grain": 2}, {"all_reduce": "ring"}, {"link": mp.Link(rendezvous=True)},
    {"ports": mp.cluster.ports(3, 32)}, {"link": mp.Link(blocking=True)},
], ids=str)
def test_all_options_repeat_themselves(without_clock, options):
    order = in_copies(build("gpipe", 3, 4), 2) if "all_reduce" in options else build("gpipe", 3, 8)
    make = partial(mp.Pipeline, network(), LOSS, 3, 8, order, dtype=np.float32, **options)
    assert_repeats(without_clock, make, m=30)


@pytest.mark.parametrize("make", [
    partial(DataParallel, network(), LOSS, 3),
    partial(TensorParallel, [mp.Linear(6, 8), mp.ReLU(), mp.Linear(8, 4)], LOSS, 2),
    partial(Hybrid, [mp.Linear(6, 8), mp.ReLU(), mp.Linear(8, 8), mp.Tanh(), mp.Linear(8, 4)], LOSS,
            n_stages=2, n_shards=2, n_replicas=2, n_microbatches=4),
], ids=["data", "tensor", "hybrid"])
def test_every_split_repeats_itself(without_clock, make):
    assert_repeats(without_clock, partial(make, dtype=np.float32))


@pytest.mark.parametrize("change", [
    with_updates, lambda order: with_updates(with_all_reduce(order)), partial(with_zero, level=1),
    partial(with_zero, level=2), partial(with_zero, level=3),
], ids=["U", "A and U", "ZeRO 1", "ZeRO 2", "ZeRO 3"])
@pytest.mark.parametrize("name", ["gpipe", "zb-v", "chimera"])
def test_orders_with_updates_repeat_themselves(without_clock, name, change):
    order = change(in_copies(build(name, 2, 4), 2))
    make = partial(mp.Pipeline, network(), LOSS, order.n_stages, 8, order, optimizer=mp.Adam(0.01),
                   dtype=np.float32, costs=COSTS)
    repeated, watched = pair(make)
    for seed in (0, 1, 2, 3):
        run = partial(repeated.train, [batch(19, seed)])
        costs = without_clock(run) if seed > 1 else run()
        assert costs == watched.train([batch(19, seed)])
        assert repeated.trace == watched.trace
    assert_same(state(repeated.layers), state(watched.layers))


@pytest.mark.parametrize("name", names_having(flush=False))
def test_streams_repeat_themselves(without_clock, name):
    M = per_update(name, 4)
    make = partial(mp.Pipeline, network(), LOSS, 4, M, name, optimizer=mp.SGD(0.01, momentum=0.5),
                   dtype=np.float32)
    repeated, watched = pair(make)
    for seed in (0, 1, 2):
        run = partial(repeated.train, [batch(12 + i % 2, seed + i / 8) for i in range(6)])
        costs = without_clock(run) if seed == 2 else run()
        assert costs == watched.train([batch(12 + i % 2, seed + i / 8) for i in range(6)])
        assert repeated.trace == watched.trace
    assert_same(state(repeated.layers), state(watched.layers))


@pytest.mark.parametrize("schedule", ["1f1b", in_copies(build("1f1b", 3, 2), 2)], ids=["alone", "in copies"])
def test_a_stage_is_handed_copies_in_a_repeat_too(without_clock, monkeypatch, schedule):
    """None of the arrays that a layer gives is handed to one of another stage."""
    pipe = mp.Pipeline(network(), LOSS, 3, 4, schedule, dtype=np.float32)
    pipe.forward_backward(*batch(13, 0))
    stage_of = {layer: stage.index for stage in pipe.stages for layer in stage.layers}
    handed, given = [], []
    for kind in set(map(type, stage_of)):
        for method in ("forward", "backward_input"):
            def watched(layer, A, called=getattr(kind, method)):
                result = called(layer, A)
                if layer in stage_of:
                    handed.extend((stage_of[layer], array) for array in leaves(A))
                    given.extend((stage_of[layer], array) for array in leaves(result))
                return result

            monkeypatch.setattr(kind, method, watched)
    without_clock(partial(pipe.forward_backward, *batch(13, 0)))
    shared = {(stage, other) for stage, A in handed for other, B in given if np.shares_memory(A, B)}
    assert shared == {(0, 0), (1, 1), (2, 2)}


def test_after_a_repeat_there_is_nothing_to_tick_and_it_can_be_copied():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32)
    for _ in range(2):
        J = pipe.forward_backward(*batch(13, 0))
    twin = pickle.loads(pickle.dumps(pipe))
    for each in (pipe, twin):
        assert each.tick() is False and each.J == J and each.trace == pipe.trace
        assert each.forward_backward(*batch(13, 0)) == J


def test_what_overflows_in_a_repeat_is_undone_and_its_trace_says_how_far_it_came():
    layers = [mp.Linear(6, 5), mp.ReLU(), mp.Linear(5, 4)]
    found = []
    for pipe in pair(partial(mp.Pipeline, layers, LOSS, 3, 4, dtype=np.float32)):
        pipe.forward_backward(*batch(13, 0))
        before, whole = state(pipe.layers), pipe.trace
        X, Y = batch(13, 0)
        X[:, -1] = 3e38
        with pytest.raises(FloatingPointError) as refused:
            pipe.forward_backward(X, Y)
        assert refused.value.__context__ is None
        assert_same(state(pipe.layers), before)
        assert len(pipe.trace.spans) < len(whole.spans)
        found.append((str(refused.value), pipe.trace))
        with pytest.raises(RuntimeError, match="stopped with an error"):
            assert pipe.gradients
        assert pipe.forward_backward(*batch(13, 0)) == pipe.J
        assert pipe.trace == whole
    assert found[0] == found[1]


def test_a_repeat_that_fails_once_is_undone_on_all_devices_and_run_under_the_clock(monkeypatch):
    """Some copies have made their updates already when another one fails."""
    order = with_updates(in_copies(build("1f1b", 2, 4), 2))
    failing, other = (
        mp.Pipeline(network(), LOSS, 2, 8, order, optimizer=mp.Adam(0.01), dtype=np.float32) for _ in range(2)
    )
    for pipe in (failing, other):
        pipe.train([batch(19, 0), batch(19, 1)])
    calls, update = [], mp.Adam.update

    def fails_once(optimizer, *args):
        calls.append(optimizer)
        if len(calls) == 4:
            raise MemoryError
        update(optimizer, *args)

    with monkeypatch.context() as patched:
        patched.setattr(mp.Adam, "update", fails_once)
        costs = failing.train([batch(19, 2)])
    assert len(calls) == 8 and costs == other.train([batch(19, 2)])
    assert failing.train([batch(19, 3)]) == other.train([batch(19, 3)])
    assert_same(state(failing.layers), state(other.layers))
    assert failing.trace == other.trace


def test_a_repeat_that_is_interrupted_is_undone_and_has_no_trace(monkeypatch):
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32)
    J = pipe.forward_backward(*batch(13, 0))
    before, whole = state(pipe.layers), pipe.trace

    def interrupt(dZ):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pipe.layers[-1], "backward_input", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pipe.forward_backward(*batch(13, 1))
    with pytest.raises(RuntimeError, match="nobody has timed it: start it again"):
        assert pipe.trace
    assert_same(state(pipe.layers), before)
    assert pipe.forward_backward(*batch(13, 0)) == J and pipe.trace == whole


def test_with_a_limit_each_run_is_under_the_clock(without_clock):
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, memory_limit=NEVER_REACHED)
    pipe.forward_backward(*batch(13, 0))
    with pytest.raises(TypeError):
        without_clock(partial(pipe.forward_backward, *batch(13, 0)))


def test_a_layer_of_a_users_own_is_always_under_the_clock(without_clock):
    """It may send what it likes: here, as many numbers as it has been called."""

    class Grows(mp.layers.Layer):
        n = 4

        def forward(self, A_prev):
            self.n += 1
            return np.ones((self.n, A_prev.shape[1]), A_prev.dtype)

        def backward_input(self, dZ):
            return np.zeros((4, dZ.shape[1]), dZ.dtype)

    class Shrinks(mp.layers.Layer):
        def forward(self, A_prev):
            return A_prev[:4]

        def backward_input(self, dZ):
            return dZ

    pipe = mp.Pipeline([mp.Linear(6, 4), Grows(), Shrinks()], LOSS, 3, 2, dtype=np.float32)
    sizes = []
    for _ in range(2):
        pipe.forward_backward(*mini_batch(8))
        sizes.append([message.n_bytes for message in pipe.trace.messages if message.to == 2])
    assert sizes == [[5 * 16, 6 * 16], [7 * 16, 8 * 16]]


# The programs alone


@settings(max_examples=150, deadline=None)
@given(settings_of_runs(any_source=False))
def test_random_programs_hand_over_what_they_do_under_the_clock(setting):
    """Each message has its own number; what deadlocks under the clock, by rendezvous apart, does so here."""
    setting.link = mp.Link()
    engines, traces, received = [], [], []
    for _ in range(2):
        heard = [[] for _ in range(100)]
        programs = [
            {name: numbered(requests, heard[10 * device + number])
             for number, (name, requests) in enumerate(lanes.items())}
            for device, lanes in enumerate(setting.programs)
        ]
        engines.append(Repeat(programs, engines[0].record) if engines else Cluster(programs))
        try:
            traces.append(engines[-1].run())
        except (DeadlockError, RuntimeError):
            traces.append(None)
        received.append(heard)
    assert traces[0] == traces[1]
    if traces[0] is not None:
        assert received[0] == received[1]


def numbered(requests, heard):
    for number, request in enumerate(requests):
        if type(request) is Send:
            request = Send(request.label, [number, request.label], request.to)
        if type(request) is Compute:
            request = Compute(request.label, str.upper, request.label, ticks=request.ticks)
        heard.append((yield request))


def test_programs_that_are_no_equals_are_refused():
    def sends(label):
        yield Send(label, None, to=1)

    def receives(source):
        yield Receive("news", source)

    first = Cluster([sends("news"), receives(0)])
    first.run()
    for programs in ([sends("other"), receives(0)], [sends("news"), receives(mp.cluster.ANY)]):
        repeat = Repeat(programs, first.record)
        with pytest.raises(RuntimeError, match="they are no equals"):
            repeat.run()
        assert not repeat.done
        with pytest.raises(RuntimeError, match="has not come to its end"):
            assert repeat.trace


def test_a_name_that_is_sent_again_is_refused_while_it_lies_there():
    """Under the clock, the second message is sent after the first has been received; here, nobody knows."""
    def sends():
        yield Send("news", 1, to=1)
        yield Compute("wait", ticks=5)
        yield Send("news", 2, to=1)

    def receives(heard):
        for _ in range(2):
            heard.append((yield Receive("news", source=0)))

    heard = []
    first = Cluster([sends(), receives(heard)])
    first.run()
    assert heard == [1, 2]
    with pytest.raises(ValueError, match="device 0 sends news to device 1 twice"):
        Repeat([sends(), receives(heard)], first.record).run()


def test_a_name_can_be_sent_again_when_an_answer_has_come():
    def asks():
        for number in (1, 2):
            yield Send("question", number, to=1)
            heard.append((yield Receive("answer", source=1)))

    def answers():
        for _ in range(2):
            number = yield Receive("question", source=0)
            yield Send("answer", 10 * number, to=0)

    heard = []
    first = Cluster([asks(), answers()])
    first.run()
    Repeat([asks(), answers()], first.record).run()
    assert heard == [10, 20, 10, 20]


def test_what_is_received_is_the_receivers_own():
    sent, heard = np.zeros(2), []

    def left():
        yield Send("news", sent, to=1)
        sent[:] = 1

    def right():
        heard.append((yield Receive("news", source=0)))

    first = Cluster([left(), right()])
    first.run()
    sent[:] = 0
    Repeat([left(), right()], first.record).run()
    assert [list(array) for array in heard] == [[0, 0], [0, 0]]
