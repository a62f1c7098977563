"""Pictures for notebooks 23 to 27: what devices keep, sums on a ring, splits of layers and of clusters."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minipipe import plots
from minipipe.cluster import Trace

INK, BLUE, ORANGE, GREEN = "#404040", "#0072B2", "#D55E00", "#009E73"
AXES = {"tp": ORANGE, "dp": BLUE, "pp": GREEN}
KINDS = {"parameters": BLUE, "gradients": ORANGE, "optimizer state": GREEN}
DEVICES, CHUNKS = (BLUE, ORANGE), (BLUE, "#E69F00", GREEN, "#CC79A7")
WIDE, HIGH = 0.25, 0.17                     # of a chunk, in steps and rows


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


def ring(trace: Trace) -> Figure:
    """Draw the messages of a ring of at most four devices, and how many terms each chunk holds.

    trace: of `all_reduce(..., "ring")`, in which only messages take time.
    """
    N = trace.n_devices
    n_steps, terms = 2 * (N - 1), [[1] * N for _ in range(N)]
    figure, ax = plt.subplots(figsize=(11, 4.6), layout="constrained")
    for device in range(N):
        ax.axhline(device, color=INK, linewidth=0.6, zorder=0)
        _chunks(ax, 0, device, terms[device])
    for step in range(n_steps):
        before = [[*row] for row in terms]
        for message in trace.messages:
            start, end = (n_steps * tick / trace.makespan for tick in (message.sent, message.arrived))
            if round(start) == step:
                chunk = (message.source - step) % N
                own = before[message.to][chunk] if step < N - 1 else 0      # from then on it is a sum already
                terms[message.to][chunk] = before[message.source][chunk] + own
                ax.annotate("", (end - 0.17, message.to), (start + 0.17, message.source),
                            arrowprops=dict(arrowstyle="-|>", color=CHUNKS[chunk], linewidth=2.2))
        for device in range(N):
            _chunks(ax, step + 1, device, terms[device])
    ax.axvline(N - 1, color=INK, linestyle=":")
    for half, words in enumerate(("add: reduce-scatter", "pass on: all-gather")):
        ax.text((half + 0.5) * (N - 1), -0.62, words, ha="center", fontsize=13)
    ax.set(xlim=(-WIDE, n_steps + WIDE), ylim=(N - 0.5, -0.9), xlabel="steps", yticks=range(N),
           yticklabels=[f"device {device}" for device in range(N)])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=12)
    return figure


def _chunks(ax: Axes, x: float, device: int, terms: list) -> None:
    """Draw the chunks of a device, each with the number of terms in it; a full sum is filled."""
    for chunk, n in enumerate(terms):
        y, is_sum = device + (chunk - len(terms) / 2) * HIGH, n == len(terms)
        ax.add_patch(Rectangle((x - WIDE / 2, y), WIDE, HIGH, edgecolor=CHUNKS[chunk], linewidth=1.5,
                               facecolor=CHUNKS[chunk] if is_sum else "white", zorder=3))
        ax.text(x, y + HIGH / 2, n, ha="center", va="center", fontsize=9, zorder=4,
                color="white" if is_sum else INK)


def shelves(held: dict, N: int) -> Figure:
    """Draw what each of N copies keeps: a shelf in N parts for each kind, as high as its bytes.

    held: {title: {kind: bytes that one copy keeps}}; the first title is that of copies that keep everything.
    """
    whole = next(iter(held.values()))
    total = sum(whole.values())
    figure, all_axes = plt.subplots(1, len(held), figsize=(12, 3.8), sharey=True, layout="constrained")
    for ax, (title, kinds) in zip(all_axes, held.items()):
        for copy in range(N):
            y = 0
            for kind, n_bytes in whole.items():
                high = n_bytes / total
                for part in range(N):
                    colour = KINDS[kind] if kinds[kind] == n_bytes or part == copy else "white"
                    ax.add_patch(Rectangle((copy + 0.85 * part / N, y), 0.85 / N, high - 0.01,
                                           facecolor=colour, edgecolor="#BBBBBB"))
                y += high
        title = f"{title}\n{sum(kinds.values()) / 1e9:g} GB each"
        ax.set(xlim=(-0.1, N), ylim=(0, 1.02), title=title, yticks=[], xlabel="copy")
        ax.set_xticks([copy + 0.42 for copy in range(N)], range(N))
        ax.tick_params(length=0)
        ax.spines[["top", "left", "right"]].set_visible(False)
    handles = [Rectangle((0, 0), 1, 1, color=KINDS[kind], label=kind) for kind in reversed(whole)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12)
    return figure


def mirrors(forward: list, backward: list) -> Figure:
    """Draw the way of two devices through a pair of layers, and back below it, with f and g between.

    forward, backward: the arrays from left to right; a list of two stands for what each device has alone.
    """
    figure, all_axes = plt.subplots(2, 1, figsize=(11, 5.4), sharex=True, layout="constrained")
    names = (["$X$", "$A_{1,r}$", "$W_{2,r} A_{1,r}$", "$W_2 A_1$"],
             ["$dX$", "$dX_r$", "$dZ_{1,r}$", "$dZ_2$"])
    for ax, arrays, titles, kind in zip(all_axes, (forward, backward), names, ("forward", "backward")):
        for x, (array, title) in enumerate(zip(arrays, titles)):
            whole = not isinstance(array, list)
            for device, y in enumerate((0.5,) if whole else (1, 0)):
                _matrix(ax, x, y, array if whole else array[device], INK if whole else DEVICES[device])
            ax.text(x, 1.55, title, ha="center", fontsize=13)
        for device, y in enumerate((1, 0)):
            ax.text(1.5, y + 0.12, f"device {device}", ha="center", color=DEVICES[device])
        for x, name in ((0, "f"), (2, "g")):
            adds = (name == "g") == (kind == "forward")
            words, colour = ("sum", "#F0E442") if adds else ("copy", "white")
            ax.text(x + 0.5, 0.5, f"${name}$\n{words}", ha="center", va="center", fontsize=13,
                    bbox=dict(boxstyle="round", facecolor=colour, edgecolor=INK))
            for y in (1, 0):
                _arrow(ax, (x + 0.22, 0.5 if name == "f" else y), (x + 0.4, 0.5), kind)
                _arrow(ax, (x + 0.6, 0.5), (x + 0.78, y if name == "f" else 0.5), kind)
        for y in (1, 0):
            _arrow(ax, (1.25, y), (1.72, y), kind)
        ax.set(xlim=(-0.4, 3.4), ylim=(-0.5, 1.8), ylabel=kind, xticks=[], yticks=[])
        ax.spines[:].set_visible(False)
    return figure


def _matrix(ax: Axes, x: float, y: float, array: np.ndarray, colour: str) -> None:
    """Write the numbers of an array in a box."""
    rows = "\n".join("  ".join(f"{number:2g}" for number in row) for row in array)
    ax.text(x, y, rows, ha="center", va="center", fontsize=11, family="monospace",
            bbox=dict(boxstyle="square", facecolor="white", edgecolor=colour, linewidth=2))


def _arrow(ax: Axes, left: tuple, right: tuple, kind: str) -> None:
    """Draw an arrow to the right, or to the left on the way back."""
    start, end = (left, right) if kind == "forward" else (right, left)
    ax.annotate("", end, start, arrowprops=dict(arrowstyle="-|>", color=INK))


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
                    bbox=dict(boxstyle="circle", facecolor="white", edgecolor=INK))
        ax.set(xlim=(-0.6, 4.2), ylim=(-1.9, 0.9), title=order, aspect="equal")
        ax.axis("off")
    handles = [Rectangle((0, 0), 1, 1, color=colour, label=axis) for axis, colour in AXES.items()]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12)
    return figure
