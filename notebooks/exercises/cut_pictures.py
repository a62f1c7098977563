"""A picture for notebook 22: a drawing that would be too long for a cell."""

import matplotlib.pyplot as plt

COLOURS = "#D55E00", "#777777", "black", "#0072B2"


def all_cuts(makespans, recipes):
    """Return a figure of how many cuts take how long, with a line for each recipe.

    makespans: {counts of a cut: ticks}. recipes: {name: counts}, at most four, the slowest first.
    """
    figure, ax = plt.subplots(figsize=(9, 3.8), layout="constrained")
    ax.hist(makespans.values(), bins=range(390, 940, 21), color="#C8C8C8")
    for place, ((name, counts), colour) in enumerate(zip(recipes.items(), COLOURS)):
        T, height = makespans[tuple(counts)], 36 + 8 * place
        ax.plot([T, T], [0, height], color=colour, linewidth=2)
        ax.text(T, height, f" {name}: {T}", color=colour, fontsize=12, fontweight="bold", va="top")
    ax.set_xlabel("makespan (ticks)", fontsize=13)
    ax.set_ylabel("number of cuts", fontsize=13)
    ax.set_yticks(range(0, 31, 10))
    ax.spines[["top", "right"]].set_visible(False)
    return figure
