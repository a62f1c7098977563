"""Solutions of the exercises in notebooks 31 and 32, and what their checkers say to typical wrong answers."""

from fractions import Fraction
from math import ceil, floor

import numpy as np
from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises import gpipe_by_numbers
from exercises.gpipe_by_numbers import check_fewest, check_memory, check_relative

CHECKERS = [check_memory, check_relative, check_fewest]

# ---------------------------------------------------------------- solutions

claim, tables = solutions("31"), solutions("32")


def parameters(L, d, V, s, of_a_block=13):
    return L * (12 * d**2 + of_a_block * d) + V * d + V + s * d + 2 * d


def fill_and_drain(K, M):
    """The makespan in forwards of a stage, if recomputation runs before the gradient is there."""
    return 4 * M + 3 * (K - 1)


SOLUTIONS = [
    (check_memory, tables.memory),
    (check_memory,
     lambda L, d, V, s: np.float64(4 * 4 * ((12 * L * d + 13 * L + V + s + 2) * d + V)) / 1024**3),
    (check_relative, claim.relative_throughput),
    (check_relative, lambda K, M: Fraction(K * (4 * M + 3), 8 * M + 6 * K - 6)),
    (check_fewest, claim.fewest),
    (check_fewest, lambda K, share: ceil((K - 1) * (1 - share) / share)),
    (check_fewest, lambda K, share: next(M for M in range(1, 10**6) if Fraction(K - 1, M + K - 1) <= share)),
]
test_solutions = are_right(SOLUTIONS)


def test_the_small_gpt_2_is_the_first_case():
    """124,439,808 parameters, as its authors' weights have, and the bias of the last Linear, V of them, which
    those lack.
    """
    seen = []
    check_memory(lambda *case: seen.append(case) or 0)
    assert seen[0] == (12, 768, 50257, 1024) and parameters(*seen[0]) - 50257 == 124_439_808
    assert f"{16 * parameters(*seen[0]) / 2**30:.2f} GiB" in check_memory(SOLUTIONS[0][1])


def test_what_a_right_answer_is_told_is_true():
    sentence = check_relative(SOLUTIONS[2][1])
    assert all(f"{K / 2 * fill_and_drain(2, 32) / fill_and_drain(K, 32):.3f} for K = {K}" in sentence
               for K in (4, 8))
    assert f"are {3.4 / 1.8:.3f} and {6.3 / 1.8:g}" in sentence


# ---------------------------------------------------------------- typical wrong answers

MEMORY = [
    (lambda L, d, V, s: 16 * (parameters(L, d, V, s) + V * d) / 2**30, "counted the W of the tokens twice"),
    (lambda L, d, V, s: 16 * parameters(L, d, V, s, of_a_block=0) / 2**30, "the matrices of a block alone"),
    (lambda L, d, V, s: 16 * parameters(L, d, V, s, of_a_block=9) / 2**30,
     "left out the two LayerNorms of each block"),
    (lambda L, d, V, s: 16 * parameters(L, d, V, s, of_a_block=4) / 2**30,
     "left out the biases of each block"),
    (lambda L, d, V, s: 16 * (parameters(L, d, V, s) - V) / 2**30, "left out the bias of the last Linear"),
    (lambda L, d, V, s: 16 * (parameters(L, d, V, s) - 2 * d) / 2**30,
     "left out the LayerNorm behind the last block"),
    (lambda L, d, V, s: 16 * (parameters(L, d, V, s) - s * d) / 2**30, "left out the places"),
    (lambda L, d, V, s: 16 * parameters(L, d, V, s) / 1e9, "a GiB is 2^30 bytes"),
    (lambda L, d, V, s: 12 * parameters(L, d, V, s) / 2**30, "Adam keeps two"),
    (lambda L, d, V, s: 8 * parameters(L, d, V, s) / 2**30, "Four numbers belong to each parameter"),
    (lambda L, d, V, s: 4 * parameters(L, d, V, s) / 2**30, "the parameters alone"),
    (lambda L, d, V, s: 16 * parameters(L, d, V, s), "in bytes: divide by 2^30"),
    (parameters, "the number of parameters"),
    (lambda L, d, V, s: 1.8550465255975723,
     "Right for some numbers, but not for all. With L = 2, d = 64, V = 100, s = 16 the count is 0.0016"),
    (lambda L, d, V, s: 2, "With L = 12, d = 768, V = 50257, s = 1024 the count is 1.85505, yours is 2."),
    (lambda L, d: 2, "Your function stopped with TypeError"),
    (1.86, "Pass the function itself"),
]

RELATIVE = [
    (lambda K, M: (K * M / (M + K - 1)) / (2 * M / (M + 1)), "the ideal of the first section"),
    (lambda K, M: K * fill_and_drain(1, M) / fill_and_drain(K, M),
     "compares with one device; asked was with two"),
    (lambda K, M: K * M / (M + K - 1), "compares with one device, and lets recomputation wait"),
    (lambda K, M: K / 2, "without a bubble"),
    (lambda K, M: fill_and_drain(2, M) / fill_and_drain(K, M), "gave each stage the same time"),
    (lambda K, M: fill_and_drain(K, M) / K / (fill_and_drain(2, M) / 2), "Upside down"),
    (lambda K, M: K / 2 * (4 * M + 1) / (4 * M + K - 1), "counted the forwards alone"),
    (lambda K, M: K / 2 * (4 * M + 2) / (4 * M + 2 * (K - 1)), "counted the backwards alone"),
    (lambda K, M: K / 2 * (3 * M + 4) / (3 * M + 4 * (K - 1)), "the other way round"),
    (lambda K, M: 3.5167785234899327,
     "Right for some numbers, but not for all. With K = 4, M = 32 the count is 1.91241"),
    (lambda K, M: 3.5, "With K = 8, M = 32 the count is 3.51678, yours is 3.5."),
    (lambda K: 3.5, "Your function stopped with TypeError"),
    (3.5, "Pass the function itself"),
]

FEWEST = [
    (lambda K, share: (K - 1) * (1 - share) / share, "M is a whole number, so round up"),
    (lambda K, share: (K - 1) * (1 / float(share) - 1), "M is a whole number, so round up"),
    (lambda K, share: floor((K - 1) * (1 - share) / share), "Round up, not down"),
    (lambda K, share: floor((K - 1) * (1 - share) / share) + 1,
     "One too many where the division leaves nothing over"),
    (lambda K, share: ceil((K - 1) / share), "Take K - 1 away, and M is left"),
    (lambda K, share: ceil(K * (1 - share) / share), "waits for K - 1 others, not for K"),
    (lambda K, share: ceil((K - 1) * share / (1 - share)), "share is the idle part"),
    (lambda K, share: 4 * K, "the paper's rule"),
    (lambda K, share: 27,
     "Right for some numbers, but not for all. With K = 8, share = 1/5 the count is 28, yours is 27."),
    (lambda K, share: 1, "With K = 4, share = 1/10 the count is 27, yours is 1."),
    (lambda K: 27, "Your function stopped with TypeError"),
    (27, "Pass the function itself"),
]
test_mistakes = are_named(of_each(CHECKERS, (MEMORY, RELATIVE, FEWEST)))


def test_the_papers_rule_leaves_a_bubble_just_below_a_fifth():
    bubbles = [Fraction(K - 1, 4 * K + K - 1) for K in (2, 8, 1000)]
    assert bubbles == sorted(bubbles) and bubbles[-1] < Fraction(1, 5) < bubbles[-1] + Fraction(1, 1000)


def test_the_right_answers_are_counted_not_computed(monkeypatch):
    """With another simulator, or another description, behind it, a checker believes another number."""
    run = type("Run", (), {"makespan": 7, "busy_ticks": lambda self: [10**6]})  # never idle
    monkeypatch.setattr(gpipe_by_numbers, "simulate", lambda *a: run())
    monkeypatch.setattr(gpipe_by_numbers, "describe", lambda *a: type("Network", (), {"parameters": 2**26}))
    gpipe_by_numbers._counted_fewest.cache_clear()
    try:
        assert check_relative(lambda K, M: Fraction(K, 2)).startswith("Right: ")
        assert check_memory(lambda *a: 1).startswith("Right: ")
        assert check_fewest(lambda K, share: 1).startswith("Right: ")
    finally:
        gpipe_by_numbers._counted_fewest.cache_clear()
