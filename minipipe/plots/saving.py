"""A run as a file: a picture, a film, a page, or what a trace viewer reads."""

import json
import os
from io import BytesIO
from pathlib import Path

from ..checks import write_whole
from ..cluster import SHOWS
from ..cluster.trace import check_trace
from .canvas import new_figure
from .chrome import chrome_trace
from .html import html
from .timeline import timeline_figure

# The film: time sweeps over the timeline.

N_FRAMES = 100
INTERVAL = 100  # milliseconds for which a frame is seen
HOLD = 1000     # the same for the last one, before the film begins again
LINE = 2        # pixels of the axis below, which the sheet leaves free


def film(trace, path, title=None):
    """Write a GIF: the run appears as a line sweeps over time, a hundredth of the run in each frame.

    trace: the run; `ValueError` if nothing took time in it.
    path: of the file.
    title: above the picture.

    The picture is drawn once, and in each frame a white sheet covers what is still to come.
    """
    from matplotlib import rc_context
    from PIL import Image, ImageDraw

    if not trace.makespan:
        raise ValueError("nothing took time in this run: there is no film of it")
    figure = timeline_figure(trace, title)
    drawn = BytesIO()
    with rc_context({"savefig.bbox": None}):  # a cut margin would move the sheet
        figure.savefig(drawn, format="png", dpi=figure.dpi)
    picture = Image.open(drawn).convert("RGB")
    inside = figure.axes[0].get_window_extent()  # in pixels, counted from the bottom
    top, bottom = picture.height - inside.y1, picture.height - inside.y0 - LINE
    frames = []
    for number in range(N_FRAMES + 1):
        frame, now = picture.copy(), inside.x0 + inside.width * number / N_FRAMES
        draw = ImageDraw.Draw(frame)
        draw.rectangle((now, top, picture.width, bottom), fill="white")
        draw.line((now, top, now, bottom), fill="#202020")
        frames.append(frame)
    durations = [INTERVAL] * N_FRAMES + [HOLD]
    frames[0].save(path, "gif", save_all=True, append_images=frames[1:], duration=durations, loop=0)


# The file.

DOTS_PER_INCH = 150  # of pictures
OTHERS = {  # ending -> a function (trace, path, title), beside those of pictures
    "gif": film,
    "html": lambda trace, path, title: path.write_text(html(trace, title), encoding="utf-8"),
    "json": lambda trace, path, title: path.write_text(json.dumps(chrome_trace(trace)), encoding="utf-8"),
}


@SHOWS()
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

    def picture(trace, path, title):
        timeline_figure(trace, title).savefig(path, dpi=DOTS_PER_INCH)

    write = OTHERS.get(ending, picture)
    write_whole(path, lambda beside: write(trace, beside, title))


def picture_formats() -> list[str]:
    """Return the endings of pictures that matplotlib writes."""
    return sorted(new_figure(1, 1).canvas.get_supported_filetypes())


def checked_path(path, endings=None):
    """Return `path`; raise `ValueError` if no file can be written there, or its name has another ending.

    endings: those that will do; by default, any.
    """
    path = Path(path).expanduser()
    if not path.parent.is_dir():
        raise ValueError(f"cannot write {path}: there is no folder {path.parent}")
    if path.is_dir() or not os.access(path if path.exists() else path.parent, os.W_OK):
        raise ValueError(f"cannot write {path}: it is a folder, or this user may not write there")
    if endings is not None and path.suffix[1:].lower() not in endings:
        raise ValueError(f"cannot write {path}: its name must end in one of .{', .'.join(endings)}")
    return path
