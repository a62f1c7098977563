"""Solutions of the exercises in notebooks 19, 20, 23 and 24, and what their checkers say to typical wrong
answers.
"""

from fractions import Fraction

import numpy as np
from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

import minipipe as mp
from exercises import slow_links, zoo
from exercises.slow_links import check_blocking, check_hidden
from exercises.zoo import check_choose, check_which, check_zb_h1, measured
from minipipe.schedules import eager_one_f_one_b

CHECKERS = [check_zb_h1, check_choose, check_which, check_hidden, check_blocking]

# ---------------------------------------------------------------- solutions

zoo_notebook, second_half, links_notebook, links = map(solutions, ("19", "20", "23", "24"))


def fits(runs, limit):
    return {name: run for name, run in runs.items() if run[1] <= limit}


def fastest(runs, limit):
    return min(fits(runs, limit), key=runs.get)


def fastest_of_the_last(runs, limit):
    """Of equally fast ones, another one."""
    return min(reversed(list(fits(runs, limit))), key=lambda name: runs[name][0])


def free_gpipe(K, M, F, B):
    return (M + K - 1) * (F + B)


SOLUTIONS = [
    (check_zb_h1, zoo_notebook.zb_h1_makespan),
    (check_zb_h1, lambda K, M, F, I, W: Fraction((M + K - 1) * (F + I + W) - 2 * (K - 1) * W)),
    (check_choose, second_half.choose),
    (check_choose, fastest),
    (check_choose, fastest_of_the_last),
    (check_which, second_half.name_of_the_schedule),
    (check_which, " V_Half "),
    (check_hidden, links_notebook.hidden),
    (check_hidden, lambda K, F, B: Fraction((2 * K - 1) * (F + B) - K * (F + B), 2 * (K - 1))),
    (check_blocking, links.blocking_makespan),
    (check_blocking, lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * (M + K - 2) * c),
    (check_blocking, lambda K, M, F, B, c: np.int64((M + K - 1) * (F + B + 2 * c) - 2 * c)),
]
test_solutions = are_right(SOLUTIONS)


def test_the_log_is_of_one_schedule_only():
    assert [name for name, run in measured(6, 24).items() if run == (77.5, 4)] == ["v-half"]
    assert [name for name in zoo.NAMES if check_which(name).startswith("Right")] == ["v-half"]


def test_runs_are_measured_in_a_devices_share():
    runs = measured(4, 8)
    assert runs["interleaved"] == (28.5, 5.5) and runs["1f1b"] == (33, 4) and list(runs) == zoo.NAMES
    assert set(zoo.NAMES) - set(measured(3, 7)) == {"chimera", "dualpipe", "interleaved", "interleaved-zb"}


def test_past_half_a_step_eager_1f1b_no_longer_hides_its_links():
    def more_ticks(K, F, B, c):
        M, n = 4 * K, 2 * K - 1
        few, many = (mp.simulate(eager_one_f_one_b(K, m), mp.Costs(F, B), mp.Link(c)).makespan
                     for m in (M, M + n))
        return many - few - n * (F + B)

    for K in range(2, 7):
        for F, B in [(1, 2), (3, 1), (2, 2)]:
            half = Fraction(F + B, 2)
            assert more_ticks(K, F, B, half) == 0 and more_ticks(K, F, B, half + Fraction(1, 100)) > 0


# ---------------------------------------------------------------- typical wrong answers

H1 = [
    (lambda K, M, F, I, W: 3 * M + K - 1, "right for F = I = W = 1 only"),
    (lambda K, M, F, I, W: (M + K - 1) * (F + I + W), "That is 1F1B's"),
    (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * (F + I), "Subtract what fills the gap"),
    (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * F, "That is ZB-H2's"),
    (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * (F + I - 2 * W), "subtracts W twice"),
    (lambda K, M, F, I, W: M * (F + I + W) + K * (F + I - W), "One gap too many"),
    (lambda K, M, F, I, W: (K - 1) * (F + I - W), "the idle time of one device"),
    (lambda K, M, F, I, W: K * (K - 1) * (F + I - W), "the idle time of all devices"),
    (lambda K, M, F, I, W: M * (F + I + W), "the work of one device"),
    (lambda K, M, F, I, W: 27,
     "Right for some numbers, but not for all. With K = 3, M = 7, F = 3, I = 2, W = 1 the "
     "count is 50, yours is 27."),
    (lambda K, M, F, I, W: 0, "With K = 4, M = 8, F = 1, I = 1, W = 1 the count is 27, yours is 0."),
    (lambda K, M: 27, "Your function stopped with TypeError"),
    (27, "Pass the function itself"),
]

CHOOSE = [
    (lambda runs, limit: min(runs, key=runs.get),
     "the fastest of all: with room for 1, zb-v does not fit, it needs 4."),
    (lambda runs, limit: min(runs, key=lambda name: runs[name][1]),
     "the one with the least memory: with room for 2, naive takes 96 ticks, and another that fits 29.5."),
    (lambda runs, limit: max(fits(runs, limit), key=lambda name: runs[name][1]),
     "With room for 4, 1f1b fits and takes 33 ticks"),
    (lambda runs, limit: min(fits(runs, limit - (limit > 1)), key=runs.get),
     "With room for 2, naive fits and takes 96 ticks, but another one"),
    (lambda runs, limit: fastest(runs, limit + 1),
     "With room for 1, v-min does not fit: it keeps 2 micro-batches alive."),
    (lambda runs, limit: min(name for name in runs if runs[name][1] < limit),
     "Your function stopped with ValueError"),
    (lambda runs, limit: runs[fastest(runs, limit)], "one of the keys of runs: (96, 1) is none"),
    (lambda runs, limit: "two-way", "one of the keys of runs: 'two-way' is none"),
    (lambda runs, limit: runs, "Return the name of a schedule"),
    ("zb-v", "Pass the function itself"),
]

WHICH = [
    ("zb-v", "zb-v takes 74.5 ticks with at most 6 micro-batches alive, the log says 77.5 and 4."),
    ("dualpipe-v", "dualpipe-v takes 77 ticks with at most 6.5 micro-batches alive"),
    ("half", "There is no schedule 'half': choose one of naive, gpipe,"),
    ("pipedream", "There is no schedule 'pipedream'"),
    (77.5, "Give a name, such as 'gpipe': 77.5 is none."),
]

HIDDEN = [
    (lambda K, F, B: F + B, "Twice too long"),
    (lambda K, F, B: (K - 1) * (F + B) / 2, "of all K - 1 hops together"),
    (lambda K, F, B: (K - 1) * (F + B), "of all 2 (K - 1) hops together"),
    (lambda K, F, B: (2 * K - 1) * (F + B) / (2 * (K - 1)), "left out the work of the round trip"),
    (lambda K, F, B: K * (F + B) / (2 * (K - 1)), "2K - 1 micro-batches under way from device 0, not 2K"),
    (lambda K, F, B: 0, "That is plain 1F1B"),
    (lambda K, F, B: F / 2, "for F + B ticks in each step, not for F"),
    (lambda K, F, B: B / 2, "for F + B ticks in each step, not for B"),
    (lambda K, F, B: F, "not by one forward"),
    (lambda K, F, B: B, "not by one backward"),
    (lambda K, F, B: 1.5,
     "Right for some numbers, but not for all. With K = 3, F = 2, B = 4 the count is 3, yours is 1.5."),
    (1.5, "Pass the function itself"),
]

BLOCKING = [
    (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * (K - 1) * c, "sends that do not block"),
    (lambda K, M, F, B, c: free_gpipe(K, M, F, B), "with free links"),
    (lambda K, M, F, B, c: (M + K - 1) * (F + B + 2 * c), "One send too many each way"),
    (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + (M + K - 2) * c, "one way only"),
    (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + (M + K - 1) * c, "one way only"),
    (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * M * c, "pass K - 2 more"),
    (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * (M - 1) * c, "pass K - 1 more"),
    (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * M * (K - 1) * c, "one after the other"),
    (lambda K, M, F, B, c: 53,
     "Right for some numbers, but not for all. With K = 2, M = 3, F = 2, B = 5, c = 3"),
    (lambda K, M: 53, "Your function stopped with TypeError"),
    (53, "Pass the function itself"),
]
test_mistakes = are_named(of_each(CHECKERS, (H1, CHOOSE, WHICH, HIDDEN, BLOCKING)))


def test_the_right_makespans_are_counted_not_computed(monkeypatch):
    """With another simulator behind it, a checker believes another number."""
    run = type("Run", (), {"makespan": 7})
    for module, check in [(zoo, check_zb_h1), (slow_links, check_blocking)]:
        monkeypatch.setattr(module, "simulate", lambda *a: run)
        assert check(lambda *a: 7).startswith("Right: ")
