"""Pictures for notebooks 17 and 18: drawings that would be too long for a cell. Each draws into the
matplotlib axes `ax`.
"""

import numpy as np

BAR = "#56B4E9"  # Okabe and Ito's sky blue, for black text beside it


def maps(ax, A, n_columns=None, title="", signed=False):
    """Draw the channels of `A` (C, H, W) side by side, in rows of `n_columns`, all in one row if None.

    signed: violet above 0, orange below, white at 0, as strong as the largest number of all; else from white
    (the smallest) to black.
    """
    channels, height, width = A.shape
    n_columns = channels if n_columns is None else n_columns
    n_rows = -(-channels // n_columns)
    gap = max(1, width // 8)
    sheet = np.full((n_rows * (height + gap) - gap, n_columns * (width + gap) - gap), np.nan)
    for c, channel in enumerate(A):
        row, column = divmod(c, n_columns)
        top, left = row * (height + gap), column * (width + gap)
        sheet[top:top + height, left:left + width] = channel
    limit = abs(A).max() or 1
    colours = {"cmap": "PuOr", "vmin": -limit, "vmax": limit} if signed else {"cmap": "gray_r"}
    ax.set_facecolor("#DDDDDD")
    ax.imshow(sheet, interpolation="nearest", **colours)
    ax.set(xticks=[], yticks=[])
    ax.set_title(title, loc="left", fontsize=11)
    for side in ax.spines.values():
        side.set_visible(False)


def bars(ax, names, values, title):
    """Draw one bar for each of `values`, from top to bottom, with its number behind it."""
    places = range(len(values))
    ax.barh(places, values, color=BAR, edgecolor="#404040", linewidth=0.6)
    for place, value in zip(places, values):
        ax.text(value, place, f" {value:,}", va="center", fontsize=10)
    ax.set_yticks(places, names)
    ax.set(xlim=(0, 1.28 * max(values)), ylim=(len(values) - 0.5, -0.5), xticks=[])
    ax.set_title(title, loc="left", fontsize=12)
    ax.tick_params(length=0)
    for side in ("top", "right", "bottom"):
        ax.spines[side].set_visible(False)
