"""Notebooks as pages: HTML by nbconvert, formulas as MathML by latex2mathml."""

import json
import re
from base64 import b64decode
from functools import cache
from html import escape
from operator import methodcaller
from pathlib import Path

from ..checks import write_text, write_whole
from .pages import Shell
from .playground import PORT

NEEDED = ("nbconvert", "latex2mathml")
INDEX = """<h1>The notebooks</h1>
<p>As they were run last. What comes out below a <b>Predict</b> is folded away: predict, then open it.
To run them, change them and solve the exercises, install minipipe.</p>
"""


def write_notebooks(paths: list[Path], folder: Path, shell: Shell) -> int:
    """Write a page for each notebook of `paths` into `folder`; return their number.

    `shell` is around them. Their pictures and an index are in `folder`, too.
    """
    folder.mkdir(exist_ok=True)
    names = [path.stem for path in paths]
    titles = []
    for number, path in enumerate(paths):
        title, body, pictures = page_of_notebook(path)
        titles.append(title)
        for name, picture in pictures.items():
            write_whole(folder / name, methodcaller("write_bytes", picture))
        body = f'<article class="notebook">{body}</article>{shell.links(names, number)}'
        head = '<link rel="stylesheet" href="../code.css">'
        write_text(folder / f"{path.stem}.html", shell.page(title, body, head, "../"))
    items = [f'<li><a href="{name}.html">{escape(title)}</a></li>' for name, title in zip(names, titles)]
    body = f"{INDEX}<ul>{''.join(items)}</ul>"
    write_text(folder / "index.html", shell.page("The notebooks", body, root="../"))
    return len(paths)


def cells_of(path: Path) -> list[dict]:
    """Return the cells of the notebook `path`; raise `ValueError` if it has none."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))["cells"]
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"{path} is not a notebook: {type(error).__name__}: {error}") from None


def page_of_notebook(path: Path) -> tuple[str, str, dict[str, bytes]]:
    """Return (title, cells as HTML, {name: PNG bytes}) of the notebook `path`."""
    cells, pictures = cells_of(path), dict[str, bytes]()
    parts = [
        markdown("".join(cell["source"])) if cell["cell_type"] == "markdown"
        else _code(cell, f"{path.stem}_{number}", pictures)
        for number, cell in enumerate(cells, 1)
    ]
    body = re.sub(r'(href="\d\d_\w+)\.ipynb', r"\1.html", "\n".join(parts))
    body = body.replace('href="README.md"', 'href="index.html"')  # the list of all notebooks
    body = body.replace(f"http://127.0.0.1:{PORT}/live/", "../live/")  # the playground of this site
    for link in set(re.findall(r'src="([^":]+)"', body)) - set(pictures):  # of a file beside the notebooks
        name = f"{path.stem}_{Path(link).name}"
        pictures[name] = (path.parent / link).read_bytes()
        body = body.replace(f'src="{link}"', f'src="{name}"')
    heading = re.search(r"^# (.*)", "".join(cells[0]["source"]), re.MULTILINE)
    return heading[1] if heading else path.stem, body, pictures


def markdown(source: str) -> str:
    """Return the Markdown `source` as HTML, with formulas as MathML."""
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        def inline_math(self, body):
            return _formula(body, "inline")

        def block_math(self, body):
            return f'<div class="formula">{_formula(body, "block")}</div>'

    return MarkdownWithMath(renderer=Renderer(escape=False, exclude_anchor_links=True)).render(source)


@cache
def _formula(tex, display):
    from latex2mathml.converter import convert

    return convert(tex, display=display)


def _code(cell, name, pictures):
    """Return a cell of code and its outputs as HTML; add its pictures to `pictures`.

    The first of folded outputs is the summary of the others.
    """
    from nbconvert.filters import Highlight2HTML

    outputs, code = cell["outputs"], Highlight2HTML(pygments_lexer="ipython3")("".join(cell["source"]))
    if outputs and cell["metadata"].get("jupyter", {}).get("outputs_hidden"):
        summary = "".join(outputs[0]["data"]["text/plain"])
        shown = _outputs(outputs[1:], name, pictures)
        return f"{code}<details><summary>{escape(summary)}</summary>{shown}</details>"
    return code + _outputs(outputs, name, pictures)


def _outputs(outputs, name, pictures):
    return "".join(_output(output, f"{name}_{i}.png", pictures) for i, output in enumerate(outputs, 1))


def _output(output, name, pictures):
    """Return one output as HTML: its picture, else its HTML, else its text."""
    from nbconvert.filters import ansi2html

    data = output.get("data", {})
    words = "".join(data.get("text/plain", output.get("text", output.get("traceback", ""))))
    if "image/png" in data:
        pictures[name] = b64decode("".join(data["image/png"]))
        return f'<div class="output"><img src="{name}" alt="{escape(words)}"></div>'
    shown = "".join(data["text/html"]) if "text/html" in data else f"<pre>{ansi2html(words)}</pre>"
    return f'<div class="output">{shown}</div>'
