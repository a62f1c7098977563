"""A run that takes over the bytes of an equal one is a run that counts them; a copied network runs alike."""

import copy
import pickle
from functools import partial

import numpy as np
import pytest
from asynchronous.by_the_rule import per_update
from compared import assert_same, state
from engines.on_engines import LOSS, mini_batch, network
from sampling import one_in

import minipipe as mp
from minipipe.arrays import leaves
from minipipe.cluster.memory import Accounts
from minipipe.order import RECOMPUTE, in_copies, with_all_reduce, with_updates, with_zero
from minipipe.schedules import build, names_for_stages, names_having

NEVER_REACHED = 10**15  # bytes: with a limit, they are counted in each run
COSTS, LINK = mp.Costs(F=2, B=3, U=1), mp.Link(latency=1, bandwidth=64)
THREE = mp.Split(stages=3, microbatches=4)


@pytest.fixture
def uncounted(monkeypatch):
    """A function that runs another one, which fails if any bytes are counted."""

    def run(function):
        with monkeypatch.context() as patched:
            patched.setattr(Accounts, "__init__", None)
            return function()

    return run


def maker(split, schedule="gpipe", recompute="never", layers=network(), **options):
    """Return make(limit), which makes such a network with a limit of memory."""
    return lambda limit: mp.Parallel(
        layers, LOSS, split, schedule, mp.Memory(recompute, limit=limit), weights=mp.Weights(dtype="float32"),
        **options,
    )


def pair(make):
    """Return (a network whose runs may take over bytes, one that counts them in each run)."""
    return make(None), make(NEVER_REACHED)


def batch(m, seed):
    X, Y = mini_batch(m)
    return X + np.float32(seed), Y * np.float32(1 + seed)


def assert_takes_over(uncounted, make, m=19):
    """The second run equals the first. Adam's memory makes the third another one, equal to the fourth."""
    taking_over, watched = pair(make)
    adams = mp.Adam(0.01), mp.Adam(0.01)
    for seed in range(4):
        run = partial(taking_over.forward_backward, *batch(m, seed))
        J = uncounted(run) if seed in (1, 3) else run()
        assert J == watched.forward_backward(*batch(m, seed)) == watched.J
        assert_same(taking_over.gradients, watched.gradients)
        assert taking_over.trace == watched.trace
        for pipe, adam in zip((taking_over, watched), adams):
            pipe.step(mp.SGD(0.01) if seed == 0 else adam)
    assert_same(state(taking_over.layers), state(watched.layers))


@pytest.mark.parametrize("name, recompute", one_in(16, names_for_stages(4, 8), [*RECOMPUTE, "sqrt"]))
def test_every_schedule(uncounted, name, recompute):
    split, machine = mp.Split(stages=4, microbatches=8), mp.Machine(costs=COSTS, link=LINK)
    assert_takes_over(uncounted, maker(split, name, recompute, network("tie"), on=machine))


@pytest.mark.parametrize("D, sums, machine", [
    (1, mp.Sums("running"), mp.Machine()),
    (1, mp.Sums(grain=4), mp.Machine()),
    (2, mp.Sums(all_reduce="ring"), mp.Machine()),
    (1, mp.Sums(), mp.Machine(link=mp.Link(rendezvous=True))),
    (1, mp.Sums(), mp.Machine(ports=mp.cluster.ports(3, 32))),
    (1, mp.Sums(), mp.Machine(link=mp.Link(blocking=True))),
], ids=["running", "grain", "ring", "rendezvous", "ports", "blocking"])
def test_all_options(uncounted, D, sums, machine):
    split = mp.Split(replicas=D, stages=3, microbatches=4)
    assert_takes_over(uncounted, maker(split, sums=sums, on=machine), m=15)


@pytest.mark.parametrize("split, layers", [
    (mp.Split(replicas=3), network()),
    (mp.Split(shards=2), [mp.Linear(6, 8), mp.ReLU(), mp.Linear(8, 4)]),
    (mp.Split(2, 2, 2, microbatches=4),
     [mp.Linear(6, 8), mp.ReLU(), mp.Linear(8, 8), mp.Tanh(), mp.Linear(8, 4)]),
], ids=["data", "tensor", "all three"])
def test_every_split(uncounted, split, layers):
    assert_takes_over(uncounted, maker(split, "1f1b", layers=layers))


CHANGES = {
    "U": with_updates, "A and U": lambda order: with_updates(with_all_reduce(order)),
    "ZeRO 1": partial(with_zero, level=1), "ZeRO 2": partial(with_zero, level=2),
    "ZeRO 3": partial(with_zero, level=3),
}


@pytest.mark.parametrize("change, name", one_in(5, CHANGES, ["gpipe", "zb-v", "chimera"]))
def test_orders_with_updates(uncounted, change, name):
    order = CHANGES[change](in_copies(build(name, 2, 4), 2))
    make = maker(mp.Split(stages=order.n_stages, microbatches=8), order, on=mp.Machine(costs=COSTS))
    (taking_over, watched), adam, its = pair(make), mp.Adam(0.01), mp.Adam(0.01)
    for seed in (0, 1, 2):
        run = partial(taking_over.train, [batch(19, seed)], adam)
        costs = uncounted(run) if seed > 1 else run()
        assert costs == watched.train([batch(19, seed)], its)
        assert taking_over.trace == watched.trace
    assert_same(state(taking_over.layers), state(watched.layers))


@pytest.mark.parametrize("name", names_having(flush=False))
def test_streams(uncounted, name):
    make = maker(mp.Split(stages=4, microbatches=per_update(name, 4)), name)
    (taking_over, watched), (sgd, its) = pair(make), [mp.SGD(0.01, momentum=0.5) for _ in range(2)]
    for seed in (0, 1, 2):
        batches = [batch(12 + i % 2, seed + i / 8) for i in range(4)]
        run = partial(taking_over.train, batches, sgd)
        costs = uncounted(run) if seed == 2 else run()
        assert costs == watched.train(batches, its)
        assert taking_over.trace == watched.trace
    assert_same(state(taking_over.layers), state(watched.layers))


@pytest.mark.parametrize("schedule", ["1f1b", in_copies(build("1f1b", 3, 2), 2)], ids=["alone", "in copies"])
def test_a_stage_is_handed_copies(uncounted, monkeypatch, schedule):
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
    uncounted(partial(pipe.forward_backward, *batch(13, 0)))
    shared = {(stage, other) for stage, A in handed for other, B in given if np.shares_memory(A, B)}
    assert shared == {(0, 0), (1, 1), (2, 2)}


def test_after_the_second_run_nothing_ticks_and_it_can_be_copied():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32)
    for _ in range(2):
        J = pipe.forward_backward(*batch(13, 0))
    twin = pickle.loads(pickle.dumps(pipe))
    for each in (pipe, twin):
        assert not each.tick() and each.J == J and each.trace == pipe.trace
        assert each.forward_backward(*batch(13, 0)) == J


def test_a_second_run_that_overflows_is_undone_and_says_where():
    """Bytes are told before the tick at which it has failed; a run that counts has some of that tick, too."""
    layers = [mp.Linear(6, 5), mp.ReLU(), mp.Linear(5, 4)]
    found = []
    for pipe in pair(maker(THREE, layers=layers)):
        pipe.forward_backward(*batch(13, 0))
        before, whole = state(pipe.layers), pipe.trace
        X, Y = batch(13, 0)
        X[:, -1] = 3e38
        with pytest.raises(FloatingPointError) as refused:
            pipe.forward_backward(X, Y)
        assert refused.value.__context__ is None
        assert_same(state(pipe.layers), before)
        trace, last = pipe.trace, max(span.start for span in pipe.trace.spans)
        assert len(trace.spans) < len(whole.spans)
        bytes_before = [[row for row in trace.memory(device) if row[0] < last] for device in range(3)]
        found.append((str(refused.value), trace.spans, trace.messages, bytes_before))
        with pytest.raises(RuntimeError, match="stopped with an error"):
            assert pipe.gradients
        assert pipe.forward_backward(*batch(13, 0)) == pipe.J
        assert pipe.trace == whole
    assert found[0] == found[1] and any(found[0][3])


@pytest.mark.parametrize("microbatch", [0, 1, 3])
def test_a_second_run_that_fails_has_the_bytes_until_then(microbatch):
    """The ticks before the failure are told in full, what each device holds at the start, and no more."""
    found = []
    for pipe in pair(maker(THREE)):
        pipe.forward_backward(*batch(16, 0))
        X, Y = batch(16, 0)
        X[:, 4 * microbatch] = 3e38
        with pytest.raises(FloatingPointError):
            pipe.forward_backward(X, Y)
        trace = pipe.trace
        found.append([[row for row in trace.memory(device) if row[0] < microbatch] for device in range(3)])
        for device in range(3):
            _, *others = trace.memory(device)
            assert all(tick <= microbatch for tick, *_ in others), "bytes of ticks that it has not reached"
    assert found[0] == found[1]


def test_a_second_that_fails_is_undone_on_all_devices(monkeypatch):
    """Some copies have made their updates already when another one fails."""
    order = with_updates(in_copies(build("1f1b", 2, 4), 2))
    failing, other = (mp.Pipeline(network(), LOSS, 2, 8, order, dtype=np.float32) for _ in range(2))
    adam, its = mp.Adam(0.01), mp.Adam(0.01)
    for pipe, own in ((failing, adam), (other, its)):
        pipe.train([batch(19, 0), batch(19, 1)], own)
    calls, update = [], mp.Adam.update

    def fails_once(optimizer, *args):
        calls.append(optimizer)
        if len(calls) == 4:
            raise MemoryError
        update(optimizer, *args)

    with monkeypatch.context() as patched:
        patched.setattr(mp.Adam, "update", fails_once)
        with pytest.raises(MemoryError):
            failing.train([batch(19, 2)], adam)
    assert len(calls) == 4
    for seed in (2, 3):
        assert failing.train([batch(19, seed)], adam) == other.train([batch(19, seed)], its)
    assert_same(state(failing.layers), state(other.layers))
    assert failing.trace == other.trace


def test_a_second_that_is_interrupted_is_undone(monkeypatch):
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32)
    J = pipe.forward_backward(*batch(13, 0))
    before, whole = state(pipe.layers), pipe.trace

    def interrupt(dZ):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(pipe.layers[-1], "backward_input", interrupt)
        with pytest.raises(KeyboardInterrupt):
            pipe.forward_backward(*batch(13, 1))
    assert 0 < len(pipe.trace.spans) < len(whole.spans)
    assert_same(state(pipe.layers), before)
    assert pipe.forward_backward(*batch(13, 0)) == J and pipe.trace == whole


def test_with_a_limit_bytes_are_counted_in_each_run(uncounted):
    _, pipe = pair(maker(THREE))
    pipe.forward_backward(*batch(13, 0))
    with pytest.raises(TypeError):
        uncounted(partial(pipe.forward_backward, *batch(13, 0)))


def test_with_a_users_layer_bytes_are_counted_in_each_run():
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


# A copy of a network behaves as the network does after every kind of run, and ticks mean one thing

X, Y = mini_batch(13)


def ran(pipe, times):
    for _ in range(times):
        pipe.forward_backward(X, Y)


def stepped(pipe):
    pipe.start(X, Y)
    while pipe.tick():
        pass


def failed(pipe):
    pipe.forward_backward(X, Y)
    with pytest.raises(FloatingPointError):
        pipe.forward_backward(X + np.float32(3e38), Y)


def outcome(call):
    """Return what `call()` returns, or the words of its error."""
    try:
        return call()
    except (RuntimeError, ValueError) as error:
        return str(error)


KINDS = {
    "nothing": lambda pipe: None, "one run": lambda pipe: ran(pipe, 1), "two runs": lambda pipe: ran(pipe, 2),
    "a failed run": failed, "steps of the clock": stepped,
}
RUNS = [(kind, "cluster") for kind in KINDS]
RUNS += [(kind, "threads") for kind in KINDS if KINDS[kind] is not stepped]  # these have no ticks


@pytest.mark.parametrize("run, twin_of", one_in(
    2, RUNS, [copy.deepcopy, lambda pipe: pickle.loads(pickle.dumps(pipe))]
))
def test_it_does_what_the_original_does(run, twin_of):
    kind, engine = run
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, on=mp.Machine(engine))
    KINDS[kind](pipe)
    twin = twin_of(pipe)
    for look in (
        lambda pipe: pipe.J, lambda pipe: pipe.gradients, lambda pipe: pipe.trace.spans,
        lambda pipe: pipe.tick(), lambda pipe: pipe.step(mp.SGD(0.01)),
        lambda pipe: pipe.forward_backward(X, Y), lambda pipe: pipe.J,
    ):
        assert_same(outcome(lambda: look(twin)), outcome(lambda: look(pipe)))
        assert_same(state(twin.layers), state(pipe.layers))


def test_a_copy_of_a_run_under_way_is_refused():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32)
    pipe.start(X, Y)
    pipe.tick()
    with pytest.raises(RuntimeError, match="this run is under way, and its programs cannot be copied"):
        copy.deepcopy(pipe)


def test_threads_have_no_ticks():
    pipe = mp.Pipeline(network(), LOSS, 3, 4, dtype=np.float32, on=mp.Machine("threads"))
    for run in (lambda: pipe.start(X, Y), pipe.tick):
        with pytest.raises(ValueError, match="threads know seconds, not ticks: use forward_backward"):
            run()
