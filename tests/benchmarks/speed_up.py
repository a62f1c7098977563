"""How much faster two devices of this computer are than one: what the last rows of the table measure.

On MPI ranks, it is `mpiexec -n 2 python3 tests/benchmarks/speed_up.py CASE ROUNDS SIZE`, which prints the
numbers.
"""

import json
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from minipipe import DataParallel, Linear, MeanSquaredError, Pipeline, ReLU, Sequential
from minipipe.arrays import blas_threads
from minipipe.engines import world
from minipipe.graph import Graph
from minipipe.schedules import SCHEDULES

SIZE, DEPTH, M = 1024, 8, 8
LATE = "1f1b-late-w"


def least(name):
    """Return the smallest ratio on 2 devices: the makespan divided by all work, with B = 2 F."""
    return SCHEDULES.facts[name].ticks(K=2, M=M) / (2 * M * 3)


CASES = [  # what, beside what, the smallest ratio that is possible, case, engine
    (f"8 x Linear(1,024), m = 512: {what}", *others)
    for what, *others in [
        ("1F1B, K = 2, M = 8, threads", "K = 1", least("1f1b"), "pipeline", "threads"),
        ("1F1B, K = 2, M = 8, MPI", "K = 1", least("1f1b"), "pipeline", "mpi"),
        ("the same with late W, threads", "full batch", least(LATE), "late", "threads"),
        ("the same with late W, MPI", "full batch", least(LATE), "late", "mpi"),
        ("data parallel, D = 2, threads", "full batch", 1 / 2, "data", "threads"),
        ("data parallel, D = 2, MPI", "full batch", 1 / 2, "data", "mpi"),
        ("half of it in each of two processes at once", "full batch", 1 / 2, "halves", "mpi"),
        ("full batch, two threads of BLAS", "one thread", 1 / 2, "BLAS", None),
    ]
]


def network(size):
    """The layers, of so many units, and the loss."""
    return [layer for _ in range(DEPTH) for layer in (Linear(size, size), ReLU())], MeanSquaredError()


def alone(case, size):
    """What the two devices are compared with: a function that runs a mini-batch on one."""
    setting = network(size)
    if case == "pipeline":
        return Pipeline(*setting, 1, M, dtype=np.float32).forward_backward
    net = Sequential(*setting, dtype=np.float32)
    if case != "BLAS":
        return net.forward_backward

    def single(X, Y):
        with blas_threads(1):
            net.forward_backward(X, Y)

    return single


def together(case, engine, size):
    """The function that runs it on two: a pipeline, one with late weight gradients, or copies.

    Or what bounds these: the same work without a message, or matrix products with two threads.
    """
    setting = network(size)
    if case == "BLAS":
        net = Sequential(*setting, dtype=np.float32)

        def double(X, Y):
            with blas_threads(2):
                net.forward_backward(X, Y)

        return double
    if case == "halves":
        half, ranks = Sequential(*setting, dtype=np.float32), world()

        def apart(X, Y):
            half.forward_backward(*(np.split(array, 2, axis=1)[ranks.rank] for array in (X, Y)))
            ranks.broadcast(None, 1, "the end of the other half")

        return apart
    if case == "data":
        return DataParallel(*setting, 2, dtype=np.float32, engine=engine).forward_backward
    name = LATE if case == "late" else "1f1b"
    return Pipeline(*setting, 2, M, schedule=name, dtype=np.float32, engine=engine).forward_backward


def measured(case, engine, n_rounds, size=SIZE):
    """(milliseconds on two, on one, the median of the ratios of the pairs); None on ranks above 0.

    A mini-batch has half as many samples as a layer has units. The runs take turns: what disturbs the
    computer disturbs both of a pair.
    """
    rng = np.random.default_rng(0)
    X, Y = rng.standard_normal((2, size, size // 2), np.float32)
    ranks = world() if engine == "mpi" else None
    speaks = ranks is None or ranks.rank == 0
    one, two = alone(case, size) if speaks else None, together(case, engine, size)
    rounds = []
    for _ in range(n_rounds + 1):
        of_one = milliseconds(one, X, Y) if speaks else None
        if ranks is not None:
            ranks.broadcast(None, 0, "its turn")
        rounds.append((milliseconds(two, X, Y), of_one))
    return medians_of(rounds[1:]) if speaks else None


def medians_of(rounds):
    """(milliseconds on two, on one, the ratio of a pair), each in the median."""
    medians = [statistics.median(column) for column in zip(*rounds)]
    return *medians, statistics.median(ours / other for ours, other in rounds)


def copying(n_rounds, in_a_row, size=SIZE):
    """How long a graph of products takes on threads if each result is copied while the next is computed, and
    if all is done one after the other.

    The copy has half the precision, so that it takes about as long as the product. Source: Zhang et al., Dive
    into Deep Learning, section 13.2.
    """
    lacks = missing("threads")
    if lacks is not None:
        return lacks
    left, right, graph = np.ones((size, 64), np.float32), np.ones((64, size), np.float32), Graph()
    for _ in range(12):
        product, copy = np.empty((size, size), np.float32), np.empty((size, size), np.float16)
        graph.call(np.matmul, left, right, out=product, lane=0)
        graph.call(np.copyto, copy, product, writes=[copy], lane=(0, "copy"))
    one_after_the_other = {(0, "compute"): range(len(graph.tasks))}
    rounds = [
        [1e3 * graph.run("threads", orders=orders).makespan for orders in (None, one_after_the_other)]
        for _ in range(n_rounds + 1)
    ]
    return medians_of(rounds[1:])


def milliseconds(run, X, Y):
    begin = time.perf_counter()
    run(X, Y)
    return 1e3 * (time.perf_counter() - begin)


def missing(engine):
    """What this computer lacks for a measurement on two devices; None if nothing."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores < 2:
        return "no second core"
    if engine == "mpi" and not (find_spec("mpi4py") and mpiexec()):
        return "no MPI"
    return None


def mpiexec():
    """The path of the program, or None; that of a virtual environment comes first."""
    return shutil.which("mpiexec", path=os.pathsep.join([sysconfig.get_path("scripts"), os.environ["PATH"]]))


def speed_up(case, engine, size=SIZE):
    """How to measure it, as for a `Row`; a text where that cannot be."""
    def measure(n_rounds, in_a_row):
        lacks = missing(engine)
        if lacks is not None:
            return lacks
        if engine != "mpi":
            return measured(case, engine, n_rounds, size)
        command = [mpiexec(), "-n", "2", sys.executable, __file__, case, str(n_rounds), str(size)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)} has failed: {done.stderr.strip()}")
        return json.loads(done.stdout)

    return measure


if __name__ == "__main__":
    with world().job():
        answer = measured(sys.argv[1], "mpi", *map(int, sys.argv[2:]))
    if answer:
        print(json.dumps(answer))
