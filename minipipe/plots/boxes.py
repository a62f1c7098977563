"""What the work in a trace looks like: the position, the colour and the number of each box."""

from typing import NamedTuple

from .canvas import printable
from .colours import parts_of, shade, styles_of
from .places import places_of
from .rows import HEIGHT, rows_of

UNNUMBERED = ("A", "S", "U", "G", "W*")  # they take in many micro-batches at once
MARK_HEIGHT = 0.94       # of the line that stands for work that takes no time, where a box has HEIGHT


class Box(NamedTuple):
    """A part of a span, as it is drawn.

    kind: of the action or of the label, or None for other work.
    place: 0 for the device's first stage, 1 for its second.
    colour: as matplotlib reads it.
    left, right: ticks; the same for work that takes no time.
    top, bottom: in rows.
    text: the number of the micro-batch, or the label of other work, or "".
    """

    kind: str | None
    place: int
    colour: str
    left: float
    right: float
    top: float
    bottom: float
    text: str


def boxes(trace, until=None, styles=None):
    """A `Box` for each part of each span that began before `until`, in the order of the styles.

    styles: those of several runs that share a picture; by default, `styles_of` this one. An overlap has two
    halves.
    """
    places, rows = places_of(trace), rows_of(trace)
    styles = styles_of([trace]) if styles is None else styles
    found = [
        box
        for span in trace.spans
        if until is None or span.start < until
        for box in _boxes_of(span, rows[span.device, span.lane], places, styles, until)
    ]
    order = [*styles, None]
    return sorted(found, key=lambda box: (order.index(box.kind), box.place))


def _boxes_of(span, row, places, styles, until):
    """The boxes of one span, one below the other, from its start to its end or `until`."""
    parts = parts_of(span.label)
    height = row.height * (1 if span.end > span.start else MARK_HEIGHT / HEIGHT) / len(parts)
    right = span.end if until is None else min(span.end, until)
    found = []
    for number, part in enumerate(parts):
        kind = part.kind if getattr(part, "kind", None) in styles else None
        place = places.of.get((span.device, getattr(part, "stage", None)), 0)
        colour = shade(kind, place, places.n, styles)
        top, bottom = (row.middle + height * (edge - len(parts) / 2) for edge in (number, number + 1))
        found.append(Box(kind, place, colour, span.start, right, top, bottom, _text(part)))
    return found


def _text(part):
    if not hasattr(part, "microbatch"):
        return printable(part)
    return "" if part.kind in UNNUMBERED else str(part.microbatch)
