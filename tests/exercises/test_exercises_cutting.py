"""Solutions of the exercises in notebook 27, and what their checkers say to typical wrong answers."""

import itertools
from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
from notebooks.checkers import are_refused, are_right
from notebooks.template import solutions

from exercises.cutting import POSSIBLE_MISTAKES, SHIFTED, check_makespan, check_possible, check_shifted
from minipipe.partitioning import equal_counts, loads, min_max

CHECKERS = [check_possible, check_makespan, check_shifted]

# ---------------------------------------------------------------- solutions

notebook = solutions("27")
greedy = notebook.possible
pace = notebook.makespan


def every_cut(n_layers, K):
    for ends in itertools.combinations(range(1, n_layers), K - 1):
        yield [end - start for start, end in zip((0, *ends), (*ends, n_layers))]


def tried(costs, K, x):
    return any(max(loads(costs, counts)) <= x for counts in every_cut(len(costs), K))


SOLUTIONS = [
    (check_possible, greedy),
    (check_possible, tried),
    (check_possible, lambda costs, K, x: np.bool_(greedy(costs, K, x))),
    (check_possible, lambda costs, K, x: max(loads(costs, min_max(costs, K))) <= x),
    (check_makespan, pace),
    (check_makespan, lambda F, B, M: Fraction(pace(F, B, M))),
    (check_makespan, lambda F, B, M: np.float32(pace(F, B, M))),
    (check_shifted, notebook.shifted_cut),
    (check_shifted, (7, 1, 1)),
    (check_shifted, np.array([7, 1, 1])),
]
test_solutions = are_right(SOLUTIONS)


def test_one_cut_alone_is_best_for_the_solver_that_shifts():
    assert [counts for counts in every_cut(9, 3) if check_shifted(counts).startswith("Right")] == [[7, 1, 1]]
    assert check_shifted([7, 1, 1]) == (
        "Right: [7, 1, 1]. It believes in stages of [1, 2, 2]; they are [71, 12, 12], and [30, "
        "30, 35] was possible."
    )


def test_learners_functions_cannot_spoil_the_check():
    def greedy_that_empties(costs, K, x):
        answer = greedy(costs, K, x)
        costs.clear()
        return answer

    assert check_possible(greedy_that_empties).startswith("Right: ")


# ---------------------------------------------------------------- stubs and junk


def fails(*arguments):
    raise KeyError("no such thing")


NO_CUTS = [0, 3.5, inf, "", b"x", [], set(), object, int, fails, lambda *a: 10**400, lambda *a: [1, 2],
           [1, 2], [7, 1, 1.0],
           ["7", "1", "1"], [True, 7, 1], [9, 0, 0], [10, -2, 1], [4, 4, 4], {7: 1, 1: 1}, [[7, 1, 1]],
           np.ones((3, 3)),
           [nan, 1, 1], iter([]), range(3)]
test_junk = are_refused(CHECKERS, NO_CUTS)


# ---------------------------------------------------------------- typical wrong answers


def answer_that_is_upside_down(costs, K, x):
    return not greedy(costs, K, x)


def without_a_look_at_single_layers(costs, K, x):
    n_stages, load = 1, 0
    for cost in costs:
        n_stages, load = (n_stages, load + cost) if load + cost <= x else (n_stages + 1, cost)
    return n_stages <= K


def losing_a_layer_at_each_cut(costs, K, x):
    n_stages, load = 1, 0
    for cost in costs:
        n_stages, load = (n_stages, load + cost) if load + cost <= x else (n_stages + 1, 0)
    return n_stages <= K and max(costs) <= x


def counting_cuts(costs, K, x):
    return greedy(costs, K + 1, x)


def below_x(costs, K, x):
    return greedy(costs, K, x - 1)


def exactly_k(costs, K, x):
    return greedy(costs, K, x) and (K == 1 or not greedy(costs, K - 1, x))


def slowest(F, B):
    return max(f + b for f, b in zip(F, B))


WRONG = [
    (check_possible, lambda costs, K, x: max(costs) <= x, "Each layer fits by itself"),
    (check_possible, lambda costs, K, x: sum(costs) / K <= x, "That is the equal share"),
    (check_possible, lambda costs, K, x: max(max(costs), sum(costs) / K) <= x, "Both are needed"),
    (check_possible, below_x, "No stage *above* x"),
    (check_possible, without_a_look_at_single_layers, "A layer that costs more than x"),
    (check_possible, losing_a_layer_at_each_cut, "You lose a layer at each cut"),
    (check_possible, counting_cuts, "One stage too many"),
    (check_possible, lambda costs, K, x: greedy(costs, K - 1, x), "One stage too few"),
    (check_possible, exactly_k, "Fewer than K stages are fine"),
    (check_possible, lambda costs, K, x: max(loads(costs, equal_counts(len(costs), K))) <= x,
     "That asks about one cut only"),
    (check_possible, answer_that_is_upside_down, "The other way round"),
    (check_possible, lambda costs, K, x: True, "It says True to everything."),
    (check_possible, lambda costs, K, x: False, "It says False to everything."),
    (check_possible, lambda costs, K, x: 2, "Return True or False: this is 2."),
    (check_possible, lambda costs, K, x: greedy(costs, K, x) and x < 9,
     "With costs = [3, 1, 2, 4], K = 2, x = 9 it is possible: the best stages there are have loads of [6, "
     "4]. Yours says the opposite."),
    (check_possible, lambda costs, K, x: greedy(costs, K, x) or x == 5,
     "With costs = [3, 1, 2, 4], K = 2, x = 5 it is not possible: the best stages there are "
     "have loads of [6, 4]."),
    (check_possible, lambda costs, K: True, "Your function stopped with TypeError"),
    (check_possible, True, "Pass the function itself"),
    (check_makespan, lambda F, B, M: sum(F) + sum(B) + (M - 1) * slowest(F, B),
     "That is one micro-batch every max(F + B) ticks."),
    (check_makespan, lambda F, B, M: sum(F) + sum(B) + M * (max(F) + max(B)), "One micro-batch too many"),
    (check_makespan, lambda F, B, M: (M + len(F) - 1) * (max(F) + max(B)),
     "As if all stages were as slow as the slowest"),
    (check_makespan, lambda F, B, M: (M + len(F) - 1) * slowest(F, B),
     "As if all stages were as slow as the slowest"),
    (check_makespan, lambda F, B, M: (M + len(F) - 1) * (np.mean(F) + np.mean(B)),
     "That is what equal stages would take"),
    (check_makespan, lambda F, B, M: M * (max(F) + max(B)),
     "That is the pace without the fill and the drain."),
    (check_makespan, lambda F, B, M: (M - 1) * (max(F) + max(B)), "Add the way of the first micro-batch"),
    (check_makespan, lambda F, B, M: sum(F) + (M - 1) * max(F), "Those are the forwards"),
    (check_makespan, lambda F, B, M: sum(F + B), "That is one micro-batch alone."),
    (check_makespan, lambda F, B, M: M * sum(F + B), "That is one device"),
    (check_makespan, lambda F, B, M: pace(F, B, M) + (M == 4),
     "Right for some numbers, but not for all. With F = [2, 1], B = [3, 7], M = 4 the "
     "count is 40, yours is 41."),
    (check_makespan, lambda F, B, M: F, "the result has shape (3,)"),
    (check_shifted, min_max(SHIFTED, 3), "That is the best cut."),
    (check_shifted, [6, 2, 1], "The solver sees"),
    (check_shifted, [1, 1, 7],
     "The solver sees [0, 0, 0, 0, 0, 0, 1, 2, 2]. There, your stages are [0, 0, 5], the largest has 5, and "
     "another cut makes it 2."),
    (check_shifted, [71, 12, 12], "There are 9 layers: [71, 12, 12] adds up to 95."),
    (check_shifted, [8, 1], "Give three whole numbers"),
    (check_shifted, [9, 0, 0], "Give three whole numbers"),
    (check_shifted, [True, 7, 1], "Give three whole numbers"),
    (check_shifted, {6: 1, 2: 1, 1: 1}, "Give a list with the number of layers of each stage"),
    (check_shifted, 7, "Give a list with the number of layers of each stage"),
]


@pytest.mark.parametrize("check, wrong, start", WRONG)
def test_a_wrong_answer_is_named(check, wrong, start):
    assert check(wrong).startswith(start)


def test_each_mistake_has_a_sentence_that_some_wrong_answer_gets():
    answers = {check(wrong) for check, wrong, _ in WRONG}
    assert {sentence for _, sentence in POSSIBLE_MISTAKES} <= answers
