"""A pipeline that was written in the notebooks has to pass what the package's own small one passes:

    MY_PIPELINE=notebooks/my_pipeline.py python3 -m pytest tests/test_my_pipeline.py

J, every dW and db are those of the full batch and of `Pipeline`, for many K and M, in fractions and in floats
that need no rounding; every tick and message is the package's. Without MY_PIPELINE it is the solution.
"""

import os
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
from compared import assert_all_same, assert_same
from equivalence.test_tiny import CHECKS, fractions, gradients_of, networks, of_package

import minipipe as mp
from exercises import mine
from exercises.judging import all_parts
from minipipe import tiny
from minipipe.schedules import build

ORDERS = {"naive": "naive", "gpipe": "gpipe", "one_f_one_b": "1f1b"}  # function: name in the package
TICKS = {"F": 1, "B": 2}


def module_with(code, name):
    """A module of that code; `timeline` is lent by the package, which no notebook asks for."""
    module = ModuleType("my_pipeline")
    exec(compile(code, name, "exec"), module.__dict__)
    module.timeline = tiny.timeline
    return module


@pytest.fixture(scope="module")
def my():
    """The file that MY_PIPELINE names, or the course's solution."""
    if "MY_PIPELINE" in os.environ:
        path = Path(os.environ["MY_PIPELINE"])
        return module_with(path.read_text(encoding="utf-8"), str(path))
    return module_with(course(), "the course's solution")


def course(**edits):
    """The code of all parts, as the notebooks solve them; edits: {name of a part: (old, new)}."""
    newest = {part.name: part for part in all_parts() if part.kept}
    codes = {part.name: part.solution for part in all_parts() if part is newest.get(part.name)}
    for name, (old, new) in edits.items():
        assert codes[name].count(old) == 1
        codes[name] = codes[name].replace(old, new)
    return "\n\n".join([mine.HEAD, *codes.values()])


@pytest.mark.parametrize("name", CHECKS)
def test_what_the_small_pipeline_of_the_package_passes(my, name):
    CHECKS[name](my)


@pytest.mark.parametrize("order", ORDERS)
def test_every_tick_and_message_is_the_package_s(my, order):
    """What each device did, what it sent, and what it waited for, with one to eight devices."""
    check_traces(my, order)


def check_traces(my, order="one_f_one_b"):
    for K in range(1, 9):
        for M in range(1, 13):
            actions = my.clock([getattr(my, order)(device, K, M) for device in range(K)], TICKS)
            assert mine.show(actions) == mp.simulate(build(ORDERS[order], K, M), mp.Costs(F=1, B=2)), (K, M)


def test_every_entry_point_takes_lists_of_actions(my):
    """The functions themselves, as the notebooks have them."""
    sizes = dict(devices=4, microbatches=8)
    found = mp.compare(my.gpipe, my.one_f_one_b, "zb-h1", **sizes)
    assert found["gpipe"] == mp.simulate(my.gpipe, **sizes) == mp.simulate("gpipe", **sizes)
    assert found["one_f_one_b"] == mp.simulate("1f1b", **sizes)
    assert mp.check(my.gpipe, **sizes) and mp.check(my.one_f_one_b, **sizes)
    layers = [mp.Linear(2, 2) for _ in range(5)]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 4, 8, schedule=my.one_f_one_b)
    assert pipe.schedule.devices == build("1f1b", 4, 8).devices
    assert mp.verification.same_bits(pipe, np.ones((2, 9)), np.zeros((2, 9)))


def test_recomputing_changes_no_bit_and_keeps_less(my):
    check_recomputing(my)


def check_recomputing(my):
    """In fractions and ragged, in 30 pipelines: the full batch's numbers; a stash holds one array a stage."""
    layers, same_layers, X, Y = networks(my, fractions, 7)
    full = of_package(mp.Sequential(same_layers, mp.MeanSquaredError()), X, Y)
    for K in (1, 2, 4, 9, 5):
        for M in (1, 2, 3):
            for order in ("gpipe", "one_f_one_b"):
                J, stages, _ = my.run(layers, X, Y, K, M, getattr(my, order), recompute=True)
                assert_all_same([full], [J, *gradients_of(stages)])
    stage = my.Stage(layers, recompute=True)
    A = stage.forward(0, X)
    kept = stage.stash[0] if isinstance(stage.stash[0], np.ndarray) else np.concatenate(stage.stash[0])
    assert A.shape == Y.shape and kept.size == X.size


def test_copies_add_up(my):
    if not hasattr(my, "copies"):
        pytest.skip("this file has no `copies` yet, which notebook 10 asks for")
    check_copies(my)


def check_copies(my):
    """In fractions, with 1, 2 and 3 copies, each in a pipeline: J and all sums are the full batch's."""
    layers, same_layers, X, Y = networks(my, fractions, 7)
    full = of_package(mp.Sequential(same_layers, mp.MeanSquaredError()), X, Y)
    for D in (1, 2, 3):
        J, sums = my.copies(layers, X, Y, D, 3, 2, my.one_f_one_b)
        found = [part for layer in layers if layer in sums for part in sums[layer]]
        assert_same([J, *found], full)


def test_halves_of_a_backward_keep_the_package_s_time(my):
    """ZB-H1 and ZB-H2: `needs` knows I and W."""
    if "MY_PIPELINE" in os.environ and "needs with halves" not in mine.blocks():
        pytest.skip("`needs` of this file has no halves yet, which notebook 12 asks for")
    for name in ("zb-h1", "zb-h2"):
        for K, M in ((2, 4), (3, 6), (4, 8)):
            schedule = build(name, K, M)
            orders = [[(action.kind, action.microbatch) for action in order] for order in schedule.devices]
            run = mine.show(my.clock(orders, {"F": 1, "I": 1, "W": 1}))
            assert run == mp.simulate(schedule, mp.Costs(F=1, I=1, W=1))


def check_numbers(my):
    CHECKS["rational"](my)


BUGS = {  # what is wrong: (the check that sees it, the part, old, new)
    "a cost by its own m": (check_numbers, "run", "Y_parts[i], m)", "Y_parts[i], Y_parts[i].shape[1])"),
    "a gradient overwritten": (check_numbers, "Stage", "sum_dW + dW", "dW"),
    "starts before it is there": (check_traces, "clock", "max(free[device], done[need])", "free[device]"),
    "one forward more to warm up": (check_traces, "one_f_one_b", "K - 1 - device", "K - device"),
    "a mean over copies": (check_copies, "copies", "return J, sums", "return J / D, sums"),
}


@pytest.mark.parametrize("bug", BUGS)
def test_turns_red(bug):
    check, name, old, new = BUGS[bug]
    with pytest.raises((AssertionError, KeyError, ValueError, RuntimeError)):
        check(module_with(course(**{name: (old, new)}), "broken"))
