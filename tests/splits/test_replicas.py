"""The copies of a network are objects of their own, and stay equal, bit for bit, from update to update."""

from contextlib import suppress
from itertools import product

import numpy as np
import pytest
from compared import assert_all_same, assert_same, state

import minipipe as mp
from minipipe.schedules import build, in_copies, with_updates, with_zero

LOSS = mp.MeanSquaredError()
RNG = np.random.default_rng(0)
X, Y = RNG.standard_normal((2, 3, 12))
STEPS = 12


def network():
    return [
        mp.Linear(3, 4), mp.BatchNorm(4), mp.Residual(mp.Linear(4, 4), mp.Tanh()), mp.Dropout(0.25),
        mp.Linear(4, 3),
    ]


def one_device(optimizer):
    """After each step of one device with the same micro-batches."""
    net = mp.Pipeline(network(), LOSS, 1, 6)
    for _ in range(STEPS):
        net.forward_backward(X, Y)
        net.step(optimizer)
        yield state(net.layers)


@pytest.mark.parametrize("optimizer", [
    mp.SGD(0.02, momentum=0.9, nesterov=True, weight_decay=0.01), mp.LAMB(0.01),
], ids=["SGD", "LAMB"])
def test_twelve_steps_leave_all_copies_equal_to_one_device(optimizer):
    """With batch norm, dropout and momentum; the same objects all the time, with arrays of their own."""
    net, own, met = mp.DataParallel(network(), LOSS, 3, 6), optimizer.fresh(), None
    for expected in one_device(optimizer.fresh()):
        net.forward_backward(X, Y)
        net.step(own)
        copies = net.replicas
        assert_all_same(map(state, copies), expected)
        assert met is None or all(a is b for one, other in zip(met, copies) for a, b in zip(one, other))
        met = copies
    arrays = [array for layers in copies for array in state(layers).values()]
    assert not any(np.shares_memory(a, b) for i, a in enumerate(arrays) for b in arrays[:i])


@pytest.mark.parametrize("options", [{}, {"zero": 3, "buckets": 100}], ids=str)
def test_twelve_updates_of_the_order_do_so_too(options):
    net = mp.DataParallel(network(), LOSS, 3, 6, optimizer=mp.Adam(0.01), **options)
    for expected in one_device(mp.Adam(0.01)):
        net.train([(X, Y)])
        assert_all_same(map(state, net.replicas), expected)


def test_copies_that_share_devices_step_too():
    """Chimera: both copies of each of two stages, on two devices."""
    net = mp.Pipeline(network(), LOSS, 2, 6, "chimera")
    optimizer = mp.Adam(0.01)
    for _, expected in zip(range(5), one_device(mp.Adam(0.01))):
        net.forward_backward(X, Y)
        net.step(optimizer)
        assert_same(state(net.layers), expected)
        for (s, _), stage in net._run.stages.items():
            assert_same(state(stage.layers), state(net.stages[s].layers))


def test_what_is_assigned_between_two_steps_all_copies_take_over():
    net, one = mp.DataParallel(network(), LOSS, 3, 6), mp.Pipeline(network(), LOSS, 1, 6)
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


def test_what_is_changed_in_place_is_refused():
    """It would be the parameter of one copy alone, and nobody would see it."""
    net = mp.DataParallel(network(), LOSS, 2)
    net.forward_backward(X, Y)
    net.step(mp.SGD(0.1))
    net.layers[0].W[0, 0] += 1
    with pytest.raises(RuntimeError, match="W has been changed in place, so the copy on device 1"):
        net.forward_backward(X, Y)
    net.layers[0].W = net.layers[0].W.copy()
    assert np.isfinite(net.forward_backward(X, Y))


def test_a_step_that_is_refused_moves_no_copy():
    net = mp.DataParallel(network(), LOSS, 2)
    net.forward_backward(X, Y)
    before = [state(layers) for layers in net.replicas]
    with pytest.raises(FloatingPointError):
        net.step(mp.SGD(1e308))
    assert_same(list(map(state, net.replicas)), before)


@pytest.mark.parametrize("options", [{}, {"zero": 1}, {"zero": 2, "buckets": 100}, {"zero": 3}], ids=str)
def test_after_a_run_that_failed_all_copies_go_on_from_before_it(options):
    """It fails when all updates have been made: the cost is not finite."""
    states = []
    for batches in ([(X, Y), (X, 1e200 * Y), (X, Y)], [(X, Y), (X, Y)]):
        net = mp.DataParallel(network(), LOSS, 3, optimizer=mp.SGD(1e-9), **options)
        for batch in batches:
            with suppress(FloatingPointError):
                net.train([batch])
        states.append([state(layers) for layers in net.replicas])
    assert_all_same(copy for copies in states for copy in copies)


# Files


def splits():
    """Networks with updates in their order, however it is split: optimizers whole, in copies, in parts."""
    two = in_copies(build("1f1b", 2, 3), 2)
    options = dict(optimizer=mp.Adam(0.01))
    return {
        "whole": lambda: mp.Pipeline(network(), LOSS, 2, 6, with_updates(build("1f1b", 2, 6)), **options),
        "copies": lambda: mp.DataParallel(network(), LOSS, 3, 6, buckets=1, **options),
        "zero 1": lambda: mp.DataParallel(network(), LOSS, 5, 6, zero=1, **options),
        "zero 3": lambda: mp.DataParallel(network(), LOSS, 3, 6, zero=3, buckets=100, **options),
        "pipelines": lambda: mp.Pipeline(network(), LOSS, 2, 6, with_zero(two, 2), **options),
    }


def content(path):
    with np.load(path) as file:
        return dict(sorted(file.items()))


@pytest.mark.slow
def test_the_file_is_the_same_however_the_optimizers_are_split_and_each_goes_on_from_it(tmp_path):
    files, after = {}, {}
    for name, make in splits().items():
        net = make()
        net.train([(X, Y)] * 2)
        mp.save(tmp_path / name, net)
        files[name] = content(tmp_path / name)
        net.train([(X, Y)] * 2)
        after[name] = state(net.layers)
    assert "optimizer/0.0/W/1" in files["whole"]
    assert_all_same(files.values())
    for saved, (name, make) in product(["whole", "zero 3"], splits().items()):
        net = make()
        net.train([(X, X)])  # it has another past, of which nothing must be left
        mp.load(tmp_path / saved, net)
        net.train([(X, Y)] * 2)
        assert_same(state(net.layers), after[saved], f"{name} after loading {saved}")


def test_what_shards_remember_goes_through_a_file_without_a_change(tmp_path):
    """Their bits are others than those of one device; so a file of one goes through shards, and back."""
    def shards(T, optimizer):
        return mp.Hybrid(network(), LOSS, 1, T, 2, 6, with_updates(build("1f1b", 2, 6)), optimizer=optimizer)

    first, second = tmp_path / "first", tmp_path / "second"
    one = splits()["whole"]()
    one.train([(X, Y)] * 2)
    mp.save(first, one)
    for T in (2, 3):
        net = shards(T, mp.Adam(0.02))
        mp.load(first, net)
        mp.save(second, net)
        assert_same(content(second), content(first))
        net.train([(X, Y)] * 2)
        mp.save(second, net)
        other = shards(T, mp.Adam(0.03))
        mp.load(second, other)
        for model in (net, other):
            model.train([(X, Y)] * 2)
        assert_same(state(net.layers), state(other.layers))
