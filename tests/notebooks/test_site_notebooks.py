"""The notebooks as pages of the site, and the site as a whole: its size, its time, and 200 of its numbers."""

import json
import random
import re
import time
from base64 import b64encode
from io import BytesIO
from pathlib import Path

import pytest
from matplotlib.figure import Figure
from pictures.test_site import checked_numbers, engine, in_scripts, links_are_whole, spans_in, spans_of

from minipipe.site import notebooks, write_site
from minipipe.site.grid import Grid

FOLDER = Path(__file__).parents[2] / "notebooks"

pytestmark = [
    pytest.mark.slow,  # the import of nbconvert alone takes two seconds
    pytest.mark.skipif(bool(notebooks.why_not()), reason=str(notebooks.why_not())),
]


def png():
    file = BytesIO()
    figure = Figure()
    figure.subplots().plot([0, 1])
    figure.savefig(file, format="png")
    return file.getvalue()


def code(source, *outputs, folded=False):
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
    code("print('1 < 2')", {"output_type": "stream", "name": "stdout", "text": ["1 < 2\n"]}),
    code("trace", shows(text_plain="What came out:"), shows(text_plain="<Trace>", image_png="PICTURE"),
         folded=True),
]


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    path = tmp_path_factory.mktemp("notebooks") / "01_one.ipynb"
    path.write_text(json.dumps({"cells": CELLS}).replace("PICTURE", b64encode(png()).decode()))
    return notebooks.page_of_notebook(path)


def test_text_code_and_what_came_out_stand_in_the_page(page):
    title, body, _ = page
    assert title == "01 · One < two" and "<h1" in body
    assert re.search(r"<pre>1 &lt; 2\n?</pre>", body) and '<span class="nb">print</span>' in body


def test_formulas_are_mathml_within_details_too(page):
    _, body, _ = page
    assert "$" not in body and body.count("<math ") == 3
    assert '<math xmlns="http://www.w3.org/1998/Math/MathML" display="block"><mrow><mfrac>' in body
    hint = re.search(r"<details><summary>Hint</summary>(.*?)</details>", body, re.DOTALL)[1]
    assert "<mi>W</mi>" in hint


def test_what_is_folded_away_in_the_notebook_is_so_in_the_page(page):
    _, body, pictures = page
    folded = re.search(r"<details><summary>What came out:</summary>(.*?)</details>", body, re.DOTALL)[1]
    (name,) = pictures
    assert f'<img src="{name}" alt="&lt;Trace&gt;">' in folded and body.count("What came out:") == 1


def test_pictures_look_the_same_in_less_space(page):
    from matplotlib.image import imread

    _, _, pictures = page
    (small,) = pictures.values()
    assert len(small) < len(png()) / 1.5
    old, new = (imread(BytesIO(picture), format="png")[..., :3] for picture in (png(), small))
    assert old.shape == new.shape and abs(old - new).max() < 0.1


def test_links_between_notebooks_lead_to_their_pages(page):
    assert '<a href="02_two.html#there">' in page[1]


def test_a_picture_that_lies_beside_the_notebooks_comes_with_the_page(tmp_path):
    (tmp_path / "figures").mkdir()
    (tmp_path / "figures" / "curve.png").write_bytes(png())
    (tmp_path / "notebooks").mkdir()
    path = tmp_path / "notebooks" / "01_one.ipynb"
    cell = {"cell_type": "markdown", "metadata": {}, "source": "# One\n![a curve](../figures/curve.png)"}
    path.write_text(json.dumps({"cells": [cell]}), encoding="utf-8")
    _, body, pictures = notebooks.page_of_notebook(path)
    assert [*pictures] == ["01_one_curve.png"] and '<img src="01_one_curve.png"' in body


def test_the_whole_site_is_small_soon_made_whole_and_the_engines(tmp_path):
    """The numbers of 200 runs drawn at random, and the times of all their boxes, are those of the engine.

    It simulates 1,400 runs and converts all notebooks: half a minute.
    """
    site, begin = tmp_path / "site", time.process_time()
    write_site(site, FOLDER)
    assert time.process_time() - begin < 60
    assert sum(path.stat().st_size for path in site.rglob("*") if path.is_file()) < 15_000_000
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
        assert spans_in(groups[name][size], setting) == spans_of(trace)
