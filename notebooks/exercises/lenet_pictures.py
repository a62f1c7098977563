"""Pictures for notebook 15: LeNet-5's three maxima, its turned kernel, and its way back."""

import numpy as np

from .convolution_pictures import _axes, matrix

BAR = "#56B4E9"  # Okabe and Ito's sky blue, for black text next to it


def maxima(names, counts, titles=None):
    """Return a figure with a column of bars for each of `counts`, {what is counted: one number a layer}.

    names: of the layers. titles: of the columns, which then have no numbers; None: what is counted.
    """
    figure, axes = _axes(3, (12, 4.4))
    for ax, title, values in zip(axes, titles or counts, counts.values()):
        places = range(len(values))
        ax.barh(places, values, color=BAR, edgecolor="#404040", linewidth=0.6)
        for place, value in zip(places, values):
            ax.text(value, place, f" {value:,}" if titles is None else "", va="center", fontsize=10)
        ax.set_yticks(places, names if ax is axes[0] else [])
        ax.set(xlim=(0, 1.28 * max(values)), ylim=(len(values) - 0.5, -0.5), xticks=[])
        ax.set_title(title, loc="left")
        ax.tick_params(length=0)
        ax.spines[["top", "right", "bottom"]].set_visible(False)
    return figure


def turned(padded, W, dA_prev):
    """Return a figure of dZ with zeros around it, the turned kernel, dA_prev; what makes (1, 2) is blue."""
    figure, axes = _axes(3, (11, 4))
    window, place = np.full(padded.shape, 5), np.full(dA_prev.shape, 5)
    window[1:4, 2:5] = place[1, 2] = 0
    matrix(axes[0], padded, window, xlabel="$dZ$, with 2 zeros around it")
    matrix(axes[1], W[::-1, ::-1], np.zeros(W.shape, int), xlabel="$W$, turned by 180 degrees")
    matrix(axes[2], dA_prev, place, xlabel="$dA_{prev}$")
    for ax in axes:
        ax.set(xticks=[], yticks=[])
    return figure


def way_back(maps):
    """Return a figure of {title: (1, H, W)}: violet above 0, orange below, white at 0, each by itself."""
    figure, axes = _axes(len(maps), (13, 3.6))
    for ax, (title, (A,)) in zip(axes, maps.items()):
        limit = abs(A).max()
        ax.imshow(A, cmap="PuOr", vmin=-limit, vmax=limit, interpolation="nearest")
        ax.set_title(f"{title}: {len(A)} x {len(A)}", fontsize=12)
        ax.set(xticks=[], yticks=[])
    return figure
