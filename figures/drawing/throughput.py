"""The picture of GPipe's tables 2 and 3: throughput, simulated and published."""

from minipipe.papers import P100, TABLE_2, TABLE_3, TPU_V2, TPU_V3
from minipipe.papers.gpipe import speed_up
from minipipe.plots.canvas import label, new_figure

COLOURS = {1: "#0072B2", 4: "#E69F00", 32: "#000000"}  # by M, of Okabe and Ito
FAMILIES = {  # colour, device and sizes, and why rings are off their lines
    "Transformer": (
        "#D55E00", TPU_V3, (48,), (24,), "M = 4: the paper took larger\nbatches, so rings lie higher"
    ),
    "AmoebaNet-D": (
        "#009E73", TPU_V2, (18, 256), (18, 128), "its stages took unequal times\non TPUs, so rings lie lower"
    ),
}
K_RANGE = range(2, 9)


def throughput():
    """Return a `Figure`: lines are simulations, rings are published cells."""
    figure = new_figure(13, 4.6)
    axes = figure.subplots(1, 3)
    for ax, family in zip(axes, FAMILIES):
        _against_K(ax, family)
    _on_gpus(axes[2])
    for ax in figure.axes:
        ax.set_ylim(0)
    figure.suptitle(
        "GPipe's tables 2 and 3: lines are simulated, rings published", x=0.01, ha="left", fontsize=13
    )
    return figure


def _against_K(ax, family):
    _, device, size, _, reason = FAMILIES[family]
    name = f"{family} {size}" if len(size) == 2 else f"{family} of {size[0]} layers"
    for M, colour in COLOURS.items():
        simulated = {K: speed_up(family, size, K, M, device, TABLE_2[family]) for K in K_RANGE}
        _draw(ax, simulated, {K: value for (K, m), value in TABLE_2[family].items() if m == M}, colour)
        ax.annotate(
            f"M = {M}", (8, simulated[8]), (6, 0), textcoords="offset points", color=colour, va="center",
            annotation_clip=False,
        )
    ax.text(0.03, 0.97, reason, transform=ax.transAxes, va="top", fontsize=10, color="#505050")
    label(ax, f"{name} on TPUs", "stages K", "throughput, relative to K = 2, M = 1")


def _on_gpus(ax):
    for family, (colour, _, _, size, _) in FAMILIES.items():
        simulated = {K: speed_up(family, size, K, 32, P100, TABLE_3[family]) for K in K_RANGE}
        _draw(ax, simulated, {K: value for (K, _), value in TABLE_3[family].items()}, colour, family)
    ax.legend(frameon=False, loc="upper left")
    label(ax, "M = 32 on P100s without NVLink", "stages K", "throughput, relative to K = 2")


def _draw(ax, simulated, published, colour, name=None):
    """Draw a line through `simulated` and a ring for each of `published`."""
    ax.plot(list(simulated), list(simulated.values()), color=colour, linewidth=2, label=name)
    ax.plot(
        list(published), list(published.values()), "o", color=colour, markerfacecolor="white", markersize=8,
        markeredgewidth=2,
    )
