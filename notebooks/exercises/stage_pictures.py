"""Pictures for notebook 06: what a stage has in its stash, one action after the other."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from .parts.stage import arrays_of, n_bytes

INPUT, MASK, INK, PALE = "#56B4E9", "#D55E00", "#404040", "#F0F0F0"
WIDTH, HEIGHT, GAP = 0.9, 0.62, 0.01        # of a full entry and the gap between boxes, in columns and rows


def kib(things: object) -> float:
    """Return the KiB of all arrays in nested lists, tuples and dicts, each array counted once."""
    return n_bytes(things) / 2**10


def counted(stage: object, X_parts: list) -> tuple[float, float]:
    """Send all micro-batches forward, then all back, and return (full, most), in KiB.

    full: what is in the stash after the last forward.
    most: what is in the stash and in the layers' caches together, when a backward has just worked; the
        largest of all backwards.
    """
    outputs = [stage.forward(i, X_i) for i, X_i in enumerate(X_parts)]
    full, most = kib(stage.stash), 0
    for i, A in enumerate(outputs):
        stage.backward(i, A)                                # any dA of that shape will do
        most = max(most, kib([stage.stash, [layer.cache for layer in stage.layers]]))
    return full, most


def stashes(stages: dict, X_parts: list) -> Figure:
    """Let stages work, all forwards first, and draw what is in their stash after each action.

    stages: {a title: a stage}.
    X_parts: the inputs of the micro-batches.
    """
    n = len(X_parts)
    order = [("F", i) for i in range(n)] + [("B", i) for i in reversed(range(n))]
    figure, axes = plt.subplots(
        len(stages), 1, figsize=(9, 2 * len(stages) + 0.8), squeeze=False, sharex=True, layout="constrained")
    for ax, (title, stage) in zip(axes[:, 0], stages.items()):
        outputs = {}
        for place, (kind, i) in enumerate(order):
            if kind == "F":
                outputs[i] = stage.forward(i, X_parts[i])
            else:
                stage.backward(i, outputs[i])               # any dA of that shape will do
            caches = [layer.cache for layer in stage.layers]
            for micro_batch in range(n):
                _entry(ax, place, micro_batch, stage.stash.get(micro_batch), n_bytes(caches))
            if kind == "B":
                _entry(ax, place, i, caches, n_bytes(caches), in_work=True)
        names = [f"{kind}{i}" for kind, i in order]
        ax.set(xlim=(-0.05, len(order)), ylim=(n, 0), title=title)
        ax.set_xticks([place + WIDTH / 2 for place in range(len(order))], [f"after {name}" for name in names])
        ax.set_yticks([i + 0.5 for i in range(n)], [f"stash[{i}]" for i in range(n)])
        ax.tick_params(length=0, labelsize=12)
        ax.spines[:].set_visible(False)
    handles = [
        Patch(facecolor=INPUT, label="input of a Linear"),
        Patch(facecolor=MASK, label="mask of a ReLU"),
        Patch(facecolor="white", edgecolor=INK, linestyle=":", label="in work: what the backward used"),
    ]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12)
    return figure


def _entry(ax: Axes, column: int, row: int, entry: object, full: int, in_work: bool = False) -> None:
    """Draw the arrays of one entry side by side, each as wide as its bytes; a full entry fills the column."""
    y = row + (1 - HEIGHT) / 2
    if not in_work:
        ax.add_patch(Rectangle((column, y), WIDTH, HEIGHT, color=PALE, zorder=0))
    x = column
    for array in arrays_of(entry):
        width = WIDTH * array.nbytes / full
        colour = MASK if array.dtype == bool else INPUT
        style = dict(facecolor="white", edgecolor=INK, linestyle=":") if in_work else dict(color=colour)
        ax.add_patch(Rectangle((x, y), max(width - GAP, GAP), HEIGHT, linewidth=1, **style))
        x += width
