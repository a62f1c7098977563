"""The picture of GPipe's tables 2 and 3: throughput against K and M, simulated and published."""

from minipipe.papers import P100, TABLE_2, TABLE_3, TPU_V2, TPU_V3
from minipipe.papers.gpipe import speed_up
from minipipe.plots.canvas import label, new_figure

COLOURS = {1: "#0072B2", 4: "#E69F00", 32: "#000000"}  # by M, of Okabe and Ito
FAMILIES = {
    "Transformer": ("#D55E00", TPU_V3, (48,), (24,)),
    "AmoebaNet-D": ("#009E73", TPU_V2, (18, 256), (18, 128)),
}
K_RANGE, M_RANGE = range(2, 9), (1, 2, 4, 8, 16, 32, 64)


def throughput():
    """A matplotlib `Figure`: lines are simulations, rings are published cells."""
    figure = new_figure(10, 8)
    (first, second), (third, fourth) = figure.subplots(2, 2)
    for ax, family in zip((first, second), FAMILIES):
        _against_K(ax, family)
    _against_M(third)
    _on_gpus(fourth)
    for ax in figure.axes:
        ax.set_ylim(0)
    figure.suptitle(
        "GPipe's tables 2 and 3: lines are simulated, rings are published", x=0.01, ha="left", fontsize=13
    )
    return figure


def _against_K(ax, family):
    _, device, size, _ = FAMILIES[family]
    name = f"{family} {size}" if len(size) == 2 else f"{family} of {size[0]} layers"
    for M, colour in COLOURS.items():
        simulated = {K: speed_up(family, size, K, M, device, TABLE_2[family]) for K in K_RANGE}
        _draw(ax, simulated, {K: value for (K, m), value in TABLE_2[family].items() if m == M}, colour)
        ax.annotate(
            f"M = {M}", (8, simulated[8]), (6, 0), textcoords="offset points", color=colour, va="center",
            annotation_clip=False,
        )
    label(ax, f"{name} on TPUs", "stages K", "throughput, relative to K = 2, M = 1")


def _against_M(ax):
    for family, (colour, device, size, _) in FAMILIES.items():
        simulated = {M: speed_up(family, size, 8, M, device, TABLE_2[family]) for M in M_RANGE}
        published = {M: value for (K, M), value in TABLE_2[family].items() if K == 8}
        _draw(ax, simulated, published, colour, family)
    ax.set_xscale("log", base=2)
    ax.set_xticks(M_RANGE, M_RANGE)
    ax.legend(frameon=False, loc="upper left")
    label(ax, "Eight stages on TPUs", "micro-batches M", "throughput, relative to K = 2, M = 1")


def _on_gpus(ax):
    for family, (colour, _, _, size) in FAMILIES.items():
        simulated = {K: speed_up(family, size, K, 32, P100, TABLE_3[family]) for K in K_RANGE}
        _draw(ax, simulated, {K: value for (K, _), value in TABLE_3[family].items()}, colour, family)
    ax.legend(frameon=False, loc="upper left")
    label(ax, "M = 32 on P100s without NVLink", "stages K", "throughput, relative to K = 2")


def _draw(ax, simulated, published, colour, name=None):
    """A line through what is simulated, and a ring for each published cell: {K or M: throughput}."""
    ax.plot(list(simulated), list(simulated.values()), color=colour, linewidth=2, label=name)
    ax.plot(
        list(published), list(published.values()), "o", color=colour, markerfacecolor="white", markersize=8,
        markeredgewidth=2,
    )
