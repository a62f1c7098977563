"""A run as a cell of a notebook shows it: the player of its web page, and a still picture."""

from base64 import b64encode
from html import escape
from io import BytesIO

from ..arguments import argument
from ..cluster import SHOWS
from ..order import Schedule, ScheduleError
from ..order.simulate import simulate
from .html import html
from .timeline import timeline_figure


@SHOWS(gives="HTML")
def player(run):
    """HTML with the page of `run`: a `Trace`, or a `Schedule`, which is simulated with its standard costs.

    The page stands in a frame of its own. So no key, name or style of it meets those of the notebook or of
    another player. Where no script runs, as on GitHub, the frame stays closed, and the still picture that
    stands before it is what is seen. Of a schedule that cannot run, the HTML says why.

    >>> from minipipe.schedules import gpipe
    >>> player(gpipe(2, 3)).count("<iframe ")
    1
    """
    try:
        trace, title = _traced(run)
    except ScheduleError as error:
        return f"<pre>{escape(str(error))}</pre>"
    picture = b64encode(_drawn(trace, title)).decode()
    page = html(trace, title=title).replace("&", "&amp;").replace('"', "&quot;")
    return (
        f'<div><img alt="{escape(repr(run))}" style="max-width: 100%" src="data:image/png;base64,{picture}">'
        f'<iframe class="minipipe" title="Player" style="width: 100%; height: 0; border: 0" srcdoc="{page}">'
        "</iframe></div>"
    )


@SHOWS(gives="the bytes of a PNG")
def still(run):
    """The timeline of `run`, a `Trace` or a `Schedule`, as the bytes of a PNG; None if it cannot run."""
    try:
        return _drawn(*_traced(run))
    except ScheduleError:
        return None


def _traced(run):
    """(its trace, the title of its picture)"""
    return (simulate(run), run.name) if isinstance(run, Schedule) else (argument("player.run", run), None)


def _drawn(trace, title):
    file = BytesIO()
    timeline_figure(trace, title).savefig(file, format="png")
    return file.getvalue()
