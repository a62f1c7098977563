"""What notebook 11 says to tests that are not written as its solutions are, and what its versions do."""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, edits, judge_of

from exercises.broken_versions import EDITS, course, passes, small, trained, version, versions
from exercises.folds import fold
from exercises.judging import module_of, part_named

HEALTHY, SLOPE = judge_of("healthy"), judge_of("slope_fits")

IN_ORDER = """
def gradients_of(stages):
    return [array for stage in stages for layer in stage.layers if layer in stage.gradients
            for array in stage.gradients[layer]]


def healthy(my):
    for m in (5, 9):
        J, stages, _ = my.run(*small(my, m), 1, 1, my.gpipe)
        for K, M in ((2, 2), (3, 4)):
            J_too, other, _ = my.run(*small(my, m), K, M, my.one_f_one_b)
            left, right = gradients_of(stages), gradients_of(other)
            if J != J_too or len(left) != len(right) or any((a != b).any() for a, b in zip(left, right)):
                return False
    return True
"""

IN_FLOATS = """
import numpy as np
from exercises.broken_versions import small as network


def healthy(my):
    layers, X, Y = network(my, 7, float)
    J, [whole], _ = my.run(layers, X, Y, K=1, M=1, schedule=my.gpipe)
    J_too, stages, _ = my.run(layers, X, Y, K=3, M=3, schedule=my.gpipe)
    parts = {layer: pair for stage in stages for layer, pair in stage.gradients.items()}
    return bool(np.isclose(J, J_too)) and all(
        np.allclose(dW, parts[layer][0]) and np.allclose(db, parts[layer][1])
        for layer, (dW, db) in whole.gradients.items())
"""

RANDOM_DIRECTION = """
def slope_fits(my):
    layers, X, Y = small(my, 5, float)
    rng, h = np.random.default_rng(1), 1e-5
    stage = my.run(layers, X, Y, 1, 1, my.gpipe)[1][0]
    moves = {layer: (rng.standard_normal(dW.shape), rng.standard_normal(db.shape))
             for layer, (dW, db) in stage.gradients.items()}
    promised = sum((V * dW).sum() + (v * db).sum() for (V, v), (dW, db) in
                   zip(moves.values(), stage.gradients.values()))
    costs = []
    for sign in (1, -1):
        for layer, (V, v) in moves.items():
            layer.W, layer.b = layer.W + sign * h * V, layer.b + sign * h * v
        costs.append(my.run(layers, X, Y, 1, 1, my.gpipe)[0])
        for layer, (V, v) in moves.items():
            layer.W, layer.b = layer.W - sign * h * V, layer.b - sign * h * v
    return np.isclose((costs[0] - costs[1]) / (2 * h), promised, rtol=1e-6)
"""

BY_STEPS = """
def slope_fits(my):
    layers, X, Y = small(my, 7, float)
    h = 1e-4
    _, stages, _ = my.run(layers, X, Y, 1, 1, my.gpipe)
    slopes = [slope for pair in stages[0].gradients.values() for slope in pair]
    promise = 2 * h * sum((slope ** 2).sum() for slope in slopes)
    my.step(stages, h)
    down, _, _ = my.run(layers, X, Y, 1, 1, my.gpipe)
    my.step(stages, -2 * h)
    up, _, _ = my.run(layers, X, Y, 1, 1, my.gpipe)
    return abs(up - down - promise) < 1e-3 * promise
"""

ONE_ENTRY = """
def slope_fits(my):
    layers, X, Y = small(my, 7, float)
    _, [stage], _ = my.run(layers, X, Y, 1, 1, my.gpipe)
    for layer, (dW, db) in stage.gradients.items():
        for array, slopes in ((layer.W, dW), (layer.b, db)):
            for place in np.ndindex(array.shape):
                there = array[place]
                array[place] = there + 1e-6
                up = my.run(layers, X, Y, 1, 1, my.gpipe)[0]
                array[place] = there - 1e-6
                down = my.run(layers, X, Y, 1, 1, my.gpipe)[0]
                array[place] = there
                if abs((up - down) / 2e-6 - slopes[place]) > 1e-6:
                    return False
    return True
"""


test_solutions = are_right({SLOPE: [RANDOM_DIRECTION, ONE_ENTRY, BY_STEPS]})
# each test that is judged runs on all versions of the pipeline, in fractions
test_solutions_in_fractions = pytest.mark.slow(are_right({HEALTHY: [IN_ORDER, IN_FLOATS]}))

PAIRS, COMPARED = "((2, 2), (3, 4))", "for array in stage.gradients[layer]"
WITHOUT_ROUNDING = IN_FLOATS.replace("np.isclose(J, J_too)", "J == J_too")
IN_ONE_STAGE = IN_ORDER.replace(PAIRS, "((1, 2), (1, 4))")
test_mistakes_in_fractions = pytest.mark.slow(are_named({
    HEALTHY: [
        *edits(
            IN_ORDER,
            (PAIRS, "((2, 1), (3, 1))", "with M = 1 nothing is cut"),
            (PAIRS, "((1, 2), (1, 4))", "lets D, E and I pass"),
            (" or len(left) != len(right) or any((a != b).any() for a, b in zip(left, right))", "",
             "compares J alone"),
            (COMPARED, f"{COMPARED}[:1]", "lets G pass"),
            ("return False\n    return True", "return 0\n    return None",
             "yours gives None, it must be True"),
            ("return True", "return 'healthy'", "yours is a str, it must be True"),
            ("healthy(my):", "healthy(my):\n    return True\n", "Whether your test runs"),
            ("my.run(*small(my, m), 1, 1", "my.run(small(my, m), 1, 1", "TypeError: run() missing"),
            ("return True", "return len(m)", ": healthy(my) of the pipeline without a mistake.)"),
        ),
        *edits(WITHOUT_ROUNDING, ("allclose", "array_equal", "floats")),
        ("def healthy(my):\n    '''Return True.'''\n", "Not solved yet"),
    ],
}))

IS_NEAR = "abs(up - down - promise) < 1e-3 * promise"
WITHOUT_DB = RANDOM_DIRECTION.replace("sign * h * v\n        costs", "0\n        costs")
test_mistakes = are_named({
    SLOPE: [
        *edits(WITHOUT_DB, ("- sign * h * v\n", "\n", "one of them leaves out b")),
        *edits(
            RANDOM_DIRECTION,
            (" + (v * db).sum()", "", "one of them leaves out b"),
            ("/ (2 * h)", "/ h", "twice what it should be"),
            ("return np", "return None and np", "None"),
        ),
        ("def slope_fits(my):\n    ...\n", "Not solved yet"),
    ],
})


def test_a_mistake_of_a_version_turns_one_of_the_two_tests_red():
    parts = [part_named(name) for name in ("healthy", "slope_fits")]
    healthy, slope_fits = (getattr(module_of(part, part.solution), part.name) for part in parts)
    for test in (healthy, slope_fits):
        assert passes(test, version())
    assert [letter for letter in EDITS if passes(healthy, version(letter))] == [*"FK"]
    assert [letter for letter in EDITS if not passes(slope_fits, version(letter))] == [*"FGHJK"]


@pytest.mark.slow  # thirteen trainings
def test_the_answers_say_how_the_versions_train():
    right, trainings = trained(version()), {letter: trained(my) for letter, my in versions().items()}
    falling = [letter for letter, training in trainings.items() if training.falls]
    assert fold(11, "Answer 11a").startswith(f"**{len(falling)}.** A and F explode")
    assert trainings["I"].error == "KeyError"
    assert all(not np.isfinite(trainings[letter].costs[-1]) for letter in "AF")
    assert trainings["K"].costs == [2 * J for J in right.costs]
    better = [letter for letter, training in trainings.items() if training.digits > right.digits]
    assert fold(11, "Answer 11b").startswith(f"**Yes.** {' and '.join(better)} read more.")
    assert trainings["B"] == trainings["L"] == right and trainings["K"].digits == right.digits


def test_a_version_is_one_edit_of_the_course():
    for letter, (title, edits_of_it, _) in EDITS.items():
        assert all(course()[title].count(old) == 1 for old, _ in edits_of_it), letter


def test_the_small_network_has_live_derivatives():
    my = version()
    for m in range(2, 13):
        _, [stage], _ = my.run(*small(my, m, float), 1, 1, my.gpipe)
        assert all((dW != 0).mean() > 0.8 and np.all(db) for dW, db in stage.gradients.values()), m


@pytest.mark.slow
def test_the_small_network_shows_each_mistake():
    code = part_named("healthy").solution
    for m, M in [(3, 2), (4, 3), (5, 2), (7, 2), (8, 3), (9, 2), (10, 3), (11, 2)]:
        own = code.replace("small(my, 7)", f"small(my, {m})").replace("3, 4, my", f"2, {M}, my")
        assert HEALTHY(own).startswith("Right: "), m


def test_the_small_network_is_the_same_each_time_and_has_no_kink():
    layers, X, Y = small(version(), 7, float)
    assert X.shape == (3, 7) and Y.shape == (2, 7) and len(layers) == 5
    assert np.array_equal(X, small(version(), 7, float)[1])
    A, signs = X, []
    for layer in layers:
        A = layer.forward(A)
        if layer.__class__.__name__ == "Linear":
            signs.append((A > 0).mean())
            assert np.abs(A).min() > 1e-3
    assert all(0 < share < 1 for share in signs)
