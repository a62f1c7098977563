"""`minipipe timeline`: a schedule as text and picture; also what other commands print of a trace."""

import os
from pathlib import Path

from ..cluster import Link
from ..pipeline import simulate
from ..plots import text
from ..plots.timeline import timeline
from ..schedules import Costs, STAGES_PER_DEVICE, Schedule, build, peak_microbatches, with_recompute


def run(options):
    path = checked_path(options.output)
    if options.order:
        schedule = Schedule.from_text(options.order)
    else:
        n_stages = options.devices * STAGES_PER_DEVICE.get(options.schedule, 1)
        schedule = build(options.schedule, n_stages, options.micro_batches)
    if options.recompute:
        schedule = with_recompute(schedule)
    link = Link(latency=options.latency)
    if float(link.latency).is_integer():
        link = Link(latency=int(link.latency))  # so that ticks stay whole numbers
    trace = simulate(schedule, Costs.from_text(options.costs), link)
    title = f"{schedule.name}, {schedule.n_stages} stages, {schedule.n_microbatches} micro-batches"
    print(title)
    print_trace(trace)
    save(trace, path, title)


def print_trace(trace):
    """The timeline in characters, and what can be counted in it."""
    print(text(trace))
    print()
    print(f"makespan                                {trace.makespan:g} ticks")
    print(f"bubble, idle / total time               {100 * trace.bubble('total'):.2f} %")
    print(f"bubble, idle / ideal (computing) time   {100 * trace.bubble('ideal'):.2f} %")
    print(f"bubble, idle inside each device's span  {100 * trace.bubble('span'):.2f} %")
    print(f"peak micro-batches per device           {' '.join(map(str, peak_microbatches(trace)))}")


def save(trace, path, title):
    """The timeline as a picture in the file `path`, drawn without any display."""
    figure = drawing_of(trace.makespan, trace.n_devices)
    timeline(trace, ax=figure.add_subplot(), title=title)
    write(figure, path)


def drawing_of(makespan, n_rows, height=0.45):
    """An empty figure, wide enough for `makespan` ticks and high enough for `n_rows` rows."""
    from matplotlib.figure import Figure

    return Figure(figsize=(min(16, max(6.5, 0.24 * makespan + 1)), height * n_rows + 1.1), layout="constrained", dpi=150)


def checked_path(path):
    """`path`, or `ValueError` if no picture can be written there; worth knowing before a long job."""
    from matplotlib.figure import Figure

    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: it is a folder, or this user may not write there")
    formats = sorted(Figure().canvas.get_supported_filetypes())
    if path.suffix[1:].lower() not in formats:
        raise ValueError(f"cannot write {path}: its name must end in one of .{', .'.join(formats)}")
    return path


def write(figure, path):
    figure.savefig(path)
    print(f"written: {path}")
