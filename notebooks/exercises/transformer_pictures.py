"""Pictures for notebook 22: drawings that would be too long for a cell. Each draws into the matplotlib axes
`ax`.
"""

import numpy as np

from minipipe.plots import timeline

COLOURS = ("black", "#CC79A7")
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


def sampled(ax, text, probabilities, per_line=64):
    """Write `text` character by character, each on a ground as dark as it was probable; a blank is a low
    dot.
    """
    from matplotlib.patches import Rectangle

    for place, (character, probability) in enumerate(zip(text, probabilities)):
        row, column = divmod(place, per_line)
        ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor=_blue(probability), linewidth=0))
        shown = {" ": "\u00b7", "\n": "\u21b5"}.get(character, character)
        ax.text(column, row, shown, ha="center", va="center", family="monospace", fontsize=11,
                color="white" if probability > 0.6 else "black")
    n_lines = -(-len(text) // per_line)
    ax.set(xlim=(-0.6, per_line - 0.4), ylim=(n_lines - 0.4, -0.6))
    ax.axis("off")


def messages(ax, trace, kinds):
    """Draw the timeline of `trace`, and arrows for those messages whose label ends with one of `kinds`, a
    name each.
    """
    timeline(trace, ax=ax, legend=False)
    for name, colour in zip(kinds, COLOURS):
        for message in trace.messages:
            if isinstance(message.label, str) and message.label.endswith(name):
                ax.annotate("", (message.arrived, message.to), (message.sent, message.source), zorder=4,
                            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.4, "shrinkA": 0,
                                        "shrinkB": 0})
        ax.plot([], [], color=colour, linewidth=1.8, label=kinds[name])
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(kinds))


def _blue(share):
    import matplotlib

    return matplotlib.colormaps["Blues"](share)
