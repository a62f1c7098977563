"""A guess before an answer: answer, pictures and explanation stay hidden until a guess was made."""

import re

import numpy as np

from .comments import COMMENTS
from .folds import fold
from .showing import picture

ASK = "Your guess in place of None, and run the cell again (\"?\" if you have no idea)."


def guess(key, yours, right, *shows, choices=()):
    """Compare a guess with what came out; then show what belongs to it and explain it.

    key: of the question, such as "7a": the notebook and a letter. The explanation is the fold
        "Answer 7a" of that notebook; what is said of near misses is in `comments.py`.
    yours: the guess; None if there is none yet: nothing is said then; "?": no idea.
    right: what came out: a number, a word, or a list of them.
    shows: what is shown after a guess: words, traces, figures, or functions that draw them.
    choices: the words to choose from, if `right` is one of these.
    """
    if yours is None:
        print(f"{ASK} One of: {', '.join(choices)}." if choices else ASK)
        return
    if choices and yours != "?" and str(yours).strip().lower() not in {word.lower() for word in choices}:
        print(f"Choose one of: {', '.join(choices)}.")
        return
    print(verdict(yours, right, COMMENTS.get(key, {})))
    for show in shows:
        picture(show() if callable(show) else show)
    explanation = fold(int(key[:-1]), f"Answer {key}")
    try:
        from IPython.display import Markdown
    except ImportError:
        print(explanation)
    else:
        picture(Markdown(explanation))


def verdict(yours, right, comments=()):
    """Return one sentence about a guess.

    >>> verdict(33, 33), verdict(30, 33), verdict(12, 96), verdict("?", 96)
    ('Right: 33.', '33; you said 30: the right size, 9 % off.', '96; you said 12.', 'It is 96.')
    >>> verdict([96, 0.7], [96, 0.75])
    '[96, 0.75]; you said [96, 0.7]: 1 of 2 right.'
    >>> verdict("lower", ["lower"])
    "Right: ['lower']."
    >>> verdict(350, 348)
    'Nearly: 350 for 348, right to 1 %.'
    """
    right, yours = plain(right), plain(yours)
    if isinstance(yours, str) and not isinstance(right, str):
        yours = _written_out(yours)
    if yours == "?":
        return f"It is {right}."
    if isinstance(right, list) and not isinstance(yours, list):
        yours = [yours]
    comment = next((words for other, words in dict(comments).items() if plain(other) == yours), None)
    if is_met(yours, right):
        text = f"Right: {right}."
    elif isinstance(right, list):
        pairs = list(zip(yours, right)) if isinstance(yours, list) and len(yours) == len(right) else []
        counted = f": {sum(is_met(*pair) for pair in pairs)} of {len(right)} right" if pairs else ""
        text = f"{right}; you said {yours}{counted}."
    else:
        text = _of_a_number(yours, right)
    return text if comment is None else f"{text} {comment}"


def plain(value):
    """Return `value` without NumPy's types: floats with four digits, tuples as lists."""
    if isinstance(value, (np.ndarray, np.generic)):
        value = value.tolist()
    if isinstance(value, (list, tuple)):
        return [plain(part) for part in value]
    return float(f"{value:.4g}") if isinstance(value, float) else value


def is_met(yours, right):
    """Return whether a guess is right: whole numbers and words exactly, floats to two percent.

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


def _written_out(text):
    """Return the number or list that a text spells, with units or without; else the text.

    >>> _written_out("12 ticks"), _written_out("1, F0"), _written_out("[96, 0.75]"), _written_out("1,437")
    (12, [1, 'F0'], [96, 0.75], 1437)
    >>> _written_out("150 million times"), _written_out("1.5 thousand")
    (150000000, 1500.0)
    """
    text = text.strip()
    if not text.startswith(("[", "(")):
        text = re.sub(r"(?<=\d),(?=\d{3}(?!\d))", "", text)
    parts = [_number_in(part.strip(" '\"")) for part in text.strip("[]()").split(",")]
    return parts if len(parts) > 1 else parts[0]


def _number_in(text):
    """Return the number at the start of a text, if only a unit comes after it; else the text."""
    found = re.fullmatch(r"(-?\d*\.?\d+(?:e-?\d+)?)(?: ?%| of \d+| ([a-zA-Z]+)[a-zA-Z ]*)?", text)
    if found is None:
        return text
    times = {"thousand": 10**3, "million": 10**6, "billion": 10**9}.get(str(found[2]).lower(), 1)
    return times * (int(found[1]) if found[1].lstrip("-").isdigit() else plain(float(found[1])))


def _of_a_number(yours, right):
    """Return how far a number is from the right one; of anything else, what both are."""
    try:
        off = abs(yours - right) / abs(right)
    except (TypeError, ZeroDivisionError):
        return f"{right}; you said {yours}."
    if off <= 0.02:
        return f"Nearly: {yours} for {right}, right to {max(1, round(100 * off))} %."
    if off <= 0.2:
        return f"{right}; you said {yours}: the right size, {round(100 * off)} % off."
    return f"{right}; you said {yours}."
