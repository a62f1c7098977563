"""What notebooks 11 and 12 say to tests that are not written as their solutions are, to schedules, wrong, too
long and the best, and to ways to write `needs`; and what the versions of 11 do.
"""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, edits, judge_of

import minipipe as mp
from exercises.broken_versions import EDITS, course, passes, small, trained, version, versions
from exercises.challenge import (
    FINAL, IN_TWO, TICKS, alive, best, check_final, check_in_two, halved, one_f_one_b, read, spelled,
    trace_of,
)
from exercises.folds import fold, solution
from exercises.judging import module_of, part_named

HEALTHY, SLOPE, NEEDS = judge_of("healthy"), judge_of("slope_fits"), judge_of("needs with halves")

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

WITH_A_TABLE = """
def needs(device, kind, i, K):
    last = device == K - 1
    waits = {"W": (device, "I", i), "F": (device - 1, "F", i)}
    waits |= {"B": (device + 1, "B", i), "I": (device + 1, "I", i)}
    if kind == "F" and device == 0:
        return None
    if last and kind in "BI":
        return device, "F", i
    return waits[kind]
"""

test_solutions = are_right({SLOPE: [RANDOM_DIRECTION, ONE_ENTRY, BY_STEPS], NEEDS: [WITH_A_TABLE]})
# each test that is judged runs on all versions of the pipeline, in fractions
test_solutions_in_fractions = pytest.mark.slow(are_right({HEALTHY: [IN_ORDER, IN_FLOATS]}))

PAIRS, COMPARED = "((2, 2), (3, 4))", "for array in stage.gradients[layer]"
WITHOUT_ROUNDING = IN_FLOATS.replace("np.isclose(J, J_too)", "J == J_too")
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
    NEEDS: edits(
        WITH_A_TABLE,
        ('"I": (device + 1, "I", i)', '"I": (device + 1, "B", i)', "Your I waits for a whole B"),
        ('"I": (device + 1, "I", i)', '"I": (device + 1, "W", i)', "Your I waits for the W"),
        ('"B": (device + 1, "B", i)', '"B": (device + 1, "I", i)', "Your B waits for an I"),
        ('return device, "F", i', 'return device, "B", i', "it must be"),
        ('"W": (device, "I", i), ', "", "stopped with KeyError"),
        ("return waits[kind]", "return list(waits[kind])", "yours is list, it must be tuple"),
        ("    return waits[kind]\n", "", "yours gives None"),
    ),
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


def test_the_solutions_are_the_best_that_exist(capsys):
    for name, check, (K, M, room) in (("in_two", check_in_two, IN_TWO), ("final", check_final, FINAL)):
        names = {}
        exec(solution(12, name), names)
        assert read(check(names[name])) == read(names[name])
        found = best(K, M, room)
        assert found.proved and f"Right: {name} takes {found.makespan} ticks" in capsys.readouterr().out
        assert max(alive(names[name])) == room
    assert best(*IN_TWO).makespan == 17 and best(*FINAL).makespan == 31


def test_a_function_or_lines_are_schedules_too(capsys):
    names = {}
    exec(solution(12, "final"), names)
    orders = read(names["final"])
    assert check_final(lambda device, K, M: orders[device]) == spelled(orders)
    assert check_final(names["final"].strip().splitlines()) == spelled(orders)
    assert check_final(mp.Schedule.from_text(names["final"])) == spelled(orders)
    assert capsys.readouterr().out.count("Right: final takes 31 ticks") == 3


GOOD = ["F0 F1 I0 W0 I1 F2 W1 F3 I2 W2 I3 W3", "F0 F1 I0 W0 I1 W1 F2 F3 I2 W2 I3 W3",
        "F0 I0 F1 I1 W0 W1 F2 I2 F3 I3 W2 W3"]


def changed(line, old, new):
    """The best schedule in room for two, with `new` in the place of `old` in one line."""
    assert GOOD[line].count(old) == 1
    return "\n".join([*GOOD[:line], GOOD[line].replace(old, new), *GOOD[line + 1:]])


@pytest.mark.parametrize("answer, words", [
    ("\n...\n...\n...\n", "Not solved yet"), (None, "Not solved yet"), ("", "Not solved yet"),
    (lambda device, K, M: None, "Not solved yet"),
    (lambda device, K, M: 7, 'a list of pairs such as ("F", 0)'),
    (lambda device, K, M: 1 / 0, "ZeroDivisionError"),
    (17, "Write text"), (changed(0, "F3", "F4"), "has F4 in its line, but the last micro-batch is 3"),
    (changed(1, "I3 W3", "I3"), "in_two: Device 1 never does W3"),
    (changed(1, "I3 W3", "I3 W3 W3"), "in_two: Device 1 does W3 2 times"),
    (changed(2, "F0 I0", "I0 F0"), "Device 2 does I0 before F0"), (changed(0, "W0 I1", "I1 Q0"), "has 'Q0'"),
    (changed(0, "F0 F1", "F0, F1"), "has 'F0,' in its line. Write F, I or W"),
    (changed(0, "W0 I1", "I1"), "never does W0"), (changed(1, "I2 W2", "W2 I2"), "does W2 before I2"),
    ("\n".join(GOOD[:2]), "Lines in it: 2. Write 3"), (changed(1, "F0 F1 I0", "F1 I0 F0"), "before"),
    (one_f_one_b(3, 4), "Device 0 does B0 in one piece"),
    (halved(one_f_one_b(3, 4)), "Device 0 keeps 3 micro-batches from F2 on, and has room for 2"),
    (changed(0, "F0 F1 I0 W0", "F0 I0 W0 F1"),
     "Nobody can go on, a deadlock: device 0 is at I0, which waits for I0 of device 1; device 1 is at F1, "
     "which waits for F1 of device 0; device 2 is at F1, which waits for F1 of device 1."),
], ids=lambda value: None if callable(value) else str(value)[:20])
def test_a_schedule_that_cannot_run_is_told_why(answer, words, capsys):
    assert check_in_two(answer) == halved(one_f_one_b(3, 4))
    sentence, until = capsys.readouterr().out.splitlines()
    assert words in sentence and until == "(Until it can run, this notebook goes on with 1F1B.)"


@pytest.mark.parametrize("answer, words", [
    ("F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3\n" * 3, "in_two: 28 ticks: 11 more than the best, 17. "),
    ("F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3\n" * 3, "It has room for 2, and keeps 1 at most."),
    (changed(2, "F0 I0 F1 I1 W0 W1", "F0 I0 F1 W0 I1 W1"), "18 ticks: 1 more than the best, 17. One action"),
    ("F0 F1 I0 W0 I1 W1 F2 F3 I2 W2 I3 W3\n" * 3, "No single action in another place helps now"),
])
def test_a_schedule_that_is_too_long_is_told_where_to_look(answer, words, capsys):
    assert read(check_in_two(answer)) == read(answer)
    assert words in capsys.readouterr().out


def test_a_moved_action_saves_what_the_sentence_says(capsys):
    text = changed(2, "F0 I0 F1 I1 W0 W1", "F0 I0 F1 W0 I1 W1")
    assert trace_of(text).makespan - trace_of("\n".join(GOOD)).makespan == 1
    check_in_two(text)
    assert capsys.readouterr().out.endswith("moved to another place, saves 1.\n")


BELOW = """
F0 F1 F2 I0 W0 F3 I1 W1 F4 I2 W2 F5 I3 W3 F6 I4 W4 F7 I5 W5 I6 W6 I7 W7
F0 F1 F2 I0 W0 I1 W1 F3 I2 W2 F4 I3 F5 W3 I4 F6 W4 I5 F7 W5 I6 W6 I7 W7
F0 F1 F2 I0 W0 I1 W1 I2 W2 F3 I3 F4 W3 F5 I4 W4 I5 F6 W5 F7 I6 W6 I7 W7
F0 I0 F1 I1 F2 I2 W0 W1 W2 F3 I3 W3 F4 I4 W4 F5 I5 W5 F6 I6 W6 F7 I7 W7
"""


def test_less_than_1f1b_is_said_though_it_is_not_the_best(capsys):
    check_final(BELOW)
    said = capsys.readouterr().out
    assert trace_of(BELOW).makespan == 32 and said.startswith("final: 32 ticks, below the 33 of 1F1B!")
    assert "The best takes 31. " in said


def test_the_learners_clock_times_halves_as_the_package_does():
    part = part_named("needs with halves")
    clock = module_of(part, part.solution).clock
    for text in (one_f_one_b(3, 4), halved(one_f_one_b(3, 4)), "\n".join(GOOD), halved(one_f_one_b(5, 7))):
        assert clock(read(text), TICKS)[-1][-1] == trace_of(text).makespan


def test_one_f_one_b_in_halves_is_the_best_in_its_memory():
    for K, M in ((2, 3), (3, 4), (4, 8)):
        room = tuple(min(K - device, M) for device in range(K))
        found, text = best(K, M, room), halved(one_f_one_b(K, M))
        assert alive(text) == list(room) == alive(one_f_one_b(K, M))
        counted = trace_of(text).makespan
        if K < 4:
            assert found.proved and found.makespan == counted
        assert counted == M * (1 + 2) + (K - 1) * (1 + 1)
        assert np.all(best(K, M, room, halves=False).makespan == (M + K - 1) * (1 + 2))
