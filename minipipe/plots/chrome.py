"""The timeline of a run for the viewers that engineers use: ui.perfetto.dev and chrome://tracing.

Source: "Trace Event Format", the JSON that both viewers read; its times are microseconds.
"""

import json
import re
from bisect import bisect_left, bisect_right
from math import inf

from .canvas import STYLES, text_of
from ..arguments import argument
from ..checks import path_of, shown
from ..cluster import COMPUTE, SECONDS, SHOWS, TICKS, lane_name
from .memory import counts_bytes
from .boxes import ends_of, rows_of

MICROSECONDS = {"ns": 0.001, "us": 1, "ms": 1000, "s": 1_000_000}
KIND_NAMES = {kind: style["label"] for kind, style in STYLES.items()} | {"F&B": "forward and backward"}
# an arrow begins and ends this share of a box from the box's edge: viewers bind it to the box around it
ARROW_INSET = 0.01


@SHOWS(gives="a dict, which `path` gets as JSON if there is one")
def chrome_trace(runs, path=None, tick=None):
    """A dict in Chrome's trace event format, or None if it has been written to the file `path` as JSON.

    `Trace.to_chrome_trace` calls this.

    runs: a `Trace`, or {name: trace}, each of which becomes a process.
    path: the file to write, or None.
    tick: how long one tick is shown, a number and ns, us, ms or s, "1 ms" if left out; `ValueError` for
        anything else, or where a run has no ticks but seconds, which are shown as they are.

    Devices are threads, and so are the other lanes that they have used; spans are boxes with their ticks in
    the arguments, messages are arrows from the span before the send to the span after the receipt, and memory
    is a counter, if the run counted it.
    """
    if not isinstance(runs, dict):
        runs = {"run": runs}
    for trace in runs.values():
        argument("trace", trace)
    time, tick = _time_of(runs, tick)
    unit = _microseconds(tick)
    names, events = [], []
    # viewers take process and thread 0 for the idle system
    for process, (name, trace) in enumerate(runs.items(), 1):
        names += _name_events(name, trace, process)
        events += _boxes(trace, process, unit) + _arrows(trace, process, unit)
        events += _memory_counters(trace, process, unit)
    events.sort(key=lambda event: event["ts"])
    makespans = {name: _plain(trace.makespan) for name, trace in runs.items()}
    told = {time[:-1]: tick, f"microseconds per {time[:-1]}": unit, f"makespan in {time}": makespans}
    chrome = {"traceEvents": names + events, "displayTimeUnit": "ms", "otherData": told}
    if path is None:
        return chrome
    path_of("path", path).write_text(json.dumps(chrome), encoding="utf-8")


def _time_of(runs, tick):
    """(the unit of the runs' time, how long it is shown)"""
    measured = [name for name, trace in runs.items() if trace.unit == SECONDS]
    if measured and tick is not None:
        raise ValueError(f"{measured[0]!r} is measured in seconds: leave tick={shown(tick)} out")
    return (SECONDS, "1 s") if measured else (TICKS, "1 ms" if tick is None else tick)


def _microseconds(tick):
    match = re.fullmatch(r"\s*([\d.]+)\s*(ns|us|ms|s)\s*", text_of(tick), re.ASCII)
    try:
        unit = float(match[1]) * MICROSECONDS[match[2]]
    except (TypeError, ValueError):
        raise ValueError(
            f"tick={shown(tick)} is not a length of time: write a number and ns, us, ms or s, such as '1 ms'"
        ) from None
    if not 0 < unit < inf:
        raise ValueError(f"tick={shown(tick)} must be a time above 0")
    return _plain(unit)


def _plain(number):
    """A number of any kind, as JSON writes it: whole ones without a point."""
    number = float(number)
    return int(number) if number.is_integer() else number


def _name_events(name, trace, process):
    events = [("process_name", 0, {"name": name})]
    for lane, thread in _threads(trace).items():
        events += [
            ("thread_name", thread, {"name": lane_name(*lane)}),
            ("thread_sort_index", thread, {"sort_index": thread - 1}),
        ]
    return [
        {"ph": "M", "name": kind, "pid": process, "tid": thread, "args": args}
        for kind, thread, args in events
    ]


def _threads(trace):
    """{(device, lane): the number of its thread}, in the order of the rows of a picture."""
    return {lane: number for number, lane in enumerate(rows_of(trace), 1)}


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


def _arrows(trace, process, unit):
    """Two events for each message that left after a span and was received before one.

    Spans of no length cannot hold an arrow.
    """
    threads = _threads(trace)
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
        begin, finish = spans[source][before], spans[to][after]
        arrow = {"name": str(message.label), "cat": "message", "id": process * 10**9 + number, "pid": process}
        args = {when: _plain(getattr(message, when)) for when in ("sent", "arrived", "received")}
        args["bytes"] = int(message.n_bytes)
        leaves = begin.end - ARROW_INSET * (begin.end - begin.start)
        comes = finish.start + ARROW_INSET * (finish.end - finish.start)
        events += [
            arrow | {"ph": "s", "tid": threads[source], "ts": _plain(leaves * unit), "args": args},
            arrow | {"ph": "f", "bp": "e", "tid": threads[to], "ts": _plain(comes * unit)},
        ]
    return events


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
