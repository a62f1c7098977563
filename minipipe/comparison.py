"""Schedules next to each other: what they take and what they keep, as a table and as one picture."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from base64 import b64encode
from collections.abc import Callable, Mapping
from html import escape
from io import BytesIO
from typing import Any

from . import plots
from .checks import listed, shown, whole_number, write_whole
from .cluster import Link, Trace, ticks
from .order import Costs, Schedule, ScheduleError, peak_microbatches, simulate
from .plots.saving import DOTS_PER_INCH, checked_path, picture_formats
from .schedules import build

ROW = "{:>9}{:>10}{:>7}{:>10}"
HEADS = "makespan", "idle", "peak", "messages"
NOTES = (
    "idle: the share of all devices' time, the bubble; `explain` has others that go by that name.\n"
    "peak: the most micro-batches that a device keeps at once."
)


class Comparison(Mapping):
    """{name: `Trace`} of several schedules. It prints as a table; a notebook shows the picture, too.

    `save(path)` writes the picture, `plot()` returns it as a matplotlib figure.
    """

    def __init__(self, traces: dict[str, Trace]) -> None:
        self._traces = dict(traces)

    def __getitem__(self, name: str) -> Trace:
        return self._traces[name]

    def __iter__(self):
        return iter(self._traces)

    def __len__(self) -> int:
        return len(self._traces)

    def __repr__(self) -> str:
        return f"{table_of(self._traces)}\n\n{NOTES}"

    def _repr_html_(self) -> str:
        file = BytesIO()
        self.plot().savefig(file, format="png")
        picture = b64encode(file.getvalue()).decode()
        table = f"<pre>{escape(repr(self))}</pre>"
        return f'{table}<img alt="their timelines" src="data:image/png;base64,{picture}">'

    def plot(self) -> Any:
        """Return a matplotlib `Figure` with all timelines on one axis."""
        return plots.compare(self._traces)

    def save(self, path) -> None:
        """Write the picture into a file, whole or not at all, such as "both.png" or "both.svg"."""
        path = checked_path(path, picture_formats())
        write_whole(path, lambda beside: self.plot().savefig(beside, dpi=DOTS_PER_INCH))


def compare(
    *schedules: str | Schedule | Callable, K: int = 4, M: int = 8, costs: Costs = Costs(), link: Link = Link()
) -> Comparison:
    """Simulate several schedules on the same devices, and return a `Comparison` of their runs.

    schedules: names, such as "1f1b"; `Schedule`s; or functions (device, K, M), which return the list of
        actions of a device, written as "F0" or "2F0".
    K, M: devices and micro-batches of those with a name, and of functions.
    costs, link: as for `simulate`.

    Raises `ScheduleError` for an order that cannot run, with its name.

    >>> found = compare("naive", "gpipe", K=4, M=8)
    >>> print(found)  # doctest: +ELLIPSIS
    schedule   makespan      idle   peak  messages
    naive            96   75.00 %      1        48
    gpipe            33   27.27 %      8        48
    ...
    >>> def mine(device, K, M):
    ...     return [f"F{i}" for i in range(M)] + [f"B{i}" for i in range(M)]
    >>> compare(mine, K=2, M=3)["mine"].makespan
    12
    """
    if not schedules:
        raise ValueError("there is nothing to compare: pass schedules, such as compare('gpipe', '1f1b')")
    traces = {}
    for one in schedules:
        schedule = _made(one, whole_number("K", K, 1), whole_number("M", M, 1))
        name, again = schedule.name, 1
        while name in traces:
            again += 1
            name = f"{schedule.name} ({again})"
        try:
            traces[name] = simulate(schedule, costs, link)
        except ValueError as error:
            raise type(error)(f"{name}: {error}") from None
    return Comparison(traces)


def _made(one, K, M):
    """Return the `Schedule` that a name, a schedule or a function stands for."""
    if isinstance(one, (str, Schedule)):
        return build(one, K, M) if isinstance(one, str) else one
    if not callable(one) or isinstance(one, type):
        raise ValueError(
            f"schedules has {shown(one)}, which is not a schedule: pass a name, a Schedule, or a function "
            "(device, K, M) that returns the actions of a device"
        )
    name = getattr(one, "__name__", "custom")
    orders = [listed(f"schedules: {name}({device}, {K}, {M})", one(device, K, M), 0) for device in range(K)]
    try:
        return Schedule.from_text([" ".join(map(str, order)) for order in orders], M, name)
    except ScheduleError as error:
        raise ScheduleError(f"{name}: {error}") from None


def table_of(traces: Mapping[str, Trace]) -> str:
    """Return a table with a row for each trace: what it takes, what is idle and what it keeps."""
    width = max(len(name) for name in ["schedule", *traces]) + 2
    rows = [f"{'schedule':{width}}{ROW.format(*HEADS)}"]
    for name, trace in traces.items():
        idle, peak = f"{float(100 * trace.bubble()):.2f} %", str(max(peak_microbatches(trace)))
        rows.append(f"{name:{width}}{ROW.format(ticks(trace.makespan), idle, peak, len(trace.messages))}")
    return "\n".join(rows)
