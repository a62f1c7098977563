"""The timeline of a run for the viewers that engineers use: ui.perfetto.dev and chrome://tracing.

Source: "Trace Event Format", the JSON that both viewers read; its times are microseconds.
"""

from bisect import bisect_left, bisect_right
from typing import NamedTuple

from .canvas import STYLES
from ..cluster import COMPUTE, SECONDS, SHOWS, TICKS, Message, lane_name
from ..cluster.trace import check_trace
from .memory import counts_bytes
from .boxes import ends_of, rows_of

KIND_NAMES = {kind: style["label"] for kind, style in STYLES.items()} | {"F&B": "forward and backward"}
# an arrow begins and ends this share of a box from the box's edge: viewers bind it to the box around it
ARROW_INSET = 0.01


@SHOWS(gives="a dict")
def chrome_trace(runs):
    """Return a dict in Chrome's trace event format, in which a tick is shown as a millisecond.

    `Trace.to_chrome_trace` calls this. Seconds, of runs that were measured, are shown as they are.

    runs: a `Trace`, or {name: trace}, each of which becomes a process.

    Devices are threads, and so are the other lanes that they have used; spans are boxes with their ticks in
    the arguments, and memory is a counter, if the run counted it. Each link is a thread of the process "links
    of" the run: a message is a box on it as long as it travels. Arrows lead from the span before the send to
    that box, and on to the span after the receipt. The process "idle times of" the run has a thread for each
    lane, with a box for each idle time: its name is the cause, as in `Trace.explain`, and its arguments say
    what is to blame.
    """
    if not isinstance(runs, dict):
        runs = {"run": runs}
    for trace in runs.values():
        check_trace(trace)
    is_measured = any(trace.unit == SECONDS for trace in runs.values())
    time, tick, unit = (SECONDS, "1 s", 1_000_000) if is_measured else (TICKS, "1 ms", 1000)  # microseconds
    names, events = [], []
    # viewers take process and thread 0 for the idle system
    for process, (name, trace) in enumerate(runs.items(), 1):
        links, idle = len(runs) + 2 * process - 1, len(runs) + 2 * process
        travels = _travels(trace)
        names += _name_events(name, _lane_names(trace), process, 3 * process)
        names += _name_events(f"links of {name}", _track_names(travels), links, 3 * process + 1)
        names += _name_events(f"idle times of {name}", _idle_names(trace), idle, 3 * process + 2)
        events += _boxes(trace, process, unit) + _message_boxes(travels, links, unit)
        events += _arrows(trace, travels, process, links, unit) + _idle_boxes(trace, idle, unit)
        events += _memory_counters(trace, process, unit)
    events.sort(key=lambda event: event["ts"])
    makespans = {name: _plain(trace.makespan) for name, trace in runs.items()}
    told = {time[:-1]: tick, f"microseconds per {time[:-1]}": unit, f"makespan in {time}": makespans}
    return {"traceEvents": names + events, "displayTimeUnit": "ms", "otherData": told}


def _plain(number):
    """A number of any kind, as JSON writes it: whole ones without a point."""
    number = float(number)
    return int(number) if number.is_integer() else number


def _name_events(name, threads, process, place):
    """Return the events that name a process and its `threads`, {number: name}; none if it has no threads.

    place: of the process among all.
    """
    if not threads:
        return []
    events = [("process_name", 0, {"name": name}), ("process_sort_index", 0, {"sort_index": place})]
    for thread, words in threads.items():
        events += [
            ("thread_name", thread, {"name": words}),
            ("thread_sort_index", thread, {"sort_index": thread - 1}),
        ]
    return [
        {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}
        for kind, thread, args in events
    ]


def _threads(trace):
    """{(device, lane): the number of its thread}, in the order of the rows of a picture."""
    return {lane: number for number, lane in enumerate(rows_of(trace), 1)}


def _lane_names(trace):
    return {thread: lane_name(*lane) for lane, thread in _threads(trace).items()}


def _boxes(trace, process, unit):
    threads = _threads(trace)
    return [
        {
            "ph": "X",
            "name": str(label),
            "cat": _category(getattr(label, "kind", None)),
            "pid": process,
            "tid": threads[device, lane],
            "ts": _plain(start * unit),
            "dur": _plain((end - start) * unit),
            "args": {"start": _plain(start), "end": _plain(end), **_position(label)},
        }
        for device, label, start, end, lane in trace.spans
    ]


def _category(kind):
    """The name of a kind of work; "work" if it has none."""
    return KIND_NAMES.get(kind, kind if isinstance(kind, str) else "work")


def _position(label):
    """Stage and micro-batch of an action; of both, where two overlap."""
    positions = {
        str(part): {"stage": part.stage, "micro-batch": part.microbatch}
        for part in getattr(label, "parts", ())
    }
    if len(positions) == 1:
        (positions,) = positions.values()
    return positions


class _Travel(NamedTuple):
    """A message on its link.

    number: of the message, from 1.
    message: the `Message`.
    start: the tick at which it set out: it may have queued, or waited to be asked for.
    track: (device, device, number of the track): messages that travel at once have a track each.
    thread: the number of that track; 0 within a device, which has no link to itself.
    """

    number: int
    message: Message
    start: float
    track: tuple
    thread: int


def _travels(trace):
    """Return a `_Travel` for each message that has arrived, in the order of their threads and starts."""
    free, found = {}, []  # {(device, device): the tick from which on each of its tracks is free}
    starts = [_set_out(trace, message) for message in trace.messages]
    for number in sorted(range(len(starts)), key=lambda number: starts[number]):
        message, start = trace.messages[number], starts[number]
        if message.arrived is None:
            continue
        ends = free.setdefault((message.source, message.to), [])
        place = next((place for place, end in enumerate(ends) if end <= start), len(ends))
        ends[place:place + 1] = [message.arrived]
        found.append((number + 1, message, start, (message.source, message.to, place)))
    links = sorted({track for *_, track in found if track[0] != track[1]})
    threads = {track: thread for thread, track in enumerate(links, 1)}
    return [_Travel(*travel, threads.get(travel[-1], 0)) for travel in found]


def _set_out(trace, message):
    """Return the tick from which on a message has been on its link."""
    times = [message.sent]
    if message in trace.queued:
        times.append(trace.queued[message])
    if message in trace.asked:
        times.append(trace.asked[message][0])
    return max(times)


def _track_names(travels):
    """Return {thread: name} of the links."""
    return {
        travel.thread: f"device {source} to device {to}" + (f" ({place + 1})" if place else "")
        for travel in travels
        for source, to, place in [travel.track]
        if travel.thread
    }


def _message_boxes(travels, process, unit):
    """Return a box for each message, as long as it travels."""
    return [
        {
            "ph": "X",
            "name": str(travel.message.label),
            "cat": "message",
            "pid": process,
            "tid": travel.thread,
            "ts": _plain(travel.start * unit),
            "dur": _plain((travel.message.arrived - travel.start) * unit),
            "args": _arguments(travel.message),
        }
        for travel in travels
        if travel.thread
    ]


def _arguments(message):
    """Return the times and the bytes of a message; of one that nobody has received, two of the times."""
    times = {when: getattr(message, when) for when in ("sent", "arrived", "received")}
    return {when: _plain(time) for when, time in times.items() if time is not None} | {
        "bytes": int(message.n_bytes)
    }


def _arrows(trace, travels, process, links, unit):
    """Return the events of an arrow for each message that has two ends.

    Its points are in the span before the send, in the box of the message and in the span after the receipt.
    Boxes of no length cannot hold a point.
    """
    threads = _threads(trace)
    spans = {lane: [span for span in trace.spans_of(*lane) if span.end > span.start] for lane in threads}
    events = []
    for number, message, start, _, thread in travels:
        source, to = ends_of(message, threads)
        before = bisect_right(spans[source], message.sent, key=lambda span: span.end) - 1
        points = []
        if before >= 0:
            begin = spans[source][before]
            points.append((process, threads[source], begin.end - ARROW_INSET * (begin.end - begin.start)))
        if message.arrived > start:
            points.append((links, thread, start + ARROW_INSET * (message.arrived - start)))
        if message.received is not None:
            after = bisect_left(spans[to], message.received, key=lambda span: span.start)
            if after < len(spans[to]):
                end = spans[to][after]
                points.append((process, threads[to], end.start + ARROW_INSET * (end.end - end.start)))
        if len(points) > 1:
            arrow = {"name": str(message.label), "cat": "message", "id": process * 10**9 + number}
            kinds = ["s", *"t" * (len(points) - 2), "f"]
            events += [
                arrow | {"ph": kind, "bp": "e", "pid": owner, "tid": where, "ts": _plain(time * unit)}
                for kind, (owner, where, time) in zip(kinds, points)
            ]
    return events


def _idle_names(trace):
    """Return {thread: name} of the lanes that are idle at any time."""
    threads, lanes = _threads(trace), {(idle.device, idle.lane) for idle in trace.idle}
    return {threads[lane]: lane_name(*lane) for lane in sorted(lanes, key=threads.get)}


def _idle_boxes(trace, process, unit):
    """Return a box for each idle time of a lane, or several with a cause each."""
    threads = _threads(trace)
    return [
        {
            "ph": "X",
            "name": part.cause,
            "cat": "idle",
            "pid": process,
            "tid": threads[part.device, part.lane],
            "ts": _plain(part.start * unit),
            "dur": _plain((part.end - part.start) * unit),
            "args": {"why": str(part)},
        }
        for part in trace.explain().idle
    ]


def _memory_counters(trace, process, unit):
    """One counter per device; none in a run that counted no memory."""
    threads = _threads(trace)
    return [
        {
            "ph": "C",
            "name": f"memory of device {device}",
            "pid": process,
            "tid": threads[device, COMPUTE],
            "ts": _plain(ticks * unit),
            "args": {"bytes": int(n_bytes)},
        }
        for device in range(trace.n_devices if counts_bytes(trace) else 0)
        for ticks, n_bytes in trace.memory(device)
    ]
