"""What one device holds, over time, by kind: parameters, gradients, stashes, caches, messages."""

from ..arguments import argument, optional
from .canvas import label
from .timeline import new_axes

KINDS = {  # from the ground up: what stays lies below; colours of Okabe and Ito
    "parameters": "#000000",
    "optimizer state": "#0072B2",
    "weight versions": "#999999",
    "gradients": "#009E73",
    "stashed inputs": "#F0E442",
    "caches": "#56B4E9",
    "work": "#D55E00",
    "messages": "#CC79A7",
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
    optional("ax", ax)
    legend = argument("legend", legend)
    argument("trace", trace)
    entries = trace.ledger(device)
    ax = new_axes(trace) if ax is None else ax
    ticks = [*(float(tick) for tick, _ in entries), float(trace.makespan)]  # matplotlib knows no fractions
    kinds = [kind for kind in KINDS if any(kind in held for _, held in entries)]
    layers = [[held.get(kind, 0) / 1024 for _, held in (*entries, entries[-1])] for kind in kinds]
    ax.stackplot(
        ticks, layers, step="post", labels=kinds, colors=[KINDS[kind] for kind in kinds], linewidth=0
    )
    ax.set(xlim=(0, ticks[-1]), ylim=(0, None))
    label(ax, title, f"time ({trace.unit})", f"device {device} (KiB)")
    if legend:
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9, reverse=True)
    return ax
