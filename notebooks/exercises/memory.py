"""The checker and the picture of notebook 23, what fits."""

from functools import cache

import matplotlib.pyplot as plt
from matplotlib.figure import Figure

from minipipe import Chain, Linear, MeanSquaredError, footprints, plots, simulate
from minipipe.order import with_recompute
from minipipe.schedules import build
from . import judged

WIDTH = 2


def _with_alive(alive):
    return lambda K, M, r, b, L, a, c: b * ((alive(K, M, r) - 1) * a + L / K * c)


HELD_MISTAKES = [
    (_with_alive(lambda K, M, r: M),
     "That is GPipe, with all M micro-batches alive: 1F1B has fewer, and how many depends on r."),
    (_with_alive(lambda K, M, r: K - r),
     "Nearly: where M is smaller than K - r, there are no more than M micro-batches."),
    (_with_alive(lambda K, M, r: min(M, K)),
     "That is device 0, with K alive: each device further on has one less."),
    (_with_alive(lambda K, M, r: min(M, r + 1)),
     "The other way round: the first device has most, since its gradients come last."),
    (_with_alive(lambda K, M, r: min(M, K - r - 1)),
     "K - r - 1 is the warm-up; then one more forward comes before the first backward. So K - r are alive."),
    (lambda K, M, r, b, L, a, c: b * (min(M, K - r) * a + L / K * c),
     "Nearly: of the micro-batches alive, the one whose caches are there has its input among them."),
    (lambda K, M, r, b, L, a, c: b * min(M, K - r) * L / K * c, "That is 1F1B without recomputation."),
    (lambda K, M, r, b, L, a, c: b * ((min(M, K - r) - 1) * a + L * c),
     "A device has L / K of the layers, not L."),
    (lambda K, M, r, b, L, a, c: (min(M, K - r) - 1) * a + L / K * c,
     "a and c are of one sample: a micro-batch has b of them."),
]


def check_held(held):
    """Judge `held(K, M, r, b, L, a, c)`: the most bytes of activations of 1F1B with recomputation on device r
    < K - 1. The truth is counted.

    >>> check_held(lambda K, M, r, b, L, a, c: b * ((M - 1) * a + L / K * c))
    'That is GPipe, with all M micro-batches alive: 1F1B has fewer, and how many depends on r.'
    """
    asked = [(4, 8, 0, 2, 12, 6), (4, 8, 1, 2, 12, 6), (5, 9, 3, 1, 10, 4), (4, 2, 0, 3, 8, 3),
             (6, 7, 2, 2, 6, 5)]
    right = [_counted(K, M, b, L, hidden)[r] for K, M, r, b, L, hidden in asked]
    cases = [(*case, 8 * WIDTH, 8 * (WIDTH + hidden)) for *case, hidden in asked]
    return judged(held, ("K", "M", "r", "b", "L", "a", "c"), cases, right, HELD_MISTAKES) or (
        "Right: b ((min(M, K - r) - 1) a + L/K c). From M = K - r on, a larger M changes nothing any more.")


@cache
def _counted(K, M, b, L, hidden):
    """Return, for each device, the most bytes of activations in a simulated 1F1B with recomputation.

    Each of L layers keeps 8 (WIDTH + hidden) bytes of a sample, 8 WIDTH of them its input.
    """
    layer = Chain(Linear(WIDTH, hidden), Linear(hidden, WIDTH))
    of_stages = footprints([layer] * L, MeanSquaredError(), K, (WIDTH,), b, patterns=("FRB",))
    schedule = with_recompute(build("1f1b", K, M))
    return simulate(schedule, footprints=of_stages).peak_bytes(["stashed inputs", "caches"])


def ledgers(runs: dict, limit: int) -> Figure:
    """Draw what device 0 holds in several runs, {title: trace}, on one scale, below a limit in bytes."""
    figure, all_axes = plt.subplots(1, len(runs), figsize=(13, 4), sharey=True, layout="constrained")
    for ax, (title, trace) in zip(all_axes, runs.items()):
        plots.ledger(trace, 0, ax=ax, title=title)
        ax.axhline(limit / 1024, color="black", linestyle="--")
        ax.get_legend().remove()
        ax.set(ylim=(0, None), ylabel="device 0 (KiB)" if ax is all_axes[0] else "")
    handles, labels = max((ax.get_legend_handles_labels() for ax in all_axes), key=lambda both: len(both[1]))
    figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False, fontsize=11)
    return figure
