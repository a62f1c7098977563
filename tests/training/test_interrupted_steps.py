"""Ctrl-C at any line of a step or a training: updates are made as a whole, or not at all, and it goes on.

At the end, lives of a training: updates, Ctrl-C, files, copies, other splits, refused calls and left runs.
Beside each, a `Sequential` makes the same updates and meets nothing of all that; after each event both have
the same arrays, bit for bit: parameters, running statistics, and what their optimizers remember.
"""

import _thread
import contextlib
import copy
import pickle
import signal
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from compared import assert_same, difference, parameters, state
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine, initialize, invariant, precondition, rule, run_state_machine_as_test,
)
from sampling import one_in

import minipipe as mp
from minipipe.exact import Rational, rational
from minipipe.layers import every_layer
from minipipe.order import in_copies, with_updates, with_zero
from minipipe.schedules import build, data_parallel

LOSS = mp.MeanSquaredError()
LAYERS = [
    mp.Linear(3, 4, tie="W"), mp.BatchNorm(4), mp.ReLU(), mp.Residual(mp.Linear(4, 4), mp.Tanh()),
    mp.Dropout(0.25), mp.Linear(4, 3), mp.Linear(3, 4, tie="W"), mp.Linear(4, 2),
]
NETWORKS = {
    "Sequential": lambda: mp.Sequential(LAYERS, LOSS),
    "Pipeline": lambda: mp.Pipeline(LAYERS, LOSS, 2, 2),
    "copies": lambda: mp.DataParallel(LAYERS, LOSS, 2, sums=mp.Sums(sync_batch_norm=True)),
    "shards": lambda: mp.TensorParallel(LAYERS, LOSS, 2),
    "all at once": lambda: mp.Parallel(
        LAYERS, LOSS, replicas=2, shards=2, stages=2, sums=mp.Sums(buckets="layer", sync_batch_norm=True)
    ),
}
rng = np.random.default_rng(0)
BATCHES = [(rng.standard_normal((3, 8)), rng.standard_normal((2, 8))) for _ in range(3)]
PACKAGE = str(Path(mp.__file__).parent)


def state_of(net, optimizer):
    """Return all that an update changes."""
    norm, counters = net.layers[1], (optimizer.n_updates, optimizer.last_rate, net.n_steps)
    return parameters(net.layers), norm.running_mean, norm.running_var, dict(optimizer.memory), counters


def interrupted(work, place=np.inf, kind="line"):
    """Call `work`, with a Ctrl-C before line, or opcode, number `place` in the package and in `with`.

    kind: "line" or "opcode". Return how many of them it came to, and whether it was interrupted.
    """
    passed = 0

    def look(frame, event, _):
        nonlocal passed
        if not frame.f_code.co_filename.startswith((PACKAGE, contextlib.__file__)):
            return None
        frame.f_trace_opcodes = kind == "opcode"
        passed += event == kind
        if passed > place:
            sys.settrace(None)
            signal.raise_signal(signal.SIGINT)
            return None
        return look

    handler = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    with np.errstate():  # which an interrupt within another one may leave open
        sys.settrace(look)
        try:
            work()
        except KeyboardInterrupt:
            return passed, True
        finally:
            sys.settrace(None)
            signal.signal(signal.SIGINT, handler)
    return passed, False


def assert_whole_or_not_at_all(start, work, go_on, n, state_of=state_of, kind="line"):
    """Interrupt `work` on copies of `start` at many places: each is then as before it, or as after it.

    start: (network, optimizer). work: a function of both. go_on: a function of both, and of whether the work
    was done, that returns what must not depend on the interrupt. n: how many places all along the way; and
    half as many at its beginning and at its end each, where stages change hands.
    """
    before, whole = state_of(*start), copy.deepcopy(start)
    n_lines, _ = interrupted(partial(work, *copy.deepcopy(start)), kind=kind)
    work(*whole)
    after = state_of(*whole)
    expected = go_on(*whole, True)
    along = range(0, n_lines, max(1, n_lines // n))
    beginning = range(0, n_lines // 20, max(1, n_lines // (10 * n)))
    end = range(n_lines - min(300, n_lines // 2), n_lines, max(1, 600 // n))
    for place in (*along, *beginning, *end):
        pair = copy.deepcopy(start)
        assert interrupted(partial(work, *pair), place, kind)[1]
        found = state_of(*pair)
        is_done = difference(found, before) is not None
        where = f"after an interrupt at {kind} {place} of {n_lines}"
        assert_same(found, after if is_done else before, f"the state {where}")
        assert_same(go_on(*pair, is_done), expected, f"what comes {where}")


@pytest.mark.parametrize("name, kind", one_in(2, NETWORKS, ["line", "opcode"]))
@pytest.mark.parametrize("n", [4, pytest.param(160, marks=pytest.mark.slow)])
def test_a_step_is_made_as_a_whole_or_not_at_all(name, kind, n):
    def step(net, optimizer):
        net.step(optimizer, clip=0.5)

    def go_on(net, optimizer, is_done):
        if not is_done:
            step(net, optimizer)
        found = state_of(net, optimizer)
        return found, net.forward_backward(*BATCHES[2]), net.gradients

    assert_whole_or_not_at_all(trained(name), step, go_on, n, kind=kind)


def trained(name):
    """Return (a network after one step of Adam and a second mini-batch, its optimizer)."""
    net, optimizer = NETWORKS[name](), mp.Adam(0.5)
    net.forward_backward(*BATCHES[0])
    net.step(optimizer, clip=0.5)
    net.forward_backward(*BATCHES[1])
    return net, optimizer


class Meets(mp.Adam):
    """An Adam whose second update forgets, moves one layer, and then meets something."""

    def update(self, layers, gradients):
        if self.n_updates:
            self.memory.clear()
            self.met = True
            layers[0].W = 2 * layers[0].W
            self.meets()
        super().update(layers, gradients)


def breaks():
    raise ZeroDivisionError


def is_interrupted():
    signal.raise_signal(signal.SIGINT)


def never_ends():
    while True:
        is_interrupted()


@pytest.mark.parametrize("meets, error, is_made", [
    (breaks, ZeroDivisionError, False), (never_ends, KeyboardInterrupt, False),
    (is_interrupted, KeyboardInterrupt, True),
])
def test_ctrl_c_waits_for_an_update_and_a_failed_update_changes_nothing(meets, error, is_made):
    net, optimizer = NETWORKS["Sequential"](), Meets(0.5)
    optimizer.meets = meets
    net.train(BATCHES[:1], optimizer)
    net.forward_backward(*BATCHES[1])
    before = copy.deepcopy(state_of(net, optimizer))
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(error):
            net.step(optimizer)
    finally:
        signal.signal(signal.SIGINT, handler)
    if is_made:
        assert (net.n_steps, optimizer.n_updates) == (2, 2)
    else:
        assert_same(state_of(net, optimizer), before)
        assert not hasattr(optimizer, "met")


def test_an_ignored_ctrl_c_stays_ignored():
    net, optimizer = NETWORKS["Sequential"](), Meets(0.5)
    optimizer.meets = lambda: (is_interrupted(), is_interrupted())
    net.train(BATCHES[:1], optimizer)
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        net.train(BATCHES[1:2], optimizer)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert net.n_steps == 2


PLAIN = [mp.Linear(3, 4), mp.BatchNorm(4), mp.ReLU(), mp.Linear(4, 3), mp.Linear(3, 2)]
TRAININGS = {
    "updates in the order": lambda: mp.Pipeline(
        PLAIN, LOSS, 2, 2, schedule=with_updates(build("1f1b", 2, 2))
    ),
    "copies": lambda: mp.Parallel(PLAIN, LOSS, replicas=2, schedule=with_updates(data_parallel(2, 2))),
    "shards": lambda: mp.Parallel(
        PLAIN, LOSS, shards=2, stages=2, microbatches=2, schedule=with_updates(build("gpipe", 2, 2))),
    "ZeRO 1": lambda: mp.DataParallel(PLAIN, LOSS, 2, zero=1),
    "ZeRO 3": lambda: mp.DataParallel(PLAIN, LOSS, 2, zero=3, sums=mp.Sums(buckets=200)),
    "ZeRO 2 and shards": lambda: mp.Parallel(
        PLAIN, LOSS, replicas=2, shards=2, zero=2),
    "a stream": lambda: mp.Pipeline(PLAIN, LOSS, 2, 1, schedule="pipedream"),
    "servers": lambda: mp.ParameterServer(PLAIN, LOSS, 2, servers=2),
}


@pytest.mark.parametrize("n, name", [
    *((4, name) for name in TRAININGS if name not in ("copies", "shards")),
    *(pytest.param(120, name, marks=pytest.mark.slow) for name in TRAININGS),
])
def test_an_update_of_an_order_is_made_as_a_whole_or_not(n, name):
    def go_on(net, adam, is_done):
        for batch in BATCHES[1 + is_done:]:
            net.train([batch], adam)
        return parameters(net.layers)

    start = TRAININGS[name](), mp.Adam(0.5)
    start[0].train(BATCHES[:1], start[1])
    assert_whole_or_not_at_all(start, lambda net, adam: net.train(BATCHES[1:2], adam), go_on, n)


def federated():
    X, Y = BATCHES[0]
    clients = [(X[:, part], Y[:, part]) for part in (slice(0, 3), slice(3, 8))]
    return mp.FederatedAveraging(PLAIN, LOSS, clients)


def state_of_rounds(net, _):
    """Return all that a round changes."""
    norm = net.layers[1].running_mean, net.layers[1].running_var
    return parameters(net.layers), norm, net.positions, net.n_rounds


class Waits(mp.ReLU):
    """A ReLU whose backward, on a device's thread, waits until the user has interrupted the run."""

    reached, interrupted = threading.Event(), threading.Event()

    def backward_input(self, dA):
        self.reached.set()
        self.interrupted.wait(10)
        return super().backward_input(dA)

    @classmethod
    def interrupt(cls):
        """Wait for the backward, interrupt the main thread, and let the backward go on a little later."""
        cls.reached.wait(10)
        _thread.interrupt_main()
        time.sleep(0.1)
        cls.interrupted.set()


def test_work_of_a_thread_after_an_interrupt_is_discarded():
    """The thread of a device works on, and updates its stage, after the run was given up."""
    layers = [mp.Linear(3, 4), Waits(), mp.Linear(4, 2)]
    net = mp.Parallel(layers, LOSS, replicas=2, zero=1, engine="threads")
    full, optimizer, own = mp.Sequential(layers, LOSS, grain=4), mp.Adam(0.5), mp.Adam(0.5)
    before = parameters(net.layers)
    user = threading.Thread(target=Waits.interrupt)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        user.start()
        with pytest.raises(KeyboardInterrupt):
            net.train(BATCHES[:1], optimizer)
    finally:
        user.join()
        signal.signal(signal.SIGINT, handler)
    assert_same(parameters(net.layers), before)
    assert (net.n_steps, optimizer.n_updates, dict(optimizer.memory)) == (0, 0, {})
    net.train(BATCHES, optimizer)
    full.train(BATCHES, own)
    assert_same(parameters(net.layers), parameters(full.layers))


@pytest.mark.parametrize("n", [4, pytest.param(120, marks=pytest.mark.slow)])
def test_a_round_is_made_as_a_whole_or_not_at_all(n):
    def go_on(net, adam, is_done):
        net.train(2 - is_done, adam)
        return parameters(net.layers)

    start = federated(), mp.Adam(0.5)
    start[0].round(start[1])
    assert_whole_or_not_at_all(start, lambda net, adam: net.round(adam), go_on, n, state_of_rounds)


@pytest.mark.parametrize("name", ["updates in the order", "ZeRO 3", "servers"])
@pytest.mark.parametrize("n", [8, pytest.param(300, marks=pytest.mark.slow)])
def test_a_file_is_read_as_a_whole_or_not_at_all(name, n, tmp_path):
    saved, start = (TRAININGS[name](), mp.Adam(0.5)), (TRAININGS[name](), mp.Adam(0.25))
    saved[0].train(BATCHES[:2], saved[1])
    mp.save(tmp_path / "net.npz", *saved)
    start[0].train(BATCHES[2:], start[1])
    assert_whole_or_not_at_all(start, partial(mp.load, tmp_path / "net.npz"), lambda *_: None, n)


# Lives of a training


def layers(number):
    """Six layers, of which two are inside another one; `number` converts their arrays."""
    made = [
        mp.Linear(3, 4), mp.BatchNorm(4), mp.ReLU(), mp.Residual(mp.Linear(4, 4), mp.ReLU()),
        mp.Dropout(0.25), mp.Linear(4, 2),
    ]
    return [layer.copy(number) for layer in mp.Sequential(made, LOSS).layers]


def parallel(split, schedule="1f1b", sums=mp.Sums(grain=2), engine="cluster", **memory):
    """Return a function that makes such a network of its layers."""
    return lambda made: mp.Parallel(
        made, LOSS, **split, schedule=schedule, **memory, sums=sums, engine=engine
    )


PIPE, COPIES = dict(stages=2, microbatches=4), dict(replicas=2, stages=2, microbatches=4)
IN_COPIES, BUCKETS = in_copies(build("1f1b", 2, 2), 2), mp.Sums(buckets="layer", grain=2)
SPLITS = {
    "one device": lambda made: mp.Sequential(made, LOSS, grain=2),
    "pipeline": parallel(dict(stages=3, microbatches=4), "gpipe"),
    "recomputed": parallel(dict(stages=2, microbatches=2), "gpipe", recompute="always"),
    "threads": parallel(PIPE, engine="threads"),
    "updates": parallel(PIPE, with_updates(build("zb-h1", 2, 4))),
    "copies": parallel(dict(replicas=3, microbatches=4)),
    "copies with buckets": parallel(COPIES, sums=BUCKETS),
    "copies with updates": parallel(COPIES, with_updates(IN_COPIES)),
    "ZeRO 1": parallel(dict(replicas=2, microbatches=4), zero=1),
    "ZeRO 2 on threads": parallel(COPIES, zero=2, sums=BUCKETS, engine="threads"),
    "ZeRO 3": parallel(dict(replicas=3), zero=3),
    "ZeRO 3, stages": parallel(COPIES, recompute="sqrt", zero=3),
    "ZeRO 3 of an order": parallel(COPIES, with_zero(IN_COPIES, 3)),
}
SHARDS = {
    "shards": parallel(dict(shards=2, microbatches=4), "gpipe"),
    "shards with updates": parallel(
        dict(shards=2, stages=2, microbatches=4), with_updates(build("1f1b", 2, 4))
    ),
    "shards and copies": parallel(
        dict(replicas=2, shards=2, microbatches=4), with_updates(data_parallel(2, 4))
    ),
    "shards and ZeRO 1": parallel(
        dict(replicas=2, shards=2, stages=2, microbatches=4), with_zero(IN_COPIES, 1)
    ),
    "shards and ZeRO 3": parallel(
        dict(replicas=2, shards=3, stages=2, microbatches=4), zero=3, sums=BUCKETS
    ),
}
TOGETHER = mp.Sums(sync_batch_norm=True)
STATISTICS = {
    "copies": parallel(dict(replicas=3), sums=TOGETHER),
    "copies of stages": parallel(dict(replicas=2, stages=2), recompute="always", sums=TOGETHER),
    "shards and ZeRO 2": parallel(dict(replicas=2, shards=2, stages=2), zero=2, sums=TOGETHER),
}


SERVERS = {
    "synchronous": lambda made: mp.ParameterServer(made, LOSS, 2, servers=2),
    "on workers": lambda made: mp.ParameterServer(made, LOSS, 2, servers=2, on_workers=True),
    "synchronous threads": lambda made: mp.ParameterServer(made, LOSS, 2, engine="threads"),
    "pipeline": parallel(dict(stages=2, microbatches=2), sums=mp.Sums(grain=4)),
    "ZeRO 1": parallel(dict(replicas=2), zero=1, sums=mp.Sums(grain=4)),
}
ASYNCHRONOUS = {
    "one worker": lambda made: mp.ParameterServer(made, LOSS, 1, servers=3, mode="async"),
    "two workers": lambda made: mp.ParameterServer(made, LOSS, 2, mode="async", speeds=[1, 3]),
    "threads": lambda made: mp.ParameterServer(made, LOSS, 2, mode="async", engine="threads"),
    "stages": parallel(dict(stages=2), sums=mp.Sums()),
}
CLIENT = BATCHES[0]
ROUNDS = {"one client": lambda made: mp.FederatedAveraging(made, LOSS, [CLIENT], epochs=2)}


LINES = {}  # of an update, or a `fit`, in each split, as `Life` has counted them


class Life(RuleBasedStateMachine):
    """In floats, in splits that have the bits of one device."""

    splits, grain, number, most_updates = SPLITS, 2, staticmethod(np.float64), 100
    assigned, can_fit = (np.asarray, np.ndarray.tolist, np.float32), True
    seeds = st.integers(0, 3)

    @initialize(data=st.data())
    def begin(self, data):
        self.alone = mp.Sequential(layers(self.number), LOSS, grain=self.grain), self.optimizer()
        self.net, self.its = self.drawn(data), self.optimizer()

    def drawn(self, data, **seed):
        """Return a network in any of the splits."""
        made = mp.Sequential(layers(self.number), LOSS, **seed).layers
        return self.splits[data.draw(st.sampled_from(sorted(self.splits)))](made)

    def optimizer(self):
        return mp.Adam(0.125)

    def batch(self, seed):
        return self.samples(seed, 8 + 2 * seed)

    def samples(self, seed, m):
        rng = np.random.default_rng(seed)
        return self.number(rng.integers(-4, 5, (3, m)) / 4), self.number(rng.integers(-4, 5, (2, m)) / 4)

    def train(self, net, optimizer, batch):
        """Make an update of `net`; return its cost."""
        return net.train([batch], optimizer)

    def n_updates(self, net):
        return net.n_steps

    def all_of(self, net, its):
        counters = its.n_updates, self.n_updates(net), its.learning_rate, its.last_rate, its.last_pass
        return state(net.layers), dict(its.memory), counters

    @invariant()
    def same_arrays(self):
        assert_same(self.all_of(self.net, self.its), self.all_of(*self.alone))

    def may_update(self, n=1):
        return not hasattr(self, "net") or self.n_updates(self.net) + n <= self.most_updates

    @precondition(may_update)
    @rule(seed=seeds)
    def update(self, seed):
        batch = self.batch(seed)
        assert self.train(self.net, self.its, batch) == self.train(*self.alone, batch)

    @precondition(may_update)
    @rule(seed=seeds, where=st.floats(0, 1))
    def update_with_an_interrupt(self, seed, where):
        batch, before = self.batch(seed), self.n_updates(self.net)
        work = partial(self.train, batch=batch)
        interrupted(partial(work, self.net, self.its), int(where * self.lines_of(work)))
        if self.n_updates(self.net) > before:
            self.train(*self.alone, batch)

    @precondition(may_update)
    @rule(seed=seeds)
    def update_while_a_thread_saves(self, seed):
        batch, is_over, between = self.batch(seed), threading.Event(), []

        def save():
            while not is_over.is_set():
                between.append(self.net.state(self.its))

        first, interval = self.net.state(self.its), sys.getswitchinterval()
        thread = threading.Thread(target=save)
        sys.setswitchinterval(1e-5)
        thread.start()
        try:
            self.train(self.net, self.its, batch)
        finally:
            is_over.set()
            thread.join()
            sys.setswitchinterval(interval)
        last = self.net.state(self.its)
        for one in between:
            is_last = (one.n_steps, one.counts) == (last.n_steps, last.counts)
            assert_same(one, last if is_last else first)
        self.train(*self.alone, batch)

    def lines_of(self, work, name="update"):
        """Return about how many lines `work` of this network takes; they are counted once a split."""
        key = type(self), repr(self.net), name
        if key not in LINES:
            self.net.forget_run()  # a run under way cannot be copied
            LINES[key], _ = interrupted(partial(work, *copy.deepcopy((self.net, self.its))))
        return LINES[key]

    @precondition(partial(may_update, n=2))
    @rule(seed=seeds, where=st.floats(0, 1.2), data=st.data())
    def fit_with_an_interrupt(self, seed, where, data):
        """Go on with the rest of the epoch, perhaps in another split."""
        def fit(net, its):
            mp.fit(net, *self.samples(seed, 16), its, 1, 8, seed=seed, report=None)

        if not self.can_fit:
            with pytest.raises(ValueError, match="call train"):
                fit(self.net, self.its)
            return
        before = self.its.n_epochs
        interrupted(partial(fit, self.net, self.its), int(where * self.lines_of(fit, "fit")))
        if data.draw(st.booleans()):
            self.go_on_from_a_file(data)
        while not self.can_fit:
            self.go_on_from_a_file(data)
        if self.its.n_epochs == before:
            fit(self.net, self.its)
        fit(*self.alone)

    @rule(data=st.data())
    def go_on_from_a_file(self, data):
        with tempfile.TemporaryDirectory() as folder:
            mp.save(Path(folder) / "net.npz", self.net, self.its)
            self.net, self.its = self.drawn(data, seed=1), mp.Adam(0.5)
            mp.load(Path(folder) / "net.npz", self.net, self.its)

    @rule(where=st.floats(0, 0.9999), bits=st.integers(0, 255))
    def refuse_a_damaged_file(self, where, bits):
        """bits: that change in a byte of it; 0: it ends there. A byte that nobody reads does not matter."""
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "net.npz"
            mp.save(path, self.net, self.its)
            content = bytearray(path.read_bytes())
            place = int(where * len(content))
            if bits:
                content[place] ^= bits
            path.write_bytes(content if bits else content[:place])
            with contextlib.suppress(ValueError) if bits else pytest.raises(ValueError, match="is damaged"):
                mp.load(path, self.net, self.its)

    @rule(k=st.integers(0, 8))
    def refuse_a_wrong_state(self, k):
        found = self.net.state(self.its)
        own, name = found.optimizer, next(iter(found.arrays))
        wrong = [
            found._replace(layers=found.layers[:-1]),
            found._replace(arrays=found.arrays | {name: np.ones((9, 9))}),
            found._replace(arrays=found.arrays | {name: found.arrays[name].astype(np.float16)}),
            found._replace(n_steps=-1),
            found._replace(optimizer=None),
            found._replace(optimizer=own._replace(kind="LAMB")),
            found._replace(optimizer=own._replace(learning_rate=0)),
            found._replace(optimizer=own._replace(last_pass=(0, 1, 2, 8, 0))),
            found._replace(optimizer=own._replace(memory={(0, "W", 0): [np.ones(3)]})),
        ][k]
        with pytest.raises(ValueError, match="this state"):
            self.net.resume(wrong, self.its)

    @rule(way=st.sampled_from([
        copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair)), lambda pair: map(copy.copy, pair),
    ]), seed=seeds)
    def go_on_with_a_copy(self, way, seed):
        self.net.forget_run()
        original = self.net, self.its
        self.net, self.its = way(original)
        if self.may_update():
            self.train(*original, self.batch(seed))

    @rule(seed=seeds, data=st.data(), whole=st.sampled_from(["predict", "state", "update"]))
    def assign(self, seed, data, whole):
        """Give both a W; then it is taken over in one way or another."""
        k, convert = data.draw(st.integers(0, 2)), data.draw(st.sampled_from(self.assigned))
        for net in (self.net, self.alone[0]):
            layer = linears(net)[k]
            layer.W = convert(np.random.default_rng(seed).integers(-2, 3, layer.W.shape))
        X, _ = batch = self.batch(seed)
        expected = self.alone[0].predict(X)
        if whole == "state":
            self.net.state(self.its)
        elif whole == "predict":
            assert_same(self.net.predict(X), expected)
        elif self.may_update():
            assert self.train(self.net, self.its, batch) == self.train(*self.alone, batch)
        else:
            self.net.predict(X)

    @rule(seed=seeds, k=st.integers(0, 2), W=st.sampled_from([np.ones((9, 9)), None, [[np.nan]], "W", 1j]))
    def refuse_to_assign(self, seed, k, W):
        batch, layer, kept = self.batch(seed), linears(self.net)[k], self.net.state(self.its)
        before, layer.W = layer.W, W
        for use in (
            lambda: self.net.predict(batch[0]), lambda: self.net.state(self.its),
            lambda: self.train(self.net, self.its, batch), lambda: self.net.resume(kept, self.its),
        ):
            with pytest.raises(ValueError, match="W"):
                use()
        layer.W = before

    @precondition(lambda self: hasattr(self, "its") and self.its.n_updates)
    @rule(seed=seeds, data=st.data())
    def refuse_another_network(self, seed, data):
        other = self.drawn(data)
        before = state(other.layers)
        for use in (lambda: self.train(other, self.its, self.batch(seed)), lambda: other.state(self.its)):
            with pytest.raises(ValueError, match="of another network: make a new"):
                use()
        assert_same(state(other.layers), before)

    @precondition(may_update)
    @rule(seed=seeds, n_ticks=st.integers(0, 12))
    def leave_a_run(self, seed, n_ticks):
        if not hasattr(self.net, "tick") or self.net._options.engine != "cluster":
            return
        batch, has_updates = self.batch(seed), self.net.has_updates
        self.net.start(*batch, self.its if has_updates else None)
        if sum(bool(self.net.tick()) for _ in range(n_ticks)) == n_ticks:
            return
        if has_updates:  # it has come to its end
            self.alone[0].train([batch], self.alone[1])

    @rule(seed=seeds)
    def refuse(self, seed):
        X, Y = self.batch(seed)
        for batches, optimizer, error in [
            ([(X, Y), (X, Y[:, 1:])], self.its, ValueError), ([(X[:2], Y)], self.its, ValueError),
            ([(X, Y)], "adam", ValueError),
        ]:
            with pytest.raises(error):
                self.net.train(batches, optimizer)


def linears(net):
    return [layer for layer in every_layer(net.layers) if isinstance(layer, mp.Linear)]


class LifeOfServers(Life):
    """Workers train a part of each mini-batch each, of 4 samples."""

    splits, grain = SERVERS, 4

    @property
    def can_fit(self):
        return not isinstance(self.net, mp.ParameterServer)

    def batch(self, seed):
        return self.samples(seed, 8)


class LifeOfAsynchronous(LifeOfServers):
    """A worker trains with the whole of each mini-batch; each `train` has one, so no gradient is stale."""

    splits, grain = ASYNCHRONOUS, None


class LifeOfRounds(Life):
    """One client has all samples, so its round is two steps of one device with a fresh optimizer."""

    splits, grain, can_fit = ROUNDS, None, False
    leave_a_run = refuse_another_network = None

    def train(self, net, optimizer, batch):
        if isinstance(net, mp.Sequential):
            return net.train([CLIENT] * 2, optimizer.fresh())[-1]
        return net.round(optimizer).J

    def n_updates(self, net):
        return net.n_steps // 2 if isinstance(net, mp.Sequential) else net.n_rounds

    @rule(rounds=st.sampled_from([0, 1.5, None]))
    def refuse(self, rounds):
        for call in (lambda: self.net.train(rounds, self.its), lambda: self.net.round("adam")):
            with pytest.raises(ValueError):
                call()


class LifeOfShards(Life):
    """In fractions, which no file holds, and in which the bits of shards are those of one device, too."""

    splits, number = SHARDS, staticmethod(lambda array: rational(np.round(8 * array) / 8))
    assigned = (rational,)
    most_updates = 2  # fractions grow long
    refuse_a_damaged_file = None

    def optimizer(self):
        half = Rational(1, 2)
        return mp.SGD(half / 4, momentum=half, weight_decay=half / 8, weights_only=True)

    @rule(data=st.data())
    def go_on_from_a_file(self, data):
        """From its state in memory."""
        kept, self.net, self.its = self.net.state(self.its), self.drawn(data, seed=1), self.optimizer()
        self.net.resume(kept, self.its)


class LifeOfCopies(LifeOfShards):
    """In fractions, with the statistics of batch norm put together: those of the whole mini-batch."""

    splits, grain = STATISTICS, None


QUICK = [(Life, 8, 10), (LifeOfServers, 3, 8), (LifeOfAsynchronous, 3, 8), (LifeOfRounds, 3, 8),
         (LifeOfShards, 2, 8), (LifeOfCopies, 2, 8)]


@pytest.mark.parametrize("kind, n_lives, n_events", [
    *QUICK, *(pytest.param(kind, 15, 20, marks=pytest.mark.slow) for kind, _, _ in QUICK),
])
def test_a_training_has_the_arrays_of_one_that_meets_nothing(kind, n_lives, n_events):
    run_state_machine_as_test(kind, settings=settings(max_examples=n_lives, stateful_step_count=n_events))
