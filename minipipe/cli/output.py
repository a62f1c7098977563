"""What commands print of a trace, and the files that they write."""

import os
from pathlib import Path

from ..cluster import BUBBLES, duration
from ..order import peak_microbatches
from ..plots import text
from ..plots.canvas import new_figure
from ..plots.timeline import timeline_figure

DOTS_PER_INCH = 150  # of pictures


def title_of(schedule, n_shards=1):
    parts = [f"{schedule.name}, {schedule.n_stages} stages, {schedule.n_microbatches} micro-batches"]
    parts += [f"{schedule.n_copies} copies of the network"] * (schedule.n_copies > 1)
    parts += [f"{n_shards} shards of each stage"] * (n_shards > 1)
    return ", ".join(parts)


def devices_of(options, devices):
    """How many devices there are, and how they share the work. devices: those of one copy and shard."""
    D, T = options.replicas, options.shards
    if D * T == 1:
        return f"{devices} devices"
    return f"{D * T * devices} devices: {D} replicas x {T} shards x {devices}"


def print_trace(trace):
    """The timeline in characters, and what can be counted in it."""
    print(f"{text(trace)}\n\nmakespan                                {duration(trace.makespan, trace.unit)}")
    for of, words in BUBBLES.items():
        print(f"{f'bubble, {words}':40}{float(100 * trace.bubble(of)):.2f} %")
    print(f"peak micro-batches per device           {' '.join(map(str, peak_microbatches(trace)))}")


def save(trace, path, title):
    """The timeline as a picture in the file `path`, drawn without any display."""
    write(timeline_figure(trace, title), path)


def picture_formats():
    return sorted(new_figure(1, 1).canvas.get_supported_filetypes())


def checked_picture(path):
    """`path`, or `ValueError` if no picture can be written there; worth knowing before a long job."""
    return checked_path(path, picture_formats())


def checked_path(path, endings=None):
    """`path`, or `ValueError` if no file can be written there, or its name has another ending.

    By default, any ending will do.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: it is a folder, or this user may not write there")
    if endings is not None and path.suffix[1:].lower() not in endings:
        raise ValueError(f"cannot write {path}: its name must end in one of .{', .'.join(endings)}")
    return path


def write(figure, path):
    figure.savefig(path, dpi=DOTS_PER_INCH)
    print(f"written: {path}")
