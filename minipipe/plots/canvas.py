"""Empty figures, colours, legends and labels of axes."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..cluster import Trace


# The colours of the kinds of work.

# These colours are close to Okabe and Ito's. Readers with any kind of colour vision can tell them apart, also
# from light or dark paper; "dark" is the same hue for the device's last stage.
STYLES: dict[str, dict[str, Any]] = {
    "F": {"label": "forward", "facecolor": "#41B1F4", "dark": "#1669D5"},
    "B": {"label": "backward", "facecolor": "#E06915", "dark": "#651F00"},
    "I": {"label": "input gradient", "facecolor": "#EBA203", "dark": "#7D5404"},
    "W": {"label": "weight gradient", "facecolor": "#069D72", "dark": "#295730"},
    "R": {"label": "recompute", "facecolor": "#F3E948", "dark": "#77743F"},
    "A": {"label": "all-reduce", "facecolor": "#CD8FBF", "dark": "#742665"},
    "S": {"label": "reduce-scatter", "facecolor": "#8D7CC1", "dark": "#612FA3"},
    "G": {"label": "gather of parameters", "facecolor": "#7FE5FD", "dark": "#5B767E"},
    "X": {"label": "freeing of parameters", "facecolor": "#FEC4AD", "dark": "#FEC4AD"},
    "U": {
        "label": "update",
        "facecolor": "#4C4C4C",
        "dark": "#4C4C4C",
        "edgecolor": "#4C4C4C",
        "linewidth": 2,
    },
}
OTHER = {"label": "other work", "facecolor": "#C0C0C0", "dark": "#707070"}
TRACK = "#EEF1F4"  # the background of a run: idle time differs from the time after its end
EDGE = {"edgecolor": "#404040", "linewidth": 0.6}
LENDERS = "AWIRFB"  # kinds whose colour other work may get, if the run has none of that kind


def parts_of(label: Any) -> tuple:
    """Return the parts of an action or overlap; of other work, the label itself."""
    return getattr(label, "parts", (label,))


def styles_of(traces: Sequence[Trace]) -> dict:
    """Return {kind: style} for `STYLES` and the other kinds in the labels of `traces`.

    Each other kind gets a colour that no other work in the runs has. When no colour is
    left, the rest is "other work".

    >>> from minipipe.cluster import Cluster, Compute, Label
    >>> def program():
    ...     yield Compute(Label("add 3", kind="add"))
    >>> styles_of([Cluster([program()]).run()])["add"]
    {'label': 'add', 'facecolor': '#CD8FBF', 'dark': '#742665'}
    """
    spans: Iterable[Any] = (span for trace in traces for span in (*trace.spans, *trace.exchanges))
    kinds = dict.fromkeys(getattr(part, "kind", None) for span in spans for part in parts_of(span.label))
    others = [kind for kind in kinds if isinstance(kind, str) and kind not in ("", *STYLES)]
    taken = {STYLES[kind]["facecolor"] for kind in kinds if kind in STYLES}
    free = [lender for lender in LENDERS if STYLES[lender]["facecolor"] not in taken]
    return STYLES | {kind: STYLES[lender] | {"label": kind} for kind, lender in zip(others, free)}


def shade(kind: str | None, place: int, n_places: int, styles: dict = STYLES) -> str:
    """Return the colour of work: later stages of a device are darker.

    Args:
        kind: the kind of work, a key of `styles`; any other has the grey of other work.
        place: the index of the stage among the `n_places` stages of its device.
        n_places: the number of stages of the device.
        styles: {kind: style} with the lightest and the darkest colour.
    """
    from matplotlib.colors import to_hex, to_rgb

    style = styles.get(kind, OTHER)
    share = place / (n_places - 1) if n_places > 1 else 0
    pairs = zip(to_rgb(style["facecolor"]), to_rgb(style["dark"]))
    return to_hex([(1 - share) * light + share * dark for light, dark in pairs])


def ink(colour: str) -> str:
    """Return "black" or "white", whichever has more contrast with `colour` (WCAG 2)."""
    from matplotlib.colors import to_rgb

    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in to_rgb(colour)]
    luminance = 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
    return "black" if (luminance + 0.05) / 0.05 > 1.05 / (luminance + 0.05) else "white"


# Empty figures.

def new_figure(width: float, height: float) -> Figure:
    """Return a `Figure` of `width` x `height` inches that needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def new_axes(width: float, height: float) -> Axes:
    """Return axes in a new pyplot figure of `width` x `height` inches."""
    import matplotlib.pyplot as plt

    with warnings.catch_warnings():  # `rc_context` would undo what a notebook's backend sets as it loads
        warnings.filterwarnings("ignore", "More than .* figures", RuntimeWarning)
        return plt.subplots(figsize=(width, height), layout="constrained")[1]


def label(ax: Axes, title: str | None, x: str, y: str = "", pad: float | None = None) -> None:
    """Label axes, and remove the top and the right line of their frame.

    Args:
        ax: matplotlib axes.
        title: above them, or None.
        x, y: the names, with units.
        pad: points between the axes and the title; matplotlib's own if None.
    """
    ax.set(xlabel=x, ylabel=y)
    ax.spines[["top", "right"]].set_visible(False)
    if title is not None:
        ax.set_title(drawable(title), loc="left", fontsize=11, pad=pad)


def drawable(title: object) -> str:
    r"""Return `title` with U+FFFD for characters that SVG lacks, such as "\x1b"."""
    return re.sub("[^\n -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]", "\ufffd", str(title))


# The legend of a timeline: the kinds of work, and what the shades mean.

FONT_SIZE = 9

_legends: Any = WeakKeyDictionary()  # axes -> (handles, labels, title) of their legend


def legend_entries(boxes: Sequence, places: Sequence, styles: dict) -> tuple[list, list]:
    """Return (handles, labels) of a legend for the kinds of work among `boxes`.

    Args:
        places: a list, the `StagePlaces` of each trace that the boxes come from.
        styles: of the kinds of work.
    """
    n_places = max(each.n for each in places)
    kinds = {box.kind: None for box in boxes}
    handles = [_handle(kind, n_places, styles) for kind in (*styles, None) if kind in kinds]
    labels = [styles.get(kind, OTHER)["label"] for kind in (*styles, None) if kind in kinds]
    for shared, thing in ((False, "device's {} stage"), (True, "network's {} replica")):
        n = max((each.n for each in places if each.n > 1 and each.shared == shared), default=0)
        if n and handles:
            handles.append(_handle(None, n, styles))
            which = {2: "1st, 2nd", 3: "1st, 2nd, 3rd"}.get(n, f"1st to {n}th")
            labels.append(thing.format(which))
    return handles, labels


def draw_legend(ax: Axes, handles: list, labels: list, title: str | None) -> None:
    """Draw the legend above axes: next to the title if there is room, else under it.

    Args:
        ax: matplotlib axes.
        handles, labels: what `legend_entries` gives.
        title: that of the axes, or None.
    """
    _legends[ax] = handles, labels, title
    width = ax.bbox.width * 72 / ax.figure.dpi
    n_columns = _columns(labels, width)
    n_rows = -(-len(labels) // n_columns)
    if title is not None:
        title = drawable(title)
        beside = n_rows == 1 and _width(labels, n_columns) + 6.5 * len(title) < width
        ax.set_title(title, loc="left", fontsize=11, pad=6 if beside else 10 + 1.55 * FONT_SIZE * n_rows)
    ax.legend(
        handles, labels, loc="lower right", bbox_to_anchor=(1, 1), ncols=n_columns, borderaxespad=0.2,
        **_style(),
    )


def add_to_legend(ax: Axes, handle: Any, label: str) -> None:
    """Add `handle` and `label` to the legend of `draw_legend` in `ax`, if any."""
    handles, labels, title = _legends.get(ax, ([], [], None))
    if labels and label not in labels:
        draw_legend(ax, [*handles, handle], [*labels, label], title)


def draw_legend_beside(ax: Axes, reverse: bool = False) -> None:
    """Draw the legend of the curves in `ax` to its right, in columns of its height.

    Args:
        ax: matplotlib axes.
        reverse: whether the first entry is at the bottom.
    """
    n = len(ax.get_legend_handles_labels()[1])
    fitting = max(1, int(ax.bbox.height * 72 / ax.figure.dpi / (1.55 * FONT_SIZE)))
    ax.legend(
        loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=FONT_SIZE, reverse=reverse,
        ncols=-(-n // fitting), columnspacing=1,
    )


def draw_legend_on_top(figure: Figure, handles: list, labels: list) -> None:
    """Draw the legend `handles` with `labels` above all axes of `figure`."""
    n_columns = _columns(labels, figure.get_figwidth() * 72)
    figure.legend(handles, labels, loc="outside upper right", ncols=n_columns, **_style())


def _style():
    from matplotlib.legend_handler import HandlerTuple

    handlers = {tuple: HandlerTuple(ndivide=None, pad=0)}
    return {
        "handler_map": handlers,
        "frameon": False,
        "fontsize": FONT_SIZE,
        "handlelength": 1.4,
        "columnspacing": 1.2,
    }


def _columns(labels, width):
    """Return the largest number of legend columns that fit into `width` points."""
    return next((n for n in range(len(labels), 1, -1) if _width(labels, n) < width), 1)


def _width(labels, n_columns):
    """Return the approximate width of a legend in points.

    Labels fill one column after the other; the first columns may have one more.
    """
    widths = [FONT_SIZE * (0.56 * len(label) + 3.2) for label in labels]
    n_rows, n_long = divmod(len(labels), n_columns)
    ends = [column * n_rows + min(column, n_long) for column in range(n_columns + 1)]
    return sum(max(widths[first:last]) for first, last in zip(ends, ends[1:]))


def _handle(kind, n_places, styles):
    from matplotlib.patches import Patch

    edge = {name: styles.get(kind, {}).get(name, value) for name, value in EDGE.items()}
    colours = [shade(kind, place, n_places, styles) for place in range(n_places)]
    patches = tuple(Patch(facecolor=colour, **edge) for colour in colours)
    return patches if len({patch.get_facecolor() for patch in patches}) > 1 else patches[0]
