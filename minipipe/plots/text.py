"""The timeline of a run in characters."""

from fractions import Fraction
from math import gcd, lcm

MOST_COLUMNS = 4000


def text(trace, width=100):
    """`trace` as lines of text: one row per device, one column per tick, dots for the bubble.

    `B3--` is the backward of micro-batch 3, as wide as its ticks. A column is the longest time that divides
    all starts and ends, or the shortest action if that would be too fine; then times are rounded to columns.
    A timeline of more than `width` characters goes on in a second block below.
    """
    if not trace.spans:
        return "(nothing has been computed yet)"
    unit = _ticks_per_column(trace)
    name = _short_name(trace)
    cell = max(len(name(span)) for span in trace.spans)
    n_columns = round(trace.makespan / unit)
    rows = [["." * cell] * n_columns for _ in range(trace.n_devices)]
    for span in trace.spans:
        first, last = round(span.start / unit), max(round(span.end / unit), round(span.start / unit) + 1)
        box = name(span).ljust(cell * (last - first), "-")
        for column in range(first, min(last, n_columns)):
            rows[span.device][column] = box[(column - first) * cell:(column - first + 1) * cell]
    per_block = max(1, width // cell)
    blocks = [_block(rows, start, start + per_block, cell, unit) for start in range(0, n_columns, per_block)]
    return "\n\n".join(blocks)


def _block(rows, start, stop, cell, unit):
    stop = min(stop, len(rows[0]))
    margin = len(f"device {len(rows) - 1}") + 2
    ruler = ""
    for column in range(start, stop):
        if column % 5 == 0 or (column == start and column % 5 < 3):
            ruler = ruler.ljust((column - start) * cell) + f"{float(column * unit):g}"
    lines = ["tick".ljust(margin) + ruler]
    for device, row in enumerate(rows):
        lines.append(f"device {device}".ljust(margin) + "".join(row[start:stop]))
    return "\n".join(lines)


def _ticks_per_column(trace):
    """The longest column in which every start and end falls on an edge; the shortest action if that is too fine.

    In no case more than MOST_COLUMNS columns.
    """
    times = {Fraction(time).limit_denominator(1000) for span in trace.spans for time in (span.start, span.end)}
    denominator = lcm(*(time.denominator for time in times))
    unit = Fraction(gcd(*(int(time * denominator) for time in times)), denominator)
    shortest = min(span.end - span.start for span in trace.spans)
    return max(unit if unit * 8 >= shortest else shortest, trace.makespan / MOST_COLUMNS)


def _short_name(trace):
    """An action without its stage where every device has one stage only, else the label in full."""
    stages = {(span.device, span.label.stage) for span in trace.spans if hasattr(span.label, "stage")}
    if len(stages) == trace.n_devices and all(hasattr(span.label, "kind") for span in trace.spans):
        return lambda span: f"{span.label.kind}{span.label.microbatch}"
    return lambda span: str(span.label)
