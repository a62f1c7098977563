"""Solutions of the exercises in notebooks 44 and 45, and what their checkers say to typical wrong answers."""

from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises.automatic import check_overlapped
from exercises.plans import check_bound

CHECKERS = [check_overlapped, check_bound]

test_solutions = are_right([
    (check_overlapped, solutions("44").overlapped), (check_bound, solutions("45").bound),
])
test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda n, c, k: n * (c + k), "one after the other"),
        (lambda n, c, k: n * max(c, k), "while the first product"),
        (lambda n, c, k: n * c + k, "copies queue up"),
        (lambda n, c, k: c + n * k, "at least as long as a product"),
        (lambda n, c, k: 0, "With n = 50, c = 2, k = 1 the count is 101, yours is 0"),
    ],
    [
        (lambda F, B, M: M * max(f + b for f, b in zip(F, B)), "the work of the slowest device"),
        (lambda F, B, M: M * (sum(F) + sum(B)) / len(F), "shared evenly"),
        (lambda F, B, M: sum(F) + sum(B) + (M - 1) * max(f + b for f, b in zip(F, B)), "Too high"),
        (lambda F, B, M: max(sum(F[:s]) + M * (F[s] + B[s]) for s in range(len(F))), "still has to go back"),
        (lambda F, B, M: 0, "the count is 30, yours is 0"),
    ],
]))
