"""The playground's engine: settings come in as JSON; pictures, words and files go out.

The page runs this file in a worker, with the modules that it imports; none needs NumPy.
All numbers are the package's; this file says what the settings mean.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from fractions import Fraction
from functools import partial
from typing import NamedTuple

from minipipe.cluster import Trace
from minipipe.order import Costs, Found, Schedule, ScheduleError, best_schedule, greedy_schedule
from minipipe.order.names import SCHEDULES, family_of, title_of
from minipipe.order.simulate import simulate_split
from minipipe.plots.html import blame_finder, html, picture, plain
from minipipe.plots.saving import chrome_trace
from minipipe.plots.sentence import sentence
from minipipe.schedules import build

OWN, GREEDY = "own", {"greedy": False, "greedy-halves": True}  # what a schedule may be, beside a name
TITLES = {OWN: "Your order", "greedy": "Greedy", "greedy-halves": "Greedy in halves"}
WORDS = {"schedule": "1f1b", "own": "", "profile": None, "alive": None}  # the settings that are no numbers
FIRST = WORDS | dict(
    K=4, M=8, F=1, I=1, W=1, latency=0, transfer=0, D=1, zero=0, gradients=0, T=1, activations=0
)
LONGER, MOST_FOR_LONGER = 2, 512  # up to this K M, the sentence tells of a run with twice the micro-batches

latest: list = [None, None]  # the `Shown` of each side of the page


# Settings.

def number_of(text: object) -> int | Fraction | list:
    """Return `text` ("2", "1/3") as an int or a `Fraction`; "1 2 1" as a list."""
    words = str(text).replace(",", " ").split()
    try:
        fractions = list(map(Fraction, words))
    except (ValueError, ZeroDivisionError):
        fractions = []
    if not fractions:
        raise ValueError(f"{text!r} is not a number: write 2, 0.1 or 1/3, or one for each device: 1 1 2 1")
    numbers = [each.numerator if each.denominator == 1 else each for each in fractions]
    return numbers[0] if len(numbers) == 1 else numbers


def read(asked: dict) -> dict:
    """Return the settings `asked`, with numbers, and `FIRST` for the missing ones."""
    settings = FIRST | asked
    numbers = {name: number_of(settings[name]) for name in FIRST if name not in WORDS}
    return settings | numbers | {"alive": number_of(settings["alive"]) if settings["alive"] else None}


def order_of(settings: dict, costs: Costs) -> Schedule:
    """Return the `Schedule` of one replica by `settings`, if greedy for `costs`."""
    name, sizes = settings["schedule"], (settings["K"], settings["M"])
    if name == OWN:
        return build(settings["own"].strip().splitlines() or [""])
    if name in GREEDY:
        limits = dict(most_alive=settings["alive"], latency=settings["latency"])
        return greedy_schedule(*sizes, costs, halves=GREEDY[name], **limits)
    return build(name, *sizes)


def costs_of(settings: dict) -> Costs:
    """Return the `Costs` in `settings`: by device, if F, I or W is a list."""
    given = {kind: settings[kind] for kind in "FIW"}
    lengths = [len(cost) for cost in given.values() if isinstance(cost, list)]
    if not lengths:
        return Costs(**given)
    for kind, cost in given.items():
        given[kind] = cost if isinstance(cost, list) else [cost] * lengths[0]
    return Costs(**given, by="device")


# A run.

class Shown(NamedTuple):
    """What was asked, the order of one replica, its trace, and the answer of `run`."""

    asked: dict
    schedule: Schedule | None
    trace: Trace | None
    answer: dict


def traced(settings: dict, longer: int = 1) -> tuple[Schedule, Trace]:
    """Return (the schedule of one replica, the trace of all replicas and shards).

    Args:
        settings: with numbers for texts, as `read` gives them.
        longer: how many times the micro-batches of the settings.
    """
    costs = costs_of(settings)
    schedule = order_of(settings | {"M": settings["M"] * longer}, costs)
    given = {name: settings[name] for name in ("zero", "gradients", "activations", "profile")}
    split = {"copies": settings["D"], "shards": settings["T"]}
    trace = simulate_split(schedule, costs, settings["latency"], settings["transfer"], **split, **given)
    trace.title = TITLES.get(settings["schedule"]) or title_of(settings["schedule"])
    return schedule, trace


def shown(asked: dict) -> Shown:
    """Return the `Shown` of the settings `asked` of one side."""
    try:
        settings = read(asked)
        try:
            schedule, trace = traced(settings)
        except ScheduleError:  # an order that stops is shown with one replica
            schedule, trace = traced(settings | {"D": 1, "T": 1, "zero": 0, "profile": None})
    except ValueError as error:
        faults = listed(getattr(error, "faults", []))
        found: dict = {"faults": faults, "stopped": None} if faults else {"refused": str(error)}
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


def listed(faults: list) -> list[dict]:
    """Return `faults` as JSON has them."""
    return [{"device": each.device, "position": each.position, "words": each} for each in faults]


def pictured(settings: dict, schedule: Schedule, trace: Trace) -> dict:
    """Return the picture of `trace`, with more about `settings` and `schedule`."""
    found, limits, K = picture(trace), settings["alive"], len(schedule.devices)
    found["spans"]["action"] = [None] * len(found["spans"]["row"])
    if settings["D"] == settings["T"] == 1:  # only an order without replicas and shards can be edited
        found["spans"]["action"] = places_in_order(found["spans"], found["rows"], schedule)
    each_limit = limits if isinstance(limits, list) else [limits] * K
    is_limited = limits is not None
    found["memory"]["limits"] = [*map(plain, each_limit)] if is_limited else None
    return found | {
        "name": schedule.name,
        "K": K, "M": schedule.n_microbatches, "D": settings["D"], "T": settings["T"],
        "stages": schedule.n_stages,
        "over": [str(each) for each in schedule.faults(limits)] if is_limited and trace.stop is None else [],
    }


def places_in_order(spans: dict, rows: list, schedule: Schedule) -> list:
    """Return each span's index in the order of its device, or None.

    Args:
        spans, rows: of a picture.
        schedule: the order of one replica.
    """
    places: list[dict] = [{} for _ in schedule.devices]
    for device, order in enumerate(schedule.devices):
        for place, action in enumerate(order):
            for part in action.parts:
                places[device].setdefault(tuple(part), place)
    keys = zip(spans["row"], spans["kind"], spans["stage"], spans["microbatch"])
    return [places[rows[row][0]].get(tuple(part)) for row, *part in keys]


# What the page asks for: all arguments and answers are texts.

def answer(ask: str, text: str, news: Callable | None = None) -> str:
    """Return the answer to a message of the page.

    Args:
        ask: a key of `ANSWERS`.
        text: the arguments, as JSON.
        news: a function that a search calls with what it has found so far.
    """
    given = json.loads(text) | ({"news": news} if ask == "search" else {})
    return as_text(ANSWERS[ask](**given))


as_text = partial(json.dumps, allow_nan=False, separators=(",", ":"))


def run(sides: list) -> dict:
    """Return the runs of the settings in `sides`; the second may be None."""
    for side, asked in enumerate(sides):
        if asked is None or latest[side] is None or latest[side].asked != asked:
            latest[side] = asked and shown(asked)
    return {"runs": [each and each.answer for each in latest], "sentence": headline()}


def headline() -> str:
    """Return a sentence that compares the first run with the second and a longer."""
    first, second = latest
    if first.trace is None or not first.trace.spans:
        return ""
    rival = second and second.trace
    settings, longer = read(first.asked), None
    is_short = settings["K"] * settings["M"] <= MOST_FOR_LONGER
    if is_short and settings["schedule"] != OWN and settings["D"] == 1:
        with suppress(ValueError):  # a schedule need not exist for as many micro-batches
            _, longer = traced(settings, LONGER)
    return sentence(first.trace, rival if rival and rival.stop is None else None, longer)


def describe(side: int, i: int) -> dict:
    """Return the words of idle period `i` of `side`, and the spans to blame."""
    trace = latest[side].trace
    return dict(zip(("words", "blame"), blame_finder(trace, trace.explain())(trace.idle[i])))


def lines(side: int) -> dict:
    """Return {"lines": the order of the newest run on `side`, as a user types it}."""
    return {"lines": text_of(latest[side].schedule)}


def text_of(schedule: Schedule) -> str:
    """Return `schedule` as one types it, without stages if each device has its own."""
    lines = [" ".join(map(str, order)) for order in schedule.devices]
    if schedule.placements == [[*range(len(lines))]]:
        lines = [re.sub(rf"\b{device}([A-Z])", r"\1", line) for device, line in enumerate(lines)]
    return "\n".join(lines)


def export(side: int, **how: str) -> dict:
    """Return {name, type, text} of a file of `side`. how: {"as": csv, html or json}."""
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


def search(settings: dict, halves: bool, nodes: int, seconds: float, news: Callable | None = None) -> dict:
    """Return the shortest order with one stage per device, and what is proved of it.

    Args:
        settings: of one side.
        halves: whether each backward is split into I and W.
        nodes, seconds: the limits of the search.
        news: a function that is called with the same, as JSON, during the search.
    """
    try:
        settings = read(settings)
        return certificate(best_schedule(
            settings["K"], settings["M"], costs_of(settings), settings["alive"], halves, settings["latency"],
            nodes, seconds, news and (lambda found: news(as_text(certificate(found)))),
        ))
    except ValueError as error:
        return {"refused": str(error)}


def certificate(found: Found) -> dict:
    """Return what a search has `found`, and what it has proved."""
    return {
        "makespan": plain(found.makespan), "bound": plain(found.bound),
        "proved": found.proved, "nodes": found.n_nodes, "lines": text_of(found.schedule),
    }


def known() -> dict:
    """Return what the page lists before the first run: the schedules."""
    families = {name: family_of(name) for name in SCHEDULES.load()} | dict.fromkeys(GREEDY, "made by rules")
    rows = [
        {"name": name, "title": TITLES.get(name) or title_of(name), "family": family}
        for name, family in families.items()
    ]
    return {"schedules": rows}


ANSWERS = {
    each.__name__: each for each in (run, describe, lines, export, search, known)
}
