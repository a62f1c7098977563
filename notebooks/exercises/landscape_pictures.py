"""Pictures for notebook 02: the landscape of the cost, a walk on it, and the function at each place."""

from collections.abc import Callable, Sequence

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

ORANGE, GREY = "#D55E00", "#777777"
W, B = (-2, 24), (-9, 5)   # the part of the plane that is drawn
BOTTOM = (21.485, -6.146)  # where J is least, for the digits of the notebook
LEVELS = [0.06, 0.08, 0.1, 0.15, 0.2, 0.3, 0.45, 0.6, 0.9, 1.5, 2, 3, 4, 6, 8]

Points = Sequence[tuple[float, float]]


def walk(J: Callable, path: Points, x: np.ndarray, y: np.ndarray) -> Figure:
    """Draw the path on the map of J(w, b), and beside it f of the first, a middle and the last point."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained", width_ratios=(1.2, 1))
    _map(left, J)
    left.plot(*zip(*path), ".-", color=ORANGE, linewidth=1.5, markersize=8)
    marked = sorted({0, min(3, len(path) - 1), len(path) - 1})
    ink = np.linspace(0, 1, 100)
    right.plot(x[y == 0], np.full(sum(y == 0), -0.05), "|", color=GREY, markersize=12, label="zeros")
    right.plot(x[y == 1], np.full(sum(y == 1), 1.05), "|", color="black", markersize=12, label="ones")
    for k, style in zip(marked, ((0, (1, 2)), "--", "-")):
        w, b = path[k]
        right.plot(ink, 1 / (1 + np.exp(-(w * ink + b))), color=ORANGE, linestyle=style, linewidth=2.5,
                   label=f"point {k}: w = {w:.1f}, b = {b:.1f}")
        left.annotate(str(k), (w, b), xytext=(5, 7), textcoords="offset points", fontsize=14, weight="bold")
    left.set_title("J is a function of (w, b)", fontsize=15)
    right.set_title("f is a function of x", fontsize=15)
    right.set_xlabel("x: ink in the centre", fontsize=14)
    right.set_ylabel("f(x): how likely a one?", fontsize=14)
    right.legend(frameon=False, fontsize=11, loc="lower right", bbox_to_anchor=(1.05, 0.1))
    for ax in (left, right):
        ax.tick_params(labelsize=12)
        ax.spines[["top", "right"]].set_visible(False)
    return figure


def weights(w: np.ndarray) -> Figure:
    """Draw 64 weights as a picture of 8 x 8."""
    figure, ax = plt.subplots(figsize=(5.4, 4), layout="constrained")
    most = abs(w).max()
    image = ax.imshow(w.reshape(8, 8), cmap="PuOr", vmin=-most, vmax=most)
    bar = figure.colorbar(image)
    bar.set_label("weight: ink here says\nzero (-) or one (+)", fontsize=13)
    ax.set_xlabel("column", fontsize=13)
    ax.set_ylabel("row", fontsize=13)
    return figure


def _map(ax, J):
    """Draw the lines of equal J, each with its number where it is far from the edges, and the bottom."""
    ws, bs = np.linspace(*W, 105), np.linspace(*B, 71)
    heights = np.array([[J(w, b) for w in ws] for b in bs])
    lines = ax.contour(ws, bs, heights, LEVELS, cmap="Blues_r", linewidths=1.3)
    ax.clabel(lines, fontsize=11, manual=list(_places(ws, bs, heights)))
    ax.plot(*BOTTOM, "x", color="black", markersize=9, markeredgewidth=2.5)
    ax.set_xlabel("w", fontsize=14)
    ax.set_ylabel("b", fontsize=14)


def _places(ws, bs, heights):
    """Yield a point on each line of equal J, on a way from the bottom to the corner on the left, above it."""
    for level, column in zip(LEVELS, np.linspace(len(ws) * 0.8, len(ws) * 0.3, len(LEVELS)).astype(int)):
        down = heights[:, column].argmin()
        above = np.flatnonzero(heights[down:, column] > level)
        if len(above) and above[0]:
            yield ws[column], bs[down + above[0]]
