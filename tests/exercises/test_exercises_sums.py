"""The exercise of notebook 50, the order of a sum: what its checker says to typical wrong answers."""

import sys
from itertools import accumulate

import numpy as np
from notebooks.checkers import are_named
from notebooks.template import solutions

from exercises.order_of_a_sum import check_tree_sum

tree_sum = solutions("50").my_tree_sum


def halving(terms):
    half = len(terms) // 2
    return terms[0] if half == 0 else halving(terms[:half]) + halving(terms[half:])


test_mistakes = are_named({
    check_tree_sum: [
        (lambda terms: list(accumulate(terms))[-1], "the running sum, from left to right"),
        (lambda terms: list(accumulate(terms[::-1]))[-1], "the running sum from the right"),
        (sum, "the running sum, from left to right" if sys.version_info < (3, 12) else "Python's sum, which"),
        (halving, "You cut the list into halves"),
        (np.sum, "np.sum"),
        (lambda terms: tree_sum(sorted(terms)), "The sum is right but not its bits"),
        (lambda terms: tree_sum(terms[:len(terms) // 2 * 2] or terms), "is a term left out"),
        (lambda terms: terms[0] + terms[1], "With 1 term: Your function stopped with IndexError"),
        (lambda terms: [sum(terms)], "must have shape ()"),
    ],
})
