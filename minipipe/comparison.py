"""Schedules next to each other: as a table and as one picture."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from io import BytesIO
from os import PathLike
from typing import Any

from . import plots
from .cluster import Link, Port, Trace, ticks
from .order import Costs, peak_microbatches, simulate
from .order.names import is_name
from .plots.comparison import in_one_unit, times_parameters
from .plots.html import MOST_IN_A_CELL
from .plots.saving import checked_path, picture_formats, write_picture
from .schedules import build

COLUMNS = (  # (head, width, function of a trace) of each column after the name
    ("makespan", 9, lambda trace: ticks(trace.makespan)),
    ("idle", 10, lambda trace: f"{float(100 * trace.bubble()):.2f} %"),
    ("peak", 7, lambda trace: str(max(peak_microbatches(trace)))),
    ("messages", 10, lambda trace: str(len(trace.messages))),
)
PARAMETERS = "parameters", 12, lambda trace: f"x {times_parameters(trace)}"  # left out if all have x 1
NOTES = (
    "idle: the share of all devices' time, the bubble; `show --explain` prints four definitions of it.\n"
    "peak: the most micro-batches that a device keeps at once."
)
NOTE_OF_PARAMETERS = "parameters: how many times its share of the network's a device holds."


class Comparison(Mapping):
    """{name: `Trace`} of several runs, in one unit of time; a table and a picture.

    It prints as the table, and a notebook shows both.

    Args:
        traces: {name: trace}.

    Attributes:
        tick_is: what a tick stands for, as for a `Trace`; None if it is unknown, or the
            same in all simulations.

    Raises:
        ValueError: the traces cannot be brought to one unit.
    """

    def __init__(self, traces: Mapping[str, Trace]) -> None:
        self._traces, self.tick_is = in_one_unit(traces)

    def __getitem__(self, name: str) -> Trace:
        return self._traces[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._traces)

    def __len__(self) -> int:
        return len(self._traces)

    def __repr__(self) -> str:
        width = max(len(name) for name in ["schedule", *self]) + 2
        columns, notes = [*COLUMNS], [NOTES]
        if any(times_parameters(trace) != 1 for trace in self.values()):
            columns, notes = [*COLUMNS, PARAMETERS], [NOTES, NOTE_OF_PARAMETERS]
        lines = [f"{'schedule':{width}}{''.join(f'{head:>{n}}' for head, n, _ in columns)}"]
        for name, trace in self.items():
            lines.append(f"{name:{width}}{''.join(f'{text_of(trace):>{n}}' for _, n, text_of in columns)}")
        of_ticks = [] if self.tick_is is None else [f"{self.tick_is}."]
        first, *others = self.values()
        rival = min(others, key=lambda trace: trace.makespan, default=None)
        return "\n".join([*lines, "", first.sentence(rival), "", *of_ticks, *notes])

    def _repr_html_(self) -> str:
        table = f"<pre>{escape(repr(self))}</pre>"
        n_spans = sum(len(trace.spans) for trace in self._traces.values())
        if n_spans > MOST_IN_A_CELL:
            return (
                f"{table}<p>The picture has {n_spans:,} spans, and a notebook draws at most "
                f"{MOST_IN_A_CELL:,}: type .save(&quot;both.png&quot;) on the comparison.</p>"
            )
        file = BytesIO()
        self.plot().savefig(file, format="png")
        picture = b64encode(file.getvalue()).decode()
        return f'{table}<img alt="their timelines" src="data:image/png;base64,{picture}">'

    def plot(self) -> Any:
        """Return a matplotlib `Figure` with all timelines on one axis."""
        return plots.compare(self._traces)

    def save(self, path: str | PathLike) -> None:
        """Write the picture to the file `path`, such as "both.png" or "both.svg"."""
        path = checked_path(path, picture_formats())
        write_picture(self.plot(), path)


def compare(
    *schedules: Any, devices: int | None = None, microbatches: int | None = None, costs: Costs = Costs(),
    link: Link | dict = Link(), ports: Port | Sequence[Port] = (),
) -> Comparison:
    """Simulate several schedules on the same devices; return a `Comparison`.

    Args:
        schedules: schedules as for `build`: names, such as "1f1b"; `Schedule`s;
            functions (device, K, M), which return the list of actions of a device;
            texts; files.
        devices, microbatches: K and M of all. Left out, each has its own; names and
            functions get 4 and 8.
        costs, link, ports: as for `simulate`.

    Schedules of different numbers of devices have different ticks: they are converted
    to one unit, with equally large micro-batches.

    Raises:
        ScheduleError: an order cannot run; the message has its name.

    >>> found = compare("naive", "gpipe", devices=4, microbatches=8)
    >>> print(found)  # doctest: +ELLIPSIS
    schedule   makespan      idle   peak  messages
    naive            96   75.00 %      1        48
    gpipe            33   27.27 %      8        48
    ...
    >>> def mine(device, K, M):
    ...     return [("F", i) for i in range(M)] + [("B", i) for i in range(M)]
    >>> compare(mine, devices=2, microbatches=3)["mine"].makespan
    12
    """
    if len(schedules) == 1 and type(schedules[0]) is list and any(map(is_name, schedules[0])):
        names = ", ".join(map(repr, schedules[0]))
        raise ValueError(f"a list is one schedule, with a line for each device: type compare({names})")
    if not schedules:
        raise ValueError("there is nothing to compare: pass schedules, such as compare('gpipe', '1f1b')")
    traces = {}
    for one in schedules:
        schedule = build(one, devices, microbatches)
        name, again = schedule.name, 1
        while name in traces:
            again += 1
            name = f"{schedule.name} ({again})"
        try:
            traces[name] = simulate(schedule, costs, link, ports=ports)
        except ValueError as error:
            raise type(error)(f"{name}: {error}") from None
    return Comparison(traces)
