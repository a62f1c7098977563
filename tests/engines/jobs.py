"""Starts jobs of several MPI ranks: one for all checks with the same number of ranks."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
CHECKS, MISTAKES = HERE / "mpi_checks.py", HERE / "mpi_mistakes.py"
MPIEXEC = shutil.which("mpiexec", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))
MISSING = [name for name, found in (("mpi4py", find_spec("mpi4py")), ("mpiexec", MPIEXEC)) if not found]
REASON = f"no {' and no '.join(MISSING)}: in a virtual environment, pip install mpi4py mpich"
on_ranks = pytest.mark.skipif(bool(MISSING), reason=REASON)
SOON = 10      # seconds in which a job with a mistake is over
WAIT = 60      # seconds that a rank waits for another one, until its check fails
PATIENCE = 300  # seconds for all checks of a job


def start(n_ranks, *command, **variables):
    """Start `python COMMAND` on `n_ranks` ranks, with these variables of the environment as well."""
    path = os.pathsep.join([str(HERE.parent), os.environ.get("PYTHONPATH", "")])  # for the helpers
    settings = os.environ | {"OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": path, **variables}
    return subprocess.Popen(
        [MPIEXEC, "-n", str(n_ranks), sys.executable, *map(str, command)], env=settings, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )


def fail(n_ranks, *command, **variables):
    """Return (the exit status, the lines on stderr) of a job that ends soon, by one sentence of one rank."""
    process, begin = start(n_ranks, *command, **variables), time.monotonic()
    _, errors = process.communicate(timeout=60)
    assert time.monotonic() < begin + SOON + 5, errors  # 5 to start
    assert "Traceback" not in errors
    assert errors.count("minipipe: error:") <= 1
    return process.returncode, [line for line in errors.splitlines() if line and "Abort(" not in line]


def answers(checks, n_ranks):
    """Return {check: [what it returned, ""] or [None, the errors]}: one job runs them one after the other.

    A check that fails ends its job, and another job runs the checks after it.
    """
    found, left = {}, list(checks)
    while left:
        process = start(n_ranks, "-m", "mpi4py", CHECKS, *left, MINIPIPE_PATIENCE=str(WAIT))
        try:
            out, errors = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            process.terminate()
            out, errors = process.communicate()
            errors += f"\nnot done after {PATIENCE} seconds"
        for line in out.splitlines():
            check, answer = json.loads(line)
            found[check] = answer, ""
        left = [check for check in left if check not in found]
        if left:
            found[left.pop(0)] = None, errors
    return found


def once(folder, name, make):
    """Return `make()` of the first process that asks for `name`; the others wait for its file in `folder`."""
    path = folder / f"{name}.json"
    try:
        (folder / name).mkdir()
    except FileExistsError:
        while not path.exists():
            time.sleep(0.05)
    else:
        (folder / name / "done").write_text(json.dumps(make()))
        (folder / name / "done").rename(path)
    return json.loads(path.read_text())
