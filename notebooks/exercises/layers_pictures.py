"""Pictures for notebook 03: drawings that would be too long for cells."""

FORWARD, BACKWARD, INK = "#0072B2", "#D55E00", "#404040"


def ports(ax, layer, A_prev, dZ):
    """Draw what goes into the layer and what comes out: forward from left to right, backward from right to
    left.

    ax: matplotlib axes.
    layer: with parameters; it is called.
    A_prev: its input; dZ: the derivative by its output. The shapes in the picture are those of the arrays.
    """
    A = layer.forward(A_prev)
    dA_prev, dW, db = layer.backward(dZ)
    ax.add_patch(_box(0, 0, 3, 2.6))
    ax.text(1.5, 2.2, str(layer), ha="center", fontsize=13)
    ax.text(1.5, 1.3, f"$W$ {layer.W.shape}   $b$ {layer.b.shape}", ha="center", va="center")
    ax.text(1.5, 0.5, "cache: $A_{prev}$", ha="center", va="center", color=FORWARD)
    _arrow(ax, (-2, 1.9), (0, 1.9), f"$A_{{prev}}$ {A_prev.shape}", FORWARD)
    _arrow(ax, (3, 1.9), (5, 1.9), f"$Z$ {A.shape}", FORWARD)
    _arrow(ax, (5, 0.6), (3, 0.6), f"$dZ$ {dZ.shape}", BACKWARD)
    _arrow(ax, (0, 0.6), (-2, 0.6), f"$dA_{{prev}}$ {dA_prev.shape}", BACKWARD)
    _arrow(ax, (1.5, 0), (1.5, -0.9), "", BACKWARD)
    ax.text(1.5, -1, f"$dW$ {dW.shape}   $db$ {db.shape}", ha="center", va="top", color=BACKWARD)
    ax.text(-2, -0.9, "forward", color=FORWARD, va="top", fontsize=13)
    ax.text(-2, -1.3, "backward", color=BACKWARD, va="top", fontsize=13)
    ax.set(xlim=(-2.2, 5.2), ylim=(-1.6, 2.8))
    ax.axis("off")


def products(shape, columns, kinds):
    """Matrix products as rectangles in true proportion, each with its name and shape.

    shape: {name: (rows, columns, colour)}.
    columns: {title: list of texts such as "Z = W X + b"}, drawn side by side.
    kinds: {what it is: colour}, for the legend.
    """
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, len(columns), figsize=(12, 7.6))
    for ax, (title, texts) in zip(axes, columns.items()):
        middle = 0
        for product in map(str.split, texts):
            height = max(shape[part][0] for part in product if part in shape)
            middle -= height / 2
            _product(ax, product, shape, middle)
            middle -= height / 2 + 34
        ax.set(title=title, xlim=(-5, 205), ylim=(-245, 20), aspect="equal")
        ax.axis("off")
    patches = [plt.Rectangle((0, 0), 1, 1, facecolor=colour, edgecolor="black") for colour in kinds.values()]
    axes[0].legend(patches, kinds, loc="lower left", frameon=False)
    plt.show()


def _product(ax, product, shape, middle):
    """The parts of one product from left to right, `middle` high."""
    from matplotlib.patches import Rectangle

    left = 0
    for part in product:
        if part in shape:
            rows, columns, colour = shape[part]
            bottom, centre = middle - rows / 2, left + columns / 2
            ax.add_patch(Rectangle((left, bottom), columns, rows, facecolor=colour, edgecolor="black"))
            ax.text(centre, bottom + rows + 3, f"${part}$", ha="center", fontsize=14)
            ax.text(centre, bottom - 3, f"({rows}, {columns})", ha="center", va="top", fontsize=11)
        else:
            columns = 2
            ax.text(left + 2, middle, part, ha="center", va="center", fontsize=17)
        left += columns + 14


def _box(left, bottom, width, height):
    from matplotlib.patches import Rectangle

    return Rectangle((left, bottom), width, height, facecolor="#F2F2F2", edgecolor=INK)


def _arrow(ax, start, end, text, colour):
    ax.annotate("", end, start, arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 2,
                                            "shrinkA": 0, "shrinkB": 0})
    ax.text((start[0] + end[0]) / 2, start[1] + 0.12, text, ha="center", color=colour)
