"""Solutions of the exercises in notebooks 29 and 30, and what their checkers say to typical wrong answers."""

from fractions import Fraction
from math import sqrt

import numpy as np
from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises import memory
from exercises.memory import check_held, check_peak, check_segments

CHECKERS = [check_peak, check_segments, check_held]

# ---------------------------------------------------------------- solutions

notebook, fitting = solutions("29"), solutions("30")
peak = fitting.peak
held = notebook.held


SOLUTIONS = [
    (check_peak, peak),
    (check_peak, lambda N, M, L, K, n, a, c: n * N * a + Fraction(N, M) * (Fraction(L, K * n) * c - a)),
    (check_segments, fitting.segments),
    (check_segments, lambda L, a, c, q: sqrt(L * c / (q * a))),
    (check_segments,
     lambda L, a, c, q: min((n for n in range(1, L + 1) if L % n == 0), key=lambda n: q * n * a + L / n * c)),
    (check_segments, lambda L, a, c, q: np.sqrt(L) * np.sqrt(c / a) / np.sqrt(q)),
    (check_held, held),
    (check_held, lambda K, M, r, b, L, a, c: np.float64(held(K, M, r, b, L, a, c))),
]
test_solutions = are_right(SOLUTIONS)


# ---------------------------------------------------------------- typical wrong answers

PEAK = [
    (lambda N, M, L, K, n, a, c: N * n * a + L / K / n * N / M * c, "Of M n inputs, M n - 1 lie beside."),
    (lambda N, M, L, K, n, a, c: (N - N / M) * n * a + L / K / n * N / M * c,
     "the micro-batch that goes backward has inputs, too"),
    (lambda N, M, L, K, n, a, c: (N - N / M) * a + L / K * N / M * c, "That is one segment a stage."),
    (lambda N, M, L, K, n, a, c: (N * n - N / M) * a + L / K * N / M * c, "those of L / (K n) layers"),
    (lambda N, M, L, K, n, a, c: (N - N / M) * a + L / K / n * N / M * c, "The price of segments is missing"),
    (lambda N, M, L, K, n, a, c: (N * n - N / M) * a + L / K / n * N * c, "of N / M samples, not of N"),
    (lambda N, M, L, K, n, a, c: N * n * a, "Those are the inputs alone"),
    (lambda N, M, L, K, n, a, c: L / K / n * N / M * c, "Those are the caches alone"),
    (lambda N, M, L, K, n, a, c: N * L / K * c, "That is GPipe without recomputation."),
    (lambda N, M, L, K, n, a, c: (N * n - N / M) * a + L / n * N / M * c,
     "A device has L / K of the layers, not L."),
    (lambda N, M, L, K, n, a, c: (M * n - 1) * a + L / K / n * c, "a micro-batch has N / M of them"),
    (lambda N, M, L, K, n, a, c: M * n * a + L / n * c, "section 4's rule of thumb for one device"),
    (lambda N, M, L, K, n, a, c: 1488,
     "Right for some numbers, but not for all. With N = 12, M = 3, L = 8, K = 2, n = 2, a = 16, c = 48 the "
     "count is 704, yours is 1488."),
    (lambda N, M, L, K, n, a, c: 1,
     "With N = 24, M = 8, L = 24, K = 4, n = 3, a = 16, c = 64 the count is 1488, yours is 1."),
    (lambda N: 1, "Your function stopped with TypeError"),
    (1488, "Pass the function itself"),
]

SEGMENTS = [
    (lambda L, a, c, q: sqrt(L), "the rule for c = a and one micro-batch"),
    (lambda L, a, c, q: sqrt(L * c / a), "each of the q that are alive"),
    (lambda L, a, c, q: sqrt(L / q), "Caches may be larger than inputs"),
    (lambda L, a, c, q: sqrt(L * a / (c * q)), "dear caches ask for more segments"),
    (lambda L, a, c, q: sqrt(L * q * c / a), "the more micro-batches keep inputs, the fewer"),
    (lambda L, a, c, q: sqrt(L * q), "the more micro-batches keep inputs, the fewer"),
    (lambda L, a, c, q: L * c / a / q, "Take the root"),
    (lambda L, a, c, q: sqrt(L * c / a) / q, "q stands below the root"),
    (lambda L, a, c, q: sqrt(L * c / a) * q, "q stands below the root"),
    (lambda L, a, c, q: 4,
     "Right for some numbers, but not for all. With L = 16, a = 16, c = 64, q = 1 the "
     "count is 8, yours is 4."),
    (lambda L, a, c, q: 3, "With L = 16, a = 16, c = 16, q = 1 the count is 4, yours is 3."),
    (lambda L: 4, "Your function stopped with TypeError"),
    (4, "Pass the function itself"),
]

HELD = [
    (lambda K, M, r, b, L, a, c: b * ((M - 1) * a + L / K * c),
     "That is GPipe, with all M micro-batches alive"),
    (lambda K, M, r, b, L, a, c: b * ((K - r - 1) * a + L / K * c), "where M is smaller than K - r"),
    (lambda K, M, r, b, L, a, c: b * ((min(M, K) - 1) * a + L / K * c), "That is device 0, with K alive"),
    (lambda K, M, r, b, L, a, c: b * ((min(M, r + 1) - 1) * a + L / K * c), "The other way round"),
    (lambda K, M, r, b, L, a, c: b * ((min(M, K - r - 1) - 1) * a + L / K * c), "K - r - 1 is the warm-up"),
    (lambda K, M, r, b, L, a, c: b * (min(M, K - r) * a + L / K * c), "has its input among them"),
    (lambda K, M, r, b, L, a, c: b * min(M, K - r) * L / K * c, "That is 1F1B without recomputation."),
    (lambda K, M, r, b, L, a, c: b * ((min(M, K - r) - 1) * a + L * c),
     "A device has L / K of the layers, not L."),
    (lambda K, M, r, b, L, a, c: (min(M, K - r) - 1) * a + L / K * c, "a micro-batch has b of them"),
    (lambda K, M, r, b, L, a, c: 480,
     "Right for some numbers, but not for all. With K = 4, M = 8, r = 1, b = 2, L = 12, a = 16, c = 64 the "
     "count is 448, yours is 480."),
    (lambda K, M, r, b, L, a, c: 1,
     "With K = 4, M = 8, r = 0, b = 2, L = 12, a = 16, c = 64 the count is 480, yours is 1."),
    (lambda K: 1, "Your function stopped with TypeError"),
    (480, "Pass the function itself"),
]
test_mistakes = are_named(of_each(CHECKERS, (PEAK, SEGMENTS, HELD)))


def test_the_right_answers_are_counted_not_computed(monkeypatch):
    """With another simulator behind it, a checker believes another number."""
    run = type("Run", (),
               {"peak_bytes": lambda self, kinds: [{"stashed inputs, caches": 7}[", ".join(kinds)]] * 9})
    monkeypatch.setattr(memory, "simulate", lambda *a, **options: run())
    memory._counted.cache_clear()
    memory._best_segments.cache_clear()
    try:
        assert check_peak(lambda *a: 7).startswith("Right: ")
        assert check_segments(lambda *a: 1).startswith("Right: ")
        assert check_held(lambda *a: 7).startswith("Right: ")
    finally:
        memory._counted.cache_clear()
        memory._best_segments.cache_clear()
