"""The marks of a learner's file: one for each part, whatever the file is."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import marks
import pytest
from test_my_pipeline import course

from exercises import mine
from exercises.judging import all_parts, part_named

pytestmark = pytest.mark.slow  # each mark is made in another process, which imports the package
NAMES = {part.name for part in all_parts() if part.kept}


def part(title, old="", new="", owner="mine"):
    """Return a part of a file, with its mark, as the course solves it but for one edit."""
    code = part_named(title).solution
    assert old in code
    return f"# {title}: {owner}, or so\n{code.replace(old, new, 1)}\n"


HALF_FINISHED = "\n\n".join([
    mine.HEAD, "def count(M):\n    return range(M)\n\n\ndef helper():\n    ...\n",
    part("Linear"), part("ReLU", "class ReLU:", "class ReLU"), part("cost", owner="lent"),
    "# Stage: mine\n" + part_named("Stage").solution, part("Stage with recompute", owner="lent"),
    part("clock", "max(free[device], done[need])", "free[device]"),
    "def needs(device, kind, i, K):\n    ...\n",
    part("naive", "range(M)", "count(M)"), part("gpipe", "return ", "while True:\n        pass\n    return "),
    part("run", "    m = m", "    raise SystemExit(3)\n    m = m"),
    part("step", "    for", "    import nothing\n    for"),
    part("copies"), "left = (",
])
SAID = {
    "Linear": "Right: ", "ReLU": "This is not Python: expected ':', in line", "cost": "Lent by the course.",
    "Stage": "Right: ", "clock": "Your actions start as soon as the device is free",
    "needs": "Not solved yet: the body of `needs` is empty.", "naive": "Right: ",
    "gpipe": "`gpipe` finds no end", "run": "It stops with SystemExit: 3.",
    "step": "`step` stopped with ModuleNotFoundError: No module named 'nothing', in line",
    "one_f_one_b": "Not there: notebook 09 asks for it.", "copies": "Right: ",
    "micro_batches": "Not there: notebook 05 asks for it.",
}


def test_a_half_finished_file_gets_a_mark_and_a_sentence_a_part(tmp_path):
    """From the command line: 4 of 13, no traceback, and the numbers of lines are those of the file."""
    file, target = tmp_path / "theirs.py", tmp_path / "marks.json"
    file.write_text(HALF_FINISHED)
    command = [sys.executable, "-m", "pytest", "tests/test_my_pipeline.py", "--marks", str(target)]
    env = os.environ | {"MY_PIPELINE": str(file)}
    done = subprocess.run(command, cwd=Path(__file__).parents[2], env=env, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "" and "Traceback" not in done.stdout
    found = json.loads(target.read_text())
    assert (found["right"], found["of"]) == (4, 13) and found["file"].startswith("This is not Python")
    assert found["parts"].keys() == SAID.keys() == NAMES
    for name, words in SAID.items():
        given = found["parts"][name]
        assert given["sentence"].startswith(words) and given["right"] == (words == "Right: "), (name, given)
        assert f": {given['sentence']}\n" in done.stdout
    broken = HALF_FINISHED.splitlines().index("class ReLU") + 1
    assert f"in line {broken}: `class ReLU`" in found["parts"]["ReLU"]["sentence"]


def test_a_whole_file_is_right_and_each_bug_costs_one_mark(monkeypatch):
    """Without marks in it; what cannot be seen line by line is ended after some seconds."""
    assert marks.marks_of(course())["right"] == 13
    monkeypatch.setattr(marks, "SECONDS", 10)
    code = course(gpipe=("    return", "    sum(range(10**13))\n    return"))
    found = marks.marks_of(code + "\n\nwhile True:\n    pass\n")
    assert found["right"] == 12 and "finds no end" in found["parts"]["gpipe"]["sentence"]
    assert found["file"].startswith("It finds no end")


@pytest.mark.parametrize("text", ["", "# nothing yet\n", "{}", "\0", "def gpipe(", "if True:\n  x = (\n"])
def test_a_file_without_a_part_has_no_right_ones(text):
    for name in NAMES:
        sentence = marks.guarded(partial(marks.sentence_on, name), text)
        assert sentence.startswith("This is not Python" if f"def {name}(" in text else "Not there: ")
