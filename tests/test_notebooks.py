"""Every notebook runs from top to bottom without an error, and its saved outputs are those of the run."""

import os
import re
from pathlib import Path

import pytest

NOTEBOOKS = sorted((Path(__file__).parent.parent / "notebooks").glob("*.ipynb"))


def texts(notebook):
    """What each code cell printed and returned as text. Pictures and widgets are left out, since their bytes vary,
    and so are the digits of decimal fractions, whose last places depend on the processor."""
    found = []
    for cell in notebook.cells:
        outputs = cell.get("outputs", [])
        printed = "".join(output.text for output in outputs if output.output_type == "stream")
        returned = [output.data.get("text/plain", "") for output in outputs if "data" in output and "image/png" not in output.data]
        found.append(re.sub(r"\d+\.\d*(e[+-]?\d+)?|model_id\W+\w+", "#", "\n".join([printed, *returned])))
    return found


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_notebook_runs_and_its_outputs_are_fresh(path):
    reason = "needs the notebooks extra: pip install '.[test,notebooks]'"
    nbformat = pytest.importorskip("nbformat", reason=reason)
    nbclient = pytest.importorskip("nbclient", reason=reason)
    pytest.importorskip("ipywidgets", reason=reason)
    saved = nbformat.read(path, as_version=4)
    fresh = nbformat.read(path, as_version=4)
    env = os.environ | {"PYTHONPATH": os.pathsep.join([str(path.parent.parent), os.environ.get("PYTHONPATH", "")])}
    nbclient.NotebookClient(fresh, timeout=60, resources={"metadata": {"path": path.parent}}).execute(env=env)
    assert all(cell.execution_count for cell in saved.cells if cell.cell_type == "code" and cell.source.strip())
    assert texts(fresh) == texts(saved)


def test_there_are_notebooks():
    assert [path.stem for path in NOTEBOOKS] == [
        "01_one_neuron", "02_layers_and_shapes", "03_micro_batches", "04_pipeline_tick_by_tick", "05_convolution",
        "06_cnn_backward",
        "07_batch_norm_and_dropout_in_a_pipeline", "08_transformer_in_a_pipeline",
        "09_the_schedule_zoo", "10_design_your_own_schedule", "11_when_links_are_slow", "12_asynchronous_pipelines",
        "13_cutting_the_network", "14_memory_and_recomputation",
        "15_gpipe_by_the_numbers",
    ]
