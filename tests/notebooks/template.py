"""The form of the electives that have no `guess` yet: what their first and last cells say, predictions with
collapsed outputs, exercises with a hint and, behind it, a solution. `faults(name, cells)` names each cell
that breaks a rule. The form of all others is in `core.py`. `reading_of` says how long any takes to read.
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

from notebooks.refresh import COVER

from exercises import predicted

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
PLANNED = [                                      # the electives in the form of the core: links may go there
    "13_what_does_a_kernel_ask_everywhere", "14_why_not_fully_connected", "15_how_does_lenet_learn",
    "16_what_must_not_happen_twice", "17_how_does_attention_hand_back_blame", "18_can_a_transformer_be_cut",
    "19_what_did_each_schedule_add", "20_what_if_links_are_slow", "21_what_if_nobody_waits",
    "22_where_do_you_cut", "23_what_fits_and_what_for", "24_how_do_n_devices_agree_on_one_sum",
    "25_what_can_copies_hide", "26_how_is_a_layer_split", "27_which_split_for_my_cluster",
    "28_k_times_the_samples_k_times_the_rate", "29_which_line_is_wrong", "30_what_may_run_at_once",
    "31_what_is_a_clock_worth",
]
CORE = [path for path in NOTEBOOKS if path.name < "13"]
ELECTIVES = [path for path in NOTEBOOKS if path.stem in PLANNED]
OLD = [path for path in NOTEBOOKS if path not in CORE + ELECTIVES]
COLLAPSED = {"collapsed": True, "jupyter": {"outputs_hidden": True}}  # the classic view reads the first
PREDICT = "**Predict:**"
EXERCISE = re.compile(r"^print\((\w+\.)?check_", re.MULTILINE)
STUB = re.compile(r"^    +\.\.\.$", re.MULTILINE)  # a body that the learner writes
SOLVED = re.compile(
    r"^\*\*(?P<number>\d+)\. .+\n\n"
    r"<details><summary>Hint</summary>\n\n(?P<hint>(?:(?!<details>).)+)\n\n"
    r"<details><summary>Solution(?:: \w+)?</summary>\n\n"
    r"(?:(?!```).)*```python\n(?P<solution>(?:(?!```).)+)```\n\n"
    r"</details>\n</details>\Z",
    re.MULTILINE | re.DOTALL,
)
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


def is_prediction(cell):
    return cell["cell_type"] == "markdown" and PREDICT in source(cell)


def faults(name, cells):
    """What breaks a rule in a notebook with that file name: a list of "cell number: what"."""
    found = [*first_cell(name, cells[0]), *last_cell(name, cells[-1])]
    for place, cell in enumerate(cells):
        before = cells[place - 1] if place else {"cell_type": "none", "source": []}
        found += [f"cell {place}: {fault}" for fault in [*predictions(before, cell), *pictures(cell)]]
        if is_exercise(cell):
            found += [f"cell {place - 1}: {fault}" for fault in exercises(before)]
        if is_prediction(cell) and (place + 1 == len(cells) or cells[place + 1]["cell_type"] != "code"):
            found.append(f"cell {place}: a Predict stands right above the code that answers it")
    numbers = [int(SOLVED.search(source(cell))["number"]) for cell in cells if SOLVED.search(source(cell))]
    if numbers != list(range(1, len(numbers) + 1)):
        found.append(f"the exercises have the numbers {numbers}: count them from 1")
    for what, present in [("a Predict", any(map(is_prediction, cells))),
                          ("a prediction to write down (`yours = None`)",
                           any("yours = None" in source(cell) for cell in cells)),
                          ("an exercise", any(map(is_exercise, cells)))]:
        if not present:
            found.append(f"there is no cell with {what}")
    return found


def first_cell(name, cell):
    return told_first(cell, {
        f"starts with '# {name[:2]} · '": rf"\A# {name[:2]} · \S",
        "lists what you will know, below '**At the end you will know**'":
            r"^\*\*At the end you will know\*\*\n\n- ",
    })


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
        there = other in PLANNED or (ROOT / "notebooks" / f"{other}.ipynb").exists()
        if not there or f"{other}.ipynb" == name:
            yield f"{last}: there is no other notebook {other}.ipynb"
    for file in re.findall(r"`((?:minipipe|tests|notebooks)/[\w/]+(?:\.py)?)`", text):
        if not (ROOT / file).exists():
            yield f"{last}: there is no {file}"


def predictions(before, cell):
    """The faults of a cell as far as they concern its outputs, and the prediction above."""
    hidden = {key: cell["metadata"].get(key) for key in COLLAPSED} == COLLAPSED
    shown = not any(key in cell["metadata"] for key in COLLAPSED)
    asked = cell["cell_type"] == "code" and is_prediction(before)
    if source(before).count(PREDICT) > 1:
        yield "the cell above has two Predicts: the first has nothing below it"
    if asked and not [output for output in cell["outputs"] if output != COVER]:
        yield "it shows nothing, but a Predict stands above it"
    if asked and cell["outputs"][:1] != [COVER]:
        yield f"JupyterLab shows the first line of what is folded away: let refresh.py write {COVER['data']}"
    if asked and not hidden:
        yield f"its outputs stand below a Predict: collapse them, with the metadata {COLLAPSED}"
    if not asked and not shown:
        yield "its outputs are collapsed, but no Predict stands above it"
    if cell["cell_type"] != "code":
        return
    n_written, n_compared = (len(re.findall(pattern, source(cell), re.MULTILINE))
                             for pattern in (r"\byours\b.* = None\b", r"\bpredicted\("))
    if (n_written > 0) != (n_compared > 0):
        yield "a prediction `yours = None` and its comparison `predicted(yours, ...)` stand in one cell"
    if n_written and not asked:
        yield "it asks for `yours`, but no Predict stands above it"
    if "yours = " in source(cell) and not n_written:
        yield "`yours` is filled: it starts as None"
    yield from away(cell)


def away(cell):
    """The faults of a cell that tells what it asks for: in an assertion, or as the example beside `yours`."""
    texts = "".join("".join(output.get("text", "")) for output in cell["outputs"])
    answer = re.search(r"You have not predicted it: it is (.*)\.$", texts, re.MULTILINE)
    if not answer:
        return
    answer = value_of(answer[1])
    compared = [value_of(ast.unparse(side)) for node in ast.walk(ast.parse(without_magic(source(cell))))
                if isinstance(node, ast.Assert) for side in sides_of(node)]
    if any(alike(side, answer) for side in compared):
        yield "an assertion names what is to be predicted: assert a formula, or assert it later"
    parts = [part for part in answer if long(part)] if isinstance(answer, list) else []
    if parts and all(any(alike(side, part) for side in compared) for part in parts):
        yield "an assertion names the numbers to be predicted: assert a formula, or assert them later"
    example = re.search(r"^yours = None +#.*\bas ([^,:;]+|\[.*\])$", source(cell), re.MULTILINE)
    if example and met(value_of(example[1]), answer):
        yield f"the example beside `yours`, {example[1]}, is what is to be predicted: take another one"


def sides_of(assertion):
    """What the comparisons of an assertion compare, each as a node; a tuple's parts, too."""
    for node in ast.walk(assertion):
        if isinstance(node, ast.Compare):
            for side in (node.left, *node.comparators):
                yield side
                yield from side.elts if isinstance(side, ast.Tuple) else ()


def value_of(text):
    """The value that `text` writes out in Python; the text itself if it does not."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def long(value):
    """Whether a value has more to say than one digit, which many a formula has, too."""
    return not isinstance(value, (int, float)) or abs(value) >= 10 or value != int(value)


def alike(side, answer):
    """Whether a value written into an assertion is the answer, or as near as a prediction has to be."""
    return long(answer) and isinstance(side, (str, list, tuple, int, float)) and met(side, answer)


def met(yours, answer):
    return predicted(yours, answer).startswith("As you predicted")


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


def exercises(before):
    """The faults of the cell in which an exercise is set."""
    if before["cell_type"] != "markdown" or not SOLVED.search(source(before)):
        yield ("an exercise ends with a hint and, behind it, a solution: '**1. Title.** ...', "
               "'<details><summary>Hint</summary>', '<details><summary>Solution</summary>' and '```python', "
               "with empty lines between, and '</details>' twice")


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
        sum(map(is_prediction, cells)) + sum(len(GUESS.findall(code)) for code in codes),
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
            check, solution = ast.unparse(judged.value.args[0]), SOLVED.search(source(before))["solution"]
            found.append(Exercise(imports, stub, check, solution))
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
