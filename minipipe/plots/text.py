"""The timeline of a run in characters, in ticks or in seconds."""

from __future__ import annotations

from fractions import Fraction
from math import ceil, floor, gcd, lcm, log10
from typing import Any

from ..checks import whole_number
from ..cluster import COMPUTE, SECONDS, SHOWS, Span, Trace
from ..cluster.trace import check_trace
from .boxes import UNNUMBERED, rows_of, spans_and_exchanges
from .canvas import STYLES, parts_of


# The timeline of a measured run, whose times are not multiples of a tick.

UNITS = {"s": 1, "ms": 1e3, "us": 1e6}  # how many of them are a second
OVERHEAD_MARK = ":"                   # work of the engine itself


def in_seconds(trace: Trace, spans: Any, names: Any, width: int) -> str:
    """Return `trace` as text: a row per lane, `width` columns for the whole run.

    Args:
        trace: a run with times in seconds.
        spans: the spans and exchanges that take time.
        names: {(label, device): what to write into a box}; a name too long for its box
            is cut to the letter of its kind.
        width: columns of one character; spans below half a column may be left out.
    """
    column = trace.makespan / width
    rows = {lane: ["."] * width for lane in rows_of(trace)}
    for span in spans:
        first, last = round(span.start / column), round(span.end / column)
        if last > first:
            text = _shortened(names[span.label, span.device], span.label, last - first)
            rows[span.device, span.lane][first:last] = text
    named = [(row.name, "".join(rows[lane])) for lane, row in rows_of(trace).items()]
    unit, ruler = _ruler(trace.makespan, width)
    margin = max(len(name) for name, _ in named) + 2
    return "\n".join([unit.ljust(margin) + ruler, *(name.ljust(margin) + row for name, row in named)])


def _shortened(name, label, room):
    kind = getattr(label, "kind", None)
    if kind == "overhead":
        return OVERHEAD_MARK * room
    return (name if len(name) <= room else str(kind or name)[:1]).ljust(room, "-")


def _ruler(makespan, width):
    """Return (unit, about five round numbers as the line above the columns).

    >>> _ruler(0.0123, 50)
    ('ms', '0         2.5       5         7.5       10')
    """
    unit = next(unit for unit in UNITS if makespan * UNITS[unit] >= 1 or unit == "us")
    whole = makespan * UNITS[unit]
    power = 10 ** floor(log10(whole / 5))
    step = next(factor * power for factor in (1, 2, 2.5, 5, 10) if factor * power >= whole / 5)
    ruler = ""
    for number in range(int(whole / step) + 1):
        ruler = ruler.ljust(round(number * step / whole * width)) + f"{number * step:g}"
    return unit, ruler


# The timeline of a run in ticks.

MOST_COLUMNS = 4000


@SHOWS()
def text(trace: Trace, width: int = 100) -> str:
    """Return `trace` as text: a row per device, a column per tick, dots for idle time.

    A row with the name of another lane belongs to the device above. `B3--` is the
    backward of micro-batch 3, as wide as its ticks, and `F5&B2-` a forward and a
    backward that overlap. If a device works on a micro-batch in several stages, the
    stage is in front: `2F0`. An exchange is `A3--` in a lane of its own, `A---` where
    the device waits for it. Work that takes no time is a letter at the end of what is
    before it, if there is room: `U` for an update, `A` for an all-reduce, `|` for other
    work. A column is the longest time that divides all starts and ends, or the shortest
    action if that would be too fine; then times are rounded. A timeline of more than
    `width` characters goes on below. Measured seconds fill `width` columns.
    """
    check_trace(trace)
    width = whole_number("width", width, 1)
    shown = spans_and_exchanges(trace)
    with_length = [each for each in shown if each.end > each.start]
    spans = [span for span in with_length if type(span) is Span]
    if not spans:
        return "(nothing has been computed yet)"
    if trace.unit == SECONDS:
        return in_seconds(trace, with_length, _names(trace), width)
    unit = _ticks_per_column(spans, trace.makespan)
    n_columns = round(trace.makespan / unit)
    names = _names(trace)
    positions = {}  # {span or exchange: its first column, and the one after its last}, spans on top
    for each in sorted(with_length, key=lambda each: type(each) is Span):
        first = min(round(each.start / unit), n_columns - 1)
        positions[each] = first, max(round(each.end / unit), first + 1)
    begin_with_letters = all(names[span.label, span.device][0].isupper() for span in spans)
    gap = 0 if begin_with_letters else 1  # 0F01F0 would be hard to read
    cell = max(
        ceil((len(names[span.label, span.device]) + gap) / (positions[span][1] - positions[span][0]))
        for span in spans
    )
    rows = {lane: ["."] * (cell * n_columns) for lane in rows_of(trace)}
    for each, (first, last) in positions.items():
        name, row = names[each.label, each.device], rows[each.device, each.lane]
        row[cell * first:cell * last] = _shortened(name, each.label, cell * (last - first) - gap) + " " * gap
    _mark_what_takes_no_time(rows, shown, unit, cell, gap)
    named = [(row.name, rows[lane]) for lane, row in rows_of(trace).items()]
    per_block = max(1, width // cell)
    return "\n\n".join(
        _lines_between(named, start, min(start + per_block, n_columns), cell, unit)
        for start in range(0, n_columns, per_block)
    )


def _mark_what_takes_no_time(rows, shown, unit, cell, gap):
    """Write a letter for work that takes no time before it, if there is room."""
    for span in shown:
        kind = getattr(span.label, "kind", None)
        is_shown = kind is not None and (kind in UNNUMBERED or kind not in STYLES)
        if span.end == span.start and is_shown:
            row, position = rows[span.device, span.lane], cell * round(span.start / unit) - 1 - gap
            if position >= 0 and row[position] in "-.":
                row[position] = kind if kind in UNNUMBERED else "|"


def _lines_between(rows, start, stop, cell, unit):
    margin = max(len(name) for name, _ in rows) + 2
    ruler, columns_per_tick = "", Fraction(unit).denominator
    step = 5 * columns_per_tick if columns_per_tick <= 4 else 5     # whole ticks, if there is room
    for column in range(start, stop):
        if column % step == 0 or (column == start and column % step < step - 2):
            ruler = ruler.ljust((column - start) * cell) + f"{float(column * unit):g}"
    lines = (name.ljust(margin) + "".join(row[start * cell:stop * cell]).rstrip() for name, row in rows)
    return "\n".join(["tick".ljust(margin) + ruler, *lines])


def _ticks_per_column(spans, makespan):
    """Return the ticks of a column: the longest that divides every start and end.

    If that is too fine, it is the shortest action. There are at most MOST_COLUMNS.
    """
    times = {Fraction(time).limit_denominator(1000) for span in spans for time in (span.start, span.end)}
    denominator = lcm(*(time.denominator for time in times))
    unit = Fraction(gcd(*(int(time * denominator) for time in times)), denominator)
    shortest = min(span.end - span.start for span in spans)
    return max(unit if unit * 8 >= shortest else shortest, makespan / MOST_COLUMNS)


def _names(trace):
    """Return {(label, device): name}, without the stage where it is clear."""
    stages = {}
    for span in trace.spans:
        for part in parts_of(span.label):
            if hasattr(part, "stage") and hasattr(part, "microbatch"):
                micro_batch = None if part.kind in UNNUMBERED else part.microbatch
                stages.setdefault((span.device, micro_batch), set()).add(part.stage)

    def name(part, device):
        if not (hasattr(part, "stage") and hasattr(part, "microbatch")):
            return str(part)
        found = stages[device, None if part.kind in UNNUMBERED else part.microbatch]
        return f"{part.kind}{part.microbatch}" if len(found) == 1 else str(part)

    return {
        (span.label, span.device): "&".join(name(part, span.device) for part in parts_of(span.label))
        for span in trace.spans
    } | {(each.label, each.device): each.label.kind for each in trace.exchanges if each.lane == COMPUTE}
