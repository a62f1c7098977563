"""What is said: the explanation, text and page of each schedule's run, and what commands print.

A case is "schedule K M", a command as it is typed, or "published", the cells that were copied from papers.
"""

import contextlib
import io
import os
import re
import shlex
import tempfile
from functools import cache
from pathlib import Path

from goldens import traces

import minipipe as mp
from minipipe.cli.main import main
from minipipe.papers import tables as published
from minipipe.schedules import build

COMMANDS = """
compare --devices 2 --microbatches 4 --latency 0.5 --output runs.svg
show zb-h1 --recompute --output run.svg
show 1f1b --costs F=2,B=3,message_bytes=4 --bandwidth 2 --explain
show zb-v --output zb-v.csv
show nonsense
check sound.csv --microbatches 8 --most-alive 4
check faulty.csv
search --devices 2 --microbatches 4 --most-alive 2
search --greedy --halves --devices 4 --microbatches 8 --stages-per-device 2
"""
OF_FLOATS = """
--epochs 1 --devices 2 --microbatches 4 --replicas 2 --output run.svg
check
"""
FILES = {  # that the commands find in their folder
    "sound.csv": build("1f1b", 4, 8).to_csv(),
    "faulty.csv": "0F0,0B0\n1B0,1F0\n",
}
PUBLISHED = ("TABLE_1", "TABLE_2", "TABLE_3", "ACCURACIES", "TORCHGPIPE", "ZERO_BUBBLE")
SECONDS = re.compile(r"\d+(\.\d+)? (s|ms)\b")  # of a clock


def cases():
    """Return every schedule with the most micro-batches of `traces`, and every command."""
    largest = {case.split()[0]: case for case in traces.cases()}
    return [*largest.values(), *COMMANDS.strip().splitlines(), "published"]


def floats(cases):
    """Return the commands that train in floats, whatever the others are."""
    return OF_FLOATS.strip().splitlines()


def parts(case):
    """Return {part: lines} of a run, or of what a command prints."""
    if case in (COMMANDS + OF_FLOATS).splitlines():
        return _said(case)
    if case == "published":
        return {name: str(vars(published)[name]).split("), ") for name in PUBLISHED}
    name, K, M = case.split()
    schedule = traces.schedule_of(name, int(K), int(M))
    footprints = traces.footprints_of(name, schedule.n_stages)
    costs = traces.COSTS["ints"](schedule.n_stages)
    trace = mp.simulate(schedule, costs, traces.LINKS["latency"], footprints)
    page = trace.to_html()
    return {
        "explain": str(trace.explain()).splitlines(),
        "critical path": [str(step) for step in trace.critical_path()],
        "text": trace.to_text().splitlines(),
        "data of the page": re.search(r'type="application/json">(.*?)</script>', page)[1].split("],["),
        "order": str(schedule).splitlines(),
    }


@contextlib.contextmanager
def _inside(folder):
    """Work in a folder: `contextlib.chdir`, which Python 3.10 has not."""
    before = os.getcwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


@cache
def _said(command):
    printed, complained = io.StringIO(), io.StringIO()
    with tempfile.TemporaryDirectory() as folder, _inside(folder):
        for name, text in FILES.items():
            Path(name).write_text(text)
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(complained):
            try:
                status = main(shlex.split(command))
            except SystemExit as exit:
                status = exit.code
        written = sorted(str(path) for path in Path().rglob("*") if path.is_file())
    said = {"printed": printed, "complained": complained}
    said = {part: SECONDS.sub("some s", text.getvalue()).splitlines() for part, text in said.items()}
    return said | {"status and files": [str(status), *written]}
