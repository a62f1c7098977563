"""The copies of a network are objects of their own, and stay equal, bit for bit, from update to update."""

from contextlib import suppress

import numpy as np
import pytest
from compared import assert_all_same, assert_same, state

import minipipe as mp
from minipipe.order import in_copies, with_updates
from minipipe.schedules import build

LOSS = mp.MeanSquaredError()
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3, 12))


def network():
    return [
        mp.Linear(3, 4), mp.BatchNorm(4), mp.Residual(mp.Linear(4, 4), mp.Tanh()), mp.Dropout(0.25),
        mp.Linear(4, 3),
    ]


def one_device(optimizer, M=6, n_steps=3):
    """Yield the state after each step of one device with the same micro-batches."""
    net = mp.Pipeline(network(), LOSS, 1, M)
    for _ in range(n_steps):
        net.forward_backward(X, Y)
        net.step(optimizer)
        yield state(net.layers)


@pytest.mark.parametrize("optimizer", [
    mp.SGD(0.02, momentum=0.9, nesterov=True, weight_decay=0.01), mp.LAMB(0.01),
], ids=["SGD", "LAMB"])
def test_steps_leave_all_copies_equal_to_one_device(optimizer):
    """With batch norm, dropout and momentum; each copy has the sums of all before the step."""
    net, own = mp.DataParallel(network(), LOSS, 3, microbatches=6), optimizer.fresh()
    for expected in one_device(optimizer.fresh()):
        net.forward_backward(X, Y)
        for stage in net._run.stages.values():
            assert_same(stage.gradients(), net.gradients)
        net.step(own)
        assert_all_same(map(state, net.replicas), expected)


@pytest.mark.parametrize("D, M, zero, buckets", [
    (2, 2, 1, None), (3, 6, 1, 100), (5, 6, 2, 1), (3, 3, 3, None), (3, 6, 3, 100),
])
def test_updates_in_the_order_leave_all_copies_equal(D, M, zero, buckets):
    """With ZeRO; no copy shares an array with another one."""
    net = mp.DataParallel(network(), LOSS, D, microbatches=M, zero=zero, sums=mp.Sums(buckets=buckets))
    optimizer = mp.Adam(0.01)
    for expected in one_device(mp.Adam(0.01), M):
        net.train([(X, Y)], optimizer)
        assert_all_same(map(state, net.replicas), expected)
    arrays = [array for layers in net.replicas for array in state(layers).values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


def test_what_is_assigned_between_two_steps_all_copies_take_over():
    net, one = mp.DataParallel(network(), LOSS, 3, microbatches=6), mp.Pipeline(network(), LOSS, 1, 6)
    for model in (net, one):
        adam = mp.Adam(0.01)
        for _ in range(2):
            model.forward_backward(X, Y)
            model.step(adam)
            model.layers[0].W = model.layers[0].W / 2
            model.layers[1].running_mean = model.layers[1].running_mean + 1
        model.forward_backward(X, Y)
        model.step(mp.Adam(0.02))  # another one, which remembers nothing yet
    assert_all_same(map(state, net.replicas), state(one.layers))


@pytest.mark.parametrize("zero", [0, 3])
def test_what_is_changed_in_place_counts_on_all_copies(zero):
    """A run reads the layers anew."""
    net, one = mp.DataParallel(network(), LOSS, 2, zero=zero), mp.Pipeline(network(), LOSS, 1, 2)
    for model in (net, one):
        optimizer = mp.SGD(0.1)
        model.train([(X, Y)], optimizer)
        model.layers[0].W[0, 0] += 1
        assert_same(model.predict(X), mp.Sequential(model.layers, LOSS).predict(X))
        model.train([(X, Y)], optimizer)
    assert_all_same(map(state, net.replicas), state(one.layers))


@pytest.mark.parametrize("zero, buckets", [(1, None), (2, 100), (3, None)])
def test_after_a_run_that_failed_all_copies_go_on_from_before_it(zero, buckets):
    """It fails when all updates have been made: the cost is not finite."""
    states = []
    for batches in ([(X, Y), (X, 1e200 * Y), (X, Y)], [(X, Y), (X, Y)]):
        net = mp.DataParallel(network(), LOSS, 3, zero=zero, sums=mp.Sums(buckets=buckets))
        optimizer = mp.SGD(1e-9)
        for batch in batches:
            with suppress(FloatingPointError):
                net.train([batch], optimizer)
        states.append([state(layers) for layers in net.replicas])
    assert_all_same(copy for copies in states for copy in copies)


# Files


def splits():
    """Networks, however they are split: what an optimizer remembers is whole, in copies, in parts."""
    copies = in_copies(build("1f1b", 2, 3), 2)
    return {
        "whole": lambda: mp.Pipeline(network(), LOSS, 2, 6, schedule=with_updates(build("1f1b", 2, 6))),
        "steps": lambda: mp.Pipeline(network(), LOSS, 1, 6),
        "copies": lambda: mp.Pipeline(network(), LOSS, 2, 6, schedule=with_updates(copies)),
        "zero 1": lambda: mp.DataParallel(network(), LOSS, 5, microbatches=6, zero=1),
        "zero 3": lambda: mp.DataParallel(
            network(), LOSS, 3, microbatches=6, zero=3, sums=mp.Sums(buckets=100)
        ),
        "pipelines": lambda: mp.Parallel(
            network(), LOSS, replicas=2, stages=2, microbatches=6, zero=2),
    }


def content(path):
    with np.load(path) as file:
        return dict(sorted(file.items()))


def test_the_file_is_the_same_however_optimizers_are_split(tmp_path):
    files, after = {}, {}
    for name, make in splits().items():
        net, optimizer = make(), mp.Adam(0.01)
        net.train([(X, Y)], optimizer)
        mp.save(tmp_path / name, net, optimizer)
        files[name] = content(tmp_path / name)
        net.train([(X, Y)], optimizer)
        after[name] = state(net.layers)
    assert "optimizer/0.0/W/1" in files["whole"]
    assert_all_same(files.values())
    for name, make in splits().items():
        net, optimizer = make(), mp.Adam(0.01)
        net.train([(X, X)], optimizer)  # it has another past, of which nothing must be left
        mp.load(tmp_path / "zero 3", net, optimizer)
        net.train([(X, Y)], optimizer)
        assert_same(state(net.layers), after["zero 3"], f"{name} after loading the file of ZeRO 3")


def test_what_shards_remember_goes_through_a_file(tmp_path):
    """Their bits are others than those of one device; so a file of one goes through shards, and back."""
    first, second = tmp_path / "first", tmp_path / "second"
    one, adam = splits()["whole"](), mp.Adam(0.01)
    one.train([(X, Y)] * 2, adam)
    mp.save(first, one, adam)
    for D, T in ((1, 2), (2, 3)):
        split = dict(replicas=D, shards=T, stages=2, microbatches=6)
        net, other = (mp.Parallel(network(), LOSS, **split, zero=2) for _ in "12")
        optimizer, its = mp.Adam(0.02), mp.Adam(0.03)
        mp.load(first, net, optimizer)
        mp.save(second, net, optimizer)
        assert_same(content(second), content(first))
        net.train([(X, Y)], optimizer)
        mp.save(second, net, optimizer)
        mp.load(second, other, its)
        net.train([(X, Y)], optimizer)
        other.train([(X, Y)], its)
        assert_same(state(net.layers), state(other.layers))
