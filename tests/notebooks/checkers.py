"""What the tests of all exercises ask of a checker: each function makes a test, which pytest finds under the
name given to it. It runs once for each checker, and names all answers that are judged wrongly.

    test_mistakes = are_named({judge_of("rate"): [("def rate(i, W, eta, k): return eta", "yours is")]})
"""

import pytest

from exercises.judging import judged, part_named


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
