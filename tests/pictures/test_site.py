"""The site: its pages need nothing but their folder, show the engine's runs, and notebooks are among them."""

import inspect
import json
import re
import shutil
import subprocess
import sys
import time
from base64 import b64decode, b64encode
from html import unescape
from io import BytesIO
from pathlib import Path
from urllib.request import urlopen

import pytest
from matplotlib.figure import Figure
from pictures.browser import browse, in_a_browser

import minipipe as mp
from minipipe.cli.main import main
from minipipe.order import peak_microbatches
from minipipe.schedules import SCHEDULES, build
from minipipe.site import notebooks, pages, write_site, writing
from minipipe.site.writing import MORE, words_of, write_reference

FOLDER = Path(__file__).parents[2] / "notebooks"


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Let pdoc write nothing: it takes seconds, and has a test of its own."""
    def without_pdoc(folder):
        folder.mkdir()
        (folder / "index.html").touch()

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "write_reference", without_pdoc)
        yield


@pytest.fixture(scope="module")
def small(tmp_path_factory, quick):
    folder = tmp_path_factory.mktemp("site")
    write_site(folder, report=lambda line: None)
    return folder


def test_the_page_of_a_schedule_says_all_without_a_script(small):
    page = (small / "schedules" / "zb-v.html").read_text()
    page = re.sub('srcdoc=".*?"', "", re.sub("<script.*?</script>", "", page), flags=re.DOTALL)
    assert all(words in page for words in words_of("zb-v").values())
    trace = mp.simulate(build("zb-v", 4, 8))
    assert unescape(page).count(trace.to_text()) == 1
    table = (small / "index.html").read_text()
    row = re.search(r'<a href="schedules/zb-v.html">.*', table)[0]
    bubble, peak = f"{100 * trace.bubble('total'):.2f} %", max(peak_microbatches(trace))
    assert re.findall(r'"number">(.*?)<', row) == [f"{trace.makespan:g}", bubble, str(peak)]
    assert '<a href="../live/index.html#s=zb-v&amp;K=4&amp;M=8">' in page


def links_are_whole(folder):
    """Nothing is loaded from elsewhere, and every link within the site leads to a file of it."""
    for path in folder.rglob("*.html"):
        page = re.sub(r"<pre.*?</pre>|srcdoc=.*?</iframe>", "", path.read_text("utf-8"), flags=re.DOTALL)
        loaded = re.findall(r'\bsrc="([^"]*)"', page) + re.findall(r'<link [^>]*href="([^"]*)"', page)
        assert not [each for each in loaded if each.startswith(("http", "//"))], path
        for link in loaded + re.findall(r'<a [^>]*href="([^"#]*)[^"]*"', page):
            if link and not link.startswith(("http", "data:")):
                assert (path.parent / link).is_file(), f"{path.name} links to {link}"
    loads = re.compile(r"fetch\(|import\(|url\(|@import|XMLHttp")
    scripts = {path for path in folder.rglob("*.[jc]s*") if loads.search(path.read_text(encoding="utf-8"))}
    assert {path.name for path in scripts} <= {"worker.js"}


def test_nothing_is_loaded_from_elsewhere_and_links_are_whole(small):
    assert len([*small.rglob("*.html")]) - (small / "reference").exists() == 1 + 1 + len(SCHEDULES)
    links_are_whole(small)


@pytest.mark.slow
@pytest.mark.filterwarnings("error:Error parsing type annotation")
def test_the_reference_has_each_public_name_and_the_words_of_help(tmp_path):
    pytest.importorskip("pdoc", reason="needs the docs extra")
    write_reference(tmp_path)
    pages = {path.stem: path.read_text(encoding="utf-8") for path in tmp_path.rglob("*.html")}
    assert pages.keys() >= {*MORE}
    for name in mp.__all__:
        value = getattr(mp, name)
        page = pages[name] if inspect.ismodule(value) else pages["minipipe"]
        assert inspect.ismodule(value) or f'<section id="{name}">' in page, name
        said = re.sub(r"\s", "", unescape(re.sub("<[^>]*>", "", page)))
        assert re.sub(r"\s|[`*]", "", inspect.getdoc(value).split("\n\n")[0]) in re.sub(r"\*", "", said), name


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
    gone = [again / name for name in ("live/old.js", "schedules/old.html", "notebooks/old.html")]
    for path in gone:
        path.write_text("of a run that is no longer there")
    write_site(again, report=lambda line: None)
    assert (again / "site.css").read_text() == (small / "site.css").read_text()
    assert not any(path.exists() for path in gone)
    (again / "notebooks").mkdir()
    (again / "notebooks" / "mine.ipynb").write_text("{}")
    with pytest.raises(ValueError, match=r"lie in the site, .*, which is emptied: move one of them"):
        write_site(again, again / "notebooks")
    assert (again / "notebooks" / "mine.ipynb").exists() and (again / "live").is_dir()
    with pytest.raises(ValueError, match=r"is not the folder of Pyodide: it has no pyodide.mjs, .*npm pack"):
        write_site(again, pyodide=tmp_path)
    with pytest.raises(TypeError, match="int"):  # 0 is no folder either, nor is it None
        write_site(again, pyodide=0)


@pytest.mark.slow
@pytest.mark.parametrize("is_new", [True, False])
def test_an_interrupted_site_says_so_and_is_written_again(small, tmp_path, monkeypatch, is_new):
    """No page is left of the site of before; a file that is not a notebook is met before anything moves."""
    site = tmp_path / "site"
    if not is_new:
        shutil.copytree(small, site)
    (tmp_path / "one.ipynb").write_text("{}")
    with pytest.raises(ValueError, match=r"one\.ipynb is not a notebook"):
        write_site(site, tmp_path)
    assert is_new != site.exists()
    if not is_new:
        assert (site / "index.html").read_text() == (small / "index.html").read_text()

    def interrupted(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(writing, "write_schedules", interrupted)
        write_site(site)
    assert "<p>This site is being written. If that was" in (site / "index.html").read_text()
    assert not (site / "schedules").exists() and not (site / "reference").exists()
    write_site(site)
    assert "<h1>Pipeline schedules</h1>" in (site / "index.html").read_text()


def test_a_site_says_which_parts_lack_an_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(pages, "find_spec", lambda name: None if name in ("latex2mathml", "pdoc") else name)
    (tmp_path / "01_one.ipynb").write_text('{"cells": []}')
    lines = []
    write_site(tmp_path / "site", tmp_path, report=lines.append)
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

Next: [two](02_two.ipynb#there). [Play](http://127.0.0.1:8421/live/index.html#s=gpipe&M=4).

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
def test_text_code_and_outputs_are_in_the_page(page):
    title, body = page
    assert title == "01 · One < two" and "<h1" in body
    assert re.search(r"<pre>1 &lt; 2\n?</pre>", body) and '<span class="nb">print</span>' in body


@of_notebooks
def test_formulas_are_mathml_within_details_too(page):
    _, body = page
    assert "$" not in body and body.count("<math ") == 3
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mrow><mfrac>' in body
    hint = re.search(r"<details><summary>Hint</summary>(.*?)</details>", body, re.DOTALL)[1]
    assert "<mi>W</mi>" in hint


@of_notebooks
def test_outputs_folded_in_the_notebook_are_folded_in_the_page(page):
    _, body = page
    folded = re.search(r"<details><summary>What came out:</summary>(.*?)</details>", body, re.DOTALL)[1]
    picture = b64encode(png()).decode()
    assert f'<img src="data:image/png;base64,{picture}" alt="&lt;Trace&gt;">' in folded
    assert body.count("What came out:") == 1


@of_notebooks
def test_links_between_notebooks_lead_to_their_pages(page):
    assert '<a href="02_two.html#there">' in page[1]
    assert '<a href="../live/index.html#s=gpipe&amp;M=4">' in page[1]


@of_notebooks
def test_pictures_of_a_notebook_are_embedded_in_its_page(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curve.png").write_bytes(png())
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / "01_one.ipynb"
    cell = {"cell_type": "markdown", "metadata": {}, "source": "# One\n![a curve](../figures/curve.png)"}
    path.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    picture = b64encode(png()).decode()
    assert f'<img src="data:image/png;base64,{picture}"' in notebooks.page_of_notebook(path)[1]


@of_notebooks
def test_the_whole_site_is_small_quickly_made_and_true(tmp_path):
    """It converts all notebooks: half a minute."""
    site, begin = tmp_path / "site", time.process_time()
    write_site(site, FOLDER)
    assert time.process_time() - begin < 60
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 20_000_000
    links_are_whole(site)
    assert len([*(site / "notebooks").glob("*.html")]) == len([*FOLDER.glob("*.ipynb")]) + 1


@in_a_browser
def test_the_page_of_a_schedule_shows_its_run(small, tmp_path):
    script = """addEventListener("load", () => {
      const page = document.querySelector("iframe").contentDocument;
      results.title = page.title;
      results.makespan = JSON.parse(page.getElementById("data").textContent).makespan;
      report();
    });"""
    page = (small / "schedules" / "zb-v.html").read_text()
    folder = tmp_path / "schedules"
    shutil.copytree(small, tmp_path, dirs_exist_ok=True)
    seen = browse(folder, page, script, "--virtual-time-budget=200000")
    makespan = mp.simulate(build("zb-v", 4, 8)).makespan
    assert seen == {"title": "zb-v: 4 devices, 8 micro-batches", "makespan": makespan}


@pytest.mark.slow
def test_a_site_is_served_to_this_computer_alone(tmp_path):
    words = [sys.executable, "-m", "minipipe", "site", str(tmp_path / "site"), "--serve"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as server:
        try:
            line = next(line for line in server.stdout if line.startswith("serving"))
            address = re.match(r"serving (http://127\.0\.0\.1:\d+/) ", line)[1]
            with urlopen(f"{address}live/worker.js") as answer:
                assert answer.headers["Content-Type"] == "text/javascript"
        finally:
            server.terminate()
    engine = json.loads((tmp_path / "site" / "live" / "engine.json").read_text())
    assert engine["pyodide"].startswith("https://cdn.jsdelivr.net/npm/pyodide@")
    assert all(len(b64decode(each["integrity"][7:])) == 48 for each in engine["files"].values())
