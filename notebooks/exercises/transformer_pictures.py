"""A picture for notebook 21: a drawing that would be too long for a cell."""

import numpy as np

HIDDEN = "#BBBBBB"


def shares(ax, P, names=None, title=None, largest=1):
    """Draw the shares P (T, T) of a head: dark is much. Hatched is what the causal mask hides.

    names: of the T places, their numbers if None. A small P has its numbers written in. largest: the share
    that is darkest.
    """
    from matplotlib.patches import Rectangle

    T = len(P)
    ax.imshow(P, cmap="Blues", vmin=0, vmax=largest)
    for j, t in np.ndindex(P.shape):
        if j > t:
            ax.add_patch(Rectangle((t - 0.5, j - 0.5), 1, 1, facecolor="white", edgecolor=HIDDEN, hatch="///",
                                   linewidth=0))
        if T <= 5:
            ax.text(t, j, f"{P[j, t]:.2g}", ha="center", va="center",
                    color="white" if P[j, t] > 0.6 * largest else "black",
                    bbox={"facecolor": "white", "edgecolor": "none", "pad": 1} if j > t else None)
    ax.set_xticks(range(T), range(T) if names is None else names)
    ax.set_yticks(range(T), range(T) if names is None else names)
    ax.set(title=title, xlabel="query: place $t$", ylabel="key: place $j$")
    ax.tick_params(length=0)
