"""What `simulate` says of every schedule: ticks, messages, and why devices wait.
And what is said of it: the explanation, text and page of each run, and what commands print.

A case is "schedule K M", such as "1f1b 4 8"; a part is "costs/link/recompute". A case of texts may also be
a command as it is typed, or "published", the cells that were copied from papers.
"""

import contextlib
import io
import os
import re
import shlex
import tempfile
from fractions import Fraction
from functools import cache
from pathlib import Path

from figures.drawing.explained import TORCHGPIPE
from figures.drawing.zero_bubble import ZERO_BUBBLE

import minipipe as mp
from minipipe.cli.main import main
from minipipe.order import in_copies, with_all_reduce, with_recompute, with_updates
from minipipe.papers import tables as published
from minipipe.schedules import SCHEDULES, build

# A list of its own, so that a new schedule breaks nothing: put it here, too, when its order is settled.
NAMES = (
    "naive", "gpipe", "gpipe-fifo", "1f1b", "eager-1f1b", "interleaved", "looped", "zb-h1", "zb-h2", "zb-v",
    "interleaved-zb", "v-half", "v-min", "dualpipe-v", "dualpipe", "chimera",
    "pipedream", "pipedream-vertical", "pipedream-2bw",
)
CLOSED = {  # all-reduces and updates in the order
    "gpipe-U": lambda K, M: with_updates(SCHEDULES["gpipe"](K, M)),
    "1f1b-in-2-copies-A-U": lambda K, M: with_updates(with_all_reduce(in_copies(SCHEDULES["1f1b"](K, M), 2))),
    "zb-v-in-2-copies-A": lambda K, M: with_all_reduce(in_copies(SCHEDULES["zb-v"](K, M), 2)),
    "chimera-A-U": lambda K, M: with_updates(with_all_reduce(SCHEDULES["chimera"](K, M))),
}
SIZES = ((1, 3), (2, 2), (2, 5), (3, 6), (4, 4), (4, 8))  # (devices, micro-batches)

# For n stages. All are exact: no case depends on how a sum of floats is rounded.
COSTS = {
    "ints": lambda n: mp.Costs(F=1, B=2, A=1, U=1, message_bytes=4),
    "fractions": lambda n: mp.Costs(
        F=Fraction(2, 3), B=Fraction(7, 4), R=Fraction(1, 2), I=Fraction(4, 5), FB=2, A=Fraction(1, 3),
        message_bytes=[3 + stage for stage in range(n)],
    ),
    "lists": lambda n: mp.Costs(
        F=[1 + stage % 3 for stage in range(n)],
        B=[4 - stage % 2 for stage in range(n)],
        U=[stage % 2 for stage in range(n)],
        message_bytes=[6 + 2 * (stage % 2) for stage in range(n)],
    ),
    "floats": lambda n: mp.Costs(
        F=1.5, B=2.75, R=1.25, I=1.25, W=1.5, FB=3.5, A=0.5, U=0.25, message_bytes=5
    ),
}
LINKS = {
    "free": mp.Link(),
    "latency": mp.Link(latency=Fraction(3, 2)),
    "queueing": mp.Link(latency=1, bandwidth=Fraction(2)),  # most messages take longer than a forward
    "blocking": mp.Link(latency=1, blocking=True),
}
RECOMPUTE = ("never", "always")


def cases():
    """Return "schedule K M" for all sizes for which the schedules exist."""
    return [f"{name} {K} {M}" for name in (*NAMES, *CLOSED) for K, M in SIZES if _exists(name, K, M)]


def parts(case):
    """Return {part: lines}, a part for each of the costs.

    All sizes of a schedule together have each of the costs with each of the links.
    """
    name, K, M = case.split()
    turn, found = SIZES.index((int(K), int(M))), {}
    for number, costs in enumerate(COSTS):
        choice = costs, list(LINKS)[(number + turn) % 4], RECOMPUTE[turn % 2]
        found["/".join(choice)] = sorted(lines(name, int(K), int(M), *choice))
    return found


@cache
def schedule_of(name, K, M, recompute="never"):
    if name not in (*NAMES, *CLOSED):
        raise ValueError(f"there is no {name!r} among {', '.join((*NAMES, *CLOSED))}")
    return with_recompute((CLOSED | SCHEDULES)[name](K, M), recompute)


def lines(name, K, M, costs, link, recompute):
    """Return the trace as text, one line for each thing that happened; 3, 3.0 and Fraction(3) are "3"."""
    schedule = schedule_of(name, K, M, recompute)
    trace = mp.simulate(schedule, COSTS[costs](schedule.n_stages), LINKS[link])
    return [line for of_kind in lines_of(trace, counted=False).values() for line in of_kind]


def lines_of(trace, counted):
    """Return {what: lines} of a trace; its bytes only if they were counted."""
    spans = [f"makespan {_text(trace.makespan)}"]
    for device, what, start, end, lane in trace.spans:
        spans.append(f"device {device} {lane}: {what} from {_text(start)} to {_text(end)}")
    messages = []
    for what, source, to, sent, arrived, received, n_bytes, lane, _ in trace.messages:
        ticks = f"sent {_text(sent)} arrived {_text(arrived)} received {_text(received)}"
        messages.append(f"message {what} from {source} {lane} to {to}: {ticks} bytes {_text(n_bytes)}")
    idle = []
    for device, start, end, reason, what, source, lane in trace.idle:
        ticks = f"from {_text(start)} to {_text(end)}"
        idle.append(f"device {device} {lane}: idle {ticks}: {reason} {what} {source}")
    held = [line for device in range(trace.n_devices if counted else 0)
            for line in _held(device, trace.ledger(device))]
    return {"spans": spans, "messages": messages, "idle": idle, "bytes": held}


@cache
def _text(number):
    return "never" if number is None else str(Fraction(number))


def _held(device, ledger):
    """A line for each tick at which what a device holds changes."""
    found, before = [], None
    for tick, by_kind in ledger:
        kinds = [f"{kind} {_text(n_bytes)}" for kind, n_bytes in sorted(by_kind.items()) if n_bytes]
        if kinds != before:
            found.append(f"device {device} holds at {_text(tick)}: {', '.join(kinds)}")
        before = kinds
    return found


def _exists(name, K, M):
    try:
        schedule_of(name, K, M)
    except ValueError:
        return False
    return True


# ---- what is said ----

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
PUBLISHED = {
    name: getattr(published, name) for name in ("TABLE_1", "TABLE_2", "TABLE_3", "ACCURACIES")
} | {"TORCHGPIPE": TORCHGPIPE, "ZERO_BUBBLE": ZERO_BUBBLE}
SECONDS = re.compile(r"\d+(\.\d+)? (s|ms)\b")  # of a clock


def text_cases():
    """Return every schedule with the most micro-batches of `cases`, and every command."""
    largest = {case.split()[0]: case for case in cases()}
    return [*largest.values(), *COMMANDS.strip().splitlines(), "published"]


def floats(cases):
    """Return the commands that train in floats, whatever the others are."""
    return OF_FLOATS.strip().splitlines()


def text_parts(case):
    """Return {part: lines} of a run, or of what a command prints."""
    if case in (COMMANDS + OF_FLOATS).splitlines():
        return _said(case)
    if case == "published":
        return {name: str(cells).split("), ") for name, cells in PUBLISHED.items()}
    name, K, M = case.split()
    schedule = schedule_of(name, int(K), int(M))
    trace = mp.simulate(schedule, COSTS["ints"](schedule.n_stages), LINKS["latency"])
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
