"""Runs notebooks again, and saves what their cells now print and draw:

    python3 tests/notebooks/refresh.py notebooks/04_*.ipynb

Nothing else in the files changes. An output that says and shows what it did stays byte for byte as it is
saved, and so does one that is measured, whose numbers differ from run to run.

Or writes copies of all notebooks without the solutions of their exercises, for a class:

    python3 tests/notebooks/refresh.py --without-solutions class
"""

import json
import math
import os
import re
import sys
from base64 import b64decode
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

ROOT = Path(__file__).parents[2]
DECIMAL = re.compile(r"\d+\.\d*(?:e[+-]?\d+)?")
SOLUTION = re.compile(r"\n*<details><summary>Solution: (?:(?!</details>).)*</details>", re.DOTALL)
VARIES = re.compile(r"\bat 0x[0-9a-f]+")                            # where an object happens to lie in memory


def run(path):
    """The notebook after a run from top to bottom in a kernel of its own, as the dict of its file.

    The learner's file is nobody's, in a folder that goes away.
    """
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    where = {"metadata": {"path": str(ROOT / "notebooks")}}
    with TemporaryDirectory() as folder:
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                            "MY_PIPELINE": str(Path(folder) / "my_pipeline.py")}
        NotebookClient(notebook, timeout=300, record_timing=False, resources=where).execute(env=env)
    fresh = json.loads(nbformat.writes(notebook))
    for cell in fresh["cells"]:
        if cell["cell_type"] == "code":
            cell["outputs"] = merged(cell["outputs"])
            for output in cell["outputs"]:
                without_player(output.get("data", {}))
    return fresh


def without_player(data):
    """Take the player out of `data`, {MIME type: content}, if its picture stands beside it.

    It would be in the file once more for each trace.
    """
    if "image/png" in data:
        data.pop("text/html", None)


def merged(outputs):
    """`outputs` with what was printed in one go as one output: where a kernel cuts it depends on the
    moment.
    """
    found = []
    for output in outputs:
        if found and output["output_type"] == "stream" and found[-1].get("name") == output["name"]:
            text = "".join([*found[-1]["text"], *output["text"]])
            found[-1] = found[-1] | {"text": text.splitlines(keepends=True)}
        else:
            found.append(output)
    return found


def text_of(output):
    """What a cell's output says, without what may differ from run to run and from processor to processor.

    Of a decimal fraction only its place remains.

    >>> text_of({"output_type": "stream", "name": "stdout", "text": ["J = 0.25\\n", "3 ticks"]})
    'stdout J = #\\n3 ticks'
    """
    data = output.get("data", {})
    text = "".join(output.get("text", data.get("text/plain", "")))
    kinds = " ".join(sorted(data)) if data else output.get("name", output["output_type"])
    return f"{kinds} {DECIMAL.sub('#', VARIES.sub('#', text))}"


def decimals_of(output):
    text = "".join(output.get("text", output.get("data", {}).get("text/plain", "")))
    return [float(number) for number in DECIMAL.findall(text)]


def picture_of(output):
    """The pixels (height, width, channels) of the output's picture, from 0 to 1, or None."""
    from matplotlib.image import imread

    data = output.get("data", {}).get("image/png")
    return None if data is None else imread(BytesIO(b64decode("".join(data))), format="png")


def look_the_same(left, right):
    """Whether nobody sees a difference between two pictures: no more than a few pixels differ by a quarter or
    more.

    Another version of matplotlib may shade an edge otherwise. A single other digit changes more than that.
    """
    if left is None or right is None:
        return left is right
    return left.shape == right.shape and np.sum(np.abs(left - right).max(axis=-1) > 1 / 4) <= 5


def same(left, right):
    """Whether two outputs say and show the same."""
    if text_of(left) != text_of(right):
        return False
    pairs = zip(decimals_of(left), decimals_of(right), strict=True)
    close = all(math.isclose(*pair, rel_tol=1e-6, abs_tol=1e-12) for pair in pairs)
    return close and look_the_same(picture_of(left), picture_of(right))


def is_measured(old, new, another):
    """Whether two outputs differ only in what differs from run to run: decimals, or a picture of them.

    old, new: the saved output, and that of a run
    another: a function that gives the output of one more run
    """
    return text_of(old) == text_of(new) and not same(new, another())


def refreshed(saved, fresh, again):
    """The outputs of one cell to save.

    saved: its outputs in the file
    fresh: its outputs in a run
    again: a function that gives its outputs in one more run
    """
    once = merged(saved)
    if len(once) != len(fresh):
        return fresh
    outputs = []
    for place, (old, new) in enumerate(zip(once, fresh)):
        kept = same(old, new) or is_measured(old, new, lambda: again()[place])
        outputs.append(old if kept else new)
    return saved if outputs == once else outputs


def refresh(path, run=run):
    """Bring the outputs saved in the file `path` up to date with `run(path)`; how many cells have changed."""
    text = path.read_text(encoding="utf-8")
    notebook, fresh = json.loads(text), run(path)
    runs = []

    def once_more():
        if not runs:
            runs.append(run(path))
        return runs[0]

    changed = 0
    for place, (cell, new) in enumerate(zip(notebook["cells"], fresh["cells"], strict=True)):
        if cell["cell_type"] != "code":
            continue
        before = json.dumps(cell)
        cell["outputs"] = refreshed(cell["outputs"], new["outputs"],
                                    lambda: once_more()["cells"][place]["outputs"])
        cell["execution_count"] = new["execution_count"]
        for output in cell["outputs"]:
            if "execution_count" in output:
                output["execution_count"] = new["execution_count"]
        changed += json.dumps(cell) != before
    if changed:
        indent = len(re.match(r"\{\n( *)", text).group(1))
        path.write_text(json.dumps(notebook, indent=indent, ensure_ascii=False) + text[len(text.rstrip()):],
                        encoding="utf-8")
    return changed


def without_solutions(folder):
    """Write copies of all notebooks into a folder; hints and the answers that `guess` opens stay.

    Raise `FileExistsError` if a file there has the name of a notebook.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        notebook = json.loads(path.read_text(encoding="utf-8"))
        for cell in notebook["cells"]:
            cell["source"] = SOLUTION.sub("\n", "".join(cell["source"])).splitlines(keepends=True)
        with (folder / path.name).open("x", encoding="utf-8") as file:
            json.dump(notebook, file, indent=1, ensure_ascii=False)


def main(paths):
    if paths[:1] == ["--without-solutions"] and len(paths) == 2:
        without_solutions(Path(paths[1]))
        return
    if not paths:
        sys.exit("which notebooks? python3 tests/notebooks/refresh.py notebooks/*.ipynb refreshes them all")
    for path in paths:
        print(f"{path}: cells that changed: {refresh(Path(path))}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
