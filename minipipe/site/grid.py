"""Which runs the site has, and their numbers, all computed by the cluster; and how they are packed."""

import json
import zlib
from base64 import b64encode
from dataclasses import dataclass
from itertools import product

from ..cluster import BUBBLES, Link
from ..order import Costs, peak_microbatches, simulate
from ..plots.chrome import plain
from ..schedules import SCHEDULES, build

SCHEDULE_NAMES = tuple(SCHEDULES)
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

    names: tuple = SCHEDULE_NAMES
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
        (share, latency): simulate(schedule, costs_with_share(share), Link(latency=latency))
        for share, latency in product(shares, grid.latencies)
    }


def costs_with_share(share):
    """F = 1 and B = 2 ticks, of which W takes `share`; where it is None, nothing has halves."""
    return Costs(F=1, B=2) if share is None else Costs(F=1, B=2, W=2 * share)


def numbers_of(trace):
    """What tables show of a run: [makespan, bubbles, peaks, number of messages, {cause: idle ticks}].

    The bubbles are those of `BUBBLES`, the peaks each device's most micro-batches alive; the causes are those
    of `trace.explain()`.
    """
    causes = {cause: plain(idle) for cause, idle in trace.explain().totals().items()}
    bubbles = [float(trace.bubble(of)) for of in BUBBLES]
    return [plain(trace.makespan), bubbles, peak_microbatches(trace), len(trace.messages), causes]


# Runs in little space: what a page knows of them, in columns that many runs share. `site.js` unpacks it.

# of the lists of rows in `page_data`: the columns that sort them, that of the start, and that of the end
ROWS = {"spans": ((0, 1, 2), 1, 2), "idle": ((0, 1), 1, 2), "messages": ((1, 2, 3), 3, 4), "path": ((), 2, 3)}


def packed(pages):
    """`pages`, {key: what `page_of_run` gives}, as a text of ASCII characters.

    It is base64 of zlib's format, and holds JSON: [table, {key: page}]. What stands in a page under a name is
    the place of its value in the table, and of a list of rows the places of its columns. So what pages have
    in common, such as the labels of one order at all latencies, is there once. Of the columns of times, one
    has the differences from row to row and the other the lengths, of which few differ. Times are whole
    numbers or binary fractions, which JavaScript adds up exactly.
    """
    table = {}

    def place(value):
        return table.setdefault(json.dumps(value, allow_nan=False, separators=(",", ":")), len(table))

    def pack(name, value):
        if name == "memory":
            return [[place(column) for column in _in_columns(curve, 0)] for curve in value]
        if name in ROWS:
            return [place(column) for column in _in_columns(value, *ROWS[name][1:])]
        return place(value)

    rows = {key: {name: pack(name, value) for name, value in page.items()} for key, page in pages.items()}
    text = f"[[{','.join(table)}],{json.dumps(rows, separators=(',', ':'))}]"
    return b64encode(zlib.compress(text.encode(), 9)).decode()


def sorted_rows(data):
    """What `page_data` gives, with its lists in an order that all runs of a schedule share, if possible."""
    return data | {
        name: sorted(data[name], key=lambda row: [row[i] for i in columns])
        for name, (columns, *_) in ROWS.items()
        if columns
    }


def _in_columns(rows, start, end=None):
    """The columns of `rows`, with differences for the starts and lengths for the ends."""
    columns = [list(column) for column in zip(*rows)]
    if columns:
        starts = columns[start]
        if end is not None:
            columns[end] = [later - earlier for earlier, later in zip(starts, columns[end])]
        columns[start] = [later - earlier for earlier, later in zip([0, *starts], starts)]
    return columns
