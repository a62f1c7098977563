"""Empty figures, and what all axes have in common."""

from unicodedata import category

from ..checks import shown


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
    ax.set(xlabel=printable(x), ylabel=printable(y))
    ax.spines[["top", "right"]].set_visible(False)
    if title is not None:
        ax.set_title(printable(title), loc="left", fontsize=11, pad=pad)


def printable(text):
    """`text` with a mark for each character that no picture can show, and no SVG can hold.

    >>> print(printable("F0 \\x00"))
    F0 \ufffd
    """
    return "".join(c if c == "\n" or category(c)[0] != "C" else "\ufffd" for c in words_of(text))


def words_of(value):
    """Return `value` as a text; of a number with too many digits, as errors show it."""
    try:
        return str(value)
    except ValueError:
        return shown(value)
