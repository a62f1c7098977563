"""Exercises about schedules, slow links and stale weights, in notebooks 23, 24 and 27 to 30: other solutions
than the notebooks', and what the checkers say to typical wrong answers.
"""

from fractions import Fraction
from math import pi, sin

import numpy as np
from notebooks.checkers import are_named, are_right

import minipipe as mp
from exercises import slow_links, zoo
from exercises.asynchronous import (
    check_largest_rate, check_next_weights, check_version_used, check_versions_kept,
)
from exercises.slow_links import check_blocking, check_hidden
from exercises.zoo import check_choose, check_which, check_zb_h1, measured
from minipipe.schedules import eager_one_f_one_b


def fits(runs, limit):
    return {name: run for name, run in runs.items() if run[1] <= limit}


def fastest(runs, limit):
    return min(fits(runs, limit), key=runs.get)


def fastest_of_the_last(runs, limit):
    """Of equally fast ones, another one."""
    return min(reversed(list(fits(runs, limit))), key=lambda name: runs[name][0])


def free_gpipe(K, M, F, B):
    return (M + K - 1) * (F + B)


def rule(late_0, late_1, moved=1, sign=1):
    """next_weights with the gradient at weights that are so many updates late, subtracted from those `moved`
    from the end.
    """
    def next_weights(history, gradient, learning_rate):
        w0 = history[max(0, len(history) - 1 - late_0)][0]
        w1 = history[max(0, len(history) - 1 - late_1)][1]
        return tuple(w - sign * learning_rate * g for w, g in zip(history[-moved], gradient(w0, w1)))
    return next_weights


def kept(pipedream, vertical, two):
    return lambda schedule, K, r: {"pipedream": pipedream, "pipedream-vertical": vertical,
                                   "pipedream-2bw": two}[schedule](K, r)


def limit(d):
    return 2 * sin(pi / (4 * d + 2))


test_solutions = are_right({
    check_zb_h1: [lambda K, M, F, I, W: Fraction((M + K - 1) * (F + I + W) - 2 * (K - 1) * W)],
    check_choose: [fastest, fastest_of_the_last],
    check_which: [" V_Half "],
    check_hidden: [lambda K, F, B: Fraction((2 * K - 1) * (F + B) - K * (F + B), 2 * (K - 1))],
    check_blocking: [lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * (M + K - 2) * c],
    check_version_used: [lambda K, s, i: np.int64(i - min(i, K - 1 - s))],
    check_next_weights: [
        rule(1, 0),
        lambda h, g, eta: np.array(h[-1]) - eta * np.array(g(h[max(0, len(h) - 2)][0], h[-1][1])),
    ],
    check_largest_rate: [lambda K, s, h: limit(K - s - 1) / h],
})
test_mistakes = are_named({
    check_zb_h1: [
        (lambda K, M, F, I, W: 3 * M + K - 1, "right for F = I = W = 1 only"),
        (lambda K, M, F, I, W: (M + K - 1) * (F + I + W), "That is 1F1B's"),
        (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * (F + I), "Subtract what fills the gap"),
        (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * F, "That is ZB-H2's"),
        (lambda K, M, F, I, W: M * (F + I + W) + (K - 1) * (F + I - 2 * W), "subtracts W twice"),
        (lambda K, M, F, I, W: M * (F + I + W) + K * (F + I - W), "One gap too many"),
        (lambda K, M, F, I, W: (K - 1) * (F + I - W), "the idle time of one device"),
        (lambda K, M, F, I, W: K * (K - 1) * (F + I - W), "the idle time of all devices"),
        (lambda K, M, F, I, W: M * (F + I + W), "the work of one device"),
    ],
    check_choose: [
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
        (lambda runs, limit: runs[fastest(runs, limit)], "one of the keys of runs: (96, 1) is none"),
        (lambda runs, limit: "two-way", "one of the keys of runs: 'two-way' is none"),
        (lambda runs, limit: runs, "Return the name of a schedule"),
    ],
    check_which: [
        ("zb-v", "zb-v takes 74.5 ticks with at most 6 micro-batches alive, the log says 77.5 and 4."),
        ("dualpipe-v", "dualpipe-v takes 77 ticks with at most 6.5 micro-batches alive"),
        ("half", "There is no schedule 'half': choose one of naive, gpipe,"),
        ("pipedream", "There is no schedule 'pipedream'"),
        (77.5, "Give a name, such as 'gpipe': 77.5 is none."),
    ],
    check_hidden: [
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
    ],
    check_blocking: [
        (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * (K - 1) * c, "sends that do not block"),
        (lambda K, M, F, B, c: free_gpipe(K, M, F, B), "with free links"),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B + 2 * c), "One send too many each way"),
        (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + (M + K - 2) * c, "one way only"),
        (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + (M + K - 1) * c, "one way only"),
        (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * M * c, "pass K - 2 more"),
        (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * (M - 1) * c, "pass K - 1 more"),
        (lambda K, M, F, B, c: free_gpipe(K, M, F, B) + 2 * M * (K - 1) * c, "one after the other"),
    ],
    check_version_used: [
        (lambda K, s, i: i - (K - 1 - s), "a version below 0 does not exist"),
        (lambda K, s, i: max(0, i - (K - 1)), "That is vertical sync"),
        (lambda K, s, i: i, "Only the last stage has made so many"),
        (lambda K, s, i: max(0, i - (K - s)), "One too few"),
        (lambda K, s, i: max(0, i - s), "Turned round: the first stage is the stalest"),
        (lambda K, s, i: min(i, K - 1 - s), "That is the staleness; asked was the version, micro-batch"),
        (lambda K, s, i: K - 1 - s, "That is the staleness once the pipeline is full"),
        (lambda K, s, i: K - s, "how many versions the stage keeps"),
        (lambda K, s, i: max(0, i - 1), "that is 2BW's rule"),
        (lambda K, s, i: max(0, i - (3 - s)), "Right for some numbers, but not for all. With K = 6"),
    ],
    check_next_weights: [
        (rule(0, 0), "That is the synchronous rule"),
        (rule(1, 1), "That is vertical sync"),
        (rule(0, 1), "Turned round: stage 0 is the late one"),
        (rule(2, 1), "One update too late on both stages"),
        (rule(2, 0), "two updates late"),
        (lambda h, g, eta: (rule(1, 0, moved=2)(h, g, eta)[0], rule(1, 0)(h, g, eta)[1]), "the old w_0"),
        (rule(1, 0, sign=-1), "The wrong sign"),
        (lambda h, g, eta: rule(1, 0)(h, g, 1), "The learning rate is missing"),
        (lambda h, g, eta: g(h[-2][0], h[-1][1]), "That is the gradient; asked were the next weights"),
        (lambda h, g, eta: (1.0, None), "yours are (1.0, nan)."),
        (lambda h, g, eta: (0, 0), "After 2 updates the next weights are (-33.0, -20.0), yours are (0.0,"),
        (lambda h, g, eta: rule(1, 0)(h, g, eta) if len(h) > 2 else rule(0, 0)(h, g, eta),
         "That is the synchronous rule"),
        (lambda h, g, eta: rule(1, 0)(h, g, eta) if len(h) > 1 else h[0], "not for the first update"),
    ],
    check_versions_kept: [
        (lambda schedule, K, r: K - r, "Right for pipedream, but vertical sync keeps K"),
        (kept(lambda K, r: K - r, lambda K, r: K - r, lambda K, r: 2),
         "Right for pipedream and 2bw, but vertical sync"),
        (kept(lambda K, r: K, lambda K, r: K, lambda K, r: 2), "in pipedream a later stage needs fewer"),
        (kept(lambda K, r: K - 1 - r, lambda K, r: K - 1, lambda K, r: 1), "Those are the older versions"),
        (lambda schedule, K, r: r + 1, "Turned round, and only pipedream"),
        (kept(lambda K, r: r + 1, lambda K, r: K, lambda K, r: 2), "In pipedream it is turned round"),
        (lambda schedule, K, r: 2, "That is 2bw's number"),
    ],
    check_largest_rate: [
        (lambda K, s, h: 2 / h, "without delay"),
        (lambda K, s, h: limit(K - 1 - s), "divide it by h"),
        (lambda K, s, h: limit(K - 1 - s) * h, "You multiplied by h"),
        (lambda K, s, h: limit(K - s) / h, "The last stage is not late"),
        (lambda K, s, h: limit(s) / h, "The other way round"),
        (lambda K, s, h: limit(K - 1) / h, "That is stage 0"),
        (lambda K, s, h: 2 / (K - s) / h, "does not fall like"),
    ],
})


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


def test_the_right_makespans_are_counted_not_computed(monkeypatch):
    """With another simulator behind it, a checker believes another number."""
    run = type("Run", (), {"makespan": 7})
    for module, check in [(zoo, check_zb_h1), (slow_links, check_blocking)]:
        monkeypatch.setattr(module, "simulate", lambda *a: run)
        assert check(lambda *a: 7).startswith("Right: ")
