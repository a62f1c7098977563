"""Work that could have run during a wait, had the device been allowed to keep more micro-batches."""

from bisect import bisect_left
from itertools import accumulate
from math import inf

from ..checks import items_of, python_number, shown
from .devices import COMPUTE


def held_back(trace, most_alive):
    """{`Idle`: (since, span)} for the waits due to a limit: since when which span could have run.

    most_alive: the micro-batches that a device may keep alive at once, one number or one for each device.
    Raises `ValueError` if they are not as many as the devices, or not at least 1. The rule is in
    `minipipe.cluster.why`.
    """
    limits = items_of(most_alive)
    limits = [most_alive] * trace.n_devices if limits is None else limits
    if len(limits) != trace.n_devices:
        count = f"{len(limits)} limits for {trace.n_devices} devices"
        raise ValueError(f"most_alive has {count}: give one, or one for each")
    received = [[] for _ in limits]
    for message in trace.messages:
        if message.received is not None:
            received[message.to].append((message.received, message.arrived))
    waits = [[] for _ in limits]
    for idle in trace.idle:
        if idle.reason == "wait" and idle.lane == COMPUTE:
            waits[idle.device].append(idle)
    found = {}
    for device, limit in enumerate(limits):
        if python_number(limit) is None or not limit >= 1:
            name = f"most_alive={shown(limit)} on device {device}"
            raise ValueError(f"{name} lets no micro-batch through: use at least 1")
        room = limit * trace.shares[device]
        found |= _held_back(trace.spans_of(device, COMPUTE), waits[device], sorted(received[device]), room)
    return found


def _held_back(spans, waits, received, room):
    """The same for one device, with room for so many shares of micro-batches.

    received: sorted (received, arrived) of its messages.
    """
    more, fewer = _changes(spans)
    alive = [0, *accumulate(up - down for up, down in zip(more, fewer, strict=True))]  # before each span
    # at or after each span, one from which on more micro-batches are alive
    next_start = [None] * (len(spans) + 1)
    for index in reversed(range(len(spans))):
        next_start[index] = index if more[index] else next_start[index + 1]
    found = {}
    for idle in waits:
        following = bisect_left(spans, idle.end, key=lambda span: span.start)
        index = next_start[following]
        if index is None or alive[following] + more[index] <= room:
            continue
        span = spans[index]
        first, last = bisect_left(received, (spans[index - 1].end,)), bisect_left(received, (span.start, inf))
        since = max([idle.start, *(arrived for _, arrived in received[first:last])])
        if since < idle.end:
            found[idle] = since, span
    return found


def _changes(spans):
    """For each span, how many micro-batches more, and how many fewer, its device keeps from there on.

    The parts of its label say so.

    Of several spans with one label, which are one action, the first counts what it keeps and the last what it
    frees.
    """
    first, last = {}, {}
    for index, span in enumerate(spans):
        if hasattr(span.label, "parts"):
            first.setdefault(span.label, index)
            last[span.label] = index
    more, fewer = [0] * len(spans), [0] * len(spans)
    for label in first:
        changes = [part.alive for part in label.parts]
        more[first[label]] = sum(change for change in changes if change > 0)
        fewer[last[label]] = -sum(change for change in changes if change < 0)
    return more, fewer
