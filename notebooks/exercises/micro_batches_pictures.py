"""Pictures for notebook 05: drawings that would be too long for cells."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

FIRST, SECOND, RIGHT, WRONG, GREY = "#56B4E9", "#E69F00", "#0072B2", "#D55E00", "#777777"
COLOURS = [FIRST, FIRST, SECOND, SECOND]  # of the four samples, by micro-batch


def product_in_parts():
    """Return a figure of dL A^T / 4 of four samples, cell by cell, as a sum of two such products."""
    figure, ax = plt.subplots(figsize=(12, 2.9), layout="constrained")
    _product(ax, 0, [0, 1, 2, 3], r"$dW \;=\; \dfrac{1}{4}$")
    _product(ax, 9.6, [0, 1], r"$=\;\; \dfrac{1}{4}$")
    _product(ax, 16.9, [2, 3], r"$+\;\; \dfrac{1}{4}$")
    for left, text in ((3.6, "mini-batch"), (12.2, "micro-batch 0"), (19.6, "micro-batch 1")):
        ax.text(left, -1.3, text, ha="center", fontsize=15)
    ax.set(xlim=(-2.7, 22.7), ylim=(-1.6, 3.7), aspect="equal")
    ax.axis("off")
    return figure


def _product(ax, left, samples, name):
    """Draw dL of some samples, a row, next to their A^T, which has a row for each."""
    ax.text(left - 0.15, 1.5, name, ha="right", va="center", fontsize=17)
    _grid(ax, left, 2, [[(f"$a_{k}$", COLOURS[k]) for k in samples]])
    rows = [[(f"${letter}_{k}$", COLOURS[k]) for letter in "bcd"] for k in samples]
    _grid(ax, left + len(samples) + 0.3, 2 + (len(samples) - 1) / 2, rows)


def _grid(ax, left, top, rows):
    for i, row in enumerate(rows):
        for j, (text, colour) in enumerate(row):
            ax.add_patch(Rectangle((left + j, top - i - 1), 1, 1, facecolor=colour, edgecolor="black"))
            ax.text(left + j + 0.5, top - i - 0.5, text, ha="center", va="center", fontsize=15)


def weights(sizes):
    """Return a figure of how much each sample counts: divided by m, and in the mean of the parts' means."""
    m, M = sum(sizes), len(sizes)
    of_means = np.repeat([1 / (M * size) for size in sizes], sizes)
    figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
    ax.bar(np.arange(m) - 0.2, np.full(m, 1 / m), 0.36, color=RIGHT, label="all divided by m")
    look = dict(color=WRONG, hatch="//", edgecolor="white")
    ax.bar(np.arange(m) + 0.2, of_means, 0.36, label="mean of the means", **look)
    for edge in np.cumsum(sizes)[:-1]:
        ax.axvline(edge - 0.5, color=GREY, linestyle=":")
    ax.set(xticks=range(m), ylim=(0, 1.15 * max(of_means)))
    ax.set_xlabel("sample (dotted lines: cuts)", fontsize=13)
    ax.set_ylabel("its weight in the gradient", fontsize=13)
    figure.legend(frameon=False, loc="outside upper center", ncols=2, fontsize=13)
    ax.spines[["top", "right"]].set_visible(False)
    return figure
