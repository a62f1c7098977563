"""Pictures for notebook 14: somebody in a crowd of digits, and the scores of a detector."""

import matplotlib.pyplot as plt
import numpy as np

CELL = 12  # pixels from one digit to the next, along rows and columns
FRAME = "#D55E00"


def crowd(images, wanted, seed, often=1, rows=6, columns=14):
    """Return (a picture of rows x columns digits, [(row, column) of the pixel where each `wanted` begins]).

    images: (8, 8, n), to choose the others from, by chance. Each digit is up to 4 pixels off its place.
    If `wanted` is in the crowd once, the one place is returned, not a list.
    """
    rng = np.random.default_rng(seed)
    size = len(wanted)
    others = np.flatnonzero((images != wanted[..., None]).any(axis=(0, 1)))
    sheet, places = np.zeros((rows * CELL, columns * CELL)), []
    here = rng.choice(rows * columns, often, replace=False)
    for place in range(rows * columns):
        top, left = np.array(divmod(place, columns)) * CELL + rng.integers(0, CELL - size + 1, 2)
        digit = wanted if place in here else images[..., rng.choice(others)]
        sheet[top:top + size, left:left + size] = digit
        if place in here:
            places.append((int(top), int(left)))
    return sheet, places[0] if often == 1 else places


def wanted(digit, sheet):
    """Return a figure of the digit, and of the crowd next to it with the numbers of its rows and columns."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), width_ratios=(1, 7), layout="constrained")
    left.imshow(digit, cmap="gray_r")
    left.set(title="Waldo", xticks=[], yticks=[])
    _sheet(right, sheet)
    return figure


def found(sheet, scores, n=1):
    """Return a figure of the crowd with frames at the `n` largest scores, and of all scores below it."""
    figure, (above, below) = plt.subplots(2, 1, figsize=(10, 8.6), layout="constrained")
    _sheet(above, sheet)
    size = len(sheet) - len(scores) + 1
    for place in np.argsort(scores.ravel())[-n:]:
        row, column = np.unravel_index(place, scores.shape)
        above.add_patch(plt.Rectangle((column - 1, row - 1), size + 1, size + 1, facecolor="none",
                                      edgecolor=FRAME, linewidth=2.5))
    colours = below.imshow(scores, cmap="Blues", vmin=scores.max() / 2)
    below.set(title="score of the window that begins here, from half the largest on",
              xlim=above.get_xlim(), ylim=above.get_ylim(), xticks=[], yticks=[])
    figure.colorbar(colours, ax=below, shrink=0.8)
    return figure


def _sheet(ax, sheet):
    """Draw a crowd, with a number for each of its rows and columns."""
    ax.imshow(sheet, cmap="gray_r")
    rows, columns = (length // CELL for length in sheet.shape)
    ax.set_xticks(np.arange(columns) * CELL + 5.5, range(columns))
    ax.set_yticks(np.arange(rows) * CELL + 5.5, range(rows))
    ax.tick_params(length=0)
