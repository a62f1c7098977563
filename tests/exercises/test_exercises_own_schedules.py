"""Solutions of the exercises in notebook 21, and what their checkers say to typical wrong answers."""

import json
from pathlib import Path

import pytest
from notebooks.checkers import are_named, are_not_solved_yet, are_refused, are_right, of_each
from notebooks.template import solutions

import minipipe as mp
from exercises.own_schedules import BROKEN, COSTS, check_beats_1f1b, check_best_with_three, check_repaired
from minipipe.schedules import (
    Schedule, best_schedule, build, gpipe, naive, one_f_one_b, peak_microbatches, with_recompute,
)

CHECKERS = [check_repaired, check_beats_1f1b, check_best_with_three]


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


# ---------------------------------------------------------------- solutions

notebook = solutions("21")
SAME_MEMORY = notebook.mine_in_the_same_memory
THREE_ALIVE = notebook.mine_with_three_alive

SOLUTIONS = [
    (check_repaired, lines((2, "F0 B0 F1 B1 F2 B2"))),
    (check_repaired, notebook.repaired),
    (check_repaired, "\n".join(lines((1, "F0 F1 B0 B1 F2 B2")))),
    (check_beats_1f1b, SAME_MEMORY),
    (check_beats_1f1b, halved(one_f_one_b(3, 4))),
    (check_beats_1f1b, SAME_MEMORY.replace("I3 W3\nF0 F1", "B3\nF0 F1")),
    (check_beats_1f1b, best_schedule(3, 4, COSTS, [3, 2, 1], halves=True).schedule),
    (check_best_with_three, THREE_ALIVE),
    (check_best_with_three, THREE_ALIVE.strip().lower().splitlines()),
    (check_best_with_three, build("zb-h1", 3, 4)),
]
test_solutions = are_right(SOLUTIONS)


def test_of_the_two_repairs_one_is_faster():
    assert check_repaired(lines((2,
                                 "F0 B0 F1 B1 F2 B2"))).endswith("takes 21 ticks. Another one "
                                                                 "makes it 3 ticks faster.")
    assert check_repaired(lines((1, "F0 F1 B0 B1 F2 B2"))).endswith("takes 18 ticks. No other is faster.")


# ---------------------------------------------------------------- half solved

STUBS = ["", "\n\n\n", [], ["", "", ""], Schedule(((), (), ()), 3, 4)]
test_stubs = are_not_solved_yet([(check, stub) for check in CHECKERS for stub in STUBS])


@pytest.mark.parametrize("broken", [BROKEN, lines(), Schedule.from_text(BROKEN)])
def test_the_broken_schedule_is_not_solved_yet(broken):
    assert check_repaired(broken) == "Not solved yet: that is the broken schedule, unchanged."


def test_the_notebook_has_the_broken_schedule():
    path = Path(__file__).parents[2] / "notebooks" / "21_design_your_own_schedule.ipynb"
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    assert any(BROKEN in "".join(cell["source"]) for cell in cells)


# ---------------------------------------------------------------- typical wrong answers

REPAIRED = [
    (one_f_one_b(3, 3),
     "It runs, in 15 ticks, but you changed 2 devices: one exchange on one device is enough."),
    (lines((1, "F0 F1 F2 B0 B1 B2")),
     "It runs, in 15 ticks, but more than two neighbours have changed places"),
    (lines((1, "B0 F0 F1 B1 F2 B2")), "It cannot run: device 1: 1B0 comes before its forward 1F0."),
    (lines((0, "F0 F1 B0 F2 B1 B2")), "It cannot run: deadlock: "),
    (lines((2, "F0 F1 B0 B1 F2")), "It cannot run: device 2 never does 2B2 (missing)"),
    (one_f_one_b(2, 3), "Devices (lines) in your schedule: 2; asked were 3."),
    (one_f_one_b(3, 4), "Your micro-batches are 0, 1, 2, 3; asked were 3: 0, 1 and 2."),
]

FOR_BOTH = [
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
    (7, "Write text with one line for each device"),
]

BEATS_1F1B = [
    *FOR_BOTH,
    (THREE_ALIVE, "Micro-batches alive on device 1: 3; allowed are 2."),
    (build("zb-h1", 3, 4), "(14 ticks.)"),
    (SAME_MEMORY.rstrip()[:-5] + "B3",
     "It takes 17 ticks, the best is 16. Device 1 waits for all of 2B3, but needs only its half I: "
     "split it."),
]

BEST_WITH_THREE = [
    *FOR_BOTH,
    (SAME_MEMORY, "It takes 16 ticks, the best is 14. 2W0 is on the critical path"),
    (SAME_MEMORY, "before work that another device waits for: can it be done later?"),
    ("F1 F0 F2 I0 W0 F3 I1 W1 I2 W2 I3 W3\nF1 F0 I0 F2 I1 W0 F3 I2 W1 I3 W2 W3\nF0 I0 F1 I1 "
     "F2 I2 W0 F3 I3 W1 W2 W3",
     "It takes 15 ticks, the best is 14. The longest wait: device 2 idle from 0 to 3: fill, waiting "
     "for 1F0 from device 1."),
    (best_schedule(3, 4, COSTS, 2, halves=True).schedule, "It takes 17 ticks, the best is 14."),
    (THREE_ALIVE.replace("F2 I2 W0 F3 I3", "F2 I2 F3 W0 I3"),
     "Micro-batches alive on device 2: 4; allowed are 3."),
]
test_mistakes = are_named(of_each(CHECKERS, (REPAIRED, BEATS_1F1B, BEST_WITH_THREE)))
test_junk = are_refused(CHECKERS, [[["F0"]], "F0&B0"])


def test_overlapping_actions_are_refused():
    """Two at once are shorter than any schedule in which a device does one thing at a time."""
    *others, (first, *middle, last) = one_f_one_b(3, 4).devices
    pairs = [mp.Overlap(forward, backward) for backward, forward in zip(middle[::2], middle[1::2])]
    schedule = Schedule((*others, (first, *pairs, last)), 3, 4)
    assert schedule.faults() == []
    sentence = check_best_with_three(schedule)
    assert sentence == "There is 2F1&2B0 in it: asked were F, B, I and W, one at a time."


@pytest.mark.parametrize("check, solution, limits, best", [
    (check_beats_1f1b, SAME_MEMORY, [3, 2, 1], 16), (check_best_with_three, THREE_ALIVE, [3, 3, 3], 14),
])
def test_of_all_schedules_one_exchange_away_exactly_the_good_ones_are_right(check, solution, limits, best):
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
