"""The pictures in `figures/`: the script draws them, and they show what the runs hold, send and take."""

import os
import subprocess
import sys
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from figures import draw
from figures.drawing.hero import hero_runs
from figures.drawing.splits import N, SAMPLES, SIZES, held, split_runs, splits
from matplotlib.patches import FancyArrowPatch

from minipipe.order import peak_microbatches
from minipipe.plots import saving

FOLDER = Path(draw.__file__).parent
KEPT = {path.stem for path in FOLDER.glob("*.[pg]*[gf]")}
# if asked for, or a screenshot
SLOW_ONES = {"error_against_batch_size", "memory_by_devices", "beside_pytorch", "playground"}


@pytest.mark.slow
def test_all_are_drawn_by_one_command(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "DOTS_PER_INCH", 20)  # nobody looks at them here
    draw.main(["--folder", str(tmp_path / "new")])
    names = [path.stem for path in (tmp_path / "new").iterdir()]
    assert sorted(names) == sorted(KEPT - SLOW_ONES)
    assert capsys.readouterr().out.count("written: ") == len(names)


@pytest.mark.slow
def test_the_script_draws_what_is_asked_for(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr(saving, "DOTS_PER_INCH", 20)
    draw.main(["zoo", "--folder", str(tmp_path)])
    assert [path.name for path in tmp_path.iterdir()] == ["zoo.png"]
    assert capsys.readouterr().out == f"written: {tmp_path / 'zoo.png'}\n"


@pytest.mark.slow  # a process of its own
def test_the_script_draws_one_of_them_from_any_folder(tmp_path):
    """It finds the package of this clone by itself; the path has only what is installed."""
    command = [sys.executable, FOLDER / "draw.py", "zoo", "--folder", tmp_path]
    env = {**os.environ, "PYTHONPATH": str(Path(matplotlib.__file__).parents[1])}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    assert (done.returncode, done.stderr) == (0, "")
    assert [path.name for path in tmp_path.iterdir()] == ["zoo.png"]


def test_an_unknown_name_is_refused_before_anything_is_drawn(capsys, tmp_path):
    with pytest.raises(SystemExit):
        draw.main(["zoo", "zo", "--folder", str(tmp_path)])
    assert "there is no picture 'zo': choose from hero, 1f1b, zoo, " in capsys.readouterr().err
    assert not list(tmp_path.iterdir())


def test_the_list_has_a_row_for_each():
    lines = (FOLDER / "README.md").read_text(encoding="utf-8").splitlines()
    listed = [line.partition("](")[2].partition(".")[0] for line in lines if line.startswith("| [")]
    assert sorted(listed) == sorted(KEPT) and {*draw.FIGURES} == KEPT - SLOW_ONES
    assert (FOLDER / "1f1b.gif").stat().st_size < 500_000


def test_the_readmes_four_runs_have_its_ticks_and_memory():
    found = {name: (trace.makespan, peak_microbatches(trace)) for name, trace in hero_runs().items()}
    assert found == {
        "naive": (96, [1, 1, 1, 1]), "gpipe": (33, [8, 8, 8, 8]),
        "1f1b": (33, [4, 3, 2, 1]), "zb-h1": (27, [4, 4, 4, 4]),
    }


# The picture of the three splits.

N_PARAMETERS = 33_738


@pytest.fixture(scope="module")
def runs():
    return split_runs()


def test_bytes_on_the_wire_of_one_network_split_in_three_ways(runs):
    """A and dA at three cuts; A and dA between pairs of layers, by owners; dW and db. Float64."""
    sent = {name: sum(message.n_bytes for message in net.trace.messages) for name, net in runs.items()}
    of_pairs = 128 + 128 + 10  # forward behind the second and the fourth layer, backward before the third
    assert sent == {
        "network split": 2 * (128 + 128 + 64) * SAMPLES * 8,
        "layer split": 2 * (N - 1) * of_pairs * SAMPLES * 8, "data split": 2 * (N - 1) * N_PARAMETERS * 8,
    }


def test_all_devices_of_all_splits_do_the_same_work(runs):
    for name, net in runs.items():
        assert sum(net.trace.busy_ticks()) == 48 and len(set(net.trace.busy_ticks())) == 1, name


def test_every_weight_is_held_once_or_by_every_replica(runs):
    for name, net in runs.items():
        counts = [np.zeros((n, n_prev), int) for n_prev, n in zip(SIZES, SIZES[1:])]
        shown, there = set(), set()
        for device, number, rows, columns in held(net):
            counts[number][rows, columns] += 1
            shown.add((device, rows.stop - rows.start, columns.stop - columns.start))
        for (_, device), stage in net._run.stages.items():
            there |= {(device, *layer.W.shape) for layer in stage.layers if layer.W is not None}
        assert all(np.all(count == (N if name == "data split" else 1)) for count in counts), name
        assert shown == there and {device for device, *_ in shown} == set(range(net.trace.n_devices)), name


def test_each_panel_names_its_rows_has_few_arrows_and_is_whole():
    figure = splits()
    figure.draw_without_rendering()
    devices, (upper, *lower) = [f"device {n}" for n in range(N)], np.reshape(figure.axes, (3, 3))
    for ax in upper:
        words = [text.get_text() for text in ax.texts]
        assert [word for word in words if word.startswith("device")] == devices
        assert {"samples", "W1", "W2", "W3", "W4"} < {*words}
        assert 1 <= sum(isinstance(patch, FancyArrowPatch) for patch in ax.patches) <= 3
    for axes in lower:
        for ax in axes:
            assert [name.get_text() for name in ax.get_yticklabels()] == devices
            assert ax.get_xlim() == axes[0].get_xlim()
    for ax in figure.axes:
        taken, page = ax.get_tightbbox(), figure.bbox
        assert taken.x0 >= 0 and taken.y0 >= 0 and taken.x1 <= page.x1 and taken.y1 <= page.y1, taken
