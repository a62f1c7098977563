"""A picture for notebook 21: a drawing that would be too long for a cell."""

import matplotlib.pyplot as plt
import numpy as np

COLOURS = "#777777", "#0072B2", "#D55E00"


def versions_and_paths(schedule, paths):
    """Return a figure of the weights' versions of a schedule, and of w(t) beside it.

    paths: {updates that each gradient is late: [w(0), w(1), ...]}, at most three.
    """
    table = np.array(schedule.versions)
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 3.4), layout="constrained", width_ratios=(5, 4))
    left.imshow(table, cmap="viridis", vmin=0, vmax=table.max(), aspect="auto")
    for (stage, i), version in np.ndenumerate(table):
        left.text(i, stage, version, ha="center", va="center", fontsize=12,
                  color="white" if version < 0.6 * table.max() else "black")
    left.set(yticks=range(len(table)), xticks=range(table.shape[1]))
    left.set_title("updates in the weights", fontsize=13)
    left.set_xlabel("micro-batch", fontsize=13)
    left.set_ylabel("stage", fontsize=13)
    for (late, path), colour in zip(paths.items(), COLOURS):
        right.plot(path, marker="o", markersize=3, color=colour, label=f"{late} late")
    right.set(ylim=(-6, 6))
    right.set_xlabel("update t", fontsize=13)
    right.set_ylabel("w(t)", fontsize=13)
    right.legend(frameon=False, fontsize=12, loc="upper left")
    right.spines[["top", "right"]].set_visible(False)
    return figure
