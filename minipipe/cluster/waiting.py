"""What an idle device waits for: the message, and at each instant the work or the transfer that is in its way."""

from bisect import bisect_left, bisect_right

from .trace import Span


def awaited(trace):
    """{`Idle`: the `Message` at whose arrival it was over}, for each idle span of `trace` that is not a drain."""
    received, sent = {}, {}
    for message in trace.messages:
        received.setdefault((message.to, message.source, message.label, message.received), message)
        sent.setdefault((message.source, message.to, message.label, message.sent), message)
    return {
        idle: sent[idle.device, idle.source, idle.message, idle.start] if idle.reason == "send"
        else received[idle.device, idle.source, idle.message, idle.end]
        for idle in trace.idle if idle.reason != "drain"
    }


def obstacles(trace):
    """{`Idle`: list of (start, end, obstacle)}, which tile it, for each idle span of `trace` that is not a drain.

    From the time at which the awaited message was sent, the obstacle is that message. Before, it is the `Span` on which the
    sender works or, while the sender is idle, too, its obstacle.
    """
    message_of = awaited(trace)
    waiting = {(idle.device, idle.end): idle for idle in message_of}
    doing = [([], []) for _ in range(trace.n_devices)]  # of each device, the starts of its (start, end, obstacle), and these
    found = {}
    spans = [span for span in trace.spans if span.end > span.start]
    for happening in sorted(spans + list(message_of), key=lambda happening: happening.end):  # at one tick, spans first
        if type(happening) is Span:
            _append(doing, happening.device, [(happening.start, happening.end, happening)])
            continue
        for idle in reversed(_relay(waiting, happening, message_of)):
            message = message_of[idle]
            sent = max(idle.start, message.sent)
            pieces = _between(*doing[message.source], idle.start, sent)
            found[idle] = pieces + [(sent, idle.end, message)] * (sent < idle.end)
            _append(doing, idle.device, found[idle])
    return found


def _relay(waiting, idle, message_of):
    """`idle`, the wait of its sender if that ended in the same tick, and so on: the last must be explained first."""
    relay, device = [], idle.device
    while (wait := waiting.pop((device, idle.end), None)) is not None:
        relay.append(wait)
        message = message_of[wait]
        device = message.source if message.sent == idle.end else None
    return relay


def _append(doing, device, pieces):
    starts, rows = doing[device]
    starts += [start for start, _, _ in pieces]
    rows += pieces


def _between(starts, rows, start, end):
    """The rows of (start, end, obstacle) from tick `start`, the first cut to fit, to tick `end`, at which a row ends."""
    if start == end:
        return []
    rows = rows[bisect_right(starts, start) - 1:bisect_left(starts, end)]
    _, first_end, obstacle = rows[0]
    rows[0] = (start, first_end, obstacle)
    return rows
