"""A run as a web page: one file that needs no network, with a slider over its ticks."""

import json
import math
from importlib import resources
from pathlib import Path

from ..cluster import BUBBLES
from ..schedules import alive_microbatches
from .boxes import UNNUMBERED
from .colours import OTHER, styles_of
from .places import places_of
from .rows import ends_of, rows_of

UPDATE = {"facecolor": "#808080", "label": "update"}  # a mark that is seen on dark paper, too
LONG = 10_000


def html(trace, path=None, title=None):
    """`trace` as one interactive HTML page: the text, or None if it has been written to the file `path`.

    In the page, one can step or play through the ticks, zoom, ask every box and every gap what it is,
    and see the messages that travel. Below each device's rows, of which it has one for each lane that it has
    used, are the bytes that it holds, or, where the run has counted no memory, the micro-batches that are
    alive on it. The page contains all that it needs.

    >>> from minipipe import simulate
    >>> from minipipe.schedules import gpipe
    >>> html(simulate(gpipe(2, 3)))[:15]
    '<!doctype html>'
    """
    # in a JSON string "\u003c" is "<", and no label can end the script element in which the data lies
    data = json.dumps(page_data(trace, title), allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    page = (
        resources.files(__package__)
        .joinpath("timeline.html")
        .read_text(encoding="utf-8")
        .replace("{{data}}", data)
    )
    if path is None:
        return page
    Path(path).write_text(page, encoding="utf-8")


def page_data(trace, title=None):
    """What the page knows of `trace`, in plain numbers, strings, lists and dicts.

    lanes: [device, name] of each row, if a device has more than one; otherwise, rows are devices.
    spans: [row, start, end, label, parts], and each part [kind, stage, micro-batch, copy, position]: which
        copy of the network it works on, and where its stage stands among those of its device. A label that
        is not of a schedule has no parts, but one of its kind alone, if it has a kind.
    idle: [row, start, end, reason, message, device that it comes from or goes to].
    messages: [label, row of the sender, row of the receiver, sent, arrived]; those that nobody knows the
        arrival of are left out.
    memory: for each device, [tick, amount] from each change on.
    """
    places, styles = places_of(trace), styles_of([trace]) | {"U": UPDATE}
    rows = {lane: number for number, lane in enumerate(rows_of(trace))}

    def part_row(part, device):
        if not hasattr(part, "microbatch"):
            return [part.kind, None, None, 0, 0]
        copy = (
            places.copy_at[device, part.stage] if part.kind in UNNUMBERED else places.copy_of[part.microbatch]
        )
        return [part.kind, part.stage, part.microbatch, copy, places.of[device, part.stage]]

    memory, unit = _memory(trace)
    lanes = [[device, row.name] for (device, _), row in rows_of(trace).items()]
    return {
        "title": title or f"A run on {trace.n_devices} devices",
        "devices": trace.n_devices,
        "makespan": _number(trace.makespan),
        "step": _step(trace),
        "bubble": {words: float(trace.bubble(of)) for of, words in BUBBLES.items()}
        if any(trace.busy_ticks())
        else None,
        "copies": places.n_copies,
        "most_stages": places.n,
        "kinds": {
            kind: [style["facecolor"], style["label"]] for kind, style in (styles | {"": OTHER}).items()
        },
        "spans": [
            [
                rows[device, lane], _number(start), _number(end), str(label),
                [part_row(part, device) for part in _parts(label, styles)],
            ]
            for device, label, start, end, lane in trace.spans
        ],
        "idle": [
            [
                rows[device, lane], _number(start), _number(end), reason,
                None if source is None else str(message), source,
            ]
            for device, start, end, reason, message, source, lane in trace.idle
        ],
        "messages": [
            [str(message.label), *(rows[end] for end in ends_of(message, rows)),
             _number(message.sent), _number(message.arrived)]
            for message in trace.messages
            if message.arrived is not None
        ],
        "memory": [[[_number(tick), _number(amount)] for tick, amount in curve] for curve in memory],
        "unit": unit,
    } | ({"lanes": lanes} if len(lanes) > trace.n_devices else {})


def _parts(label, styles):
    """The parts of an action or overlap; of other work the label, if its kind has a colour."""
    return getattr(label, "parts", (label,) if getattr(label, "kind", None) in styles else ())


def _number(time):
    """An int as it is, and a float for any other number, such as a Fraction."""
    return time if type(time) is int else float(time)


def _step(trace):
    """What the arrow keys move by: one tick, or a power of ten if that is too far or too little."""
    whole = all(float(span.start).is_integer() and float(span.end).is_integer() for span in trace.spans)
    if trace.makespan <= 0 or ((whole or trace.makespan >= 10) and trace.makespan <= LONG):
        return 1
    return 10.0 ** math.floor(math.log10(trace.makespan / 100))


def _memory(trace):
    """(for each device its curve, "bytes"), or the micro-batches alive if no memory was counted.

    ([], "") if there are none of these either.
    """
    try:
        return [trace.memory(device) for device in range(trace.n_devices)], "bytes"
    except ValueError:
        curves = [alive_microbatches(trace, device) for device in range(trace.n_devices)]
        return (curves, "micro-batches alive") if any(curves) else ([], "")
