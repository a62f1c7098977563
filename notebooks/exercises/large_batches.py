"""The one-hour paper's table, and the pictures of notebook 28."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

GOYAL = {  # samples in a mini-batch: (top-1 error of ResNet-50 in %, its deviation over 5 runs)
    128: (23.49, 0.12), 256: (23.60, 0.12), 512: (23.48, 0.09), 1024: (23.53, 0.08), 2048: (23.49, 0.11),
    4096: (23.56, 0.12), 8192: (23.74, 0.09), 16384: (24.79, 0.27), 32768: (27.55, 0.28),
    65536: (33.96, 0.80),
}  # Goyal et al. 2017, figure 1
STYLE = {"figure.dpi": 110, "font.size": 12, "axes.spines.top": False, "axes.spines.right": False,
         "figure.constrained_layout.use": True}


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


def curves(costs: dict[str, np.ndarray]) -> Figure:
    """Draw costs over epochs: {what was trained: its costs}."""
    with plt.rc_context(STYLE):
        fig, ax = plt.subplots(figsize=(7, 3))
        for (name, values), style, colour in zip(costs.items(), ("-", "-", "--", ":"),
                                                 ("k", "#0072B2", "#009E73", "#D55E00")):
            ax.semilogy(range(1, 1 + len(values)), values, style, color=colour, label=name, linewidth=2)
        ax.set(xlabel="epochs", ylabel="cost J", ylim=(0.08, 12))
        ax.legend(frameon=False, ncols=2)
    return fig
