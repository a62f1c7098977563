"""The boxes of a timeline: the row, the position, the colour and the number of each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..cluster import COMPUTE, Exchange, Trace, lane_name
from .canvas import parts_of, shade, styles_of


# The rows of a picture: one for each device, and below it one for each other lane that it has used.

HEIGHT, PITCH = 0.8, 1                   # heights of a device's boxes, and of its row
HEIGHT_BESIDE, PITCH_BESIDE = 0.5, 0.65  # for another lane, with its boxes at the top of the row
MARGIN = PITCH / 2                       # above the 0 of the axis, which is the middle of the first row


class Row(NamedTuple):
    """A row of a picture.

    Args:
        name: its label: the device, or only the lane.
        middle: the y coordinate of its boxes' middle; 0 in the first row.
        height: the height of its boxes, if a device's row is 1 high.
        bottom: the y coordinate at which the next row begins.
    """

    name: str
    middle: float
    height: float
    bottom: float


def rows_of(trace: Trace) -> dict[tuple[int, str], Row]:
    """Return {(device, lane): `Row`} of `trace` from the top, compute lanes first.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> rows_of(simulate(gpipe(2, 1)))[1, "compute"]
    Row(name='device 1', middle=1.0, height=0.8, bottom=1.5)
    """
    rows, top = {}, -MARGIN
    for device, lane in sorted(trace.lanes, key=lambda row: (row[0], row[1] != COMPUTE)):
        if lane == COMPUTE:
            name = lane_name(device, lane, trace.names)
            rows[device, lane] = Row(name, top + PITCH / 2, HEIGHT, top + PITCH)
        else:
            rows[device, lane] = Row(lane, top + HEIGHT_BESIDE / 2, HEIGHT_BESIDE, top + PITCH_BESIDE)
        top = rows[device, lane].bottom
    return rows


def height_of(rows: Mapping[Any, Row]) -> float:
    """Return the total height of `rows`, in device rows."""
    return MARGIN + max((row.bottom for row in rows.values()), default=-MARGIN)


def ends_of(message: Any, rows: Mapping) -> tuple:
    """Return the keys in `rows` of the sender and the receiver of `message`.

    A lane without a row, and the receiver of a message in flight, is replaced by the
    device's compute lane.
    """
    source, to = (message.source, message.lane), (message.to, message.to_lane)
    return tuple(end if end in rows else (end[0], COMPUTE) for end in (source, to))


def spans_and_exchanges(trace: Trace) -> list:
    """Return the spans and exchanges of `trace` to draw, by start.

    An exchange that takes time replaces the span of no length at its end.
    """
    exchanges = [exchange for exchange in trace.exchanges if exchange.end > exchange.start]
    if not exchanges:
        return trace.spans
    ends = {(each.device, each.lane, each.label, each.end) for each in exchanges}
    spans = [
        span for span in trace.spans
        if span.end > span.start or (span.device, span.lane, span.label, span.end) not in ends
    ]
    return sorted([*spans, *exchanges], key=lambda each: each.start)


# The stage and the replica that a device works on.

class StagePlaces(NamedTuple):
    """For each stage on a device, its index among the device's stages, and its replica.

    Args:
        of: {(device, stage): its place among the device's stages, from 0}.
        n: the most stages of one device.
        shared: whether a device has stages of several replicas.
        copy_of: {micro-batch: its replica}.
        copy_at: {(device, stage): its replica}.
    """

    of: dict
    n: int
    shared: bool
    copy_of: dict
    copy_at: dict


def stage_places(trace: Trace) -> StagePlaces:
    """Return the `StagePlaces` of `trace`, whose stages are in order of replicas.

    Micro-batch 0 belongs to replica 0. A micro-batch that uses a stage on a device
    where no replica so far has this stage belongs to the next replica.
    """
    homes: dict = {}  # {micro-batch: {stage: device}}, {(device, stage): the first micro-batch there}
    first_at: dict = {}
    for span in trace.spans:
        for part in parts_of(span.label):
            if hasattr(part, "stage") and hasattr(part, "microbatch"):
                homes.setdefault(part.microbatch, {}).setdefault(part.stage, span.device)
                first_at.setdefault((span.device, part.stage), part.microbatch)
    copy_of = {}
    copies: list = []  # {stage: device} of each replica
    for i in sorted(homes):
        fitting = (  # no stage is on two devices
            copy for copy, home in enumerate(copies)
            if all(home.get(stage, device) == device for stage, device in homes[i].items())
        )
        copy_of[i] = next(fitting, len(copies))
        if copy_of[i] == len(copies):
            copies.append({})
        copies[copy_of[i]] |= homes[i]
    copy_at = {position: copy_of[i] for position, i in first_at.items()}
    stages = [
        sorted((copy, stage) for (owner, stage), copy in copy_at.items() if owner == device)
        for device in range(trace.n_devices)
    ]
    of = {
        (device, stage): place
        for device, its_stages in enumerate(stages)
        for place, (_, stage) in enumerate(its_stages)
    }
    copies_at = {(device, copy) for (device, _), copy in copy_at.items()}
    shared = len(copies_at) > len({device for device, _ in copies_at})
    return StagePlaces(of, max([1, *map(len, stages)]), shared, copy_of, copy_at)


# The boxes.

UNNUMBERED = ("A", "S", "U", "G")  # actions on many micro-batches
MARK_HEIGHT = 0.94       # height of the line for work without duration; a box has HEIGHT


class Box(NamedTuple):
    """A part of a span, as it is drawn.

    Args:
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


def boxes(trace: Trace, until: float | None = None, styles: dict | None = None) -> list[Box]:
    """Return a `Box` for each part of each span and exchange of `trace`.

    Args:
        until: leave out what began at this tick or later.
        styles: those of all runs of a picture; by default, `styles_of` this run.
    """
    places, rows = stage_places(trace), rows_of(trace)
    styles = styles_of([trace]) if styles is None else styles
    found = [
        box
        for span in spans_and_exchanges(trace)
        if until is None or span.start < until
        for box in _boxes_of(span, rows[span.device, span.lane], places, styles, until)
    ]
    order = [*styles, None]
    return sorted(found, key=lambda box: (order.index(box.kind), box.place))


def _boxes_of(span, row, places, styles, until):
    """Return the boxes of one span up to `until`, an overlap's two below each other."""
    parts = parts_of(span.label)
    height = HEIGHT_BESIDE if type(span) is Exchange else row.height  # lower, where the device waits for it
    height *= (1 if span.end > span.start else MARK_HEIGHT / HEIGHT) / len(parts)
    right = span.end if until is None else min(span.end, until)
    found = []
    for number, part in enumerate(parts):
        kind = part.kind if getattr(part, "kind", None) in styles else None
        place = places.of.get((span.device, getattr(part, "stage", None)), 0)
        colour = shade(kind, place, places.n, styles)
        top, bottom = (row.middle + height * (edge - len(parts) / 2) for edge in (number, number + 1))
        text = str(getattr(part, "microbatch", part))
        if type(span) is Exchange or (hasattr(part, "microbatch") and part.kind in UNNUMBERED):
            text = ""
        found.append(Box(kind, place, colour, span.start, right, top, bottom, text))
    return found
