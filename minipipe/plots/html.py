"""A run as a web page: one file that needs no network, with a slider over its ticks. And in a notebook."""

import json
import math
import re
from base64 import b64encode
from html import escape
from importlib import resources
from io import BytesIO

from ..cluster import BUBBLES, SHOWS, Exchange, Span, Trace, describe_path, duration, ticks
from ..cluster.trace import check_trace
from ..order import Schedule, ScheduleError, alive_microbatches
from ..order.simulate import simulate
from .boxes import UNNUMBERED, ends_of, rows_of, spans_and_exchanges, stage_places
from .canvas import OTHER, styles_of
from .curves import counts_bytes
from .timeline import timeline_figure

LONG = 10_000
MOST_IN_A_CELL = 5_000  # spans: about a megabyte in the notebook, and a second and a half


@SHOWS()
def html(trace: Trace, title=None) -> str:
    """Return `trace` as one interactive HTML page.

    In the page, one can step or play through the ticks, zoom, ask every box what it is and every gap why the
    device waits, and see the messages that travel and the critical path. A device has one row for each lane
    that it has used. A curve below them shows its bytes; or, if the run has counted no bytes, the
    micro-batches that are alive on the device. The page contains all that it needs; its title, its
    figures and why devices are idle stand in it even where no script runs.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> html(simulate(gpipe(2, 3)))[:15]
    '<!doctype html>'
    """
    check_trace(trace)
    # in a JSON string "\u003c" is "<", and no label can end the script element in which the data lies
    data = json.dumps(page_data(trace), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return filled(template(), page_pieces(trace, title) | {"data": data})


def template():
    """Return the page of any run: HTML with {{data}}, and a {{name}} for each of its `page_pieces`."""
    page, painter = (
        resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
        for name in ("timeline.html", "paint.js")
    )
    script = painter[:painter.index("export {")]  # in a page of its own the painter is not a module
    return page.replace("{{painter}}", script)


def page_pieces(trace, title=None):
    """Return {name: the HTML in the page of `trace` in place of {{name}}}; only its data are left out."""
    path = describe_path(trace.critical_path(), trace.unit, trace.names)
    texts = {
        "title": str("" if title is None else title) or f"A run on {trace.n_devices} devices",
        "label": f"Timeline of {trace.n_devices} devices over {duration(trace.makespan, trace.unit)}",
        "why": f"{trace.sentence()}\n\n{trace.explain()}\n\nthe critical path:\n{path}",
    }
    return {name: escaped(text) for name, text in texts.items()} | {"figures": _figures(trace)}


def filled(template, pieces):
    """Return `template` with the piece called `name` for each {{name}} in it."""
    return re.sub(r"\{\{(\w+)\}\}", lambda name: pieces[name[1]], template)


def page_data(trace):
    """Return what the page knows of `trace`, in plain numbers, strings, lists and dicts.

    lanes: [device, name] of each row, if a device has more than one, or a name; otherwise, rows are devices.
    spans: [row, start, end, label, parts, title], and 1 for an exchange; each part [kind, stage, micro-batch,
        copy, position]: which copy of the network it works on, and where its stage stands among those of its
        device. A label that is not of a schedule has no parts, but one of its kind alone, if it has a kind.
    idle: [row, start, end, title].
    messages: [label, row of the sender, row of the receiver, sent, arrived]; messages whose arrival is not
        known are left out.
    path: the critical path, [row, row, start, end] for each step: work has its row twice, a message the rows
        of its two ends.
    time: what one unit of time is called.
    memory: for each device, [tick, amount] from each change on.
    """
    places, styles = stage_places(trace), styles_of([trace])
    rows = {lane: number for number, lane in enumerate(rows_of(trace))}

    def part_row(part, device):
        if not hasattr(part, "microbatch"):
            return [part.kind, None, None, 0, 0]
        copy = (
            places.copy_at[device, part.stage] if part.kind in UNNUMBERED else places.copy_of[part.microbatch]
        )
        return [part.kind, part.stage, part.microbatch, copy, places.of[device, part.stage]]

    def span_row(span):
        of_other_work = (span.label,) if getattr(span.label, "kind", None) in styles else ()
        parts = [part_row(part, span.device) for part in getattr(span.label, "parts", of_other_work)]
        title = _title(span, parts, styles, places.n_copies, trace.unit)
        row = [rows[span.device, span.lane], *_from_to(span), str(span.label), parts, title]
        return [*row, 1] if type(span) is Exchange else row

    def step_row(step):
        what = step.what
        ends = [(what.device, what.lane)] * 2 if type(what) is Span else ends_of(what, rows)
        return [*(rows[end] for end in ends), *_from_to(step)]

    memory, unit = _memory(trace)
    causes = trace.explain()
    lanes = [[device, row.name] for (device, _), row in rows_of(trace).items()]
    return {
        "devices": trace.n_devices,
        "makespan": _to_json(trace.makespan),
        "time": trace.unit[:-1],
        "step": _step(trace),
        "most_stages": places.n,
        "kinds": {
            kind: [style["facecolor"], style["dark"], style["label"]]
            for kind, style in (styles | {"": OTHER}).items()
        },
        "spans": [span_row(span) for span in spans_and_exchanges(trace)],
        "idle": [
            [rows[idle.device, idle.lane], *_from_to(idle), causes.predicate(idle)]
            for idle in trace.idle
        ],
        "messages": [
            [str(message.label), *(rows[end] for end in ends_of(message, rows)),
             _to_json(message.sent), _to_json(message.arrived)]
            for message in trace.messages
            if message.arrived is not None
        ],
        "path": [step_row(step) for step in trace.critical_path()],
        "memory": [[[_to_json(tick), _to_json(amount)] for tick, amount in curve] for curve in memory],
        "unit": unit,
    } | ({"lanes": lanes} if len(lanes) > trace.n_devices or trace.names else {})


def _title(span, parts, styles, n_copies, unit):
    """Return in words what a box is, and when."""
    words = []
    for kind, stage, microbatch, copy, _ in parts:
        name = styles.get(kind, OTHER)["label"]
        if microbatch is not None:
            of_copy = f" of copy {copy}" if n_copies > 1 else ""
            after = {"U": f"after micro-batch {microbatch}", "W*": "micro-batches"}
            name += f" {after.get(kind, f'of micro-batch {microbatch}')} on stage {stage}{of_copy}"
        words.append(name)
    start, end = ticks(span.start), ticks(span.end)
    when = f"at {unit[:-1]} {start}"
    if span.end > span.start:
        when = f"{unit[:-1]} {start} to {end} ({duration(span.end - span.start, unit)})"
    return f"{span.label}, {' and, at once, '.join(words) or 'work'}\n{when}"


def _figures(trace):
    """Return the makespan and the four bubbles, as the inside of a `dl`."""
    figures = {"makespan": duration(trace.makespan, trace.unit)}
    if any(trace.busy_ticks()):
        for of, words in BUBBLES.items():
            figures[f"bubble: {words}"] = f"{100 * float(trace.bubble(of)):.1f} %"
    groups = (f"<div><dt>{escape(name)}</dt><dd>{value}</dd></div>" for name, value in figures.items())
    return "".join(groups)


def escaped(text):
    """Return `text` in HTML, whatever characters it has."""
    return escape(text).encode("ascii", "xmlcharrefreplace").decode()


def _from_to(period):
    return _to_json(period.start), _to_json(period.end)


def _to_json(time):
    """Return an int as it is, and any other number, such as a `Fraction`, as a float."""
    return time if type(time) is int else float(time)


def _step(trace):
    """Return the step of the arrow keys: a tick, a half or a quarter; or a power of ten if none fits."""
    times = {time for span in trace.spans for time in (span.start, span.end)}
    for step in (1, 0.5, 0.25):
        if trace.makespan <= LONG * step and all(float(time / step).is_integer() for time in times):
            return step
    return 1 if 10 <= trace.makespan <= LONG else 10.0 ** math.floor(math.log10(trace.makespan / 100))


def _memory(trace):
    """Return (a curve for each device, its unit): bytes, or micro-batches alive if no bytes were counted.

    Return ([], "") if there are none of these either.
    """
    if counts_bytes(trace):
        return [trace.memory(device) for device in range(trace.n_devices)], "bytes"
    curves = [alive_microbatches(trace, device) for device in range(trace.n_devices)]
    return (curves, "micro-batches alive") if any(curves) else ([], "")


# A run in a cell of a notebook: the player of its web page, and a still picture.

@SHOWS()
def player(run: Trace | Schedule) -> str:
    """Return HTML with the page of `run`: a `Trace`, or a `Schedule`, simulated with its standard costs.

    The page stands in a frame of its own. So no key, name or style of it meets those of the notebook or of
    another player. Where no script runs, as on GitHub, the frame stays closed, and the still picture that
    stands before it is what is seen. Of a schedule that cannot run, the HTML says why. A run of more than
    `MOST_IN_A_CELL` spans is summed up in words, which say how to open its page.

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
    picture = b64encode(_png(trace, title)).decode()
    page = html(trace, title=title).replace("&", "&amp;").replace('"', "&quot;")
    return (
        f'<div><img alt="{escape(repr(run))}" style="max-width: 100%" src="data:image/png;base64,{picture}">'
        f'<iframe class="minipipe" title="Player" style="width: 100%; height: 0; border: 0" srcdoc="{page}">'
        "</iframe></div>"
    )


@SHOWS()
def still(run: Trace | Schedule) -> bytes | None:
    """Return the timeline of `run`, a `Trace` or a `Schedule`, as the bytes of a PNG.

    Return None if the schedule cannot run, or for more than `MOST_IN_A_CELL` spans.
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
