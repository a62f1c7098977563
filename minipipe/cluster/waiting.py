"""What an idle lane waits for: at each instant, the work or the transfer that is in its way."""

from bisect import bisect_left, bisect_right
from collections import defaultdict

from .spans import Span


def obstacles(trace):
    """{`Idle`: list of (start, end, obstacle)}, which tile it, for all idle spans of `trace` but the drains.

    From the time at which the awaited message set out, the obstacle is that message. Before, it is the `Span`
    on which the lane works that has it to send (or, of a message that waits to be asked for, the lane that
    has it to ask) or, while that lane is idle, too, its obstacle.
    """
    waiting = {(idle.device, idle.lane, idle.end): idle for idle in trace.awaited}
    doing = defaultdict(lambda: ([], []))  # of each lane, the starts of its (start, end, obstacle), and these
    found = {}
    spans = [span for span in trace.spans if span.end > span.start]
    for happening in sorted([*spans, *trace.awaited], key=lambda each: each.end):  # at one tick, spans first
        if type(happening) is Span:
            _append(*doing[happening.device, happening.lane], [(happening.start, happening.end, happening)])
            continue
        for idle in reversed(_relay(waiting, happening, trace)):
            message = trace.awaited[idle]
            lane, ready = _in_charge(trace, idle)
            ready = max(idle.start, ready)
            found[idle] = _between(*doing[lane], idle.start, ready)
            if ready < idle.end:
                found[idle].append((ready, idle.end, message))
            _append(*doing[idle.device, idle.lane], found[idle])
    return found


def _in_charge(trace, idle):
    """((device, lane) on which an idle span depends, the tick from which on it is only the message)."""
    message = trace.awaited[idle]
    if idle.reason == "rendezvous":
        tick, *lane = trace.asked[message]
        return tuple(lane), tick
    return (message.source, message.lane), message.sent


def _relay(waiting, idle, trace):
    """`idle`, the wait of the lane that it depends on, if that ended in the same tick, and so on.

    The last of them must be explained first.
    """
    relay, lane = [], (idle.device, idle.lane)
    while (wait := waiting.pop((*lane, idle.end), None)) is not None:
        relay.append(wait)
        lane, ready = _in_charge(trace, wait)
        if ready != idle.end:
            break
    return relay


def _append(starts, rows, pieces):
    starts += [start for start, _, _ in pieces]
    rows += pieces


def _between(starts, rows, start, end):
    """The rows of (start, end, obstacle) from tick `start`, the first cut to fit, up to `end`."""
    if start == end:
        return []
    rows = rows[bisect_right(starts, start) - 1:bisect_left(starts, end)]
    _, first_end, obstacle = rows[0]
    rows[0] = (start, first_end, obstacle)
    return rows
