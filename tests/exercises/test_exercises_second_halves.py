"""Solutions of exercises about limits, in notebooks 26, 28 and 33, and what their checkers say to typical
wrong answers.
"""

from math import pi, sin

from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises.asynchronous import check_largest_rate
from exercises.cutting import check_layers_allowed
from exercises.gpipe_by_numbers import check_bound

CHECKERS = [check_largest_rate, check_layers_allowed, check_bound]
largest_rate, layers_allowed, bound = (
    solutions("26").largest_rate, solutions("28").layers_allowed, solutions("33").bound)


def limit(d):
    return 2 * sin(pi / (4 * d + 2))


test_solutions = are_right([
    (check_largest_rate, largest_rate),
    (check_largest_rate, lambda K, s, h: limit(K - s - 1) / h),
    (check_bound, bound),
    (check_bound, lambda base, K, M: base * M / max(3, 3 * M / K)),
    (check_layers_allowed, layers_allowed),
    (check_layers_allowed, lambda room, each, K, M, r: int(room / min(M, K - r) / each)),
])
test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda K, s, h: 2 / h, "without delay"),
        (lambda K, s, h: limit(K - 1 - s), "divide it by h"),
        (lambda K, s, h: limit(K - 1 - s) * h, "You multiplied by h"),
        (lambda K, s, h: limit(K - s) / h, "The last stage is not late"),
        (lambda K, s, h: limit(s) / h, "The other way round"),
        (lambda K, s, h: limit(K - 1) / h, "That is stage 0"),
        (lambda K, s, h: 2 / (K - s) / h, "does not fall like"),
        (lambda K, s, h: 1, "With K = 4, s = 0, h = 1.0 the count is"),
    ],
    [
        (lambda room, each, K, M, r: room // each // M, "Those are GPipe's M micro-batches"),
        (lambda room, each, K, M, r: room // (each * K), "That is device 0"),
        (lambda room, each, K, M, r: room // (each * min(M, K)), "That is device 0"),
        (lambda room, each, K, M, r: room // (each * (K - r)), "never more than M micro-batches"),
        (lambda room, each, K, M, r: room // each, "As if one micro-batch"),
        (lambda room, each, K, M, r: room // (each * min(M, r + 1)), "The other way round"),
        (lambda room, each, K, M, r: room / each / min(M, K - r), "There is no part of a layer"),
        (lambda room, each, K, M, r: -(-room // (each * min(M, K - r))), "You rounded up"),
        (lambda room, each, K, M, r: 4, "Right for some numbers, but not for all"),
    ],
    [
        (lambda base, K, M: base * M / 3, "That is the way of one micro-batch alone"),
        (lambda base, K, M: base * K / 3, "That is the work alone"),
        (lambda base, K, M: base / 4 * min(K, M), "not even that has to be computed again"),
        (lambda base, K, M: min(K, M) / 3, "relative to the base"),
        (lambda base, K, M: min(K, M), "relative to the base"),
        (lambda base, K, M: base / 3 * max(K, M), "both limits hold"),
        (lambda base, K, M: base * K * M / (M + K - 1) / 3, "That is GPipe's schedule"),
        (lambda base, K, M: 7, "the count is"),
    ],
]))
