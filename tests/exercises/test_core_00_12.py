"""What notebooks 00 and 12 say to schedules, wrong, too long and the best; 12 to ways to write `needs`."""

import numpy as np
import pytest
from notebooks.checkers import are_named, are_right, edits, judge_of

import minipipe as mp
from exercises.challenge import (
    FINAL, IN_TWO, TICKS, alive, best, check_final, check_in_two, halved, one_f_one_b, read, spelled,
    trace_of,
)
from exercises.folds import solution
from exercises.judging import module_of, part_named
from exercises.start import NAIVE, check_first_schedule

NEEDS = judge_of("needs with halves")
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

test_solutions = are_right({NEEDS: [WITH_A_TABLE]})
test_mistakes = are_named({
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
def test_what_cannot_run_is_told_why(answer, words, capsys):
    assert check_in_two(answer) == halved(one_f_one_b(3, 4))
    sentence, until = capsys.readouterr().out.splitlines()
    assert words in sentence and until == "(Until it can run, this notebook goes on with 1F1B.)"


@pytest.mark.parametrize("answer, words", [
    ("F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3\n" * 3, "in_two: 28 ticks: 11 more than the best, 17. "),
    ("F0 I0 W0 F1 I1 W1 F2 I2 W2 F3 I3 W3\n" * 3, "It has room for 2, and keeps 1 at most."),
    (changed(2, "F0 I0 F1 I1 W0 W1", "F0 I0 F1 W0 I1 W1"), "18 ticks: 1 more than the best, 17. One action"),
    ("F0 F1 I0 W0 I1 W1 F2 F3 I2 W2 I3 W3\n" * 3, "No single action in another place helps now"),
])
def test_what_is_too_long_is_kept_and_told_where_to_look(answer, words, capsys):
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


TIMES = {
    "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "Right: 12 ticks",
    "F0 F1 F2 B2 B1 B0\nF0 F1 F2 B2 B1 B0": "Right: 12 ticks",
    "\n   F0 F1 B0 F2 B1 B2   \nF0 B0 F1 B1 F2 B2\n": "Right: 12 ticks",
    NAIVE:
        "It takes 18 ticks, and 12 are possible. Device 0 does nothing from tick 1 to 4: it waits for B0 of "
        "device 1. Could that come earlier, or device 0 do something else meanwhile?",
    "F0 F1 B0 B1 F2 B2\nF0 B0 F1 B1 F2 B2":
        "15 ticks, and 12 are possible. Device 1 does nothing from tick 7 to 10: it waits for F2 of device",
    "F0 F1 F2 B2 B1 B0\nF0 B0 F1 B1 F2 B2":
        "16 ticks, and 12 are possible. Device 0 does nothing from tick 3 to 10: it waits for B2 of device",
    "F0 F1 F2 B0 B1 B2\nF2 F1 F0 B0 B1 B2":
        "14 ticks, and 12 are possible. Device 0 does nothing from tick 3 to 8: it waits for B0 of device 1.",
}
DO_NOT_RUN = {
    "...\n...": "Not solved yet", "": "Not solved yet",
    "F0 B0 F1 B1 F2 B2\nF0 F1 B0 B1 F2 B2":
        "It cannot run: nobody can go on, a deadlock: device 0 cannot start B0 before device 1 has done B0, "
        "and device 1 cannot start F1 before device 0 has done F1.",
    "F0 F1 F2 B1 B2\nF0 B0 F1 B1 F2 B2":
        "It cannot run: device 0 never does B0: each device needs F and B of each micro-batch.\n",
    "F0 F1 F2 B0 B1 B2\nF0 B1 F1 B0 F2 B2": "It cannot run: device 1: B1 comes before its forward F1.",
    "F0 F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2": "It cannot run: device 0 does F0 2 times: once is enough.",
    "F0 F1 B0 B1\nF0 B0 F1 B1": "asked were 3: 0, 1 and 2",
    "F0 F1 B0 B1 F2 B2": "Devices (lines) in your schedule: 1",
    "F0 I0 W0\nF0 I0 W0": "'I0' is not an action here: write F or B",
    "F1 F2 F3 B3 B2 B1\nF1 F2 F3 B3 B2 B1": "Micro-batches are counted from 0",
    "F0,F1": "'F0,F1' is not an action here",
}


def test_a_first_schedule_is_told_its_ticks(capsys):
    for answer, words in TIMES.items():
        assert check_first_schedule(answer) == answer
        assert words in capsys.readouterr().out, answer


def test_a_first_schedule_that_cannot_run_is_told_why(capsys):
    no_text = "Write text with one line for each device"
    for answer, words in [*DO_NOT_RUN.items(), (None, no_text), (3, no_text)]:
        assert check_first_schedule(answer) == NAIVE
        said = capsys.readouterr().out
        assert words in said and "the naive order" in said, answer
