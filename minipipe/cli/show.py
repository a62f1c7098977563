"""The commands `show`, `compare`, `search` and `site`: schedules and simulated runs."""

from argparse import Namespace
from collections.abc import Sequence
from inspect import signature
from pathlib import Path
from typing import Any

from .. import comparison, watching
from ..checks import write_text
from ..cluster import BUBBLES, Link, Trace, describe_path, duration, ticks
from ..order import (
    Costs, Found, Schedule, best_schedule, greedy_schedule, peak_microbatches, simulate, with_recompute,
)
from ..order.csv_format import script_text
from ..order.names import SCHEDULES, is_name, name_of
from ..order.reading import build
from ..plots import text
from ..plots.saving import checked_path, picture_formats
from ..site import write_site
from ..site.playground import serve
from .options import DEVICES, MICROBATCHES

DEFAULT = "gpipe", "1f1b", "zb-h1", "zb-v"  # the schedules of `compare`, if none is given
TEXTS = {  # ending -> function: csv and txt write the schedule, which `build` reads; py a script for PyTorch
    "csv": lambda schedule, *_: schedule.to_csv(),
    "txt": lambda schedule, *_: "".join(f"{' '.join(map(str, order))}\n" for order in schedule.devices),
    "py": lambda schedule, costs, trace: script_text(schedule, costs, trace.makespan),
}
PAGES = "gif", "html", "json"  # endings other than those of pictures
NOTEBOOKS = "notebooks"


def show(options: Namespace) -> None:
    """Print the run of the schedule in `options`; explain and write it, if asked."""
    ending = Path(options.output or "").suffix[1:].lower()
    if options.output:
        known = [ending] if ending in (*TEXTS, *PAGES) else [*picture_formats(), *TEXTS, *PAGES]
        checked_path(options.output, sorted({*known}))
    check_depth([options.schedule], options)
    schedule = with_depth(options.schedule, options)
    if options.recompute:
        schedule = with_recompute(schedule, "always")
    costs, link = machine_of(options)
    trace, title = simulate(schedule, costs, link, as_far_as_it_goes=True), title_of(schedule)
    print(f"{title}\n{trace.sentence()}\n")
    if trace.stop is not None:
        standing = [each.words for each in trace.stop.standing.values()]
        print(f"{text(trace)}\n\nHere it stops:", *standing, sep="\n- ")
        schedule.validate()
    print_trace(trace)
    if options.explain:
        print(f"\n{trace.explain()}\n\nfour shares that are called the bubble:")
        for of, words in BUBBLES.items():
            print(f"{words:40}{float(100 * trace.bubble(of)):.2f} %")
        print(f"\nthe critical path:\n{describe_path(trace.critical_path())}")
    if ending in TEXTS:
        write_text(Path(options.output), TEXTS[ending](schedule, costs, trace))
    elif options.output:
        trace.save(options.output, title)
    if options.output:
        print(f"written: {options.output}")


def compare(options: Namespace) -> None:
    """Print a table of the schedules in `options`; write their picture, if asked."""
    if options.output:
        checked_path(options.output, picture_formats())
    texts = [word for words in options.schedules or DEFAULT for word in words.split(",") if word]
    every = "all" in map(str.lower, texts)
    if every:
        texts = [*SCHEDULES.load(), *(one for one in texts if one.lower() != "all")]
    check_depth(texts, options)
    for one in texts:  # sizes that were not given are those of a file
        if Path(one).suffix in (".csv", ".txt"):
            schedule = build(one)
            if options.devices is None:
                options.devices = len(schedule.devices)
            if options.microbatches is None:
                options.microbatches = schedule.n_microbatches
    costs, link = machine_of(options)
    schedules, refused = [], []
    for one in texts:
        try:
            schedules.append(with_depth(one, options))
        except ValueError as error:
            if not every:
                raise ValueError(f"{one}: {error}") from None
            refused.append(f"{one}: {error}")
    found = comparison.compare(*schedules, costs=costs, link=link)
    K, M = len(schedules[0].devices), schedules[0].n_microbatches
    print(f"{K} devices, {M} micro-batches, costs of a device {options.costs}\n\n{found}")
    for words in refused:
        print(f"left out: {words}")
    if options.output:
        found.save(options.output)
        print(f"written: {options.output}")


def search(options: Namespace) -> None:
    """Print the best schedule for `options`, and what is proved; write it, if asked."""
    if options.output:
        checked_path(options.output, ["csv"])
    if options.stages_per_device != 1 and not options.greedy:
        raise ValueError(
            "--stages-per-device is not for a search with a proof, which has one stage a device: add --greedy"
        )
    K = DEVICES if options.devices is None else options.devices
    M = MICROBATCHES if options.microbatches is None else options.microbatches
    costs, most_alive = Costs.from_text(options.costs), options.most_alive
    if most_alive and len(most_alive) == 1:
        most_alive = most_alive[0]  # for each device
    given = dict(costs=costs, most_alive=most_alive, halves=options.halves, latency=options.latency)
    if options.greedy:
        found, schedule = None, greedy_schedule(K, M, v=options.stages_per_device, **given)
    else:
        found = best_schedule(
            K, M, most_nodes=options.most_nodes, seconds=options.seconds, on_progress=show_found, **given
        )
        watching.show("")
        schedule = found.schedule
    print(title_of(schedule))
    print_trace(simulate(schedule, costs, Link(options.latency)))
    print()
    if found is None:
        print("made by rules, or by name: whether there is a better one, only a search could say")
    else:
        print_proof(found, options.halves, ", in this memory" if most_alive else "")
    if options.output:
        schedule.to_csv(options.output)
        print(f"written: {options.output}")


def show_found(found: Found) -> None:
    """Show on a terminal what a search has `found` so far."""
    watching.show(
        f"{found.n_nodes:,} partial schedules: {ticks(found.makespan)} ticks found, "
        f"none takes fewer than {ticks(found.bound)}"
    )


def print_proof(found: Found, halves: bool, memory: str) -> None:
    """Print what the search has proved.

    Args:
        found: its result.
        halves: whether backwards are split into I and W.
        memory: words about a limit of memory.
    """
    backwards = "backwards in halves" if halves else "whole backwards"
    none = f"no schedule with {backwards} and one stage a device takes fewer than"
    looked_at = f"{found.n_nodes:,} partial schedule{'s' * (found.n_nodes != 1)} looked at"
    if found.proved:
        print(f"proved: {none} {ticks(found.makespan)} ticks{memory} ({looked_at})")
    else:
        print(f"not proved: {ticks(found.makespan)} ticks is the best found, and {none} {ticks(found.bound)}"
              f"{memory}; {looked_at}, --most-nodes and --seconds allow more")
    if not halves:
        print("backwards split into I and W may be faster: add --halves")


def site(options: Namespace) -> None:
    """Write the web site of `options`, and serve it, if asked."""
    default = NOTEBOOKS if Path(NOTEBOOKS).is_dir() else None
    write_site(options.folder, options.notebooks or default, pyodide=options.pyodide)
    if options.serve:
        serve(options.folder)


# The schedule and the machine that options describe, and the print of a run.

def with_depth(what: Any, options: Namespace) -> Schedule:
    """Build the schedule `what` with the sizes in `options`."""
    K, M, V = options.devices, options.microbatches, options.stages_per_device
    if V is None or not is_name(what) or "v" not in signature(SCHEDULES[name_of(what)]).parameters:
        return build(what, K, M)
    return SCHEDULES[name_of(what)](DEVICES if K is None else K, MICROBATCHES if M is None else M, V)


def check_depth(texts: Sequence[str], options: Namespace) -> None:
    """Raise `ValueError` if --stages-per-device changes no schedule of `texts`.

    options: those of the command.
    """
    if options.stages_per_device is None:
        return
    deep = [name for name, make in SCHEDULES.load().items() if "v" in signature(make).parameters]
    if not any(is_name(one) and name_of(one) in deep for one in texts):
        raise ValueError(
            f"--stages-per-device {options.stages_per_device} is for {', '.join(deep)}: other schedules fix "
            "the stages per device, so leave it out"
        )


def machine_of(options: Namespace) -> tuple[Costs, Link]:
    """Return the `Costs` and the `Link` that the options of `add_links` describe."""
    costs = Costs.from_text(options.costs)
    if options.bandwidth is None:
        return costs, Link(options.latency, blocking=options.blocking)
    if not costs.message_bytes:
        raise ValueError(
            f"--bandwidth {options.bandwidth:g} slows nothing down while messages have 0 bytes: "
            f"add message_bytes to --costs, such as {options.costs},message_bytes=1000"
        )
    return costs, Link(options.latency, options.bandwidth, options.blocking)


def title_of(schedule: Schedule) -> str:
    title = f"{schedule.name}, {schedule.n_stages} stages, {schedule.n_microbatches} micro-batches"
    return title if schedule.n_copies == 1 else f"{title}, {schedule.n_copies} copies of the network"


def print_trace(trace: Trace) -> None:
    """Print the timeline of `trace`, its makespan, idle share and peaks."""
    print(f"{text(trace)}\n\nmakespan                                {duration(trace.makespan, trace.unit)}")
    print(f"{'idle, of all devices and ticks':40}{float(100 * trace.bubble()):.2f} %")
    print(f"peak micro-batches per device           {' '.join(map(str, peak_microbatches(trace)))}")
