"""Empty figures, and what all axes have in common."""


def new_figure(width, height):
    """A matplotlib `Figure` of so many inches, which needs no display."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def label(ax, title, x, y="", pad=None):
    """Name what runs to the right and upwards, and leave the frame open there.

    ax: matplotlib axes.
    title: above them, or None.
    x, y: the names, with units.
    pad: points between the axes and the title; matplotlib's own if None.
    """
    ax.set(xlabel=x, ylabel=y)
    ax.spines[["top", "right"]].set_visible(False)
    if title:
        ax.set_title(title, loc="left", fontsize=11, pad=pad)
