"""Solutions of the exercises in notebook 39, and what their checkers say to typical wrong answers."""

from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

import minipipe as mp
from exercises.three_dimensions import check_rank, check_step
from minipipe.schedules import build, in_copies, with_all_reduce

CHECKERS = [check_rank, check_step]
RANK, STEP = solutions("39").rank, solutions("39").step

test_solutions = are_right([
    (check_rank, RANK), (check_rank, lambda t, d, k, T, D: (k * D + d) * T + t), (check_step, STEP),
])
test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda t, d, k, T, D: d + D * (t + T * k), "That is dp-tp-pp"),
        (lambda t, d, k, T, D: t + T * d + D * k, "how many devices has one stage"),
        (lambda t, d, k, T, D: t + T * (d + k), "T D devices apart"),
        (lambda t: t, "stopped with TypeError"),
    ],
    [
        (lambda P, M, F, B, sums: (M + P - 1) * (F + B) + sums[0], "That is device 0's"),
        (lambda P, M, F, B, sums: (M + P - 1) * (F + B) + sum(sums), "do not wait for each other"),
        (lambda P, M, F, B, sums: M * (F + B) + max(0, *(s - r * B for r, s in enumerate([*sums, 0]))),
         "You have forgotten the bubble"),
    ],
]))


def test_the_numbers_are_those_of_the_package_and_the_ticks_those_of_a_run():
    layers = [mp.Linear(4, 4) for _ in range(4)]
    net = mp.Hybrid(layers, mp.MeanSquaredError(), 3, 2, 4, 3)
    for d in range(3):
        for k in range(4):
            assert [RANK(t, d, k, 2, 3) for t in range(2)] in net.groups["tp"]
    assert [RANK(1, d, 2, 2, 3) for d in range(3)] in net.groups["dp"]
    order = with_all_reduce(in_copies(build("1f1b", 3, 4), 2))
    for sums in ([0, 0, 8], [3, 1, 2], [1, 3, 5]):
        trace = mp.simulate(order, mp.Costs(F=2, B=3, A=sums))
        assert trace.makespan == STEP(3, 4, 2, 3, sums)
