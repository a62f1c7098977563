"""The picture of notebook 24: a ring all-reduce on the timeline."""

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from minipipe.cluster import Trace

CHUNKS, INK = ("#0072B2", "#E69F00", "#009E73", "#CC79A7"), "#404040"
WIDE, HIGH = 0.25, 0.17                     # of a chunk, in steps and rows


def ring(trace: Trace) -> Figure:
    """Draw the messages of a ring of at most four devices, and how many terms each chunk holds.

    trace: of `all_reduce(..., "ring")`, in which only messages take time.
    """
    N = trace.n_devices
    n_steps, terms = 2 * (N - 1), [[1] * N for _ in range(N)]
    figure, ax = plt.subplots(figsize=(11, 4.6), layout="constrained")
    for device in range(N):
        ax.axhline(device, color=INK, linewidth=0.6, zorder=0)
        _chunks(ax, 0, device, terms[device])
    for step in range(n_steps):
        before = [[*row] for row in terms]
        for message in trace.messages:
            start, end = (n_steps * tick / trace.makespan for tick in (message.sent, message.arrived))
            if round(start) == step:
                chunk = (message.source - step) % N
                own = before[message.to][chunk] if step < N - 1 else 0      # from then on it is a sum already
                terms[message.to][chunk] = before[message.source][chunk] + own
                ax.annotate("", (end - 0.17, message.to), (start + 0.17, message.source),
                            arrowprops=dict(arrowstyle="-|>", color=CHUNKS[chunk], linewidth=2.2))
        for device in range(N):
            _chunks(ax, step + 1, device, terms[device])
    ax.axvline(N - 1, color=INK, linestyle=":")
    for half, words in enumerate(("add: reduce-scatter", "pass on: all-gather")):
        ax.text((half + 0.5) * (N - 1), -0.62, words, ha="center", fontsize=13)
    ax.set(xlim=(-WIDE, n_steps + WIDE), ylim=(N - 0.5, -0.9), xlabel="steps", yticks=range(N),
           yticklabels=[f"device {device}" for device in range(N)])
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0, labelsize=12)
    return figure


def _chunks(ax: Axes, x: float, device: int, terms: list) -> None:
    """Draw the chunks of a device, each with the number of terms in it; a full sum is filled."""
    for chunk, n in enumerate(terms):
        y, is_sum = device + (chunk - len(terms) / 2) * HIGH, n == len(terms)
        ax.add_patch(Rectangle((x - WIDE / 2, y), WIDE, HIGH, edgecolor=CHUNKS[chunk], linewidth=1.5,
                               facecolor=CHUNKS[chunk] if is_sum else "white", zorder=3))
        ax.text(x, y + HIGH / 2, n, ha="center", va="center", fontsize=9, zorder=4,
                color="white" if is_sum else INK)
