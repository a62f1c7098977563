"""Measure times as ratios, side by side in one process, and print them as one table.

    python3 tests/benchmarks/run.py

Training steps and layers stand beside what bounds them; simulations beside a loop of additions; two devices
beside one. Every row is float32, and uses one thread unless it says so. OpenBLAS chooses its kernels by the
processor, and the ratios depend on them: OPENBLAS_CORETYPE=Zen in front of the command takes those for AVX2.

On MPI ranks, two devices are `mpiexec -n 2 python3 tests/benchmarks/run.py CASE ROUNDS SIZE`, which prints
the numbers.
"""

import argparse
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))

from minipipe import (
    SGD, Conv2d, DataParallel, Linear, MeanSquaredError, Pipeline, ReLU, Sequential, SoftmaxCrossEntropy,
    one_hot, simulate,
)
from minipipe.arrays import blas_threads, even_slices, leaves
from minipipe.cluster import Cluster, ports
from minipipe.collectives import Group, all_reduce
from minipipe.engines import world
from minipipe.models import mlp
from minipipe.schedules import SCHEDULES, build
from minipipe.watching import say, watched, with_progress

PATIENCE = 1.0  # times as many rounds as a row says
LINE = "{:66} {:>10} {:>28} {:>7} {:>8}"
# CPU time does not count the time of other programs; on Windows it comes in steps of 16 ms, too long for us
CLOCK = time.process_time if os.name == "posix" else time.perf_counter

MLP = mlp((784, 512, 512, 10))
CONVOLUTION, IMAGES = Conv2d(64, 64, 3, padding=1), (64, 32, 32, 32)


# ---- what minipipe adds to the layers: its runs, and its simulations ----


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def pipeline_beside_a_loop(widths, n_microbatches):
    """Return a training step of a `Pipeline` of 4 stages, and of a plain loop over the same micro-batches."""
    X, Y = numbers(widths[0], 128), one_hot(np.arange(128) % 10, 10, np.float32)
    layers, loss, optimizer = mlp(widths), SoftmaxCrossEntropy(), SGD(0.01)
    pipe = Pipeline(layers, loss, 4, n_microbatches, schedule="1f1b", dtype=np.float32)
    net, its_optimizer = Sequential(layers, loss, dtype=np.float32), SGD(0.01)

    def ours():
        pipe.forward_backward(X, Y)
        pipe.step(optimizer)

    def its():
        sums = None
        for part in even_slices(128, n_microbatches):
            A = X[:, part]
            for layer in net.layers:
                A = layer.forward(A)
            loss.forward(A, Y[:, part], 128)
            dA, gradients = loss.backward(), []
            for layer in reversed(net.layers[1:]):
                dA, dW, db = layer.backward(dA)
                gradients.insert(0, (dW, db))
            gradients.insert(0, net.layers[0].backward_weight(dA))
            for total, gradient in zip(leaves(sums), leaves(gradients)):
                total += gradient
            sums = sums or gradients
        its_optimizer.update(net.layers, sums)

    return ours, its


def copies_beside_one_device(n_replicas):
    """A training step of `DataParallel`, whose copies one core simulates, and of `Sequential`."""
    X, Y = numbers(784, 128), one_hot(np.arange(128) % 10, 10, np.float32)
    layers, loss = mlp((784, 512, 512, 10)), SoftmaxCrossEntropy()
    copies = DataParallel(layers, loss, n_replicas, dtype=np.float32)
    return [step_of(net, SGD(0.01), X, Y) for net in (copies, Sequential(layers, loss, dtype=np.float32))]


def step_of(net, optimizer, X, Y):
    def step():
        net.forward_backward(X, Y)
        net.step(optimizer)

    return step


def all_reduce_of(n_ranks):
    """A function that simulates an all-reduce of a number for each rank."""
    def program(rank):
        yield from all_reduce(Group(rank, range(n_ranks)), np.zeros(n_ranks))

    return lambda: Cluster([program(rank) for rank in range(n_ranks)], ports=ports(n_ranks, 16)).run()


def simulation(name, n_devices, n_microbatches):
    """A function that simulates this schedule."""
    schedule = build(name, n_devices, n_microbatches)
    return lambda: simulate(schedule)


def additions():
    """What a plain loop of Python takes."""
    x = 0
    for i in range(10**7):
        x += i


# ---- how a row is measured ----


@dataclass(frozen=True)
class Row:
    """One line of the table.

    what: its name.
    beside: the name of what ours is divided by.
    bound: the smallest ratio that is possible, or None where `beside` bounds nothing.
    measure: measure(n_rounds, in_a_row) is (ours, beside, ratio). Or it is a text: what this computer lacks.
    n_rounds: how often to measure times.
    in_a_row: how many runs in a row count as one.
    """

    what: str
    beside: str
    bound: float | None
    measure: Callable
    n_rounds: int = 0
    in_a_row: int = 1


def pairs(make):
    """How to measure the two functions that `make` returns, ours and the other: in turns.

    The ratio is the median of the ratios of the pairs: what disturbs the processor disturbs both of a pair.
    """

    def measure(n_rounds, in_a_row):
        both = make()
        for run in both:
            run()
        return medians_of([[milliseconds(run, in_a_row) for run in both] for _ in range(n_rounds)])

    return measure


def medians_of(rounds):
    """(milliseconds of ours, of the other, the ratio of a pair), each in the median."""
    medians = [statistics.median(column) for column in zip(*rounds)]
    return *medians, statistics.median(ours / other for ours, other in rounds)


def milliseconds(run, in_a_row):
    begin = CLOCK()
    for _ in range(in_a_row):
        run()
    return 1e3 * (CLOCK() - begin) / in_a_row


def training_step(layers, X):
    """Forward, backward and the update of plain SGD, on labels of ten classes."""
    Y = one_hot(np.arange(X.shape[-1]) % 10, 10, np.float32)
    return step_of(Sequential(layers, SoftmaxCrossEntropy(), dtype=np.float32), SGD(0.01), X, Y)


def bare_products(layers, X):
    """Return a function that computes the matrix products of a training step of an MLP, and nothing else."""
    m, arrays = X.shape[-1], []
    for layer in layers:
        if isinstance(layer, Linear):
            W, A_prev, dZ = (layer.n, layer.n_prev), (layer.n_prev, m), (layer.n, m)
            arrays.append([numbers(*shape) for shape in (W, A_prev, dZ)])

    def products():
        for number, (W, A_prev, dZ) in enumerate(arrays):
            W @ A_prev, dZ @ A_prev.T
            if number:  # nobody needs dA_prev of the first layer
                W.T @ dZ

    return products


def both_directions(layer, A_prev):
    """(forward and backward of one layer, dZ)"""
    layer = layer.copy()
    layer.initialize(np.random.default_rng(0), np.float32)
    dZ = numbers(*layer.output_shape(A_prev.shape))

    def ours():
        return layer.forward(A_prev), layer.backward(dZ)

    return ours, dZ


def beside_products(layer, A_prev):
    """The three products of a convolution at full size, with all of its columns there beforehand."""
    ours, dZ = both_directions(layer, A_prev)
    dZ = dZ.reshape(len(dZ), -1)
    n_numbers = len(A_prev) * math.prod(layer.windows.kernel_size)  # of a column
    W, columns = numbers(len(dZ), n_numbers), numbers(n_numbers, dZ.shape[1])
    Z, dcolumns, dW = np.empty_like(dZ), np.empty_like(columns), np.empty_like(W)

    def products():
        np.matmul(W, columns, out=Z)
        np.matmul(W.T, dZ, out=dcolumns)
        np.matmul(dZ, columns.T, out=dW)

    return ours, products


# ---- two devices of this computer beside one ----

SIZE, DEPTH, M = 1024, 8, 8


def least(name):
    """Return the smallest ratio on 2 devices: the makespan divided by all work, with B = 2 F."""
    return SCHEDULES.facts[name].ticks(K=2, M=M) / (2 * M * 3)


CASES = [  # what, beside what, the smallest ratio that is possible, case, engine
    (f"8 x Linear(1,024), m = 512: {what}", *others)
    for what, *others in [
        ("1F1B, K = 2, M = 8, threads", "K = 1", least("1f1b"), "pipeline", "threads"),
        ("1F1B, K = 2, M = 8, MPI", "K = 1", least("1f1b"), "pipeline", "mpi"),
        ("data parallel, D = 2, threads", "full batch", 1 / 2, "data", "threads"),
        ("data parallel, D = 2, MPI", "full batch", 1 / 2, "data", "mpi"),
        ("half of it in each of two processes at once", "full batch", 1 / 2, "halves", "mpi"),
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
    return Sequential(*setting, dtype=np.float32).forward_backward


def together(case, engine, size):
    """The function that runs it on two: a pipeline, or copies.

    Or what bounds these: the same work without a message.
    """
    setting = network(size)
    if case == "halves":
        half, ranks = Sequential(*setting, dtype=np.float32), world()

        def apart(X, Y):
            half.forward_backward(*(np.split(array, 2, axis=1)[ranks.rank] for array in (X, Y)))
            ranks.broadcast(None, 1, "the end of the other half")

        return apart
    if case == "data":
        return DataParallel(*setting, 2, dtype=np.float32, engine=engine).forward_backward
    return Pipeline(*setting, 2, M, schedule="1f1b", dtype=np.float32, engine=engine).forward_backward


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
        of_one = seen_by_a_clock(one, X, Y) if speaks else None
        if ranks is not None:
            ranks.broadcast(None, 0, "its turn")
        rounds.append((seen_by_a_clock(two, X, Y), of_one))
    return medians_of(rounds[1:]) if speaks else None


def seen_by_a_clock(run, X, Y):
    """The milliseconds of a run on several devices, which work at once."""
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


ROWS = [
    Row(
        "MLP 784-512-512-10, m = 128: training step", "bare products", 1,
        pairs(lambda: (training_step(MLP, numbers(784, 128)), bare_products(MLP, numbers(784, 128)))),
        n_rounds=61, in_a_row=5,
    ),
    Row(
        "conv 64-64, 3x3, on 32x32, m = 32: forward + backward", "bare products", 1,
        pairs(lambda: beside_products(CONVOLUTION, numbers(*IMAGES))), n_rounds=31,
    ),
    Row(
        "pipeline, K = M = 4, MLP 784-128-...-123-10, m = 128: step", "a plain loop", 1,
        pairs(lambda: pipeline_beside_a_loop((784, 128, 127, 126, 125, 124, 123, 10), 4)), n_rounds=61,
        in_a_row=5,
    ),
    Row(
        "pipeline, K = 4, M = 8, MLP 64-128-128-64-10, m = 128: step", "a plain loop", 1,
        pairs(lambda: pipeline_beside_a_loop((64, 128, 128, 64, 10), 8)), n_rounds=61, in_a_row=5,
    ),
    Row(
        "data parallelism, D = 4, MLP 784-512-512-10, m = 128: step", "Sequential", 1,
        pairs(lambda: copies_beside_one_device(4)), n_rounds=31, in_a_row=3,
    ),
    Row(
        "simulator, all-reduce of 64 ranks by owners: 8,064 messages", "10^7 additions", None,
        pairs(lambda: (all_reduce_of(64), additions)), n_rounds=5,
    ),
    Row(
        "simulator, 1f1b, K = 128, M = 1,024: 262,144 actions", "10^7 additions", None,
        pairs(lambda: (simulation("1f1b", 128, 1024), additions)), n_rounds=3,
    ),
    Row(
        "simulator, interleaved-zb, K = 32, M = 256: 49,152 actions", "10^7 additions", None,
        pairs(lambda: (simulation("interleaved-zb", 32, 256), additions)), n_rounds=5,
    ),
    *(Row(what, beside, bound, speed_up(case, engine), n_rounds=11)
      for what, beside, bound, case, engine in CASES),
]


def main():
    """Print the table."""
    print("float32, one thread unless it is said; medians of runs in turns, the ratio is that of the pairs\n"
          "bound: the smallest ratio that is possible, where what stands beside ours bounds it")
    print(LINE.format("what", "ours", "beside", "ratio", "bound"), flush=True)
    with watched(), blas_threads(1):
        for row in with_progress(ROWS, "rows"):
            say(_line(row, row.measure(max(1, round(PATIENCE * row.n_rounds)), row.in_a_row)))


def _line(row, found):
    bound = f">= {row.bound:.2f}" if row.bound else "-"
    if isinstance(found, str):
        return LINE.format(row.what, "-", found, "-", bound)
    ours, beside, ratio = found
    both = f"{ours:.2f} ms", f"{row.beside} {beside:.2f} ms"
    return LINE.format(row.what, *both, f"{ratio:.2f}", bound)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("on_ranks", nargs="*", metavar="CASE ROUNDS SIZE", help="of two MPI ranks")
    arguments = parser.parse_args().on_ranks
    if not arguments:
        main()
    else:
        with world().job():
            answer = measured(arguments[0], "mpi", *map(int, arguments[1:]))
        if answer:
            print(json.dumps(answer))
