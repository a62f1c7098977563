"""The picture of slow links: makespan against latency, and memory, of schedules."""

from minipipe import Link
from minipipe.order import peak_microbatches
from minipipe.plots.canvas import label, new_figure

from .timelines import run_of

K, M = 8, 32
LATENCIES = [quarter / 4 for quarter in range(9)]
LINES = [  # label, schedule, rounds that the micro-batches go in, colour of Okabe and Ito, line style
    ("GPipe", "gpipe", 1, "#000000", "-"),
    ("GPipe, 4 rounds of 8", "gpipe", 4, "#000000", ":"),
    ("1F1B", "1f1b", 1, "#D55E00", "-"),
    ("eager 1F1B", "eager-1f1b", 1, "#D55E00", "--"),
    ("interleaved 1F1B, v = 2", "interleaved", 1, "#CC79A7", "-"),
    ("looped, v = 2", "looped", 1, "#E69F00", "-"),
    ("ZB-H1", "zb-h1", 1, "#0072B2", "-"),
    ("ZB-H2", "zb-h2", 1, "#0072B2", "--"),
    ("ZB-V", "zb-v", 1, "#009E73", "-"),
]


def slow_links():
    """Return a `Figure`: a line for each schedule, with name and micro-batches alive.

    In rounds, a schedule does some micro-batches after the others, and keeps these.
    """
    figure = new_figure(9, 5.5)
    ax = figure.add_subplot()
    ends = []
    for words, name, rounds, colour, style in LINES:
        runs = [run_of(name, K, M // rounds, Link(latency=latency)) for latency in LATENCIES]
        makespans = [rounds * run.makespan for run in runs]
        ax.plot(LATENCIES, makespans, style, color=colour, linewidth=2)
        ends.append((makespans[-1], f"{words}: {max(peak_microbatches(runs[0])):g} alive", colour))
    _label_ends(ax, ends)
    ax.set_xlim(0, LATENCIES[-1])
    title = f"Memory hides slow links: {K} devices, {M} micro-batches"
    latency = "latency of a link (ticks; a device's forward takes 1, its backward 2)"
    label(ax, title, latency, "makespan (ticks)")
    return figure


def _label_ends(ax, ends, distance=8):
    """Write names at the right ends of lines, at least `distance` ticks apart."""
    lowest = 0
    for makespan, words, colour in sorted(ends):
        lowest = max(makespan, lowest + distance)
        end, beside = (LATENCIES[-1], makespan), (LATENCIES[-1] + 0.05, lowest)
        ax.annotate(words, end, beside, color=colour, va="center", fontsize=9, annotation_clip=False)
