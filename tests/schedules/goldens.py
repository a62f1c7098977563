"""What `simulate` says of every schedule, as it was when it was last found right:

    python3 tests/schedules/goldens.py                                            records all cases anew
    python3 tests/schedules/goldens.py 1f1b/4/8/ints/latency/never/footprints     prints the trace of one case

`goldens.json` holds a short hash of each case's trace: ticks, messages, why devices wait, and, where there
are footprints, the bytes that they hold. Record anew when a change of these is meant, and say in the commit
what has changed and why it is right.
"""

import hashlib
import json
import sys
from fractions import Fraction
from functools import cache
from itertools import product
from pathlib import Path

FILE = Path(__file__).with_suffix(".json")
sys.path.insert(0, str(FILE.parents[2]))

import minipipe as mp  # noqa: E402
from minipipe.planning import Footprint  # noqa: E402
from minipipe.planning.one_microbatch import PATTERNS  # noqa: E402
from minipipe.schedules import (  # noqa: E402
    SCHEDULES,
    in_copies,
    names_having,
    with_all_reduce,
    with_recompute,
    with_updates,
)

# A list of its own, so that a new schedule breaks nothing. Put it here, too, when its order is settled.
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
BYTES = ("messages", "footprints")  # those of messages, by the costs; or of all that is held


def sizes_of(name):
    """Those `SIZES` for which the schedule exists."""
    return [size for size in SIZES if _exists(name, *size)]


def cases(name, K, M):
    """All combinations for one schedule: (name, K, M, costs, link, recompute, bytes)."""
    return [(name, K, M, *choice) for choice in product(COSTS, LINKS, RECOMPUTE, BYTES)]


def few_cases(name, K, M):
    """Some of `cases`: over all sizes, each of the costs meets each of the links."""
    turn = SIZES.index((K, M))
    found = []
    for number, costs in enumerate(COSTS):
        link = list(LINKS)[(number + turn) % len(LINKS)]
        found.append((name, K, M, costs, link, RECOMPUTE[turn % 2], BYTES[(number + turn // 2) % 2]))
    return found


def label(case):
    return "/".join(map(str, case))


@cache
def schedule_of(name, K, M, recompute="never"):
    if name not in (*NAMES, *CLOSED):
        raise ValueError(f"there is no {name!r} among {', '.join((*NAMES, *CLOSED))}")
    return with_recompute((CLOSED | SCHEDULES)[name](K, M), recompute)


def lines(case):
    """The trace of a case as text, one line for each thing that happened; 3, 3.0 and Fraction(3) are "3"."""
    name, K, M, costs, link, recompute, counted = case
    schedule = schedule_of(name, K, M, recompute)
    footprints = None
    if counted == "footprints":
        footprints = _footprints(schedule.n_stages, tied=name not in names_having(flush=False))
    trace = mp.simulate(schedule, COSTS[costs](schedule.n_stages), LINKS[link], footprints)
    found = [f"makespan {_text(trace.makespan)}"]
    for device, what, start, end, lane in trace.spans:
        found.append(f"device {device} {lane}: {what} from {_text(start)} to {_text(end)}")
    for what, source, to, sent, arrived, received, n_bytes, lane, _ in trace.messages:
        ticks = f"sent {_text(sent)} arrived {_text(arrived)} received {_text(received)}"
        found.append(f"message {what} from {source} {lane} to {to}: {ticks} bytes {_text(n_bytes)}")
    for device, start, end, reason, what, source, lane in trace.idle:
        ticks = f"from {_text(start)} to {_text(end)}"
        found.append(f"device {device} {lane}: idle {ticks}: {reason} {what} {source}")
    if footprints is not None:
        for device in range(trace.n_devices):
            found += _held(device, trace.ledger(device))
    return found


def hash_of(case):
    """Of what happens, not of the order in which a trace lists what happens in the same tick."""
    return hashlib.sha256("\n".join(sorted(lines(case))).encode()).hexdigest()[:8]


def read():
    """{case: hash} of all cases that were recorded."""
    found = {}
    for name, of_sizes in json.loads(FILE.read_text(encoding="utf-8")).items():
        for size, hashes in of_sizes.items():
            K, M = map(int, size.split())
            found |= zip(cases(name, K, M), hashes.split(), strict=True)
    return found


def record():
    """Write the hashes of all cases, a line for each schedule and size."""
    names = []
    for name in (*NAMES, *CLOSED):
        rows = []
        for K, M in sizes_of(name):
            hashes = " ".join(hash_of(case) for case in cases(name, K, M))
            rows.append(f'  "{K} {M}": "{hashes}"')
        names.append(f'"{name}": {{\n' + ",\n".join(rows) + "\n}")
    FILE.write_text("{\n" + ",\n".join(names) + "\n}\n", encoding="utf-8")


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


@cache
def _footprints(n, tied):
    """Of n stages, with a skip from the first to the last, which share a W.

    Made up, so that no layer's caches matter.
    """
    return [_footprint(stage, n, tied) for stage in range(n)]


def _footprint(stage, n, tied):
    first, last = stage == 0, stage == n - 1
    skips, tied_here = {}, {}
    if n > 1 and (first or last):
        skips = {("F" if first else "B", "skip"): 2}
        tied_here = {("W", stage): 40} if tied else {}
    kept_input = {"stashed inputs": 5, "caches": 0}
    kept_caches = {"stashed inputs": 0, "caches": 20 + stage}
    actions = {}
    for pattern in PATTERNS:
        of_kinds = {
            "F": (5, 9 + stage, kept_input if "R" in pattern else kept_caches),
            "R": (0, 0, kept_caches),
            "B": (4, 11, {"stashed inputs": 0, "caches": 0}),
            "I": (4, 10, {"stashed inputs": 0, "caches": 13 + stage}),
            "W": (0, 0, {"stashed inputs": 0, "caches": 0}),
        }
        actions[pattern] = {kind: of_kinds[kind] for kind in pattern}
    return Footprint(
        parameters=100 + 10 * stage,
        optimizer_state=30 + stage,
        gradients=100 + 10 * stage,
        statistics=7 * (stage % 2),
        sent={"F": 0 if last else 3 + stage, "B": 0 if first else 2 + stage},
        skips=skips,
        tied=tied_here,
        actions=actions,
    )


def main(arguments):
    if not arguments:
        record()
        return
    for argument in arguments:
        name, K, M, *choice = argument.split("/")
        print("\n".join(lines((name, int(K), int(M), *choice))))


if __name__ == "__main__":
    main(sys.argv[1:])
