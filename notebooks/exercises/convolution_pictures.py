"""Pictures of kernels on rows of numbers, for notebook 13 and those after it. Functions with an `ax` draw
into these matplotlib axes, the others return a figure.
"""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

INK, GREY, PALE = "#404040", "#777777", "#F2F2F2"
# Okabe and Ito's, some paler, for black text
COLOURS = ("#56B4E9", "#E69F00", "#7FCBA4", "#F0E442", "#D9A0C0", "#BBBBBB")
PATH, SEEN = "#E69F00", "#0072B2"


def windows(ax, w, A_prev, Z, stride=1, padding=0):
    """Draw each place of the kernel `w` (kernel_size,) on the numbers `A_prev` (n,): one row for each window.

    Z: the numbers to write behind the rows, one for each window. Equal colours are equal entries of the
    kernel.
    """
    n = len(A_prev)
    for q in range(-padding, n + padding):
        inside = 0 <= q < n
        _cell(ax, q, 0, f"{A_prev[q]:g}" if inside else "0", PALE if inside else "white", dashed=not inside)
    for p, z in enumerate(Z):
        for i, weight in enumerate(w):
            _cell(ax, p * stride + i - padding, p + 1.4, f"{weight:g}", COLOURS[i % len(COLOURS)])
        ax.text(n + padding - 0.2, p + 1.4, f"$Z_{p} = {z:g}$", va="center", fontsize=13)
    ax.set(xlim=(-padding - 0.6, n + padding + 1.4), ylim=(len(Z) + 1.1, -0.6), aspect="equal",
           xticks=range(n),
           xlabel="place $q$ in $A_{prev}$")
    ax.set_yticks([0, *(p + 1.4 for p in range(len(Z)))],
                  ["$A_{prev}$", *(f"window {p}" for p in range(len(Z)))])
    _frameless(ax)


def matrix(ax, numbers, kinds, bright=None, xlabel="", ylabel=""):
    """Draw the matrix `numbers`, cell by cell, its rows from top to bottom.

    kinds: whole numbers of the same shape; each has its colour, and a negative one is a cell that stays
    empty.
    bright: which cells have their full colour, all of them if None.
    """
    bright = np.ones(kinds.shape, bool) if bright is None else bright
    for (row, column), kind in np.ndenumerate(kinds):
        if kind < 0:
            _cell(ax, column, row, "", "white", edge="#DDDDDD", order=1)
        else:
            _cell(ax, column, row, f"{numbers[row, column]:g}", COLOURS[kind % len(COLOURS)],
                  faded=not bright[row, column])
    n_rows, n_columns = kinds.shape
    ax.set(xlim=(-0.6, n_columns - 0.4), ylim=(n_rows - 0.4, -0.6), aspect="equal", xlabel=xlabel,
           ylabel=ylabel,
           xticks=range(n_columns), yticks=range(n_rows))
    _frameless(ax)


def cone(ax, derivatives, kernel_size, dilations):
    """Draw a stack of convolutions that keep the length, and what one output depends on.

    derivatives: the derivative of that output by the numbers of each layer, a list of (n,), from the input to
    the output; where it is not 0 a dot is full. dilations: one for each layer. The kernel size is odd.
    """
    for height, d in enumerate(dilations):
        for p in np.flatnonzero(derivatives[height + 1]):
            for i in range(kernel_size):
                ax.plot([p + (i - kernel_size // 2) * d, p], [height, height + 1], color=PATH, linewidth=1.1,
                        zorder=1)
    for height, dA in enumerate(derivatives):
        for full in (False, True):
            places = np.flatnonzero((dA != 0) == full)
            ax.scatter(places, np.full(len(places), height), s=52, zorder=2,
                       edgecolor=SEEN if full else "#AAAAAA",
                       facecolor=SEEN if full else "white")
    ax.set(ylim=(-0.4, len(dilations) + 0.4), xlabel="place")
    names = ["input", *(f"layer {depth}, dilation {d}" for depth, d in enumerate(dilations, start=1))]
    ax.set_yticks(range(len(names)), names)
    _frameless(ax)


def at_all_places(A_prev, *layers):
    """Return a figure of `Conv1d` layers with one channel, each at all its places on the numbers `A_prev`."""
    figure, axes = _axes(len(layers), (6.5 * len(layers), 1.6 + 3 * len(layers) ** 0.5))
    for ax, layer in zip(np.atleast_1d(axes), layers):
        Z, box = layer.forward(A_prev.reshape(1, -1, 1)).ravel(), layer.windows
        (stride,), (k,), padding = box.stride, box.kernel_size, box.padding[0][0]
        windows(ax, layer.W.ravel(), A_prev, Z, stride, padding)
        ax.set_title(f"kernel of {k}, stride {stride}, padding {padding}")
        ax.set_anchor("N")
    return figure


def readings(C, which):
    """Return a figure of the table `C` (windows, places) three times: one row, one colour, one column.

    which: the weight in each cell, counted from 0; -1 where there is none.
    """
    row, column = np.indices(C.shape)
    bright = {"one row: forward, $Z_1$": row == 1, "one colour: $dw_3$": which == 3,
              "one column: $dA_3$": column == 3}
    figure, axes = _axes(3, (13, 3))
    for ax, (title, cells) in zip(axes, bright.items()):
        matrix(ax, C, which, cells, xlabel="place $q$ in $A_{prev}$", ylabel="window $p$")
        ax.set_title(title)
    return figure


def cones(stacks):
    """Return a figure of `cone`s, one above the other: {dilations: derivatives}, for kernels of 3."""
    figure, axes = _axes(len(stacks), (11, 2.6 * len(stacks)), below=True)
    for ax, (dilations, derivatives) in zip(axes, stacks.items()):
        cone(ax, derivatives, 3, dilations)
        ax.set_title(f"dilations {dilations}: one output sees {np.count_nonzero(derivatives[0])} inputs")
    return figure


def columns(unfold):
    """Return a figure of a small array, (2, 5, 1), and of its columns for a kernel of 3."""
    A = np.array([[1.0, 3, 0, 2, 1], [5, 4, 6, 7, 9]])
    place = np.indices(A.shape)[1]
    figure, (left, right) = _axes(2, (8.5, 4.2))
    matrix(left, A, place, xlabel="place", ylabel="channel")
    matrix(right, unfold(A[..., None], 3), unfold(place[..., None], 3), xlabel="window",
           ylabel="channel, entry of the kernel")
    right.set_yticks(range(6), [f"{c}, {i}" for c in range(2) for i in range(3)])
    left.set_title("$A_{prev}$, one sample")
    right.set_title("its columns, for a kernel of 3")
    return figure


def _axes(n, size, below=False):
    """Return a figure and its n axes, one next to (or below) the other; the one axes alone if n is 1."""
    with plt.rc_context({"font.size": 12}):
        figure, axes = plt.subplots(*((n, 1) if below else (1, n)), figsize=size, layout="constrained")
    return figure, axes


def _cell(ax, column, row, text, colour, faded=False, dashed=False, edge=INK, order=2):
    ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=PALE if faded else colour,
                           linewidth=0.9,
                           edgecolor=GREY if dashed or faded else edge, linestyle=":" if dashed else "-",
                           zorder=order))
    ax.text(column, row, text, ha="center", va="center", fontsize=13, color="#9A9A9A" if faded else "black",
            zorder=order + 1)


def _frameless(ax):
    ax.tick_params(length=0)
    for side in ax.spines.values():
        side.set_visible(False)
