"""What a run shows by itself: printed, saved, drawn, and tick by tick."""

import json

import matplotlib.pyplot as plt
import numpy as np
import pytest

import minipipe as mp
from minipipe.plots import saving
from minipipe.schedules import gpipe

TRACE = mp.simulate(gpipe(2, 2))
HEADS = {
    "png": b"\x89PNG", "pdf": b"%PDF", "svg": b"<?xml", "gif": b"GIF8", "html": b"<!doctype html>",
    "json": b"{",
}


@pytest.mark.parametrize("ending", HEADS)
def test_the_ending_of_the_name_says_what_is_written(tmp_path, monkeypatch, ending):
    monkeypatch.setattr("minipipe.plots.animation.N_FRAMES", 2)
    monkeypatch.setattr("minipipe.plots.animation.HOLD", 1)
    path = tmp_path / f"run.{ending.upper() if ending == 'png' else ending}"
    TRACE.save(path)
    assert path.read_bytes().startswith(HEADS[ending])
    if ending == "json":
        assert json.loads(path.read_text())["traceEvents"]


@pytest.mark.parametrize("ending", ["png", "html"])
def test_a_file_is_written_whole_or_not_at_all(tmp_path, monkeypatch, ending):
    def fails(trace, path, title):
        path.write_text("the first half")
        raise KeyboardInterrupt

    path = tmp_path / f"run.{ending}"
    TRACE.save(path)
    before = path.read_bytes()
    monkeypatch.setattr(saving, "_as_picture", fails)
    monkeypatch.setitem(saving.OTHERS, "html", fails)
    with pytest.raises(KeyboardInterrupt):
        TRACE.save(path)
    assert path.read_bytes() == before and [*tmp_path.iterdir()] == [path]


@pytest.mark.parametrize("name, words", [
    ("run.docx", r"its name must end in one of .*\.gif, \.html, .*\.png"),
    ("run", "its name must end in one of"),
    ("nowhere/run.png", "there is no folder"),
])
def test_a_name_that_cannot_be_is_refused(tmp_path, name, words):
    with pytest.raises(ValueError, match=words):
        TRACE.save(tmp_path / name)
    assert not [*tmp_path.iterdir()]


def test_a_trace_prints_its_timeline():
    assert str(TRACE) == f"{TRACE.to_text()}\n9 ticks, 33.3 % idle"
    assert TRACE.bubble() == TRACE.bubble("total")


def program():
    yield mp.Send("news", None, to=0)
    yield mp.Receive("news", 0)


def test_a_trace_in_which_nothing_took_time_prints_too():
    nothing = mp.Cluster([program()]).run()
    assert str(nothing) == "(nothing has been computed yet)\n0 ticks"


def test_a_schedule_draws_its_run():
    ax = gpipe(2, 2).plot()
    assert ax.get_title(loc="left") == "gpipe"
    own = plt.figure().subplots()
    assert gpipe(2, 2).plot(own, "mine") is own and own.get_title(loc="left") == "mine"
    plt.close("all")


def test_each_tick_says_what_the_devices_did():
    pipe = mp.Pipeline([mp.Linear(1, 1), mp.Linear(1, 1)], mp.MeanSquaredError(), 2, 2, "gpipe")
    pipe.start(np.ones((1, 2)), np.ones((1, 2)))
    ticks = [pipe.tick()]
    while ticks[-1]:
        ticks.append(pipe.tick())
    assert [repr(tick) for tick in ticks[:4]] == [
        "tick 1: device 0 0F0, device 1 waits",
        "tick 2: device 0 0F1, device 1 1F0",
        "tick 3: device 0 waits, device 1 1F1",
        "tick 4: device 0 waits, device 1 1B1",
    ]
    assert repr(ticks[-1]) == "tick 9: device 0 0B0, device 1 waits. All is done" and ticks[-1].now == 9
    assert pipe.trace.makespan == 9
