"""Several runs below each other on one time axis, in one unit of time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import add
from typing import TYPE_CHECKING, Any

from ..checks import shown
from ..cluster import OneTick, Trace
from ..order.costs import as_float, divide_exactly
from .boxes import boxes, height_of, rows_of, stage_places
from .canvas import TRACK, draw_legend_on_top, legend_entries, new_figure, styles_of
from .timeline import entries_of_arrows, figure_size, timeline

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE_ROWS = 1.1  # the height of a title, in rows


def compare(traces: Mapping[str, Trace], arrows: bool | str = False) -> Figure:
    """Return a matplotlib `Figure` with several runs below each other on one time axis.

    Args:
        traces: {name: trace}; `ValueError` for none, for one in which nothing has been
            computed, or for times without a common unit, see `in_one_unit`.
        arrows: as in `timeline`.

    A title has the name, the makespan, the share of idle time, and how many times its
    share of the parameters a device holds, unless that is once. Idle time is grey. The
    axis says what a tick is if traces were converted, or come from networks.
    """
    from matplotlib.collections import PatchCollection
    from matplotlib.patches import Rectangle

    traces, tick = in_one_unit(traces)
    if not traces:
        raise ValueError("there is nothing to compare: pass {name: trace} with at least one trace")
    longest = max(trace.makespan for trace in traces.values())
    heights = [height_of(rows_of(trace)) + TITLE_ROWS for trace in traces.values()]
    styles = styles_of([*traces.values()])
    figure = new_figure(*figure_size(list(traces.values()), sum(heights), row_height=0.3, widest=12))
    all_axes = figure.subplots(len(traces), squeeze=False, sharex=True, height_ratios=heights)[:, 0]
    for ax, (name, trace) in zip(all_axes, traces.items()):
        idle = f"idle {100 * float(trace.bubble('total')):.0f} % of the time"
        title = f"{name}: {float(trace.makespan):g} {trace.unit}, {idle}"
        if (times := times_parameters(trace)) != 1:
            title += f", parameters x {times}"
        timeline(trace, ax, title=title, legend=False, arrows=arrows, longest=longest, styles=styles)
        tracks = [  # a grey strip for each row, to the end of the run
            Rectangle((0, row.middle - row.height / 2), trace.makespan, row.height)
            for row in rows_of(trace).values()
        ]
        ax.add_collection(PatchCollection(tracks, facecolor=TRACK, edgecolor="none", zorder=0))
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


def times_parameters(trace: Trace) -> float:
    """Return how many shares of the parameters the fullest device of `trace` holds.

    It is 2 if devices have stages of two replicas, as in DualPipe and Chimera; else 1.
    """
    n_stages = Counter(device for device, _ in stage_places(trace).of)
    times = [divide_exactly(n, trace.shares[device]) for device, n in n_stages.items()]
    return as_float(max(times, default=1))


# One unit of time for several runs.

def in_one_unit(traces: Mapping[str, Any]) -> tuple[dict, OneTick | None]:
    """Return ({name: trace}, what one tick of all of them is) for one axis or table.

    Args:
        traces: {name: `Trace`}.

    If the ticks of two traces stand for different work, all times are multiplied so
    that each tick stands for the least work. These traces stay as they are:

    - Those whose ticks all stand for the same work.
    - Those that do not say what their tick is, such as your own programs.
    - Those with different costs for the same forward: they compare costs.

    A simulation does not know the size of its micro-batches: they count as large as
    those of the networks in `traces`, or else as equal in all simulations, whichever M
    they have. The second result is None if what a tick is is unknown, or if all traces
    are simulations whose ticks were equal before.

    Raises:
        ValueError: some are in ticks and some in seconds, or ticks have no common unit.
    """
    if not isinstance(traces, Mapping):
        raise ValueError(
            f"traces={shown(traces)} must be {{name: trace}}, such as {{'gpipe': trace, '1f1b': other_trace}}"
        )
    if len({trace.unit for trace in traces.values()}) > 1:
        words = ", ".join(f"{name} is in {trace.unit}" for name, trace in traces.items())
        raise ValueError(f"{words}: simulate with the costs of minipipe.measure, which are seconds, too")
    known = {name: trace.tick_is for name, trace in traces.items() if trace.tick_is is not None}
    sizes = {tick.samples for tick in known.values()} - {None}
    if len(sizes) == 1:
        known = {name: tick._replace(samples=max(sizes)) for name, tick in known.items()}
    least: Any = min(known.values(), key=lambda tick: (tick.work, tick.share), default=None)
    are_comparable = len(sizes) < 2 or all(tick.samples is not None for tick in known.values())
    if are_comparable and all(tick.work == least.work for tick in known.values()):
        need_not_be_said = not sizes and all(tick.F is not None for tick in known.values())
        return dict(traces), None if need_not_be_said or len(known) < len(traces) else least
    # (what a device's forward works through, the ticks that it takes) of each run
    forwards = {(tick.share * tick.F, tick.samples, tick.F) for tick in known.values() if tick.F is not None}
    n_kinds = len({(share, samples) for share, samples, _ in forwards})
    if are_comparable and n_kinds == 1 and all(tick.F is not None for tick in known.values()):
        return dict(traces), None
    if not are_comparable or len(known) < len(traces) or n_kinds < len(forwards):
        not_known = "ticks that it does not explain"
        words = "; ".join(f"{name} has {known.get(name, not_known)}" for name in traces)
        factors = {name: tick.work / least.work for name, tick in known.items() if tick.work != least.work}
        remedy = " and ".join(f"multiply the costs of {name} by {factor}" for name, factor in factors.items())
        if not are_comparable:
            remedy = "leave the simulation out, which knows no samples, or run a network on samples instead"
        raise ValueError(f"the ticks of these runs have no common unit: {words}. To compare, {remedy}")
    unit = least._replace(F=None)
    factors = {name: tick.work / unit.work for name, tick in known.items()}
    return {name: trace.stretched(factors[name], unit) for name, trace in traces.items()}, unit
