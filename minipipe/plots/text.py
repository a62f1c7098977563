"""The timeline of a run in characters."""

from fractions import Fraction
from math import ceil, gcd, lcm

from .boxes import UNNUMBERED, parts_of

MOST_COLUMNS = 4000


def text(trace, width=100):
    """`trace` as lines of text: one row per device, one column per tick, dots for the bubble.

    `B3--` is the backward of micro-batch 3, as wide as its ticks, and `F5&B2-` a forward and a backward
    that overlap. Where a device works on the same micro-batch in several stages, the stage stands in front:
    `2F0`. An update that takes no time is a `U` at the end of the box before it, if there is room.
    A column is the longest time that divides all starts and ends, or the shortest action if that would be too
    fine; then times are rounded to columns. A timeline of more than `width` characters goes on in a second
    block below.
    """
    spans = [span for span in trace.spans if span.end > span.start]
    if not spans:
        return "(nothing has been computed yet)"
    unit = _ticks_per_column(spans, trace.makespan)
    n_columns = round(trace.makespan / unit)
    names = _names(trace)
    positions = {span: _columns_of(span, unit) for span in spans}
    begin_with_letters = all(names[span.label, span.device][0].isupper() for span in spans)
    gap = 0 if begin_with_letters else 1  # 0F01F0 would be hard to read
    cell = 1
    for span, (first, last) in positions.items():
        needed = len(names[span.label, span.device]) + gap
        cell = max(cell, ceil(needed / (last - first)))
    rows = [["."] * (cell * n_columns) for _ in range(trace.n_devices)]
    for span, (first, last) in positions.items():
        name = names[span.label, span.device]
        rows[span.device][cell * first:cell * last] = name.ljust(cell * (last - first) - gap, "-") + " " * gap
    _mark_updates(rows, trace, unit, cell, gap)
    per_block = max(1, width // cell)
    starts = range(0, n_columns, per_block)
    blocks = [_block(rows, start, min(start + per_block, n_columns), cell, unit) for start in starts]
    return "\n\n".join(blocks)


def _columns_of(span, unit):
    first = round(span.start / unit)
    return first, max(round(span.end / unit), first + 1)


def _mark_updates(rows, trace, unit, cell, gap):
    """A `U` in the last character of the box that ends where an update takes no time."""
    for span in trace.spans:
        if span.end == span.start and getattr(span.label, "kind", None) == "U":
            row, position = rows[span.device], cell * round(span.start / unit) - 1 - gap
            if position >= 0 and row[position] == "-":
                row[position] = "U"


def _block(rows, start, stop, cell, unit):
    margin = len(f"device {len(rows) - 1}") + 2
    ruler = ""
    for column in range(start, stop):
        if column % 5 == 0 or (column == start and column % 5 < 3):
            ruler = ruler.ljust((column - start) * cell) + f"{float(column * unit):g}"
    lines = ["tick".ljust(margin) + ruler]
    for device, row in enumerate(rows):
        lines.append(f"device {device}".ljust(margin) + "".join(row[start * cell:stop * cell]).rstrip())
    return "\n".join(lines)


def _ticks_per_column(spans, makespan):
    """The ticks of a column: the longest for which every start and end falls on an edge.

    If that is too fine, it is the shortest action. There are at most MOST_COLUMNS columns in any case.
    """
    times = {Fraction(time).limit_denominator(1000) for span in spans for time in (span.start, span.end)}
    denominator = lcm(*(time.denominator for time in times))
    unit = Fraction(gcd(*(int(time * denominator) for time in times)), denominator)
    shortest = min(span.end - span.start for span in spans)
    return max(unit if unit * 8 >= shortest else shortest, makespan / MOST_COLUMNS)


def _names(trace):
    """{(label, device): its name}.

    The stage is left out where the device and the micro-batch tell which one is meant.
    """
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
    }
