"""What options say of a schedule and of the machine that it runs on, and what is printed of a run."""

import runpy
import sys
from dataclasses import replace
from inspect import signature
from pathlib import Path

from ..checks import write_whole
from ..cluster import Link, duration
from ..order import Costs, Schedule, peak_microbatches
from ..order.names import SCHEDULES, build, is_name, name_of
from ..order.schedule import copies_of
from ..parallel import Parallel
from ..parallel.options import Machine, Memory, Split, Weights
from ..plots import text
from .options import DEVICES, MICROBATCHES


def schedule_of(what, K=None, M=None):
    """Return the `Schedule` that a text says; it may have faults.

    what: a name; a file, .csv or .txt; or FILE.py:FUNCTION, whose function makes of (device, K, M) the list
        of a device's actions, such as [("F", 0), ("B", 0)] or ["F0", "B0"].
    K, M: how many devices and micro-batches; by default those of the file, or 4 and 8.
    """
    path, _, function = what.rpartition(":")
    if path.endswith(".py"):
        return _from_function(path, function, DEVICES if K is None else K, MICROBATCHES if M is None else M)
    if not what.endswith((".csv", ".txt")):
        return build(what, DEVICES if K is None else K, MICROBATCHES if M is None else M)
    if not Path(what).is_file():
        raise ValueError(f"cannot read {what}: there is no such file; show 1f1b --output {what} writes one")
    if what.endswith(".csv"):
        schedule = Schedule.from_csv(what, M, Path(what).stem)
    else:
        schedule = Schedule.from_text(Path(what).read_text(encoding="utf-8"), M, Path(what).stem)
        copies = copies_of(schedule.devices)
        if copies:
            schedule = replace(schedule, copy_of=copies, n_microbatches=len(copies))
    if K not in (None, len(schedule.devices)):
        raise ValueError(f"-K {K}, but {what} has {len(schedule.devices)} devices: leave -K out")
    return schedule


def _from_function(path, name, K, M):
    """Return the `Schedule` of a function in a Python file, which finds the modules that lie beside it."""
    if not Path(path).is_file():
        raise ValueError(f"cannot read {path}: there is no such file")
    sys.path.insert(0, str(Path(path).parent))
    lines = []
    try:
        function = runpy.run_path(path).get(name)
        for device in range(K if function else 0):
            order = function(device, K, M)
            lines.append(" ".join(one if isinstance(one, str) else "{}{}".format(*one) for one in order))
    except Exception as error:  # of somebody else's code
        raise ValueError(f"{path}:{name} with K={K}, M={M}: {type(error).__name__}: {error}") from None
    finally:
        sys.path.remove(str(Path(path).parent))
    if function is None:
        raise ValueError(f"there is no function {name!r} in {path}")
    return Schedule.from_text(lines, M, name)


def with_depth(what, options):
    """Return the schedule that `schedule_of` makes, with --stages-per-device where its name takes that."""
    K, M, V = options.devices, options.microbatches, options.stages_per_device
    if V is None or not is_name(what) or "v" not in signature(SCHEDULES[name_of(what)]).parameters:
        return schedule_of(what, K, M)
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


def network(layers, loss, D, T, K, M, schedule, recompute="never", engine="cluster", seed=0, dtype="float64"):
    """Return the network that D x T x K devices train: the one place where options become a `Parallel`.

    K: its stages.
    M: the micro-batches of all copies together.
    """
    return Parallel(
        layers, loss, Split(D, T, K, M), schedule, Memory(recompute), on=Machine(engine),
        weights=Weights(seed, dtype),
    )
