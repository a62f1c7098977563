"""Pictures for notebook 39: where the time of a run goes, and the picture that a job on MPI ranks draws."""

import os
import shutil
import subprocess
import sys
import sysconfig
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt

RECORDED = Path(__file__).parent / "real_processes.png"
COLOURS = {"computes": "#0072B2", "engine": "#E69F00", "waits": "#DDDDDD"}


def shares(ax, traces):
    """Draw into the matplotlib axes `ax` what the devices of each run do, as shares of its time.

    traces: {name: trace}. A device computes, does something for the engine, or waits.
    """
    names, parts = [], {kind: [] for kind in COLOURS}
    for name, trace in traces.items():
        for device in range(trace.n_devices):
            lengths = {"computes": 0, "engine": 0}
            for span in trace.spans_of(device):
                kind = "engine" if getattr(span.label, "kind", None) == "overhead" else "computes"
                lengths[kind] += float(span.end - span.start) / float(trace.makespan)
            lengths["waits"] = max(0, 1 - sum(lengths.values()))
            names.append(f"{name}, device {device}")
            for kind in COLOURS:
                parts[kind].append(100 * lengths[kind])
    left = [0] * len(names)
    for kind, widths in parts.items():
        ax.barh(names, widths, left=left, color=COLOURS[kind], edgecolor="white", label=kind)
        left = [start + width for start, width in zip(left, widths)]
    ax.set(xlim=(0, 100), xlabel="share of the run's time (%)")
    ax.invert_yaxis()
    ax.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)


def on_ranks(n_ranks, options):
    """The picture that `mpiexec -n N python -m minipipe --engine mpi` draws, as an array.

    n_ranks: N.
    options: the words behind that.

    Where no MPI is installed, it is one that was recorded.
    """
    scripts = os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]])
    mpiexec = shutil.which("mpiexec", path=scripts)
    if find_spec("mpi4py") is None or mpiexec is None:
        return plt.imread(RECORDED)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "measured.png"
        command = [mpiexec, "-n", str(n_ranks), sys.executable, "-m", "minipipe", "--engine", "mpi", *options]
        done = subprocess.run([*command, "--output", str(path)], capture_output=True, text=True, timeout=200)
        if done.returncode:
            raise RuntimeError(done.stderr)
        return plt.imread(path)
