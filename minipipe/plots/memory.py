"""What each device holds, over time: bytes where a run has counted them, or micro-batches.

One device alone is shown by kind.
"""

from ..cluster.trace import check_trace
from ..order import alive_microbatches
from .canvas import draw_legend_beside, label, make_room
from .timeline import new_axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
MOST_SHIFT = 6  # points by which curves that would hide each other are drawn apart


def memory(trace, ax=None, title=None, legend=True):
    """Draw the memory curves of `trace`, one per device, and return the matplotlib axes.

    trace: the run; `ValueError` if it counted no memory.
    ax: matplotlib axes; new ones if None.
    title: above the picture.
    legend: whether to name the devices.

    The unit of the y axis is KiB (1,024 bytes).
    """
    check_trace(trace)
    curves = [
        [(tick, n_bytes / 1024) for tick, n_bytes in trace.memory(device)]
        for device in range(trace.n_devices)
    ]
    return _draw(trace, curves, "memory (KiB)", ax, title, legend)


def alive(trace, ax=None, title=None, legend=True):
    """Draw how many micro-batches are alive on each device, and return the matplotlib axes.

    trace: the run; `ValueError` if its labels name no forward of a micro-batch.
    ax: matplotlib axes; new ones if None.
    title: above the picture.
    legend: whether to name the devices.

    `minipipe.order.alive_microbatches` says what is counted. Curves of one height lie side by side,
    a line's width apart.
    """
    check_trace(trace)
    curves = [alive_microbatches(trace, device) for device in range(trace.n_devices)]
    if not any(curves):
        raise ValueError("this run names no forwards of micro-batches: only a schedule's labels do")
    ax = _draw(trace, [[(0, 0), *curve] for curve in curves], "micro-batches alive", ax, title, legend)
    _draw_apart(ax)
    ax.yaxis.get_major_locator().set_params(integer=True)
    return ax


def counts_bytes(trace):
    """Whether the run has counted the bytes that its devices hold."""
    try:
        trace.memory(0)
    except ValueError:
        return False
    return True


def _draw(trace, curves, unit, ax, title, legend):
    """Step curves, each a list of (tick, level), valid until the next."""
    ax = new_axes(trace) if ax is None else ax
    end = float(trace.makespan)  # matplotlib knows no fractions
    highest = max(level for curve in curves for _, level in curve)
    top = max([1.05 * highest, *_tops_of_neighbours(ax)]) or 1
    for device, curve in enumerate(curves):
        ticks, levels = zip(*curve, (end, curve[-1][1]))
        ax.step(ticks, levels, where="post", label=f"device {device}", color=COLOURS[device % len(COLOURS)],
                linestyle=("-", "--", "-.", ":")[device % 4], linewidth=1.6)
    ax.set(xlim=(0, end or 1), ylim=(0, top))
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
