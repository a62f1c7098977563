"""What a reader sees of a picture: labels in all boxes of a row or in none, edges, and whole legends."""

from functools import partial

import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from pictures.test_html import trace_of
from pictures.test_plots import arrows, axes, labels_of, run_of_digits

import minipipe as mp
from minipipe import plots
from minipipe.order import Action
from minipipe.schedules import build


def test_the_boxes_of_a_row_are_all_labelled_or_none():
    trace = trace_of(
        (0, "all-reduce", 0, 10), (0, "broadcast", 10, 10.5), (1, 7, 0, 10), (1, 8, 10, 10), n_devices=2
    )
    ax = trace.plot(ax=axes())
    assert [text.get_text() for text in ax.texts] == ["7"], "a mark of no ticks needs no room"
    assert labels_of(ax.get_legend()) == ["other work"]
    actions = [(0, Action("F", 0, i), i, i + 1) for i in range(3)] + [(1, Action("F", 1, 0), 1, 2)]
    shrunk = [*actions, (1, Action("F", 1, 1), 2, 2.01), (1, Action("F", 1, 2), 3, 4)]
    rows = {text.get_position()[1] for text in trace_of(*shrunk, n_devices=2).plot(ax=axes()).texts}
    assert rows == {0}


def test_numbers_shrink_to_fit_and_are_left_out_where_they_would_be_illegible():
    sizes = []
    for width in (12, 3, 1.9):
        ax = Figure(figsize=(width, 2)).add_subplot()
        mp.simulate(build("gpipe", 2, 8)).plot(ax=ax, legend=False)
        sizes.append([text.get_fontsize() for text in ax.texts])
    assert sizes[0] == [8] * 32
    assert len(sizes[1]) == 32
    assert len(set(sizes[1])) == 1
    assert 6 <= min(sizes[1]) < 8
    assert sizes[2] == [], "there would be room in the backwards only"


def test_numbers_are_above_arrows_and_interrupt_them():
    ax = mp.simulate(build("gpipe", 4, 2)).plot(ax=Figure(figsize=(12, 4)).add_subplot(), arrows=True)
    quiver, = arrows(ax)
    for text in ax.texts:
        rim, = text.get_path_effects()
        box, = (
            patches for patches in ax.collections if patches is not quiver
            and any(path.contains_point(text.get_position()) for path in patches.get_paths())
        )
        assert text.get_zorder() > quiver.get_zorder() and rim._gc["linewidth"] == 2
        assert rim._gc["foreground"] == to_hex(box.get_facecolor()[0])


def test_edges_are_thinner_than_boxes():
    """Of 512 micro-batches, whose forwards are narrower than an edge elsewhere; and where there is room."""
    ax = mp.simulate(build("1f1b", 2, 512)).plot()
    points = ax.bbox.width * 72 / ax.figure.dpi / ax.get_xlim()[1]
    for patches in ax.collections:
        widths = [points * path.get_extents().width for path in patches.get_paths()]
        assert 0 < max(patches.get_linewidth()) < min(widths) / 6
    few = mp.simulate(build("gpipe", 2, 2)).plot()
    assert {*few.collections[0].get_linewidth()} == {0.6}
    of_all_sizes = trace_of((0, "a", 0, 10), (0, "b", 10, 10.01)).plot(ax=axes())
    wide, narrow = of_all_sizes.collections[0].get_linewidth()
    assert wide == 0.6 and narrow < 0.1


@pytest.mark.parametrize("draw", [
    plots.timeline, plots.alive, plots.memory, partial(plots.ledger, device=0),
    lambda trace, ax, title: plots.critical_path(trace, plots.timeline(trace, ax, title=title, arrows=True)),
])
def test_nothing_is_cut_off_in_a_figure_without_a_layout(draw):
    """Legend, title, names: all are inside, as `savefig` writes it."""
    ax = Figure().add_subplot()
    draw(run_of_digits(), ax=ax, title="A title that is about as long as such titles are")
    taken, page = ax.get_tightbbox(), ax.figure.bbox
    assert taken.x0 >= 0 and taken.y0 >= 0 and taken.x1 <= page.x1 and taken.y1 <= page.y1, taken
