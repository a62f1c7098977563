"""Exercises about schedules, slow links and stale weights, in notebooks 23 to 30: other solutions than the
notebooks', and what the checkers say to typical wrong answers.
"""

from fractions import Fraction

import numpy as np
import pytest
from notebooks.checkers import are_named, are_not_solved_yet, are_right
from notebooks.template import NOTEBOOKS, cells_of, solutions, source
from pitfalls.bugs import BUGS

import minipipe as mp
from exercises import broken, zoo
from exercises.asynchronous import check_next_weights
from exercises.own_schedules import BROKEN, COSTS, check_beats_1f1b, check_best_with_three, check_repaired
from exercises.zoo import check_choose, check_which, measured
from minipipe.arrays import leaves
from minipipe.order import Schedule, best_schedule, peak_microbatches, with_recompute
from minipipe.schedules import build, eager_one_f_one_b, gpipe, naive, one_f_one_b

SAME_MEMORY, THREE_ALIVE = solutions("25").mine_in_the_same_memory, solutions("25").mine_with_three_alive


def halved(schedule):
    """Each B as an I with its W right behind."""
    return "\n".join(
        " ".join(f"I{i} W{i}" if kind == "B" else f"{kind}{i}" for kind, _, i in order)
        for order in schedule.devices
    )


def lines(*changed):
    """The lines of `BROKEN`, with those given in their place: pairs (device, line)."""
    found = BROKEN.strip().splitlines()
    for device, line in changed:
        found[device] = line
    return found


def by_hand(pipe, X, Y):
    net = mp.Sequential(pipe.layers, pipe.loss)
    J = net.forward_backward(X, Y)
    same_cost = pipe.forward_backward(X, Y) == J
    pairs = zip(leaves(net.gradients), leaves(pipe.gradients), strict=True)
    return bool(same_cost and all((one == other).all() for one, other in pairs if one is not None))


def up_to_a_factor(one, other):
    quotients = {float(a / b) for a, b in zip(one.flat, other.flat) if b != 0}
    return len(quotients) <= 1


def gradients_up_to_a_factor(pipe, X, Y):
    net = mp.Sequential(pipe.layers, pipe.loss)
    net.forward_backward(X, Y)
    pipe.forward_backward(X, Y)
    return all(up_to_a_factor(*pair) for pair in zip(leaves(net.gradients), leaves(pipe.gradients))
               if pair[0] is not None)


def fits(runs, limit):
    return {name: run for name, run in runs.items() if run[1] <= limit}


def fastest(runs, limit):
    return min(fits(runs, limit), key=runs.get)


def fastest_of_the_last(runs, limit):
    """Of equally fast ones, another one."""
    return min(reversed(list(fits(runs, limit))), key=lambda name: runs[name][0])


def rule(late_0, late_1, moved=1, sign=1):
    """next_weights with the gradient at weights that are so many updates late, subtracted from those `moved`
    from the end.
    """
    def next_weights(history, gradient, learning_rate):
        w0 = history[max(0, len(history) - 1 - late_0)][0]
        w1 = history[max(0, len(history) - 1 - late_1)][1]
        return tuple(w - sign * learning_rate * g for w, g in zip(history[-moved], gradient(w0, w1)))
    return next_weights


test_solutions = are_right({
    check_repaired: [lines((2, "F0 B0 F1 B1 F2 B2")), "\n".join(lines((1, "F0 F1 B0 B1 F2 B2")))],
    check_beats_1f1b: [
        halved(one_f_one_b(3, 4)),
        SAME_MEMORY.replace("I3 W3\nF0 F1", "B3\nF0 F1"),
        best_schedule(3, 4, COSTS, [3, 2, 1], halves=True).schedule,
    ],
    check_best_with_three: [THREE_ALIVE.strip().lower().splitlines(), build("zb-h1", 3, 4)],
    broken.check_healthy: [by_hand],
    check_choose: [fastest, fastest_of_the_last],
    check_which: [" V_Half "],
    check_next_weights: [
        rule(1, 0),
        lambda h, g, eta: np.array(h[-1]) - eta * np.array(g(h[max(0, len(h) - 2)][0], h[-1][1])),
    ],
})
NOTHING = ["", "\n\n\n", [], ["", "", ""], Schedule(((), (), ()), 3, 4)]
test_stubs = are_not_solved_yet({
    check_repaired: [*NOTHING, BROKEN, lines(), Schedule.from_text(BROKEN)],
    check_beats_1f1b: NOTHING,
    check_best_with_three: NOTHING,
})



def overlapping():
    """Two at once are shorter than any schedule in which a device does one thing at a time."""
    *others, (first, *middle, last) = one_f_one_b(3, 4).devices
    pairs = [mp.order.Overlap(forward, backward) for backward, forward in zip(middle[::2], middle[1::2])]
    return Schedule((*others, (first, *pairs, last)), 3, 4)


OF_THREE_DEVICES = [
    (one_f_one_b(3, 4),
     "It takes 18 ticks, as 1F1B does, and with whole backwards none is shorter in this memory: split"),
    (naive(3, 4), "It takes 36 ticks, the best is 1"),
    (naive(3, 4), "All backwards are whole. Begin with 1F1B, which takes 18, then split"),
    (gpipe(3, 4),
     "Micro-batches alive on device 0: 4; allowed are 3. Put a B, or a W, before one of its "
     "forwards. (18 ticks.)"),
    (halved(naive(3, 4)), "0W0 is on the critical path"),
    (halved(naive(3, 4)).replace("I0 W0", "B0"),
     "Device 1 waits for all of 2B0, but needs only its half I: split it."),
    (with_recompute(one_f_one_b(3, 4)), "There is 0R0 in it: asked were F, B, I and W, one at a time."),
    (overlapping(), "There is 2F1&2B0 in it: asked were F, B, I and W, one at a time."),
    (SAME_MEMORY.strip().replace("\n", " U3\n") + " U3", "There is 0U3 in it"),
    (SAME_MEMORY.replace("W1 I2", "I2", 1), "It cannot run: device 0 never does 0W1 (missing)"),
    (SAME_MEMORY.replace("I0 W0 F3", "W0 I0 F3"),
     "It cannot run: device 0: 0W0 comes before 0I0, the other half, which it needs."),
    (SAME_MEMORY.replace("W3", "W3 B3", 1),
     "It cannot run: device 0 does 0B3 and also its half 0I3 (duplicated): use B, or I and W."),
    (SAME_MEMORY.replace("F0 F1 F2 I0 W0 F3", "F0 I0 W0 F1 F2 F3", 1), "It cannot run: deadlock"),
    (SAME_MEMORY.replace("3", "4"), "Your micro-batches are 0, 1, 2, 4; asked were 4: 0, 1, 2 and 3."),
    ("\n".join(f"{2 - r}{' '.join(['F0'])}" for r in range(3)), "Your micro-batches are 0; asked were 4"),
    ("\n".join(" ".join(map(str, order)) for order in one_f_one_b(3, 4).devices[::-1]),
     "Stage 0 belongs on device 0 and stage 1 on device 1: write the lines in the order of the stages."),
    ("F0 F1 F2 F3&B0", "Devices (lines) in your schedule: 1; asked were 3."),
    ("backwards first", "That cannot be read: device 0: 'backwards' is not an action"),
    ("F0&B0", "Devices (lines) in your schedule: 1"),
    (7, "Write text with one line for each device"),
]
test_mistakes = are_named({
    check_repaired: [
        (one_f_one_b(3, 3),
         "It runs, in 15 ticks, but you changed 2 devices: one exchange on one device is enough."),
        (lines((1, "F0 F1 F2 B0 B1 B2")),
         "It runs, in 15 ticks, but more than two neighbours have changed places"),
        (lines((1, "B0 F0 F1 B1 F2 B2")), "It cannot run: device 1: 1B0 comes before its forward 1F0."),
        (lines((0, "F0 F1 B0 F2 B1 B2")), "It cannot run: deadlock: "),
        (lines((2, "F0 F1 B0 B1 F2")), "It cannot run: device 2 never does 2B2 (missing)"),
        (one_f_one_b(2, 3), "Devices (lines) in your schedule: 2; asked were 3."),
        (one_f_one_b(3, 4), "Your micro-batches are 0, 1, 2, 3; asked were 3: 0, 1 and 2."),
    ],
    check_beats_1f1b: [
        *OF_THREE_DEVICES,
        (THREE_ALIVE, "Micro-batches alive on device 1: 3; allowed are 2."),
        (build("zb-h1", 3, 4), "(14 ticks.)"),
        (SAME_MEMORY.rstrip()[:-5] + "B3",
         "It takes 17 ticks, the best is 16. Device 1 waits for all of 2B3, but needs only its half I: "
         "split it."),
    ],
    check_best_with_three: [
        *OF_THREE_DEVICES,
        (SAME_MEMORY, "It takes 16 ticks, the best is 14. 2W0 is on the critical path"),
        (SAME_MEMORY, "before work that another device waits for: can it be done later?"),
        ("F1 F0 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3\nF1 F0 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\nF0 I0 F1 I1 "
         "F2 I2 W0 F3 I3 W1 W2 W3",
         "It takes 15 ticks, the best is 14. The longest wait: device 2 idle from 0 to 3: fill, waiting "
         "for 1F0 from device 1."),
        (best_schedule(3, 4, COSTS, 2, halves=True).schedule, "It takes 17 ticks, the best is 14."),
        (THREE_ALIVE.replace("F2 I2 W0 F3 I3", "F2 I2 F3 W0 I3"),
         "Micro-batches alive on device 2: 4; allowed are 3."),
    ],
    broken.check_healthy: [
        (lambda pipe, X, Y: True, "It lets a pipeline pass whose gradients are M times too large"),
        (gradients_up_to_a_factor, "It lets a pipeline pass whose gradients are M times too large"),
        (lambda pipe, X, Y: False, "It calls a healthy pipeline broken"),
        (lambda pipe, X, Y: pipe.forward_backward(X, Y), "Return True or False: this is a Rational"),
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
})


def test_of_the_two_repairs_one_is_faster():
    slower = check_repaired(lines((2, "F0 B0 F1 B1 F2 B2")))
    faster = check_repaired(lines((1, "F0 F1 B0 B1 F2 B2")))
    assert slower.endswith("takes 21 ticks. Another one makes it 3 ticks faster.")
    assert faster.endswith("takes 18 ticks. No other is faster.")


def test_the_notebook_has_the_broken_schedule():
    path, = (path for path in NOTEBOOKS if path.name.startswith("25"))
    assert any(BROKEN in source(cell) for cell in cells_of(path))


@pytest.mark.parametrize("check, solution, limits, best", [
    (check_beats_1f1b, SAME_MEMORY, [3, 2, 1], 16),
    pytest.param(check_best_with_three, THREE_ALIVE, [3, 3, 3], 14, marks=pytest.mark.slow),
])
def test_one_exchange_away_the_good_schedules_are_right(check, solution, limits, best):
    orders, n_right = Schedule.from_text(solution).devices, 0
    for device, order in enumerate(orders):
        for place in range(len(order) - 1):
            changed = [*order[:place], order[place + 1], order[place], *order[place + 2:]]
            schedule = Schedule((*orders[:device], tuple(changed), *orders[device + 1:]), 3, 4)
            good = False
            if not schedule.faults():
                trace = mp.simulate(schedule, COSTS)
                good = trace.makespan == best and all(map(int.__le__, peak_microbatches(trace), limits))
            assert check(schedule).startswith("Right: ") == good
            n_right += good
    assert n_right > 0


def test_each_case_is_a_bug_with_a_letter_of_its_own():
    assert list(broken.CASES) == list(range(1, 13)) and set(broken.CASES.values()) <= set(BUGS)
    assert len(set(broken.letters(*broken.CASES))) == 12
    assert broken.letters(1, 5) == ["P", "E"]


def test_a_bug_is_in_for_a_block_and_its_check_turns_red_there():
    images = np.ones((2, 4))
    net = mp.Pipeline([mp.Linear(2, 2)], mp.MeanSquaredError(), 1, 2)
    right = net.forward_backward(images, images)
    with broken.case(1):
        assert net.forward_backward(images, images) == 2 * right
    assert net.forward_backward(images, images) == right
    assert "test_turns_red[dtype_promotion]: red with the bug, green without" in broken.proof(5)


def test_copies_agree_with_a_bug_in_all_of_them():
    net = mp.DataParallel([mp.Linear(2, 2)], mp.MeanSquaredError(), 2)
    net.forward_backward(np.ones((2, 4)), np.ones((2, 4)))
    assert broken.agree(net)


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

    for K in (2, 3, 5):
        for F, B in [(1, 2), (3, 1)]:
            half = Fraction(F + B, 2)
            assert more_ticks(K, F, B, half) == 0 and more_ticks(K, F, B, half + Fraction(1, 100)) > 0
