"""The timeline of a run: a row per device, a box per action; idle time is empty.

Messages and the critical path can be drawn onto it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from itertools import groupby
from operator import add
from typing import TYPE_CHECKING, Any

from ..checks import shown
from ..cluster import COMPUTE, SHOWS, Trace
from ..cluster.trace import check_trace
from ..order import Schedule, simulate
from .boxes import MARGIN, Box, Row, boxes, ends_of, height_of, rows_of, stage_places
from .canvas import (
    EDGE, add_to_legend, draw_legend, ink, label, legend_entries, new_axes, new_figure, styles_of,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# The messages of a run, as arrows on its timeline.

ARROW_CHOICES = (False, True, "waited")
ARROW_STYLE: dict[str, Any] = {
    "color": "#202020",
    "units": "inches",
    "width": 0.012,
    "headwidth": 5,
    "headlength": 7,
    "headaxislength": 6,
    "minlength": 0,
}


def draw_arrows(ax: Axes, trace: Trace, which: bool | str = True, until: float | None = None) -> None:
    """Draw each message as an arrow from its sender, at its send, to its receiver.

    Args:
        ax: matplotlib axes with the timeline.
        trace: the run.
        which: True, or "waited" for only those that a device was idle for.
        until: messages that arrive after that tick are left out.
    """
    rows, positions = rows_of(trace), []
    for message in messages_of(trace, which, until):
        source, to = (rows[end] for end in ends_of(message, rows))
        # begin and end a quarter of a box from the rows' middles, where the numbers are
        inwards = 1 / 4 if to.middle > source.middle else -1 / 4
        x, y = float(message.sent), source.middle + inwards * source.height
        # where the arrow begins, and how far it goes in both directions
        positions.append((x, y, float(message.arrived) - x, to.middle - inwards * to.height - y))
    if positions:
        ax.quiver(*zip(*positions), angles="xy", scale_units="xy", scale=1, zorder=3, **ARROW_STYLE)


def messages_of(trace: Trace, which: bool | str = True, until: float | None = None) -> list:
    """Return the messages of `trace` to draw by `which` and `until`."""
    if not isinstance(which, (bool, str)) or which not in ARROW_CHOICES:
        raise ValueError(
            f"arrows={shown(which)} is not a choice: "
            "use False, True or 'waited', for those that a device waited for"
        )
    messages = [
        message
        for message in trace.messages
        if which and message.arrived is not None and (until is None or message.arrived <= until)
    ]
    if which != "waited":
        return messages
    waits = {
        (idle.device, idle.lane, idle.end, idle.message)
        for idle in trace.idle
        if idle.reason in ("fill", "wait")
    }
    return [
        message
        for message in messages
        if (message.to, message.to_lane, message.received, message.label) in waits
    ]


def entries_of_arrows(
    traces: Iterable[Trace], which: bool | str, until: float | None = None
) -> tuple[list, list]:
    """Return ([handle], [label]) of the arrows of `traces`, or ([], []) without any.

    Args:
        traces: the runs.
        which, until: as for `draw_arrows`.
    """
    from matplotlib.lines import Line2D

    if not any(messages_of(trace, which, until) for trace in traces):
        return [], []
    handle = Line2D(
        [], [], color=ARROW_STYLE["color"], linewidth=72 * ARROW_STYLE["width"], marker=">", markersize=4
    )
    return [handle], ["message waited for" if which == "waited" else "message"]


# The timeline itself.

# points: the numbers in the boxes, and what cannot be read at half the size
LARGEST_FONT, SMALLEST_FONT = 8, 6
DIGIT = 0.64                # the width of a digit, in parts of the size of the font
SMALL, SOFT = 8, "#59636E"  # points, and the colour: the name of a lane below that of its device
MARK_WIDTH, OUTLINE = 2, 1.2  # points: the line of work that takes no time, and both its edges together
MOST_EDGE = 0.15              # the largest width of an edge, as a share of its box
RIM = 2                       # points: the rim of a number that is drawn over arrows


@SHOWS()
def timeline(
    trace: Trace, ax: Axes | None = None, until: float | None = None, title: str | None = None,
    legend: bool = True, arrows: bool | str = False, longest: float | None = None,
    styles: dict | None = None,
) -> Axes:
    """Draw a run into matplotlib axes, and return the axes.

    Args:
        trace: the run.
        ax: matplotlib axes; new ones if None.
        until: draw only what has happened before that tick.
        title: above the picture.
        legend: whether to name the kinds of work, and what else is drawn.
        arrows: True draws every message between devices, from its send to its arrival;
            "waited" only those that a device was idle for.
        longest: the ticks on the time axis, if more than the run's.
        styles: of the kinds of work; `styles_of` this run if None.

    The number in a box is its micro-batch. Other lanes of a device have a row below
    its own. A forward and a backward that overlap share a box, the forward above. If a
    device has several stages, later ones are darker, with white numbers. A thick line
    is work that takes no time, such as an update. In a figure of yours, nothing is cut
    off if it has layout="constrained".
    """
    check_trace(trace)
    if ax is None:
        ax = axes_of(trace)
    rows = rows_of(trace)
    styles = styles_of([trace]) if styles is None else styles
    ticks = float(max(trace.makespan, until or 0, longest or 0)) or 1  # matplotlib knows no fractions
    shown = boxes(trace, until, styles)
    ax.set(xlim=(0, ticks), ylim=(height_of(rows) - MARGIN, -MARGIN))
    ax.set_yticks([row.middle for row in rows.values()], [row.name for row in rows.values()])
    ax.tick_params(axis="y", length=0)
    for (_, lane), name in zip(rows, ax.get_yticklabels()):
        if lane != COMPUTE:
            name.set(color=SOFT, fontsize=SMALL)
    label(ax, title, f"time ({trace.unit})")
    ax.spines["left"].set_visible(False)
    if legend and shown:
        kinds = legend_entries(shown, [stage_places(trace)], styles)
        handles, labels = map(add, kinds, entries_of_arrows([trace], arrows, until))
        draw_legend(ax, handles, labels, title)
    # last, since the size of the numbers depends on the size of the axes
    fill(ax, shown, styles, ticks)
    write_numbers(ax, shown, ticks, list(rows.values()), with_rim=arrows is not False)
    draw_arrows(ax, trace, arrows, until)
    return ax


def timeline_figure(trace: Trace, title: str | None = None) -> Figure:
    """Return a matplotlib `Figure` of `trace` with `title`, which needs no display."""
    figure = new_figure(*figure_size([trace], height_of(rows_of(trace))))
    timeline(trace, figure.add_subplot(), title=title)
    return figure


def axes_of(trace: Trace) -> Axes:
    """Return axes in a new figure whose size suits the boxes and devices of `trace`."""
    return new_axes(*figure_size([trace], height_of(rows_of(trace))))


def figure_size(
    traces: Sequence[Trace], n_rows: float, row_height: float = 0.45, widest: float = 16
) -> tuple[float, float]:
    """Return (width, height) in inches of a figure with timelines on one time axis.

    Args:
        traces: the runs.
        n_rows: the height of all rows, in rows of a device.
        row_height: the height of one row, in inches.
        widest: the largest width, in inches.

    The shortest box gets about 0.24 inches.
    """
    spans = [span.end - span.start for trace in traces for span in trace.spans if span.end > span.start]
    most = max((len(trace.spans_of(*lane)) for trace in traces for lane in trace.lanes), default=0)
    n_columns = min(max(trace.makespan for trace in traces) / min(spans), 4 * most) if spans else 0
    return min(widest, max(6.5, 0.24 * n_columns + 1)), row_height * n_rows + 1.1


def fill(ax: Axes, shown: Sequence[Box], styles: dict, ticks: float) -> None:
    """Draw boxes, one collection for each kind of work and stage of a device.

    Args:
        ax: matplotlib axes.
        shown: the `Box`es.
        styles: of the kinds of work.
        ticks: on the time axis.

    The edge of a narrow box is thin, so that its colour is visible.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke
    from matplotlib.transforms import Bbox, TransformedBbox

    # a clip box that does not cut the outermost lines
    edge_to_edge = TransformedBbox(Bbox([[-0.005, 0], [1.005, 1]]), ax.transAxes)
    wide = _points(ax)[0] / ticks
    groups: dict = {}
    for box in shown:
        groups.setdefault((box.kind, box.place, box.colour, box.left == box.right), []).append(box)
    for (kind, _, colour, takes_no_time), group in groups.items():
        rectangles = [
            Rectangle((box.left, box.top), box.right - box.left, box.bottom - box.top) for box in group
        ]
        style = {name: styles.get(kind, {}).get(name, value) for name, value in EDGE.items()}
        if takes_no_time and style == EDGE:
            # a line of the colour that boxes of the kind have, with their edge
            outline = withStroke(linewidth=MARK_WIDTH + OUTLINE, foreground=EDGE["edgecolor"])
            style = {"edgecolor": colour, "linewidth": MARK_WIDTH, "path_effects": [outline]}
        elif style == EDGE:
            widths = [wide * (box.right - box.left) for box in group]
            edges = [min(EDGE["linewidth"], round(MOST_EDGE * width, 3)) for width in widths]
            style["linewidth"] = edges if len(set(edges)) > 1 else edges[0]  # one number is drawn faster
        collection = ax.add_collection(PatchCollection(rectangles, facecolor=colour, **style))
        collection.set_clip_box(edge_to_edge)


def write_numbers(ax: Axes, shown: Sequence[Box], ticks: float, rows: Sequence[Row], with_rim: bool) -> None:
    """Write the micro-batch into each box, in rows whose boxes all have room for it.

    Args:
        ax: matplotlib axes.
        shown: the `Box`es.
        ticks: on the time axis.
        rows: a list, the `Row`s on the other axis.
        with_rim: whether numbers have a rim, which interrupts the arrows below.

    All numbers have one size.
    """
    from matplotlib.patheffects import withStroke

    width, height = _points(ax)
    wide, high = width / ticks, height / (MARGIN + rows[-1].bottom)
    bottoms = [row.bottom for row in rows]
    room: dict = {}  # {row: {box: the largest size of its text}}
    for box in shown:
        if box.text and box.right > box.left:
            room.setdefault(bisect_left(bottoms, _middle(box)), {})[box] = min(
                LARGEST_FONT,
                0.92 * wide * (box.right - box.left) / (DIGIT * len(box.text)),
                0.9 * high * (box.bottom - box.top),
            )
    legible: dict = {}
    for sizes in room.values():
        if min(sizes.values()) >= SMALLEST_FONT:
            legible |= sizes
    common = min((size for box, size in legible.items() if box.text.isdigit()), default=LARGEST_FONT)
    for box, size in legible.items():
        rim = [withStroke(linewidth=RIM, foreground=box.colour)] if with_rim else None
        ax.text(
            (box.left + box.right) / 2, (box.top + box.bottom) / 2, box.text, color=ink(box.colour),
            clip_on=True, ha="center", va="center", fontsize=common if box.text.isdigit() else size,
            zorder=4, path_effects=rim,
        )


def _points(ax):
    """Return the width and the height of the axes in points."""
    return ax.bbox.width * 72 / ax.figure.dpi, ax.bbox.height * 72 / ax.figure.dpi


def _middle(box):
    return round((box.top + box.bottom) / 2, 6)


# The critical path.

PATH_STYLE = {"linewidth": 2.2, "zorder": 3}


@SHOWS()
def timeline_of(schedule: Schedule, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the run of a schedule with its standard costs; return the matplotlib axes.

    Args:
        schedule: the `Schedule`.
        ax: matplotlib axes; new ones if None.
        title: above the picture; the schedule's name if None.
    """
    return timeline(simulate(schedule), ax, title=schedule.name if title is None else title)


@SHOWS()
def critical_path(trace: Trace, ax: Axes) -> Axes:
    """Draw the critical path of a run on its timeline; return the axes.

    Args:
        trace: the run.
        ax: the matplotlib axes that `timeline` has drawn.

    Work on the path has a thick outline. A thick line from row to row is a transfer,
    with the messages that queued before it on the link; on a blocking link it returns
    where the sender continued. If a lane of a device has waited for another, a line
    connects their rows. The legend, if any, gets an entry.
    """
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    path: Sequence[Any] = trace.critical_path()
    rows = rows_of(trace)
    for step in path:
        if hasattr(step.what, "device"):
            row = rows[step.what.device, step.what.lane]
            corner, length = (step.start, row.middle - row.height / 2), step.end - step.start
            ax.add_patch(Rectangle(corner, length, row.height, fill=False, edgecolor="black", **PATH_STYLE))

    def ends(step):  # the keys of the rows between which a step goes; twice the same one for work
        what = step.what
        return 2 * ((what.device, what.lane),) if hasattr(what, "device") else ends_of(what, rows)

    stays = [(between, list(steps)) for between, steps in groupby(path, key=ends)]
    for ((source, to), steps), next_stay in zip(stays, [*stays[1:], None]):
        if source != to:
            half = 1 / 2 if rows[to].middle > rows[source].middle else -1 / 2
            leaves = rows[source].middle + half * rows[source].height
            arrives = rows[to].middle - half * rows[to].height
            ticks, heights = [steps[0].start, steps[-1].end], [leaves, arrives]
            if next_stay is not None and next_stay[0][0] == source:
                ticks.append(ticks[-1])
                heights.append(leaves)
            ax.plot(ticks, heights, color="black", solid_capstyle="butt", **PATH_STYLE)
    if path:
        add_to_legend(ax, Line2D([], [], color="black", **PATH_STYLE), "critical path")
    return ax
