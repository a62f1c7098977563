"""The legend of a timeline: the kinds of work, and what the shades mean."""

from weakref import WeakKeyDictionary

from .canvas import printable
from .colours import EDGE, OTHER, shade

FONT_SIZE = 9

_drawn = WeakKeyDictionary()  # axes -> (handles, labels, title) of their legend


def entries(boxes, places, styles):
    """(handles, labels) for the kinds of work among `boxes`.

    places: a list, the `Places` of each trace that the boxes come from.
    styles: of the kinds of work.
    """
    n_places = max(each.n for each in places)
    kinds = {box.kind: None for box in boxes}
    handles = [_handle(kind, n_places, styles) for kind in (*styles, None) if kind in kinds]
    labels = [printable(styles.get(kind, OTHER)["label"]) for kind in (*styles, None) if kind in kinds]
    for shared, thing in ((False, "device's {} stage"), (True, "network's {} copy")):
        n = max((each.n for each in places if each.n > 1 and each.shared == shared), default=0)
        if n and handles:
            handles.append(_handle(None, n, styles))
            which = {2: "1st, 2nd", 3: "1st, 2nd, 3rd"}.get(n, f"1st to {n}th")
            labels.append(thing.format(which))
    return handles, labels


def draw(ax, handles, labels, title):
    """The legend above the axes: beside the title where there is room for both, under it otherwise.

    ax: matplotlib axes.
    handles, labels: what `entries` gives.
    title: that of the axes, or None.
    """
    _drawn[ax] = handles, labels, title
    width = ax.bbox.width * 72 / ax.figure.dpi
    n_columns = _columns(labels, width)
    n_rows = -(-len(labels) // n_columns)
    if title is not None:
        title = printable(title)
        beside = n_rows == 1 and _width(labels, n_columns) + 6.5 * len(title) < width
        ax.set_title(title, loc="left", fontsize=11, pad=6 if beside else 10 + 1.55 * FONT_SIZE * n_rows)
    ax.legend(
        handles, labels, loc="lower right", bbox_to_anchor=(1, 1), ncols=n_columns, borderaxespad=0.2,
        **_style(),
    )


def add_to_legend(ax, handle, label):
    """One more entry of the legend that `draw` has drawn, if there is one."""
    handles, labels, title = _drawn.get(ax, ([], [], None))
    if labels and label not in labels:
        draw(ax, [*handles, handle], [*labels, label], title)


def draw_on_top(figure, handles, labels):
    """The legend of a whole figure, above all its axes."""
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
    """The most columns of a legend that fit into `width` points."""
    return next((n for n in range(len(labels), 1, -1) if _width(labels, n) < width), 1)


def _width(labels, n_columns):
    """The width of a legend in points, about.

    Labels fill one column after the other, the first ones with one more.
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
