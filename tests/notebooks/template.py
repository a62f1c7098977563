"""The cells of the notebooks: how long they take to read, their exercises, and what their first and last
cells and their pictures have in common. The form of a whole notebook is in `core.py`.
"""

import ast
import json
import linecache
import re
from pathlib import Path
from typing import NamedTuple


ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CORE = [path for path in NOTEBOOKS if path.name < "13"]
STUB = re.compile(r"^    +\.\.\.$", re.MULTILINE)  # a body that the learner writes
HINT = re.compile(r"<details><summary>Hint</summary>.*</details>\n</details>", re.DOTALL)
TAGS = re.compile(r"</?(details|summary)>")
FIRST = "# Run this cell first"                  # it finds the project, and is the same in all
GUESS = re.compile(r"^ *guess\(", re.MULTILINE)
DRAWN = re.compile(r"<(Figure|Trace|Schedule)\b")


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def is_exercise(cell):
    return cell["cell_type"] == "code" and STUB.search(source(cell)) is not None


def told_first(cell, rules):
    """The faults of a first cell: of these rules, {what it does: pattern}, and of those of all notebooks."""
    rules |= {
        "says what you need, in a sentence that begins with 'You need'": r"\bYou need ",
        "names the minutes that it takes, as 'About 20 minutes'": r"\bAbout \d+\s+minutes\b",
    }
    return [f"cell 0: it {rule}" for rule, pattern in rules.items()
            if cell["cell_type"] != "markdown" or not re.search(pattern, source(cell), re.MULTILINE)]


def last_cell(name, cell):
    text, last = source(cell), "the last cell"
    if cell["cell_type"] != "markdown" or not text.startswith("## What to read next\n"):
        yield f"{last}: it starts with '## What to read next'"
    others = re.findall(r"\]\((\w+)\.ipynb\)", text)
    if not others:
        yield f"{last}: it has a link to another notebook"
    for other in others:
        if not (ROOT / "notebooks" / f"{other}.ipynb").exists() or f"{other}.ipynb" == name:
            yield f"{last}: there is no other notebook {other}.ipynb"
    for file in re.findall(r"`((?:minipipe|tests|notebooks)/[\w/]+(?:\.py)?)`", text):
        if not (ROOT / file).exists():
            yield f"{last}: there is no {file}"


def value_of(text):
    """The value that `text` writes out in Python; the text itself if it does not."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def long(value):
    """Whether a value has more to say than one digit, which many a formula has, too."""
    return not isinstance(value, (int, float)) or abs(value) >= 10 or value != int(value)


def without_magic(code):
    return "\n".join(line for line in code.splitlines() if not line.startswith("%"))


def pictures(cell):
    """The faults of a cell's outputs where they are looked at without scripts, as on GitHub."""
    for output in cell.get("outputs", []):
        data = output.get("data", {})
        scripts = sorted(set(data) - {"text/plain", "image/png"})
        if scripts:
            yield f"it shows {', '.join(scripts)}, which GitHub does not: leave the picture and the text"
        if DRAWN.match("".join(data.get("text/plain", ""))) and "image/png" not in data:
            yield "it draws something, but the picture of it is not in the file"


# ---------------------------------------------------------------- the time to read


class Reading(NamedTuple):
    """How much there is of each: cells, words, lines of given code, predictions, exercises.

    The explanation of a prediction counts, which is read once it was made; hints, solutions, what the
    learner writes and the cell that finds the project do not.
    """

    cells: int
    words: int
    lines: int
    predictions: int
    exercises: int

    @property
    def minutes(self):
        """150 words or 15 lines of code a minute, 1.5 minutes for each prediction, 5 for each exercise."""
        return self.words / 150 + self.lines / 15 + 1.5 * self.predictions + 5 * self.exercises


def reading_of(cells):
    """The `Reading` of a notebook with these cells."""
    texts = [TAGS.sub("", HINT.sub("", source(cell))) for cell in cells if cell["cell_type"] == "markdown"]
    codes = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    given = [source(cell) for cell in cells if cell["cell_type"] == "code" and not is_exercise(cell)]
    given = [code for code in given if not code.startswith(FIRST)]
    return Reading(
        len(cells), sum(len(text.split()) for text in texts),
        sum(bool(line.strip()) for code in given for line in code.splitlines()),
        sum(len(GUESS.findall(code)) for code in codes),
        sum(map(is_exercise, cells)),
    )


def said(cells):
    """The minutes that the first cell of a notebook names; 0 if it names none."""
    found = re.search(r"\bAbout (\d+)\s+minutes\b", source(cells[0]))
    return int(found[1]) if found else 0


def run(code, names=None):
    """The names that `code` defines, beside those given, run as Jupyter runs a cell: Python knows its lines,
    though there is no file.
    """
    cell = f"<cell {abs(hash(code))}>"
    linecache.cache[cell] = (len(code), None, code.splitlines(keepends=True), cell)
    names = {"__name__": "notebook"} if names is None else names
    exec(compile(code, cell, "exec"), names)
    return names
