"""What the checker of notebook 00 says to typical answers."""

from notebooks.checkers import are_named, are_not_solved_yet, are_right, of_each
from notebooks.template import solutions

from exercises.start import GIVEN, check_first_schedule
from minipipe.schedules import gpipe, naive, one_f_one_b

CHECKERS = [check_first_schedule]
mine = solutions("00").my_schedule

test_solutions = are_right([(check_first_schedule, answer) for answer in (
    mine, "F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2", one_f_one_b(2, 3), gpipe(2, 3),
)])
test_stubs = are_not_solved_yet([(check_first_schedule, stub) for stub in (GIVEN, "", naive(2, 3))])
test_mistakes = are_named(of_each(CHECKERS, [[
    ("F0 F1 B0 B1 F2 B2\nF0 B0 F1 B1 F2 B2", "It takes 15 ticks, and 12 are possible"),
    ("F0 B0 F1 B1 F2 B2\nF0 F1 B0 B1 F2 B2", "It cannot run: deadlock"),
    ("F0 F1 B0 B1\nF0 B0 F1 B1", "asked were 3: 0, 1 and 2"),
    ("F0 F1 B0 B1 F2 B2", "Devices (lines) in your schedule: 1"),
    (3, "Write text with one line for each device"),
]]))
