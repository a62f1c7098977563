"""Exercises that mark themselves, and the guesses and pictures of the notebooks.

`mine.check` judges what the learner writes: in one sentence that says "Right: ...", "Not solved yet: ...", or
names the likely mistake. Solutions stand in the notebooks alone, in folds. The modules `..._pictures` hold
drawings that would be too long for a cell.
"""

import linecache
from traceback import walk_tb

import numpy as np


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


def nothing_in(value):
    """Whether `value` is None, or a tuple or list of nothing else."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(part is None for part in value)
    return value is None


def short(value, length=60):
    """`str(value)` in one line of at most `length` characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 3] + "..."
