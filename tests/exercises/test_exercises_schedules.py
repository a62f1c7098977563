"""Solutions of the exercises in notebooks 07 and 08, and what their checkers say to typical wrong answers."""

from decimal import Decimal
from fractions import Fraction
from itertools import permutations

import numpy as np
from notebooks.checkers import are_named, are_not_solved_yet, are_right, of_each
from notebooks.template import solutions

import minipipe as mp
from exercises.schedules import (
    check_enough_microbatches,
    check_idle_ticks,
    check_own_schedule,
    check_speed_up,
)
from minipipe.schedules import Action, gpipe, naive, one_f_one_b, peak_microbatches, with_recompute

CHECKERS = [check_idle_ticks, check_enough_microbatches, check_speed_up, check_own_schedule]

# ---------------------------------------------------------------- solutions

notebook, less_memory = solutions("07"), solutions("08")
OWN_SCHEDULE = less_memory.my_schedule

SOLUTIONS = [
    (check_idle_ticks, less_memory.idle_ticks_of),
    (check_idle_ticks, lambda K, M, F, B: K * (M + K - 1) * (F + B) - K * M * (F + B)),
    (check_enough_microbatches, notebook.M_needed),
    (check_enough_microbatches, 27.0),
    (check_enough_microbatches, np.int64(27)),
    (check_speed_up, notebook.speed_up),
    (check_speed_up, lambda K, M: Fraction(K * M, M + K - 1)),
    (check_speed_up, lambda K, M: K * (1 - (K - 1) / (M + K - 1))),
    (check_own_schedule, OWN_SCHEDULE),
    (check_own_schedule, OWN_SCHEDULE.split("\n")[1:3]),
    (check_own_schedule, one_f_one_b(2, 3)),
    (check_own_schedule, "0F0 0F1 0B0 0F2 0B1 0B2\n1F0 1B0 1F1 1B1 1F2 1B2"),
    (check_own_schedule, "f1 f0 b1 f2 b0 b2\nf1 b1 f0 b0 f2 b2"),
]
test_solutions = are_right(SOLUTIONS)


# ---------------------------------------------------------------- half solved

test_stubs = are_not_solved_yet([
    (check_own_schedule, stub) for stub in ("\n", "", [], ["", ""], mp.Schedule(((), ()), 2, 3))
])


# ---------------------------------------------------------------- typical wrong answers

IDLE = [
    (lambda K, M, F, B: (K - 1) * (F + B), "counts only one device"),
    (lambda K, M, F, B: K * (K - 1) // 2 * (F + B), "half of it"),
    (lambda K, M, F, B: K * (K - 1) * F, "of the forwards only"),
    (lambda K, M, F, B: K * (K - 1) * B, "of the backwards only"),
    (lambda K, M, F, B: K * (K - 1), "a gap of one forward and one backward lasts F + B ticks"),
    (lambda K, M, F, B: 2 * K * (K - 1), "a forward's gap lasts F ticks, a backward's B"),
    (lambda K, M, F, B: K ** 2 * (F + B), "One gap too many"),
    (lambda K, M, F, B: (M + K - 1) * (F + B), "the makespan of GPipe"),
    (lambda K, M, F, B: K * (M + K - 1) * (F + B), "all ticks of all devices"),
    (lambda K, M, F, B: K * M * (F + B), "Those are the busy ticks"),
    (lambda K, M, F, B: K * (K - 1) * M * (F + B), "the naive schedule's"),
    (lambda K, M, F, B: (K - 1) / (M + K - 1), "That is the share of idle time"),
    (lambda K, M, F, B: (K - 1) / M, "idle / ideal time; asked were ticks"),
    (lambda K, M, F, B: 36,
     "Right for some numbers, but not for all. With K = 3, M = 7, F = 2, B = 5 the count is 42, "
     "yours is 36."),
    (lambda K, M, F, B: K * (K - 1) * 3,
     "Right for some numbers, but not for all. With K = 3, M = 7, F = 2, B = 5"),
    (lambda K, M, F, B: 0, "With K = 4, M = 8, F = 1, B = 2 the count is 36, yours is 0."),
    (lambda K, M, F, B: "36", "not an array of real numbers"),
    (lambda K, M: K, "Your function stopped with TypeError"),
    (36, "Pass the function itself"),
]

ENOUGH = [
    (30, "idle / ideal time, (K-1)/M, at 10 %; asked was idle / total time"),
    (28, "One too many: with M = 28 the devices are idle for 9.68 % of the total time"),
    (26, "One too few: with M = 26 the devices are idle for 10.34 % of the total time, 3/29. "
         "Asked were at most 10 %"),
    (24, "subtracted K - 1 twice"),
    (14, "within each device's own span"),
    (16, "rule of thumb M = 4 K: with M = 16 the devices are idle for 15.79 %"),
    (33, "You added K - 1 where it has to be subtracted"),
    (36, "You took K where the formula has K - 1"),
    (37, "You took K where the formula has K - 1"),
    (8, "Too few: with M = 8 the devices are idle for 27.27 %"),
    (100, "Enough, but not the fewest: with M = 100 the devices are idle for 2.91 %"),
    (10 ** 400, "Enough, but not the fewest"),
    (26.5, "a whole number from 1 upwards: 26.5 is not"),
    (0.1, "a whole number from 1 upwards"),
    (0, "a whole number from 1 upwards: 0 is not"),
    (-27, "a whole number from 1 upwards"),
    (float("inf"), "inf is none"),
    ("27", "'27' is none"),
    (Decimal(27), "Give a number of micro-batches"),
    (lambda K: 27, "Give a number of micro-batches"),
]

SPEED_UP = [
    (lambda K, M: M / (M + K - 1), "K of them work at once, so multiply by K"),
    (lambda K, M: K, "without a bubble"),
    (lambda K, M: (M + K - 1) / (K * M), "Turned round"),
    (lambda K, M: (M + K - 1) / M, "over the time that one device works"),
    (lambda K, M: (K - 1) / (M + K - 1), "That is the bubble"),
    (lambda K, M: K * (1 - (K - 1) / M), "You used idle / ideal time"),
    (lambda K, M: K - (K - 1) / (M + K - 1), "counts only one device"),
    (lambda K, M: K * M / (M + K), "One too many under the line"),
    (lambda K, M: K * M, "the naive makespan in units of F + B"),
    (lambda K, M: M + K - 1, "GPipe's makespan in units of F + B"),
    (lambda K, M: M, "never more than K times as fast"),
    (lambda K, M: 96 / 33, "Right for some numbers, but not for all. With K = 2, M = 5"),
    (lambda K, M: 1, "With K = 4, M = 8 the count is 2.90909, yours is 1."),
    (lambda K, M: K / 0, "Your function stopped with ZeroDivisionError"),
    (96 / 33, "Pass the function itself"),
]

OWN = [
    (gpipe(2, 3), "but 3 micro-batches are alive on device 0"),
    (naive(2, 3), "One device works at a time, as in the naive schedule: 18 ticks instead of 12."),
    ("F0 F1 B0 B1 F2 B2\nF0 F1 B0 B1 F2 B2",
     "It takes 15 ticks, the best is 12. The longest wait: device 0 idle from 2 to 5"),
    (with_recompute(one_f_one_b(2, 3)), "It recomputes, which nobody asked for, and takes 15 ticks"),
    ("F0 F1 B0 B1 F2 B2\nF2 F0 B0 F1 B1 B2", "It cannot run: deadlock: device 0 cannot start 0B0"),
    ("F0 F1 B0 F2 B1\nF0 B0 F1 B1 F2 B2", "It cannot run: device 0 never does 0B2 (missing)"),
    ("F0 F1 B0 F2 B1 B2\nB0 F0 B1 F1 B2 F2",
     "It cannot run: device 1: 1B0 comes before its forward 1F0 (2 more)."),
    ("F0 F1 B0 F2 B1 B2 B2\nF0 B0 F1 B1 F2 B2", "device 0 does 0B2 2 times (duplicated)"),
    ("F1 F2 B1 F3 B2 B3\nF1 B1 F2 B2 F3 B3", "Micro-batches are counted from 0"),
    (one_f_one_b(2, 4), "Your micro-batches are 0, 1, 2, 3; asked were 3"),
    ("F0 B0\nF0 B0", "Your micro-batches are 0; asked were 3"),
    (one_f_one_b(3, 3), "Devices (lines) in your schedule: 3; asked were 2."),
    ("F0 F1 F2 B0 B1 B2", "Devices (lines) in your schedule: 1; asked were 2."),
    ("1F0 1B0 1F1 1B1 1F2 1B2\n0F0 0F1 0B0 0F2 0B1 0B2", "Stage 0 belongs on device 0"),
    ("F0 F1 B0 F2 B1 B2\nF0 B0 F1 B1 F2 B2 3F0", "It cannot run: "),
    ("forward 0, backward 0", "That cannot be read: device 0: 'forward' is not an action"),
    ("F0 F99999999\nF0", "That cannot be read: 0F99999999 is out of reach"),
    (3, "Write text with one line for each device"),
    ([["F0"], ["F0"]], "Write text with one line for each device"),
    (mp.Schedule((), 2, 3), "Devices (lines) in your schedule: 0"),
]
test_mistakes = are_named(of_each(CHECKERS, (IDLE, ENOUGH, SPEED_UP, OWN)))


def test_of_all_orders_of_device_0_exactly_the_good_ones_are_right():
    """Device 1 as in 1F1B, device 0 in each of the 90 orders with every forward before its backward."""
    work = [Action(kind, 0, i) for kind in "FB" for i in range(3)]
    device_1 = one_f_one_b(2, 3).devices[1]
    n_right = 0
    for order in permutations(work):
        if any(order.index(Action("F", 0, i)) > order.index(Action("B", 0, i)) for i in range(3)):
            continue
        schedule = mp.Schedule((order, device_1), 2, 3)
        good = False
        if not schedule.faults():
            trace = mp.simulate(schedule)
            good = trace.makespan == 12 and peak_microbatches(trace)[0] <= 2
        assert check_own_schedule(schedule).startswith("Right: ") == good
        n_right += good
    assert n_right > 0
