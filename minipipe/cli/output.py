"""What commands print of a trace, and the files that they write."""

from pathlib import Path

from ..checks import write_whole
from ..cluster import duration
from ..order import peak_microbatches
from ..plots import text
from ..plots.saving import DOTS_PER_INCH, checked_path, picture_formats
from ..plots.timeline import timeline_figure


def title_of(schedule):
    parts = [f"{schedule.name}, {schedule.n_stages} stages, {schedule.n_microbatches} micro-batches"]
    parts += [f"{schedule.n_copies} copies of the network"] * (schedule.n_copies > 1)
    return ", ".join(parts)


def describe_devices(devices, D, T=1):
    """How many devices there are, and how they share the work. devices: those of one copy and shard."""
    if D * T == 1:
        return f"{devices} devices"
    return f"{D * T * devices} devices: {D} replicas x {T} shards x {devices}"


def print_trace(trace):
    """The timeline in characters, and what can be counted in it."""
    print(f"{text(trace)}\n\nmakespan                                {duration(trace.makespan, trace.unit)}")
    print(f"{'idle, of all devices and ticks':40}{float(100 * trace.bubble()):.2f} %")
    print(f"peak micro-batches per device           {' '.join(map(str, peak_microbatches(trace)))}")


def save_timeline(trace, path, title):
    """The timeline as a picture in the file `path`, drawn without any display."""
    save_figure(timeline_figure(trace, title), path)


def checked_picture(path):
    """`path`, or `ValueError` if no picture can be written there; worth knowing before a long job."""
    return checked_path(path, picture_formats())


def save_figure(figure, path):
    write_whole(Path(path), lambda beside: figure.savefig(beside, dpi=DOTS_PER_INCH))
    print(f"written: {path}")
