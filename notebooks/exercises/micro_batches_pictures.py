"""A picture for notebook 05: a drawing that would be too long for a cell."""

COLOURS = ["#56B4E9", "#56B4E9", "#E69F00", "#E69F00"]  # of the samples of two micro-batches


def product_in_parts():
    """1/4 dL A^T of four samples, cell by cell, and the same as the sum of those of two micro-batches."""
    import matplotlib.pyplot as plt

    _, ax = plt.subplots(figsize=(12, 2.9))
    _product(ax, 0, [0, 1, 2, 3], r"$dW \;=\; \dfrac{1}{4}$")
    _product(ax, 9.6, [0, 1], r"$=\;\; \dfrac{1}{4}$")
    _product(ax, 16.9, [2, 3], r"$+\;\; \dfrac{1}{4}$")
    for left, text in ((3.6, "mini-batch"), (12.2, "micro-batch 1"), (19.6, "micro-batch 2")):
        ax.text(left, -1.3, text, ha="center", fontsize=13)
    ax.set(xlim=(-2.7, 22.7), ylim=(-1.6, 3.7), aspect="equal")
    ax.axis("off")
    plt.show()


def _product(ax, left, samples, name):
    """dL of some samples, a row, beside their A^T, a row for each."""
    ax.text(left - 0.15, 1.5, name, ha="right", va="center", fontsize=15)
    _grid(ax, left, 2, [[(f"$a_{k + 1}$", COLOURS[k]) for k in samples]])
    rows = [[(f"${letter}_{k + 1}$", COLOURS[k]) for letter in "bcd"] for k in samples]
    _grid(ax, left + len(samples) + 0.3, 2 + (len(samples) - 1) / 2, rows)


def _grid(ax, left, top, rows):
    from matplotlib.patches import Rectangle

    for i, row in enumerate(rows):
        for j, (text, colour) in enumerate(row):
            ax.add_patch(Rectangle((left + j, top - i - 1), 1, 1, facecolor=colour, edgecolor="black"))
            ax.text(left + j + 0.5, top - i - 0.5, text, ha="center", va="center", fontsize=13)
