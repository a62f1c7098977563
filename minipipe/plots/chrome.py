"""The timeline of a run for the viewers that engineers use: ui.perfetto.dev and chrome://tracing.

Source: "Trace Event Format", the JSON that both viewers read; its times are microseconds.
"""

from bisect import bisect_left, bisect_right

from ..cluster import COMPUTE, SECONDS, SHOWS, lane_name
from ..cluster.trace import check_trace
from .boxes import ends_of, rows_of
from .canvas import STYLES
from .memory import counts_bytes

KIND_NAMES = {kind: style["label"] for kind, style in STYLES.items()} | {"F&B": "forward and backward"}
PROCESS = 1         # viewers take process and thread 0 for the idle system
ARROW_INSET = 0.01  # an arrow ends this share of a box inside it: viewers bind it to the box around its end


@SHOWS()
def chrome_trace(trace):
    """Return a dict in Chrome's trace event format, in which a tick is shown as a millisecond.

    `Trace.to_chrome_trace` calls this. Seconds, of a run that was measured, are shown as they are.

    Devices are threads, and so are the other lanes that they have used; spans are boxes with their ticks in
    the arguments, and memory is a counter, if the run counted it. An arrow for each message leads from the
    span before the send to the span after the receipt.
    """
    check_trace(trace)
    tick, unit = ("1 s", 1_000_000) if trace.unit == SECONDS else ("1 ms", 1000)  # microseconds
    threads = {lane: number for number, lane in enumerate(rows_of(trace), 1)}
    events = _boxes(trace, threads, unit) + _arrows(trace, threads, unit)
    events += _memory_counters(trace, threads, unit)
    events.sort(key=lambda event: event["ts"])
    time = trace.unit[:-1]
    told = {
        time: tick, f"microseconds per {time}": unit, f"makespan in {trace.unit}": plain(trace.makespan),
    }
    return {"traceEvents": _names(threads) + events, "displayTimeUnit": "ms", "otherData": told}


def plain(number):
    """Return a number of any kind as JSON writes it: a whole one as an `int`, any other as a float."""
    number = float(number)
    return int(number) if number.is_integer() else number


def _names(threads):
    """Return the events that name the lanes, and keep them in the order of the rows of a picture."""
    events = [("process_name", 0, {"name": "run"})]
    for lane, thread in threads.items():
        events += [
            ("thread_name", thread, {"name": lane_name(*lane)}),
            ("thread_sort_index", thread, {"sort_index": thread}),
        ]
    return [
        {"ph": "M", "name": kind, "pid": PROCESS, "tid": thread, "args": args}
        for kind, thread, args in events
    ]


def _boxes(trace, threads, unit):
    """Return a box for each span; its category is the kind of work, or "work" if it has none."""
    events = []
    for device, label, start, end, lane in trace.spans:
        kind = getattr(label, "kind", None)
        events.append({
            "ph": "X",
            "name": str(label),
            "cat": KIND_NAMES.get(kind, kind if isinstance(kind, str) else "work"),
            "pid": PROCESS,
            "tid": threads[device, lane],
            "ts": plain(start * unit),
            "dur": plain((end - start) * unit),
            "args": {"start": plain(start), "end": plain(end), **_position(label)},
        })
    return events


def _position(label):
    """Stage and micro-batch of an action; of both, where two overlap."""
    positions = {
        str(part): {"stage": part.stage, "micro-batch": part.microbatch}
        for part in getattr(label, "parts", ())
    }
    if len(positions) == 1:
        (positions,) = positions.values()
    return positions


def _arrows(trace, threads, unit):
    """Return two events for each message: an arrow from the span before its send to that after its receipt.

    A span of no length cannot hold an end of an arrow. A message without both spans has no arrow.
    """
    spans = {lane: [span for span in trace.spans_of(*lane) if span.end > span.start] for lane in threads}
    events = []
    for number, message in enumerate(trace.messages, 1):
        if message.received is None:
            continue
        source, to = ends_of(message, threads)
        before = bisect_right(spans[source], message.sent, key=lambda span: span.end) - 1
        after = bisect_left(spans[to], message.received, key=lambda span: span.start)
        if before < 0 or after == len(spans[to]):
            continue
        begin, end = spans[source][before], spans[to][after]
        leaves = begin.end - ARROW_INSET * (begin.end - begin.start)
        arrives = end.start + ARROW_INSET * (end.end - end.start)
        arrow = {"name": str(message.label), "cat": "message", "id": number, "bp": "e", "pid": PROCESS}
        events += [
            arrow | {"ph": "s", "tid": threads[source], "ts": plain(leaves * unit)},
            arrow | {"ph": "f", "tid": threads[to], "ts": plain(arrives * unit)},
        ]
    return events


def _memory_counters(trace, threads, unit):
    """Return one counter per device; none for a run that counted no memory."""
    return [
        {
            "ph": "C",
            "name": f"memory of device {device}",
            "pid": PROCESS,
            "tid": threads[device, COMPUTE],
            "ts": plain(ticks * unit),
            "args": {"bytes": int(n_bytes)},
        }
        for device in range(trace.n_devices if counts_bytes(trace) else 0)
        for ticks, n_bytes in trace.memory(device)
    ]
