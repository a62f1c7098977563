"""Save a run as a picture, a film, a page, or a file for trace viewers."""

from __future__ import annotations

import json
import os
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from io import BytesIO
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from ..checks import write_whole
from ..cluster import COMPUTE, SECONDS, SHOWS, Trace, lane_name
from ..cluster.trace import check_trace
from .boxes import ends_of, rows_of, spans_and_exchanges
from .canvas import STYLES, new_figure
from .curves import counts_bytes
from .html import html, plain
from .timeline import timeline_figure

if TYPE_CHECKING:
    from matplotlib.figure import Figure


# The timeline for the viewers that engineers use: ui.perfetto.dev and chrome://tracing.
#
# Source: "Trace Event Format", the JSON that both viewers read; its times are microseconds.

KIND_NAMES = {kind: style["label"] for kind, style in STYLES.items()} | {"F&B": "forward and backward"}
PROCESS = 1         # viewers take process and thread 0 for the idle system
ARROW_INSET = 0.01  # an arrow ends this share of a box inside it: viewers bind it to the box around its end


@SHOWS()
def chrome_trace(trace: Trace) -> dict:
    """Return a dict in Chrome's trace event format; a tick is shown as a millisecond.

    Measured seconds are shown as they are. Each lane is a thread. Spans and exchanges
    are boxes with their ticks as arguments; memory is a counter, if it was counted. An
    arrow for each message leads from the span before the send to the span after the
    receipt. `Trace.to_chrome_trace` calls this.
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
    return {"traceEvents": _names(trace, threads) + events, "displayTimeUnit": "ms", "otherData": told}


def on_grid(time: float, unit: float = 1) -> float:
    """Return `time` in microseconds, rounded to nanoseconds, in which Perfetto counts.

    Starts and ends are rounded, never lengths, so that no box ends after the start of
    the next: Perfetto drops a box that begins inside another.

    Args:
        time: in units of `unit` microseconds.
    """
    return plain(round(time * unit * 1000) / 1000)


def _names(trace, threads):
    """Return the events that name the lanes, and order them as in a picture."""
    events, rows = [("process_name", 0, {"name": "run"})], rows_of(trace)
    for lane, thread in threads.items():
        name = rows[lane].name if lane[1] == COMPUTE else lane_name(*lane)
        events += [
            ("thread_name", thread, {"name": name}),
            ("thread_sort_index", thread, {"sort_index": thread}),
        ]
    return [
        {"ph": "M", "name": kind, "pid": PROCESS, "tid": thread, "args": args}
        for kind, thread, args in events
    ]


def _boxes(trace, threads, unit):
    """Return an event for each span and exchange; its category is the kind of work."""
    events = []
    for device, label, start, end, lane, *_ in spans_and_exchanges(trace):
        kind, ts = getattr(label, "kind", None), on_grid(start, unit)
        events.append({
            "ph": "X",
            "name": str(label),
            "cat": KIND_NAMES.get(kind, kind if isinstance(kind, str) else "work"),
            "pid": PROCESS,
            "tid": threads[device, lane],
            "ts": ts,
            "dur": on_grid(on_grid(end, unit) - ts),
            "args": {"start": plain(start), "end": plain(end), **_position(label)},
        })
    return events


def _position(label):
    """Return the stage and micro-batch of an action, or of both parts of an overlap."""
    positions = {
        str(part): {"stage": part.stage, "micro-batch": part.microbatch}
        for part in getattr(label, "parts", ())
    }
    if len(positions) == 1:
        (positions,) = positions.values()
    return positions


def _arrows(trace, threads, unit):
    """Return two events for each message, the start and the end of its arrow.

    Spans of no length do not count. A message without a span before its send or after
    its receipt has no arrow.
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
            arrow | {"ph": "s", "tid": threads[source], "ts": on_grid(leaves, unit)},
            arrow | {"ph": "f", "tid": threads[to], "ts": on_grid(arrives, unit)},
        ]
    return events


def _memory_counters(trace, threads, unit):
    """Return one counter per device; none for a run that counted no memory."""
    return [
        {
            "ph": "C",
            "name": f"memory of {lane_name(device, COMPUTE, trace.names)}",
            "pid": PROCESS,
            "tid": threads[device, COMPUTE],
            "ts": on_grid(ticks, unit),
            "args": {"bytes": int(n_bytes)},
        }
        for device in range(trace.n_devices if counts_bytes(trace) else 0)
        for ticks, n_bytes in trace.memory(device)
    ]


# The film: time sweeps over the timeline.

N_FRAMES = 100
INTERVAL = 100  # milliseconds for which a frame is shown
HOLD = 1000     # milliseconds for the last frame, before the film begins again
LINE = 2        # pixels of the axis at the bottom, which the white rectangle does not cover


def film(trace: Trace, path: str | PathLike, title: str | None = None) -> None:
    """Write a GIF in which a line sweeps over the run, by a hundredth of it per frame.

    Args:
        trace: the run; `ValueError` if nothing took time in it.
        path: the file.
        title: above the picture.

    The picture is drawn once; in each frame, a white rectangle covers the rest.
    """
    from matplotlib import rc_context
    from PIL import Image, ImageDraw

    if not trace.makespan:
        raise ValueError("nothing took time in this run: there is no film of it")
    figure = timeline_figure(trace, title)
    drawn = BytesIO()
    with rc_context({"savefig.bbox": None}):  # a cut margin would move the sheet
        figure.savefig(drawn, format="png", dpi=figure.dpi)
    picture = Image.open(drawn).convert("RGB")
    inside = figure.axes[0].get_window_extent()  # in pixels, counted from the bottom
    top, bottom = picture.height - inside.y1, picture.height - inside.y0 - LINE
    frames = []
    for number in range(N_FRAMES + 1):
        frame, now = picture.copy(), inside.x0 + inside.width * number / N_FRAMES
        draw = ImageDraw.Draw(frame)
        draw.rectangle((now, top, picture.width, bottom), fill="white")
        draw.line((now, top, now, bottom), fill="#202020")
        frames.append(frame)
    durations = [INTERVAL] * N_FRAMES + [HOLD]
    frames[0].save(path, "gif", save_all=True, append_images=frames[1:], duration=durations, loop=0)


# The file.

DOTS_PER_INCH = 150  # resolution of pictures
OTHERS = {  # ending of a file that is not a picture -> a function (trace, path, title)
    "gif": film,
    "html": lambda trace, path, title: path.write_text(html(trace, title), encoding="utf-8"),
    "json": lambda trace, path, title: path.write_text(json.dumps(chrome_trace(trace)), encoding="utf-8"),
}


@SHOWS()
def save(trace: Trace, path: str | PathLike, title: str | None = None) -> None:
    """Write a run into a file, atomically.

    Args:
        trace: the run.
        path: the file; its ending says the format: .png, .pdf, .svg or another picture
            of matplotlib; .gif, a film; .html, an interactive page; .json, for
            ui.perfetto.dev.
        title: above a picture.
    """
    check_trace(trace)
    path = checked_path(path, sorted({*picture_formats(), *OTHERS}))
    write = OTHERS.get(path.suffix[1:].lower())
    if write is None:
        write_picture(timeline_figure(trace, title), path)
    else:
        write_whole(path, lambda beside: write(trace, beside, title))


def write_picture(figure: Figure, path: Path) -> None:
    """Write `figure` into `path`, atomically, in the format of the ending."""
    from matplotlib import rc_context

    file = BytesIO()  # Pillow writes half a .jpg to a full disk, and does not tell
    with rc_context({"svg.fonttype": "none"}):  # text stays text, which slides can edit
        figure.savefig(file, format=path.suffix[1:].lower(), dpi=DOTS_PER_INCH)
    write_whole(path, lambda beside: beside.write_bytes(file.getvalue()))


def picture_formats() -> list[str]:
    """Return the endings of matplotlib's picture formats."""
    return sorted(new_figure(1, 1).canvas.get_supported_filetypes())


def checked_path(path: str | PathLike, endings: Sequence[str] | None = None) -> Path:
    """Return `path`; raise `ValueError` if no file can be written there.

    Args:
        path: the file.
        endings: the allowed ones; by default, any.
    """
    path = Path(path).expanduser()
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: it is a folder, or this user may not write there")
    if endings is not None and path.suffix[1:].lower() not in endings:
        raise ValueError(f"cannot write {path}: its name must end in one of .{', .'.join(endings)}")
    return path
