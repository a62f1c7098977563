"""Order and time need no numbers: Python without NumPy builds, checks, simulates and shows all schedules."""

import json
import subprocess
import sys
from hashlib import sha256
from pathlib import Path

ROOMS = ["cluster", "collectives", "order", "schedules", "plots"]
OUTSIDE = ["numpy", "matplotlib", "threadpoolctl"]
SIZES = [(1, 1), (2, 4)]  # all schedules exist for two devices and four micro-batches


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
    """Every file of these rooms loads there. A layer does not, so the test is not empty."""
    code = f"""
import json
from importlib import import_module
from pkgutil import iter_modules
for name in {ROOMS}:
    room = import_module(f"minipipe.{{name}}")
    for module in iter_modules(room.__path__):
        import_module(f"minipipe.{{name}}.{{module.name}}")
assert not [name for name in sys.modules if name.startswith("numpy.")]
import test_without_numpy
print(json.dumps(test_without_numpy.shown()))
try:
    from minipipe import Linear
except ImportError as error:
    print(error)
"""
    printed, refused = without_numpy(code).splitlines()
    found, expected = json.loads(printed), shown()
    assert "numpy" in refused and len(found) > 60 and found.keys() == expected.keys()
    for name in expected:
        assert found[name] == expected[name], f"{name} differs without NumPy"
