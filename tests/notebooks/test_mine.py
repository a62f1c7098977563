"""The judges name mistakes by mutants of the solutions, and tell errors their line.
And the learner's own file: what is lent, what is kept, what is refused.
"""

import numpy as np
import pytest
from notebooks.template import NOTEBOOKS, run

from exercises import mine
from exercises.judging import (
    all_parts, empty_function, judged, known, part_named, returning, same,
)

PARTS = all_parts()
SLOW = {"healthy": [pytest.mark.slow]}  # its scenes run all versions of the pipeline
TITLE = "{0.notebook:02d} {0.title}".format
EACH = pytest.mark.parametrize("part", [
    pytest.param(part, id=TITLE(part), marks=SLOW.get(part.title, ())) for part in PARTS
])
NUMBERS = {path.name[:2] for path in NOTEBOOKS}


@EACH
def test_a_solution_is_right_and_its_scenes_see_something(part):
    assert judged(part, part.solution) == f"Right: {part.right}"
    assert known(part)[0] and f"{part.notebook:02d}" in NUMBERS


@EACH
def test_each_mistake_is_named(part):
    """No mistake looks right or unfinished, and two that look the same in all scenes have one sentence.

    `tests/exercises` has some that are written otherwise, and what no part foresees.
    """
    right, mistakes = known(part)
    for (old, new, sentence), (seen_of_it, _) in zip(part.mistakes, mistakes, strict=True):
        code = part.solution.replace(old, new)
        assert empty_function(code) is None and returning(code) == returning(part.solution), sentence
        assert not same(seen_of_it, right), f"nothing shows this mistake: {sentence}"
        said = next(words for seen_of_another, words in mistakes if same(seen_of_it, seen_of_another))
        assert said == sentence


@EACH
def test_junk_raises_a_readable_error(part):
    """Functions and classes that return nothing, raise, or return something else."""
    head = f"def {part.name}(*a, **k):"
    if part.name[0].isupper():
        head = f"class {part.name}:\n    def __init__(self, *a, **k):"
    for body in ("return None", "...", "raise KeyError('lost')", "return 'words'", "return 10**400",
                 "unknown()"):
        sentence = judged(part, f"{head}\n        {body}")
        assert sentence and not sentence.startswith("Right") and "\n" not in sentence


@pytest.fixture
def own_file(tmp_path, monkeypatch):
    monkeypatch.setenv("MY_PIPELINE", str(tmp_path / "my_pipeline.py"))
    return mine.path()


def cell(code, name):
    """What `code` defines as `name`, run as Jupyter runs a cell."""
    return run(code, {"np": np, "mine": mine})[name]


def test_parts_that_are_not_built_yet_are_lent(own_file, capsys):
    mine.begin(7)
    said = capsys.readouterr().out
    assert said == "Lent by the course: Linear, ReLU, cost, micro_batches, Stage with recompute.\n"
    from my_pipeline import Linear, Stage
    assert Linear(3, 2, np.random.default_rng(0)).W.shape == (2, 3) and callable(Stage)
    text = own_file.read_text()
    assert "# Linear: lent by the course: yours comes from notebook 03\n" in text and "clock" not in text
    mine.begin(7)
    assert own_file.read_text() == text


def test_a_right_part_goes_into_the_file_with_its_helpers(own_file, capsys):
    mine.begin(8)
    helper = "def count(M):\n    return [*range(M)]\n\n\n"
    order = "def gpipe(device, K, M):\n    up = [('F', i) for i in count(M)]\n"
    code = helper + order + "    return up + [('B', i) for i in count(M)[::-1]]\n\n\nprint('no part of it')\n"
    kept = mine.check(cell(code, "gpipe"))
    assert "Right: " in capsys.readouterr().out and kept(0, 2, 2) == [("F", 0), ("F", 1), ("B", 1), ("B", 0)]
    text = own_file.read_text()
    assert text.count("def gpipe") == 1 and "def count" in text and "no part of it" not in text
    assert "# gpipe: mine, from notebook 08" in text
    mine.check(cell(part_named("needs").solution, "needs"))
    assert "It is in my_pipeline.py now: 2 of 13 parts are yours.\n" in capsys.readouterr().out
    text = own_file.read_text()
    mine.check(cell(code, "gpipe"))
    assert own_file.read_text() == text
    mine.begin(9)
    assert "Yours: needs, gpipe." in capsys.readouterr().out


def test_a_wrong_part_stays_out_of_the_file(own_file, capsys):
    mine.begin(8)
    text = own_file.read_text()
    body = "    return [('F', i) for i in range(M)] + [('B', i) for i in range(M)]\n"
    code = "def gpipe(device, K, M):\n" + body
    course = mine.check(cell(code, "gpipe"))
    said = capsys.readouterr().out
    assert "gpipe-fifo" in said and "goes on with the course's" in said
    assert course(0, 1, 2)[2] == ("B", 1)
    assert own_file.read_text().startswith(text) and own_file.read_text().count("# gpipe: lent") == 1


def test_a_part_of_the_notebook_itself_is_lent_by_its_check(own_file, capsys):
    """Not before: the file shows no solution of what is still to be written."""
    mine.begin(7)
    assert "def needs" not in own_file.read_text()
    course = mine.check(cell("def needs(device, kind, i, K):\n    ...\n", "needs"))
    assert "goes on with the course's" in capsys.readouterr().out and course(0, "F", 1, 3) is None
    assert "# needs: lent by the course" in own_file.read_text()
    mine.check(cell(part_named("needs").solution, "needs"))
    mine.check(cell("def needs(device, kind, i, K):\n    return None\n", "needs"))
    assert "goes on with your last right one" in capsys.readouterr().out
    assert "# needs: mine, from notebook 07" in own_file.read_text()


def test_a_part_imported_before_uses_the_new_parts(own_file):
    mine.begin(8)
    from my_pipeline import clock
    mine.check(cell(part_named("needs with halves").solution, "needs"), "with halves")
    orders = [[("F", 0), ("I", 0), ("W", 0)]] * 2  # with the old rules, device 0 waits for a whole B
    assert clock(orders, {"F": 1, "I": 1, "W": 1})[-1][-1] == 5


def test_an_own_part_is_not_lost_when_its_next_version_is_lent(own_file, capsys):
    code = part_named("Stage").solution
    mine.begin(6)
    mine.check(cell(code, "Stage"))
    mine.begin(8)
    text = own_file.read_text()
    assert "# Stage: mine" in text and "# Stage with recompute: lent" in text
    assert text.index("# Stage: mine") < text.index("# Stage with recompute: lent")
    mine.check(cell(part_named("Stage with recompute").solution, "Stage"), "with recompute")
    assert own_file.read_text().count("class Stage") == 1


def test_nothing_that_a_learner_wrote_is_lost(own_file, capsys):
    """Code without a mark, code in a lent part, a part that is written again, and imports of one's own."""
    beside = own_file.with_suffix(".before.txt")
    unmarked = "def clock(orders, ticks):\n    return []  # my own"
    own_file.write_text(unmarked + "\n")
    mine.begin(8)
    said = capsys.readouterr().out
    assert beside.read_text().startswith(unmarked) and "my_pipeline.before.txt keeps what stood in" in said
    text = own_file.read_text().replace("import numpy as np\n", "import numpy as np\nimport math\n", 1)
    own_file.write_text(text.replace("for i in range(M) for action", "for i in range(int(M)) for action"))
    body = "    return [('F', i) for i in range(M)] + [('B', i) for i in range(M)[::-1]]\n"
    for comment in ("", "  # more", "  # more", "", "  # more"):
        mine.check(cell(f"def gpipe(device, K, M):{comment}\n{body}", "gpipe"))
    mine.check(cell(part_named("needs").solution.replace("K - 1", "K-1"), "needs"))  # lent so far
    mine.check(cell(part_named("naive").solution, "naive"))
    assert capsys.readouterr().out.count("my_pipeline.before.txt keeps what this replaces.") == 4
    kept = beside.read_text()
    assert unmarked in kept and "range(int(M))" in kept and "def needs" not in kept
    assert kept.count("def gpipe(device, K, M):\n") == kept.count("def gpipe(device, K, M):  # more\n") == 1
    assert "import math\n" in own_file.read_text() and "# more" in own_file.read_text()


def test_a_broken_file_says_so(own_file):
    mine.begin(4)
    own_file.write_text(own_file.read_text() + "\ndef (:\n")
    with pytest.raises(ImportError, match=r"my_pipeline.py cannot be imported: SyntaxError.* another name"):
        mine.begin(4)


def test_a_part_that_no_notebook_asks_for_is_refused(own_file):
    for answer in (None, 3, "gpipe", lambda: 1, print):
        with pytest.raises((LookupError, ValueError), match=r"no notebook asks for|cannot be read"):
            mine.check(answer)


def test_an_error_is_told_its_line():
    sentence = judged(part_named("gpipe"), "def gpipe(device, K, M):\n    left = {}\n    return left['x']\n")
    assert "stopped with KeyError: 'x', in line 3 of your cell: `return left['x']`" in sentence
