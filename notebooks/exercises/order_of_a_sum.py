"""The checker of notebook 50, the order of a sum."""

import math
from itertools import accumulate

import numpy as np

from minipipe.sums import TreeSum
from . import called, numbers


def check_tree_sum(tree_sum):
    """Judge `tree_sum(terms)`, the sum of a list of floats along the tree of `minipipe.sums.TreeSum`, bit by
    bit.

    >>> check_tree_sum(lambda terms: list(accumulate(terms))[-1])
    'That is the running sum, from left to right: add neighbours in pairs first, then the pairs.'
    """
    rng = np.random.default_rng(3)
    others = [
        (lambda terms: list(accumulate(terms))[-1],
         "That is the running sum, from left to right: add neighbours in pairs first, then the pairs."),
        (lambda terms: list(accumulate(terms[::-1]))[-1],
         "That is the running sum from the right: add neighbours in pairs first, then the pairs."),
        (_halving, "You cut the list into halves: TreeSum starts at the leaves, pairs 0+1, 2+3, ..., and a "
                   "term without a partner goes up alone."),
        (np.sum, "That is np.sum, whose order of additions is NumPy's own affair: add "
                 "along the tree yourself."),
        (sum, "That is Python's sum, which makes up for its rounding errors from Python 3.12 on: add "
              "along the tree yourself."),
        (math.fsum, "That is the exactly rounded sum: a good one, but it needs all terms at once. "
                    "Add them along the tree."),
    ]
    counts = (1, 2, 3, 4, 5, 6, 7, 8, 11)
    matches = [True] * len(others)
    first_wrong = None
    for n in counts:
        for _ in range(8):
            terms = rng.standard_normal(n).tolist()
            value, sentence = called(tree_sum, terms)
            if sentence is None:
                got, sentence = numbers("The sum", value, ())
            if sentence is not None:
                terms = "term" if n == 1 else "terms"
                return f"With {n} {terms}: {sentence}" if "stopped" in sentence else sentence
            if abs(got - math.fsum(terms)) > 1e-9:
                right = math.fsum(terms)
                return (f"For {n} terms the result is {got:.6g}, the sum is {right:.6g}: is a term "
                        "left out or added twice?")
            if got != _tree(terms) and first_wrong is None:
                first_wrong = n
            matches = [match and got == other(terms) for match, (other, _) in zip(matches, others)]
    if first_wrong is None:
        return ("Right: the same bits as TreeSum. The tree's shape depends on M alone, so no order of "
                "arrival can change it.")
    for match, (_, sentence) in zip(matches, others):
        if match:
            return sentence
    return (f"The sum is right but not its bits, from {first_wrong} terms on: pair neighbours, level by "
            "level; a last term without a partner goes up as it is.")


def _tree(terms):
    total = TreeSum(len(terms))
    for i, term in enumerate(terms):
        total.add(i, [term])
    return total.value[0]


def _halving(terms):
    half = len(terms) // 2
    return terms[0] if len(terms) == 1 else _halving(terms[:half]) + _halving(terms[half:])
