"""The legend of a timeline: the kinds of work, and what the shades mean."""

from .boxes import EDGE, OTHER, STYLES, shade

FONT_SIZE = 9


def entries(boxes, lanes):
    """(handles, labels) for the kinds of work among `boxes`.

    lanes: a list, the `Lanes` of each trace that the boxes come from.
    """
    n_lanes = max(each.n for each in lanes)
    kinds = {box.kind: None for box in boxes}
    handles = [_handle(kind, n_lanes) for kind in (*STYLES, None) if kind in kinds]
    labels = [STYLES.get(kind, OTHER)["label"] for kind in (*STYLES, None) if kind in kinds]
    for copies, thing in ((False, "device's {} stage"), (True, "network's {} copy")):
        n = max((each.n for each in lanes if each.n > 1 and each.copies == copies), default=0)
        if n and handles:
            handles.append(_handle(None, n))
            which = {2: "1st, 2nd", 3: "1st, 2nd, 3rd"}.get(n, f"1st to {n}th")
            labels.append(thing.format(which))
    return handles, labels


def draw(ax, handles, labels, title):
    """The legend above the axes: beside the title where there is room for both, under it otherwise.

    ax: matplotlib axes.
    handles, labels: what `entries` gives.
    title: that of the axes, or None.
    """
    width = ax.bbox.width * 72 / ax.figure.dpi
    n_columns = _columns(labels, width)
    n_rows = -(-len(labels) // n_columns)
    if title:
        beside = n_rows == 1 and _width(labels, n_columns) + 6.5 * len(title) < width
        ax.set_title(title, loc="left", fontsize=11, pad=6 if beside else 10 + 1.55 * FONT_SIZE * n_rows)
    ax.legend(
        handles, labels, loc="lower right", bbox_to_anchor=(1, 1), ncols=n_columns, borderaxespad=0.2,
        **_style(),
    )


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


def _handle(kind, n_lanes):
    from matplotlib.patches import Patch

    edge = {name: STYLES.get(kind, {}).get(name, value) for name, value in EDGE.items()}
    patches = tuple(Patch(facecolor=shade(kind, lane, n_lanes), **edge) for lane in range(n_lanes))
    return patches if len({patch.get_facecolor() for patch in patches}) > 1 else patches[0]
