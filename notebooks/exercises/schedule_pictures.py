"""Pictures for notebooks 19, 21 and 22: schedules as points, versions of weights, and all cuts."""

import matplotlib.pyplot as plt
import numpy as np


NAMES = [
    "naive", "gpipe", "gpipe-fifo", "1f1b", "eager-1f1b", "interleaved", "looped", "zb-h1", "zb-h2", "zb-v",
    "interleaved-zb", "v-half", "v-min", "dualpipe-v", "dualpipe", "chimera",
]
BLUE, ORANGE, GREY, RED = "#0072B2", "#E69F00", "#777777", "#D55E00"
BESIDE = {"zb-v": ((-8, -4), "right"), "zb-h1": ((8, -4), "left")}  # where the name stands, if not above


def time_and_memory(points, best, doubled, work, longest=35):
    """Return a figure of schedules as points, and of the line of the best.

    points: {name: (makespan, micro-batches alive)}; those with a makespan beyond `longest` are left out.
    best: the names that nothing beats in both.
    doubled: the names of those with two copies of the parameters.
    work: the ticks of one device's work, which none can be below.
    """
    at = {}
    for name, (T, alive) in points.items():
        if T <= longest:
            at.setdefault((T, alive), []).append(name)
    figure, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
    front = sorted(point for point, names in at.items() if names[0] in best)
    ticks, alive = [*(T for T, _ in front), longest], [*(alive for _, alive in front), front[-1][1]]
    ax.step(ticks, alive, where="post", color=BLUE, zorder=1)
    for (T, alive), names in at.items():
        marker, colour = "s" if names[0] in doubled else "o", BLUE if names[0] in best else ORANGE
        ax.plot(T, alive, marker, markersize=9, color=colour, markeredgecolor="black")
        place, side = BESIDE.get(names[0], ((6, 6), "left"))
        ax.annotate(",\n".join(names), (T, alive), place, textcoords="offset points", ha=side, fontsize=11)
    ax.axvline(work, color=GREY, linestyle=":")
    ax.text(work + 0.08, 0.3, "work of one device", color=GREY, fontsize=11)
    label = "two copies of the parameters"
    ax.plot([], [], "s", color=ORANGE, markeredgecolor="black", markersize=9, label=label)
    ax.set_xlabel("makespan (ticks)", fontsize=13)
    ax.set_ylabel("micro-batches alive", fontsize=13)
    ax.set(xlim=(work - 0.4, longest), ylim=(0, 9.2))
    ax.legend(frameon=False, loc="lower right", fontsize=11)
    ax.spines[["top", "right"]].set_visible(False)
    return figure


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
    for (late, path), colour in zip(paths.items(), (GREY, BLUE, RED)):
        right.plot(path, marker="o", markersize=3, color=colour, label=f"{late} late")
    right.set(ylim=(-6, 6))
    right.set_xlabel("update t", fontsize=13)
    right.set_ylabel("w(t)", fontsize=13)
    right.legend(frameon=False, fontsize=12, loc="upper left")
    right.spines[["top", "right"]].set_visible(False)
    return figure


def all_cuts(makespans, recipes):
    """Return a figure of how many cuts take how long, with a line for each recipe.

    makespans: {counts of a cut: ticks}. recipes: {name: counts}, at most four, the slowest first.
    """
    figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
    ax.hist(makespans.values(), bins=range(390, 940, 21), color="#C8C8C8")
    for place, ((name, counts), colour) in enumerate(zip(recipes.items(), (RED, GREY, "black", BLUE))):
        T, height = makespans[tuple(counts)], 36 + 8 * place
        ax.plot([T, T], [0, height], color=colour, linewidth=2)
        ax.text(T, height, f" {name}: {T}", color=colour, fontsize=12, fontweight="bold", va="top")
    ax.set_xlabel("makespan (ticks)", fontsize=13)
    ax.set_ylabel("number of cuts", fontsize=13)
    ax.set_yticks(range(0, 31, 10))
    ax.spines[["top", "right"]].set_visible(False)
    return figure
