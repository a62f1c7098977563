"""Exercises that mark themselves, and the guesses and pictures of the notebooks.

`mine.check` judges what the learner writes: in one sentence that says "Right: ...", "Not solved yet: ...", or
names the likely mistake. Solutions stand in the notebooks alone, in folds. The modules `..._pictures` hold
drawings that would be too long for a cell.
"""

import linecache
from traceback import walk_tb


def stopped(name, error):
    """Return a sentence about an error in the learner's code, with the line of the cell.

    name: what the code is called in it.
    """
    sentence = f"{name} stopped with {type(error).__name__}: {short(error, 200)}"
    for frame, number in reversed(list(walk_tb(error.__traceback__))):
        file = frame.f_code.co_filename
        if _is_a_cell(file):
            line = short(linecache.getline(file, number), 100)
            return f"{sentence}, in line {number} of your cell: `{line}`."
    return sentence


def _is_a_cell(file):
    """Return whether `file` is a cell: Python knows its lines, and no file has them."""
    entry = linecache.cache.get(file, ())
    return len(entry) == 4 and entry[1] is None  # (size, time of the last change, lines, name)


def nothing_in(value):
    """Return whether `value` is None, or a tuple or list of nothing else."""
    if isinstance(value, (tuple, list)):
        return len(value) > 0 and all(part is None for part in value)
    return value is None


def short(value, length=60):
    """Return `str(value)` in one line of at most `length` characters."""
    text = " ".join(str(value).split())
    return text if len(text) <= length else text[: length - 3] + "..."
