"""The bytes that each device holds, over time; and those of one device alone, by kind."""

from ..cluster.trace import check_trace
from .canvas import draw_legend_beside, label, make_room
from .timeline import new_axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito


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
    ax = new_axes(trace) if ax is None else ax
    end = float(trace.makespan)  # matplotlib knows no fractions
    # axes that share their y axis with this one, and have curves already, stay whole
    sharing = [other for other in ax.get_shared_y_axes().get_siblings(ax) if other.lines]
    highest = max(level for curve in curves for _, level in curve)
    top = max([1.05 * highest, *(other.get_ylim()[1] for other in sharing)]) or 1
    for device, curve in enumerate(curves):
        ticks, levels = zip(*curve, (end, curve[-1][1]))
        ax.step(ticks, levels, where="post", label=f"device {device}", color=COLOURS[device % len(COLOURS)],
                linestyle=("-", "--", "-.", ":")[device % 4], linewidth=1.6)
    ax.set(xlim=(0, end or 1), ylim=(0, top))
    label(ax, title, f"time ({trace.unit})", "memory (KiB)")
    if legend:
        draw_legend_beside(ax)
    make_room(ax)
    return ax


def counts_bytes(trace):
    """Tell whether the run has counted the bytes that its devices hold."""
    try:
        trace.memory(0)
    except ValueError:
        return False
    return True


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


def ledger(trace, device, ax=None, title=None):
    """Draw the bytes of one device as layers, one for each kind, and return the matplotlib axes.

    trace: the run; `ValueError` if it counted no memory.
    device: its number.
    ax: matplotlib axes; new ones if None.
    title: above the picture.

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
    draw_legend_beside(ax, reverse=True)
    make_room(ax)
    return ax
