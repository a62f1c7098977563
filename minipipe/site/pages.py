"""What all pages of the site share: the frame around them, docstrings and code as HTML, and files."""

import re
from html import escape
from importlib import resources
from importlib.util import find_spec
from textwrap import dedent

from ..plots.html import filled

PARTS = {"schedules": "Schedules", "reference": "Reference", "notebooks": "Notebooks"}
CODE_STYLES = {"light": "default", "dark": "github-dark"}  # of Pygments


class Shell:
    """What all pages have around them: the links to the others, the style and the script.

    Args:
        parts: those of `PARTS` that the site has.
    """

    def __init__(self, parts: list[str]) -> None:
        self.parts = parts
        self.template = resource("page.html")

    def page(self, title: str, body: str, head: str = "", root: str = "") -> str:
        """Return a whole page. root: the way from it to the folder of the site, "" or "../"."""
        links = {"live/index.html": "Playground", "index.html": "Schedules"}
        links |= {f"{part}/index.html": PARTS[part] for part in self.parts if part != "schedules"}
        nav = "".join(f'<a href="{root}{page}">{name}</a>' for page, name in links.items())
        pieces = {"title": escape(title), "head": head, "root": root, "nav": nav, "body": body}
        return filled(self.template, pieces)

    @staticmethod
    def links(names: list[str], number: int) -> str:
        """Return links from the page of one of `names` to those before and after it, in the same folder."""
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
    arguments = re.split(r"\n(?! )", dedent(text.removeprefix("Args:\n")))  # of one line or more
    rows = (argument.split(": ", 1) for argument in arguments)
    return f"<dl>{''.join(f'<dt>{names}</dt><dd>{_prose(words)}</dd>' for names, words in rows)}</dl>"


def _prose(text: str) -> str:
    html = escape(" ".join(text.split()))
    html = re.sub(r"`([^`]*)`", r"<code>\1</code>", html)
    return re.sub(r"arXiv (\d{4}\.\d{5})", r'<a href="https://arxiv.org/abs/\1">arXiv \1</a>', html)


def style_of_code() -> str:
    """Return the colours of Pygments, by day and by night."""
    from pygments.formatters import HtmlFormatter

    light, dark = (HtmlFormatter(style=style).get_style_defs(".highlight") for style in CODE_STYLES.values())
    return f"{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def what_is_missing(packages: tuple[str, ...], extra: str) -> str:
    """Return what to install if one of `packages` is missing, else "". extra: the one that has them."""
    missing = [name for name in packages if find_spec(name) is None]
    return f'{" and ".join(missing)} must be installed: pip install -e ".[{extra}]"' if missing else ""


def resource(name: str) -> str:
    """Return the text of a file that lies beside this module."""
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")
