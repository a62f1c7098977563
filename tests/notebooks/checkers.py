"""What the tests of all exercises ask of a checker: each function makes a test, which pytest finds under the
name given to it.

    test_mistakes = are_named([(check_sum, lambda a, b: a - b, "Add them")])
"""

from math import inf, nan

import numpy as np
import pytest

JUNK = [
    3, "W", [1, [2]], {}, object(), nan, 1j, True, np.arange(3), lambda: 1, lambda *a: "text", lambda *a: 1j,
    lambda *a: [1, [2]], lambda *a: nan, lambda *a: inf, lambda *a: {}, lambda *a: True,
    lambda *a: np.zeros((0, 3)),
    lambda *a: object(), lambda *a: 1 / 0,
]


def are_right(solutions):
    """A test that each (check, solution) is told to be right."""
    @pytest.mark.parametrize("check, solution", solutions)
    def test(check, solution):
        assert check(solution).startswith("Right: ")
    return test


def are_not_solved_yet(checkers, stubs=()):
    """A test that each (check, stub), and None for each check, is told to be not solved yet."""
    @pytest.mark.parametrize("check, stub", [*stubs, *((check, None) for check in checkers)])
    def test(check, stub):
        assert check(stub).startswith("Not solved yet: ")
    return test


def of_each(checkers, answers):
    """[(check, answer, words)] from a list of (answer, words) for each check."""
    return [(check, *pair) for check, pairs in zip(checkers, answers, strict=True) for pair in pairs]


def are_named(wrong):
    """A test that for each (check, answer, words) the sentence has these words, which name the mistake."""
    @pytest.mark.parametrize("check, answer, words", wrong)
    def test(check, answer, words):
        sentence = check(answer)
        assert words in sentence and "\n" not in sentence
        # the error has no full stop
        assert sentence[-1] in ".?)" or "stopped with" in sentence or "cannot be read" in sentence
    return test


def is_refused(checkers, junk=JUNK):
    """A test that every check has a sentence for all `junk`, and takes nothing of it for right."""
    @pytest.mark.parametrize("check", checkers)
    @pytest.mark.parametrize("answer", junk)
    def test(check, answer):
        sentence = check(answer)
        assert isinstance(sentence, str) and "\n" not in sentence and not sentence.startswith("Right")
    return test
