"""Pictures for notebook 40: drawings that would be too long for a cell."""

from itertools import accumulate

import numpy as np
from matplotlib.colors import ListedColormap

INK = "#404040"
COLOURS = ("#56B4E9", "#E69F00", "#7FCBA4", "#D9A0C0")  # of four devices: Okabe and Ito's, some paler


def draw_owners(ax, table, sizes, title):
    """Which device computes which activation, drawn into the matplotlib axes `ax`.

    table: (units of all layers, samples), the number of the device, from 0 to 3; the first layer's units on
        top.
    sizes: for each layer, how many units it has.
    """
    ax.imshow(table, ListedColormap(COLOURS), vmin=0, vmax=3, aspect="auto", interpolation="nearest")
    ends = list(accumulate(sizes))
    for end in ends[:-1]:
        ax.axhline(end - 0.5, color="white", linewidth=4)
    for device in range(4):
        for rows, columns in _blocks(table == device, ends):
            x, y = columns.mean(), rows.mean()
            ax.text(x, y, f"{device}", ha="center", va="center", color=INK, fontsize=11)
    middles = [end - size / 2 - 0.5 for end, size in zip(ends, sizes)]
    ax.set_yticks(middles, [f"A[{layer}]: {size} units" for layer, size in enumerate(sizes, 1)])
    ax.set(title=title, xlabel="samples")
    ax.tick_params(length=0)
    ax.spines[:].set_visible(False)


def _blocks(mine, ends):
    """(rows, columns) of what is True in each layer that has at least 30 units."""
    for start, end in zip([0, *ends], ends):
        rows, columns = np.nonzero(mine[start:end])
        if len(rows) and end - start >= 30:
            yield rows + start, columns
