"""The pictures in `figures/`, which its script draws."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import pytest
from figures import draw
from figures.drawing.hero import hero_runs

from minipipe.order import peak_microbatches

FOLDER = Path(draw.__file__).parent
KEPT = {path.stem for path in FOLDER.glob("*.png")}
OF_A_COMMAND = "error_against_batch_size"  # `python3 -m minipipe batch-size` draws it


@pytest.mark.slow
def test_all_are_drawn_by_one_command(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(draw, "DOTS_PER_INCH", 20)  # nobody looks at them here
    draw.main(["--folder", str(tmp_path / "new")])
    names = [path.stem for path in (tmp_path / "new").iterdir()]
    assert sorted(names) == sorted(KEPT - {OF_A_COMMAND})
    assert capsys.readouterr().out.count("written: ") == len(names)


def test_the_script_draws_what_is_asked_for(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(draw, "DOTS_PER_INCH", 20)
    draw.main(["naive", "--folder", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["naive.png"]
    assert capsys.readouterr().out == f"written: {tmp_path / 'naive.png'}\n"


@pytest.mark.slow  # a process of its own
def test_the_script_draws_one_of_them_from_any_folder(tmp_path):
    """It finds the package of this clone by itself; the path has only what is installed."""
    command = [sys.executable, FOLDER / "draw.py", "naive", "--folder", tmp_path]
    env = {**os.environ, "PYTHONPATH": str(Path(matplotlib.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["naive.png"]


def test_an_unknown_name_is_refused_before_anything_is_drawn(capsys, tmp_path):
    with pytest.raises(SystemExit):
        draw.main(["naive", "zo", "--folder", str(tmp_path)])
    assert "there is no picture 'zo': choose from hero, naive, " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_list_has_a_row_for_each():
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    listed = [line.partition("](")[2].partition(".png)")[0] for line in lines if line.startswith("| [")]
    assert sorted(listed) == sorted(KEPT) and {*draw.FIGURES} == KEPT - {OF_A_COMMAND}


def test_the_four_runs_of_the_readme_have_the_ticks_and_the_memory_that_it_names():
    found = {name: (trace.makespan, peak_microbatches(trace)) for name, trace in hero_runs().items()}
    assert found == {
        "naive": (96, [1, 1, 1, 1]), "gpipe": (33, [8, 8, 8, 8]),
        "1f1b": (33, [4, 3, 2, 1]), "zb-h1": (27, [4, 4, 4, 4]),
    }
