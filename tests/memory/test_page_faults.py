"""What a layer needs for a moment is freed after it, and stays with the process."""

import subprocess
import sys
from importlib.util import find_spec

import pytest

PROGRAM = """
import ctypes, resource
import numpy as np
from minipipe.cluster import Compute
from minipipe.engines.threads import Threads

if not hasattr(ctypes.CDLL(None), "mallopt"):
    raise SystemExit("no setting")

def micro_batch():
    return [np.ones(2**17) for _ in range(16)]  # 1 MiB each

def faults():
    for _ in range(3):
        micro_batch()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    micro_batch()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

def nothing():
    yield Compute("F0", lambda: None)

by_default = faults()
RUN
print(by_default, faults())
"""
AGAIN = """
import minipipe as mp
pipe = mp.Pipeline([mp.Linear(1, 1)], mp.MeanSquaredError(), 1, 1)
for _ in range(2):
    pipe.forward_backward(np.ones((1, 1)), np.ones((1, 1)))
"""


@pytest.mark.skipif(not find_spec("resource"), reason="no operating system that counts page faults")
@pytest.mark.parametrize("run", [
    pytest.param("Threads([nothing()]).run()", id="threads"),
    pytest.param(AGAIN, id="a mini-batch again", marks=pytest.mark.slow),
])
def test_memory_is_not_asked_for_again(run):
    """What a micro-batch has freed is there for the next, once threads have run, or a mini-batch again."""
    program = PROGRAM.replace("RUN", run)
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    if done.stderr.strip() == "no setting":
        pytest.skip("this C library has no such setting")
    by_default, kept = map(int, done.stdout.split())
    assert by_default > 1000 and kept < 100, done.stderr  # of 4,096 pages
