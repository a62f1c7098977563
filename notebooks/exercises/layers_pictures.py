"""Pictures for notebook 03: drawings that would be too long for cells."""

import matplotlib.pyplot as plt
from matplotlib.patches import Rectangle

FORWARD, BACKWARD, INK = "#0072B2", "#D55E00", "#404040"
VALUE, WEIGHT, DERIVATIVE, GRADIENT = "#56B4E9", "#F0E442", "#D9A3C4", "#E69F00"
KINDS = {"values": VALUE, "parameters": WEIGHT, "derivatives of values": DERIVATIVE, "gradients": GRADIENT}
PRODUCTS = {
    "forward": ["Z1 = W1 X + b1", "Z2 = W2 A1 + b2"],
    "backward": ["dW2 = dZ2 A1T", "dA1 = W2T dZ2", "dW1 = dZ1 XT"],
}


def stamps(moves):
    """Return a figure of which entries of Z move, and by how much, when one number is raised by 1.

    moves: {the number that is raised, such as "b[1]": how much each entry of Z moves, (n, m)}.
    """
    figure, axes = plt.subplots(1, len(moves), figsize=(11, 2.8), layout="constrained")
    for ax, (name, move) in zip(axes, moves.items()):
        n, m = move.shape
        ax.pcolormesh(range(m), range(n), move != 0, cmap="Blues", vmax=2, edgecolors=INK, linewidth=1)
        for i in range(n):
            for k in range(m):
                text = f"{move[i, k]:+g}" if move[i, k] else "0"
                ax.text(k, i, text, ha="center", va="center", fontsize=15)
        ax.set_title(f"raise {name} by 1:\nhow $Z$ moves", fontsize=14)
        ax.set(xticks=range(m), yticks=range(n), xlabel="sample $k$", ylabel="unit $i$")
        ax.invert_yaxis()
    return figure


def one_layer(layer, A_prev, dZ):
    """Return a figure of what goes into a layer and comes out: forward to the right, backward to the left.

    layer: with parameters; it is called.
    A_prev: its input; dZ: the derivative with respect to its output. The picture gives their shapes.
    """
    figure, ax = plt.subplots(figsize=(9, 3.6), layout="constrained")
    A = layer.forward(A_prev)
    dA_prev, dW, db = layer.backward(dZ)
    ax.add_patch(Rectangle((0, 0), 3, 2.6, facecolor="#F2F2F2", edgecolor=INK))
    ax.text(1.5, 2.15, type(layer).__name__, ha="center", fontsize=14)
    ax.text(1.5, 1.3, f"$W$ {layer.W.shape}   $b$ {layer.b.shape}", ha="center", va="center", fontsize=12)
    ax.text(1.5, 0.5, "cache: $A_{prev}$", ha="center", va="center", color=FORWARD, fontsize=12)
    _arrow(ax, (-2, 1.9), (0, 1.9), f"$A_{{prev}}$ {A_prev.shape}", FORWARD)
    _arrow(ax, (3, 1.9), (5, 1.9), f"$Z$ {A.shape}", FORWARD)
    _arrow(ax, (5, 0.6), (3, 0.6), f"$dZ$ {dZ.shape}", BACKWARD)
    _arrow(ax, (0, 0.6), (-2, 0.6), f"$dA_{{prev}}$ {dA_prev.shape}", BACKWARD)
    _arrow(ax, (1.5, 0), (1.5, -0.9), "", BACKWARD)
    ax.text(1.5, -1, f"$dW$ {dW.shape}   $db$ {db.shape}", ha="center", va="top", color=BACKWARD, fontsize=13)
    ax.text(-2, -0.9, "forward", color=FORWARD, va="top", fontsize=13)
    ax.text(-2, -1.3, "backward", color=BACKWARD, va="top", fontsize=13)
    ax.set(xlim=(-2.2, 5.2), ylim=(-1.6, 2.8))
    ax.axis("off")
    return figure


def products(arrays):
    """Return a figure of the products of two layers as rectangles, all to one scale, with names and shapes.

    arrays: {name in `PRODUCTS`: its array}. A "T" after a name stands for the transpose.
    """
    figure, axes = plt.subplots(1, 2, figsize=(12, 7.4), layout="constrained")
    for ax, (title, texts) in zip(axes, PRODUCTS.items()):
        middle = 0
        for parts in map(str.split, texts):
            height = max(_matrix(part, arrays)[0] for part in parts if part not in "=+")
            middle -= height / 2
            _product(ax, parts, arrays, middle)
            middle -= height / 2 + 34
        ax.set(xlim=(-5, 205), ylim=(-245, 20), aspect="equal")
        ax.set_title(title, fontsize=16)
        ax.axis("off")
    patches = [plt.Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor="black") for colour in KINDS.values()]
    axes[0].legend(patches, KINDS, loc="lower left", frameon=False, fontsize=13)
    return figure


def _matrix(part, arrays):
    """Return (rows, columns, colour) of a matrix in a product."""
    name = part.removesuffix("T")
    shape = arrays[name].shape if name == part else arrays[name].shape[::-1]
    if name[0] == "d":
        return (*shape, GRADIENT if name[1] in "Wb" else DERIVATIVE)
    return (*shape, WEIGHT if name[0] in "Wb" else VALUE)


def _written(part):
    """Return the name of a matrix in mathematical type: W2T is W^{[2]T}."""
    letters = part.rstrip("12T")
    above = part[len(letters):].replace("1", "[1]").replace("2", "[2]")
    return f"${letters}^{{{above}}}$" if above else f"${letters}$"


def _product(ax, parts, arrays, middle):
    """Draw the parts of one product from left to right, `middle` high."""
    left = 0
    for part in parts:
        if part not in "=+":
            rows, columns, colour = _matrix(part, arrays)
            bottom, centre = middle - rows / 2, left + columns / 2
            ax.add_patch(Rectangle((left, bottom), columns, rows, facecolor=colour, edgecolor="black"))
            ax.text(centre, bottom + rows + 3, _written(part), ha="center", fontsize=15)
            ax.text(centre, bottom - 3, f"({rows}, {columns})", ha="center", va="top", fontsize=12)
        else:
            columns = 2
            ax.text(left + 2, middle, part, ha="center", va="center", fontsize=18)
        left += columns + 14


def _arrow(ax, start, end, text, colour):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2,
                                            "shrinkA": 0, "shrinkB": 0})
    ax.text((start[0] + end[0]) / 2, start[1] + 0.12, text, ha="center", color=colour, fontsize=13)
