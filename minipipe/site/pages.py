"""What pages of the site share: the frame around them, and docstrings as HTML."""

import re
from html import escape
from importlib.util import find_spec
from textwrap import dedent

from ..plots.html import filled, resource

PARTS = {"schedules": "Schedules", "reference": "Reference", "notebooks": "Notebooks"}
CODE_STYLES = "default", "github-dark"  # Pygments' styles: light, dark


class Shell:
    """The frame of all pages. parts: those of `PARTS` that the site has."""

    def __init__(self, parts: list[str]) -> None:
        self.parts = parts
        self.template = resource("page.html", __package__)

    def page(self, title: str, body: str, head: str = "", root: str = "") -> str:
        """Return a page of `title`, `body` and `head`; its links begin with `root`."""
        links = {"live/index.html": "Playground", "index.html": "Schedules"}
        links |= {f"{part}/index.html": PARTS[part] for part in self.parts if part != "schedules"}
        nav = "".join(f'<a href="{root}{page}">{name}</a>' for page, name in links.items())
        pieces = {"title": escape(title), "head": head, "root": root, "nav": nav, "body": body}
        return filled(self.template, pieces)

    @staticmethod
    def links(names: list[str], number: int) -> str:
        """Return links from the page of names[number] to the previous and the next."""
        around = {"prev": names[:number][-1:], "next": names[number + 1:][:1]}
        links = [f'<a rel="{rel}" href="{name}.html">{name}</a>' for rel in around for name in around[rel]]
        return f'<p class="links">{" · ".join(links)}</p>'


def as_html(paragraphs: list[str]) -> str:
    """Return paragraphs of a docstring as HTML.

    An indented paragraph is a picture or a formula; "Args:" becomes a list.
    """
    return "\n".join(map(_paragraph, paragraphs))


def _paragraph(text: str) -> str:
    if text.startswith("    "):
        return f"<pre>{escape(dedent(text))}</pre>"
    if not text.startswith("Args:\n"):
        return f"<p>{_prose(text)}</p>"
    arguments = re.split(r"\n(?! )", dedent(text.removeprefix("Args:\n")))  # each has one line or more
    rows = (argument.split(": ", 1) for argument in arguments)
    return f"<dl>{''.join(f'<dt>{names}</dt><dd>{_prose(words)}</dd>' for names, words in rows)}</dl>"


def _prose(text: str) -> str:
    html = escape(" ".join(text.split()))
    html = re.sub(r"`([^`]*)`", r"<code>\1</code>", html)
    return re.sub(r"arXiv (\d{4}\.\d{5})", r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>', html)


def style_of_code() -> str:
    """Return the style sheet of Pygments, for light and dark pages."""
    from pygments.formatters import HtmlFormatter

    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in CODE_STYLES)
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def what_is_missing(packages: tuple[str, ...], extra: str) -> str:
    """Return how to install those `packages` that are missing, by `extra`, or ""."""
    missing = [name for name in packages if find_spec(name) is None]
    return f'{" and ".join(missing)} must be installed: pip install -e ".[{extra}]"' if missing else ""
