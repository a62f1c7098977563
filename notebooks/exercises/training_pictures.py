"""Pictures of trainings: of the twelve pipelines of notebook 11, and of large batches in notebook 28."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from .broken_versions import EPOCHS, Training

BLUE, LIGHT, ORANGE = "#0072B2", "#56B4E9", "#D55E00"
GOYAL = {  # samples in a mini-batch: (top-1 error of ResNet-50 in %, its deviation over 5 runs)
    128: (23.49, 0.12), 256: (23.60, 0.12), 512: (23.48, 0.09), 1024: (23.53, 0.08), 2048: (23.49, 0.11),
    4096: (23.56, 0.12), 8192: (23.74, 0.09), 16384: (24.79, 0.27), 32768: (27.55, 0.28),
    65536: (33.96, 0.80),
}  # Goyal et al. 2017, figure 1
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
                ax.text(x + 0.5, y + 0.5, "passes" if good else "fails", ha="center", va="center", fontsize=9,
                        color="black" if good else "white")
        ax.set_xticks(np.arange(len(letters)) + 0.5, list(letters))
        ax.set_yticks(np.arange(len(rows)) + 0.5, list(rows))
        ax.set(xlim=(0, len(letters)), ylim=(len(rows), 0))
        ax.xaxis.tick_top()
        ax.tick_params(length=0)
        for side in ax.spines.values():
            side.set_visible(False)
    return fig


def cliffs(own: dict[int, list[float]]) -> Figure:
    """Draw the test error against the size of the mini-batch: the paper's, and one's own.

    own: {samples in a mini-batch: the errors in % of some trainings}.
    """
    with plt.rc_context(STYLE):
        fig, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2))
        means, spreads = zip(*GOYAL.values())
        left.errorbar([*GOYAL], means, spreads, fmt="o-", color="#0072B2", capsize=3)
        left.set(title="ImageNet (Goyal et al. 2017)", ylabel="test error (%)", ylim=(20, 36))
        right.plot([*own], [np.mean(errors) for errors in own.values()], "o-", color="#D55E00")
        for size, errors in own.items():
            right.plot([size] * len(errors), errors, ".", color="#D55E00", alpha=0.5)
        right.set(title="1,437 digits (yours)", ylim=(0, 100))
        for ax, ticks in ((left, (256, 2048, 8192, 65536)), (right, own)):
            ax.set(xscale="log", xlabel="samples in a mini-batch")
            ax.set_xticks([*ticks], [f"{size:,}" for size in ticks])
            ax.minorticks_off()
    return fig
