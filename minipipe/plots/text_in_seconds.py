"""The timeline of a measured run in characters: its times fall on no grid."""

from math import floor, log10

from .rows import rows_of

UNITS = {"s": 1, "ms": 1e3, "us": 1e6}  # how many of them are a second
OVERHEAD = ":"                          # what a lane has done for the engine


def in_seconds(trace, spans, names, width):
    """The timeline of `trace` as lines of text: one row per lane, `width` columns for the whole run.

    trace: a run with times in seconds.
    spans: those that have taken time.
    names: {(label, device): what to write into a box}; one too long for its box is cut to the letter of its
        kind.
    width: columns, of one character.

    What takes less than half a column may be left out. Dots are idle time.
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
        return OVERHEAD * room
    return (name if len(name) <= room else str(kind or name)[:1]).ljust(room, "-")


def _ruler(makespan, width):
    """(the unit, the marks above the columns): round numbers, about five of them.

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
