"""A plan as a picture: seconds and memory of the best way and its neighbours."""

from __future__ import annotations

from os import PathLike
from typing import TYPE_CHECKING

from ..cluster import SHOWS
from ..planning.search import text_of_seconds
from ..planning.transformer import SAFE
from .canvas import EDGE, label, new_figure
from .saving import checked_path, picture_formats, write_picture

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from ..planning.search import Plan

PARTS = {  # part of a step in the legend: (colour of Okabe and Ito, which parts of an estimate)
    "products": ("#0072B2", ["products"]),
    "attention": ("#56B4E9", ["attention"]),
    "elementwise, sums, update": ("#009E73", ["elementwise", "accumulation", "launches", "optimizer"]),
    "recomputation": ("#F0E442", ["recomputation"]),
    "exchanges in a layer (T)": ("#CC79A7", ["tensor parallel"]),
    "exchanges of replicas (D)": ("#D55E00", ["copies"]),
    "messages between stages (K)": ("#E69F00", ["messages"]),
    "bubble": ("#FFFFFF", ["bubble"]),
}
KINDS = {  # kind of bytes in the legend: (colour, which kinds of an estimate)
    "parameters": ("#0072B2", ["parameters"]),
    "gradients": ("#56B4E9", ["gradients"]),
    "optimizer state": ("#009E73", ["optimizer"]),
    "activations": ("#D55E00", ["activations"]),
    "logits, workspace": ("#E69F00", ["logits", "workspace"]),
    "reserved by CUDA": ("#BBBBBB", ["reserved"]),
}
HEIGHT = 0.42  # inches of a row
LARGE, SMALL = 13, 11.5  # points
PAPER = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # behind a number


@SHOWS()
def plan(found: Plan) -> Figure:
    """Return a matplotlib `Figure` of a `Plan`: seconds left, gigabytes right.

    The first row is the best choice, the others are its neighbours. A choice that does
    not fit into the memory of a GPU has no seconds.

    Args:
        found: the `Plan`.
    """
    best, limit = found.best, SAFE * found.best.nodes.gpu.memory / 1e9
    rows = [("best", best), *((neighbour.name, neighbour.estimate) for neighbour in found.neighbours)]
    figure = new_figure(13, 2.6 + HEIGHT * len(rows))
    seconds, gigabytes = figure.subplots(1, 2, sharey=True)
    fitting = [(place, one) for place, (_, one) in enumerate(rows) if one.fits]
    _draw_bars(seconds, PARTS, [(place, one.parts) for place, one in fitting], 1)
    _draw_bars(gigabytes, KINDS, [(place, one.memory) for place, (_, one) in enumerate(rows)], 1e9)
    longest = max(one.step for _, one in fitting)
    top = 1.15 * min(max(one.n_bytes / 1e9 for _, one in rows), 2 * limit)
    for place, (_, one) in enumerate(rows):
        at = one.step if one.fits else 0
        more = "" if place == 0 else f" ({one.step / best.step - 1:+.1%})"
        words = f"{text_of_seconds(one.step)} s{more}" if one.fits else "does not fit"
        seconds.text(at + 0.01 * longest, place, words, va="center", fontsize=SMALL)
        n = one.n_bytes / 1e9
        at = n + 0.02 * limit if n < 0.93 * top else 0.9 * top  # a bar may go beyond
        gigabytes.text(at, place, f"{n:,.0f}", va="center", fontsize=SMALL, bbox=PAPER)
    gigabytes.axvline(limit, color="#202020", linewidth=1.6)
    name = f" at most {limit:.0f} of {best.nodes.gpu.memory / 1e9:.0f} GB"
    gigabytes.text(limit, -0.6, name, va="bottom", fontsize=SMALL)
    seconds.set(xlim=(0, 1.25 * longest), ylim=(len(rows) - 0.5, -1.1))
    gigabytes.set_xlim(0, top)
    seconds.set_yticks(range(len(rows)), [name for name, _ in rows])
    seconds.get_yticklabels()[0].set_fontweight("bold")
    axes = (seconds, "seconds of a step", "left"), (gigabytes, "GB on the fullest GPU", "right")
    for ax, words, side in axes:
        label(ax, None, words)
        ax.xaxis.label.set_size(LARGE)
        ax.tick_params(labelsize=LARGE, left=False)
        handles, names = ax.get_legend_handles_labels()
        figure.legend(handles, names, loc=f"outside lower {side}", ncols=2, frameon=False, fontsize=LARGE)
    nodes = f"{best.nodes.nodes} x {best.nodes.gpus} {best.nodes.gpu.name}"
    title = f"{best.model.name}, {best.batch} x {best.model.seq:,} tokens, {nodes}. Best: {best.choice}"
    figure.suptitle(title, x=0.01, ha="left", fontsize=LARGE)
    return figure


def _draw_bars(ax, kinds, rows, unit):
    """Draw a stacked bar for each row.

    Args:
        ax: matplotlib axes.
        kinds: `PARTS` or `KINDS`.
        rows: [(place of a row, {name: number})].
        unit: what the numbers are divided by.
    """
    places, starts = [place for place, _ in rows], [0.0] * len(rows)
    for words, (colour, names) in kinds.items():
        widths = [sum(of_row.get(name, 0.0) for name in names) / unit for _, of_row in rows]
        if max(widths) > 0:
            ax.barh(places, widths, 0.72, starts, color=colour, label=words, **EDGE)
        starts = [start + width for start, width in zip(starts, widths)]


@SHOWS()
def save_plan(found: Plan, path: str | PathLike) -> None:
    """Write the picture of a `Plan` into a file, atomically.

    Args:
        found: the `Plan`.
        path: the file; its ending says the format.
    """
    path = checked_path(path, picture_formats())
    write_picture(plan(found), path)
