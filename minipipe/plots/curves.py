"""Curves of memory and of trainings, and the cut of a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..checks import listed, real_number, whole_numbers
from ..cluster import COMPUTE, Trace, lane_name
from ..cluster.trace import check_trace
from .canvas import draw_legend_beside, label, new_axes
from .timeline import axes_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")  # Okabe and Ito
STYLES_OF_LINES = "-", "--", "-.", ":"
SIZE = 6.5, 3.2  # inches of new axes


# The bytes that each device of a run holds, over time.

def memory(trace: Trace, ax: Axes | None = None, title: str | None = None, legend: bool = True) -> Axes:
    """Draw the bytes of each device over time, in KiB; return the matplotlib axes.

    Args:
        trace: the run; `ValueError` if it counted no memory.
        ax: matplotlib axes; new ones if None.
        title: above the picture.
        legend: whether to name the devices.
    """
    check_trace(trace)
    curves = [
        [(tick, n_bytes / 1024) for tick, n_bytes in trace.memory(device)]
        for device in range(trace.n_devices)
    ]
    ax = axes_of(trace) if ax is None else ax
    end = float(trace.makespan)  # matplotlib knows no fractions
    # keep the curves of other axes with the same y axis visible
    sharing = [other for other in ax.get_shared_y_axes().get_siblings(ax) if other.lines]
    highest = max(level for curve in curves for _, level in curve)
    top = max([1.05 * highest, *(other.get_ylim()[1] for other in sharing)]) or 1
    for device, curve in enumerate(curves):
        ticks, levels = zip(*curve, (end, curve[-1][1]))
        name, colour = lane_name(device, COMPUTE, trace.names), COLOURS[device % len(COLOURS)]
        ax.step(ticks, levels, where="post", label=name, color=colour,
                linestyle=STYLES_OF_LINES[device % len(STYLES_OF_LINES)], linewidth=1.6)
    ax.set(xlim=(0, end or 1), ylim=(0, top))
    label(ax, title, f"time ({trace.unit})", "memory (KiB)")
    if legend:
        draw_legend_beside(ax)
    return ax


def counts_bytes(trace: Trace) -> bool:
    """Tell whether `trace` has the bytes that its devices hold."""
    try:
        trace.memory(0)
    except ValueError:
        return False
    return True


# The memory of one device, by kind: parameters, gradients, stashes, caches, messages.

# from bottom to top, permanent kinds first; the colours differ for readers with any kind of colour vision
MEMORY_KINDS = {
    "parameters": "#202020",
    "optimizer state": "#007DC8",
    "weight versions": "#968B76",
    "gradients": "#0A6134",
    "stashed inputs": "#EDDD3C",
    "caches": "#52B9F3",
    "work": "#D65E00",
    "messages": "#CC81AE",
}


def ledger(trace: Trace, device: int, ax: Axes | None = None, title: str | None = None) -> Axes:
    """Draw the bytes of one device by kind, as areas; return the matplotlib axes.

    Args:
        trace: the run; `ValueError` if it counted no memory.
        device: its number.
        ax: matplotlib axes; new ones if None.
        title: above the picture.

    "gradients" are sums over micro-batches, "work" the inputs and new arrays of the
    running action.
    """
    check_trace(trace)
    entries = trace.ledger(device)
    ax = axes_of(trace) if ax is None else ax
    ticks = [*(float(tick) for tick, _ in entries), float(trace.makespan)]  # matplotlib knows no fractions
    kinds = [kind for kind in MEMORY_KINDS if any(kind in held for _, held in entries)]
    layers = [[held.get(kind, 0) / 1024 for _, held in (*entries, entries[-1])] for kind in kinds]
    ax.stackplot(
        ticks, layers, step="post", labels=kinds, colors=[MEMORY_KINDS[kind] for kind in kinds], linewidth=0
    )
    ax.set(xlim=(0, ticks[-1]), ylim=(0, None))
    label(ax, title, f"time ({trace.unit})", f"{lane_name(device, COMPUTE, trace.names)} (KiB)")
    draw_legend_beside(ax, reverse=True)
    return ax


# Curves of trainings.

def curves(
    series: Mapping[str, Any], ax: Axes | None = None, x: str = "", y: str = "", title: str | None = None
) -> Axes:
    """Draw several curves, each with its colour and dash; return the matplotlib axes.

    Args:
        series: {name: a list of (x, y)}; `ValueError` if there is none.
        ax: matplotlib axes; new ones if None.
        x, y: the names of the axes, with units.
        title: above the picture.

    >>> from matplotlib.figure import Figure
    >>> ax = curves({"sync": [(0, 90), (10, 20)]}, Figure().subplots(), x="ticks", y="error (%)")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['sync']
    """
    if not isinstance(series, dict) or not series:
        raise ValueError("there is nothing to draw: pass {name: [(x, y), ...]} with at least one curve")
    ax = new_axes(*SIZE) if ax is None else ax
    for number, (name, points) in enumerate(series.items()):
        points = [[float(real_number("series", number)) for number in point] for point in points]
        at, values = zip(*points)  # floats, since matplotlib knows no fractions
        ax.plot(at, values, STYLES_OF_LINES[number % len(STYLES_OF_LINES)],
                color=COLOURS[number % len(COLOURS)], label=name)
    ax.legend(frameon=False, fontsize=9)
    label(ax, title, x, y)
    return ax


# The cut of a network, and its slowest stage.

BACKGROUNDS = ("#FFFFFF", "#E4E4E4")        # of odd and even stages
BAR, BOTTLENECK = "#0072B2", "#D55E00"      # of Okabe and Ito, for colour-blind readers
MOST_NAMES = 40
MOST_LOADS = 24


def cut(
    costs: Sequence[float], counts: Sequence[int], names: Sequence[str] | None = None,
    ax: Axes | None = None, title: str | None = None, unit: str | None = None,
) -> Axes:
    """Draw the costs of layers as bars, on stripes for the stages, each with its load.

    Args:
        costs: one number for each layer.
        counts: how many layers each stage has, in order.
        names: of the layers; if None, or for more than 40 layers, they are numbered.
        ax: matplotlib axes; new ones if None.
        title: above the picture.
        unit: what the costs are, for the axis.

    A load is given as a multiple of the equal load, total / K; the largest is marked.
    Return the matplotlib axes.

    >>> from matplotlib.figure import Figure
    >>> ax = cut([10, 10, 10, 10, 11, 11], [5, 1], ax=Figure().add_subplot())
    >>> [text.get_text() for text in ax.texts]
    ['1.65', '0.35']
    """
    costs, counts = listed("costs", costs), list(whole_numbers("counts", counts, 0))
    if sum(counts) != len(costs):
        raise ValueError(
            f"counts={counts} adds up to {sum(counts)} for {len(costs)} costs: "
            "together the stages have every layer"
        )
    ax = new_axes(*SIZE) if ax is None else ax
    ends = [sum(counts[:stage + 1]) for stage in range(len(counts))]
    loads = [sum(costs[end - count:end]) for end, count in zip(ends, counts)]
    equal, slowest = sum(costs) / len(counts), loads.index(max(loads))
    for stage, (end, count) in enumerate(zip(ends, counts)):
        ax.axvspan(end - count - 0.5, end - 0.5, facecolor=BACKGROUNDS[stage % 2], zorder=0)
        if count and (len(counts) <= MOST_LOADS or stage == slowest):
            colour, weight = (BOTTLENECK, "bold") if stage == slowest else ("#404040", "normal")
            share = loads[stage] / equal if equal else 0
            ax.text(
                end - count / 2 - 0.5, 1.01, f"{share:.2f}", transform=ax.get_xaxis_transform(), ha="center",
                va="bottom", fontsize=8, color=colour, fontweight=weight,
            )
    first = ends[slowest] - counts[slowest]
    colours = [BOTTLENECK if first <= layer < ends[slowest] else BAR for layer in range(len(costs))]
    ax.bar(range(len(costs)), costs, width=0.7, color=colours, zorder=2)
    ax.set(xlim=(-0.5, len(costs) - 0.5), ylim=(0, 1.05 * max(costs) or 1))
    label(ax, title, "layer", "cost" if unit is None else unit, pad=16)
    if names is not None and len(costs) <= MOST_NAMES:
        ax.set_xticks(range(len(costs)), names, rotation=60, ha="right", rotation_mode="anchor", fontsize=8)
        ax.set_xlabel("")
    return ax
