"""What a page says about a schedule: the words of its builder's docstring, so that they are written once."""

import inspect
import re
from html import escape
from typing import NamedTuple

from ..schedules import ASYNCHRONOUS, BUILDERS, LATE_W

WRITTEN_AT = {  # name -> (the schedule with an argument that makes this one, what the argument does)
    "gpipe-fifo": ("gpipe", "This one runs the first micro-batch back first."),
    "pipedream-vertical": ("pipedream", "With vertical sync, every stage uses the version of stage 0."),
}
SOURCE = re.compile(r"\s*Source(?: of all)?: (.*)", re.DOTALL)


class Words(NamedTuple):
    """What a page says about a schedule, as HTML.

    idea: the first paragraph of the docstring.
    rule: the others, with the picture of the order and the closed forms.
    source: the papers that the docstring names, or else those of its module.
    family: the words of the module, about the schedules in it.
    """

    idea: str
    rule: str
    source: str
    family: str


def words_of(name):
    """The `Words` about the schedule called `name`.

    >>> words_of("1f1b").idea
    '<p>Warm up, then one forward and one backward in turn (1F1B, PipeDream-flush, DAPPLE).</p>'
    """
    written_at, more = WRITTEN_AT.get(name, (name, ""))
    builder = (BUILDERS | LATE_W | ASYNCHRONOUS)[written_at]
    idea, *rule = inspect.getdoc(builder).split("\n\n")
    _, *family = inspect.getdoc(inspect.getmodule(builder)).split("\n\n")
    rule, own = _without_source(rule)
    family, shared = _without_source(family)
    return Words(*map(as_html, ([f"{idea} {more}"], rule, [own or shared], family)))


def as_html(paragraphs):
    """Paragraphs of a docstring as HTML: with an indent, they are pictures; papers are links."""
    return "\n".join(map(_paragraph, paragraphs))


def _paragraph(text):
    if text.startswith("    "):
        return f"<pre>{escape(inspect.cleandoc(text))}</pre>"
    html = escape(" ".join(text.split()))
    html = re.sub(r"`([^`]*)`", r"<code>\1</code>", html)
    html = re.sub(r"arXiv (\d{4}\.\d{5})", r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>', html)
    return f"<p>{html}</p>"


def _without_source(paragraphs):
    """(`paragraphs` without what begins with "Source:", that as one text or "")"""
    kept, sources = [], []
    for text in paragraphs:
        found = SOURCE.search(text)
        sources += [" ".join(found[1].split())] if found else []
        rest = SOURCE.sub("", text)
        kept += [rest] if rest.strip() else []
    return kept, " ".join(sources)
