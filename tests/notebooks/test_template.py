"""The electives without a guess have one form; a test names the cell that breaks a rule of it, and each rule
is broken here once. The solutions of all electives solve, and their stubs are told to be not solved yet.
"""

from copy import deepcopy
from importlib import import_module
from inspect import isfunction, signature
from math import nan
from pathlib import Path

import numpy as np
import pytest
from notebooks.checkers import JUNK, formulas_of, is_refusal, judged_wrongly, names_a_mistake
from notebooks.refresh import COVER
from notebooks.template import COLLAPSED, ELECTIVES, OLD, cells_of, exercises_of, faults, reading_of, said
from sampling import one_in

EACH = pytest.mark.parametrize("path", OLD + ELECTIVES, ids=lambda path: path.stem)


@pytest.mark.parametrize("path", OLD, ids=lambda path: path.stem)
def test_a_notebook_keeps_the_form_and_takes_the_minutes_it_says(path):
    cells = cells_of(path)
    found = faults(path.name, cells)
    # a link may go to a notebook that is gone, until this one goes, too
    assert [fault for fault in found if "there is no other notebook" not in fault] == []
    assert said(cells) == 5 * round(reading_of(cells).minutes / 5)


@EACH
def test_solutions_solve_and_stubs_do_not(path):
    for exercise in exercises_of(path):
        assert exercise.sentence(exercise.solution).startswith("Right: ")
        unsolved = [exercise.sentence(code) for code in (exercise.stub, exercise.empty())]
        for sentence in (*unsolved, exercise.checker(None)):
            assert sentence.startswith("Not solved yet: ")
        if exercise.raising():
            sentence = exercise.sentence(exercise.raising())
            assert "stopped with KeyError: 'nothing', in line " in sentence
            assert " of your cell: `return left[right]`." in sentence


@pytest.mark.parametrize("path", one_in(3, OLD + ELECTIVES), ids=lambda path: path.stem)
def test_junk_is_refused_in_a_sentence(path):
    """Among it what the solution returns, with something else in the place of each number."""
    for exercise in exercises_of(path):
        right, answers = exercise.right, list(JUNK)
        if isfunction(right):
            answers += [spoiled(right, value) for value in (nan, object())]
        faults = judged_wrongly(exercise.checker, [(answer,) for answer in answers], is_refusal)
        assert not faults, "\n".join(faults)


def spoiled(function, value):
    """`function`, with `value` in the place of each number that it returns."""
    def filled(result):
        if isinstance(result, (tuple, list)):
            return type(result)(filled(part) for part in result)
        return np.full(np.shape(result), value)

    return lambda *arguments: filled(function(*arguments))


@EACH
def test_a_function_must_answer_more_than_the_first_question(path):
    """A function that is always -1 is told the first question, and the solution's answer to it."""
    for exercise in exercises_of(path):
        check, right, asked = exercise.checker, exercise.right, []

        def first_answer(*arguments):
            asked.append((arguments, right(*arguments)))
            return asked[0][1]

        if isfunction(right):
            assert check(3).startswith("Pass the function itself")
            assert "stopped with TypeError" in check(lambda: 7)
            assert not check(first_answer).startswith("Right: ")
            sentence, (arguments, answer) = check(lambda *arguments: -1), asked[0]
            if " the count is " in sentence:
                values = zip(signature(right).parameters, arguments, strict=True)
                question = ", ".join(f"{name} = {value}" for name, value in values)
                assert sentence == f"With {question} the count is {answer:g}, yours is -1."


@EACH
def test_each_wrong_formula_of_a_checker_is_told_its_own_sentence(path):
    """None of them is right in the cases that are asked, or taken for another one."""
    def told(sentence, own):
        return sentence.endswith(own) and names_a_mistake(sentence)

    for exercise in exercises_of(path):
        formulas = formulas_of(exercise.checker, exercise.right)
        faults = judged_wrongly(exercise.checker, formulas, told)
        assert not faults, "\n".join(faults)


def test_wrong_answers_to_every_exercise_are_tried():
    """Those in a table of `tests/exercises`, or the formulas of the checker itself."""
    files = (Path(__file__).parents[1] / "exercises").glob("test_exercises_*.py")
    tests = [import_module(file.stem).test_mistakes for file in files]
    in_tables = {check for test in tests for check in test.pytestmark[0].args[1]}
    for exercise in (exercise for path in OLD + ELECTIVES for exercise in exercises_of(path)):
        tried = exercise.checker in in_tables or formulas_of(exercise.checker, exercise.right)
        assert tried, exercise.checker.__name__


def markdown(text):
    return {"cell_type": "markdown", "metadata": {}, "source": text}


def code(text, metadata=None, outputs=({"text": "2"},)):
    return {"cell_type": "code", "metadata": metadata or {}, "source": text, "outputs": [*outputs]}


FIRST = """# 04 · A title

**At the end you will know**

- something.

You need nothing. About 20 minutes."""
SET = """## Exercises

**1. Add.** Write it.

<details><summary>Hint</summary>

Think.

<details><summary>Solution</summary>

```python
answer = 2
```

</details>
</details>"""
LAST = "## What to read next\n\n- [07](07_who_waits_for_whom.ipynb), and `minipipe/tiny.py`"
GOOD = [
    markdown(FIRST),
    code("import minipipe"),
    markdown("**Predict:** how many?"),
    code("yours = None\nprint(predicted(yours, 2))", COLLAPSED, [COVER, {"text": "2"}]),
    markdown(SET),
    code("answer = None\nprint(exercises.check_answer(answer))"),
    markdown(LAST),
]


def changed(place, old, new):
    """GOOD with `old` replaced by `new` in the source of one cell."""
    cells = deepcopy(GOOD)
    assert old in cells[place]["source"]
    cells[place]["source"] = cells[place]["source"].replace(old, new)
    return cells


def with_cell(place, cell):
    return GOOD[:place] + [cell] + GOOD[place + 1:]


def asked(line, answer):
    """GOOD with a line in the cell that compares a prediction with this answer."""
    said = {"text": [f"You have not predicted it: it is {answer}.\n"]}
    return with_cell(3, code(f"yours = None\n{line}\nprint(predicted(yours, T))", COLLAPSED, [COVER, said]))


def test_a_formula_or_another_number_gives_nothing_away():
    for line, answer in [
        ("assert T == 6 * 16", "96"), ("assert right is True", "True"), ("assert T == 96", "[96, 0.75]"),
        ("yours = None  # how many, as [3, 3]", "[1, 7]"),
    ]:
        assert faults("04_a_title.ipynb", asked(line, answer)) == []


BROKEN = [
    (changed(0, "# 04", "# 05"), "cell 0: it starts with '# 04 · '"),
    (changed(0, "**At the end you will know**", "You will know"), "cell 0: it lists what you will know"),
    (changed(0, "You need", "Bring"), "cell 0: it says what you need"),
    (changed(0, "About 20 minutes", "Quick"), "cell 0: it names the minutes"),
    (with_cell(3, code(GOOD[3]["source"])), "cell 3: its outputs stand below a Predict: collapse them"),
    (with_cell(3, code(GOOD[3]["source"], COLLAPSED, [COVER])), "cell 3: it shows nothing, but a Predict"),
    (with_cell(3, code(GOOD[3]["source"], COLLAPSED)), "cell 3: JupyterLab shows the first line"),
    (with_cell(1, code("import minipipe", COLLAPSED)), "cell 1: its outputs are collapsed, but no Predict"),
    (changed(2, "many?", "many? **Predict:** and how long?"), "cell 3: the cell above has two Predicts"),
    (GOOD[:3] + GOOD[4:], "cell 2: a Predict stands right above the code that answers it"),
    (changed(3, "print(predicted(yours, 2))", "print(2)"), "cell 3: a prediction `yours = None` and"),
    (changed(3, "yours = None", "yours = 2"), "cell 3: `yours` is filled"),
    *((asked(line, answer), f"cell 3: {fault}") for line, answer, fault in [
        ("assert T == 96", "96", "an assertion names what"),
        ("assert round(T, 2) == 3.15", "3.154", "an assertion names what"),
        ("assert name == 'gpipe' and T > 2", "gpipe", "an assertion names what"),
        ("assert T == 96\nassert left == 0.75", "[96, 1, 0.75]", "an assertion names the numbers"),
        ("yours = None  # in %, such as 95", "95.0", "the example beside `yours`, 95, is"),
    ]),
    (changed(2, "**Predict:**", "And"), "cell 3: it asks for `yours`, but no Predict stands above it"),
    (changed(3, GOOD[3]["source"], "print(2)"), "there is no cell with a prediction to write down"),
    (changed(2, "**Predict:**", "And"), "there is no cell with a Predict"),
    (with_cell(1, code("run", outputs=[{"data": {"text/html": "<script>", "image/png": "..."}}])),
     "cell 1: it shows text/html, which GitHub does not"),
    (with_cell(1, code("run", outputs=[{"data": {"text/plain": ["<Trace of 4 devices>"]}}])),
     "cell 1: it draws something, but the picture"),
    (changed(4, "<summary>Solution</summary>", ""), "cell 4: an exercise ends with a hint"),
    (GOOD[:5] + GOOD[5:6] * 2 + GOOD[6:], "cell 5: an exercise ends with a hint"),
    (changed(4, "**1. ", "**2. "), "the exercises have the numbers [2]: count them from 1"),
    (GOOD[:5] + GOOD[6:], "there is no cell with an exercise"),
    (changed(6, "## What to read next", "The end"), "the last cell: it starts with '## What to read next'"),
    (changed(6, "[07](07_who_waits_for_whom.ipynb)", "01"), "the last cell: it has a link to another"),
    (changed(6, "07_who_waits_for_whom", "01_two_neurons"), "the last cell: there is no other notebook"),
    (changed(6, "minipipe/tiny.py", "minipipe/large.py"), "the last cell: there is no minipipe/large.py"),
]


def test_the_cell_that_breaks_a_rule_is_named():
    assert faults("04_a_title.ipynb", GOOD) == []
    for cells, named in BROKEN:
        found = faults("04_a_title.ipynb", cells)
        assert any(fault.startswith(named) for fault in found), (named, found)
