"""The critical path of a run, drawn onto its timeline."""

from itertools import groupby

from ..arguments import argument, optional
from ..cluster import SHOWS
from .legend import add_to_legend
from .rows import ends_of, rows_of

STYLE = {"linewidth": 2.2, "zorder": 3}


@SHOWS(gives="the axes")
def critical_path(trace, ax, until=None):
    """Draw the critical path of a run onto its timeline, and return the axes.

    trace: the run.
    ax: the matplotlib axes that `timeline` has drawn.
    until: draw only what has happened before that tick, as in `timeline`.

    Thick outlines are the work on the path. A thick line is a transfer, from the sender's row to the
    receiver's: of one message, or of all that queued in front of it on the link, too. It comes back where
    the sender went on after it, on a blocking link. Where one lane of a device has waited for another, it
    leads from row to row, too. A legend that the timeline has says so.
    """
    argument("ax", ax)
    until = optional("until", until)
    argument("trace", trace)
    from matplotlib.lines import Line2D
    from matplotlib.patches import Rectangle

    end = trace.makespan if until is None else until
    path = [step._replace(end=min(step.end, end)) for step in trace.critical_path() if step.start < end]
    rows = rows_of(trace)
    for step in path:
        if hasattr(step.what, "device"):
            row = rows[step.what.device, step.what.lane]
            corner, length = (step.start, row.middle - row.height / 2), step.end - step.start
            ax.add_patch(Rectangle(corner, length, row.height, fill=False, edgecolor="black", **STYLE))
    stays = [(ends, list(steps)) for ends, steps in groupby(path, key=lambda step: _ends(step.what, rows))]
    for ((source, to), steps), next_stay in zip(stays, [*stays[1:], None]):
        if source != to:
            half = 1 / 2 if rows[to].middle > rows[source].middle else -1 / 2
            leaves = rows[source].middle + half * rows[source].height
            arrives = rows[to].middle - half * rows[to].height
            ticks, heights = [steps[0].start, steps[-1].end], [leaves, arrives]
            if next_stay is not None and next_stay[0][0] == source:
                ticks.append(ticks[-1])
                heights.append(leaves)
            ax.plot(ticks, heights, color="black", solid_capstyle="butt", **STYLE)
    if path:
        add_to_legend(ax, Line2D([], [], color="black", **STYLE), "critical path")
    return ax


def _ends(what, rows):
    """The keys of the rows between which a step of the path goes; twice the same one for work."""
    return 2 * ((what.device, what.lane),) if hasattr(what, "device") else ends_of(what, rows)
