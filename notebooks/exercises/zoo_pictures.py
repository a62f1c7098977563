"""A picture for notebook 19: a drawing that would be too long for a cell."""

import matplotlib.pyplot as plt

NAMES = [
    "naive", "gpipe", "gpipe-fifo", "1f1b", "eager-1f1b", "interleaved", "looped", "zb-h1", "zb-h2", "zb-v",
    "interleaved-zb", "v-half", "v-min", "dualpipe-v", "dualpipe", "chimera",
]
BLUE, ORANGE, GREY = "#0072B2", "#E69F00", "#777777"
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
