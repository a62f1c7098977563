"""Pictures for notebook 18: drawings that would be too long for a cell."""

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.patches import Rectangle

from minipipe.plots import timeline

COLOURS = "black", "#CC79A7"


def journeys(trace, kinds):
    """Return a figure of a run, with arrows for some of its messages.

    kinds: {how the labels of these messages end: what to call them}.
    """
    figure, ax = plt.subplots(figsize=(11, 3), layout="constrained")
    timeline(trace, ax=ax, legend=False)
    for (end, name), colour in zip(kinds.items(), COLOURS):
        for message in trace.messages:
            if isinstance(message.label, str) and message.label.endswith(end):
                ax.annotate("", (message.arrived, message.to), (message.sent, message.source), zorder=4,
                            arrowprops={"arrowstyle": "-|>", "color": colour, "linewidth": 1.8, "shrinkA": 0,
                                        "shrinkB": 0})
        ax.plot([], [], color=colour, linewidth=1.8, label=name)
    ax.legend(frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1), ncols=len(kinds), fontsize=12)
    return figure


def written(book, models, prompt, T, n=128, seed=1):
    """Return a figure of what each model writes after a prompt, each character on a ground as dark as it was
    probable; a blank is a low dot. The logits are multiplied by 1.5, which makes slips rarer.
    """
    figure, axes = plt.subplots(len(models), 1, figsize=(11, 3), layout="constrained")
    for ax, model, title in zip(axes, models, ("before", "after")):
        rng, ids = np.random.default_rng(seed), book.encode(prompt).tolist()
        for place in range(n):
            Z = 1.5 * model.predict(np.array(ids[-T:])[:, None])[:, -1, 0].astype(np.float64)
            p = np.exp(Z - Z.max()) / np.exp(Z - Z.max()).sum()
            ids.append(rng.choice(len(p), p=p))
            (row, column), sure = divmod(place, 64), p[ids[-1]]
            shown = book.decode(ids[-1:]).replace(" ", "\u00b7").replace("\n", "\u21b5")
            ax.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=0,
                                   facecolor=plt.colormaps["Blues"](sure)))
            ax.text(column, row, shown, ha="center", va="center", family="monospace", fontsize=12,
                    parse_math=False, color="white" if sure > 0.6 else "black")
        ax.set(xlim=(-0.6, 63.6), ylim=(n / 64 - 0.4, -0.6))
        ax.set_title(f"{title} the training, after \u201c{prompt}\u201d", loc="left", fontsize=12)
        ax.axis("off")
    return figure
