"""The API reference: every public name has its page, and every docstring stands in it, word for word."""

import builtins
import inspect
import re
from functools import cache
from html import unescape

import pytest

import minipipe as mp
from minipipe.site import reference
from minipipe.site.pages import Shell, as_html, what_is_missing

MISSING = what_is_missing(reference.NEEDED, "docs")
if MISSING:
    pytest.skip(MISSING, allow_module_level=True)


pytestmark = pytest.mark.filterwarnings("error:Error parsing type annotation")
NAMES = [*mp.__all__, *reference.MORE]
PYTHONS = {inspect.getdoc(value) for value in vars(builtins).values()}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """Return {name: its page}, with that of the index."""
    folder = tmp_path_factory.mktemp("site") / "reference"
    reference.write_reference(folder, Shell(["schedules", "reference"]))
    return {path.stem: path.read_text(encoding="utf-8") for path in folder.glob("*.html")}


@cache
def words(html):
    """Return what a page says, without tags, code and spaces."""
    text = re.sub(r"<details>.*?</details>", "", html, flags=re.DOTALL)
    return squeezed(unescape(re.sub("<[^>]*>", "", text)))


def squeezed(text):
    """Return a text without spaces, and without the colons and backticks that a page turns into tags."""
    return re.sub(r"[\s:`]", "", text)


def said(docstring):
    """Return the paragraphs of a docstring as `words` has them."""
    return [squeezed(re.sub("(?m)^- ", "", paragraph)) for paragraph in docstring.split("\n\n")]


def test_every_public_name_has_a_page_linked_in_the_index(pages):
    assert pages.keys() == {*NAMES, "index"}
    for name in NAMES:
        assert re.findall("<h1>(.*?)</h1>", pages[name]) == [f"minipipe.{name}"], name
        assert f'<th scope="row"><a href="{name}.html">{name}</a></th>' in pages["index"], name


@pytest.mark.parametrize("name", NAMES)
def test_the_docstring_of_every_name_is_on_its_page(pages, name):
    value = getattr(mp, name)
    paragraphs = said(inspect.getdoc(value))
    place = 0
    for paragraph in paragraphs:
        assert paragraph in words(pages[name]), f"{name}: the page lacks {paragraph}"
        place = words(pages[name]).index(paragraph, place)


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.isclass(getattr(mp, name))])
def test_every_method_is_explained_with_its_class_or_a_base(pages, name):
    kind = getattr(mp, name)
    methods = {key: inspect.getdoc(value) for key, value in inspect.getmembers(kind)
               if key[0] != "_" and (inspect.isroutine(value) or isinstance(value, property))}
    for key, docstring in methods.items():
        link = re.search(rf'href="(\w+)\.html#\w+\.{key}"><code>{key}<', pages[name])
        page, place = (link[1], f"{link[1]}.{key}") if link else (name, f"{name}.{key}")
        theirs = hasattr((), key) or hasattr(Exception, key) or docstring in PYTHONS
        if docstring and not theirs:
            assert f'id="{place}"' in pages[page], f"{name}.{key} has no place"
            assert all(paragraph in words(pages[page]) for paragraph in said(docstring)), f"{name}.{key}"


@pytest.mark.parametrize("name", [name for name in NAMES if inspect.ismodule(getattr(mp, name))])
def test_what_a_room_has_is_on_its_page_or_has_its_own(pages, name):
    room = getattr(mp, name)
    for key in getattr(room, "__all__", []):
        value = getattr(room, key)
        if inspect.isclass(value) or inspect.isroutine(value):
            own_page = any(getattr(mp, each) is value for each in NAMES)
            expected = f'<a href="{key}.html">{key}</a>' if own_page else f'id="{value.__name__}"'
            assert expected in pages[name], f"{name}.{key}"


def test_nothing_is_explained_in_the_words_of_python(pages):
    for name, page in pages.items():
        found = [own for own in (dict.__doc__, str.__doc__, tuple.count.__doc__, "Alias for field number")
                 if squeezed(own) in words(page)]
        assert not found, f"{name}: {found}"


def test_every_link_leads_to_a_place(pages):
    for name, page in pages.items():
        names = re.findall(r' id="([^"]*)"', page)
        assert len(names) == len({*names}), f"{name}: two places have one name"
        for target, place in re.findall(r'href="(\w+)\.html#?([^"]*)"', page):
            found = target in pages and (not place or f' id="{place}"' in pages[target])
            assert found, f"{name} links to {target}#{place}"


def test_signatures_are_readable_and_lead_to_the_types(pages):
    signatures = re.findall(r'<div class="signature">(.*?)</pre>', "".join(pages.values()), re.DOTALL)
    assert len(signatures) > 500
    for signature in signatures:
        text = unescape(re.sub("<[^>]*>", "", signature))
        assert not re.search(r"_typing|0x|<(class|function)", text) and 'class="err"' not in signature, text
    line = "schedule: str | PathLike | Schedule | Sequence | Callable = '1f1b',"
    assert squeezed(line) in words(pages["Pipeline"])
    assert '<a href="Schedule.html">Schedule</a>' in pages["Pipeline"]
    line = "build(what: object, devices: int | None = None, microbatches: int"
    assert squeezed(line) in words(pages["schedules"])


def test_a_mention_is_a_link_where_it_can_mean_nothing_else(pages):
    """`fit` is an argument here and a function there, so only a class, a call or a room in front is sure."""
    written = reference.Reference()
    html = as_html(["`Linear`, `fit`, `fit(...)`, `mp.fit`, `order`, `order.simulate`, `Layer.part`"])
    links = re.findall(r'<a href="([^"]*)">([^<]*)<', written._with_links(html, "Sequential"))
    assert links == [("Linear.html", "Linear"), ("fit.html", "fit"), ("fit.html", "mp.fit"),
                     ("simulate.html", "order.simulate"), ("Layer.html#Layer.part", "Layer.part")]


@pytest.mark.parametrize("text, html", [
    ("One `two` < *three*,\narXiv 1811.06965.", '<p>One <code>two</code> &lt; *three*, '
     '<a href="https://arxiv.org/abs/1811.06965">arXiv 1811.06965</a>.</p>'),
    ("    F0 F1\n      F0", "<pre>F0 F1\n  F0</pre>"),
    (">>> 1 < 2\nTrue", "<pre>&gt;&gt;&gt; 1 &lt; 2\nTrue</pre>"),
    ("W, b: arrays,\n    or None.\n*args: more.",
     "<dl><dt><code>W, b</code></dt><dd>arrays, or None.</dd><dt><code>*args</code></dt><dd>more.</dd></dl>"),
    ("Args:\n    W, b: arrays,\n        or None.\n    more: a flag.",
     "<h3>Args</h3>\n<dl><dt><code>W, b</code></dt><dd>arrays, or None.</dd><dt><code>more</code></dt>"
     "<dd>a flag.</dd></dl>"),
    ("Returns:\n    Two arrays, of `int`.", "<h3>Returns</h3>\n<p>Two arrays, of <code>int</code>.</p>"),
    ("Two ways:\n- one,\n  long\n- two", "<p>Two ways:</p><ul><li>one, long</li><li>two</li></ul>"),
    ("A line: this\nis prose: it has no names.", "<p>A line: this is prose: it has no names.</p>"),
])
def test_each_form_of_a_paragraph_has_its_html(text, html):
    assert as_html([text]) == html
