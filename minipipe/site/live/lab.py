"""The playground's engine: settings come in as JSON; pictures, words and files go out as JSON.

The page runs this file in a worker, with the modules of minipipe that it imports, none of which needs NumPy.
All numbers are those of the package; what is decided here is what the settings mean.
"""

import csv
import json
import re
from dataclasses import replace
from fractions import Fraction
from io import StringIO
from itertools import pairwise, product
from math import lcm
from typing import NamedTuple

from minipipe import __version__
from minipipe.checks import whole_number
from minipipe.cluster import COMPUTE, Link, Trace
from minipipe.order import (
    Costs, Schedule, ScheduleError, best_schedule, greedy_schedule, in_copies, simulate, with_all_reduce,
    with_zero,
)
from minipipe.order import names
from minipipe.order.volumes import Volumes, simulate_volumes
from minipipe.plots.canvas import parts_of
from minipipe.plots import sentence
from minipipe.plots.html import blame_finder, html, picture
from minipipe.plots.saving import chrome_trace, plain
from minipipe.schedules import SCHEDULES, build

OWN, GREEDY = "own", {"greedy": False, "greedy-halves": True}  # what a schedule may be, beside a name
TITLES = {OWN: "Your order", "greedy": "Greedy", "greedy-halves": "Greedy in halves"}
FIRST = {
    "schedule": "1f1b", "own": "", "K": 4, "M": 8, "F": "1", "I": "1", "W": "1", "latency": "0",
    "transfer": "0", "alive": None, "D": 1, "zero": 0, "gradients": "0", "T": 1, "activations": "0",
    "profile": None,
}
LONGER, MOST_FOR_LONGER = 2, 512  # up to this K M, the sentence tells of a run with twice the micro-batches

latest = [None, None]  # the `Shown` of each side of the page


# Settings.

def number_of(text):
    """Return 2, "0.1" or "1/3" as the number that it is written as: an int or a `Fraction`."""
    try:
        number = Fraction(str(text).strip())
    except (ValueError, ZeroDivisionError):
        raise ValueError(f"{text!r} is not a number: write for instance 2, 0.1 or 1/3") from None
    return number.numerator if number.denominator == 1 else number


def numbers_of(text):
    """Return "1 1 2 1" as a list of numbers; of one number, that number."""
    numbers = [number_of(word) for word in str(text).replace(",", " ").split()]
    if not numbers:
        raise ValueError("a number is missing: write one, or one for each device, such as 1 1 2 1")
    return numbers[0] if len(numbers) == 1 else numbers


def read(asked):
    """Return the settings with numbers for texts, and with those of `FIRST` that are not given."""
    settings = FIRST | asked
    for name in ("K", "M", "D", "T", "zero"):
        settings[name] = whole_number(name, number_of(settings[name]), 0 if name == "zero" else 1)
    for name in ("latency", "transfer", "gradients", "activations"):
        settings[name] = number_of(settings[name])
    for name in "FIW":
        settings[name] = numbers_of(settings[name])
    settings["alive"] = None if settings["alive"] in (None, "") else numbers_of(settings["alive"])
    return settings


def order_of(settings, costs):
    """Return the `Schedule` of one copy of the network; raise `ValueError` where there is none."""
    name, sizes = settings["schedule"], (settings["K"], settings["M"])
    if name == OWN:
        return build(settings["own"].strip().splitlines() or [""])
    if name in GREEDY:
        limits = dict(most_alive=settings["alive"], latency=settings["latency"])
        return greedy_schedule(*sizes, costs, halves=GREEDY[name], **limits)
    return build(name, *sizes)


def costs_of(settings):
    """Return the `Costs` of F, I and W; if one of them is a list, all are, with a number for each device."""
    given = {kind: settings[kind] for kind in "FIW"}
    lengths = [len(cost) for cost in given.values() if isinstance(cost, list)]
    if not lengths:
        return Costs(**given)
    for kind, cost in given.items():
        given[kind] = cost if isinstance(cost, list) else [cost] * lengths[0]
    return Costs(**given, by="device")


# A table of layers.

class Profile:
    """The ticks and bytes of each stage, out of a table with a row for each layer.

    Every stage has equally many layers, as nearly as they can be cut.
    """

    COLUMNS = ("F", "I", "W", "sent", "activations", "parameters")

    def __init__(self, text, n_stages):
        rows = list(csv.DictReader(StringIO(text.strip()), skipinitialspace=True))
        names = set(rows[0]) if rows else set()
        if not {"F", "I", "W"} <= names or len(rows) < n_stages:
            raise ValueError(
                f"a profile needs the columns F, I, W and a row for each layer, at least {n_stages}: it has "
                f"{len(rows)} rows, with {', '.join(map(str, names)) or 'no column'}; others that count are "
                f"{', '.join(self.COLUMNS[3:])}"
            )
        cuts = [stage * len(rows) // n_stages for stage in range(n_stages + 1)]
        stages = [rows[start:end] for start, end in pairwise(cuts)]
        for name in self.COLUMNS:
            column = [[number_of(row.get(name) or 0) for row in layers] for layers in stages]
            setattr(self, name, [each[-1] if name == "sent" else sum(each) for each in column])


def title_of(name):
    """Return what a sentence calls a schedule."""
    return TITLES.get(name) or names.title_of(name)


# A run.

class Shown(NamedTuple):
    """A run: what was asked for, the order of one copy of the network, its trace, and the answer of `run`."""

    asked: dict
    schedule: Schedule | None
    trace: Trace | None
    answer: dict


def traced(settings, longer=1):
    """Return (the schedule of one copy, the trace of all copies and shards).

    longer: how many times the micro-batches of the settings.
    """
    D, T, latency, transfer = (settings[name] for name in ("D", "T", "latency", "transfer"))
    costs, title = costs_of(settings), title_of(settings["schedule"])
    base = order_of(settings | {"M": settings["M"] * longer}, costs)
    # a link carries `unit` bytes in a tick, so that messages and the parts of exchanges are whole bytes
    ticks = [transfer, settings["activations"], settings["gradients"]]
    unit = Fraction(lcm(*(Fraction(each).denominator for each in ticks)) * lcm(*base.sharing) * D * T)
    sent, profile, held = int(unit * transfer), None, ()
    if settings["profile"]:
        profile = Profile(settings["profile"], base.n_stages)
        costs, held = Costs(profile.F, I=profile.I, W=profile.W), (profile.activations, profile.parameters)
        if any(profile.sent) and transfer:  # bytes of its own; the largest message takes the ticks
            sent, unit = profile.sent, Fraction(max(profile.sent)) / transfer
    costs = replace(costs, message_bytes=sent)
    link = Link(latency, unit) if any(ticks) else Link(latency)
    if D == T == 1 and not profile:
        trace = simulate(base, costs, link, as_far_as_it_goes=True)
        trace.title = title
        return base, trace
    exchanged = ([int(unit * each / n) for n in base.sharing] for each in ticks[1:])
    schedule = copies_of(base.validate(), settings)
    trace = simulate_volumes(schedule, costs, link, Volumes(*exchanged, *held), T)
    trace.title, trace.names = title, names_of(D, T, len(base.devices))
    return base, trace


def copies_of(schedule, settings):
    """Return the order of all copies of the network, with their exchanges."""
    D, level = settings["D"], settings["zero"]
    if level and settings["profile"]:
        raise ValueError("the bytes of a profile are counted without ZeRO: leave one of the two out")
    schedule = in_copies(schedule, D)
    if level:
        return with_zero(schedule, level)
    return with_all_reduce(schedule) if D > 1 and "U" not in schedule.kinds else schedule


def names_of(D, T, K):
    """Return what rows are called where there are copies (d) or shards (t) of the K devices (p); else []."""
    axes = [(letter, size) for letter, size in zip("dpt", (D, K, T)) if size > 1]
    if D == T == 1 or len(axes) < 2:
        return []
    places = product(*(range(size) for _, size in axes))
    words = (" ".join(f"{letter}{n}" for (letter, _), n in zip(axes, place)) for place in places)
    return [f"device {number}: {word}" for number, word in enumerate(words)]


def shown(asked):
    """Return the `Shown` of one side's settings."""
    try:
        settings = read(asked)
        try:
            schedule, trace = traced(settings)
        except ScheduleError:  # of an order that stops, one copy is shown
            schedule, trace = traced(settings | {"D": 1, "T": 1, "zero": 0, "profile": None})
    except ValueError as error:
        faults = listed(getattr(error, "faults", []))
        found = {"faults": faults, "stopped": None} if faults else {"refused": str(error)}
        return Shown(asked, None, None, found)
    found, stop = pictured(settings, schedule, trace), trace.stop
    if stop is not None:
        found |= {"left": sum(map(len, schedule.devices)) - sum(stop.n_done), "stop": [
            {"device": each.device, "position": each.position, "action": str(each.action),
             "waits": each.needs and str(each.needs), "on": each.source, "words": each.words}
            for each in stop.standing.values()
        ]}
        found = {"faults": listed(stop.faults), "stopped": found}
    return Shown(asked, schedule, trace, found)


def listed(faults):
    return [{"device": each.device, "position": each.position, "words": each} for each in faults]


def pictured(settings, schedule, trace):
    """Return the picture of a run, and what the page says beside it."""
    found, limits, K = picture(trace), settings["alive"], len(schedule.devices)
    found["spans"]["action"] = places_in_order(found["spans"], found["rows"], schedule, settings)
    if limits:
        found["memory"]["limits"] = [*map(plain, limits if isinstance(limits, list) else [limits] * K)]
    causes, busy = trace.explain(), {}
    for span in trace.spans:
        if span.lane == COMPUTE:
            kind = "&".join(part.kind for part in parts_of(span.label))
            busy[kind] = busy.get(kind, 0) + span.end - span.start
    return found | {
        "name": schedule.name, "title": trace.title,
        "K": K, "M": schedule.n_microbatches, "D": settings["D"], "T": settings["T"],
        "stages": schedule.n_stages,
        "busy": {kind: plain(ticks) for kind, ticks in busy.items()},
        "causes": {cause: plain(ticks) for cause, ticks in causes.totals().items()},
        "over": [str(each) for each in schedule.faults(limits)] if limits and trace.stop is None else [],
        "explanation": str(causes),
    }


def places_in_order(spans, rows, schedule, settings):
    """Return for each span where its action stands in the line of its device; None for what has no line."""
    if settings["D"] > 1 or settings["T"] > 1:  # an order of one copy is edited alone
        return [None] * len(spans["row"])
    places = [{} for _ in schedule.devices]
    for device, order in enumerate(schedule.devices):
        for place, action in enumerate(order):
            for part in action.parts:
                places[device].setdefault(tuple(part), place)
    keys = zip(spans["row"], spans["kind"], spans["stage"], spans["microbatch"])
    return [places[rows[row][0]].get(tuple(part)) for row, *part in keys]


# What the page asks for: all arguments and answers are texts.

def answer(ask, text, news=None):
    """Return the answer to a message of the page.

    Args:
        ask: a key of `ANSWERS`.
        text: the arguments, as JSON.
        news: a function that a search calls with what it has found so far, as JSON.
    """
    given = json.loads(text) | ({"news": news} if ask == "search" else {})
    return as_text(ANSWERS[ask](**given))


def as_text(found):
    """Return an answer as JSON."""
    return json.dumps(found, allow_nan=False, separators=(",", ":"))


def run(sides):
    """Return the runs of the settings of both sides, of which the second may be None."""
    for side, asked in enumerate(sides):
        if asked is None or latest[side] is None or latest[side].asked != asked:
            latest[side] = asked and shown(asked)
    return {"runs": [each and each.answer for each in latest], "sentence": headline()}


def headline():
    """Return what the first side's run shows, beside the other one and beside a longer one; "" without it."""
    first, second = latest
    if first.trace is None or not first.trace.spans:
        return ""
    rival = second and second.trace
    settings, longer = read(first.asked), None
    is_short = settings["K"] * settings["M"] <= MOST_FOR_LONGER
    if is_short and settings["schedule"] != OWN and settings["D"] == 1:
        _, longer = traced(settings, LONGER)
    return sentence.sentence(first.trace, rival if rival and rival.stop is None else None, longer)


def describe(side, i):
    """Return the words of an idle period, and the numbers of the spans and messages that are to blame."""
    trace = latest[side].trace
    return dict(zip(("words", "blame", "links"), blame_finder(trace)(trace.idle[i])))


def lines(side):
    """Return the order of one copy as a text, as an own order is written."""
    return {"lines": text_of(latest[side].schedule)}


def text_of(schedule):
    """Return an order as it is typed; if each device has the stage of its number, without the stages."""
    lines = [" ".join(map(str, order)) for order in schedule.devices]
    if schedule.placements == [[*range(len(lines))]]:
        lines = [re.sub(rf"\b{device}([A-Z])", r"\1", line) for device, line in enumerate(lines)]
    return "\n".join(lines)


def export(side, **how):
    """Return a file: its name, its type and its text. how: "as", which is csv, html or json."""
    one, ending = latest[side], how["as"]
    kind, write = EXPORTS[ending]
    try:
        return {"name": f"{one.schedule.name}.{ending}", "type": kind, "text": write(one)}
    except ValueError as error:  # PyTorch's table lacks some actions
        return {"refused": str(error)}


EXPORTS = {
    "csv": ("text/csv", lambda one: one.schedule.to_csv()),
    "html": ("text/html", lambda one: html(one.trace, one.trace.title)),
    "json": ("application/json", lambda one: json.dumps(chrome_trace(one.trace))),
}


def search(settings, halves, nodes, seconds, news=None):
    """Return the shortest order with one stage on each device, and what is proved of it.

    news: a function that is called with the same as JSON, of what is found so far.
    """
    try:
        settings = read(settings)
        return certificate(best_schedule(
            settings["K"], settings["M"], costs_of(settings), settings["alive"], halves, settings["latency"],
            nodes, seconds, news and (lambda found: news(as_text(certificate(found)))),
        ))
    except ValueError as error:
        return {"refused": str(error)}


def certificate(found):
    """Return what a search has found, and what it has proved."""
    return {
        "makespan": plain(found.makespan), "exact": str(found.makespan), "bound": plain(found.bound),
        "proved": found.proved, "nodes": found.n_nodes, "lines": text_of(found.schedule),
    }


def known():
    """Return what the page lists before the first run: the schedules, and the version."""
    facts = SCHEDULES.load().facts
    schedules = [
        {"name": name, "title": title_of(name), "family": names.family_of(name), "source": each.source,
         "stages_per_device": each.stages_per_device}
        for name, each in facts.items()
    ]
    schedules += [
        {"name": name, "title": title_of(name), "family": "Made by rules", "source": "",
         "stages_per_device": 1}
        for name in GREEDY
    ]
    return {"schedules": schedules, "version": __version__}


ANSWERS = {
    each.__name__: each for each in (run, describe, lines, export, search, known)
}
