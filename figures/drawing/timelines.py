"""The pictures of schedules as timelines: one run each, or several on one time axis."""

from minipipe import Costs, Link, simulate
from minipipe.order import with_recompute
from minipipe.plots import compare
from minipipe.plots.timeline import timeline_figure
from minipipe.schedules import build, gpipe, naive, one_f_one_b

K, M = 4, 8
ZOO = {
    "gpipe": "GPipe",
    "1f1b": "1F1B",
    "interleaved": "Interleaved 1F1B",
    "chimera": "Chimera",
    "zb-h1": "ZB-H1",
    "zb-v": "ZB-V",
    "dualpipe": "DualPipe, overlaps not faster",
}


TIMELINES = {  # a schedule, and its title
    "naive": (naive(K, 4), "Naive: one device works at a time"),
    "gpipe": (gpipe(K, M), "GPipe: all forwards, then all backwards"),
    "1f1b": (one_f_one_b(K, M), "1F1B: the same bubble, fewer micro-batches alive"),
    "gpipe_recompute": (
        with_recompute(gpipe(K, M)), "GPipe with recomputation, done before the gradient arrives"
    ),
}


def one_timeline(name):
    """A matplotlib `Figure`: the timeline in `TIMELINES` that has this name."""
    schedule, title = TIMELINES[name]
    return timeline_figure(simulate(schedule, Costs(F=1, B=2)), title)


def schedules():
    """A matplotlib `Figure`: three schedules on one time axis; a backward takes 2 ticks, a forward 1."""
    few = {"Naive": naive(K, 4), "GPipe": gpipe(K, 4), "1F1B": one_f_one_b(K, 4)}
    return compare({name: simulate(schedule) for name, schedule in few.items()})


def zoo():
    """A matplotlib `Figure`: seven schedules on one time axis."""
    return compare({label: run_of(name, K, M) for name, label in ZOO.items()})


def run_of(name, n_devices, n_microbatches, link=Link()):
    """The `Trace` of a schedule in which a device's share of a forward takes a tick, of a backward two.

    name: of the schedule.
    n_devices, n_microbatches: K and M.
    link: between any two devices.
    """
    return simulate(build(name, n_devices, n_microbatches), link=link)
