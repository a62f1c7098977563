"""The hundred lines that are read first give the gradients, the ticks and the timeline of the whole package.

Each check takes the module `tiny`, so that `tests/test_my_pipeline.py` can hand it the one of a learner.
"""

import ast
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from compared import assert_all_same, assert_same

import minipipe as mp
from minipipe import tiny
from minipipe.exact import rational
from minipipe.order import peak_microbatches
from minipipe.plots import text
from minipipe.schedules import build

SOURCE = Path(tiny.__file__).read_text(encoding="utf-8")
SCHEDULES = {"gpipe": "gpipe", "one_f_one_b": "1f1b"}  # function of tiny: name in the package
SIZES = [3, 4, 5, 2, 4, 2]                         # 5 Linear with ReLU between, 9 layers
SETTINGS = [(K, M) for K in (1, 2, 4, 9) for M in (1, 3, 8)]  # 3 does not divide 8: ragged


def halves(rng, shape):
    """-1 to 1. With these layers and m = 8, all results are multiples of 2^-16 below 2^24: no rounding."""
    return rng.integers(-2, 3, shape) / 2


def normal(rng, shape):
    return rng.standard_normal(shape)


def fractions(rng, shape):
    return rational(np.round(8 * rng.standard_normal(shape)) / 8)


def networks(tiny, numbers, m):
    """The same layers, once of `tiny` and once of the package, and a mini-batch."""
    rng = np.random.default_rng(m)
    small, layers = [], []
    for n_prev, n in pairwise(SIZES):
        linear = tiny.Linear(n_prev, n, rng)
        linear.W, linear.b = numbers(rng, (n, n_prev)), numbers(rng, (n, 1))
        small += [linear, tiny.ReLU()]
        layers += [mp.Linear(n_prev, n, W=linear.W, b=linear.b), mp.ReLU()]
    return small[:-1], layers[:-1], numbers(rng, (SIZES[0], m)), numbers(rng, (SIZES[-1], m))


def gradients_of(stages):
    """dW, db, dW, db, ... in the order of the layers."""
    pairs = [stage.gradients[layer] for stage in stages for layer in stage.layers if layer in stage.gradients]
    return [part for pair in pairs for part in pair]


def of_package(model, X, Y):
    J = model.forward_backward(X, Y)
    return [J, *(part for pair in model.gradients for part in pair if part is not None)]


def ticks(trace):
    spans = trace.spans
    return [(device, label.kind, label.microbatch, start, end) for device, label, start, end, _ in spans]


def check_equals_the_package(tiny, numbers, m, settings):
    """J, every dW and db and every tick == those of the pipeline; J, dW and db == those of the full batch."""
    small, layers, X, Y = networks(tiny, numbers, m)
    full = of_package(mp.Sequential(layers, mp.MeanSquaredError()), X, Y)
    assert all((np.asarray(part) != 0).any() for part in full)
    machine = dict(costs=mp.Costs(F=1, B=2))
    for K, M in settings:
        for order, schedule in SCHEDULES.items():
            pipe = mp.Pipeline(layers, mp.MeanSquaredError(), K, M, schedule=schedule, **machine)
            reference = of_package(pipe, X, Y)
            J, stages, actions = tiny.run(small, X, Y, K, M, getattr(tiny, order))
            result = [J, *gradients_of(stages)]
            assert_all_same([reference, full], result)
            assert actions == ticks(pipe.trace)
            assert [stage.most_stashed for stage in stages] == peak_microbatches(pipe.trace)
            assert not any(stage.stash for stage in stages)


def check_where_floats_need_no_rounding(tiny):
    check_equals_the_package(tiny, halves, 8, SETTINGS)


def check_in_rational_numbers(tiny):
    """Whatever the numbers and m are."""
    check_equals_the_package(tiny, fractions, 7, [(1, 1), (2, 3), (3, 7), (4, 5)])


def check_any_floats_give_the_bits_of_a_plain_loop(tiny):
    """One micro-batch after another through all layers, in the order of the backwards: the same sums.

    The package adds these terms along a tree instead, so its last bits may differ.
    """
    small, _, X, Y = networks(tiny, normal, 11)
    for K, M in [(1, 4), (3, 4), (4, 3), (5, 11)]:
        X_parts, Y_parts = np.array_split(X, M, axis=1), np.array_split(Y, M, axis=1)
        for order in SCHEDULES:
            J, stages, _ = tiny.run(small, X, Y, K, M, getattr(tiny, order))
            loop, J_of = tiny.Stage(small), {}
            for i in [i for kind, i in getattr(tiny, order)(0, K, M) if kind == "B"]:
                J_of[i], dA = tiny.cost(loop.forward(i, X_parts[i]), Y_parts[i], m=11)
                loop.backward(i, dA)
            assert_same([J, *gradients_of(stages)], [sum(J_of[i] for i in range(M)), *gradients_of([loop])])


def check_ticks_and_timeline_are_those_of_a_simulation(tiny):
    """More than 10 devices and micro-batches, too, where the names are longer."""
    layers, X = [tiny.ReLU()], np.ones((1, 12))
    for K in (1, 2, 5):
        for M in (1, 2, 3, 7, 12):
            check_one_simulation(tiny, layers, X, K, M)
    check_one_simulation(tiny, layers, X, 12, 3)


def check_one_simulation(tiny, layers, X, K, M):
    for order, schedule in SCHEDULES.items():
        trace = mp.simulate(build(schedule, K, M), mp.Costs(F=1, B=2))
        _, _, actions = tiny.run(layers, X, X, K, M, getattr(tiny, order))
        assert actions == ticks(trace), (K, M, schedule)
        timeline = tiny.timeline(actions, K, M)
        assert timeline == text(trace, width=10_000)  # in one block
        lines = trace.to_text().split("\n")
        if len(lines) == K + 1:
            assert timeline.split("\n") == lines


CHECKS = {
    "no rounding": check_where_floats_need_no_rounding,
    "rational": check_in_rational_numbers,
    "plain loop": check_any_floats_give_the_bits_of_a_plain_loop,
    "ticks": check_ticks_and_timeline_are_those_of_a_simulation,
}


@pytest.mark.parametrize("name", CHECKS)
def test_tiny(name):
    CHECKS[name](tiny)


def test_tiny_imports_nothing_from_the_package():
    imports = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, (ast.Import, ast.ImportFrom))]
    assert [ast.unparse(node) for node in imports] == ["import numpy as np"]


def test_tiny_stays_short():
    lines = SOURCE.splitlines()
    assert len(lines) <= 130 and max(map(len, lines)) <= 110


def test_tiny_prints_its_timelines(capsys):
    """Both timelines are the package's, and J, 4 times dW and 4 times db are equal to the full batch's."""
    exec(SOURCE, {"__name__": "__main__"})
    parts = capsys.readouterr().out.strip().split("\n\n")
    assert len(parts) == 2 * 3
    stashes = {"gpipe": [6, 6, 6, 6], "1f1b": [4, 3, 2, 1]}
    for (order, schedule), (title, timeline, facts) in zip(SCHEDULES.items(), [parts[:3], parts[3:]]):
        assert title == getattr(tiny, order).__doc__
        trace = mp.simulate(build(schedule, 4, 6), mp.Costs(F=1, B=2))
        assert timeline == trace.to_text()
        makespan, *devices = facts.split("\n")
        bubble = f"{trace.bubble('total'):.2%}"
        assert makespan == f"makespan {trace.makespan} ticks, bubble {bubble}; J == full batch's: True"
        for device, n in enumerate(stashes[schedule]):
            assert devices[device] == f"device {device} stashes up to {n}; dW, db == full batch's: True True"
        assert len(devices) == 4
