"""The form of the notebooks: a question, a guess, the learner's own code, a picture of it.

`faults(name, cells)` names each cell that breaks a rule. The core, 00 to 12, and the electives, 13 and on,
differ in their budgets alone.
"""

import ast
import re

from notebooks import template
from notebooks.template import (
    GUESS, HINT, is_exercise, last_cell, long, reading_of, said, source, told_first, value_of, without_magic,
)

from exercises.folds import FOLD
from exercises.predict import ASK, plain

# most words, lines and minutes by the rule of `Reading`; fewest and most guesses and exercises
BUDGET = {"words": 750, "lines": 45, "minutes": 23, "guesses": (2, 4), "exercises": (1, 2)}
ELECTIVE = {"words": 1350, "lines": 80, "minutes": 35, "guesses": (3, 8), "exercises": (0, 2)}
START = BUDGET | {"minutes": 12, "guesses": (0, 4), "exercises": (0, 2)}
MEASURED, SLOWER = {7: 45, 8: 45}, 1.75                 # the core takes 8 hours, not the rule's 4.5
ANSWER = re.compile(r"\A\*\*(?P<answer>.+?)\*\*", re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\([^)]*\)")
CHECKED = re.compile(  # the name of what the learner writes, and which version of it, as in "with recompute"
    r"^(?P<name>\w+) = (?:mine\.check|check_\w+)\((?P=name)\b(?:, \"(?P<variant>[\w ]+)\")?", re.MULTILINE)
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e-?\d+)?")


def faults(name, cells):
    """What breaks a rule in a notebook with that file name: a list of "cell number: what"."""
    number = int(name[:2])
    found = [*first_cell(number, cells[0]), *last_cell(name, cells[-1]), *budget(number, cells)]
    keys = [guess.args[0].value for cell in cells for guess in guesses_in(cell)]
    wanted = [f"{number}{letter}" for letter in "abcdefghij"[:len(keys)]]
    if keys != wanted:
        found.append(f"the guesses are called {keys}: call them {wanted}")
    for place, cell in enumerate(cells):
        after = cells[place + 1] if place + 1 < len(cells) else None
        before = cells[place - 1] if place else None
        rules = [*guesses(cell, after), *pictures(cell), *stubs(before, cell)]
        found += [f"cell {place}: {fault}" for fault in rules]
    return found + [*told(cells)]


def first_cell(number, cell):
    """The faults of the cell with the title."""
    text = re.sub(r"\]\([^)]*\)", "]", source(cell))           # of links, the words
    yield from told_first(cell, {
        f"starts with '# {number:02d} · ' and a question": rf"\A# {number:02d} · .*\?$",
        "has a sentence that begins with '**The idea:**'": r"^\*\*The idea:\*\* \S",
    } | ({} if number < 13 else {"says what 'you will know'": r"[Yy]ou will know"}))
    needs = re.search(r"\bYou need (.*?)\.", text, re.DOTALL)
    later = [other for other in re.findall(r"\b\d\d\b", needs[1]) if int(other) >= number] if needs else []
    if later:
        yield f"cell 0: it needs {later[0]}, which comes later: 'needs' points backwards"


def budget(number, cells):
    """What is too long: words, given lines, minutes; or a number of guesses or exercises that tires."""
    reading = reading_of(cells)
    most = ELECTIVE if number > 12 else BUDGET if number else START
    for what in ("words", "lines", "minutes"):
        if getattr(reading, what) > most[what]:
            yield f"it has {getattr(reading, what):.1f} {what}: {most[what]} at most"
    measured = MEASURED.get(number, SLOWER * reading.minutes)
    if said(cells) != 5 * round(measured / 5):
        yield f"it says {said(cells)} minutes, and takes {measured:.1f}"
    for what, found in (("guesses", reading.predictions), ("exercises", reading.exercises)):
        if not most[what][0] <= found <= most[what][1]:
            yield f"it has {found} {what}: from {most[what][0]} to {most[what][1]}"


def guesses_in(cell):
    """The calls of `guess` in a cell, as nodes."""
    if cell["cell_type"] != "code" or not GUESS.search(source(cell)):
        return []
    tree = ast.parse(without_magic(source(cell)))
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call)]
    return [node for node in calls if ast.unparse(node.func) == "guess"]


def guesses(cell, after):
    """The faults of a cell that asks for a guess, and of the fold after it."""
    for node in guesses_in(cell):
        key = node.args[0].value
        if ast.unparse(node.args[1]) != "None":
            yield f"guess {key} is filled: it starts as None"
        if is_literal(node.args[2]):
            yield f"guess {key} has its answer written down: compute it"
        title = f"Answer {key}"
        if after is None or not source(after).startswith(f"<details><summary>{title}</summary>\n\n**"):
            yield f"guess {key} is followed by a fold '{title}' that begins with the answer in bold"
        printed = ["".join(output.get("text", "")) for output in cell["outputs"]]
        if any(not text.startswith(ASK) for text in printed) or len(printed) != 1:
            yield f"what is saved below guess {key} is its prompt, and nothing else"


def is_literal(node):
    """Whether an expression is written out, so that it can be read."""
    try:
        ast.literal_eval(node)
    except ValueError:
        return False
    return True


def answers_of(cells):
    """{key: the bold answer} of all folds."""
    texts = [source(cell) for cell in cells if cell["cell_type"] == "markdown"]
    folds = [fold for text in texts for fold in FOLD.finditer(text)]
    found = {fold["title"]: ANSWER.match(fold["body"].strip()) for fold in folds}
    return {title.removeprefix("Answer "): bold["answer"] for title, bold in found.items()
            if title.startswith("Answer ") and bold}


def agrees(answer, right):
    """Whether a bold answer names what came out: numbers to two percent, words as they are."""
    right = plain(right)
    if isinstance(right, str):
        return right.lower() in answer.lower()
    wanted = right if isinstance(right, list) else [right]
    text = answer if isinstance(right, list) else answer.replace(",", "")  # 8,314 is one number
    numbers = [float(number) for number in NUMBER.findall(text)]
    return all(part.lower() in answer.lower() if isinstance(part, str)
               else any(abs(number - part) <= 0.02 * abs(part) for number in numbers) for part in wanted)


def told(cells):
    """The answers that stand outside folds, in text, code or outputs: numbers, and lists as written."""
    open_texts = []
    for cell in cells:
        text = source(cell)
        if cell["cell_type"] == "markdown":
            text = LINK.sub("", FOLD.sub("", HINT.sub("", text)))
        open_texts += [text, *("".join(output.get("text", "")) for output in cell.get("outputs", []))]
    for key, answer in answers_of(cells).items():
        shown = answer.rstrip(".") if answer.startswith("[") else answer.split()[0].rstrip(".")
        if not long(value_of(shown)) or isinstance(value_of(shown), str):
            continue
        for text in open_texts:
            if re.search(rf"(?<![\d.]){re.escape(shown)}(?![\d.]*\d)", text):
                yield f"the answer to guess {key}, {answer}, stands outside its fold: {text[:60]!r}"


def pictures(cell):
    """The faults of a cell's pictures: seen without scripts, and with words for whoever cannot see them."""
    yield from template.pictures(cell)
    for output in cell.get("outputs", []):
        words = output.get("metadata", {}).get("image/png", {}).get("alt", "")
        if "image/png" in output.get("data", {}) and len(words) < 30:
            yield "its picture has no words: picture(..., 'what is to be seen')"


def stubs(before, cell):
    """The faults of a cell in which the learner writes, and of the cell that asks for it."""
    if not is_exercise(cell):
        return
    checked = [*CHECKED.finditer(source(cell))]
    if not checked:
        yield "an exercise ends with its check: `needs = mine.check(needs)`"
    for found in checked:
        title = f"Solution: {found['name']} {found['variant'] or ''}".strip()
        text = "" if before is None else source(before)
        if not HINT.search(text) or f"<summary>{title}</summary>" not in text:
            yield f"the cell above has a hint and, behind it, a fold '{title}'"


def code_of(cells):
    """What the code cells hold, in order."""
    return [source(cell) for cell in cells if cell["cell_type"] == "code"]
