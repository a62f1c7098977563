"""Checkers for notebooks 05 and 06, micro-batches and the order of their sum."""

import math
from fractions import Fraction
from itertools import accumulate

import numpy as np

from minipipe.arrays import even_slices
from minipipe.sums import TreeSum
from . import called, numbers, same, shape_of


def check_gradient_part(gradient_part):
    """Judge `gradient_part(dL, A_prev, m) -> dW_i`, a micro-batch's part of the gradient of a Linear layer.

    dL (n, m_i) is the derivative of each sample's own loss, not divided by anything yet; A_prev (n_prev, m_i)
    is the layer's input; m is the number of samples of the whole mini-batch.
    """
    sentence = _judge_parts(gradient_part, m=4, n_parts=2)
    if sentence is None:
        sentence = _judge_parts(gradient_part, m=10, n_parts=4)
    return sentence or (
        "Right: each part is divided by the m of the whole mini-batch, so the parts add up, ragged ones too.")


def _judge_parts(gradient_part, m, n_parts):
    rng = np.random.default_rng(m)
    dL, A_prev = rng.integers(-8, 9, (2, m)) / 4, rng.integers(-8, 9, (3, m)) / 4
    slices = even_slices(m, n_parts)
    for part in slices:
        size = part.stop - part.start
        value, sentence = called(gradient_part, dL[:, part], A_prev[:, part], m)
        if sentence is not None:
            return sentence
        if shape_of(value) == (3, 2):
            return ("dW has shape (3, 2), the transpose of W: it is dL A_prev^T, of shape "
                    "(n, n_prev) = (2, 3).")
        dW, sentence = numbers("dW", value, (2, 3))
        if sentence is not None:
            return sentence
        total = dL[:, part] @ A_prev[:, part].T
        if not same(dW, total / m):
            return _wrong_part(dW, total, size, m)
    return None


def _wrong_part(dW, total, size, m):
    if same(dW, total / size):
        return (f"dW is {m / size:.3g} times too large: did you divide by the micro-batch's {size} samples "
                f"instead of the mini-batch's m = {m}?")
    if same(dW, total):
        return f"dW is {m} times too large: it is not divided at all. Divide by the mini-batch's m = {m}."
    if same(dW, total / 4):
        return f"Right for the worked example, but here m = {m}: did you write the number 4 instead of m?"
    if same(dW, total / size / m):
        return (f"dW is {size} times too small: it is divided twice, by {size} and by m = "
                f"{m}. Divide by m only.")
    if same(dW, -total / m):
        return "dW has the wrong sign: it is dL A_prev^T / m."
    return (f"dW should be {(total / m).tolist()} for a micro-batch of {size} samples of m = {m}, "
            f"yours is {dW.tolist()}.")


def check_weights(weights):
    """Judge `weights(sizes)`: by what to multiply each micro-batch's *mean* gradient, so that the sum is the
    full batch's.

    >>> check_weights(lambda sizes: [1 / len(sizes)] * len(sizes))[:40]
    'Right for equal sizes only: with (3, 3, '
    """
    for sizes in ((3, 3, 2, 2), (5, 1)):
        value, sentence = called(weights, sizes)
        if sentence is None:
            got, sentence = numbers("The list of weights", value, (len(sizes),))
        if sentence is not None:
            return sentence
        m, n_parts = sum(sizes), len(sizes)
        right = np.array(sizes) / m
        if same(got, right):
            continue
        if same(got, np.full(n_parts, 1 / n_parts)):
            return (f"Right for equal sizes only: with {sizes} a sample in the first micro-batch would count "
                    f"1/{n_parts * sizes[0]}, one in the last 1/{n_parts * sizes[-1]}. "
                    f"Each must count 1/{m}.")
        if same(got, np.ones(n_parts)):
            return (f"With weights of 1 the sum of {n_parts} means is too large, {n_parts} times so if "
                    "the sizes are equal.")
        if same(got, np.full(n_parts, 1 / m)):
            return (f"1/{m} is right for the sum over a micro-batch's samples: its mean is divided "
                    "by the size already.")
        if same(got, np.array(sizes)):
            return f"The sizes are not divided yet: as they stand, the result is m = {m} times too large."
        if same(got, 1 / right) or same(got, 1 / np.array(sizes)):
            return "Turned round: a larger micro-batch must weigh more, not less."
        if not same(got.sum(), 1):
            return (f"The weights for {sizes} add up to {got.sum():.6g}: they must add up to "
                    "1, as in every mean.")
        return (f"For sizes {sizes} the weights are {[str(Fraction(size, m)) for size in sizes]}, "
                f"yours are {got.tolist()}.")
    return "Right: size / m. Dividing by m in the loss does the same, and needs no weights."


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
