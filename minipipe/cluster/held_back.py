"""Forwards that could have run during a wait, had the device been allowed to keep more micro-batches."""

from bisect import bisect_left
from itertools import accumulate
from math import inf


def held_back(trace, most_alive):
    """{`Idle`: (since, span)} for the waits due to a limit: the tick since which that span, a forward, could have run.

    most_alive: the micro-batches that a device may keep alive at once, one number or one for each device. Raises
    `ValueError` if they are not as many as the devices, or not at least 1. The rule is in `minipipe.cluster.explanation`.
    """
    limits = list(most_alive) if hasattr(most_alive, "__len__") else [most_alive] * trace.n_devices
    if len(limits) != trace.n_devices:
        raise ValueError(f"most_alive has {len(limits)} limits for {trace.n_devices} devices: give one, or one for each")
    received = [[] for _ in limits]
    for message in trace.messages:
        if message.received is not None:
            received[message.to].append((message.received, message.arrived))
    waits = [[] for _ in limits]
    for idle in trace.idle:
        if idle.reason == "wait":
            waits[idle.device].append(idle)
    found = {}
    for device, limit in enumerate(limits):
        if not limit >= 1:
            raise ValueError(f"most_alive={limit} on device {device} lets no micro-batch through: use at least 1")
        found |= _held_back(trace.spans_of(device), waits[device], sorted(received[device]), limit)
    return found


def _held_back(spans, waits, received, limit):
    """The same for one device. received: sorted (received, arrived) of its messages."""
    alive = [0, *accumulate(_more_alive(span) for span in spans)]  # before each span
    next_forward = [None] * (len(spans) + 1)                       # at or after each span
    for place in reversed(range(len(spans))):
        next_forward[place] = place if "F" in _kinds(spans[place]) else next_forward[place + 1]
    found = {}
    for idle in waits:
        place = bisect_left(spans, idle.end, key=lambda span: span.start)
        forward = next_forward[place]
        if forward is None or alive[place] < limit:
            continue
        span = spans[forward]
        first, last = bisect_left(received, (spans[forward - 1].end,)), bisect_left(received, (span.start, inf))
        since = max([idle.start, *(arrived for _, arrived in received[first:last])])
        if since < idle.end:
            found[idle] = since, span
    return found


def _more_alive(span):
    """By how many micro-batches more a device keeps after `span`."""
    return sum({"F": 1, "B": -1, "W": -1}.get(kind, 0) for kind in _kinds(span))


def _kinds(span):
    return [part.kind for part in getattr(span.label, "parts", ())]
