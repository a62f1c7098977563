"""Ctrl-C at any line of a step or a training: updates are made as a whole, or not at all, and it goes on."""

import _thread
import copy
import signal
import sys
import threading
import time
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from compared import assert_same, difference, parameters

import minipipe as mp
from minipipe.order import with_updates
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
        LAYERS, LOSS, mp.Split(2, 2, 2), sums=mp.Sums(buckets="layer", sync_batch_norm=True)
    ),
}
rng = np.random.default_rng(0)
BATCHES = [(rng.standard_normal((3, 8)), rng.standard_normal((2, 8))) for _ in range(3)]
PACKAGE = str(Path(mp.__file__).parent)


def state_of(net, optimizer):
    """All that a step changes."""
    norm, counters = net.layers[1], (optimizer.n_updates, optimizer.last_rate, net.n_steps)
    return parameters(net.layers), norm.running_mean, norm.running_var, optimizer.memory, counters


def interrupted(work, place=np.inf, kind="line"):
    """Call `work`, with a KeyboardInterrupt before line, or opcode, number `place`. kind: "line" or "opcode".

    Return how many of them it came to in the package, and whether it was interrupted.
    """
    passed = 0

    def look(frame, event, _):
        nonlocal passed
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        frame.f_trace_opcodes = kind == "opcode"
        passed += event == kind
        if passed > place:
            sys.settrace(None)
            raise KeyboardInterrupt
        return look

    with np.errstate():  # which an interrupt within another one may leave open
        sys.settrace(look)
        try:
            work()
        except KeyboardInterrupt:
            return passed, True
        finally:
            sys.settrace(None)
    return passed, False


def trained(name):
    """(a network after one step of Adam and a second mini-batch, its optimizer)"""
    net, optimizer = NETWORKS[name](), mp.Adam(0.5)
    for n, batch in enumerate(BATCHES[:2]):
        net.forward_backward(*batch)
        if n == 0:
            net.step(optimizer, clip=0.5)
    return net, optimizer


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("kind, every", [
    ("line", 131), ("opcode", 1307),
    *(pytest.param(*values, marks=pytest.mark.slow) for values in (("line", 7), ("opcode", 61))),
])
def test_a_step_is_made_as_a_whole_or_not_at_all(name, kind, every):
    start = trained(name)
    before, (net, optimizer) = state_of(*start), copy.deepcopy(start)
    net.step(optimizer, clip=0.5)
    after = state_of(net, optimizer)
    net.forward_backward(*BATCHES[2])
    then = net.gradients
    for place in count(0, every):
        net, optimizer = copy.deepcopy(start)
        if not interrupted(partial(net.step, optimizer, clip=0.5), place, kind)[1]:
            break
        found = state_of(net, optimizer)
        is_made = difference(found, before) is not None
        assert_same(found, after if is_made else before, f"the state after an interrupt at {kind} {place}")
        if not is_made:
            net.step(optimizer, clip=0.5)
            assert_same(state_of(net, optimizer), after, "the state after another try")
        net.forward_backward(*BATCHES[2])
        assert_same(net.gradients, then, "the gradients of the next mini-batch")
    assert place > 500


def test_a_second_interrupt_waits_for_the_next_look_at_the_network():
    net, optimizer = trained("Sequential")
    (copied, of_copy), make = copy.deepcopy((net, optimizer)), mp.network.Changes.make
    copied.step(of_copy)
    calls = []

    def stopped(changes):
        calls.append(changes)
        if len(calls) < 3:
            raise KeyboardInterrupt
        make(changes)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mp.network.Changes, "make", stopped)
        with pytest.raises(KeyboardInterrupt):
            net.step(optimizer)
        assert optimizer.n_updates == 1 and len(calls) == 2
        assert_same(state_of(net, optimizer), state_of(copied, of_copy))


PLAIN = [mp.Linear(3, 4), mp.BatchNorm(4), mp.ReLU(), mp.Linear(4, 3), mp.Linear(3, 2)]
TRAININGS = {
    "updates in the order": lambda: mp.Pipeline(PLAIN, LOSS, 2, 2, with_updates(build("1f1b", 2, 2))),
    "copies": lambda: mp.Parallel(PLAIN, LOSS, mp.Split(replicas=2), with_updates(data_parallel(2, 2))),
    "shards": lambda: mp.Parallel(
        PLAIN, LOSS, mp.Split(shards=2, stages=2, microbatches=2), with_updates(build("gpipe", 2, 2))
    ),
    "ZeRO 1": lambda: mp.DataParallel(PLAIN, LOSS, 2, zero=1),
    "ZeRO 3": lambda: mp.DataParallel(PLAIN, LOSS, 2, zero=3),
    "ZeRO 2 and shards": lambda: mp.Parallel(
        PLAIN, LOSS, mp.Split(replicas=2, shards=2), memory=mp.Memory(zero=2)
    ),
    "a stream": lambda: mp.Pipeline(PLAIN, LOSS, 2, 1, "pipedream"),
    "servers": lambda: mp.ParameterServer(PLAIN, LOSS, 2, mp.Servers(2)),
}


def state_of_training(net, optimizer):
    """All that a training changes."""
    kept = dict(optimizer.memory), optimizer.n_updates
    return parameters(net.layers), net.layers[1].running_mean, net.layers[1].running_var, kept, net.n_steps


@pytest.mark.parametrize("name", TRAININGS)
@pytest.mark.parametrize("every", [4999, pytest.param(997, marks=pytest.mark.slow)])
def test_an_update_of_an_order_is_made_as_a_whole_or_not_at_all(name, every):
    """All along a run, and closer at its beginning and its end, where stages change hands."""
    start = TRAININGS[name](), mp.Adam(0.5)
    start[0].train(BATCHES[:1], start[1])
    before, (net, adam) = state_of_training(*start), copy.deepcopy(start)
    n_lines, _ = interrupted(partial(net.train, BATCHES[1:2], adam))
    after = state_of_training(net, adam)
    net.train(BATCHES[2:], adam)
    then = parameters(net.layers)
    ends = [*range(0, n_lines // 20, every // 11), *range(n_lines - 300, n_lines, every // 71)]
    for line in (*range(0, n_lines, every), *ends):
        net, adam = copy.deepcopy(start)
        assert interrupted(partial(net.train, BATCHES[1:2], adam), line)[1]
        found = state_of_training(net, adam)
        is_made = difference(found, before) is not None
        assert_same(found, after if is_made else before, f"the state after an interrupt at line {line}")
        for batch in BATCHES[1 + is_made:]:
            net.train([batch], adam)
        assert_same(parameters(net.layers), then, "the parameters of a training that goes on")


def federated():
    """Two clients whose optimizers remember from round to round, and an outer optimizer."""
    X, Y = BATCHES[0]
    clients = [(X[:, part], Y[:, part]) for part in (slice(0, 3), slice(3, 8))]
    outer = mp.SGD(0.5, momentum=0.5)
    return mp.FederatedAveraging(PLAIN, LOSS, clients, mp.Rounds(keep_memory=True), outer=outer)


def state_of_rounds(net):
    """All that a round changes."""
    clients = [(one.position, one.optimizer.memory, one.optimizer.n_updates) for one in net.clients]
    outer = net._outer.memory, net._outer.n_updates
    norm = net.layers[1].running_mean, net.layers[1].running_var
    return parameters(net.layers), norm, clients, outer, net.n_rounds


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


def test_what_a_thread_does_after_an_interrupt_reaches_nobody():
    """The thread of a device works on, and updates its stage, after the run was given up."""
    layers = [mp.Linear(3, 4), Waits(), mp.Linear(4, 2)]
    memory, on = mp.Memory(zero=1), mp.Machine("threads")
    net = mp.Parallel(layers, LOSS, mp.Split(replicas=2), memory=memory, on=on)
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


@pytest.mark.parametrize("every", [1499, pytest.param(149, marks=pytest.mark.slow)])
def test_a_round_is_made_as_a_whole_or_not_at_all(every):
    start, adam = federated(), mp.Adam(0.5)
    start.round(adam)
    before, net = state_of_rounds(start), copy.deepcopy(start)
    n_lines, _ = interrupted(partial(net.round, adam))
    after = state_of_rounds(net)
    net.round(adam)
    then = parameters(net.layers)
    for line in (*range(0, n_lines, every), *range(n_lines - 300, n_lines, every // 71)):
        net = copy.deepcopy(start)
        assert interrupted(partial(net.round, adam), line)[1]
        found = state_of_rounds(net)
        is_made = difference(found, before) is not None
        assert_same(found, after if is_made else before, f"the state after an interrupt at line {line}")
        net.train(2 - is_made, adam)
        assert_same(parameters(net.layers), then, "the parameters of a training that goes on")


@pytest.mark.parametrize("name", ["updates in the order", "ZeRO 3", "servers"])
@pytest.mark.parametrize("every", [61, pytest.param(3, marks=pytest.mark.slow)])
def test_a_file_is_read_as_a_whole_or_not_at_all(name, every, tmp_path):
    saved, start = (TRAININGS[name](), mp.Adam(0.5)), (TRAININGS[name](), mp.Adam(0.25))
    saved[0].train(BATCHES[:2], saved[1])
    mp.save(tmp_path / "net.npz", *saved)
    start[0].train(BATCHES[2:], start[1])
    before, after = state_of_training(*start), state_of_training(*saved)
    n_lines, _ = interrupted(partial(mp.load, tmp_path / "net.npz", *copy.deepcopy(start)))
    for line in range(0, n_lines, every):
        net, adam = copy.deepcopy(start)
        assert interrupted(partial(mp.load, tmp_path / "net.npz", net, adam), line)[1]
        found = state_of_training(net, adam)
        is_read = difference(found, before) is not None
        assert_same(found, after if is_read else before, f"the state after an interrupt at line {line}")
