"""Training goes on: epochs in several calls of `fit`, after interrupts and through files, are those of one
call, bit for bit; an optimizer stays with its network; a thread that saves meanwhile gets one step.
"""

import copy
import signal
import threading
import time

import compared
import numpy as np
import pytest
from compared import assert_same
from sampling import one_in

import minipipe as mp
from minipipe.experiments import Recipe

LAYERS = [
    mp.Linear(3, 4), mp.BatchNorm(4), mp.ReLU(), mp.Dropout(0.25), mp.Linear(4, 4), mp.Linear(4, 2),
]
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((3, 24)), rng.standard_normal((2, 24))


class Stops(mp.MeanSquaredError):
    """A loss that raises an error after `left` looks at labels: of `fit`, mini-batches and their grains."""

    left, error = np.inf, None

    def check(self, Y):
        super().check(Y)
        Stops.left -= 1
        if Stops.left < 0:
            Stops.left = np.inf
            raise Stops.error


def parallel(**split):
    return lambda layers=LAYERS: mp.Parallel(layers, Stops(), **split)


NETWORKS = {
    "one device": lambda layers=LAYERS: mp.Sequential(layers, Stops(), grain=2),
    "stages": parallel(stages=2, microbatches=3),
    "copies": parallel(replicas=2, stages=2, sums=mp.Sums(grain=2)),
    "shards": parallel(shards=2),
    "ZeRO 1": parallel(replicas=2, zero=1),
    "ZeRO 2": parallel(replicas=2, zero=2),
    "ZeRO 3": parallel(replicas=2, zero=3),
    "ZeRO 3 of a hybrid": parallel(replicas=2, shards=2, stages=2, zero=3),
    "threads": parallel(replicas=2, stages=2, engine="threads"),
    "ZeRO 1 on threads": parallel(replicas=2, zero=1, engine="threads"),
}
AFTER_TWO_STEPS = 1 + 2 * (1 + 4)  # looks of "one device", whose mini-batches of 8 samples have 4 grains
RECIPE = Recipe(base=0.02, reference=4, epochs=4, warm_up=1.5)
RATE = RECIPE.rate(8)


def begun(name, layers=LAYERS):
    return NETWORKS[name](layers), mp.SGD(RECIPE.base, 0.9, rate_inside=True, weight_decay=0.01)


def fitted(net, optimizer, epochs=4, size=8, **options):
    return mp.fit(net, X, Y, optimizer, epochs, size, learning_rate=RATE, report=None, **options)


def all_of(net, optimizer):
    names = ("n_updates", "learning_rate", "last_rate", "last_pass", "n_epochs")
    counters = {name: getattr(optimizer, name) for name in names}
    return compared.state(net.layers) | counters | {"memory": dict(optimizer.memory), "n_steps": net.n_steps}


def reloaded(name, folder, *pair):
    mp.save(folder / "net.npz", *pair)
    fresh = NETWORKS[name](), mp.SGD(9.0, 0.9, rate_inside=True, weight_decay=0.01)
    mp.load(folder / "net.npz", *fresh)
    return fresh


@pytest.mark.parametrize("name", one_in(3, NETWORKS))
def test_two_epochs_a_file_and_two_more_are_four(name, tmp_path):
    history = fitted(*(whole := begun(name)))
    assert [epoch.number for epoch in history] == [1, 2, 3, 4] and whole[1].n_epochs == 4
    pair, in_ones = begun(name), begun(name)
    found = fitted(*pair, 2)
    pair = reloaded(name, tmp_path, *pair)
    assert found + fitted(*pair, 2) == history
    assert sum((fitted(*in_ones, 1) for _ in range(4)), []) == history
    assert_same(all_of(*pair), all_of(*whole))
    assert_same(all_of(*in_ones), all_of(*whole))


@pytest.mark.parametrize("name", one_in(3, NETWORKS))
def test_an_interrupted_training_resumes_with_the_same_bits(name, tmp_path):
    fitted(*(whole := begun(name)))
    pair, seed, rates = begun(name), np.random.default_rng(list(NETWORKS).index(name)), []
    while pair[1].n_epochs < 4 and len(rates) < 40:
        Stops.left, Stops.error = seed.integers(6, 16), seed.choice([KeyboardInterrupt, FloatingPointError])
        try:
            fitted(*pair, 4 - pair[1].n_epochs)
        except (KeyboardInterrupt, FloatingPointError):
            rates.append((pair[1].learning_rate, pair[1].last_rate))
            pair = reloaded(name, tmp_path, *pair)
    Stops.left = np.inf
    assert len(rates) > 1 and all(rate == last for rate, last in rates)
    assert_same(all_of(*pair), all_of(*whole))


def test_a_step_that_ctrl_c_waits_for_keeps_its_rate(monkeypatch):
    (net, optimizer), whole = begun("one device"), begun("one device")
    fitted(*whole)
    step = optimizer.step

    def interrupted(*arrays):
        if optimizer.n_updates == 2:
            monkeypatch.undo()
            signal.raise_signal(signal.SIGINT)
        return step(*arrays)

    monkeypatch.setattr(optimizer, "step", interrupted)
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            fitted(net, optimizer)
    finally:
        signal.signal(signal.SIGINT, handler)
    assert (optimizer.n_updates, optimizer.last_pass) == (2, (1, 2, 3, 24, 0))
    assert optimizer.learning_rate == optimizer.last_rate == RATE(1 / 3)
    fitted(net, optimizer)
    assert_same(all_of(net, optimizer), all_of(*whole))


def test_an_epoch_says_its_number_and_may_begin_anew():
    lines, (net, optimizer) = [], begun("one device")
    for _ in range(2):
        mp.fit(net, X, Y, optimizer, 2, lambda epoch: 8 + 4 * epoch, report=lines.append)
    assert [line[:9] for line in lines] == ["epoch 1/2", "epoch 2/2", "epoch 3/4", "epoch 4/4"]
    assert net.n_steps == 3 + 2 + 2 + 2
    Stops.left, Stops.error = AFTER_TWO_STEPS, KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        fitted(net, optimizer)
    assert (optimizer.n_epochs, optimizer.last_pass) == (4, (5, 2, 3, 24, 0))
    before = all_of(net, optimizer)
    with pytest.raises(ValueError, match=r"after 2 of 3 mini-batches of 24 .* seed=0, but has 4 of 24"):
        fitted(net, optimizer, size=6)
    with pytest.raises(ValueError, match="has 3 of 24 with seed=1 now"):
        mp.fit(net, X, Y, optimizer, 1, 8, seed=1, report=None)
    assert_same(all_of(net, optimizer), before)
    net.train([(X, Y)], optimizer)  # by hand, which is no mini-batch of the pass
    assert optimizer.last_pass.n_done == 2
    assert [epoch.number for epoch in fitted(net, optimizer, 2, 6, first_epoch=3)] == [3, 4]


def test_the_cost_of_the_rest_of_an_epoch_counts_its_mini_batches():
    net, optimizer = begun("one device")
    Stops.left, Stops.error = AFTER_TWO_STEPS, KeyboardInterrupt
    with pytest.raises(KeyboardInterrupt):
        fitted(net, optimizer, 1)
    order = np.random.default_rng([0, 1]).permutation(24)[16:]
    J = copy.deepcopy(net).forward_backward(X[:, order], Y[:, order])
    assert fitted(net, optimizer, 1) == [(1, J, None)]


# One optimizer, one network

USES = {
    "a step": lambda net, optimizer: (net.forward_backward(X, Y), net.step(optimizer)),
    "train": lambda net, optimizer: net.train([(X, Y)], optimizer),
    "fit": fitted,
    "state": lambda net, optimizer: net.state(optimizer),
}
MAKES = {
    "copies": parallel(replicas=2),
    "ZeRO": parallel(replicas=2, zero=1),
    "servers": lambda layers=LAYERS: mp.ParameterServer(LAYERS, Stops(), 2),
}


@pytest.mark.parametrize("name", MAKES)
def test_an_optimizer_stays_with_its_network(name):
    for first in [use for use in ("a step", "train", "fit") if (name, use) not in NOT_THERE]:
        for optimizer in (mp.SGD(0.1), mp.SGD(0.1, 0.5)):
            net, other = MAKES[name](), MAKES[name]()
            USES[first](net, optimizer)
            twin, before = copy.deepcopy((net, optimizer)), copy.deepcopy(all_of(other, optimizer))
            for then in [use for use in USES if (name, use) not in NOT_THERE]:
                if optimizer.n_memories:
                    with pytest.raises(ValueError, match="another network: make a new SGD for each network"):
                        USES[then](other, optimizer)
                    assert_same(all_of(other, optimizer), before)
            if not optimizer.n_memories:  # another network begins at epoch 1, in fit and by hand
                USES["train" if name == "servers" else "fit"](other, optimizer)
                assert optimizer.n_epochs == (0 if name == "servers" else 4)
                net.train([(X, Y)], optimizer)
                assert optimizer.n_epochs == 0
            for pair in (twin, (copy.copy(twin[0]), copy.copy(twin[1]))):
                USES[first](*pair)
            other.resume(net.state(twin[1]), optimizer)
            USES[first](other, optimizer)


def test_clients_begin_with_fresh_optimizers():
    net, optimizer = begun("one device")
    fitted(net, optimizer)
    before = all_of(net, optimizer)
    federated = mp.FederatedAveraging(LAYERS, Stops(), [(X, Y), (X[:, :8], Y[:, :8])])
    federated.round(optimizer)
    assert_same(all_of(net, optimizer), before)


NOT_THERE = {("ZeRO", "a step"), ("servers", "a step"), ("servers", "fit")}


# A thread that saves

class Slow(mp.Linear):
    """A Linear that lets other threads work while it gets a new parameter."""

    splits = mp.Linear.splits

    def __setattr__(self, name, value):
        if name in ("W", "b"):
            time.sleep(1e-4)
        super().__setattr__(name, value)


@pytest.mark.parametrize("name", one_in(3, NETWORKS))
def test_a_thread_that_saves_gets_one_step(name, monkeypatch):
    """Each of its states is the one that the training thread itself takes as it looks at a mini-batch."""
    layers = [Slow(3, 4), mp.BatchNorm(4), mp.ReLU(), Slow(4, 4), Slow(4, 2)]
    (net, optimizer), after, taken, is_over = begun(name, layers), {}, [], threading.Event()

    def saver():
        while not is_over.is_set():
            taken.append(net.state(optimizer))
            time.sleep(1e-4)

    def looks(self, Y):
        check(self, Y)
        if threading.current_thread() is threading.main_thread():
            after.setdefault(net.n_steps, net.state(optimizer))

    check, thread = Stops.check, threading.Thread(target=saver)
    monkeypatch.setattr(Stops, "check", looks)
    try:
        thread.start()
        fitted(net, optimizer)
    finally:
        is_over.set()
        thread.join()
    after[net.n_steps] = net.state(optimizer)
    assert len(after) == 13 and len({one.n_steps for one in taken}) > 6
    for one in taken:
        own, expected = one.optimizer, after[one.n_steps]
        number, n_done, n_batches = own.last_pass[:3]
        assert own.n_updates == one.n_steps == max(0, number - 1) * n_batches + n_done
        # `fit` sets the rate of a step before it
        assert own.learning_rate in (own.last_rate, RATE(one.n_steps / 3))
        assert own.last_rate == expected.optimizer.last_rate
        assert_same((one.arrays, own.memory), (expected.arrays, expected.optimizer.memory))


class Meets(mp.Linear):
    """A Linear on which a thread that saves looks in an update, and goes on only after the next one."""

    in_update, looked, updated = threading.Event(), threading.Event(), threading.Event()

    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        if name == "W":
            self.in_update.set()
            self.looked.wait(0.2)

    def checked_parameter(self, *of_parameter):
        if threading.current_thread() is not threading.main_thread():
            self.looked.set()
            self.updated.wait(0.2)
        return super().checked_parameter(*of_parameter)


def test_a_thread_that_saves_takes_no_update_back():
    Meets.looked.set()
    net, alone = (mp.Sequential([Meets(3, 2)], mp.MeanSquaredError()) for _ in range(2))
    optimizer, batch = mp.Adam(0.1), [(X, Y)]
    alone.train(batch * 2, mp.Adam(0.1))
    Meets.in_update.clear()
    Meets.looked.clear()
    thread = threading.Thread(target=lambda: (Meets.in_update.wait(), net.state(optimizer)))
    thread.start()
    net.train(batch * 2, optimizer)
    Meets.updated.set()
    thread.join()
    assert_same(compared.state(net.layers), compared.state(alone.layers))
