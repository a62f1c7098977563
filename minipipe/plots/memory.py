"""What each device holds, over time: bytes where a run has counted them, or micro-batches.

The curves stand alone, or under the timeline; one device alone is shown by kind.
"""

from ..checks import listed
from ..cluster import SHOWS
from ..cluster.trace import check_trace
from ..order import alive_microbatches
from .boxes import height_of, rows_of
from .canvas import draw_legend_beside, import_matplotlib, label, make_room
from .timeline import figure_size, new_axes, timeline

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
MOST_SHIFT = 6  # points by which curves that would hide each other are drawn apart


def memory(trace, ax=None, title=None, legend=True, until=None):
    """Draw the memory curves of `trace`, one per device, and return the matplotlib axes.

    trace: the run; `ValueError` if it counted no memory.
    ax: matplotlib axes; new ones if None.
    title: above the picture.
    legend: whether to name the devices.
    until: draw only what has happened before that tick.

    The unit of the y axis is KiB (1,024 bytes).
    """
    check_trace(trace)
    curves = [
        [(tick, n_bytes / 1024) for tick, n_bytes in trace.memory(device)]
        for device in range(trace.n_devices)
    ]
    return _draw(trace, curves, "memory (KiB)", ax, title, legend, until)


def alive(trace, ax=None, title=None, legend=True, until=None):
    """Draw how many micro-batches are alive on each device, and return the matplotlib axes.

    trace: the run; `ValueError` if its labels name no forward of a micro-batch.
    ax: matplotlib axes; new ones if None.
    title: above the picture.
    legend: whether to name the devices.
    until: draw only what has happened before that tick.

    `minipipe.order.alive_microbatches` says what is counted. Curves of one height lie side by side,
    a line's width apart.
    """
    check_trace(trace)
    curves = [alive_microbatches(trace, device) for device in range(trace.n_devices)]
    if not any(curves):
        raise ValueError("this run names no forwards of micro-batches: only a schedule's labels do")
    ax = _draw(
        trace, [[(0, 0), *curve] for curve in curves], "micro-batches alive", ax, title, legend, until
    )
    _draw_apart(ax)
    ax.yaxis.get_major_locator().set_params(integer=True)
    return ax


@SHOWS(gives="a pair of axes")
def timeline_with_memory(trace, axes=None, until=None, title=None, legend=True, arrows=False):
    """The timeline of `trace` with its memory curves below, on one time axis.

    trace: the run.
    axes: a pair, such as `figure.subplots(2, sharex=True)` gives; those of a new figure if None.
    until: draw only what has happened before that tick.
    title: above the timeline.
    legend: whether to name kinds of work and devices.
    arrows: as in `timeline`.

    The curves are those of `memory` if the run counted bytes, else those of `alive`. Returns the pair
    of matplotlib axes.
    """
    check_trace(trace)
    pair = _new_pair(trace) if axes is None else listed("axes", axes)
    if len(pair) != 2:
        raise ValueError(f"axes has {len(pair)} axes: pass a pair, for the timeline and for the memory")
    upper, lower = pair
    timeline(trace, upper, until, title, legend, arrows)
    curves = memory if counts_bytes(trace) else alive
    curves(trace, lower, None, legend, until)
    lower.set_xlim(upper.get_xlim())
    upper.set_xlabel("")
    return upper, lower


def counts_bytes(trace):
    """Whether the run has counted the bytes that its devices hold."""
    try:
        trace.memory(0)
    except ValueError:
        return False
    return True


def _new_pair(trace):
    import_matplotlib()
    import matplotlib.pyplot as plt

    heights = height_of(rows_of(trace)) + 1, max(3, 0.6 * trace.n_devices)  # in rows
    size = figure_size([trace], sum(heights))
    return plt.subplots(2, sharex=True, figsize=size, height_ratios=heights, layout="constrained")[1]


def _draw(trace, curves, unit, ax, title, legend, until):
    """Step curves, each a list of (tick, level), valid until the next."""
    ax = new_axes(trace) if ax is None else ax
    end = float(trace.makespan if until is None else until)  # matplotlib knows no fractions
    highest = max(level for curve in curves for _, level in curve)
    top = max([1.05 * highest, *_tops_of_neighbours(ax)]) or 1
    for device, curve in enumerate(curves):
        past = [point for point in curve if until is None or point[0] < until] or [(0, 0)]
        ticks, levels = zip(*past, (end, past[-1][1]))
        ax.step(ticks, levels, where="post", label=f"device {device}", color=COLOURS[device % len(COLOURS)],
                linestyle=("-", "--", "-.", ":")[device % 4], linewidth=1.6)
    ax.set(xlim=(0, max(float(trace.makespan), end) or 1), ylim=(0, top))
    label(ax, title, f"time ({trace.unit})", unit)
    if legend:
        draw_legend_beside(ax)
    make_room(ax)
    return ax


def _tops_of_neighbours(ax):
    """The upper ends of the y axes that `ax` shares, where something is drawn already."""
    return [other.get_ylim()[1] for other in ax.get_shared_y_axes().get_siblings(ax) if other.lines]


def _draw_apart(ax):
    """Shift each curve by some points more than the one before, so that none hides another.

    Their data stay.
    """
    from matplotlib.transforms import ScaledTranslation

    step = min(2, MOST_SHIFT / len(ax.lines))
    for number, line in enumerate(ax.lines):
        line.set_transform(ax.transData + ScaledTranslation(0, number * step / 72, ax.figure.dpi_scale_trans))


# One device alone, by kind: parameters, gradients, stashes, caches, messages.

# from the ground up: what stays lies below; readers with any colour vision tell each from each
MEMORY_KINDS = {
    "parameters": "#202020",
    "optimizer state": "#007DC8",
    "weight versions": "#968B76",
    "gradients": "#0A6134",
    "stashed inputs": "#EDDD3C",
    "caches": "#52B9F3",
    "work": "#D65E00",
    "messages": "#CC81AE",
}


def ledger(trace, device, ax=None, title=None, legend=True):
    """Draw the bytes of one device as layers, one for each kind, and return the matplotlib axes.

    trace: the run; `ValueError` if it counted no memory.
    device: its number.
    ax: matplotlib axes; new ones if None.
    title: above the picture.
    legend: whether to name the kinds.

    The unit of the y axis is KiB (1,024 bytes). "gradients" are the sums over micro-batches, "work" is what
    an action is given and makes while it lasts.
    """
    check_trace(trace)
    entries = trace.ledger(device)
    ax = new_axes(trace) if ax is None else ax
    ticks = [*(float(tick) for tick, _ in entries), float(trace.makespan)]  # matplotlib knows no fractions
    kinds = [kind for kind in MEMORY_KINDS if any(kind in held for _, held in entries)]
    layers = [[held.get(kind, 0) / 1024 for _, held in (*entries, entries[-1])] for kind in kinds]
    ax.stackplot(
        ticks, layers, step="post", labels=kinds, colors=[MEMORY_KINDS[kind] for kind in kinds], linewidth=0
    )
    ax.set(xlim=(0, ticks[-1]), ylim=(0, None))
    label(ax, title, f"time ({trace.unit})", f"device {device} (KiB)")
    if legend:
        draw_legend_beside(ax, reverse=True)
    make_room(ax)
    return ax
