"""What the tests of all exercises ask of a checker: each function makes a test, which pytest finds under the
name given to it. It runs once for each checker, and names all answers that are judged wrongly.

    test_mistakes = are_named({check_sum: [(lambda a, b: a - b, "Add them")]})
"""

import sys
from math import inf, nan
from unittest.mock import patch

import numpy as np
import pytest

from exercises.judging import judged, part_named

JUNK = [
    3, "W", [1, [2]], [["F0"]], {}, object(), nan, 1j, True, np.arange(3), lambda *a: "text",
    lambda *a: 1j, lambda *a: [1, [2]], lambda *a: ([1, [2]],) * 2, lambda *a: ([1, [2]],) * 3,
    lambda *a: inf, lambda *a: {}, lambda *a: True, lambda *a: np.zeros((0, 3)), lambda *a: 10**400,
]


def are_right(solutions):
    """Return a test that each check calls its `solutions` right: {check: answers}."""
    return _each(_alone(solutions), lambda sentence: sentence.startswith("Right: "))


def are_named(wrong):
    """Return a test that the sentences of each check have the words that name the mistake:
    {check: [(answer, words)]}.
    """
    return _each(wrong, lambda sentence, words: words in sentence and names_a_mistake(sentence))


def names_a_mistake(sentence):
    """Tell whether a checker has answered with one whole sentence, or several, that call nothing right."""
    # the error has no full stop
    ends = sentence[-1] in ".?)" or "stopped with" in sentence or "cannot be read" in sentence
    return ends and "\n" not in sentence and not sentence.startswith("Right: ")


def formulas_of(check, solution):
    """Return [(wrong function, sentence)] that `check` compares an answer with; [] if it has no such list.

    Most checkers hand theirs to `judged`.
    """
    module, found = sys.modules[check.__module__], []

    def judged(function, names, cases, right, mistakes):
        found.extend(mistakes)

    with patch.object(module, "judged", judged, create=True):
        check(solution)
    return found


def judge_of(title):
    """Return the checker of the part of the pipeline with that title. Its answers are code."""
    part = part_named(title)

    def check(code):
        return judged(part, code)

    check.__name__ = title
    return check


def edits(code, *rows):
    """Return [(the code with `new` in the place of `old`, words)] for rows of (old, new, words)."""
    for old, _, words in rows:
        assert old in code, f"the edit that is to be told {words!r} changes nothing: there is no {old!r}"
    return [(code.replace(old, new), words) for old, new, words in rows]


def is_refusal(sentence):
    """Tell whether a checker has said in one line what is wrong."""
    return isinstance(sentence, str) and "\n" not in sentence and not sentence.startswith("Right")


def _alone(answers):
    """Return {check: [(answer,)]}."""
    return {check: [(answer,) for answer in answers] for check, answers in answers.items()}


def _each(answers, is_good):
    """Return a test of each check in `answers`, {check: [(answer, *words)]}: is_good(sentence, *words)."""
    @pytest.mark.parametrize("check", answers, ids=lambda check: check.__name__)
    def test(check):
        faults = judged_wrongly(check, answers[check], is_good)
        assert not faults, "\n".join(faults)
    return test


def judged_wrongly(check, answers, is_good):
    """Return a line for each (answer, *words) to which `check` raises or says what is not `is_good`."""
    faults = []
    for place, (answer, *words) in enumerate(answers):
        try:
            sentence = check(answer)
        except Exception as error:  # the checker's own mistake, told with the answer
            faults.append(f"answer {place}, {answer!r}: {check.__name__} raises {error!r}")
        else:
            if not is_good(sentence, *words):
                faults.append(f"answer {place}, {answer!r}: {check.__name__} says {sentence!r}, not {words}")
    return faults
