"""Several runs below each other on one time axis."""

from ..cluster import SECONDS, TICKS
from . import legend as legends
from .boxes import boxes
from .canvas import new_figure
from .colours import styles_of
from .places import places_of
from .rows import height_of, rows_of
from .timeline import figure_size, timeline

TRACK = "#EFEFEF"       # behind a run, so that its idle time differs from the time after its end
TITLE_ROWS = 1.1        # the height of a title, in rows


def compare(traces, measured=None, arrows=False):
    """A matplotlib `Figure` with the timelines of several traces, one below the other, on one time axis.

    traces: {name: trace}; `ValueError` for none, or for one in which nothing has been computed. Or one trace:
        a simulation with costs in seconds, as `measure` gives them, of the run that has been `measured`.
    measured: a trace in seconds; all others then are read in seconds, too.
    arrows: as in `timeline`.

    Each title says the name, the makespan, and the share of the time to the end of this run in which its
    devices are idle. Idle time is drawn grey.
    """
    if measured is not None:
        traces = {**(traces if isinstance(traces, dict) else {"simulated": traces}), "measured": measured}
    if not traces or not isinstance(traces, dict):
        raise ValueError("there is nothing to compare: pass {name: trace} with at least one trace")
    longest = max(trace.makespan for trace in traces.values())
    unit = SECONDS if any(trace.unit == SECONDS for trace in traces.values()) else TICKS
    heights = [height_of(rows_of(trace)) + TITLE_ROWS for trace in traces.values()]
    styles = styles_of(traces.values())
    figure = new_figure(*figure_size(list(traces.values()), sum(heights), row_height=0.3, widest=12))
    all_axes = figure.subplots(len(traces), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for ax, (name, trace) in zip(all_axes, traces.items()):
        idle = f"idle {100 * float(trace.bubble('total')):.0f} % of the time"
        title = f"{name}: {float(trace.makespan):g} {unit}, {idle}"
        timeline(trace, ax, title=title, legend=False, arrows=arrows, longest=longest, styles=styles)
        _tracks(ax, trace)
        ax.tick_params(axis="y", labelsize=8)
        ax.set_xlabel(f"time ({unit})" if ax is all_axes[-1] else "")
        if ax is not all_axes[-1]:
            ax.tick_params(axis="x", length=0)
            ax.spines["bottom"].set_visible(False)
    shown = [box for trace in traces.values() for box in boxes(trace, styles=styles)]
    legends.draw_on_top(figure, *legends.entries(shown, list(map(places_of, traces.values())), styles))
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
