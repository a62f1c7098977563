"""Progress of long work, as one line on stderr, in a terminal or a notebook."""

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

PATIENCE, PAUSE = 1.0, 0.25  # seconds before the line appears, and between two updates of it


class _Line:
    """The line: its text, whether it may be shown, and whether some work uses it."""

    text, watched, taken = "", False, False

    def show(self, text):
        if text or self.text:
            wiped = "" if text else "\r"
            print(f"\r{text.ljust(len(self.text))}{wiped}", end="", file=sys.stderr, flush=True)
        self.text = text


_line = _Line()


@contextmanager
def watched(wanted: bool = True) -> Iterator[None]:
    """Show progress in this block, if `wanted`, in a terminal or a notebook."""
    before, stream = (_line.watched, _line.taken), sys.stderr  # stderr may be closed, or None
    if wanted and stream is not None and not getattr(stream, "closed", False):
        of_notebook = type(stream).__module__.startswith("ipykernel.")
        _line.watched = _line.watched or of_notebook or stream.isatty()
    try:
        yield
    finally:
        _line.show("")
        _line.watched, _line.taken = before


def with_progress(things: Sequence, what: str) -> Iterable:
    """Yield `things`; inside `watched`, show how many of them are done.

    Args:
        things: a sequence.
        what: their name, in the plural.

    In nested loops, only the progress of the outer one is shown.
    """
    return _shown(things, what) if _line.watched and not _line.taken else things


def show(text: str) -> None:
    """Inside `watched`, show `text` as the progress; an empty text clears the line."""
    if _line.watched and not _line.taken:
        _line.show(text)


def say(text: str) -> None:
    """Clear the line of the progress, and print `text`."""
    _line.show("")
    print(text, flush=True)


def _shown(things, what):
    n, begin = len(things), time.perf_counter()
    due = begin + PATIENCE
    _line.taken = True
    try:
        for done, thing in enumerate(things):
            now = time.perf_counter()
            if done and now >= due:
                due = now + PAUSE
                left = text_of_duration((now - begin) / done * (n - done))
                _line.show(f"{done:,} of {n:,} {what}, {left} left")
            yield thing
    finally:
        _line.show("")
        _line.taken = False


def text_of_duration(seconds: float) -> str:
    """Return `seconds` as a text with at most two units.

    >>> text_of_duration(3.2), text_of_duration(100), text_of_duration(9000)
    ('3 s', '1 min 40 s', '2 h 30 min')
    """
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {seconds} s" if minutes else f"{seconds} s"
