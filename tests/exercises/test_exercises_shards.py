"""Solutions of the exercises in notebook 37, and what their checkers say to typical wrong answers."""

import numpy as np
from notebooks.checkers import are_named, are_right, of_each
from notebooks.template import solutions

from exercises.shards import check_numbers_of_block, check_rows_of_packed

CHECKERS = [check_rows_of_packed, check_numbers_of_block]
ROWS, NUMBERS = solutions("37").rows_of_packed, solutions("37").numbers_sent

test_solutions = are_right([
    (check_rows_of_packed, ROWS),
    (check_rows_of_packed,
     lambda d, T, rank: np.arange(3 * d).reshape(3, T, d // T)[:, rank].ravel()),
    (check_numbers_of_block, NUMBERS),
    (check_numbers_of_block, lambda b, s, h, T: 4 * 2 * (b * s * h - b * s * h / T)),
])
test_mistakes = are_named(of_each(CHECKERS, [
    [
        (lambda d, T, rank: range(3 * d // T * rank, 3 * d // T * (rank + 1)), "all of q and half of k"),
        (lambda d, T, rank: range(d // T * rank, d // T * (rank + 1)), "Those are its rows of q"),
        (lambda d, T, rank: ROWS(d, T, rank)[::-1], "but in another order"),
        (lambda d, T, rank: ROWS(d, T, 0), "With d = 4 and T = 2, device 1 has 6 rows, [2, 3, 6] and so on"),
        (lambda d, T, rank: 3, "Return the numbers of the rows"),
        (lambda d, T, rank: [[0, 1], [4, 5]], "Return the numbers of the rows"),
        (lambda d: [], "stopped with TypeError"),
    ],
    [
        (lambda b, s, h, T: 4 * b * s * h * (T - 1) / T, "That is half of it"),
        (lambda b, s, h, T: 8 * b * s * h * (T - 1), "what all T devices send"),
        (lambda b, s, h, T: 2 * b * s * h * (T - 1) / T, "That is one all-reduce"),
        (lambda b, s, h, T: 8 * b * s * h, "think of T = 1"),
        (lambda b, s, h, T: 0, "the count is 192, yours is 0"),
    ],
]))
