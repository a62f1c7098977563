"""Pictures say what the trace says, readably."""

from fractions import Fraction
from functools import partial
from xml.etree import ElementTree

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.quiver import Quiver
from matplotlib.text import Text
from PIL import Image
from pictures.test_html import trace_of
from sampling import one_in
from ticks.programs import with_all_reduces

import minipipe as mp
from minipipe import plots
from minipipe.order import Action, alive_microbatches, with_recompute
from minipipe.plots.boxes import HEIGHT, stage_places
from minipipe.plots.canvas import ink, parts_of, shade
from minipipe.plots.curves import MEMORY_KINDS
from minipipe.plots.timeline import figure_size, timeline_figure
from minipipe.schedules import build, names_having

matplotlib.use("Agg")


def axes():
    return Figure().add_subplot()


def both_ways():
    """Two copies of the network, and an overlap; micro-batch 2 passes through the second copy."""
    lines = ["0F0 0F1 1F2 0F3&1B2 0B0 0B1 0B3", "0F2 1F0 1F1 1B0 1B1 1F3 1B3 0B2"]
    return mp.Schedule.from_text(lines, copy_of=(0, 0, 1, 0))


def boxes(ax, kind=None, lane=0, n_lanes=1):
    """Return [(left, right, device)] of all boxes, or of those of one kind, in one stage of the devices."""
    found = []
    for collection in ax.collections:
        if kind is None or to_hex(collection.get_facecolor()[0]) == shade(kind, lane, n_lanes):
            extents = [path.get_extents() for path in collection.get_paths()]
            found += [(box.x0, box.x1, round((box.y0 + box.y1) / 2, 9)) for box in extents]
    return sorted(found)


def arrows(ax):
    return [found for found in ax.collections if isinstance(found, Quiver)]


def labels_of(legend):
    return [text.get_text() for text in legend.get_texts()]


@pytest.fixture(scope="module")
def counted():
    return run_of_digits()


def run_of_digits(M=4):
    """The trace of a run with arrays, whose bytes are counted."""
    X, Y = (part[:, :8] for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 10), mp.ReLU()]
    pipe = mp.Pipeline(
        layers, mp.SoftmaxCrossEntropy(), 2, M, recompute="always", link=mp.Link(latency=1), count_bytes=True,
    )
    pipe.forward_backward(X, Y)
    return pipe.trace


def test_the_timeline_has_legend_and_names_in_the_axes_given():
    trace = mp.simulate(with_recompute(build("1f1b", 3, 4)))
    ax = axes()
    assert trace.plot(ax=ax) is ax
    assert labels_of(ax.get_legend()) == ["forward", "backward", "recompute"]
    rows = [tick.get_text() for tick in ax.get_yticklabels()]
    assert ax.get_xlabel() == "time (ticks)" and rows == ["device 0", "device 1", "device 2"]
    assert ax.get_xlim() == (0, trace.makespan) and ax.yaxis_inverted()


def test_a_figure_is_as_wide_as_its_shortest_box_needs():
    """1F1B with F = 4, B = 2 takes 66 ticks: 33 columns of 0.24 inches, and an inch beside them."""
    trace = mp.simulate(build("1f1b", 4, 8), mp.Costs(F=4, B=2))
    assert figure_size([trace], 4) == (0.24 * 33 + 1, 0.45 * 4 + 1.1)


def test_until_shows_what_has_happened_so_far():
    trace = mp.simulate(build("gpipe", 3, 4))
    ax = plots.timeline(trace, ax=axes(), until=5.5)
    assert len(boxes(ax)) == len([s for s in trace.spans if s.start < 5.5])
    assert max(end for _, end, _ in boxes(ax)) == 5.5
    assert not plots.timeline(trace, ax=axes(), until=0).collections


def test_new_axes_are_made_only_when_none_are_given(counted):
    for draw in (
        plots.timeline, plots.memory,
        lambda trace, **options: plots.ledger(trace, 0, **options),
    ):
        before = plt.get_fignums()
        draw(counted, ax=axes())
        assert plt.get_fignums() == before
        made = draw(counted)
        assert made.figure.number not in before and made.figure.axes == [made]


def test_the_21st_open_picture_gives_no_warning():
    """Warnings are errors here."""
    made = [plots.curves({"one": [(0, 1)]}).figure for _ in range(21)]
    assert [plt.figure(number) for number in plt.get_fignums()] == made


def test_characters_that_xml_lacks_are_replaced_in_a_picture(tmp_path):
    mp.simulate("1f1b").save(tmp_path / "run.svg", title="a\x00b\x1b[31m\ud800\ufffe é")
    ElementTree.parse(tmp_path / "run.svg")
    written = (tmp_path / "run.svg").read_text(encoding="utf-8")
    assert "a\ufffdb\ufffd[31m\ufffd\ufffd é</text>" in written  # as text, which slides can edit


def test_memory_curves_match_the_trace(counted):
    ax = plots.memory(counted, ax=axes())
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time (ticks)", "memory (KiB)")
    for device, line in enumerate(ax.lines):
        *curve, end = zip(*line.get_data())
        assert curve == [(tick, size / 1024) for tick, size in counted.memory(device)]
        assert end == (counted.makespan, counted.memory(device)[-1][1] / 1024)
        assert max(line.get_ydata()) * 1024 == counted.peak_bytes()[device]
    with pytest.raises(ValueError, match="has not counted the bytes that devices hold"):
        plots.memory(mp.simulate(build("gpipe", 2, 2)), ax=axes())


def test_layers_of_a_ledger_are_kinds_that_add_up_to_the_memory(counted):
    ax = plots.ledger(counted, 0, ax=axes())
    kinds = ["parameters", "gradients", "stashed inputs", "caches", "work", "messages"]
    assert [layer.get_label() for layer in ax.collections] == [
        kind for kind in kinds if any(kind in held for _, held in counted.ledger(0))
    ]
    assert [to_hex(layer.get_facecolor()[0]).upper() for layer in ax.collections] == [
        MEMORY_KINDS[layer.get_label()] for layer in ax.collections
    ]
    assert labels_of(ax.get_legend()) == [layer.get_label() for layer in ax.collections][::-1]  # as they lie
    top = ax.collections[-1].get_paths()[0].vertices
    for tick, n_bytes in counted.memory(0):
        assert max(y for x, y in top if x == tick) >= n_bytes / 1024
    assert max(y for _, y in top) == counted.peak_bytes()[0] / 1024
    assert ax.get_xlim() == (0, counted.makespan)
    with pytest.raises(ValueError, match="has not counted the bytes that devices hold"):
        plots.ledger(mp.simulate(build("gpipe", 2, 2)), 0, ax=axes())
    for device in (2, -1, "0"):
        with pytest.raises(ValueError, match=f"device={device!r} is not one of .* devices are 0 to 1"):
            plots.ledger(counted, device, ax=axes())


def test_an_overlap_is_one_box_in_two_halves_the_forward_above():
    ax = mp.simulate(both_ways(), mp.Costs(FB=2)).plot(ax=axes())
    assert (3, 5, -0.2) in boxes(ax, "F", 0, 2) and (3, 5, 0.2) in boxes(ax, "B", 1, 2)
    numbers = {(text.get_text(), text.get_position()) for text in ax.texts}
    assert numbers >= {("3", (4, -0.2)), ("2", (4, 0.2))}
    assert len(boxes(ax)) == 15 + 1, "of 15 spans one has two halves"


def test_updates_are_lines_and_those_that_take_time_are_boxes():
    schedule = mp.Schedule.from_text(["F0 F1 B0 B1 U1", "F0 B0 F1 B1 U1"])
    trace = with_all_reduces(mp.simulate(schedule, mp.Costs(U=[0, 0.5])))
    ax = trace.plot(ax=axes())
    assert boxes(ax, "U") == [(7, 7.5, 1.65), (9, 9, 0)]
    assert boxes(ax, "A") == [(9, 10, 0.75), (10, 11, 2.4)]
    lines = [some for some in ax.collections if to_hex(some.get_facecolor()[0]) == shade("U", 0, 1)]
    assert {some.get_linewidth()[0] for some in lines} == {2}
    forwards, = (some for some in ax.collections if to_hex(some.get_facecolor()[0]) == shade("F", 0, 1))
    assert (forwards.get_linewidth()[0], to_hex(forwards.get_edgecolor()[0])) == (0.6, "#404040")
    assert labels_of(ax.get_legend()) == ["forward", "backward", "all-reduce", "update"]
    assert len(ax.texts) == 8, "an all-reduce and an update belong to no micro-batch: they have no number"


@pytest.mark.parametrize("name", one_in(6, sorted(names_having(flush=True))))
def test_every_action_is_a_box_of_its_kind_with_its_number(name):
    """Of an overlap, the upper half of the box is the forward, the lower one the backward."""
    trace = mp.simulate(build(name, 4, 8))
    ax, places = trace.plot(ax=Figure(figsize=(60, 4)).add_subplot()), stage_places(trace)
    expected, numbers = {}, {}
    for span in trace.spans:
        parts = parts_of(span.label)
        for part, down in zip(parts, [0] if len(parts) == 1 else [-HEIGHT / 4, HEIGHT / 4], strict=True):
            row, place = round(span.device + down, 9), places.of[span.device, part.stage]
            expected.setdefault((part.kind, place), []).append((span.start, span.end, row))
            colour = ink(shade(part.kind, place, places.n))
            numbers[(span.start + span.end) / 2, row] = str(part.microbatch), colour
    for (kind, place), spans in expected.items():
        assert boxes(ax, kind, place, places.n) == sorted(spans)
    assert len(boxes(ax)) == sum(map(len, expected.values()))
    texts = {(x, round(y, 9)): text for text in ax.texts for x, y in [text.get_position()]}
    assert {place: (text.get_text(), text.get_color()) for place, text in texts.items()} == numbers


def test_shades_of_stages_and_copies_are_in_the_legend():
    for schedule, words in [
        (build("zb-v", 2, 4), "device's 1st, 2nd stage"),
        (both_ways(), "network's 1st, 2nd replica"),
        (mp.schedules.interleaved_one_f_one_b(2, 2, 4), "device's 1st to 4th stage"),
    ]:
        assert labels_of(mp.simulate(schedule).plot(ax=axes()).get_legend())[-1] == words


def test_arrows_go_from_the_sending_to_the_arrival():
    trace = mp.simulate(build("1f1b", 3, 4), link=mp.Link(latency=0.5))
    rows = {}
    for which in (True, "waited"):
        quiver, = arrows(trace.plot(ax=axes(), arrows=which))
        x, y = quiver.get_offsets().T
        # an arrow leaves the middle of both rows, where the numbers are, free
        inwards = np.sign(quiver.V) * HEIGHT / 4
        rows[which] = sorted(
            zip(x, np.round(y - inwards, 9), x + quiver.U, np.round(y + quiver.V + inwards, 9))
        )
    assert rows[True] == sorted((m.sent, m.source, m.arrived, m.to) for m in trace.messages)
    assert len(rows[True]) == 16
    ends = {(idle.device, idle.end, idle.message) for idle in trace.idle}
    waited = [m for m in trace.messages if (m.to, m.received, m.label) in ends]
    assert rows["waited"] == sorted((m.sent, m.source, m.arrived, m.to) for m in waited)
    assert 0 < len(waited) < 16
    early, = arrows(plots.timeline(trace, ax=axes(), arrows=True, until=3))
    assert len(early.U) == len([m for m in trace.messages if m.arrived <= 3])
    assert not arrows(trace.plot(ax=axes()))
    with pytest.raises(ValueError, match="arrows='some' is not a choice"):
        trace.plot(ax=axes(), arrows="some")


def test_a_shared_memory_axis_holds_all_curves():
    figure = Figure()
    for ax, M in zip(figure.subplots(2, sharey=True), (4, 1)):
        plots.memory(run_of_digits(M), ax=ax)
    highest = max(max(line.get_ydata()) for ax in figure.axes for line in ax.lines)
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim() and figure.axes[0].get_ylim()[1] > highest


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "zb-v", "looped"])
def test_micro_batches_are_alive_until_their_backward_ends(name):
    trace = mp.simulate(build(name, 4, 4))
    for device in range(trace.n_devices):
        last = {s.label[1:]: s.end for s in trace.spans_of(device) if s.label.kind in "BW"}
        for tick, alive in alive_microbatches(trace, device):
            begun = {s.label[1:] for s in trace.spans_of(device) if s.label.kind == "F" and s.start <= tick}
            kept = [place for place in begun if last[place] > tick]
            assert alive * trace.shares[device] == len(kept)


def test_the_critical_path_is_outlined_and_leads_from_row_to_row():
    """Sends block: after each first message, its sender goes on, so that the line comes back to its row."""
    trace = mp.simulate(build("gpipe", 2, 2), link=mp.Link(latency=3, blocking=True))
    boxes = [(0, 0, 1), (4, 0, 1), (8, 1, 1), (9, 1, 2), (14, 1, 2), (19, 0, 2)]  # start, device, ticks
    lines = [  # ticks, and the edges of the rows of devices 0 and 1 that face each other
        ((1, 4, 4), (0.4, 0.6, 0.4)), ((5, 8), (0.4, 0.6)), ((11, 14, 14), (0.6, 0.4, 0.6)),
        ((16, 19), (0.6, 0.4)),
    ]
    ax = plots.critical_path(trace, axes())
    assert [(box.get_xy(), box.get_width(), box.get_height()) for box in ax.patches] == [
        ((start, device - 0.4), ticks, 0.8) for start, device, ticks in boxes
    ]
    assert [tuple(map(tuple, line.get_data())) for line in ax.lines] == lines


def test_arrows_and_critical_path_are_in_the_legend_if_drawn():
    slow, kinds = mp.simulate(build("gpipe", 2, 3), link=mp.Link(latency=1)), ["forward", "backward"]
    for options, others in [
        ({"arrows": True}, ["message"]), ({"arrows": "waited"}, ["message waited for"]),
        ({"arrows": True, "critical_path": True}, ["message", "critical path"]),
    ]:
        assert labels_of(slow.plot(**options).get_legend()) == kinds + others
    assert labels_of(plots.timeline(slow, arrows=True, until=1).get_legend()) == kinds[:1]
    assert slow.plot(critical_path=True, legend=False).get_legend() is None
    ax = plots.timeline(slow)
    for _ in range(2):
        plots.critical_path(slow, ax)
    assert labels_of(ax.get_legend()) == [*kinds, "critical path"]
    alone = mp.simulate(build("gpipe", 1, 3))
    for traces, others in ([alone, slow], ["message"]), ([alone], []):
        legend, = plots.compare(dict(enumerate(traces)), arrows=True).legends
        assert labels_of(legend) == kinds + others


@pytest.mark.parametrize("name, width, is_beside", [
    ("gpipe", 4, False), ("zb-v", 14, True), ("zb-v", 8, False),
])
def test_a_legend_is_beside_the_title_where_both_have_room(name, width, is_beside):
    """Otherwise it is below, in as many rows as it needs."""
    figure, title = Figure(figsize=(width, 3)), f"{name} on four devices, with eight micro-batches"
    ax = mp.simulate(build(name, 4, 8)).plot(ax=figure.add_subplot(), title=title)
    figure.draw_without_rendering()
    words, = (text for text in ax.findobj(Text) if text.get_text() == title)
    above, legend = words.get_window_extent(), ax.get_legend().get_window_extent()
    assert not above.overlaps(legend) and legend.width < ax.bbox.width
    assert (above.y0 < legend.y1) == is_beside and above.y0 - legend.y1 < 10 * figure.dpi / 72


def test_a_comparison_has_one_time_axis_titles_and_one_legend():
    traces = {name: mp.simulate(build(name, 4, 4)) for name in ("gpipe", "zb-v", "zb-h1")}
    figure = plots.compare(traces)
    longest = max(trace.makespan for trace in traces.values())
    assert [ax.get_xlim() for ax in figure.axes] == [(0, longest)] * 3
    assert [ax.get_title("left") for ax in figure.axes] == [
        f"{name}: {trace.makespan:g} ticks, idle {100 * trace.bubble('total'):.0f} % of the time"
        for name, trace in traces.items()
    ]
    assert figure.axes[0].get_title("left") == "gpipe: 21 ticks, idle 43 % of the time"
    assert [ax.get_xlabel() for ax in figure.axes] == ["", "", "time (ticks)"]
    legend, = figure.legends
    assert labels_of(legend) == [
        "forward", "backward", "input gradient", "weight gradient", "device's 1st, 2nd stage",
    ]
    assert not [ax for ax in figure.axes if ax.get_legend()]
    for ax, trace in zip(figure.axes, traces.values()):
        strips = [path.get_extents() for path in ax.collections[-1].get_paths()]
        assert [(strip.x0, strip.x1) for strip in strips] == [(0, trace.makespan)] * trace.n_devices
        assert ax.collections[-1].get_zorder() < ax.collections[0].get_zorder()
        assert len(ax.texts) == len(trace.spans)
    with pytest.raises(ValueError, match="nothing to compare"):
        plots.compare({})
    for other in next(iter(traces.values())), list(traces.values()):
        with pytest.raises(ValueError, match=r"^traces=.* must be {name: trace}, such as {'gpip"):
            plots.compare(other)
    fractions = mp.simulate(
        build("gpipe", 2, 2), mp.Costs(F=Fraction(1, 3), B=Fraction(2, 3)), mp.Link(latency=Fraction(1, 3))
    )
    title = plots.compare({"fractions": fractions}, arrows=True).axes[0].get_title("left")
    assert title.startswith("fractions: 3.66667 ticks")
    with pytest.raises(ValueError, match="no device has computed for any time"):
        plots.compare({"empty": mp.cluster.Cluster([]).trace})


@pytest.mark.slow
def test_a_film_uncovers_what_has_happened(tmp_path):
    trace = mp.simulate(build("1f1b", 2, 2))
    trace.save(tmp_path / "run.gif", "a film")
    figure = timeline_figure(trace, "a film")
    figure.savefig(tmp_path / "run.png", dpi=figure.dpi)
    with Image.open(tmp_path / "run.gif") as film, Image.open(tmp_path / "run.png") as picture:
        assert film.n_frames == 101 and film.size == picture.size
        left, right = figure.axes[0].get_window_extent().intervalx
        whole = drawn_columns(picture)
        for number in (0, 25, 50, 100):
            film.seek(number)
            edge = left + (right - left) * number / 100
            found = drawn_columns(film)
            assert found == whole[:int(edge) - 1] + found[int(edge) - 1:]
            assert not any(found[int(edge) + 2:])
    with pytest.raises(ValueError, match="nothing took time in this run: there is no film"):
        mp.cluster.Cluster([]).run().save(tmp_path / "none.gif")


def drawn_columns(picture):
    """Whether there is any colour in each column of the picture, in the row of the first device."""
    pixels = picture.convert("HSV").getchannel("S")
    row = pixels.height // 3
    return [pixels.getpixel((x, row)) > 50 for x in range(pixels.width)]


# ---- labels, edges and legends ----

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


def test_numbers_shrink_to_fit_or_are_left_out():
    sizes = []
    for width in (12, 2.6, 1.8):
        ax = Figure(figsize=(width, 2)).add_subplot()
        mp.simulate(build("gpipe", 2, 8)).plot(ax=ax, legend=False)
        sizes.append([text.get_fontsize() for text in ax.texts])
    assert sizes[0] == [8] * 32
    assert len(sizes[1]) == 32 and len(set(sizes[1])) == 1 and 6 <= sizes[1][0] < 8
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
    plots.timeline, plots.memory, partial(plots.ledger, device=0),
    lambda trace, ax, title: plots.critical_path(trace, plots.timeline(trace, ax, title=title, arrows=True)),
])
def test_nothing_is_cut_off_in_a_figure_with_a_layout(draw):
    """Legend, title, names: all are inside, as `savefig` writes it."""
    ax = Figure(layout="constrained").add_subplot()
    draw(run_of_digits(), ax=ax, title="A title that is about as long as such titles are")
    ax.figure.draw_without_rendering()
    taken, page = ax.get_tightbbox(), ax.figure.bbox
    assert taken.x0 >= 0 and taken.y0 >= 0 and taken.x1 <= page.x1 and taken.y1 <= page.y1, taken
