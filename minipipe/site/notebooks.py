"""Notebooks as pages: HTML by nbconvert, formulas as MathML by latex2mathml."""

import json
import re
from base64 import b64encode
from functools import cache
from html import escape
from pathlib import Path

from ..checks import write_text
from .pages import Shell
from .playground import PORT

NEEDED = ("nbconvert", "latex2mathml")
INDEX = """<h1>The notebooks</h1>
<p>As they were run last. What comes out below a <b>Predict</b> is folded away: predict, then open it.
To run them, change them and solve the exercises, install minipipe.</p>
"""


def write_notebooks(paths: list[Path], folder: Path, shell: Shell) -> int:
    """Write a page in `shell` for each notebook of `paths` into `folder`, and an index.

    Return the number of notebooks.
    """
    folder.mkdir(exist_ok=True)
    names = [path.stem for path in paths]
    titles = []
    for number, path in enumerate(paths):
        title, body = page_of_notebook(path)
        titles.append(title)
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


def page_of_notebook(path: Path) -> tuple[str, str]:
    """Return (title, cells as HTML with pictures) of the notebook `path`."""
    cells = cells_of(path)
    body = "\n".join(
        markdown("".join(cell["source"])) if cell["cell_type"] == "markdown" else _code(cell)
        for cell in cells
    )
    body = re.sub(r'(href="\d\d_\w+)\.ipynb', r"\1.html", body)
    body = body.replace('href="README.md"', 'href="index.html"')  # the list of all notebooks
    body = body.replace(f"http://127.0.0.1:{PORT}/live/", "../live/")  # the playground of this site
    for link in set(re.findall(r'src="([^":]+)"', body)):  # a picture in a file
        picture = b64encode((path.parent / link).read_bytes()).decode()
        body = body.replace(f'src="{link}"', f'src="data:image/png;base64,{picture}"')
    heading = re.search(r"^# (.*)", "".join(cells[0]["source"]), re.MULTILINE)
    return heading[1] if heading else path.stem, body


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


def _code(cell):
    """Return a cell of code and its outputs as HTML; a summary folds outputs away."""
    from nbconvert.filters import Highlight2HTML

    outputs, code = cell["outputs"], Highlight2HTML(pygments_lexer="ipython3")("".join(cell["source"]))
    if outputs and cell["metadata"].get("jupyter", {}).get("outputs_hidden"):
        summary = escape("".join(outputs[0]["data"]["text/plain"]))
        shown = "".join(map(_output, outputs[1:]))
        return f"{code}<details><summary>{summary}</summary>{shown}</details>"
    return code + "".join(map(_output, outputs))


def _output(output):
    """Return one output as HTML: its picture, else its HTML, else its text."""
    from nbconvert.filters import ansi2html

    data = output.get("data", {})
    words = "".join(data.get("text/plain", output.get("text", output.get("traceback", ""))))
    shown = "".join(data["text/html"]) if "text/html" in data else f"<pre>{ansi2html(words)}</pre>"
    if "image/png" in data:
        picture = "".join("".join(data["image/png"]).split())
        shown = f'<img src="data:image/png;base64,{picture}" alt="{escape(words)}">'
    return f'<div class="output">{shown}</div>'
