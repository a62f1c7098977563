"""Exchanges among the devices of a group, found in the messages of a run."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from .record import COMPUTE, MESSAGE_WIDTH, Record, rows

if TYPE_CHECKING:
    from .trace import Trace


# What the label of a message tells.

AXES = {"tp": "among shards (tp)", "dp": "among copies (dp)", "pp": "between stages (pp)"}
GROUPS = {"stage": "dp", "layers of stage": "dp", "shards of device": "tp"}  # how names of `Group`s begin
CALL = re.compile(rf"(({'|'.join(GROUPS)}) \d+): (.+?) (\d+)(?=[ :]|$)")
KINDS = {"all-reduce": "A", "reduce-scatter": "S", "gather of parameters": "G"}  # call -> kind of action


class Call(NamedTuple):
    """A call of a collective: the same on all devices of its group.

    Args:
        group: the beginning of the group's name, such as "stage 0".
        number: the number of the call in its group, in order.
        axis: the axis along which the devices of the group differ, one of `AXES`.
        kind: the kind of work; if an action does the same, the kind of that action.
        words: what is exchanged.
    """

    group: str
    number: int
    axis: str
    kind: str
    words: str

    def __str__(self):
        return self.words


def call_of(label: object) -> Call | None:
    """Return the `Call` of a message with this label, or None for other messages.

    >>> print(call_of("stage 0: owners all-reduce 1: add"), call_of("0F1"))
    the all-reduce of the gradients of stage 0 None
    """
    found = CALL.match(label) if type(label) is str else None
    if found is None:
        return None
    group, beginning, name, number = found.groups()
    what = name if " of " in name else name.split()[-1]  # without the algorithm
    axis = GROUPS[beginning]
    words = f"the {what} among {'copies' if axis == 'dp' else 'shards'}"
    if beginning == "stage":
        words = f"the {what} of {'' if what == name else 'the gradients of '}{group}"
    return Call(group, int(number), axis, KINDS.get(what, what), words)


class Exchange(NamedTuple):
    """A lane of a device took part in an exchange, from first message to last arrival.

    Args:
        device, lane: the lane.
        label: the action that started it, in a lane of its own; else its `Call`.
        start, end: ticks.
        axis: the axis along which the devices of the exchange differ, "dp" or "tp".
    """

    device: int
    label: object
    start: float
    end: float
    lane: str
    axis: str


def exchanges_of(trace: Trace, record: Record) -> list[Exchange]:
    """Return the `exchanges` of `trace`, found in its record."""
    asked, messages = {index: start for _, start, _, index in rows(record.waits, 4)}, record.messages
    periods: dict = {}  # {(lane, its `Call`): [the first tick, the last one]}
    for index, label in zip(range(0, len(messages), MESSAGE_WIDTH), messages[::MESSAGE_WIDTH]):
        call = call_of(label)
        if call is None:
            continue
        _, _, _, sent, _, received, _, lane, to_lane = messages[index:index + MESSAGE_WIDTH]
        ends = [(lane, sent, sent)]
        if received is not None:
            ends.append((to_lane, asked.get(index, received), received))
        for number_of_lane, first, last in ends:
            period = periods.setdefault((number_of_lane, call), [first, last])
            period[:] = min(period[0], first), max(period[1], last)
    beside = {lane: trace.spans_of(*lane) for lane in trace.lanes if lane[1] != COMPUTE}
    # {(device, label, end, lane, axis): start}: the calls that end with one span of a lane are one exchange
    found: dict = {}
    for (number, call), (start, end) in periods.items():
        (device, lane), label = record.lanes[number], call
        if lane != COMPUTE:
            spans = beside.get((device, lane), [])
            at = bisect_left(spans, end, key=lambda span: span.start)
            if at == len(spans):
                continue  # it is in flight
            label, end = spans[at].label, spans[at].start
        place = device, label, end, lane, call.axis
        found[place] = min(start, found.get(place, start))
    exchanges = [Exchange(device, label, start, *rest) for (device, label, *rest), start in found.items()]
    return sorted(exchanges, key=lambda exchange: (exchange.start, exchange.device))


def merged(periods):
    """Return `periods` (start, end) in the order of time, overlapping ones merged."""
    found = []
    for start, end in sorted(periods):
        if found and start <= found[-1][1]:
            start, last = found.pop()
            end = max(last, end)
        found.append((start, end))
    return found


def in_common(periods, others):
    """Return the ticks in common of `periods` and `others`, lists of (start, end).

    Each is in the order of time, and its periods do not overlap.
    """
    total, at = 0, 0
    for start, end in periods:
        at = bisect_right(others, start, lo=at, key=itemgetter(1))
        for first, last in others[at:bisect_left(others, end, lo=at, key=itemgetter(0))]:
            total += min(end, last) - max(start, first)
    return total
