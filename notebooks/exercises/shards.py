"""Checkers for notebook 41, inside a layer."""

import numpy as np

from . import called, judged, shape_of


def check_rows_of_packed(rows):
    """Judge `rows(d, T, rank)`: which rows of a packed [q | k | v] matrix (3 d, d) belong to a device.

    >>> check_rows_of_packed(lambda d, T, rank: range(3 * d // T * rank, 3 * d // T * (rank + 1)))
    'That cuts the matrix as a whole: device 0 gets all of q and half of k. Cut inside each third.'
    """
    for d, T in ((4, 2), (12, 4), (6, 1)):
        for rank in range(T):
            value, sentence = called(rows, d, T, rank)
            if sentence is not None:
                return sentence
            sentence = _fault_of_rows(value, d, T, rank)
            if sentence is not None:
                return sentence
    return "Right: the same run of rows in each third, so each device has whole heads of q, k and v."


def _fault_of_rows(value, d, T, rank):
    try:
        value = list(value)
    except TypeError:
        return "Return the numbers of the rows: a list, a range or an array."
    if any(shape_of(row) != () for row in value):
        return "Return the numbers of the rows: a list, a range or an array."
    n = d // T
    right = [third * d + row for third in range(3) for row in range(n * rank, n * (rank + 1))]
    if value == right:
        return None
    if value == list(range(3 * n * rank, 3 * n * (rank + 1))):
        return "That cuts the matrix as a whole: device 0 gets all of q and half of k. Cut inside each third."
    if value == right[:n]:
        return "Those are its rows of q. It needs the same rows of k and of v, too."
    if sorted(map(str, value)) == sorted(map(str, right)):
        return "Those are the rows, but in another order: first q's, then k's, then v's."
    return f"With d = {d} and T = {T}, device {rank} has {len(right)} rows, {right[:3]} and so on; not yours."


def check_numbers_of_block(numbers):
    """Judge `numbers(b, s, h, T)`: how many numbers a device sends for one Transformer block in one step.

    >>> check_numbers_of_block(lambda b, s, h, T: 4 * b * s * h * (T - 1) / T)
    'That is half of it: an all-reduce sends 2 (T - 1)/T of the tensor, there and back.'
    """
    cases = [(2, 3, 8, 2), (2, 3, 8, 4), (1, 2048, 12288, 8), (5, 7, 12, 1)]
    mistakes = [
        (lambda b, s, h, T: 4 * b * s * h * (T - 1) / T,
         "That is half of it: an all-reduce sends 2 (T - 1)/T of the tensor, there and back."),
        (lambda b, s, h, T: 8 * b * s * h * (T - 1), "That is what all T devices send. What does one?"),
        (lambda b, s, h, T: 2 * b * s * h * (T - 1) / T,
         "That is one all-reduce. How many are there in a block, forward and backward?"),
        (lambda b, s, h, T: 8 * b * s * h, "What a device has already need not travel: think of T = 1."),
    ]
    right = [float(8 * b * s * h * np.float64(T - 1) / T) for b, s, h, T in cases]
    return judged(numbers, ("b", "s", "h", "T"), cases, right, mistakes) or (
        "Right: 8 b s h (T - 1)/T, as in Narayanan et al. 2021. It does not fall as T grows.")
