"""A run as a file: a picture, a film, a page, or what a trace viewer reads."""

import json
import os

from ..checks import path_of, write_whole
from ..cluster import SHOWS
from ..cluster.trace import check_trace
from .animation import animate
from .canvas import new_figure
from .chrome import chrome_trace
from .html import html
from .timeline import timeline_figure

DOTS_PER_INCH = 150  # of pictures
OTHERS = {  # ending -> a function (trace, path, title), beside those of pictures
    "gif": lambda trace, path, title: animate(trace, title=title).save(path, writer="pillow"),
    "html": lambda trace, path, title: path.write_text(html(trace, title), encoding="utf-8"),
    "json": lambda trace, path, title: path.write_text(json.dumps(chrome_trace(trace)), encoding="utf-8"),
}


@SHOWS(gives="a file")
def save(trace, path, title=None):
    """Write a run into a file, whole or not at all.

    trace: the run.
    path: its ending says as what: .png, .pdf, .svg or another picture of matplotlib's; .gif, a film; .html,
        the page with a slider over the ticks; .json, for ui.perfetto.dev.
    title: above a picture.
    """
    check_trace(trace)
    path = checked_path(path, sorted({*picture_formats(), *OTHERS}))
    ending = path.suffix[1:].lower()
    write = OTHERS.get(ending, _as_picture)
    write_whole(path, lambda beside: write(trace, beside, title))


def _as_picture(trace, path, title):
    timeline_figure(trace, title).savefig(path, dpi=DOTS_PER_INCH)


def picture_formats() -> list[str]:
    """Return the endings of pictures that matplotlib writes."""
    return sorted(new_figure(1, 1).canvas.get_supported_filetypes())


def checked_path(path, endings=None):
    """Return `path`; raise `ValueError` if no file can be written there, or its name has another ending.

    endings: those that will do; by default, any.
    """
    path = path_of("path", path)
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: it is a folder, or this user may not write there")
    if endings is not None and path.suffix[1:].lower() not in endings:
        raise ValueError(f"cannot write {path}: its name must end in one of .{', .'.join(endings)}")
    return path
