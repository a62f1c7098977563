"""The site: its runs and numbers are the engine's, its pages need nothing but their folder; notebooks are
among them; and in a real browser one can choose, compare and step.
"""

import json
import random
import re
import shutil
import time
import zlib
from base64 import b64decode, b64encode
from html import unescape
from io import BytesIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from matplotlib.image import imread
from pictures.browser import browse, in_a_browser

import minipipe as mp
from minipipe.cli.main import main
from minipipe.cluster import BUBBLES, Link
from minipipe.order import peak_microbatches
from minipipe.plots.html import page_data, page_pieces
from minipipe.schedules import build
from minipipe.site import notebooks, pages, reference, write_site, writing
from minipipe.site.writing import Grid, words_of

FOLDER = Path(__file__).parents[2] / "notebooks"
SMALL = Grid(
    names=("1f1b", "zb-v", "chimera", "pipedream"), devices=(2, 3), microbatches=(4,), shares=(0.25, 0.5),
    latencies=(0, 0.5),
)


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    write_site(folder, grid=SMALL, report=lambda line: None)
    return folder


def in_scripts(folder):
    """(what all pages know: settings, numbers and why there is no run; {name: {"K M": the packed runs}})"""
    known = re.fullmatch(r"Object.assign\(site, (.*)\);\n", (folder / "data" / "numbers.js").read_text())[1]
    known, groups = json.loads(known), {}
    for name in known["runs"]:
        text = (folder / "data" / f"{name}.js").read_text()
        groups[name] = json.loads(re.fullmatch(r'site\.put\(".*?", (.*)\);\n', text)[1])
    return known, groups


def engine(name, size, setting):
    """The trace of the run that has this place in the data."""
    (K, M), (share, latency) = size.split(), setting.split()
    costs = mp.Costs(F=1, B=2)
    if share != "whole":
        costs = mp.Costs(F=1, I=2 * (1 - float(share)), W=2 * float(share))
    return mp.simulate(build(name, int(K), int(M)), costs, Link(latency=float(latency)))


def data_in(packed, setting):
    """Return what the page of a packed run knows, without its title and its texts."""
    page = json.loads(zlib.decompress(b64decode(packed)))[setting]
    return {name: page[name] for name in page if name not in ("title", "label", "why", "figures")}


def data_of(trace):
    return json.loads(json.dumps(page_data(trace)))


def checked_numbers(numbers, trace):
    makespan, bubbles, peaks, n_messages, causes = numbers
    assert makespan == trace.makespan
    assert bubbles == [trace.bubble(of) for of in BUBBLES]
    assert peaks == peak_microbatches(trace)
    assert n_messages == len(trace.messages)
    assert causes == trace.explain().totals()


def test_every_number_and_box_of_the_site_is_the_engines(small):
    known, groups = in_scripts(small)
    seen = set()
    for name, sizes in known["runs"].items():
        for size, runs in sizes.items():
            for setting, numbers in runs.items():
                trace = engine(name, size, setting)
                checked_numbers(numbers, trace)
                assert data_in(groups[name][size], setting) == data_of(trace)
                seen.add((name, size, setting))
    halves = {("zb-v", size, f"{share} {latency}")
              for size in ("2 4", "3 4") for share in (0.25, 0.5) for latency in (0, 0.5)}
    whole = {(name, size, f"whole {latency}") for name in ("1f1b", "chimera", "pipedream")
             for size in ("2 4", "3 4") for latency in (0, 0.5)}
    assert seen == halves | {run for run in whole if run[:2] != ("chimera", "3 4")}


def test_a_schedule_that_cannot_be_built_says_why(small):
    known, _ = in_scripts(small)
    with pytest.raises(ValueError) as refused:
        build("chimera", 3, 4)
    assert known["refused"]["chimera"] == {"3 4": str(refused.value)}
    assert known["refused"]["1f1b"] == {}


def test_the_page_of_a_schedule_says_all_without_a_script(small):
    page = re.sub("<script.*?</script>", "", (small / "schedules" / "zb-v.html").read_text())
    assert all(words in page for words in words_of("zb-v").values())
    trace = engine("zb-v", "2 4", "0.5 0")
    assert unescape(page).count(trace.to_text()) == 1
    table = (small / "schedules" / "index.html").read_text()
    row = re.search(r'<a href="zb-v.html">.*', table)[0]
    bubble, peak = f"{100 * trace.bubble('total'):.2f} %", max(peak_microbatches(trace))
    cells = [2, 4, f"{trace.makespan:g}", bubble, peak]
    assert re.findall(r'"number">(.*?)<', row) == list(map(str, cells))


def links_are_whole(folder):
    """Nothing is loaded from elsewhere, and every link within the site leads to a file of it."""
    for path in folder.rglob("*.html"):
        page = re.sub(r"<pre.*?</pre>", "", path.read_text(encoding="utf-8"), flags=re.DOTALL)
        loaded = re.findall(r'\bsrc="([^"]*)"', page) + re.findall(r'<link [^>]*href="([^"]*)"', page)
        assert not [each for each in loaded if each.startswith(("http", "//"))], path
        for link in loaded + re.findall(r'<a [^>]*href="([^"#]*)[^"]*"', page):
            if link and not link.startswith(("http", "data:")):
                assert (path.parent / link).is_file(), f"{path.name} links to {link}"
    loads = re.compile(r"fetch\(|import\(|url\(|@import|XMLHttp")
    for path in [*folder.rglob("*.js"), *folder.rglob("*.css")]:
        assert not loads.search(path.read_text(encoding="utf-8")), path


def test_nothing_is_loaded_from_elsewhere_and_links_are_whole(small):
    missing = pages.what_is_missing(reference.NEEDED, "docs")
    n_reference = 0 if missing else len(mp.__all__) + len(reference.MORE) + 1
    assert len([*small.rglob("*.html")]) == 1 + 1 + len(SMALL.names) + n_reference
    links_are_whole(small)


def test_a_site_is_written_again_beside_files_of_others(small, tmp_path, capsys):
    (tmp_path / "thesis.tex").write_text("years of work")
    assert main(["site", str(tmp_path)]) == 2
    assert "which holds 1 other files: name a new folder or an empty one" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.tex"]
    assert main(["site", str(tmp_path / "thesis.tex")]) == 2
    assert "it is a file" in capsys.readouterr().err
    assert main(["site", str(tmp_path / "new"), "--notebooks", str(tmp_path)]) == 2
    assert "there are no notebooks in" in capsys.readouterr().err and not (tmp_path / "new").exists()
    again = shutil.copytree(small, tmp_path / "site")
    (again / "site.css").write_text("old")
    (again / "notebooks").mkdir()
    gone = [again / name for name in ("data/old.js", "schedules/old.html", "notebooks/old.html")]
    for path in gone:
        path.write_text("of a run that is no longer there")
    write_site(again, grid=SMALL, report=lambda line: None)
    assert (again / "site.css").read_text() == (small / "site.css").read_text()
    assert not any(path.exists() for path in gone)
    (again / "notebooks").mkdir()
    (again / "notebooks" / "mine.ipynb").write_text("{}")
    with pytest.raises(ValueError, match=r"lie in the site, .*, which is emptied: move one of them"):
        write_site(again, again / "notebooks", grid=SMALL)
    assert (again / "notebooks" / "mine.ipynb").exists() and (again / "data").is_dir()


@pytest.mark.parametrize("is_new", [True, False])
def test_an_interrupted_site_says_so_and_is_written_again(small, tmp_path, monkeypatch, is_new):
    """No page is left of the site of before; a file that is not a notebook is met before anything moves."""
    site, one = tmp_path / "site", Grid(names=("gpipe",), devices=(2,), microbatches=(2,), latencies=(0,))
    if not is_new:
        shutil.copytree(small, site)
    (tmp_path / "one.ipynb").write_text("{}")
    with pytest.raises(ValueError, match=r"one\.ipynb is not a notebook"):
        write_site(site, tmp_path, one)
    assert is_new != site.exists()
    if not is_new:
        assert (site / "index.html").read_text() == (small / "index.html").read_text()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(writing, "write_schedules", interrupted)
        write_site(site, grid=one)
    assert "<p>This site is being written. If that was" in (site / "index.html").read_text()
    assert not [*(site / "schedules").iterdir()] and not (site / "data" / "1f1b.js").exists()
    monkeypatch.setattr(writing, "what_is_missing", lambda packages, extra: "left out here")
    write_site(site, grid=one)
    assert "Pipeline schedules, side by side" in (site / "index.html").read_text()


def test_a_site_says_which_parts_lack_an_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "find_spec", lambda name: None if name in ("latex2mathml", "pdoc") else name)
    (tmp_path / "01_one.ipynb").write_text('{"cells": []}')
    lines, one = [], Grid(names=("gpipe",), devices=(2,), microbatches=(2,), shares=(0.5,), latencies=(0,))
    write_site(tmp_path / "site", tmp_path, one, lines.append)
    said = [
        'pages of reference    none: pdoc must be installed: pip install -e ".[docs]"',
        'pages of notebooks    none: latex2mathml must be installed: pip install -e ".[notebooks]"',
    ]
    index = (tmp_path / "site" / "index.html").read_text()
    assert lines[2:4] == said and "Notebooks" not in index and "Reference" not in index


# ---- notebooks ----


def of_notebooks(test):
    """Mark a test that converts notebooks: the import of nbconvert alone takes two seconds."""
    reason = pages.what_is_missing(notebooks.NEEDED, "notebooks")
    return pytest.mark.slow(pytest.mark.skipif(bool(reason), reason=str(reason))(test))


def png():
    file = BytesIO()
    figure = Figure()
    figure.subplots().plot([0, 1])
    figure.savefig(file, format="png")
    return file.getvalue()


def code_cell(source, *outputs, folded=False):
    metadata = {"collapsed": True, "jupyter": {"outputs_hidden": True}} if folded else {}
    return {"cell_type": "code", "metadata": metadata, "source": source, "outputs": list(outputs)}


def shows(**data):
    data = {name.replace("_", "/"): each for name, each in data.items()}
    return {"output_type": "display_data", "data": data}


CELLS = [
    {"cell_type": "markdown", "source": """# 01 · One < two

Let $A_{prev}^T < 1$, and

$$\\frac{a}{b}$$

Next: [two](02_two.ipynb#there).

<details><summary>Hint</summary>

Read $W$.

</details>"""},
    code_cell("print('1 < 2')", {"output_type": "stream", "name": "stdout", "text": ["1 < 2\n"]}),
    code_cell(
        "trace", shows(text_plain="What came out:"), shows(text_plain="<Trace>", image_png="PICTURE"),
        folded=True,
    ),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("notebooks") / "01_one.ipynb"
    path.write_text(json.dumps({"cells": CELLS}).replace("PICTURE", b64encode(png()).decode()))
    return notebooks.page_of_notebook(path)


@of_notebooks
def test_text_code_and_what_came_out_stand_in_the_page(page):
    title, body, _ = page
    assert title == "01 · One < two" and "<h1" in body
    assert re.search(r"<pre>1 &lt; 2\n?</pre>", body) and '<span class="nb">print</span>' in body


@of_notebooks
def test_formulas_are_mathml_within_details_too(page):
    _, body, _ = page
    assert "$" not in body and body.count("<math ") == 3
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mrow><mfrac>' in body
    hint = re.search(r"<details><summary>Hint</summary>(.*?)</details>", body, re.DOTALL)[1]
    assert "<mi>W</mi>" in hint


@of_notebooks
def test_what_is_folded_away_in_the_notebook_is_so_in_the_page(page):
    _, body, pictures = page
    folded = re.search(r"<details><summary>What came out:</summary>(.*?)</details>", body, re.DOTALL)[1]
    (name,) = pictures
    assert f'<img src="{name}" alt="&lt;Trace&gt;">' in folded and body.count("What came out:") == 1


@of_notebooks
def test_pictures_look_the_same_in_less_space(page):
    _, _, pictures = page
    (small,) = pictures.values()
    assert len(small) < len(png()) / 1.5
    old, new = (imread(BytesIO(picture), format="png")[..., :3] for picture in (png(), small))
    assert old.shape == new.shape and abs(old - new).max() < 0.1


@of_notebooks
def test_links_between_notebooks_lead_to_their_pages(page):
    assert '<a href="02_two.html#there">' in page[1]


@of_notebooks
def test_a_picture_beside_the_notebooks_comes_with_the_page(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curve.png").write_bytes(png())
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / "01_one.ipynb"
    cell = {"cell_type": "markdown", "metadata": {}, "source": "# One\n![a curve](../figures/curve.png)"}
    path.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    _, body, pictures = notebooks.page_of_notebook(path)
    assert [*pictures] == ["01_one_curve.png"] and '<img src="01_one_curve.png"' in body


@of_notebooks
def test_the_whole_site_is_small_quickly_made_and_true(tmp_path):
    """The numbers of 200 runs drawn at random, and what their pages know, are those of the engine.

    It simulates 1,400 runs and converts all notebooks: half a minute.
    """
    site, begin = tmp_path / "site", time.process_time()
    write_site(site, FOLDER)
    assert time.process_time() - begin < 60
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 20_000_000
    links_are_whole(site)
    assert len([*(site / "notebooks").glob("*.html")]) == len([*FOLDER.glob("*.ipynb")]) + 1
    known, groups = in_scripts(site)
    grid = Grid()
    runs = [(name, size, setting) for name, sizes in known["runs"].items()
            for size, runs in sizes.items() for setting in runs]
    assert set(known["runs"]) == set(grid.names)
    for name, size, setting in random.Random(0).sample(runs, 200):
        trace = engine(name, size, setting)
        checked_numbers(known["runs"][name][size][setting], trace)
        assert data_in(groups[name][size], setting) == data_of(trace)


# ---- in a browser ----

CHOOSE = """
const frames = () => [...document.querySelectorAll("iframe")];
const data = frame => JSON.parse(frame.contentDocument.getElementById("data").textContent);
const now = frame => frame.contentDocument.getElementById("now").textContent;
const rows = id => [...$(id).querySelectorAll("tr")].map(row => [...row.cells].map(cell => cell.textContent));
const pick = async (field, value) => { form.elements[field].value = value; await choose(); };
const wider = () => document.documentElement.scrollWidth - document.documentElement.clientWidth;
started.then(async () => {
  results.width = innerWidth;
  results.asked = rows("comparison")[0];
  results.pages = frames().map(data);
  results.why = frames().map(frame => frame.contentDocument.querySelector("#why pre").textContent);
  results.numbers = rows("comparison");
  results.begin = frames().map(now);
  results.axes = frames().map(({contentDocument: page, contentWindow}) => {
    page.body.append(Object.assign(page.createElement("script"), {textContent: "window.axis = view.to"}));
    return contentWindow.axis;
  });
  const page = frames()[1].contentWindow;
  page.document.getElementById("timeline").focus();
  const options = {bubbles: true, cancelable: true};
  for (const key of ["Home", "ArrowRight", "ArrowRight"])
    page.document.activeElement.dispatchEvent(new page.KeyboardEvent("keydown", {key, ...options}));
  results.together = frames().map(now);
  results.wider = wider();
  results.inside = frames().map(frame => frame.contentDocument.documentElement)
    .map(page => page.scrollWidth - page.clientWidth);
  results.ranking = rows("ranking");
  const words = ({nodeType, data}) => nodeType === 3 ? data.trim() : "";
  const ownWords = one => [...one.childNodes].map(words).join("");
  results.unnamed = [...document.querySelectorAll("select, button, iframe")]
    .filter(one => !ownWords(one.matches("select") ? one.closest("label") || one : one) && !one.title)
    .map(one => one.outerHTML);
  const controls = [...document.querySelectorAll("a, select, button")];
  results.unreached = controls.filter(one => one.tabIndex !== 0).length;
  results.whole = $("note").textContent;
  await pick("beside", "chimera");
  results.refused = [$("note").textContent, frames().length, location.hash];
  await pick("schedule", "chimera");
  results.none = [$("runs").textContent, $("comparison").textContent];
  await pick("K", "2");
  results.both = rows("comparison")[0];
  $("ranking").querySelector("button").click();
  await new Promise(done => setTimeout(done, 500));
  results.clicked = [form.elements.schedule.value, rows("ranking")[1][0]];
  report();
}, error => errors.push(String(error)));
"""


CHOICE = "schedule=1f1b&beside=zb-v&K=3&M=4&share=0.25&latency=0.5"
WITHIN = f"""
const inner = document.querySelector("iframe").contentWindow;
addEventListener("load", () => {{
  Object.assign(inner, {{results, errors, report}});
  inner.onerror = message => errors.push(message);
  inner.eval({json.dumps(CHOOSE)});
}});
"""


@in_a_browser
@pytest.mark.parametrize("width", [1300, 400])
def test_two_runs_are_chosen_compared_and_stepped_together(small, tmp_path, width):
    """A window cannot be as narrow as a telephone, a frame can; then both must count as one site."""
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    style = f"width: {width}px; height: 800px; border: 0"
    page = f'<html><body><iframe style="{style}" src="index.html#{CHOICE}"></iframe></body></html>'
    options = ["--virtual-time-budget=200000", "--allow-file-access-from-files"]
    seen = browse(tmp_path, page, WITHIN, "--window-size=1400,900", *options)
    assert seen["width"] == width
    assert seen["asked"] == ["", "1f1b", "zb-v"]
    traces = [engine("1f1b", "3 4", "whole 0.5"), engine("zb-v", "3 4", "0.25 0.5")]
    for found, why, trace in zip(seen["pages"], seen["why"], traces):
        expected = json.loads(json.dumps(page_data(trace)))
        for rows in ("spans", "idle", "messages"):
            assert sorted(found.pop(rows)) == sorted(expected.pop(rows))
        assert found == expected
        assert why == unescape(page_pieces(trace)["why"])
    numbers = {name: cells for name, *cells in seen["numbers"]}
    assert numbers["makespan, ticks"] == [f"{trace.makespan:g}" for trace in traces]
    for of, words in BUBBLES.items():
        assert numbers[f"bubble: {words}"] == [f"{100 * trace.bubble(of):.2f} %" for trace in traces]
    assert numbers["peak: micro-batches alive, by device"] == [
        " ".join(f"{peak:g}" for peak in peak_microbatches(trace)) for trace in traces
    ]
    for cause, ticks in traces[0].explain().totals().items():
        assert numbers[f"idle ticks: {cause}"][0] == f"{ticks:g}"
    ends = [f"{trace.makespan:g}" for trace in traces]
    assert seen["begin"] == [f"{end} / {end}" for end in ends]
    assert seen["axes"] == [max(trace.makespan for trace in traces)] * 2
    step = seen["pages"][1]["step"]
    assert seen["together"] == [f"{2 * step:g} / {end}" for end in ends]
    assert (seen["wider"], seen["inside"]) == (0, [0, 0]), "nothing is wider than the screen"
    assert (seen["unnamed"], seen["unreached"]) == ([], 0)
    assert [row[0] for row in seen["ranking"][1:]] == ["zb-v", "1f1b", "pipedream"]
    assert seen["whole"] == "1f1b: backwards are whole, so W's share of B changes nothing."
    note, n_frames, address = seen["refused"]
    assert "chimera cannot be had in these sizes: chimera needs an even number of devices" in note
    assert n_frames == 1 and "beside=chimera&K=3" in address
    assert seen["none"] == ["", ""] and seen["both"] == ["", "chimera"]
    assert seen["clicked"][0] == seen["clicked"][1] != "chimera"


@in_a_browser
def test_the_page_of_a_schedule_shows_its_run(small, tmp_path):
    script = """started.then(() => {
      const page = document.querySelector("iframe").contentDocument;
      results.title = page.title;
      results.makespan = JSON.parse(page.getElementById("data").textContent).makespan;
      report();
    });"""
    page = (small / "schedules" / "zb-v.html").read_text()
    folder = tmp_path / "schedules"
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    seen = browse(folder, page, script, "--virtual-time-budget=200000")
    makespan = engine("zb-v", "2 4", "0.5 0").makespan
    assert seen == {"title": "zb-v: 2 devices, 4 micro-batches", "makespan": makespan}
