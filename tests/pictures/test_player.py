"""A trace or a schedule as the last line of a notebook's cell: the player where scripts run, the still
picture where they do not, and one line of text in a terminal.
"""

import re
from base64 import b64decode
from html import unescape
from importlib import import_module
from io import BytesIO

import numpy as np
import pytest
from notebooks import refresh
from pictures.browser import browse, in_a_browser
from matplotlib.image import imread
from sampling import one_in

import minipipe as mp
from minipipe.plots import html, player, still
from minipipe.plots.timeline import timeline_figure

SCHEDULE = mp.schedules.build("1f1b", 3, 4)
TRACE = mp.simulate(SCHEDULE, mp.Costs(F=1, B=2), mp.Link(latency=1))
STUCK = mp.Schedule.from_text(["F0 B0 F1 B1", "F1 B1 F0 B0"], name="<stuck>")


@pytest.fixture
def undrawn(monkeypatch):
    """No still picture is drawn, which takes longest."""
    monkeypatch.setattr(import_module("minipipe.plots.html"), "_png", lambda trace, title: b"PNG")


@pytest.mark.parametrize("name", one_in(4, sorted(mp.schedules.names_having(flush=True))))
def test_every_schedule_shows_its_run_with_standard_costs(name, undrawn):
    schedule = mp.schedules.build(name, 4, 8)
    assert page_in(schedule._repr_html_()) == html(mp.simulate(schedule), title=name)
    numbers = f"{len(schedule.devices)} devices, {schedule.n_stages} stages and 8 micro-batches"
    assert repr(schedule) == f"<Schedule {name!r} of {numbers}>"


def pixels(picture):
    return imread(BytesIO(picture), format="png")


def page_in(cell):
    """The page that stands in the frame of a player."""
    return unescape(re.search(r'srcdoc="([^"]*)"', cell)[1])


def test_a_trace_shows_its_run_and_before_it_the_still_picture():
    cell, picture = TRACE._repr_html_(), TRACE._repr_png_()
    assert page_in(cell) == html(TRACE)
    before = re.fullmatch(r'<div><img [^>]*src="data:image/png;base64,([^"]*)"><iframe .*</iframe></div>',
                          cell, re.DOTALL)[1]
    assert b64decode(before) == picture == still(TRACE)
    figure = timeline_figure(TRACE)
    width, height = figure.get_size_inches() * figure.dpi
    assert pixels(picture).shape[:2] == (int(height), int(width))
    assert repr(TRACE) == f"<Trace of 3 devices, {len(TRACE.spans)} spans, {TRACE.makespan} ticks>"


@pytest.mark.slow
def test_the_still_picture_of_a_schedule_has_its_name_above():
    own, of_its_run = still(SCHEDULE), still(mp.simulate(SCHEDULE))
    assert SCHEDULE._repr_png_() == own != of_its_run
    assert pixels(own).shape[1] == pixels(of_its_run).shape[1]


def test_a_schedule_that_cannot_run_says_why():
    [fault] = STUCK.faults()
    assert "&lt;stuck&gt;" in STUCK._repr_html_() and fault in unescape(STUCK._repr_html_())
    assert "<img" not in STUCK._repr_html_() and STUCK._repr_png_() is None


def test_a_large_run_is_summed_up_and_its_page_is_a_file(undrawn, tmp_path, monkeypatch):
    """A trace of 64 x 512 would put 12.7 MB into the notebook."""
    page = import_module("minipipe.plots.html")
    assert page.MOST_IN_A_CELL == 5_000
    monkeypatch.setattr(page, "MOST_IN_A_CELL", 1_000)
    large, largest = mp.schedules.build("gpipe", 2, 251), mp.schedules.build("gpipe", 2, 250)
    trace = mp.simulate(large)
    for run, of in (large, "simulate(schedule)"), (trace, "trace"):
        cell, words = run._repr_html_(), unescape(run._repr_html_())
        assert run._repr_png_() is None and "<iframe" not in cell and "<img" not in cell and len(cell) < 2_000
        assert "2 devices, with 1,004 spans: a notebook draws at most 1,000. " in words
        assert f"<dd>{trace.makespan} ticks</dd>" in cell
        assert f"<dd>{100 * float(trace.bubble()):.1f} %</dd>" in cell
        assert f'{of}.save("run.html")' in words
    trace.save(tmp_path / "run.html")
    assert (tmp_path / "run.html").read_text(encoding="utf-8") == html(trace)
    assert "<iframe" in largest._repr_html_() and largest._repr_png_()


def test_a_run_before_its_first_tick_shows_itself():
    def program():
        yield mp.cluster.Compute("work")

    nothing = mp.cluster.Cluster([program()]).trace
    assert nothing.makespan == 0 and page_in(player(nothing)) == html(nothing)
    assert np.isfinite(pixels(still(nothing))).all()


def test_jupyter_gets_player_and_picture_and_a_terminal_one_line(undrawn):
    formatters = pytest.importorskip("IPython.core.formatters", reason="needs the notebooks extra")
    for run in (TRACE, SCHEDULE):
        jupyter = formatters.DisplayFormatter()
        data, _ = jupyter.format(run)
        assert set(data) == {"text/html", "image/png", "text/plain"} and data["text/plain"] == repr(run)
        jupyter.active_types = ["text/plain"]           # as IPython does in a terminal
        assert jupyter.format(run)[0] == {"text/plain": repr(run)}


def test_a_notebook_is_saved_with_the_picture_alone(undrawn):
    data = {"text/html": player(TRACE), "image/png": "...", "text/plain": repr(TRACE)}
    refresh.without_player(data)
    assert set(data) == {"image/png", "text/plain"}
    table = {"text/html": "<table></table>", "text/plain": "a table"}
    refresh.without_player(table)
    assert set(table) == {"text/html", "text/plain"}


# ---- in a browser ----

OF_BOTH = """
const frames = [...document.querySelectorAll("iframe")], pages = frames.map(frame => frame.contentWindow);
const shown = () => [...document.querySelectorAll("img")].map(img => img.getClientRects().length > 0);
const heights = () => frames.map(frame => frame.clientHeight);
const until = (test, then) => test() ? then() : setTimeout(() => until(test, then), 50);
"""
TWO = OF_BOTH + """
const ticks = () => pages.map(page => +page.document.getElementById("slider").value);
const press = ({document, KeyboardEvent}, key) =>
  document.activeElement.dispatchEvent(new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
until(() => heights().every(height => height > 0), () => {
  results.shown = shown();
  results.heights = heights();
  results.needed = pages.map(page => page.document.documentElement.scrollHeight);
  results.begin = ticks();
  pages[0].document.getElementById("picture").focus();
  press(pages[0], "ArrowRight");
  results.cause = pages[0].document.getElementById("said").textContent;
  pages[0].document.activeElement.blur();
  for (const key of ["Home", "ArrowRight", "ArrowRight"]) press(pages[0], key);
  results.stepped = ticks();
  results.outside = [getComputedStyle(document.body).maxWidth, document.title, document.onkeydown];
  pages[0].document.querySelector("details").open = true;
  until(() => heights()[0] > results.heights[0], () => { results.opened = heights(); report(); });
});
"""


def notebook_of(*runs):
    cells = "".join(f"<section>{run._repr_html_()}</section>" for run in runs)
    return f"<!doctype html><html><head><title>A notebook</title></head><body>{cells}</body></html>"


@in_a_browser
def test_two_players_in_a_notebook_do_not_disturb_each_other(tmp_path):
    seen = browse(tmp_path, notebook_of(TRACE, SCHEDULE), TWO, "--virtual-time-budget=200000")
    assert seen["shown"] == [False, False]
    assert seen["heights"] == seen["needed"] and min(seen["heights"]) > 200
    end, own = TRACE.makespan, mp.simulate(SCHEDULE).makespan
    assert seen["begin"] == [end, own] and seen["stepped"] == [2, own]
    assert "device 0" in seen["cause"]                          # what the chosen box is
    assert seen["outside"] == ["none", "A notebook", None]
    assert seen["opened"][0] > seen["heights"][0] and seen["opened"][1] == seen["heights"][1]


@in_a_browser
def test_pictures_are_shown_without_scripts(tmp_path):
    page = re.sub("<script.*?</script>", "", notebook_of(TRACE, SCHEDULE), flags=re.DOTALL)
    seen = browse(tmp_path, page, OF_BOTH + "results.seen = [shown(), heights()]; report();")
    assert seen["seen"] == [[True, True], [0, 0]]


@in_a_browser
def test_a_page_in_the_frame_of_another_leaves_its_picture(tmp_path):
    page = notebook_of(TRACE).replace('class="minipipe"', "")
    script = OF_BOTH + """
    until(() => pages[0].document.title === "A run on 3 devices", () => setTimeout(() => {
      results.seen = [shown(), heights()];
      report();
    }, 500));
    """
    assert browse(tmp_path, page, script, "--virtual-time-budget=200000")["seen"] == [[True], [0]]
