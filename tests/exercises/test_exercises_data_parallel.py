"""Solutions of the exercises in notebook 38, and what their checkers say to typical wrong answers."""

from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises.data_parallel import check_end, check_exposed

CHECKERS = [check_exposed, check_end]
EXPOSED, END = solutions("38").exposed, solutions("38").end

test_solutions = are_right([
    (check_exposed, EXPOSED),
    (check_exposed, lambda L, b, c: END([b * (k + 1) for k in range(L)], [c] * L) - L * b),
    (check_end, END),
    (check_end, lambda ready, c: max(start + sum(c[k:]) for k, start in enumerate(ready))),
])
test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda L, b, c: L * c, "without any overlap"),
        (lambda L, b, c: c, "while c is at most b"),
        (lambda L, b, c: L * c - (L - 1) * b, "if c is at least b"),
        (lambda L, b, c: max(c, L * c - L * b), "only L - 1 backwards hide anything"),
        (lambda L, b, c: max(0, L * c - (L - 1) * b), "at least c"),
        (lambda L, b, c: 0, "With L = 4, b = 2, c = 3 the count is 6, yours is 0"),
        (lambda L: 0, "stopped with TypeError"),
    ],
    [
        (lambda ready, c: max(ready) + sum(c), "wait for the last gradient"),
        (lambda ready, c: max(start + own for start, own in zip(ready, c)), "at the same time"),
        (lambda ready, c: ready[0] + sum(c), "the lane can also be free"),
        (lambda ready, c: sum(c), "before its gradient is ready"),
        (lambda ready, c: 0, "the count is 14, yours is 0"),
    ],
]))
