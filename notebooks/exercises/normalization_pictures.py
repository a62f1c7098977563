"""Pictures for notebook 19: drawings that would be too long for a cell. Each draws into the matplotlib axes
`ax`.
"""

import numpy as np

INK, PALE = "#404040", "#F2F2F2"
# Okabe and Ito's, some paler
COLOURS = ("#56B4E9", "#E69F00", "#7FCBA4", "#F0E442", "#D9A0C0", "#BBBBBB", "#F4B183")
KEPT = "#0072B2"


def groups_of(layer, A_prev, slices):
    """For each number of A_prev (n, m), the number of its group, if the micro-batches `slices` go through
    `layer` one by one.

    Two numbers belong together if the derivative of the one's result by the other is not 0.
    """
    found, n_groups = np.full(A_prev.shape, -1), 0
    for part in slices:
        layer.forward(A_prev[:, part])
        own = found[:, part]
        for place in np.ndindex(own.shape):
            if own[place] < 0:
                dZ = np.zeros(own.shape)
                dZ[place] = 1
                own[(layer.backward(dZ)[0] != 0) | (dZ != 0)] = n_groups
                n_groups += 1
    return found


def groups(ax, found, slices, title):
    """Draw the `groups_of` a layer: neighbours of one group have one colour, and no line between them."""
    from matplotlib.patches import Rectangle

    n, m = found.shape
    for (row, column), group in np.ndenumerate(found):
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=COLOURS[group % len(COLOURS)],
                               linewidth=0))
        if row and found[row - 1, column] != group:
            ax.plot([column - 0.5, column + 0.5], [row - 0.5] * 2, color=INK, linewidth=1)
        if column and found[row, column - 1] != group:
            ax.plot([column - 0.5] * 2, [row - 0.5, row + 0.5], color=INK, linewidth=1)
    _cuts(ax, slices, n)
    ax.set(title=title, xlabel="sample", xticks=range(m), yticks=range(n), xlim=(-0.55, m - 0.45),
           ylim=(n - 0.2, -0.8),
           aspect="equal")
    _frameless(ax)


def masks(ax, kept, slices, title):
    """Draw where a mask `kept` (n, m) is not 0, with a line between the micro-batches `slices`."""
    from matplotlib.colors import ListedColormap

    n, m = kept.shape
    ax.imshow(kept != 0, cmap=ListedColormap([PALE, KEPT]), vmin=0, vmax=1)
    ax.vlines(np.arange(1, m) - 0.5, -0.5, n - 0.5, color="white", linewidth=1.2)
    ax.hlines(np.arange(1, n) - 0.5, -0.5, m - 0.5, color="white", linewidth=1.2)
    _cuts(ax, slices, n)
    ax.set(title=title, xlabel="sample", xticks=range(m), yticks=[], xlim=(-0.55, m - 0.45),
           ylim=(n - 0.2, -0.8))
    _frameless(ax)


def spread(ax, numbers, slices):
    """Draw the `numbers` (n,) micro-batch by micro-batch, with each one's mean and its distance from the mean
    of all.
    """
    mean = np.mean(numbers)
    ax.axvline(mean, color=INK, linestyle="--", linewidth=1.2, label="mean of all")
    for row, part in enumerate(slices):
        own, colour = numbers[part], COLOURS[row % len(COLOURS)]
        ax.plot([np.mean(own), mean], [row, row], color=INK, linewidth=1.2, zorder=1)
        ax.scatter(own, np.full(len(own), row), s=110, color=colour, edgecolor=INK, zorder=2)
        ax.plot([np.mean(own)] * 2, [row - 0.32, row + 0.32], color=INK, linewidth=3, zorder=3,
                label="mean of the micro-batch" if row == 0 else None)
    ax.set(xlabel="value", yticks=range(len(slices)), ylim=(len(slices) - 0.4, -0.6),
           yticklabels=[f"micro-batch {row}" for row in range(len(slices))])
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=2)
    ax.tick_params(axis="y", length=0)


def shares(ax, within, between):
    """Draw how the squared distances of all numbers fall into those `within` each micro-batch, and those
    `between` means.
    """
    left = 0
    for row, (name, parts) in enumerate((("within", within), ("between", between))):
        for part, colour in zip(parts, COLOURS):
            ax.barh(0, part, left=left, color=colour, edgecolor=INK, hatch="//" if row else None)
            left += part
        ax.text(left - sum(parts) / 2, 0.52, f"{name}: {sum(parts):g}", ha="center")
    ax.set(xlabel="squared distances from the mean of all, added up", yticks=[], ylim=(-0.5, 0.75),
           xlim=(0, left))
    ax.spines["left"].set_visible(False)


def _cuts(ax, slices, n):
    """Thick lines between micro-batches."""
    for part in slices[1:]:
        ax.plot([part.start - 0.5] * 2, [-0.8, n - 0.2], color="black", linewidth=3.5)


def _frameless(ax):
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
