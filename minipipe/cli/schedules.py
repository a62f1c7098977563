"""What options say of a schedule and of the machine that it runs on, and what is printed of a run."""

from inspect import signature
from pathlib import Path

from ..checks import write_whole
from ..cluster import Link, duration
from ..order import Costs, peak_microbatches
from ..order.names import SCHEDULES, is_name, name_of
from ..order.reading import build
from ..plots import text
from .options import DEVICES, MICROBATCHES


def with_depth(what, options):
    """Return the schedule that `build` makes, with --stages-per-device where its name takes that."""
    K, M, V = options.devices, options.microbatches, options.stages_per_device
    if V is None or not is_name(what) or "v" not in signature(SCHEDULES[name_of(what)]).parameters:
        return build(what, K, M)
    return SCHEDULES[name_of(what)](DEVICES if K is None else K, MICROBATCHES if M is None else M, V)


def check_depth(texts, options):
    """Raise `ValueError` for --stages-per-device where it changes none of the schedules."""
    if options.stages_per_device is None:
        return
    deep = [name for name, make in SCHEDULES.load().items() if "v" in signature(make).parameters]
    if not any(is_name(one) and name_of(one) in deep for one in texts):
        raise ValueError(
            f"--stages-per-device {options.stages_per_device} is for {', '.join(deep)}: another schedule "
            "says itself how many stages a device has, so leave it out"
        )


def machine_of(options):
    """Return the `Costs` and the `Link` of `add_links`."""
    costs = Costs.from_text(options.costs)
    if options.bandwidth is None:
        return costs, Link(options.latency, blocking=options.blocking)
    if not costs.message_bytes:
        raise ValueError(
            f"--bandwidth {options.bandwidth:g} slows nothing down while messages have 0 bytes: "
            f"add message_bytes to --costs, such as {options.costs},message_bytes=1000"
        )
    return costs, Link(options.latency, options.bandwidth, options.blocking)


def title_of(schedule):
    title = f"{schedule.name}, {schedule.n_stages} stages, {schedule.n_microbatches} micro-batches"
    return title if schedule.n_copies == 1 else f"{title}, {schedule.n_copies} copies of the network"


def print_trace(trace):
    """Print the timeline in characters, and what can be counted in it."""
    print(f"{text(trace)}\n\nmakespan                                {duration(trace.makespan, trace.unit)}")
    print(f"{'idle, of all devices and ticks':40}{float(100 * trace.bubble()):.2f} %")
    print(f"peak micro-batches per device           {' '.join(map(str, peak_microbatches(trace)))}")


def write_text(path, words):
    """Write a text file whole or not at all, and say so."""
    write_whole(Path(path), lambda beside: beside.write_text(words, encoding="utf-8", newline="\n"))
    print(f"written: {path}")
