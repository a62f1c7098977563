"""The checker and the picture of notebook 27, three splits at once."""

from itertools import combinations

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from . import judged

AXES = {"tp": "#D55E00", "dp": "#0072B2", "pp": "#009E73"}
RANK_MISTAKES = [
    (lambda t, d, k, T, D: t + d + k,
     "Two devices would have the same number: (t, d, k) = (0, 1, 0) and (1, 0, 0), for T = 2, D = 2."),
    (lambda t, d, k, T, D: d + D * (t + T * k), "That is dp-tp-pp: the copies would be neighbours."),
    (lambda t, d, k, T, D: t + T * d + D * k,
     "Nearly: how many devices has one stage, with all copies of it? So far apart are two stages."),
    (lambda t, d, k, T, D: t + T * (d + k), "Nearly: two stages are T D devices apart, not T."),
]


def check_rank(rank):
    """Judge `rank(t, d, k, T, D)`: the number of the device in the order tp-dp-pp.

    t, d, k: its place in its group of T shards, among the D copies, and among the stages.

    >>> check_rank(lambda t, d, k, T, D: t + T * (d + k))
    'Nearly: two stages are T D devices apart, not T.'
    """
    cases = [(1, 2, 3, 2, 3), (3, 1, 2, 4, 2), (1, 0, 0, 2, 2), (0, 1, 0, 2, 2), (0, 0, 1, 2, 2)]
    right = [t + T * (d + D * k) for t, d, k, T, D in cases]
    return judged(rank, ("t", "d", "k", "T", "D"), cases, right, RANK_MISTAKES) or (
        "Right: t + T (d + D k). Those that talk most are neighbours.")


def nodes(groups: dict, of_node: int) -> Figure:
    """Draw the devices of two nodes for each numbering, with a line between two of a group.

    groups: {order of the axes: {axis: its groups of devices}}, of six orders.
    of_node: the devices of a node, which stand in two columns.
    """
    figure, all_axes = plt.subplots(2, 3, figsize=(11, 5), layout="constrained")
    for ax, (order, of_axes) in zip(all_axes.flat, groups.items()):
        places = {device: (device % of_node % 2 + 2.6 * (device // of_node), -(device % of_node // 2))
                  for group in of_axes["tp"] for device in group}
        for left in (0, 2.6):
            ax.add_patch(Rectangle((left - 0.45, -1.45), 1.9, 1.9, facecolor="#EEEEEE", zorder=0))
        for axis, its in of_axes.items():
            for one, other in (pair for group in its for pair in combinations(group, 2)):
                outward = -0.35 if places[one][1] == 0 else 0.35
                bend = 0 if one // of_node == other // of_node else outward
                ax.annotate("", places[other], places[one], arrowprops=dict(
                    arrowstyle="-", color=AXES[axis], linewidth=3, connectionstyle=f"arc3,rad={bend}"))
        for device, (x, y) in places.items():
            ax.text(x, y, device, ha="center", va="center", fontsize=12, zorder=4,
                    bbox=dict(boxstyle="circle", facecolor="white", edgecolor="#404040"))
        ax.set(xlim=(-0.6, 4.2), ylim=(-1.9, 0.9), title=order, aspect="equal")
        ax.axis("off")
    handles = [Rectangle((0, 0), 1, 1, color=colour, label=axis) for axis, colour in AXES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12)
    return figure
