"""The rows of a picture: one for each device, and below it one for each other lane that it has used."""

from typing import NamedTuple

from ..cluster import COMPUTE

HEIGHT, PITCH = 0.8, 1                   # of the boxes of a device, and of its row
HEIGHT_BESIDE, PITCH_BESIDE = 0.5, 0.65  # the same for another lane, whose boxes are at the top of its row
MARGIN = PITCH / 2                       # above the 0 of the axis, which is the middle of the first row


class Row(NamedTuple):
    """A row of a picture.

    name: what stands beside it: the device, or only the lane.
    middle: where the middle of its boxes is, in rows of a device from that of the first one down.
    height: of its boxes.
    bottom: where the next row begins.
    """

    name: str
    middle: float
    height: float
    bottom: float


def rows_of(trace):
    """{(device, lane): `Row`}, from the top down: the lane of a device that computes comes first.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> rows_of(simulate(gpipe(2, 1)))[1, "compute"]
    Row(name='device 1', middle=1.0, height=0.8, bottom=1.5)
    """
    rows, top = {}, -MARGIN
    for device, lane in sorted(trace.lanes, key=lambda row: (row[0], row[1] != COMPUTE)):
        if lane == COMPUTE:
            name = trace.names[device] if trace.names else f"device {device}"
            rows[device, lane] = Row(name, top + PITCH / 2, HEIGHT, top + PITCH)
        else:
            rows[device, lane] = Row(lane, top + HEIGHT_BESIDE / 2, HEIGHT_BESIDE, top + PITCH_BESIDE)
        top = rows[device, lane].bottom
    return rows


def height_of(rows):
    """The height of all `rows`, of which the row of a device is 1."""
    return MARGIN + max((row.bottom for row in rows.values()), default=-MARGIN)


def ends_of(message, rows):
    """(the key of the row from which a message goes, of the row to which it goes) in a dict such as `rows`.

    A lane without a row stands for its device, and so does one that has not received the message yet.
    """
    source, to = (message.source, message.lane), (message.to, message.to_lane)
    return tuple(end if end in rows else (end[0], COMPUTE) for end in (source, to))
