"""The cells of the notebooks: how long they take to read, their exercises, and what their first and last
cells and their pictures have in common. The form of a whole notebook is in `core.py`.
"""

import ast
import json
import linecache
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

from exercises.folds import CODE, FOLD

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
CORE = [path for path in NOTEBOOKS if path.name < "13"]
ELECTIVES = [path for path in NOTEBOOKS if path not in CORE]
EXERCISE = re.compile(r"^print\((\w+\.)?check_", re.MULTILINE)
STUB = re.compile(r"^    +\.\.\.$", re.MULTILINE)  # a body that the learner writes
HINT = re.compile(r"<details><summary>Hint</summary>.*</details>\n</details>", re.DOTALL)
TAGS = re.compile(r"</?(details|summary)>")
FIRST = "# Run this cell first"                  # it finds the project, and is the same in all
GUESS = re.compile(r"^ *guess\(", re.MULTILINE)
DRAWN = re.compile(r"<(Figure|Trace|Schedule)\b")
ASKED = ("IPython.display",)   # what a solution does without: the tests run where it is not installed


def cells_of(path):
    return json.loads(path.read_text(encoding="utf-8"))["cells"]


def source(cell):
    return "".join(cell["source"])


def is_exercise(cell):
    return cell["cell_type"] == "code" and any(kind.search(source(cell)) for kind in (EXERCISE, STUB))


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


# ---------------------------------------------------------------- solutions


@dataclass
class Exercise:
    """imports: the code that the notebook begins with; stub: what the learner finds; check: the call that
    judges an answer; solution: the answer that the notebook gives.
    """

    imports: str
    stub: str
    check: str
    solution: str

    def sentence(self, answer):
        """What the checker says when `answer` is the code above it."""
        return eval(self.check, run(self.imports + "\n" + answer))

    @cached_property
    def checker(self):
        """The function that judges an answer."""
        return eval(ast.unparse(ast.parse(self.check).body[0].value.func), run(self.imports))

    @cached_property
    def right(self):
        """The answer that the solution hands to the checker."""
        judged, = ast.parse(self.check, mode="eval").body.args
        return eval(ast.unparse(judged), run(self.imports + "\n" + self.solution))

    def empty(self):
        """An answer with None for each function and each value of the stub."""
        names = [name for node in ast.parse(self.stub).body
                 for name in ([node.name] if hasattr(node, "name") else map(ast.unparse, node.targets))]
        return "\n".join(f"{name} = None" for name in names)

    def raising(self):
        """The stub with an error in each of its functions; None if it has none."""
        tree = ast.parse(self.stub)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        for function in functions:
            function.body = ast.parse("left, right = {}, 'nothing'\nreturn left[right]").body
        return ast.unparse(tree) if functions else None


@cache
def exercises_of(path):
    """All `Exercise`s of a notebook whose checkers answer in a sentence, `print(check_rows(rows))`."""
    cells = cells_of(path)
    codes = [source(cell) for cell in cells if cell["cell_type"] == "code"]
    imports = "\n".join(imports_of(code) for code in codes if not code.startswith(FIRST))
    found = []
    for before, cell in zip(cells, cells[1:]):
        if cell["cell_type"] == "code" and EXERCISE.search(source(cell)):
            body = ast.parse(source(cell)).body
            judged = next(node for node in body if EXERCISE.match(ast.unparse(node)))
            stub = "\n".join(map(ast.unparse, body[:body.index(judged)]))
            check = judged.value.args[0]
            title = f"Solution: {ast.unparse(check.args[0])}"
            [fold] = [fold for fold in FOLD.finditer(source(before)) if fold["title"] == title]
            found.append(Exercise(imports, stub, ast.unparse(check), CODE.search(fold["body"])[1]))
    return found


def imports_of(code):
    """The lines of a cell that import something that the tests have."""
    nodes = [node for node in ast.parse(without_magic(code)).body
             if isinstance(node, (ast.Import, ast.ImportFrom))]
    return "\n".join(ast.unparse(node) for node in nodes if getattr(node, "module", None) not in ASKED)


def run(code, names=None):
    """The names that `code` defines, beside those given, run as Jupyter runs a cell: Python knows its lines,
    though there is no file.
    """
    cell = f"<cell {abs(hash(code))}>"
    linecache.cache[cell] = (len(code), None, code.splitlines(keepends=True), cell)
    names = {"__name__": "notebook"} if names is None else names
    exec(compile(code, cell, "exec"), names)
    return names


@cache
def solutions(number):
    """What the solutions in the notebook with that number define, each under its name.

    >>> solutions("28").rate(5, 5, 0.5, 8)
    4.0
    """
    paths = [path for path in NOTEBOOKS if path.name.startswith(number)]
    found = {}
    for exercise in (exercise for path in paths for exercise in exercises_of(path)):
        found |= run(exercise.imports + "\n" + exercise.solution)
    return SimpleNamespace(**found)
