"""The solution of the exercise in notebook 22 and what its checker says to typical wrong answers; and bugs go
in and come out as the notebook says.
"""

import numpy as np
from pitfalls.bugs import BUGS
from notebooks.checkers import are_named, are_right
from notebooks.template import solutions

import minipipe as mp
from exercises import broken
from minipipe.functions import leaves

CHECKERS = [broken.check_healthy]
healthy = solutions("22").healthy


def by_hand(pipe, X, Y, compare=lambda one, other: (one == other).all(), part=slice(None)):
    net = mp.Sequential(pipe.layers, pipe.loss)
    J = net.forward_backward(X, Y)
    same_cost = pipe.forward_backward(X, Y) == J
    pairs = zip(list(leaves(net.gradients))[part], list(leaves(pipe.gradients))[part], strict=True)
    return bool(same_cost and all(compare(one, other) for one, other in pairs if one is not None))


def up_to_a_factor(one, other):
    quotients = {float(a / b) for a, b in zip(one.flat, other.flat) if b != 0}
    return len(quotients) <= 1


def gradients_up_to_a_factor(pipe, X, Y):
    net = mp.Sequential(pipe.layers, pipe.loss)
    net.forward_backward(X, Y)
    pipe.forward_backward(X, Y)
    return all(up_to_a_factor(*pair) for pair in zip(leaves(net.gradients), leaves(pipe.gradients))
               if pair[0] is not None)


test_solutions = are_right([(broken.check_healthy, healthy), (broken.check_healthy, by_hand)])
test_mistakes = are_named([(broken.check_healthy, *pair) for pair in [
    (lambda pipe, X, Y: True, "It lets a pipeline pass whose gradients are M times too large"),
    (gradients_up_to_a_factor, "It lets a pipeline pass whose gradients are M times too large"),
    (lambda pipe, X, Y: False, "It calls a healthy pipeline broken"),
    (lambda pipe, X, Y: pipe.forward_backward(X, Y), "Return True or False: this is a Rational"),
    (lambda pipe, X, Y: pipe.gradients[0][0] is not None, "Your function stopped with"),
]])


def test_each_case_is_a_bug_with_a_letter_of_its_own():
    assert list(broken.CASES) == list(range(1, 13)) and set(broken.CASES.values()) <= set(BUGS)
    assert len(set(broken.letters(*broken.CASES))) == 12
    assert broken.letters(1, 5) == ["P", "E"]


def test_a_bug_is_in_for_a_block_and_its_check_turns_red_there():
    images = np.ones((2, 4))
    net = mp.Pipeline([mp.Linear(2, 2)], mp.MeanSquaredError(), 1, 2)
    right = net.forward_backward(images, images)
    with broken.case(1):
        assert net.forward_backward(images, images) == 2 * right
    assert net.forward_backward(images, images) == right
    assert "test_turns_red[dtype_promotion]: red with the bug, green without" in broken.proof(5)


def test_copies_agree_with_a_bug_in_all_of_them():
    net = mp.DataParallel([mp.Linear(2, 2)], mp.MeanSquaredError(), 2)
    net.forward_backward(np.ones((2, 4)), np.ones((2, 4)))
    assert broken.agree(net)
