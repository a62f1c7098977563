"""What a page says about a schedule: the words of its builder's docstring, so that they are written once."""

import inspect
import re
from html import escape
from typing import NamedTuple

from ..schedules import SCHEDULES


class Words(NamedTuple):
    """What a page says about a schedule, as HTML.

    idea: the first paragraph of the docstring.
    rule: the others, with the picture of the order and the closed forms.
    source: the papers, as the schedule states them.
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
    builder, source = SCHEDULES[name], SCHEDULES.facts[name].source
    idea, *rule = inspect.getdoc(builder).split("\n\n")
    _, *family = inspect.getdoc(inspect.getmodule(builder)).split("\n\n")
    return Words(*map(as_html, ([idea], rule, [source], family)))


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
