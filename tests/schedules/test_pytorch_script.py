"""A schedule as a script for `torchrun`: it runs the very table in PyTorch."""

import ast
import importlib.util
import json
import re
import subprocess
import sys

import pytest

from minipipe import Costs, simulate
from minipipe.order import ScheduleError, in_copies, with_recompute
from minipipe.order.csv_format import script_text
from minipipe.schedules import build

HAS_PYTORCH = importlib.util.find_spec("torch") is not None


def script_of(schedule, costs=Costs()):
    return script_text(schedule, costs, simulate(schedule, costs).makespan)


@pytest.mark.parametrize("name", ["gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"])
def test_the_script_holds_the_table_and_the_costs(name):
    schedule = build(name, 4, 8)
    names = {}
    for node in ast.parse(script_of(schedule, Costs(F=2, I=3, W=1))).body:
        if isinstance(node, ast.Assign):
            exec(ast.unparse(node), {"re": re}, names)
    assert names["TABLE"] == schedule.to_csv() and names["N_STAGES"] == schedule.n_stages
    assert names["TICKS"]["I"] == [3 / schedule.stages_on[0]] * schedule.n_stages
    assert names["SIMULATED"] == simulate(schedule, Costs(F=2, I=3, W=1)).makespan


@pytest.mark.parametrize("schedule, costs, words", [
    (build("chimera", 4, 4), Costs(), "2 replicas"),
    (in_copies(build("1f1b", 2, 2), 2), Costs(), "2 replicas"),
    (with_recompute(build("gpipe", 2, 2)), Costs(), "recomputes"),
    (build("pipedream", 2, 2), Costs(), "updates"),
    (build("1f1b", 2, 2), Costs(F=1, B=3, I=1, W=1), "B = I \\+ W"),
])
def test_schedules_that_pytorch_cannot_run_are_refused(schedule, costs, words):
    with pytest.raises(ScheduleError, match=words):
        script_of(schedule, costs)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_PYTORCH, reason="PyTorch is not installed")
@pytest.mark.parametrize("name", ["1f1b", "interleaved", "zb-h1"])
def test_the_script_runs_in_pytorch_as_in_one_process(name, tmp_path):
    schedule = build(name, 4, 8)
    (tmp_path / "run.py").write_text(script_of(schedule), encoding="utf-8")
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "4", "run.py"]
    run = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    differences = re.search(r"of a loss (\S+), of a gradient (\S+)", run.stdout).groups()
    assert max(map(float, differences)) < 1e-15  # float64, and sums in another order
    run = subprocess.run([*command, "--tick", "0.1", "--output", "found.json"], cwd=tmp_path, check=True)
    of_ranks = json.loads((tmp_path / "found.json").read_text(encoding="utf-8"))
    labels = [[label for label, *_ in spans] for spans in of_ranks]
    assert labels == [list(map(str, order)) for order in schedule.devices]
    measured = max(end for spans in of_ranks for *_, end in spans)
    assert 1 <= measured / (0.1 * float(simulate(schedule).makespan)) < 1.1
