"""The picture of the README: four orders of the same work, and what devices keep."""

import numpy as np
from matplotlib.patches import Patch, Rectangle

from minipipe import Linear, MeanSquaredError, Pipeline, ReLU
from minipipe.exact import rational
from minipipe.order import peak_microbatches
from minipipe.plots.boxes import rows_of
from minipipe.plots.canvas import EDGE, STYLES, TRACK, new_figure
from minipipe.plots.timeline import timeline
from minipipe.verification import equals_full_batch

K, M = 4, 8
SHOWN = 34          # ticks on the axis: all runs but the naive one end before
KEPT = "#5F5F5F"    # a micro-batch that is kept
ORDERS = {
    "naive": "Naive, one micro-batch at a time",
    "gpipe": "GPipe, all forwards, then all backwards",
    "1f1b": "1F1B, a forward and a backward in turn",
    "zb-h1": "ZB-H1, as 1F1B, each backward in two halves",
}
KINDS = {
    "F": "forward", "B": "backward", "I": "first half (input gradient)", "W": "second half (weight gradient)",
}


def hero():
    """Return a `Figure` of four schedules, and the micro-batches that devices keep."""
    figure = new_figure(10, 6.9)
    axes = figure.subplots(len(ORDERS), 2, width_ratios=(SHOWN, 9))
    for (name, trace), (left, right) in zip(hero_runs().items(), axes):
        cut = f" (the first {SHOWN} are shown)" if trace.makespan > SHOWN else ""
        _draw_run(left, trace, f"{ORDERS[name]}: {trace.makespan} ticks{cut}")
        _draw_kept(right, peak_microbatches(trace))
    axes[0, 1].set_title("keeps at most", fontsize=13, loc="left")
    for ax in axes[:-1, 0]:
        ax.tick_params(axis="x", length=0, labelbottom=False)
        ax.spines["bottom"].set_visible(False)
    axes[-1, 0].set_xlabel("time (ticks)", fontsize=12)
    handles = [Patch(facecolor=STYLES[kind]["facecolor"], **EDGE) for kind in KINDS]
    handles += [Patch(facecolor=TRACK), Patch(facecolor=KEPT)]
    labels = [*KINDS.values(), "idle", "micro-batch kept for its backward"]
    figure.legend(
        handles, labels, loc="outside upper left", ncols=3, frameon=False, fontsize=12, handlelength=1.4
    )
    return figure


def hero_runs():
    """Return {schedule: a trace; gradients == the full batch's, in fractions}."""
    rng = np.random.default_rng(0)
    layers = []
    for _ in range(K):
        W, b = rng.integers(-3, 4, (3, 3)), rng.integers(-3, 4, (3, 1))
        layers += [Linear(3, 3, W=rational(W), b=rational(b)), ReLU()]
    X, Y = rational(rng.integers(-3, 4, (3, M))), rational(rng.integers(-3, 4, (3, M)))
    runs = {}
    for name in ORDERS:
        pipe = Pipeline(layers, MeanSquaredError(), stages=K, microbatches=M, schedule=name)
        assert equals_full_batch(pipe, X, Y), name
        runs[name] = pipe.trace
    return runs


def _draw_run(ax, trace, title):
    """Draw a run as far as the axis goes, its idle time in grey."""
    end = min(trace.makespan, SHOWN)
    timeline(trace, ax, legend=False, until=end)
    for row in rows_of(trace).values():
        ax.add_patch(Rectangle((0, row.middle - row.height / 2), end, row.height, color=TRACK, zorder=0))
    ax.set_xlim(0, SHOWN)
    ax.set_title(title, fontsize=13, loc="left")
    ax.set_xlabel("")
    ax.tick_params(labelsize=11)
    for text in ax.texts:
        text.set_fontsize(11)


def _draw_kept(ax, most):
    """Draw a square for each micro-batch that a device keeps at most."""
    for device, n in enumerate(most):
        for place in range(n):
            ax.add_patch(Rectangle((place + 0.1, device - 0.3), 0.8, 0.6, color=KEPT))
        ax.text(n + 0.25, device, n, fontsize=12, va="center", fontweight="bold")
    ax.set(xlim=(0, M + 1), ylim=(len(most) - 0.5, -0.5), xticks=[], yticks=[])
    ax.spines[:].set_visible(False)
