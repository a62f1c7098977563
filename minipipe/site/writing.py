"""The files of the site: playground, schedules, reference and notebooks."""

import inspect
import shutil
from collections.abc import Callable
from html import escape
from pathlib import Path

import minipipe

from ..checks import function, write_text
from ..order import peak_microbatches, simulate
from ..plots import text
from ..plots.html import filled, framed, resource
from ..schedules import SCHEDULES, build
from . import notebooks as notebooks_as_pages
from . import playground
from .pages import PARTS, Shell, as_html, style_of_code, what_is_missing

MARK = '<meta name="generator" content="minipipe site">'  # in an index that may be overwritten
UNFINISHED = f"""<!doctype html>{MARK}<title>An unfinished site</title>
<p>This site is being written. If that was interrupted, write it again.</p>
"""
NO_NOTEBOOKS = "no folder of notebooks was found: pass --notebooks FOLDER"
MORE = [  # modules in the reference that `dir(minipipe)` does not list
    "arrays", "collectives", "engines", "experiments", "graph", "layers", "parallel", "partitioning",
    "planning", "rates", "servers",
]


def write_site(
    folder: str | Path, notebooks: str | Path | None = None, pyodide: str | Path | None = None,
    report: Callable = print,
) -> None:
    """Write the site; all but its playground needs no server and no network.

    Args:
        folder: a new one, an empty one, or one with a site, whose folders live,
            schedules, reference and notebooks are emptied first.
        notebooks: the folder of the notebooks, which become pages if nbconvert and
            latex2mathml are installed; if None, there are no such pages.
        pyodide: the folder of the unpacked npm package `pyodide`, for the playground;
            if None, browsers load it from the public address `playground.PYODIDE`.
        report: called with a line for each thing that is done or left out.

    pdoc writes the reference, if it is installed.

    Raises:
        ValueError: `folder` has other files; the folder of notebooks has none, is in
            `folder`, or has a file that is not a notebook; the folder of Pyodide lacks
            a file. Nothing is written then.
    """
    function("report", report)
    folder = checked_folder(folder)
    paths = checked_notebooks(notebooks, folder)
    pyodide = None if pyodide is None else playground.checked_pyodide(pyodide)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "index.html", UNFINISHED)
    for name in ("live", *PARTS):
        if (folder / name).exists():
            shutil.rmtree(folder / name)
    write_text(folder / "site.css", resource("site.css", __package__))
    missing = {
        "reference": what_is_missing(("pdoc",), "docs"),
        "notebooks": what_is_missing(notebooks_as_pages.NEEDED, "notebooks") if paths else NO_NOTEBOOKS,
    }
    shell = Shell([part for part in PARTS if not missing.get(part)])
    if "notebooks" in shell.parts:
        write_text(folder / "code.css", style_of_code())
    size = playground.write_playground(folder / "live", pyodide)
    source = "this folder" if pyodide else playground.PYODIDE
    report(f"playground            {size / 1e6:.1f} MB for its engine, from {source}")
    rows = write_schedules(folder / "schedules", shell)
    report(f"pages of schedules    {len(SCHEDULES)}")
    pages = {
        "reference": write_reference,
        "notebooks": lambda place: notebooks_as_pages.write_notebooks(paths, place, shell),
    }
    for part, write in pages.items():
        done = f"none: {missing[part]}" if missing[part] else write(folder / part)
        report(f"{f'pages of {part}':22}{done}")
    body = filled(resource("schedules.html", __package__), {"rows": "\n".join(rows), "count": str(len(rows))})
    write_text(folder / "index.html", shell.page("minipipe: pipeline schedules", body, MARK))
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    report(f"written: {folder / 'index.html'}, {size / 1e6:.1f} MB with all that belongs to it")


def words_of(name: str) -> dict[str, str]:
    """Return what the page of the schedule `name` says, as HTML.

    idea, rule: the first paragraph of its builder's docstring, and the others.
    source: its papers.
    family: the docstring of its module, without the first line.

    >>> words_of("1f1b")["idea"]
    '<p>Warm up, then a forward and a backward in turn (1F1B, PipeDream-flush, DAPPLE).</p>'
    """
    builder, source = SCHEDULES[name], SCHEDULES.facts[name].source
    idea, *rule = str(inspect.getdoc(builder)).split("\n\n")
    _, *family = str(inspect.getdoc(inspect.getmodule(builder))).split("\n\n")
    words = {"idea": [idea], "rule": rule, "source": [source], "family": family}
    return {piece: as_html(paragraphs) for piece, paragraphs in words.items()}


def write_schedules(folder: Path, shell: Shell) -> list[str]:
    """Write each schedule's page in `shell` into `folder`; return rows of a table."""
    folder.mkdir()
    names, rows = [*SCHEDULES.load()], []
    for number, name in enumerate(names):
        body, row = page_of_schedule(name)
        body += shell.links(names, number)
        write_text(folder / f"{name}.html", shell.page(name, body, root="../"))
        rows.append(row)
    return rows


def page_of_schedule(name: str) -> tuple[str, str]:
    """Return (page, row of the table) of the schedule `name`, as HTML."""
    K, M = playground.SIZES.values()
    words, trace = words_of(name), simulate(build(name, K, M))
    body = filled(resource("schedule.html", __package__), words | {
        "name": name, "K": str(K), "M": str(M), "text": escape(text(trace)),
        "run": framed(trace, f"{name}: {K} devices, {M} micro-batches"),
    })
    cells = (f"{trace.makespan:g}", f"{100 * trace.bubble():.2f} %", max(peak_microbatches(trace)))
    head = f'<th scope="row"><a href="schedules/{name}.html">{name}</a></th>'
    numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
    return body, f"<tr>{head}<td>{words['idea']}</td>{numbers}</tr>"


def write_reference(folder: Path) -> int:
    """Let pdoc write its pages into `folder`; return their number."""
    from pdoc import pdoc, render

    for name in minipipe.__all__:
        getattr(minipipe, name)  # pdoc reads what has been imported
    render.configure(docformat="google", include_undocumented=False, show_source=False)
    pdoc("minipipe", *(f"minipipe.{name}" for name in MORE), output_directory=folder)
    return len([*folder.rglob("*.html")])


def checked_folder(folder: str | Path) -> Path:
    """Return `folder` as a `Path`; raise `ValueError` if it has other files."""
    folder = Path(folder).expanduser()
    if folder.exists() and not folder.is_dir():
        raise ValueError(f"cannot write a site to {folder}: it is a file; name a folder")
    index = folder / "index.html"
    is_site = index.is_file() and MARK in index.read_text(encoding="utf-8", errors="replace")
    if folder.exists() and any(folder.iterdir()) and not is_site:
        raise ValueError(
            f"cannot write a site to {folder}, which holds {len([*folder.iterdir()])} other files: "
            f"name a new folder or an empty one, such as {folder / 'site'}"
        )
    return folder


def checked_notebooks(folder: str | Path | None, site: Path) -> list[Path]:
    """Return the notebooks in `folder`, by name.

    Raises:
        ValueError: there are none, one is not a notebook, or `folder` is in `site`.
    """
    paths = [] if folder is None else sorted(Path(folder).expanduser().glob("*.ipynb"))
    if folder is not None and not paths:
        raise ValueError(f"there are no notebooks in {folder}: name a folder with files *.ipynb, or none")
    if paths and paths[0].resolve().is_relative_to(site.resolve()):
        raise ValueError(
            f"the notebooks in {folder} lie in the site, {site}, which is emptied: "
            "move one of them"
        )
    for path in paths:
        notebooks_as_pages.cells_of(path)
    return paths
