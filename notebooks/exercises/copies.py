"""The checker and the picture of notebook 25, copies of a network."""

import matplotlib.pyplot as plt
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from . import judged

COLOURS = {"parameters": "#0072B2", "gradients": "#D55E00", "optimizer state": "#009E73"}
END_MISTAKES = [
    (lambda ready, c: max(ready) + sum(c),
     "You let all exchanges wait for the last gradient. Each begins when its own is there."),
    (lambda ready, c: max(start + own for start, own in zip(ready, c)),
     "You let the exchanges run at the same time. They take one lane, one after the other."),
    (lambda ready, c: ready[0] + sum(c), "Nearly: the lane can also be free and wait for a gradient."),
    (lambda ready, c: sum(c), "The first exchange cannot begin before its gradient is ready."),
]


def check_end(end):
    """Judge `end(ready, c)`: when the last of several exchanges is over, which take one lane in turn.

    >>> check_end(lambda ready, c: max(ready) + sum(c))
    'You let all exchanges wait for the last gradient. Each begins when its own is there.'
    """
    cases = [([2, 4, 6, 8], [3, 3, 3, 3]), ([2, 4, 6, 8], [1, 1, 1, 1]), ([4, 8], [5, 5]), ([1, 9], [5, 2])]
    right = [max(start + sum(c[k:]) for k, start in enumerate(ready)) for ready, c in cases]
    return judged(end, ("ready", "c"), cases, right, END_MISTAKES) or (
        "Right: each begins at the later of two ticks: its gradient is ready, and the lane is free.")


def shelves(held: dict, N: int) -> Figure:
    """Draw what each of N copies keeps: a shelf in N parts for each kind, as high as its bytes.

    held: {title: {kind: bytes that one copy keeps}}; the first title is that of copies that keep everything.
    """
    whole = next(iter(held.values()))
    total = sum(whole.values())
    figure, all_axes = plt.subplots(1, len(held), figsize=(12, 3.8), sharey=True, layout="constrained")
    for ax, (title, kinds) in zip(all_axes, held.items()):
        for copy in range(N):
            y = 0
            for kind, n_bytes in whole.items():
                high = n_bytes / total
                for part in range(N):
                    colour = COLOURS[kind] if kinds[kind] == n_bytes or part == copy else "white"
                    ax.add_patch(Rectangle((copy + 0.85 * part / N, y), 0.85 / N, high - 0.01,
                                           facecolor=colour, edgecolor="#BBBBBB"))
                y += high
        title = f"{title}\n{sum(kinds.values()) / 1e9:g} GB each"
        ax.set(xlim=(-0.1, N), ylim=(0, 1.02), title=title, yticks=[], xlabel="copy")
        ax.set_xticks([copy + 0.42 for copy in range(N)], range(N))
        ax.tick_params(length=0)
        ax.spines[["top", "left", "right"]].set_visible(False)
    handles = [Rectangle((0, 0), 1, 1, color=COLOURS[kind], label=kind) for kind in reversed(whole)]
    figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False, fontsize=12)
    return figure
