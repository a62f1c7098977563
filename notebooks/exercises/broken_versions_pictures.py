"""Pictures of notebook 11: how twelve pipelines train, and which test sees them."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .broken_versions import EPOCHS, Training

BLUE, LIGHT, ORANGE = "#0072B2", "#56B4E9", "#D55E00"
STYLE = {"figure.dpi": 110, "font.size": 12, "axes.spines.top": False, "axes.spines.right": False,
         "figure.constrained_layout.use": True}


def _scale(ax, costs):
    """Give `ax` the scale of the costs, and a line at the end of each epoch."""
    for epoch in range(1, EPOCHS):
        ax.axvline(epoch * len(costs) / EPOCHS, color="#CCCCCC", linestyle=":")
    ax.set(yscale="log", ylim=(0.2, 20))
    ax.set_yticks([0.3, 1, 3, 10], ["0.3", "1", "3", "10"])
    ax.minorticks_off()


def curves(trainings: dict[str, Training], right: Training) -> Figure:
    """Draw the costs of each version in a box of its own, and dashed those of `right`."""
    with plt.rc_context(STYLE):
        fig, axes = plt.subplots(3, 4, figsize=(9, 6), sharex=True, sharey=True)
        for ax, (letter, training) in zip(axes.flat, trainings.items()):
            _scale(ax, right.costs)
            colour = BLUE if training.falls else ORANGE
            word = "falls" if training.falls else training.error or "explodes"
            ax.plot(right.costs, color="black", linestyle="--", linewidth=1.2)
            ax.plot(np.minimum(training.costs, 1e6), color=colour, linewidth=2)
            ax.set_title(f"{letter}: {word}", color=colour, fontsize=12)
        fig.supxlabel("mini-batch (dotted lines: a new epoch; dashed: without a mistake)", fontsize=12)
        fig.supylabel("cost J", fontsize=12)
    return fig


def digits(trainings: dict[str, Training], right: Training) -> Figure:
    """Draw how many digits each version reads, beside those of `right`."""
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(8, 3))
        for place, training in enumerate(trainings.values()):
            more = training.digits > right.digits
            ax.bar(place, training.digits, color=ORANGE if more else LIGHT)
            inside = training.digits > 20
            ax.text(place, training.digits - 8 if inside else 8, str(training.digits), ha="center",
                    va="top" if inside else "bottom", color="white" if more else "black")
        ax.axhline(right.digits, color="black", linestyle="--", label="without a mistake")
        ax.set_xticks(range(len(trainings)), list(trainings))
        ax.set(ylabel="digits read, of 360", ylim=(0, 330))
        ax.legend(frameon=False, loc="upper right")
    return fig


def grid(rows: dict[str, list[str]], letters: str = "ABCDEFGHIJKL") -> Figure:
    """Draw which version passes which test.

    rows: {name of a test: the letters of the versions that pass it}.
    """
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(8, 0.8 + 0.6 * len(rows)))
        for y, passed in enumerate(rows.values()):
            for x, letter in enumerate(letters):
                good = letter in passed
                ax.add_patch(plt.Rectangle((x + 0.05, y + 0.05), 0.9, 0.9, color=LIGHT if good else ORANGE))
                ax.text(x + 0.5, y + 0.5, "passes" if good else "red", ha="center", va="center", fontsize=9,
                        color="black" if good else "white")
        ax.set_xticks(np.arange(len(letters)) + 0.5, list(letters))
        ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
        ax.set(xlim=(0, len(letters)), ylim=(len(rows), 0))
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        for side in ax.spines.values():
            side.set_visible(False)
    return fig
