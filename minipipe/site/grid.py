"""Which runs the site has, and their numbers: all are computed by the engine."""

from dataclasses import dataclass
from itertools import product

from ..cluster import BUBBLES, Link
from ..order import Costs, peak_microbatches, simulate
from ..schedules import SCHEDULES, build

NAMES = tuple(SCHEDULES)
HALVES = {"I", "W", "W*"}  # kinds of action: a schedule without any does not depend on the share of W


@dataclass(frozen=True)
class Grid:
    """The settings that a visitor can choose. Of each schedule there is a run for every combination.

    names: of schedules.
    devices, microbatches: the K and the M.
    shares: the parts of B that W takes; I takes the others.
    latencies: ticks that a message takes.

    A forward takes 1 tick and a backward 2, of a device's share of the network.
    """

    names: tuple = NAMES
    devices: tuple = (2, 4, 8)
    microbatches: tuple = (4, 8, 16)
    shares: tuple = (0.25, 0.375, 0.5)
    latencies: tuple = (0, 0.5, 1, 2)


def schedules_of(name, grid):
    """({(K, M): the schedule}, {(K, M): why there is none}) for the sizes of `grid`."""
    found, refused = {}, {}
    for sizes in product(grid.devices, grid.microbatches):
        try:
            found[sizes] = build(name, *sizes)
        except ValueError as error:
            refused[sizes] = str(error)
    return found, refused


def runs_of(schedule, grid):
    """{(share of W, latency): the trace}; where the order has no halves, the share is None."""
    shares = grid.shares if HALVES & set(schedule.kinds) else (None,)
    return {
        (share, latency): simulate(schedule, costs_of(share), Link(latency=latency))
        for share, latency in product(shares, grid.latencies)
    }


def costs_of(share):
    """F = 1 and B = 2 ticks, of which W takes `share`; where it is None, nothing has halves."""
    return Costs(F=1, B=2) if share is None else Costs(F=1, B=2, W=2 * share)


def numbers_of(trace, explanation):
    """What tables show of a run: [makespan, bubbles, peaks, number of messages, {cause: idle ticks}].

    The bubbles are those of `BUBBLES`, the peaks each device's most micro-batches alive; the causes are those
    of `explanation`, which `trace.explain()` gives.
    """
    causes = {cause: plain(idle) for cause, idle in explanation.totals().items()}
    bubbles = [float(trace.bubble(of)) for of in BUBBLES]
    return [plain(trace.makespan), bubbles, peak_microbatches(trace), len(trace.messages), causes]


def plain(number):
    """A whole number as an `int`, any other as a float: as a web page reads it."""
    return int(number) if number == int(number) else float(number)
