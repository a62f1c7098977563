"""The one-hour paper's table, the picture of notebook 28, and its two checkers."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.figure import Figure

from . import judged

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


def check_rate(rate):
    """Judge `rate(i, W, eta, k)`: that of update i of a gradual warm-up of W updates, from eta to k eta.

    >>> check_rate(lambda i, W, eta, k: eta if i < W else k * eta)
    'That is the constant warm-up, with its jump. Let the rate grow in each update.'
    """
    cases = [(2, 4, 0.5, 8), (0, 4, 0.5, 8), (4, 4, 0.5, 8), (9, 4, 0.5, 8), (3, 8, 0.25, 16)]
    mistakes = [
        (lambda i, W, eta, k: eta if i < W else k * eta,
         "That is the constant warm-up, with its jump. Let the rate grow in each update."),
        (lambda i, W, eta, k: eta + (k - 1) * eta * i / W,
         "Right up to update W; but then the rate grows on. It stays at k eta."),
        (lambda i, W, eta, k: k * eta * min(i, W) / W,
         "That begins at 0: the first update would do nothing. Begin at eta."),
        (lambda i, W, eta, k: eta + k * eta * min(i, W) / W,
         "That ends at (k + 1) eta: from eta to k eta it has (k - 1) eta to gain."),
        (lambda i, W, eta, k: eta + (k - 1) * eta * min(i + 1, W) / W,
         "That is one update early: update 0 has eta, and update W is the first with k eta."),
    ]
    right = [eta + (k - 1) * eta * min(i, W) / W for i, W, eta, k in cases]
    return judged(rate, ("i", "W", "eta", "k"), cases, right, mistakes) or (
        "Right: it begins where the small mini-batch is at home, and ends at k times that.")


def check_average(average):
    """Judge `average(clients)`: the weights that federated averaging makes of a list of (n, w).

    >>> check_average(lambda clients: sum(w for n, w in clients) / len(clients))
    'That is the plain mean. A client with three times the samples counts three times as much.'
    """
    cases = [[(10, 1.0), (30, 2.0)], [(1, 0.0), (2, 3.0), (5, -1.0)], [(7, 2.5)]]
    right = [sum(n * w for n, w in case) / sum(n for n, _ in case) for case in cases]
    mistakes = [
        (lambda clients: sum(w for _, w in clients) / len(clients),
         "That is the plain mean. A client with three times the samples counts three times as much."),
        (lambda clients: sum(n * w for n, w in clients),
         "That is the sum of n w: divide it by the samples of all these clients."),
        (lambda clients: sum(n * w for n, w in clients) / len(clients),
         "Divide by the samples of all these clients, not by how many clients there are."),
        (lambda clients: sum(w for _, w in clients), "That is the plain sum of the weights."),
    ]
    return judged(average, ("clients",), [(case,) for case in cases], right, mistakes) or (
        "Right: sum of n w over sum of n. After full steps, it is gradient descent on all samples.")
