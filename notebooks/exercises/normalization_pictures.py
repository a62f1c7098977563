"""Pictures for notebook 16: groups of norms, parts of a variance, masks. Functions with an `ax` draw into
these matplotlib axes, the others return a figure.
"""

import numpy as np
from matplotlib.colors import ListedColormap
from matplotlib.patches import Rectangle

from minipipe.arrays import even_slices

from .convolution_pictures import INK, PALE, _axes, _frameless

# Okabe and Ito's, some paler
COLOURS = ("#56B4E9", "#E69F00", "#7FCBA4", "#F0E442", "#D9A0C0", "#BBBBBB", "#F4B183")
KEPT = "#0072B2"


def groups_of(layer, A_prev, slices):
    """Return the group of each number of A_prev (n, m), if the micro-batches `slices` go through `layer`.

    Two numbers are in one group if the output at one depends on the other: its derivative is not 0.
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


def under_the_knife(norms, numbers, slices):
    """Return a figure of the groups of {name: norm} if the micro-batches `slices` of `numbers` go through."""
    figure, axes = _axes(len(norms), (11, 3.4))
    for ax, (name, norm) in zip(axes, norms.items()):
        norm.initialize(np.random.default_rng(0))
        groups(ax, groups_of(norm, numbers, slices), slices, name)
    axes[0].set_ylabel("unit")
    return figure


def groups(ax, found, slices, title):
    """Draw the `groups_of` a layer: neighbours of one group have one colour, and no line between them."""
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


def draw_masks(ax, kept, slices, title):
    """Draw where a mask `kept` (n, m) is not 0, with a line between the micro-batches `slices`."""
    n, m = kept.shape
    ax.imshow(kept != 0, cmap=ListedColormap([PALE, KEPT]), vmin=0, vmax=1)
    ax.vlines(np.arange(1, m) - 0.5, -0.5, n - 0.5, color="white", linewidth=1.2)
    ax.hlines(np.arange(1, n) - 0.5, -0.5, m - 0.5, color="white", linewidth=1.2)
    _cuts(ax, slices, n)
    ax.set(title=title, xlabel="sample", xticks=range(m), yticks=[], xlim=(-0.55, m - 0.45),
           ylim=(n - 0.2, -0.8))
    _frameless(ax)


def cut_masks(masks):
    """Return a figure of masks of 12 units and 8 samples: cut in three ways, and those of the next step."""
    figure, axes = _axes(4, (11, 4.1))
    titles = ("8", "4 + 4", "3 + 3 + 2", "8, after an update")
    for ax, M, key, title in zip(axes, (1, 2, 3, 1), (0, 0, 0, 1), titles):
        slices = even_slices(8, M)
        kept = [masks(key, part.start, part.stop - part.start, 12, 0.5) for part in slices]
        draw_masks(ax, np.concatenate(kept, axis=1), slices, title)
    axes[0].set_ylabel("unit: kept (dark), set to 0 (pale)")
    return figure


def spread(numbers, slices):
    """Return a figure of `numbers` (n,) micro-batch by micro-batch, with each one's mean and its distance
    from the mean of all.
    """
    figure, ax = _axes(1, (6.5, 3))
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
    return figure


def _cuts(ax, slices, n):
    """Draw thick lines between micro-batches."""
    for part in slices[1:]:
        ax.plot([part.start - 0.5] * 2, [-0.8, n - 0.2], color="black", linewidth=3.5)
