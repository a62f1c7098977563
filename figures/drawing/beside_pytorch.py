"""The picture of three schedules in PyTorch on four processes, and simulated."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from minipipe import Costs, simulate
from minipipe.cluster import SECONDS, Trace
from minipipe.cluster.record import COMPUTE, Record
from minipipe.order.actions import parse
from minipipe.order.csv_format import script_text
from minipipe.plots import compare
from minipipe.schedules import build

K, M, TICK = 4, 8, 0.1  # seconds for which a stage sleeps in a forward
SCHEDULES = {"gpipe": "GPipe", "1f1b": "1F1B", "interleaved": "Interleaved 1F1B"}


def beside_pytorch():
    """Return a `Figure` of runs in seconds, measured and simulated; print differences.

    The environment variable PYTORCH_PYTHON may name another Python that has PyTorch.
    """
    traces = {}
    for name, title in SCHEDULES.items():
        schedule = build(name, K, M)
        simulated = simulate(schedule, Costs(F=TICK, B=2 * TICK, unit=SECONDS))
        measured = measured_trace(schedule)
        traces[f"{title} in PyTorch, measured"] = measured
        traces[f"{title}, simulated"] = simulated
        found, expected = measured.makespan, simulated.makespan
        print(f"{title}: {found:.3f} s measured, {expected:.3f} s simulated: {found / expected - 1:+.1%}")
    return compare(traces)


def measured_trace(schedule) -> Trace:
    """Return the run of a schedule in PyTorch, with stages that sleep."""
    costs = Costs()
    with tempfile.TemporaryDirectory() as folder:
        script, found = Path(folder) / "run.py", Path(folder) / "measured.json"
        script.write_text(script_text(schedule, costs, simulate(schedule, costs).makespan), encoding="utf-8")
        python = os.environ.get("PYTORCH_PYTHON") or sys.executable
        command = [python, "-m", "torch.distributed.run", "--nproc-per-node", str(K), str(script)]
        run = subprocess.run(
            [*command, "--tick", str(TICK), "--output", str(found)], capture_output=True, text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"}, check=False,
        )
        if run.returncode:
            raise RuntimeError(f"{shutil.which(python)} cannot run PyTorch's pipelines: {run.stderr[-500:]}")
        of_ranks = json.loads(found.read_text(encoding="utf-8"))
    record = Record([(rank, COMPUTE) for rank in range(K)], schedule.stages_on, SECONDS)
    for rank, spans in enumerate(of_ranks):
        for label, start, end in spans:
            record.spans += (rank, parse(label, rank), start, end)
            record.finished[rank] = end
    return Trace(record)
