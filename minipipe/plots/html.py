"""A run as a web page that needs no network, and as the output of a notebook's cell."""

import json
import math
import re
from base64 import b64encode
from html import escape
from importlib import resources
from io import BytesIO

from ..cluster import BUBBLES, COMPUTE, SHOWS, Exchange, Span, Trace, describe_path, duration
from ..cluster.trace import check_trace
from ..order import Schedule, ScheduleError, alive_microbatches
from ..order.simulate import simulate
from .boxes import UNNUMBERED, ends_of, rows_of, spans_and_exchanges, stage_places
from .canvas import OTHER, parts_of, styles_of
from .curves import counts_bytes
from .sentence import sentence
from .timeline import timeline_figure

LONG = 10_000
MOST_WORDS = 400  # idle periods of a picture with their explanations; with more, a page asks for each
MOST_IN_A_CELL = 5_000  # spans: about a megabyte in the notebook, and 1.5 seconds to draw


@SHOWS()
def html(trace: Trace, title=None) -> str:
    """Return `trace` as an interactive HTML page with the title `title`, in one file.

    One can step or play through the ticks, zoom, and ask what each box is and why a
    device waits; and show messages and the critical path. A device has a row for each
    lane that it has used. Curves below them show its bytes, or, if none were counted,
    its micro-batches alive. Title, figures and reasons need no script.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> html(simulate(gpipe(2, 3)))[:15]
    '<!doctype html>'
    """
    check_trace(trace)
    path = describe_path(trace.critical_path(), trace.unit, trace.names)
    texts = {
        "title": str("" if title is None else title) or f"A run on {trace.n_devices} devices",
        "why": f"{sentence(trace)}\n\n{trace.explain()}\n\nthe critical path:\n{path}",
    }
    # in a page of its own a script is not a module: it imports and exports nothing
    scripts = (re.sub(r"(?ms)^(import|export) .*?;$", "", resource(name)) for name in ("paint.js", "view.js"))
    data = json.dumps(picture(trace, most_words=None), allow_nan=False, separators=(",", ":"))
    return filled(resource("timeline.html"), {name: escaped(text) for name, text in texts.items()} | {
        "style": resource("view.css"), "view": resource("view.html"), "script": "".join(scripts),
        "figures": _figures(trace),
        # in a JSON string "\u003c" is "<", and no label can end the script element in which the data lies
        "data": data.replace("<", "\\u003c"),
    })


def resource(name, package=__package__):
    """Return the text of the file `name` in the folder of `package`."""
    return resources.files(package).joinpath(name).read_text(encoding="utf-8")


def filled(template, pieces):
    """Return `template` with pieces[name] for each {{name}}."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: pieces[name[1]], template)


def picture(trace, most_words=MOST_WORDS):
    """Return what a page draws of `trace`, as data for JSON.

    Tables are {column: list}. Times are in the trace's unit. With more than
    `most_words` idle periods (None: any number), words and blame are null.

    kinds: {kind of work: [colour, colour for the device's last stage, name]}; "" is
        other work.
    busy, causes: the times of all devices, by kind of work and by cause of idleness;
        explanation: more about the causes.
    rows: [device, name] of each lane, from the top; a device's first lane computes.
    spans: a row for each part of each span and exchange, by start. label: its text,
        null for an action. copy: its replica. place: the place of its stage on the
        device. part: [number of the part, parts of the span]. exchange: 1 for an
        exchange.
    idle: causes: [[cause, ticks]]. words, blame: what `blame_finder` finds.
    messages: source and to are rows; arrived is null if it is in flight.
    path: the critical path, each step from row source to row to; work has one row.
    memory: for each device, the ticks of the changes and the amounts from there on.
    """
    places, styles = stage_places(trace), styles_of([trace])
    rows = {lane: number for number, lane in enumerate(rows_of(trace))}
    spans = []
    for span in spans_and_exchanges(trace):
        parts = parts_of(span.label)
        for number, part in enumerate(parts):
            kind = part.kind if getattr(part, "kind", None) in styles else ""
            stage, microbatch = getattr(part, "stage", None), getattr(part, "microbatch", None)
            label, copy = (str(part) if microbatch is None else None), 0
            if microbatch is not None:
                at = places.copy_at[span.device, stage]
                copy = at if kind in UNNUMBERED else places.copy_of[microbatch]
            spans.append((
                rows[span.device, span.lane], *_from_to(span), kind, stage, microbatch, label, copy,
                places.of.get((span.device, stage), 0), (number, len(parts)), int(type(span) is Exchange),
            ))
    causes, blamed, busy = trace.explain(), lambda idle: (None, None), dict[str, float]()
    for span in trace.spans:
        if span.lane == COMPUTE:
            work = "&".join(getattr(part, "kind", None) or "" for part in parts_of(span.label))
            busy[work] = busy.get(work, 0) + span.end - span.start
    if most_words is None or len(trace.idle) <= most_words:
        blamed = blame_finder(trace, causes)
    idle = [
        (rows[each.device, each.lane], *_from_to(each), _sums(causes.parts[each]), *blamed(each))
        for each in trace.idle
    ]
    messages = [
        (str(message.label), *(rows[end] for end in ends_of(message, rows)), plain(message.sent),
         None if message.arrived is None else plain(message.arrived))
        for message in trace.messages
    ]
    path = [
        (*(rows[end] for end in _ends_of_step(step, rows)), *_from_to(step)) for step in trace.critical_path()
    ]
    curves, unit = _memory(trace)
    changes = [tuple(zip(*((plain(tick), plain(n)) for tick, n in curve))) for curve in curves]
    used = {row[3] for row in spans}
    return {
        "title": trace.title or "The run", "devices": trace.n_devices,
        "makespan": plain(trace.makespan), "unit": trace.unit[:-1],
        "step": _step(trace) if trace.makespan else 1,
        "bubble": float(trace.bubble()) if any(trace.busy_ticks()) else None,
        "most_stages": places.n,
        "kinds": {
            kind: [style["facecolor"], style["dark"], style["label"]]
            for kind, style in (styles | {"": OTHER}).items() if kind in used
        },
        "rows": [[device, row.name] for (device, _), row in rows_of(trace).items()],
        "busy": {kind: plain(ticks) for kind, ticks in busy.items()},
        "causes": {cause: plain(ticks) for cause, ticks in causes.totals().items()},
        "explanation": str(causes),
        "spans": _columns(
            "row start end kind stage microbatch label copy place part exchange", spans
        ),
        "idle": _columns("row start end causes words blame", idle),
        "messages": _columns("label source to sent arrived", messages),
        "path": _columns("source to start end", path),
        "memory": {
            "unit": unit, "ticks": [each[0] if each else [] for each in changes],
            "amounts": [each[1] if each else [] for each in changes],
            "peaks": [max(each[1]) if each else 0 for each in changes],
        },
    }


def blame_finder(trace, causes):
    """Return a function from an idle period to (its words, [rows of spans to blame]).

    The rows are those of `picture`. causes: `trace.explain()`.
    """
    spans, number = {}, 0
    for span in spans_and_exchanges(trace):
        spans[span] = number
        number += len(parts_of(span.label))

    def blamed(idle):
        found = dict.fromkeys(part.blame for part in causes.parts[idle])
        return causes.describe(idle), [spans[each] for each in found if each in spans]

    return blamed


def plain(number):
    """Return `number` for JSON: an `int` if it is whole, else a float."""
    if type(number) is int:
        return number
    number = float(number)
    return int(number) if number.is_integer() else number


def _columns(names, table):
    """Return {name: column} of the rows of a table. names: in one text."""
    names = names.split()
    return dict(zip(names, map(list, zip(*table)) if table else ([] for _ in names)))


def _sums(parts):
    """Return [[cause, ticks]] of `IdlePart`s."""
    sums = {}
    for start, end, cause, _ in parts:
        sums[cause] = sums.get(cause, 0) + end - start
    return [[cause, plain(total)] for cause, total in sums.items()]


def _ends_of_step(step, rows):
    what = step.what
    return [(what.device, what.lane)] * 2 if type(what) is Span else ends_of(what, rows)


def _figures(trace):
    """Return the makespan and the four bubbles, as the inside of a `dl`."""
    figures = {"makespan": duration(trace.makespan, trace.unit)}
    if any(trace.busy_ticks()):
        for of, words in BUBBLES.items():
            figures[f"bubble: {words}"] = f"{100 * float(trace.bubble(of)):.1f} %"
    groups = (f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return "".join(groups)


def escaped(text):
    """Return `text` in HTML."""
    return escape(text).encode("ascii", "xmlcharrefreplace").decode()


def _from_to(period):
    return plain(period.start), plain(period.end)


def _step(trace):
    """Return the step of the arrow keys: 1, 1/2 or 1/4 tick, or a power of ten."""
    times = {time for span in trace.spans for time in (span.start, span.end)}
    for step in (1, 0.5, 0.25):
        if trace.makespan <= LONG * step and all(float(time / step).is_integer() for time in times):
            return step
    return 1 if 10 <= trace.makespan <= LONG else 10.0 ** math.floor(math.log10(trace.makespan / 100))


def _memory(trace):
    """Return (curves by device, unit): bytes, micro-batches alive, or ([], "")."""
    if counts_bytes(trace):
        return [trace.memory(device) for device in range(trace.n_devices)], "bytes"
    curves = [alive_microbatches(trace, device) for device in range(trace.n_devices)]
    return (curves, "micro-batches alive") if any(curves) else ([], "")


# A run in a cell of a notebook: the player of its web page, and a still picture.

@SHOWS()
def player(run: Trace | Schedule) -> str:
    """Return HTML with the page of `run`: a `Trace`, or a `Schedule` at standard costs.

    The page is in a frame, so that no key, name or style meets those of the notebook.
    Where no script runs, as on GitHub, a still picture is seen instead. For a schedule
    that cannot run, the HTML says why. A run of more than `MOST_IN_A_CELL` spans is
    summed up in words, which say how to open its page.

    >>> from minipipe.schedules import gpipe
    >>> player(gpipe(2, 3)).count("<iframe ")
    1
    """
    try:
        trace, title = _traced(run)
    except ScheduleError as error:
        return f"<pre>{escape(str(error))}</pre>"
    if len(trace.spans) > MOST_IN_A_CELL:
        name, made = (run.name, "simulate(schedule)") if isinstance(run, Schedule) else ("A run", "trace")
        words = (
            f"{name} on {trace.n_devices} devices, with {len(trace.spans):,} spans: a notebook draws at most "
            f'{MOST_IN_A_CELL:,}. Type {made}.save("run.html") and open that file in a browser, or '
            f'{made}.save("run.png") for the picture.'
        )
        return f"<div>{escaped(words)}<dl>{_figures(trace)}</dl></div>"
    image = b64encode(_png(trace, title)).decode()
    alone = f'<img alt="{escape(repr(run))}" style="max-width: 100%" src="data:image/png;base64,{image}">'
    return framed(trace, title, alone)


def framed(trace, title, alone="<p>The picture needs JavaScript.</p>"):
    """Return the page of `trace` with `title` as a frame; `alone` if no script runs."""
    page = html(trace, title=title).replace("&", "&amp;").replace('"', "&quot;")
    return (
        f'<div>{alone}<iframe class="minipipe" title="Player" style="width: 100%; height: 0; border: 0" '
        f'srcdoc="{page}"></iframe></div>'
    )


@SHOWS()
def still(run: Trace | Schedule) -> bytes | None:
    """Return the timeline of `run`, a `Trace` or a `Schedule`, as the bytes of a PNG.

    Return None if the schedule cannot run, or has more than `MOST_IN_A_CELL` spans.
    """
    try:
        trace, title = _traced(run)
    except ScheduleError:
        return None
    return _png(trace, title) if len(trace.spans) <= MOST_IN_A_CELL else None


def _traced(run):
    """Return (the trace of a run, the title of its picture)."""
    if isinstance(run, Schedule):
        return simulate(run), run.name
    check_trace(run)
    return run, None


def _png(trace, title):
    file = BytesIO()
    timeline_figure(trace, title).savefig(file, format="png")
    return file.getvalue()
