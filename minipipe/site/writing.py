"""The files of the site: its runs and their numbers, all from the cluster, and pages about the schedules."""

import inspect
import json
import shutil
import zlib
from base64 import b64encode
from dataclasses import dataclass
from html import escape
from itertools import product
from pathlib import Path

from ..checks import function, write_text
from ..cluster import BUBBLES, Link
from ..order import Costs, peak_microbatches, simulate
from ..plots import text
from ..plots.html import filled, page_data, page_pieces, template
from ..plots.saving import plain
from ..schedules import SCHEDULES, build
from . import notebooks as notebooks_as_pages
from . import playground, reference
from .pages import PARTS, Shell, as_html, resource, style_of_code, what_is_missing


# Which runs the site has, and their numbers.

SCHEDULE_NAMES = tuple(SCHEDULES)
HALVES = {"I", "W", "W*"}  # kinds of action: a schedule without any does not depend on the share of W


@dataclass(frozen=True)
class Grid:
    """The settings that a visitor can choose. Of each schedule there is a run for every combination.

    names: of schedules.
    devices, microbatches: the K and the M.
    shares: the parts of B that W takes; I takes the others.
    latencies: ticks that a message takes.

    A forward takes 1 tick and a backward 2, of a device's share of the network.
    """

    names: tuple = SCHEDULE_NAMES
    devices: tuple = (2, 4, 8)
    microbatches: tuple = (4, 8, 16)
    shares: tuple = (0.25, 0.375, 0.5)
    latencies: tuple = (0, 0.5, 1, 2)


def schedules_of(name, grid):
    """Return ({(K, M): the schedule}, {(K, M): why there is none}) for the sizes of `grid`."""
    found, refused = {}, {}
    for sizes in product(grid.devices, grid.microbatches):
        try:
            found[sizes] = build(name, *sizes)
        except ValueError as error:
            refused[sizes] = str(error)
    return found, refused


def runs_of(schedule, grid):
    """Return {(share of W, latency): the trace}; where the order has no halves, the share is None."""
    shares = grid.shares if HALVES & set(schedule.kinds) else (None,)
    traces = {}
    for share, latency in product(shares, grid.latencies):
        costs = Costs(F=1, B=2) if share is None else Costs(F=1, B=2, W=2 * share)
        traces[share, latency] = simulate(schedule, costs, Link(latency=latency))
    return traces


def numbers_of(trace):
    """Return what tables show of a run: [makespan, bubbles, peaks, number of messages, {cause: idle ticks}].

    The bubbles are those of `BUBBLES`, the peaks each device's most micro-batches alive; the causes are those
    of `trace.explain()`.
    """
    causes = {cause: plain(idle) for cause, idle in trace.explain().totals().items()}
    bubbles = [float(trace.bubble(of)) for of in BUBBLES]
    return [plain(trace.makespan), bubbles, peak_microbatches(trace), len(trace.messages), causes]


# The pages.

MARK = '<meta name="generator" content="minipipe site">'  # in the index of a folder that may be written again
UNFINISHED = f"""<!doctype html>{MARK}<title>An unfinished site</title>
<p>This site is being written. If that was interrupted, write it again.</p>
"""
STANDARD = (4, 8)  # K and M on the page of a schedule; if the grid has others, its first ones
ASSETS = ("site.css", "site.js")
NO_NOTEBOOKS = "no folder of notebooks was found: pass --notebooks FOLDER"
FOLDERS = ("data", *PARTS, "live")


def write_site(folder, notebooks=None, grid=Grid(), report=print, pyodide=None):
    """Write the site of the runs in `grid` to `folder`; it needs no server and no network.

    Args:
        folder: a new one, an empty one, or one with a site. Of a site, all files in the folders data,
            schedules, reference and notebooks go first, so that no page stays of what is no longer there.
            Until all pages are written, index.html says so.
        notebooks: the folder of the notebooks, which become pages if nbconvert and latex2mathml are
            installed; without it, or without them, the site has no such pages.
        grid: the settings of its runs.
        report: is called with a line for each thing that is done or left out.
        pyodide: the folder of the unpacked npm package `pyodide`, which the playground's engine then comes
            from; without it, browsers load it from the public address in `playground.PYODIDE`.

    The reference has a page for each public name if pdoc is installed.

    Raises:
        ValueError: the folder has other files; the folder of notebooks has none, lies in `folder`, or has a
            file that is not a notebook. Nothing is written then.
    """
    function("report", report)
    folder = checked_folder(folder)
    paths = checked_notebooks(notebooks, folder)
    pyodide = pyodide and playground.checked_pyodide(pyodide)
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "index.html", UNFINISHED)
    for name in FOLDERS:
        if (folder / name).exists():
            shutil.rmtree(folder / name)
    for name in FOLDERS[:2]:
        (folder / name).mkdir()
    for name in ASSETS:
        write_text(folder / name, resource(name))
    write_text(folder / "data" / "player.js", f"site.template = {json.dumps(template())};\n")
    missing = {
        "reference": what_is_missing(reference.NEEDED, "docs"),
        "notebooks": what_is_missing(notebooks_as_pages.NEEDED, "notebooks") if paths else NO_NOTEBOOKS,
    }
    shell = Shell([part for part in PARTS if not missing.get(part)])
    if shell.parts != ["schedules"]:
        write_text(folder / "code.css", style_of_code())
    numbers, standard = write_runs(folder, grid)
    n_runs = sum(len(runs) for sizes in numbers.values() for runs in sizes.values())
    report(f"runs                  {n_runs}")
    size = playground.write_playground(folder / "live", pyodide)
    source = "this folder" if pyodide else playground.PYODIDE
    report(f"playground            {size / 1e6:.1f} MB for its engine, from {source}")
    write_schedules(folder, grid, standard, shell)
    report(f"pages of schedules    {len(grid.names)}")
    pages = {
        "reference": lambda place: reference.write_reference(place, shell),
        "notebooks": lambda place: notebooks_as_pages.write_notebooks(paths, place, shell),
    }
    for part, write in pages.items():
        done = f"none: {missing[part]}" if missing[part] else write(folder / part)
        report(f"{f'pages of {part}':22}{done}")
    chooser = shell.page("Pipeline schedules, side by side", resource("chooser.html"), MARK)
    write_text(folder / "index.html", chooser)
    size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    report(f"written: {folder / 'index.html'}, {size / 1e6:.1f} MB with all that belongs to it")


def write_runs(folder, grid):
    """Run all schedules, and write their runs and numbers; return the numbers, and a trace of each schedule.

    numbers: {name: {"K M": {"share latency": what `numbers_of` gives}}}
    """
    numbers, refused, standard = {}, {}, {}
    for name in grid.names:
        schedules, faults = schedules_of(name, grid)
        refused[name] = {key_of(*sizes): why for sizes, why in faults.items()}
        numbers[name], groups = {}, {}
        for sizes, schedule in schedules.items():
            traces, size = runs_of(schedule, grid), key_of(*sizes)
            title = f"{name}: {sizes[0]} devices, {sizes[1]} micro-batches"
            if sizes == STANDARD or name not in standard:
                standard[name] = sizes, *list(traces.items())[-len(grid.latencies)]
            numbers[name][size], pages = {}, {}
            for setting, trace in traces.items():
                key = key_of(*setting)
                numbers[name][size][key] = numbers_of(trace)
                pages[key] = page_data(trace) | page_pieces(trace, title)
            as_text = json.dumps(pages, allow_nan=False, separators=(",", ":"))
            groups[size] = b64encode(zlib.compress(as_text.encode())).decode()  # `site.js` unpacks it
        write_text(folder / "data" / f"{name}.js", f"site.put({json.dumps(name)}, {json.dumps(groups)});\n")
    settings = {"K": grid.devices, "M": grid.microbatches, "share": grid.shares, "latency": grid.latencies}
    known = {"settings": settings, "bubbles": list(BUBBLES.values()), "runs": numbers, "refused": refused}
    known = json.dumps(known, allow_nan=False)
    write_text(folder / "data" / "numbers.js", f"Object.assign(site, {known});\n")
    return numbers, standard


def key_of(*settings):
    """Return settings as the data call them: "4 8", "0.375 2", or "whole 2" where there are no halves."""
    return " ".join("whole" if each is None else f"{each:g}" for each in settings)


def words_of(name):
    """Return what a page says about the schedule called `name`, as HTML: from its builder's docstring.

    idea: the first paragraph of the docstring.
    rule: the others, with the picture of the order and the closed forms.
    source: the papers, as the schedule states them.
    family: the words of the module, about the schedules in it.

    >>> words_of("1f1b")["idea"]
    '<p>Warm up, then one forward and one backward in turn (1F1B, PipeDream-flush, DAPPLE).</p>'
    """
    builder, source = SCHEDULES[name], SCHEDULES.facts[name].source
    idea, *rule = inspect.getdoc(builder).split("\n\n")
    _, *family = inspect.getdoc(inspect.getmodule(builder)).split("\n\n")
    words = {"idea": [idea], "rule": rule, "source": [source], "family": family}
    return {piece: as_html(paragraphs) for piece, paragraphs in words.items()}


def write_schedules(folder, grid, standard, shell):
    """Write the page of each schedule, and the table of all."""
    rows = []
    for number, name in enumerate(grid.names):
        words, ((K, M), setting, trace) = words_of(name), standard[name]
        choice = f"schedule={name}&amp;K={K}&amp;M={M}"
        body = filled(resource("schedule.html"), words | {
            "name": name, "K": str(K), "M": str(M), "run": f"{name}|{key_of(K, M)}|{key_of(*setting)}",
            "text": escape(text(trace)), "choice": choice, "links": shell.links(grid.names, number),
        })
        write_text(folder / "schedules" / f"{name}.html", shell.page(name, body, root="../"))
        makespan, bubbles, peaks, *_ = numbers_of(trace)
        cells = (K, M, makespan, f"{100 * bubbles[0]:.2f} %", max(peaks))
        numbers = "".join(f'<td class="number">{cell}</td>' for cell in cells)
        head = f'<th scope="row"><a href="{name}.html">{name}</a></th>'
        rows.append(f"<tr>{head}<td>{words['idea']}</td>{numbers}</tr>")
    body = filled(resource("schedules.html"), {"rows": "\n".join(rows), "count": str(len(rows))})
    write_text(folder / "schedules" / "index.html", shell.page("The schedules", body, root="../"))


def checked_folder(folder):
    """Return `folder` as a `Path`; raise `ValueError` if it has files that are not of a site."""
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


def checked_notebooks(folder, site):
    """Return the notebooks in `folder`, by name; raise `ValueError` for none, and if it lies in `site`."""
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
