"""The notebooks: their form, with each rule broken once, and their answers, those of a run."""

import os
import re
import subprocess
import sys
from copy import deepcopy

import numpy as np
import pytest
from notebooks.core import agrees, answers_of, code_of, faults
from notebooks.template import CORE, NOTEBOOKS, cells_of, run, source

import minipipe as mp
from exercises import mine, predict
from exercises.comments import COMMENTS
from exercises.folds import CODE, fold, solution
from exercises.predict import ASK
from exercises.showing import picture

EACH = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


@EACH
def test_a_notebook_keeps_the_form(path):
    assert faults(path.name, cells_of(path)) == []


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    """A file of nobody's, in a folder of its own; and the one that was there before, which stays."""
    monkeypatch.setenv("MY_PIPELINE", str(tmp_path / "my_pipeline.py"))
    return mine.path()


@pytest.mark.slow  # runs the cells of a notebook, some of which train
@EACH
def test_bold_answers_match_a_run(path, own_file, monkeypatch):
    """And every assertion holds, with nobody's answers and with no guess."""
    pytest.importorskip("IPython", reason="needs the notebooks extra: pip install '.[test,notebooks]'")
    found = {}

    def note(key, yours, right, *shows, **words):
        found[key] = right

    monkeypatch.setattr(predict, "guess", note)
    names = {"__name__": "__main__"}
    for code in code_of(cells_of(path)):
        run(code, names)
    answers = answers_of(cells_of(path))
    assert answers.keys() == found.keys()
    for key, right in found.items():
        assert agrees(answers[key], right), f"guess {key}: the fold says {answers[key]}, the run {right}"


def test_the_first_cell_finds_the_project_or_says_where_to_start(tmp_path):
    """From its own folder, from others of the project, and from elsewhere; it is the same in all."""
    [code] = {code_of(cells_of(path))[0] for path in NOTEBOOKS}
    root = PATH.parents[1]
    asked = "print(find_spec('exercises').origin, bool(find_spec('minipipe')))"
    command = [sys.executable, "-c", f"{code}\n{asked}"]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    for folder in (root / "notebooks", root, root / "tests" / "notebooks", tmp_path):
        ended = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
        if folder == tmp_path:
            assert "ImportError: this notebook needs the project around it: start Jupyter in" in ended.stderr
        else:
            assert ended.stdout == f"{mine.FOLDER / 'exercises' / '__init__.py'} True\n", ended.stderr


def test_a_skeleton_is_its_solution_with_two_blanks():
    found = []
    for path in CORE:
        for text in (source(cell) for cell in cells_of(path)):
            for title in re.findall("<summary>Skeleton: (.+)</summary>", text):
                number = int(path.name[:2])
                skeleton = CODE.search(fold(number, f"Skeleton: {title}"))[1]
                pattern = re.escape(skeleton).replace("____", "(.+)")
                assert re.fullmatch(pattern, solution(number, title)) and skeleton.count("____") == 2, title
                found.append(title)
    assert found == ["clock", "run", "sent"]


def test_a_run_is_shown_in_ticks_without_four_bubbles(monkeypatch):
    display = pytest.importorskip("IPython.display", reason="needs the notebooks extra")
    shown = []
    monkeypatch.setattr(display, "display", lambda thing, metadata: shown.append(thing))
    trace = mp.simulate(mp.schedules.gpipe(2, 2))
    picture(trace, "two rows")
    assert "<dt>bubble" in trace._repr_html_() and repr(shown[0]) == repr(trace)
    assert "<dt>bubble" not in shown[0]._repr_html_() and "9 ticks" in shown[0]._repr_html_()
    assert shown[0]._repr_png_() == trace._repr_png_()


@pytest.fixture
def no_folds(monkeypatch):
    monkeypatch.setattr(predict, "fold", lambda number, title: "why")
    monkeypatch.setitem(sys.modules, "IPython.display", None)  # as where it is not installed


def test_the_answer_is_shown_after_a_guess_and_not_before(capsys, no_folds, monkeypatch):
    """The verdict, what belongs to it, and the explanation of the fold."""
    monkeypatch.setattr(predict, "fold", lambda number, title: f"fold {number}, {title}")
    shown = []
    predict.guess("7b", None, 96, lambda: shown.append(1))
    assert capsys.readouterr().out == ASK + "\n" and shown == []
    predict.guess("7b", 90, 96, lambda: shown.append(1))
    assert capsys.readouterr().out == "96; you said 90: the right size, 6 % off.\nfold 7, Answer 7b\n"
    assert shown == [1]


def test_a_near_miss_gets_a_remark_that_no_cell_shows(capsys, no_folds):
    """Each remark belongs to a question of a notebook, in whose cells it does not stand."""
    predict.guess("8b", 28, 29)
    assert capsys.readouterr().out.startswith("29; you said 28: the right size, 3 % off. With 28 it")
    codes = ["\n".join(code_of(cells_of(path))) for path in NOTEBOOKS]
    for key, remarks in COMMENTS.items():
        [code] = [code for code in codes if f'guess("{key}"' in code]
        assert not any(remark in code for remark in remarks.values())


def test_a_guess_may_be_one_of_several_words(capsys, no_folds):
    for yours, words in [
        ("maybe", "Choose one of: yes, no.\n"), (3, "Choose one of: yes, no.\n"),
        (None, f"{ASK} One of: yes, no.\n"), (" YES ", "Right: yes.\nwhy\n"),
        ("no", "yes; you said no.\nwhy\n"), ("?", "It is yes.\nwhy\n"),
    ]:
        predict.guess("9a", yours, "yes", choices=("yes", "no"))
        assert capsys.readouterr().out == words


def test_a_guess_is_told_how_near_it_is():
    for yours, right, words in [
        ("33", 33, "Right: 33."), ("[1, 'f0']", [1, "F0"], "Right: [1, 'F0']."), (0, 0, "Right: 0."),
        (32, 33, "33; you said 32: the right size, 3 % off."),
        (36, 33, "33; you said 36: the right size, 9 % off. Near."),
        (350, 348, "Nearly: 350 for 348, right to 1 %."), ("many", 33, "33; you said many."),
        (1, 0, "0; you said 1."), ([4, 3], [4, 3, 2], "[4, 3, 2]; you said [4, 3]."),
        ({}, 3, "3; you said {}."), ("12 ticks", 12, "Right: 12."), ("346 of 360", 346, "Right: 346."),
        ("1, f0", [1, "F0"], "Right: [1, 'F0']."),
        ("about 3", 3, "3; you said about 3."), ("1,437 samples", 1437, "Right: 1437."),
        ("[4, 3]", [4, 3], "Right: [4, 3]."), ("23.6 %", 23.6, "Right: 23.6."), ("", 3, "3; you said ."),
        ("[4,300]", [4, 300], "Right: [4, 300]."), (0.74, 0.75, "Right: 0.75."),
        ([96, 0.7], [96, 0.75], "[96, 0.75]; you said [96, 0.7]: 1 of 2 right."),
        (np.ones(2), 1.0, "1.0; you said [1.0, 1.0]."), (False, True, "True; you said False."),
        ([[1], "b"], [[1.01], "B"], "Right: [[1.01], 'B']."), (0.27, 3 / 11, "Right: 0.2727."),
        ([1, 2], 3, "3; you said [1, 2]."), ([np.int64(96)], [np.int64(96)], "Right: [96]."),
    ]:
        assert predict.verdict(yours, right, {36: "Near."}) == words


PATH = next(path for path in CORE if path.name.startswith("07"))


def changed(old, new, outputs=None):
    """Notebook 07 with `new` in the place of `old`, in the one cell that has it."""
    cells = deepcopy(cells_of(PATH))
    [cell] = [cell for cell in cells if old in source(cell)]
    cell["source"] = source(cell).replace(old, new)
    if outputs is not None:
        cell["outputs"] = outputs
    return cells


PROMPT = {"output_type": "stream", "name": "stdout", "text": [ASK + "\n"]}
BROKEN = {
    "starts with '# 07 · ' and a question": changed("waits for whom?", "waits for whom"),
    "'**The idea:**'": changed("**The idea:**", "The idea:"),
    "names the minutes": changed("About 45 minutes", "Some minutes, said to be about 45\nminutes"),
    "needs 08, which comes later": changed("You need notebook 06", "You need notebook 08"),
    "it says 25 minutes": changed("About 45 minutes", "About 25 minutes"),
    "words: 750 at most": changed("## One `max`", "## One `max`\n\n" + "word " * 200),
    "lines: 45 at most": changed("K, M, F, B = 4, 8, 1, 2", "K, M, F, B = 4, 8, 1, 2\n" + "K = 4\n" * 30),
    "the guesses are called": changed('guess("7c"', 'guess("7d"'),
    "is filled": changed('guess("7c", None', 'guess("7c", "never"'),
    "has its answer written down":
        changed('guess("7b", None, [run.makespan, run.bubble()]', 'guess("7b", None, [9, 8]'),
    "that begins with the answer in bold": changed("**[96, 0.75].**", "[96, 0.75]."),
    "stands outside its fold": changed("## When everybody waits", "## When everybody waits for [96, 0.75]"),
    "its prompt, and nothing else": changed('guess("7c"', 'guess("7c"', [PROMPT, PROMPT]),
    "has no words": changed("start = mine.show", "start = mine.show", [
        {"output_type": "display_data", "data": {"image/png": "", "text/plain": ""}, "metadata": {}}]),
    "which GitHub does not": changed("start = mine.show", "start = mine.show", [
        {"output_type": "display_data", "data": {"text/html": ""}, "metadata": {}}]),
    "but the picture of it is not in the file": changed("start = mine.show", "start = mine.show", [
        {"output_type": "display_data", "data": {"text/plain": ["<Trace of 4 devices>"]}, "metadata": {}}]),
    "the last cell: it starts with": changed("## What to read next", "## The end"),
    "the last cell: there is no other notebook": changed("](08_why_gpipe.ipynb)", "](08_why.ipynb)"),
    "there is no minipipe/order/late.py": changed("minipipe/order/simulate.py", "minipipe/order/late.py"),
    "ends with its check": changed("needs = mine.check(needs)", "mine.check(needs)"),
    "a fold 'Solution: needs'": changed("Solution: needs", "Solution: need"),
}


def test_a_notebook_that_breaks_a_rule_is_told_so():
    for fault, cells in BROKEN.items():
        found = faults(PATH.name, cells)
        assert any(fault in words for words in found), (fault, found)


def test_an_elective_has_more_room_and_says_what_you_will_know():
    found = faults("13_who.ipynb", changed("## One `max`", "## One `max`\n\n" + "word " * 200))
    assert "cell 0: it says what 'you will know'" in found and not any("words" in fault for fault in found)


def test_learners_files_stay_out_of_git_and_of_tests():
    """A file that is half written turns no test red: pytest does not collect it."""
    root = PATH.parents[1]
    assert "notebooks/my_pipeline.py" in (root / ".gitignore").read_text(encoding="utf-8").split()
    options = (root / "pyproject.toml").read_text(encoding="utf-8")
    assert root / re.search(r'"--ignore=(.*?)"', options)[1] == mine.FOLDER / "my_pipeline.py"
