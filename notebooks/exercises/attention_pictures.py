"""Pictures for notebook 17: shares, the way of attention forward and back, and who depends on whom."""

import numpy as np

from .convolution_pictures import _axes, matrix

FORWARD, BACKWARD, INK, PALE = "#0072B2", "#D55E00", "#404040", "#F2F2F2"
BOXES = {  # (from the left, from below) of each array
    "$A_{prev}$": (0, 2.6), "$Q$": (4.4, 5.2), "$K$": (4.4, 2.6), "$V$": (4.4, 0), "$S$": (8.4, 3.9),
    "$P$": (11.4, 3.9), "$O$": (14.2, 1.6), "$A$": (17.4, 1.6),
}
ARROWS = (  # from, to, the words of the forward above the arrow, those of the backward below it
    ("$A_{prev}$", "$Q$", "$W_q$", "$W_q^T dQ$"),
    ("$A_{prev}$", "$K$", "$W_k$", "$W_k^T dK$"),
    ("$A_{prev}$", "$V$", "$W_v$", "$W_v^T dV$"),
    ("$Q$", "$S$", r"$K^T Q \,/ \sqrt{d_h}$", r"$dQ = K\, dS \,/ \sqrt{d_h}$"),
    ("$K$", "$S$", "", r"$dK = Q\, dS^T / \sqrt{d_h}$"),
    ("$S$", "$P$", "softmax", "$dS$: softmax"),
    ("$P$", "$O$", "$V P$", "$dP = V^T dO$"),
    ("$V$", "$O$", "", "$dV = dO\\, P^T$"),
    ("$O$", "$A$", "$W_o O$", "$dO = W_o^T dA$"),
)


def shares(P):
    """Return a figure of the shares P (T, T), with two digits; what the causal mask hides stays empty."""
    figure, ax = _axes(1, (4, 3.4))
    hidden = np.tril(np.ones(P.shape, bool), -1)
    matrix(ax, P.round(2), np.where(hidden, -1, 0), xlabel="query: place $t$", ylabel="key: place $j$")
    return figure


def flow():
    """Return a figure of the arrays of attention, blue arrows forward and orange ones back."""
    figure, ax = _axes(1, (13, 5.2))
    for name, (x, y) in BOXES.items():
        ax.text(x, y, name, ha="center", va="center", fontsize=17, zorder=3,
                bbox={"facecolor": PALE, "edgecolor": INK, "boxstyle": "round,pad=0.45"})
    for start, end, there, back in ARROWS:
        left, right = np.array(BOXES[start]), np.array(BOXES[end])
        along = (right - left) / np.linalg.norm(right - left)
        aside = 0.15 * np.array([-along[1], along[0]])
        angle = np.degrees(np.arctan2(along[1], along[0]))
        for tail, head, shift, colour, words in ((left, right, aside, FORWARD, there),
                                                 (right, left, -aside, BACKWARD, back)):
            way = (head - tail) / np.linalg.norm(head - tail)
            ax.annotate("", head + shift - 0.75 * way, tail + shift + 0.75 * way, arrowprops={
                "arrowstyle": "-|>", "color": colour, "linewidth": 2, "shrinkA": 0, "shrinkB": 0})
            ax.text(*(left + right) / 2 + 2.9 * shift, words, color=colour, fontsize=13, ha="center",
                    va="center", rotation=angle, rotation_mode="anchor")
    ax.set(xlim=(-0.9, 18), ylim=(-0.6, 5.9), aspect="equal")
    ax.axis("off")
    return figure


def influences(stacks):
    """Return a figure of {title: (T, T)}: blue where the result at place t depends on place j."""
    figure, axes = _axes(len(stacks), (11, 3.6))
    for ax, (title, found) in zip(axes, stacks.items()):
        ax.imshow(found > 0, cmap="Blues", vmin=0, vmax=1.4)
        ax.set(title=title, xlabel="result at place $t$", xticks=range(len(found)), yticks=range(len(found)))
    axes[0].set_ylabel("depends on place $j$")
    return figure
