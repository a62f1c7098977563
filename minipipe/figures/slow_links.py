"""The picture of slow links: the makespan of schedules against the latency of a link."""

from ..cluster import Link
from ..plots.canvas import label, new_figure
from .timelines import run_of

K, M = 8, 32
LATENCIES = [quarter / 4 for quarter in range(9)]
LINES = {  # name: (label, colour of Okabe and Ito, line style)
    "gpipe": ("GPipe", "#000000", "-"),
    "1f1b": ("1F1B", "#D55E00", "-"),
    "eager-1f1b": ("eager 1F1B", "#D55E00", "--"),
    "interleaved": ("interleaved 1F1B", "#CC79A7", "-"),
    "looped": ("looped", "#E69F00", "-"),
    "zb-h1": ("ZB-H1", "#0072B2", "-"),
    "zb-h2": ("ZB-H2", "#0072B2", "--"),
    "zb-v": ("ZB-V", "#009E73", "-"),
}


def slow_links():
    """A matplotlib `Figure`: a line for each schedule, with its name and last makespan at the right end."""
    figure = new_figure(8, 5)
    ax = figure.add_subplot()
    ends = []
    for name, (words, colour, style) in LINES.items():
        makespans = [run_of(name, K, M, Link(latency=latency)).makespan for latency in LATENCIES]
        ax.plot(LATENCIES, makespans, style, color=colour, linewidth=2)
        ends.append((makespans[-1], words, colour))
    _label_ends(ax, ends)
    ax.set_xlim(0, LATENCIES[-1])
    title = f"Slow links reverse the ranking: {K} devices, {M} micro-batches"
    latency = "latency of a link (ticks; a device's forward takes 1, its backward 2)"
    label(ax, title, latency, "makespan (ticks)")
    return figure


def _label_ends(ax, ends, distance=8):
    """A name beside the right end of each line, at least `distance` ticks from the one below."""
    lowest = 0
    for makespan, words, colour in sorted(ends):
        lowest = max(makespan, lowest + distance)
        end, beside = (LATENCIES[-1], makespan), (LATENCIES[-1] + 0.05, lowest)
        ax.annotate(
            f"{words}, {makespan:g}", end, beside, color=colour, va="center", fontsize=9,
            annotation_clip=False,
        )
