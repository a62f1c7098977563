"""Measure times and memory as ratios, side by side in one process, and print them as one table.

    python3 tests/benchmarks/run.py

Training steps and layers stand beside what bounds them, and beside PyTorch if it is installed; simulations
beside a loop of additions; two devices beside one.

OpenBLAS chooses its kernels by the processor; the ratios depend on them. Therefore a second process measures
each row again, with kernels for AVX2 named by hand. The two processes take turns.
"""

import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))  # for `benchmarks`

from benchmarks.rows import ROWS, pytorch
from minipipe.arrays import blas_threads
from minipipe.watching import say, watched, with_progress

KERNEL, OTHER_KERNEL = "OPENBLAS_CORETYPE", "Zen"
INSIDE = "MINIPIPE_BENCH_INSIDE"
PATIENCE = 1.0  # times as many rounds as a row says
LINE = "{:66} {:>10} {:>28} {:>7} {:>7} {:>8}"


def main():
    """Print the table."""
    print(
        "float32, one thread unless it is said; medians of runs in turns, the ratio is that of the pairs\n"
        f"{OTHER_KERNEL}: the ratio with {KERNEL}={OTHER_KERNEL}, "
        "kernels for AVX2, instead of those that OpenBLAS chooses\n"
        "bound: the smallest ratio that is possible, where what stands beside ours bounds it"
    )
    print(LINE.format("what", "ours", "beside", "ratio", "Zen", "bound"), flush=True)
    with watched(), _process() as chosen, _process(OTHER_KERNEL) as other:
        for index in with_progress(range(len(ROWS)), "rows"):
            answers = [_ask(process, index) for process in (chosen, other)[:1 + ROWS[index].in_both]]
            say(_line(ROWS[index], *answers))
    if pytorch() is None:
        print("no PyTorch: it is not installed, so these rows have no ratio")


def _process(kernel=None):
    """BLAS chooses its kernels when it is loaded, so each choice needs a new process."""
    settings = {INSIDE: "1"}
    if kernel:
        settings[KERNEL] = kernel
    return subprocess.Popen(
        [sys.executable, __file__], env=os.environ | settings,
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
    """Measure each row that `_ask` asks for, and print the answer."""
    for question in sys.stdin:
        index, patience = json.loads(question)
        row = ROWS[index]
        print(json.dumps(row.measure(max(1, round(patience * row.n_rounds)), row.in_a_row)), flush=True)


def _line(row, chosen, other=None):
    bound = f">= {row.bound:.2f}" if row.bound else "-"
    if isinstance(chosen, str):
        return LINE.format(row.what, "-", chosen, "-", "-", bound)
    ours, beside, ratio = chosen
    measured = row.what, f"{ours:.2f} {row.unit}"
    if ratio is None:
        return LINE.format(*measured, f"no {row.beside}", "-", "-", bound)
    zen = f"{other[2]:.2f}" if other else "-"
    return LINE.format(*measured, f"{row.beside} {beside:.2f} {row.unit}", f"{ratio:.2f}", zen, bound)


if __name__ == "__main__":
    if INSIDE in os.environ:
        with blas_threads(1):
            _answer()
    else:
        argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
        main()
