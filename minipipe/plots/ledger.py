"""What one device holds, over time, by kind: parameters, gradients, stashes, caches, messages."""

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
    entries = trace.ledger(device)
    ax = new_axes(trace) if ax is None else ax
    ticks = [*(float(tick) for tick, _ in entries), float(trace.makespan)]  # matplotlib knows no fractions
    kinds = [kind for kind in KINDS if any(kind in held for _, held in entries)]
    layers = [[held.get(kind, 0) / 1024 for _, held in (*entries, entries[-1])] for kind in kinds]
    colours = [KINDS[kind] for kind in kinds]
    ax.stackplot(ticks, layers, step="post", labels=kinds, colors=colours, linewidth=0)
    ax.set_xlim(0, ticks[-1])
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time (ticks)")
    ax.set_ylabel(f"device {device} (KiB)")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if title:
        ax.set_title(title, loc="left", fontsize=11)
    if legend:
        handles, labels = ax.get_legend_handles_labels()
        ax.legend(
            handles[::-1], labels[::-1], loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9
        )
    return ax
