"""The critical path of a run, drawn onto its timeline."""

from itertools import groupby

from .boxes import HEIGHT

STYLE = {"linewidth": 2.2, "zorder": 3}


def critical_path(trace, ax, until=None):
    """Draw the critical path of a run onto its timeline, and return the axes.

    trace: the run.
    ax: the matplotlib axes that `timeline` has drawn.
    until: draw only what has happened before that tick, as in `timeline`.

    Thick outlines are the work on the path. A thick line is a transfer, from the sender's row to the
    receiver's: of one message, or of all that queued in front of it on the link, too. It comes back where
    the sender went on after it, on a blocking link.
    """
    from matplotlib.patches import Rectangle

    end = trace.makespan if until is None else until
    path = [step._replace(end=min(step.end, end)) for step in trace.critical_path() if step.start < end]
    for step in path:
        if hasattr(step.what, "device"):
            corner = step.start, step.what.device - HEIGHT / 2
            ax.add_patch(
                Rectangle(corner, step.end - step.start, HEIGHT, fill=False, edgecolor="black", **STYLE)
            )
    stays = [(ends, list(steps)) for ends, steps in groupby(path, key=lambda step: _ends(step.what))]
    for ((source, to), steps), next_stay in zip(stays, [*stays[1:], None]):
        if source != to:
            half = HEIGHT / 2 if to > source else -HEIGHT / 2
            ticks, rows = [steps[0].start, steps[-1].end], [source + half, to - half]
            if next_stay is not None and next_stay[0][0] == source:
                ticks.append(ticks[-1])
                rows.append(source + half)
            ax.plot(ticks, rows, color="black", solid_capstyle="butt", **STYLE)
    return ax


def _ends(what):
    """The devices between which a step of the path goes; twice the same one for work."""
    return (what.device, what.device) if hasattr(what, "device") else (what.source, what.to)
