"""Exercises that mark themselves: one module of checkers for each notebook that asks for code.

A checker is a function `check_...(answer) -> str`. It takes the learner's function or value and answers with
one sentence: "Right: ...", "Not solved yet: ...", or one that names the likely mistake. It never raises for a
wrong answer. The solutions are in the notebooks, behind the hints. Wrong formulas stand in the checker, each
beside its sentence; other typical wrong answers are in `tests/`. The modules `..._pictures` hold drawings
that would be too long for a cell.
"""

import linecache
from copy import deepcopy
from traceback import walk_tb

import numpy as np


def called(function, *arguments):
    """(result, None) of the learner's function, or (None, sentence) if there is no result to judge.

    The function gets copies of `arguments`, so nothing that it does to them can spoil the check.

    >>> called(lambda x: x + 1, 2)
    (3, None)
    >>> called(lambda x: None, 2)
    (None, 'Not solved yet: your function returns None.')
    """
    if function is None:
        return None, "Not solved yet: the answer is None."
    if not callable(function):
        return None, f"Pass the function itself: this is {short(function)}, which cannot be called."
    try:
        result = function(*deepcopy(arguments))
    except Exception as error:  # whatever the learner's code does wrong becomes a sentence
        return None, stopped("Your function", error)
    if nothing_in(result):
        return None, "Not solved yet: your function returns None."
    return result, None


def stopped(name, error):
    """The sentence about the learner's code of that name, which raised `error`, with the line of the cell in
    which it did.
    """
    sentence = f"{name} stopped with {type(error).__name__}: {short(error, 200)}"
    for frame, number in reversed(list(walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if _is_a_cell(file):
            line = short(linecache.getline(file, number), 100)
            return f"{sentence}, in line {number} of your cell: `{line}`."
    return sentence


def _is_a_cell(file):
    """Whether Python knows the lines of `file`, and they have never been in a file."""
    entry = linecache.cache.get(file, ())
    return len(entry) == 4 and entry[1] is None  # (size, time of the last change, lines, name)


def plain(value):
    """`value` without NumPy's types; fractions with four digits, tuples as lists."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def is_met(yours, right):
    """Whether a guess is right: whole numbers and words exactly, fractions to two percent.

    >>> is_met(" No", "no"), is_met(0.27, 3 / 11), is_met(95, 96), is_met((1, 2), [1, 2])
    (True, True, False, True)
    """
    if isinstance(right, list):
        yours = yours.tolist() if isinstance(yours, np.ndarray) else yours
        alike = isinstance(yours, (list, tuple)) and len(yours) == len(right)
        return alike and all(map(is_met, yours, right))
    if isinstance(right, str):
        return str(yours).strip().lower() == right.lower()
    try:
        return bool(abs(yours - right) <= (0.02 * abs(right) if isinstance(right, float) else 0))
    except (TypeError, ValueError):
        return False


def judged(function, names, cases, right, mistakes):
    """A sentence about the learner's function of some arguments to one number, or None if it gives `right` in
    all `cases`.

    function: the learner's
    names: of its arguments
    cases: the arguments to call it with, a tuple for each call
    right: the right result of each call
    mistakes: pairs of a wrong formula and the sentence for a function that agrees with it everywhere

    >>> judged(lambda n: n - 5, "n", [(8,), (9,)], [4, 5], [(lambda n: n - 5, "Add 1.")])
    'Add 1.'
    """
    answers = []
    for case in cases:
        value, sentence = called(function, *case)
        if sentence is not None:
            return sentence
        answer, sentence = numbers("the result", value, ())
        if sentence is not None:
            return sentence
        answers.append(answer)
    wrong = [place for place, pair in enumerate(zip(answers, right)) if not same(*pair)]
    if not wrong:
        return None
    for formula, sentence in mistakes:
        if all(same(answer, formula(*case)) for answer, case in zip(answers, cases)):
            return sentence
    place = wrong[0]
    where = ", ".join(f"{name} = {argument}" for name, argument in zip(names, cases[place]))
    start = "" if place == 0 else "Right for some numbers, but not for all. "
    return f"{start}With {where} the count is {right[place]:g}, yours is {answers[place]:g}."


def numbers(name, value, shape):
    """(array, None) if `value` is an array of real numbers with that shape, or (None, sentence).

    >>> numbers("db", [1.0, 2.0], (2, 1))[1]
    'db has shape (2,), but it must have shape (2, 1).'
    """
    if value is None:
        return None, f"Not solved yet: {name} is still None."
    try:
        array = np.asarray(value)
    except ValueError:
        return None, f"{name} is {short(value)}, which is not an array of numbers."
    if array.dtype.kind not in "fiubO":
        return None, f"{name} is {short(value)}, which is not an array of real numbers."
    if array.shape != shape:
        return None, f"{name} has shape {array.shape}, but it must have shape {shape}."
    if array.dtype.kind == "O":
        try:
            array = array.astype(np.float64)
        except (TypeError, ValueError, OverflowError):
            return None, f"{name} holds {short(array.flat[0])}, which is not a number."
    return array, None


def shape_of(value):
    """The shape of an array, list or number; None for what has no shape, such as rows of unequal length."""
    try:
        return None if value is None else np.shape(value)
    except ValueError:
        return None


def same(left, right):
    """Whether two arrays agree to 9 digits: a wrong formula is further off, another order of sums is not."""
    return np.shape(left) == np.shape(right) and bool(np.allclose(left, right, rtol=1e-9, atol=1e-12))


def nothing_in(value):
    """Whether `value` is None, or a tuple or list of nothing else."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(part is None for part in value)
    return value is None


def short(value, length=60):
    """`str(value)` in one line of at most `length` characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 3] + "..."
