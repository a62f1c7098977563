"""Several runs below each other on one time axis."""

from collections.abc import Mapping
from operator import add

from ..cluster import in_one_unit
from .boxes import boxes, height_of, rows_of, stage_places
from .canvas import TRACK, draw_legend_on_top, legend_entries, new_figure, styles_of
from .timeline import entries_of_arrows, figure_size, timeline

TITLE_ROWS = 1.1        # the height of a title, in rows


def compare(traces, measured=None, arrows=False):
    """A matplotlib `Figure` with the timelines of several traces, one below the other, on one time axis.

    traces: {name: trace}; `ValueError` for none, for one in which nothing has been computed, for ticks beside
        seconds, or for ticks that cannot be brought to one unit, see `minipipe.cluster.in_one_unit`. Or one
        trace: the simulation, with the costs that `measure` gives, of the run that has been `measured`.
    measured: a trace to be drawn below all others.
    arrows: as in `timeline`.

    Each title says the name, the makespan, and the share of the time to the end of this run in which its
    devices are idle. Idle time is drawn grey. The axis says what a tick is where the traces were brought to
    one unit, and where they come from networks.
    """
    if measured is not None:
        traces = {**(traces if isinstance(traces, Mapping) else {"simulated": traces}), "measured": measured}
    traces, tick = in_one_unit(traces)
    if not traces:
        raise ValueError("there is nothing to compare: pass {name: trace} with at least one trace")
    longest = max(trace.makespan for trace in traces.values())
    heights = [height_of(rows_of(trace)) + TITLE_ROWS for trace in traces.values()]
    styles = styles_of(traces.values())
    figure = new_figure(*figure_size(list(traces.values()), sum(heights), row_height=0.3, widest=12))
    all_axes = figure.subplots(len(traces), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for ax, (name, trace) in zip(all_axes, traces.items()):
        idle = f"idle {100 * float(trace.bubble('total')):.0f} % of the time"
        title = f"{name}: {float(trace.makespan):g} {trace.unit}, {idle}"
        timeline(trace, ax, title=title, legend=False, arrows=arrows, longest=longest, styles=styles)
        _tracks(ax, trace)
        ax.tick_params(axis="y", labelsize=8)
        if ax is not all_axes[-1]:
            ax.set_xlabel("")
            ax.tick_params(axis="x", length=0)
            ax.spines["bottom"].set_visible(False)
        elif tick is not None:
            ax.set_xlabel(f"time ({tick})")
    drawn = [box for trace in traces.values() for box in boxes(trace, styles=styles)]
    kinds = legend_entries(drawn, list(map(stage_places, traces.values())), styles)
    draw_legend_on_top(figure, *map(add, kinds, entries_of_arrows(traces.values(), arrows)))
    return figure


def _tracks(ax, trace):
    """A grey strip for each row, to the end of the run."""
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    strips = [
        Rectangle((0, row.middle - row.height / 2), trace.makespan, row.height)
        for row in rows_of(trace).values()
    ]
    ax.add_collection(PatchCollection(strips, facecolor=TRACK, edgecolor="none", zorder=0))
