"""Order and time need no numbers: Python without NumPy builds, checks, simulates and shows all schedules."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

import pytest

ROOMS = ["cluster", "collectives", "order", "schedules", "plots"]
OUTSIDE = ["numpy", "matplotlib", "threadpoolctl"]
SIZES = [(1, 1), (2, 4), (4, 6)]


def settings():
    """Yield (name, schedule, costs, link, ports) of every schedule, alone and in two copies."""
    from minipipe.cluster import Link, ports
    from minipipe.order import Costs, in_copies
    from minipipe.schedules import SCHEDULES, build

    for name in sorted(SCHEDULES):
        for K, M in SIZES:
            try:
                schedule = build(name, K, M)
            except ValueError:  # this schedule does not exist for these sizes
                continue
            yield f"{name} {K} {M}", schedule, Costs(), Link(), ()
            n_stages = schedule.n_stages
            costs = Costs(F=[1 + s % 2 for s in range(n_stages)], message_bytes=8)
            link = Link(latency=1, bandwidth=4)
            yield f"{name} {K} {M} slow", schedule, costs, link, ()
            if SCHEDULES.facts[name].copies == 1 and SCHEDULES.facts[name].flush:
                twice = in_copies(build(name, K, M), 2)
                bounds = ports(2 * K, 8)
                yield f"{name} {K} {M} twice", twice, Costs(message_bytes=8), Link(latency=1), bounds


def shown():
    """Return {setting: hash of its order, its spans and messages, its text and its page}."""
    from minipipe.order import simulate

    found = {}
    for name, schedule, costs, link, bounds in settings():
        schedule.validate()
        trace = simulate(schedule, costs, link, ports=bounds)
        parts = [str(schedule), str(trace.spans), str(trace.messages), trace.to_text()]
        parts += [trace.to_html()] if schedule.n_microbatches == 4 else []  # which takes long
        found[name] = sha256("\n".join(parts).encode()).hexdigest()
    return found


def without_numpy(code):
    """Return what `code` prints in a Python in which NumPy and what needs it cannot be imported."""
    blocked = f"import sys; sys.modules.update(dict.fromkeys({OUTSIDE!r}))"
    path = [str(Path(__file__).parent), str(Path(__file__).parents[2])]
    code = f"{blocked}; sys.path[:0] = {path!r}\n{code}"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return run.stdout


def test_without_numpy_every_schedule_runs_and_looks_the_same():
    found = json.loads(without_numpy("import json, test_without_numpy as t; print(json.dumps(t.shown()))"))
    with_numpy = shown()
    assert len(found) > 80
    for name, expected in with_numpy.items():
        assert found[name] == expected, f"{name} differs without NumPy"


@pytest.mark.parametrize("room", ROOMS)
def test_every_file_of_the_room_loads_without_numpy(room):
    code = f"""
from importlib import import_module
from pkgutil import iter_modules
room = import_module("minipipe.{room}")
for module in iter_modules(room.__path__):
    import_module(f"minipipe.{room}.{{module.name}}")
assert not [name for name in sys.modules if name.startswith("numpy.")]
print("loaded")
"""
    assert without_numpy(code) == "loaded\n"


def test_what_needs_numpy_says_so():
    """The test is not empty: a layer cannot be imported there."""
    with pytest.raises(AssertionError, match="numpy"):
        without_numpy("from minipipe import Linear")
