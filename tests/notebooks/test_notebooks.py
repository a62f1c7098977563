"""Every notebook runs from top to bottom without an error, and its saved outputs are those of the run; the
command that saves them anew changes nothing else.

The runs have the marker `notebooks`. What can be told without a run is in `test_core.py`.
"""

import json
import re
from base64 import b64encode
from io import BytesIO
from urllib.parse import parse_qsl

import numpy as np
import pytest
from matplotlib.image import imsave
from notebooks import refresh
from notebooks.template import NOTEBOOKS, ROOT, cells_of, source

from exercises.folds import FOLD
from minipipe.cli.main import main
from minipipe.site.live import lab
from minipipe.site.playground import PORT

RUNS = [pytest.mark.notebooks, pytest.mark.slow]


def code_cells(cells):
    return [cell for cell in cells if cell["cell_type"] == "code"]


@pytest.fixture
def run():
    reason = "needs the notebooks extra: pip install '.[test,notebooks]'"
    for package in ("nbformat", "nbclient", "ipykernel"):
        pytest.importorskip(package, reason=reason)
    return refresh.run


@pytest.mark.parametrize("path", [pytest.param(path, marks=RUNS, id=path.stem) for path in NOTEBOOKS])
def test_notebook_runs_and_its_outputs_are_fresh(path, run):
    saved, fresh = code_cells(cells_of(path)), code_cells(run(path)["cells"])
    for old, new in zip(saved, fresh, strict=True):
        assert old["execution_count"] == new["execution_count"]
        texts = [[refresh.text_of(output) for output in refresh.merged(cell["outputs"])]
                 for cell in (new, old)]
        remedy = f"if these are right: python3 tests/notebooks/refresh.py notebooks/{path.name}"
        assert texts[0] == texts[1], remedy


def test_their_readme_lists_all_notebooks():
    readme = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| \[(\w+)\]\((\w+)\.ipynb\) \|", readme, re.MULTILINE)
    assert rows == [(path.stem, path.stem) for path in NOTEBOOKS]
    assert f"are {len(rows)} notebooks" in readme


def test_each_idea_of_their_readme_is_where_it_says():
    """Each row has the words that tell of the idea, as they stand in a notebook."""
    readme = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| (.+) \| \[\d\d\]\((\w+)\.ipynb\) \| (.+) \|$", readme, re.MULTILINE)
    texts = {path.stem: " ".join(" ".join(map(source, cells_of(path))).split()) for path in NOTEBOOKS}
    lost = [f"{stem}: {words}" for _, stem, words in rows if words not in texts[stem]]
    assert len(rows) == 32 and not lost


def test_the_page_for_lecturers_is_one_page_and_its_commands_run(tmp_path, monkeypatch):
    """Sections and guesses that it names are in the notebooks; tests and the site are tried elsewhere."""
    page = (ROOT / "notebooks" / "LECTURERS.md").read_text(encoding="utf-8")
    assert len(page.split()) < 900
    texts = {path.stem: "\n".join(map(source, cells_of(path))) for path in NOTEBOOKS}
    sections = re.findall(r'(?:\]\((\d\d)_\w+\.ipynb\)|\b(\d\d)), "(.+?)"', page)
    guesses = re.findall(r"\((\d+)([a-j])\)", page)
    for number, title in [(first or second, title) for first, second, title in sections]:
        [text] = [text for stem, text in texts.items() if stem.startswith(number)]
        assert f"\n## {title}\n" in text, (number, title)
    for number, letter in guesses:
        assert any(f'guess("{number}{letter}", None' in text for text in texts.values())
    assert len(sections) == 8 and len(guesses) == 8
    commands = re.findall(r"`python3 -m minipipe ((?:show|compare) [^`]*)`", page)
    monkeypatch.chdir(tmp_path)
    assert len(commands) == 5 and all(main(command.split()) == 0 for command in commands)
    assert {path.name for path in tmp_path.iterdir()} == {"first.svg", "gpipe.html"}


def test_links_name_the_number_of_the_file():
    for path in NOTEBOOKS:
        texts = [source(cell) for cell in cells_of(path) if cell["cell_type"] == "markdown"]
        for label, stem in re.findall(r"\[(\d\d)[^\]]*\]\((\w+)\.ipynb", "\n".join(texts)):
            assert stem in {other.stem for other in NOTEBOOKS}
            assert label == stem[:2], f"{path.name}: the link to {stem} is called {label}"


def printed(text):
    return {"name": "stdout", "output_type": "stream", "text": text.splitlines(keepends=True)}


def shown(text, **more):
    return {"data": {"text/plain": [text], **more}, "metadata": {}, "output_type": "display_data"}


def drawn(pixels, software="matplotlib"):
    file = BytesIO()
    imsave(file, pixels, format="png", metadata={"Software": software})
    return shown("<Figure size 640x480 with 1 Axes>", **{"image/png": b64encode(file.getvalue()).decode()})


def book(*cells):
    """A notebook as a dict, with a cell for each list of outputs."""
    return {
        "nbformat": 4, "metadata": {"title": "ours", "kernelspec": {"name": "python3"}}, "nbformat_minor": 5,
        "cells": [{"source": ["# say"], "cell_type": "markdown", "id": "first", "metadata": {}}, *(
            {"id": f"cell-{place}", "cell_type": "code", "metadata": {"tags": ["kept"]}, "source": ["..."],
             "outputs": outputs, "execution_count": place + 1}
            for place, outputs in enumerate(cells)
        )],
    }


def after(path, saved, *runs):
    """The text of the file `path` with the cells `saved`, refreshed by runs with these cells, and whether it
    has changed.
    """
    text = json.dumps(book(*saved), indent=3, ensure_ascii=False)
    path.write_text(text, encoding="utf-8")
    runs = iter(runs)
    refresh.refresh(path, lambda path: book(*next(runs)))
    new = path.read_text(encoding="utf-8")
    return json.loads(new), new != text


PLAIN = np.ones((30, 40, 3))
MARKED = np.where(np.arange(40)[:, None] == 7, 0, PLAIN)  # with one black column


SAYS_THE_SAME = [
    ([printed("3 ticks\n")], [printed("3 ticks\n")]),
    ([printed("one\n"), printed("two\n")], [printed("one\ntwo\n")]),
    ([printed("J = 0.1000000000001")], [printed("J = 0.1")]),
    ([shown("<f at 0x7fa21cb0>")], [shown("<f at 0x7f77aab0>")]),
    ([drawn(MARKED)], [drawn(MARKED, "another version")]),
]
HAS_CHANGED = [
    ([printed("3 ticks\n")], [printed("4 ticks\n")]),
    ([printed("J = 0.1")], [printed("J = 0.2")]),
    ([printed("J = 0.1")], []),
    ([], [printed("J = 0.1")]),
    ([drawn(PLAIN)], [drawn(MARKED)]),
    ([drawn(PLAIN)], [drawn(PLAIN[1:])]),
    ([printed("1"), drawn(PLAIN), printed("2")], [printed("1"), drawn(PLAIN), printed("3")]),
]


def test_an_output_that_says_the_same_is_not_saved_again(tmp_path):
    for saved, fresh in SAYS_THE_SAME:
        assert not after(tmp_path / "ours.ipynb", [saved], [fresh], [fresh])[1], saved


def test_an_output_that_has_changed_is_saved_alone(tmp_path):
    others = [printed("as before")]
    for saved, fresh in HAS_CHANGED:
        found = after(tmp_path / "ours.ipynb", [others, saved], [others, fresh], [others, fresh])
        assert found == (book(others, fresh), True), saved


def test_an_output_that_differs_in_each_run_is_kept(tmp_path):
    saved, fresh, again = ([printed(f"{ms} ms\n"), drawn(PLAIN * grey)]
                           for ms, grey in [(1.5, 1), (1.7, 0.5), (1.2, 0)])
    assert not after(tmp_path / "ours.ipynb", [saved], [fresh], [again])[1]
    assert after(tmp_path / "ours.ipynb", [saved], [fresh], [fresh])[1]


def test_a_cell_added_above_moves_the_numbers_on(tmp_path):
    saved = {"data": {"text/plain": ["7"]}, "execution_count": 1, "metadata": {},
             "output_type": "execute_result"}
    fresh = saved | {"execution_count": 2}
    assert after(tmp_path / "ours.ipynb", [[], [saved]], [[], [fresh]]) == (book([], [fresh]), True)


def test_copies_for_a_class_lack_the_solutions_alone(tmp_path):
    """Hints, skeletons and the folds that `guess` opens stay as they are; so does all else of each file."""
    refresh.main(["--without-solutions", str(tmp_path / "class")])
    copies = sorted((tmp_path / "class").iterdir())
    assert [copy.name for copy in copies] == [path.name for path in NOTEBOOKS]
    for path, copy in zip(NOTEBOOKS, copies):
        for old, new in zip(cells_of(path), cells_of(copy), strict=True):
            folds = [fold for fold in FOLD.finditer(source(old)) if fold["title"].startswith("Solution: ")]
            text = source(old)
            for fold in folds:
                text = text.replace(f"{fold[0]}</details>", "")
            assert source(new).split() == text.split() and "Solution: " not in source(new)
            assert source(new).count("<details>") == source(new).count("</details>")
            assert old | {"source": 0} == new | {"source": 0}
    with pytest.raises(FileExistsError):
        refresh.main(["--without-solutions", str(ROOT / "notebooks")])


SETTINGS = {"s": "schedule", "lat": "latency", "tr": "transfer", "grad": "gradients", "act": "activations"}
WHOLE = {"K", "M", "D", "T", "zero"}


def settings_of(address):
    """The settings that the playground reads from the part of its address after the #."""
    asked = {"K": 4, "M": 8, "s": "1f1b"} | dict(parse_qsl(address, strict_parsing=True))
    asked.pop("vs", None)
    if "own" in asked:
        asked["own"] = asked["own"].replace("~", "\n").replace(".", " ")
        asked["K"] = asked["own"].count("\n") + 1
        asked["M"] = 1 + max(map(int, re.findall(r"\d+", asked["own"])))
    return {SETTINGS.get(key, key): int(value) if key in WHOLE else value for key, value in asked.items()}


def test_links_to_the_playground_open_the_run_of_their_cell():
    link = re.compile(rf"\]\(http://127\.0\.0\.1:{PORT}/live/index\.html#([^)]*)\)")
    links = [(path.stem, source(cell), address) for path in NOTEBOOKS for cell in cells_of(path)
             for address in link.findall(source(cell))]
    assert len({name for name, *_ in links}) >= 10
    for name, words, address in links:
        found = lab.run([settings_of(address), None])["runs"][0]
        if "deadlock" in words:
            assert found["faults"], (name, address)
        else:
            assert re.search(rf"(?<![\d.]){found['makespan']:g}(?![\d.]*\d)", words), (name, address)
