"""The API reference: a page for each public name, from its docstring and its code, as pdoc reads them."""

import builtins
import inspect
import re
import sys
from html import escape
from pathlib import Path
from types import ModuleType

import minipipe

from ..checks import write_text
from .pages import Shell, as_html

NEEDED = ("pdoc",)
MORE = [  # modules with a page that `dir(minipipe)` does not list
    "arrays", "collectives", "engines", "experiments", "graph", "layers", "parallel", "partitioning",
    "planning", "rates", "servers",
]
STYLE = '<link rel="stylesheet" href="../code.css">'
WORD = r"(?P<front>(?:mp|minipipe)\.)?(?P<name>\w+)(?:\.(?P<member>\w+))?"
TABLE = re.compile(r"<pre>.*?</pre>", re.DOTALL)
MENTION = re.compile(rf"(?<=<code>){WORD}(?=(?P<call>\()?[^<]*</code>)")
UNREADABLE = {  # in signatures: NumPy's long unions, types with their modules, values as Python shows them
    r"(?m)^( *\w+: ).*_typing\._dtype_like.*?( = .*|,?)$": r"\1DTypeLike\2",
    r"(?m)^( *\w+: ).*_typing\._array_like.*?( = .*|,?)$": r"\1ArrayLike\2",
    r"\b(?:[a-z_]\w*\.)+([A-Z])": r"\1",
    r"<(?:class|function|built-in function) '?([\w.]+)'?[^>]*>": r"\1",
}
PYTHONS = {"", *map(inspect.getdoc, vars(builtins).values())}  # docstrings
ANNOTATION = re.compile(r'(?<=<span class="n">)(?P<name>[A-Z]\w+)(?=</span>)')


def write_reference(folder: Path, shell: Shell) -> int:
    """Write a page for each public name and module, and the table of all; return how many pages there are."""
    folder.mkdir(exist_ok=True)
    reference = Reference()
    names = [*reference.docs]
    for number, name in enumerate(names):
        body = f'<article class="reference">{reference.page(name)}</article>{shell.links(names, number)}'
        write_text(folder / f"{name}.html", shell.page(name, body, STYLE, "../"))
    write_text(folder / "index.html", shell.page("The reference", reference.index(), STYLE, "../"))
    return len(names)


class Reference:
    """What the pages say.

    Attributes:
        docs: {name in `minipipe.__all__` or `MORE`: pdoc's object for it}, the modules
            after all others.
    """

    def __init__(self) -> None:
        names = [*minipipe.__all__, *MORE]
        values = {name: getattr(minipipe, name) for name in names}  # imported when asked for
        names = sorted(names, key=lambda name: inspect.ismodule(values[name]))
        self.docs = {name: _doc_of(name, values[name]) for name in names}
        self._pages = {doc.taken_from: name for name, doc in self.docs.items() if doc.kind != "variable"}

    def index(self) -> str:
        """Return the words of the package, with links, and a table of all names."""
        intro = self._with_links(as_html(str(inspect.getdoc(minipipe)).split("\n\n")), "")
        intro = TABLE.sub(lambda table: re.sub(r"\w+", self._link_of_word, table[0]), intro)
        rows = []
        for name, doc in self.docs.items():
            first = doc.docstring.split("\n\n")[0] or _call_of(doc)
            words = self._with_links(as_html([first]), "")
            rows.append(f'<tr><th scope="row">{_link(name)}</th><td>{words}</td></tr>\n')
        return (
            f'<h1>The reference</h1>\n{intro}\n<div class="wide"><table><thead><tr><th scope="col">name</th>'
            f'<th scope="col">what it does</th></tr></thead><tbody>\n{"".join(rows)}</tbody></table></div>'
        )

    def page(self, name: str) -> str:
        """Return the page of a name, without the frame around it."""
        doc = self.docs[name]
        parts = [f"<h1>minipipe.{name}</h1>", self._text(doc, name)]
        if doc.kind == "module":
            members = [one for one in doc.members.values() if _is_public(one)]
            known = [one for one in members if one.taken_from in self._pages]
            parts += [self._section(one, name) for one in members if one not in known]
            links = ", ".join(_link(self._pages[one.taken_from]) for one in known)
            parts += [f'<p class="links">With pages of their own: {links}</p>'] if known else []
        return "\n".join(parts)

    def _section(self, doc, page: str) -> str:
        """Return the part of a page about a function, class or variable in a room, or a method."""
        title = f'<h2 id="{doc.qualname}">{escape(doc.qualname)}</h2>'
        return f"<section>{title}\n{self._text(doc, page)}</section>"

    def _text(self, doc, page: str) -> str:
        """Return signature, docstring, members and code of anything."""
        html = as_html(doc.docstring.split("\n\n")) if doc.docstring else ""
        def type_of(match: re.Match) -> str:
            return match[0] if match[0] == page else self._link_of_word(match)

        parts = []
        if doc.kind != "module":
            call = ANNOTATION.sub(type_of, _highlighted(_call_of(doc)))
            parts.append(f'<div class="signature">{call}</div>')
        parts.append(self._with_links(html, page))
        if doc.kind == "class":
            parts += self._methods(doc, page)
        if doc.kind in ("class", "function") and "." not in doc.qualname:
            parts.append(f"<details><summary>Its code</summary>{_highlighted(doc.source)}</details>")
        return "\n".join(parts)

    def _methods(self, doc, page: str) -> list[str]:
        """Return the parts about what a class has, and links to what its bases with a page say already."""
        parts, said = [], dict[str, list[str]]()
        for one in filter(_is_public, doc.members.values()):
            base = self._said_by(doc, one)
            if base is None:
                parts.append(self._section(one, page))
            else:
                said.setdefault(base, []).append(
                    f'<a href="{base}.html#{base}.{one.name}"><code>{one.name}</code></a>'
                )
        return parts + [f'<p class="links">As in {_link(base)}: {", ".join(said[base])}</p>' for base in said]

    def _said_by(self, doc, member) -> str | None:
        """Return the last base with a page of its own on which the same is said of `member`, or None."""
        for base in reversed(doc.obj.__mro__[1:]):
            page = self._pages.get((base.__module__, base.__qualname__))
            theirs = page and self.docs[page].get(member.name)
            if theirs and theirs.docstring == member.docstring:
                return page
        return None

    def _link_of_word(self, match: re.Match) -> str:
        """Return a word as a link, if it is a public name."""
        return _link(match[0]) if match[0] in self.docs else match[0]

    def _with_links(self, html: str, page: str) -> str:
        """Return HTML with a link from each mention of a public name, but for that of the page itself."""
        def link(match: re.Match) -> str:
            name, member, doc = match["name"], match["member"], self.docs.get(match["name"])
            is_sure = name[0].isupper() or any(match.group("front", "member", "call"))
            if doc is None or name == page or not is_sure:  # `fit` may be an argument
                return match[0]
            part = doc.get(member) if member and doc.kind in ("class", "module") else None
            own = part is not None and self._pages.get(part.taken_from)
            place = f"#{part.qualname}" if part is not None and not own and _is_public(part) else ""
            return f'<a href="{own or name}.html{place}">{match[0]}</a>'

        return MENTION.sub(link, html)


def _doc_of(name: str, value: object):
    """Return pdoc's object for a public value; that of a constant is in the file that documents it."""
    from pdoc.doc import Module

    if isinstance(value, ModuleType):
        return Module.from_name(value.__name__)
    if inspect.isclass(value) or inspect.isroutine(value):
        return Module.from_name(value.__module__).get(value.__qualname__)
    files = [module for place, module in [*sys.modules.items()]
             if place.startswith("minipipe.") and vars(module).get(name) is value]
    found = [Module(module).get(name) for module in files]
    return next(doc for doc in found if doc is not None and doc.docstring)


def _is_public(doc) -> bool:
    """Tell whether this is ours and says something, other than what Python says of a dict or a field."""
    said = doc.docstring not in PYTHONS and not doc.docstring.startswith("Alias for field number")
    return said and doc.taken_from[0].startswith("minipipe") and not doc.name.startswith("_")


def _call_of(doc) -> str:
    """Return how a function or class is called, or the value of a constant."""
    if doc.kind == "variable":
        return f"{doc.qualname}{doc.annotation_str}{doc.default_value_str and f' = {doc.default_value_str}'}"
    function, call = doc, doc.qualname
    if doc.kind == "class":
        function, call = doc.get("__init__"), f"class {doc.qualname}"
    if function:
        is_method = next(iter(function.signature.parameters), "") == "self"
        call += str(function.signature_without_self if is_method else function.signature)
    for pattern, short in UNREADABLE.items():
        call = re.sub(pattern, short, call)
    return call


def _link(name: str) -> str:
    return f'<a href="{name}.html">{name}</a>'


def _highlighted(code: str) -> str:
    from pygments import highlight
    from pygments.formatters import HtmlFormatter
    from pygments.lexers import PythonLexer

    return highlight(code, PythonLexer(), HtmlFormatter())
