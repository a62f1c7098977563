"""Ctrl-C at any line of a step: it was made as a whole, or not at all, and training goes on from there."""

import copy
import sys
from functools import partial
from itertools import count
from pathlib import Path

import numpy as np
import pytest
from compared import assert_same, difference, parameters

import minipipe as mp

LOSS = mp.MeanSquaredError()
LAYERS = [
    mp.Linear(3, 4, tie="W"), mp.BatchNorm(4), mp.ReLU(), mp.Residual(mp.Linear(4, 4), mp.Tanh()),
    mp.Dropout(0.25), mp.Linear(4, 3), mp.Linear(3, 4, tie="W"), mp.Linear(4, 2),
]
NETWORKS = {
    "Sequential": lambda: mp.Sequential(LAYERS, LOSS),
    "Pipeline": lambda: mp.Pipeline(LAYERS, LOSS, 2, 2),
    "copies": lambda: mp.DataParallel(LAYERS, LOSS, 2, sync_batch_norm=True),
    "shards": lambda: mp.TensorParallel(LAYERS, LOSS, 2),
    "all at once": lambda: mp.Hybrid(LAYERS, LOSS, 2, 2, 2, 2),
}
rng = np.random.default_rng(0)
BATCHES = [(rng.standard_normal((3, 8)), rng.standard_normal((2, 8))) for _ in range(3)]
PACKAGE = str(Path(mp.__file__).parent)


def state_of(net, optimizer):
    """All that a step changes."""
    norm, counters = net.layers[1], (optimizer.n_updates, optimizer.last_rate, net.n_steps)
    return parameters(net.layers), norm.running_mean, norm.running_var, optimizer.memory, counters


def interrupted(work, line):
    """Call `work`, with a KeyboardInterrupt before line number `line`; tell whether there was one."""
    passed = 0

    def look(frame, event, _):
        nonlocal passed
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        passed += event == "line"
        if passed > line:
            sys.settrace(None)
            raise KeyboardInterrupt
        return look

    sys.settrace(look)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False


def trained(name):
    """(a network after one step of Adam and a second mini-batch, its optimizer)"""
    net, optimizer = NETWORKS[name](), mp.Adam(0.5)
    for n, batch in enumerate(BATCHES[:2]):
        net.forward_backward(*batch)
        if n == 0:
            net.step(optimizer, clip=0.5)
    return net, optimizer


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("every", [67, pytest.param(7, marks=pytest.mark.slow)])
def test_a_step_is_made_as_a_whole_or_not_at_all(name, every):
    start = trained(name)
    before, (net, optimizer) = state_of(*start), copy.deepcopy(start)
    net.step(optimizer, clip=0.5)
    after = state_of(net, optimizer)
    net.forward_backward(*BATCHES[2])
    then = net.gradients
    for line in count(0, every):
        net, optimizer = copy.deepcopy(start)
        if not interrupted(partial(net.step, optimizer, clip=0.5), line):
            break
        found = state_of(net, optimizer)
        is_made = difference(found, before) is not None
        assert_same(found, after if is_made else before, f"the state after an interrupt at line {line}")
        if not is_made:
            net.step(optimizer, clip=0.5)
            assert_same(state_of(net, optimizer), after, "the state after another try")
        net.forward_backward(*BATCHES[2])
        assert_same(net.gradients, then, "the gradients of the next mini-batch")
    assert line > 500


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
