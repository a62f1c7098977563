"""Curves of trainings, and how stale their updates were."""

from collections import Counter

from ..arguments import argument
from ..checks import items_of, listed, real_number, shown
from .canvas import label
from .memory import COLOURS

STYLES_OF_LINES = "-", "--", "-.", ":"


def curves(series, ax=None, x="", y="", title=None):
    """Draw several curves, and return the matplotlib axes.

    series: {name: a list of (x, y)}; `ValueError` if there is none.
    ax: matplotlib axes; new ones if None.
    x, y: the names of the axes, with units.
    title: above the picture.

    Each curve has a colour and a dash of its own; a few points are marked.

    >>> from matplotlib.figure import Figure
    >>> ax = curves({"sync": [(0, 90), (10, 20)]}, Figure().subplots(), x="ticks", y="error (%)")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['sync']
    """
    if not isinstance(series, dict) or not series:
        raise ValueError("there is nothing to draw: pass {name: [(x, y), ...]} with at least one curve")
    ax = _axes(ax)
    for number, (name, points) in enumerate(series.items()):
        at, values = zip(*_points(name, points), strict=True)
        ax.plot(at, values, STYLES_OF_LINES[number % len(STYLES_OF_LINES)],
                color=COLOURS[number % len(COLOURS)], label=name)
    ax.legend(frameon=False, fontsize=9)
    label(ax, title, x, y)
    return ax


def _points(name, points):
    """Return the points of a curve, at least one, as pairs of floats."""
    found = [items_of(point) for point in listed(f"series[{shown(name)}]", points)]
    if any(point is None or len(point) != 2 for point in found):
        raise ValueError(f"series[{shown(name)}]={shown(points)} must be a list of pairs (x, y)")
    return [tuple(float(real_number("series", number)) for number in point) for point in found]


def staleness(updates, ax=None, title=None):
    """Draw how many updates were how stale, and return the matplotlib axes.

    updates: {name of a run: its updates, each with a `staleness`}; `ValueError` if there is none.
    ax: matplotlib axes; new ones if None.
    title: above the picture.

    The share of each run's updates stands above each staleness, with the runs beside each other.
    """
    if not isinstance(updates, dict) or not updates or not all(map(items_of, updates.values())):
        raise ValueError("there is nothing to draw: pass {name: updates}, with at least one update each")
    ax, width = _axes(ax), 0.8 / len(updates)
    for number, (name, of_run) in enumerate(updates.items()):
        counts = Counter(update.staleness for update in of_run)
        at = [stale + (number - (len(updates) - 1) / 2) * width for stale in counts]
        mean = sum(stale * n for stale, n in counts.items()) / len(of_run)
        ax.bar(at, [100 * n / len(of_run) for n in counts.values()], width,
               color=COLOURS[number % len(COLOURS)], label=f"{name}, mean {mean:.2f}")
    ax.xaxis.get_major_locator().set_params(integer=True)
    ax.legend(frameon=False, fontsize=9)
    label(ax, title, "staleness (updates by others since the weights were read)", "updates (%)")
    return ax


def _axes(ax):
    if ax is not None:
        return argument("ax", ax)
    import matplotlib.pyplot as plt

    return plt.subplots(figsize=(6.5, 3.2), layout="constrained")[1]
