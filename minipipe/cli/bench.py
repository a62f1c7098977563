"""`minipipe bench`: times and memory as ratios, measured side by side in one process, as one table.

OpenBLAS chooses its kernels by the processor; the ratios depend on them. Therefore a second process measures
each row again, with kernels for AVX2 named by hand. The two processes take turns.
"""

import json
import os
import subprocess
import sys

from ..planning import simulate
from ..schedules import BUILDERS
from .benchmarks import ROWS, milliseconds, pytorch

PURPOSE = "measure training steps and layers, beside PyTorch if it is installed, and the simulator"
EPILOG = """example:
  python3 -m minipipe bench
"""
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
KERNEL, OTHER_KERNEL = "OPENBLAS_CORETYPE", "Zen"
INSIDE = "MINIPIPE_BENCH_INSIDE"
PATIENCE = 1.0  # times as many rounds as a row says
SIMULATIONS = [  # name, devices, micro-batches, seconds asked
    ("1f1b", 128, 1024, 1.2), ("1f1b", 128, 2048, None), ("1f1b", 128, 4096, None),
    ("interleaved-zb", 32, 256, 0.25), ("interleaved-zb", 32, 512, None), ("interleaved-zb", 32, 1024, None),
]

LINE = "{:66} {:>10} {:>28} {:>7} {:>7} {:>8}"


def add_options(parser):
    """There are none."""


def run(options):
    if INSIDE in os.environ:
        return _answer()
    print(
        "float32, one thread; medians of runs in turns, the ratio is the median of the pairs' ratios\n"
        f"{OTHER_KERNEL}: the ratio with {KERNEL}={OTHER_KERNEL}, "
        "kernels for AVX2, instead of those that OpenBLAS chooses"
    )
    print(LINE.format("what", "ours", "beside", "ratio", "Zen", "asked"), flush=True)
    with _process() as chosen, _process(OTHER_KERNEL) as other:
        for index in range(len(ROWS)):
            print(_line(ROWS[index], _ask(chosen, index), _ask(other, index)), flush=True)
    for row in SIMULATIONS:
        print(_simulation(*row), flush=True)
    if pytorch() is None:
        print("no PyTorch: it is not installed, so these rows have no ratio")


def _process(kernel=None):
    """BLAS reads its settings when it is loaded, so each of them needs a new process."""
    settings = dict.fromkeys((*THREADS, INSIDE), "1")
    if kernel:
        settings[KERNEL] = kernel
    return subprocess.Popen(
        [sys.executable, "-m", "minipipe", "bench"], env=os.environ | settings,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )


def _ask(process, index):
    """(ours, beside, ratio) of a row, measured by `process`."""
    print(json.dumps([index, PATIENCE]), file=process.stdin, flush=True)
    answer = process.stdout.readline()
    if not answer:
        raise RuntimeError(
            f"the process that measures {ROWS[index].what.strip()!r} has ended before its answer"
        )
    return json.loads(answer)


def _answer():
    """The other side of `_ask`."""
    for question in sys.stdin:
        index, patience = json.loads(question)
        row = ROWS[index]
        print(json.dumps(row.measure(max(1, round(patience * row.n_rounds)), row.in_a_row)), flush=True)


def _line(row, chosen, other):
    ours, beside, ratio = chosen
    measured = row.what, f"{ours:.2f} {row.unit}"
    asked = f"<= {row.asked:.2f}" if row.asked else "-"
    if ratio is None:
        return LINE.format(*measured, f"no {row.beside}", "-", "-", asked)
    return LINE.format(
        *measured, f"{row.beside} {beside:.2f} {row.unit}", f"{ratio:.2f}", f"{other[2]:.2f}", asked
    )


def _simulation(name, n_devices, n_microbatches, seconds_asked):
    """Building, validating and simulating; for 1F1B, simulating alone, which validates, too."""
    builder = BUILDERS[name]
    built = builder(n_devices, n_microbatches)

    def run():
        simulate(built if name == "1f1b" else builder(n_devices, n_microbatches))

    ms = min(milliseconds(run, in_a_row=1) for _ in range(3))
    n_actions = sum(map(len, built.devices))
    what = f"simulator, {name}, K = {n_devices}, M = {n_microbatches:,}: {n_actions:,} actions"
    asked = f"<= {1e3 * seconds_asked:,.0f}" if seconds_asked else "-"
    return LINE.format(
        what, f"{ms:,.0f} ms", f"{1e3 * n_actions / ms:,.0f} actions/s", "-", "-", asked
    )
