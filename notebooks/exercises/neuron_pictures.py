"""Pictures for notebook 01: drawings that would be too long for cells. They draw into new matplotlib axes."""

CENTRE, SIDES, VALUE, DERIVATIVE, GREY = "#0072B2", "#E69F00", "#0072B2", "#D55E00", "#777777"
PLACES = {
    "x_1": (0, 4), "w_1": (0, 3), "x_2": (0, 2), "w_2": (0, 1), "b": (0, 0),
    "z": (1.4, 2), "a": (2.8, 2), "L": (4.2, 2),
}
FORMULAS = {"z": "$z = w_1 x_1 + w_2 x_2 + b$", "a": r"$a = \sigma(z)$", "L": "$L(a, y),\\ y = 1$"}


def samples(pixels, X, Y, n):
    """The first n images with their two features and their label; frames show where the features come from.

    pixels: (64, m). X: (2, m), the mean ink in the centre and at the sides. Y: (1, m).
    """
    import matplotlib.pyplot as plt

    _, axes = plt.subplots(1, n, figsize=(10, 2.5))
    for k, ax in enumerate(axes):
        ax.imshow(pixels[:, k].reshape(8, 8), cmap="gray_r", vmin=0, vmax=1)
        ax.add_patch(plt.Rectangle((2.6, 2.6), 1.8, 1.8, fill=False, edgecolor=CENTRE, linewidth=3))
        for column in (1.6, 4.6):
            frame = dict(fill=False, edgecolor=SIDES, linewidth=3, linestyle="--")
            ax.add_patch(plt.Rectangle((column, 2.6), 0.8, 1.8, **frame))
        ax.set_title(f"$x_1$={X[0, k]:.2f}\n$x_2$={X[1, k]:.2f}\ny = {int(Y[0, k])}", fontsize=12)
        ax.axis("off")
    plt.show()


def graph(values, derivatives):
    """The computation of the loss from x, w and b: each number with its value, and the derivative of L by it.

    values: {name: number} for each of `PLACES`.
    derivatives: {name: number}; x has none.
    """
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(10, 4.6))
    for start, end in [*((name, "z") for name in list(PLACES)[:5]), ("z", "a"), ("a", "L")]:
        (x_from, y_from), (x_to, y_to) = PLACES[start], PLACES[end]
        arrow = {"arrowstyle": "->", "color": GREY}
        ax.annotate("", (x_to - 0.33, y_to), (x_from + 0.33, y_from), arrowprops=arrow)
    for name, (left, height) in PLACES.items():
        ax.add_patch(plt.Rectangle((left - 0.33, height - 0.4), 0.66, 0.8, facecolor="white", edgecolor=GREY))
        ax.text(left - 0.2, height, f"${name}$", ha="center", va="center", fontsize=15)
        derivative = derivatives.get(name)
        up = 0 if derivative is None else 0.18
        number = dict(ha="center", va="center")
        ax.text(left + 0.1, height + up, f"{values[name]:.4g}", color=VALUE, **number)
        if derivative is not None:
            ax.text(left + 0.1, height - 0.2, f"{derivative:.4f}", color=DERIVATIVE, **number)
    for name, formula in FORMULAS.items():
        ax.text(PLACES[name][0], 2.75, formula, ha="center", fontsize=13)
    ax.text(2.8, 0.75, "forward value", color=VALUE, ha="center")
    ax.text(2.8, 0.35, "backward value: the derivative of L by it", color=DERIVATIVE, ha="center")
    ax.set(xlim=(-0.4, 4.7), ylim=(-0.6, 4.6))
    ax.axis("off")
    plt.show()
