"""Pictures for notebooks 00 and 09: boxes alone, and timelines above what devices keep."""

import matplotlib.pyplot as plt

from minipipe import plots
from minipipe.order import alive_microbatches


def staircases(runs):
    """Draw two runs side by side: timelines, and below them the micro-batches that devices keep.

    runs: {name: trace}, of two traces.
    """
    figure, axes = plt.subplots(2, 2, figsize=(12, 4.6), sharex=True, sharey="row", layout="constrained",
                                height_ratios=(1.2, 1))
    most = max(n for run in runs.values() for device in range(run.n_devices)
               for _, n in alive_microbatches(run, device))
    for (upper, lower), (name, run) in zip(axes.T, runs.items()):
        plots.timeline(run, ax=upper, title=f"{name}: {run.makespan} ticks", legend=upper is axes[0, 1])
        upper.set_xlabel("")
        for device, (colour, style) in enumerate(zip(("black", "#009E73", "#8E3F6B", "#777777"),
                                                     ("-", "--", "-.", ":"))):
            ticks, counts = zip(*alive_microbatches(run, device))
            lower.step([*ticks, run.makespan], [*counts, counts[-1]], where="post", color=colour,
                       linestyle=style, linewidth=2, label=f"device {device}")
        lower.set(xlabel="time (ticks)", ylim=(0, most + 0.5), xlim=(0, run.makespan))
    axes[1, 0].set_ylabel("micro-batches kept")
    axes[1, 1].legend(frameon=False, fontsize=10)
    return figure


def without_numbers(run):
    """Draw a run as boxes alone, without ticks and without the numbers of micro-batches."""
    figure, ax = plt.subplots(figsize=(9, 2.2), layout="constrained")
    plots.timeline(run, ax=ax, legend=False)
    for text in list(ax.texts):
        text.remove()
    ax.set(xticks=[], xlabel="time", title="")
    return figure
