"""What notebook 11 says to tests that are not written as its solutions are, and what its versions do."""

import numpy as np
import pytest

from exercises.broken_versions import EDITS, course, passes, small, trained, version, versions
from exercises.folds import fold
from exercises.judging import judged, module_of, part_named

HEALTHY, SLOPE = part_named("healthy"), part_named("slope_fits")

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

FITS = "abs(up - down - promise) < 1e-3"

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


@pytest.mark.parametrize("part, code", [
    pytest.param(HEALTHY, IN_ORDER, marks=SLOW), pytest.param(HEALTHY, IN_FLOATS, marks=SLOW), (SLOPE, RANDOM_DIRECTION), (SLOPE, ONE_ENTRY),
    (SLOPE, BY_STEPS),
], ids=["in order", "in floats", "a random direction", "each entry", "by steps"])
def test_other_right_tests_are_accepted(part, code):
    assert judged(part, code) == f"Right: {part.right}"


LIMITS, PAIRS = "(5, 9)", "((2, 2), (3, 4))"


@pytest.mark.slow  # each runs all versions of the pipeline
@pytest.mark.parametrize("code, words", [
    (IN_ORDER.replace(PAIRS, "((2, 1), (3, 1))"), "with M = 1 nothing is cut"),
    (IN_ORDER.replace(LIMITS, "(6, 12)").replace(PAIRS, "((2, 2), (3, 3))"), "Take an m that M does"),
    (IN_ORDER.replace(PAIRS, "((1, 2), (1, 4))"), "lets D, E and I pass"),
    (IN_ORDER.replace(PAIRS, "((1, 2), (1, 4))").replace("one_f_one_b", "gpipe"), "lets I pass"),
    (IN_ORDER.replace(" or len(left) != len(right) or any((a != b).any() for a, b in zip(left, right))", ""),
     "compares J alone"),
    (IN_ORDER.replace("for array in stage.gradients[layer]", "for array in stage.gradients[layer][:1]"),
     "lets G pass"),
    (IN_ORDER.replace(LIMITS, "(3, 6)").replace(PAIRS, "((3, 3),)"), "lets B and L pass"),
    (IN_ORDER.replace(LIMITS, "(3, 5)"), "Some of your micro-batches are empty"),
    (IN_ORDER.replace("J != J_too", "J == J_too"), "Is the comparison of J the wrong way round?"),
    (IN_ORDER.replace("(a != b).any()", "(a == b).all()"), "the comparison of dW and db the wrong way"),
    (IN_FLOATS.replace("my.run(layers, X, Y, K=3", "my.run(*network(my, 7, float), K=3"),
     "asks for the gradients of a Linear"),
    (IN_FLOATS.replace("(dW, db) in whole.gradients.items()", "dW, db in [(layer, *whole.gradients[layer]) "
                       "for layer in layers]"), "asks for the gradients of a ReLU"),
    (IN_ORDER.replace("for array in stage.gradients[layer]", "for array in stage.gradients[layer][1:]"),
     "compare dW, too"),
    (IN_FLOATS.replace("np.isclose(J, J_too)", "J == J_too").replace("allclose", "array_equal"), "floats"),
    (IN_ORDER.replace("return False", "return 0").replace("return True", "return None"),
     "yours gives None, it must be True"),
    (IN_ORDER.replace("return False", "pass"), "lets all versions pass"),
    (IN_ORDER.replace("return True", "return 'healthy'"), "yours is a str, it must be True"),
    (IN_ORDER.replace("healthy(my):", "healthy(my):\n    return True\n"), "Whether your test runs"),
    (IN_ORDER.replace("return False", "return 3").replace("return True", "return False").replace("3", "True"),
     "the wrong way round"),
    (IN_ORDER.replace("my.run(*small(my, m), 1, 1", "my.run(small(my, m), 1, 1"), "TypeError: run() missing"),
    (IN_ORDER.replace("return True", "return len(m)"), ": healthy(my) of the pipeline without a mistake.)"),
    (IN_ORDER.replace("gradients_of(other)", "gradients_of(other[:1])"), "Did you compare all stages?"),
    ("def healthy(my):\n    '''Return True.'''\n", "Not solved yet"),
])
def test_a_wrong_healthy_is_told_why(code, words):
    assert words in judged(HEALTHY, code)


@pytest.mark.parametrize("code, words", [
    (RANDOM_DIRECTION.replace("sign * h * v\n        costs", "0\n        costs").replace(
        "- sign * h * v\n", "\n"), "one of them leaves out b"),
    (RANDOM_DIRECTION.replace(" + (v * db).sum()", ""), "one of them leaves out b"),
    (RANDOM_DIRECTION.replace("/ (2 * h)", "/ h"), "twice what it should be"),
    (RANDOM_DIRECTION.replace("for sign in (1, -1)", "for sign in (1, 0)"), "two costs are one h apart"),
    (RANDOM_DIRECTION.replace("costs[0] - costs[1]", "costs[1] - costs[0]"), "the wrong sign"),
    (RANDOM_DIRECTION.replace("rtol=1e-6", "rtol=10"), "forgives too much"),
    (RANDOM_DIRECTION.replace("rtol=1e-6", "rtol=0, atol=0"), "calls every pipeline ill"),
    (RANDOM_DIRECTION.replace("return np", "return None and np"), "None"),
    (RANDOM_DIRECTION.replace("rtol=1e-6", "rtol=0.3"), "1.1 times the cost passes"),
    (BY_STEPS.replace("7, float", "7"), "Your network is in fractions"),
    (RANDOM_DIRECTION.replace("h = np.random.default_rng(1), 1e-5", "h = np.random.default_rng(1), 0.3"),
     "your steps are too long"),
    (RANDOM_DIRECTION.replace("h = np.random.default_rng(1), 1e-5", "h = np.random.default_rng(1), 1e-14"),
     "your steps are too short"),
    (BY_STEPS.replace("1e-4", "0.1"), "your steps are too long"),
    (BY_STEPS.replace("1e-4", "1e-14"), "your steps are too short"),
    (BY_STEPS.replace("-2 * h)", "2 * h)"), "on one side of the start"),
    (BY_STEPS.replace("1, 1", "3, 3"), "it has several devices"),
    (BY_STEPS.replace(" ** 2", ""), "You promise the sum of all g"),
    (BY_STEPS.replace("abs(", "(", 1), "A difference has two signs"),
    (BY_STEPS.replace(FITS + " * promise", "up - down == promise"), "Floats are rounded"),
    (BY_STEPS.replace("1e-3 * promise", "1e-3"), "1.1 times the cost passes"),
    (BY_STEPS.replace(FITS + " * promise", "up > down"), "by how much"),
    (BY_STEPS.replace(FITS, "abs(up - down - promise) < 0.7"), "half the cost passes"),
    (BY_STEPS.replace(FITS, "abs(up - down - promise) < 5"), "minus the cost passes"),
    (ONE_ENTRY.replace("return False", "pass"), "forgives too much"),
    ("def slope_fits(my):\n    ...\n", "Not solved yet"),
])
def test_a_wrong_slope_is_told_why(code, words):
    assert words in judged(SLOPE, code)


def test_a_mistake_of_a_version_turns_one_of_the_two_tests_red():
    healthy = module_of(HEALTHY, HEALTHY.solution).healthy
    slope_fits = module_of(SLOPE, SLOPE.solution).slope_fits
    for test in (healthy, slope_fits):
        assert passes(test, version())
    assert [letter for letter in EDITS if passes(healthy, version(letter))] == [*"FK"]
    assert [letter for letter in EDITS if not passes(slope_fits, version(letter))] == [*"FGHJK"]


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


@pytest.mark.parametrize("letter", EDITS)
def test_a_version_is_one_edit_of_the_course(letter):
    title, edits, _ = EDITS[letter]
    assert title in course() and all(course()[title].count(old) == 1 for old, _ in edits)


@pytest.mark.parametrize("m", range(2, 13))
def test_the_small_network_has_live_derivatives_and_shows_each_mistake(m):
    my = version()
    _, [stage], _ = my.run(*small(my, m, float), 1, 1, my.gpipe)
    assert all((dW != 0).mean() > 0.8 and np.all(db) for dW, db in stage.gradients.values())
    M = next((M for M in (2, 3) if M < m and m % M), None)
    if M:
        code = HEALTHY.solution.replace("small(my, 7)", f"small(my, {m})").replace("3, 4, my", f"2, {M}, my")
        assert judged(HEALTHY, code) == f"Right: {HEALTHY.right}"


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
