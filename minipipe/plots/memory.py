"""The bytes that each device holds, over time."""

from .timeline import new_axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito


def memory(trace, ax=None, title=None, legend=True):
    """Draw the memory curves of `trace`, one per device, into the matplotlib axes `ax`, and return the axes.

    The unit of the y axis is KiB (1,024 bytes). Raises `ValueError` for a run that counted no memory.
    """
    if ax is None:
        ax = new_axes(trace)
    for device in range(trace.n_devices):
        curve = [*trace.memory(device), (trace.makespan, trace.memory(device)[-1][1])]
        ticks, sizes = zip(*curve)
        ax.step(ticks, [size / 1024 for size in sizes], where="post", label=f"device {device}",
                color=COLOURS[device % len(COLOURS)], linestyle=("-", "--", "-.", ":")[device % 4], linewidth=1.6)
    ax.set_xlim(0, trace.makespan)
    ax.set_ylim(bottom=0)
    ax.set_xlabel("time (ticks)")
    ax.set_ylabel("memory (KiB)")
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    if title:
        ax.set_title(title, loc="left", fontsize=11)
    if legend:
        ax.legend(loc="upper left", bbox_to_anchor=(1, 1), frameon=False, fontsize=9)
    return ax
