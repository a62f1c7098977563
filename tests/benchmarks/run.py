"""Measure times and memory as ratios, side by side in one process, and print them as one table.

    python3 tests/benchmarks/run.py

Training steps and layers stand beside what bounds them, and beside PyTorch if it is installed; simulations
beside a loop of additions; two devices beside one. Every row is float32, and uses one thread unless it says
so. OpenBLAS chooses its kernels by the processor, and the ratios depend on them: OPENBLAS_CORETYPE=Zen in
front of the command takes those for AVX2.
"""

import argparse
import math
import os
import statistics
import sys
import time
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))
sys.path.insert(0, str(Path(__file__).parents[1]))  # for `benchmarks`

from benchmarks.speed_up import CASES, copying, speed_up
from minipipe import (
    SGD, AvgPool2d, Conv2d, DataParallel, Flatten, Linear, MaxPool2d, MeanSquaredError, Pipeline,
    ReLU, Sequential, SoftmaxCrossEntropy, footprints, one_hot, simulate,
)
from minipipe.arrays import blas_threads, even_slices, leaves
from minipipe.cluster import Cluster, ports
from minipipe.collectives import Group, all_reduce
from minipipe.models import lenet5, mlp
from minipipe.schedules import build
from minipipe.watching import say, watched, with_progress

PATIENCE = 1.0  # times as many rounds as a row says
LINE = "{:66} {:>10} {:>28} {:>7} {:>8}"
# CPU time does not count the time of other programs; on Windows it comes in steps of 16 ms, too long for us
CLOCK = time.process_time if os.name == "posix" else time.perf_counter

MLP = mlp((784, 512, 512, 10))
LENET5 = lenet5()[1:]  # images need no Reshape, which PyTorch does not have
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


def simulation(name, n_devices, n_microbatches, with_bytes=False):
    """A function that simulates this schedule; with the bytes of a Linear(4, 4) on each stage, or without."""
    schedule = build(name, n_devices, n_microbatches)
    layers = [Linear(4, 4)] * n_devices
    sizes = footprints(layers, MeanSquaredError(), n_devices, (4,), m=4) if with_bytes else None
    return lambda: simulate(schedule, footprints=sizes)


def additions():
    """What a plain loop of Python takes."""
    x = 0
    for i in range(10**7):
        x += i


# ---- the table ----


@dataclass(frozen=True)
class Row:
    """One line of the table.

    what: its name.
    beside: the name of what ours is divided by.
    bound: the smallest ratio that is possible, or None where `beside` bounds nothing.
    measure: measure(n_rounds, in_a_row) is (ours, beside, ratio); the last two are None without PyTorch. Or
        it is a text: what this computer lacks.
    n_rounds: how often to measure times.
    in_a_row: how many runs in a row count as one.
    unit: milliseconds or megabytes.
    """

    what: str
    beside: str
    bound: float | None
    measure: Callable
    n_rounds: int = 0
    in_a_row: int = 1
    unit: str = "ms"


def pairs(make):
    """How to measure the two functions that `make` returns, ours and the other, or None: in turns.

    The ratio is the median of the ratios of the pairs: what disturbs the processor disturbs both of a pair.
    """

    def measure(n_rounds, in_a_row):
        ours, other = make()
        both = [run for run in (ours, other) if run is not None]
        for run in both:
            run()
        rounds = [[milliseconds(run, in_a_row) for run in both] for _ in range(n_rounds)]
        medians = [statistics.median(column) for column in zip(*rounds)]
        if other is None:
            return *medians, None, None
        return *medians, statistics.median(mine / its for mine, its in rounds)

    return measure


def milliseconds(run, in_a_row):
    begin = CLOCK()
    for _ in range(in_a_row):
        run()
    return 1e3 * (CLOCK() - begin) / in_a_row


def pytorch():
    """PyTorch with one thread, or None."""
    try:
        import torch
    except ImportError:
        return None
    torch.set_num_threads(1)
    return torch


def samples_first(torch, A):
    return torch.from_numpy(np.ascontiguousarray(np.moveaxis(A, -1, 0)))


def training_step(layers, X):
    """Forward, backward and the update of plain SGD, on random labels of ten classes."""
    labels = np.random.default_rng(0).integers(0, 10, X.shape[-1])
    net, optimizer = Sequential(layers, SoftmaxCrossEntropy(), dtype=np.float32), SGD(learning_rate=0.01)
    Y = (np.arange(10)[:, None] == labels).astype(np.float32)

    def ours():
        net.forward_backward(X, Y)
        net.step(optimizer)

    torch = pytorch()
    if torch is None:
        return ours, None
    twin = torch.nn.Sequential(*(twin_of(layer, torch.nn) for layer in layers))
    its_optimizer, cost = torch.optim.SGD(twin.parameters(), lr=0.01), torch.nn.CrossEntropyLoss()
    inputs, targets = samples_first(torch, X), torch.from_numpy(labels)

    def its():
        its_optimizer.zero_grad()
        cost(twin(inputs), targets).backward()
        its_optimizer.step()

    return ours, its


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


def twin_of(layer, nn):
    """PyTorch's module for the same formula."""
    if isinstance(layer, Linear):
        return nn.Linear(layer.n_prev, layer.n)
    if isinstance(layer, Conv2d):
        padding = [before for before, _ in layer.windows.padding]
        return nn.Conv2d(layer.in_channels, layer.out_channels, layer.windows.kernel_size, padding=padding)
    if isinstance(layer, (AvgPool2d, MaxPool2d)):
        return getattr(nn, type(layer).__name__)(layer.windows.kernel_size)
    return {ReLU: nn.ReLU, Flatten: nn.Flatten}[type(layer)]()


def both_directions(layer, A_prev):
    """(forward and backward of one layer, dZ)"""
    layer = layer.copy()
    layer.initialize(np.random.default_rng(0), np.float32)
    dZ = numbers(*layer.output_shape(A_prev.shape))

    def ours():
        return layer.forward(A_prev), layer.backward(dZ)

    return ours, dZ


def beside_pytorch(layer, A_prev):
    ours, dZ = both_directions(layer, A_prev)
    torch = pytorch()
    if torch is None:
        return ours, None
    module, derivative = twin_of(layer, torch.nn), samples_first(torch, dZ)
    inputs = samples_first(torch, A_prev).requires_grad_()

    def its():
        Z = module(inputs)
        return Z, torch.autograd.grad(Z, (inputs, *module.parameters()), derivative)

    return ours, its


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


def peak_memory(n_rounds, in_a_row):
    """What forward and backward need beside A_prev and dZ at the worst moment, results included.

    It is always the same, so it is measured once.
    """
    A_prev = numbers(*IMAGES)
    ours, dZ = both_directions(CONVOLUTION, A_prev)
    tracemalloc.start()
    _results = ours()  # kept until the end
    peak = tracemalloc.get_traced_memory()[1] / 1e6
    tracemalloc.stop()
    given = (A_prev.nbytes + dZ.nbytes) / 1e6
    return peak, given, peak / given


ROWS = [
    Row(
        "MLP 784-512-512-10, m = 128: training step", "bare products", 1,
        pairs(lambda: (training_step(MLP, numbers(784, 128))[0], bare_products(MLP, numbers(784, 128)))),
        n_rounds=61, in_a_row=5,
    ),
    Row(
        "  the same", "PyTorch", None, pairs(lambda: training_step(MLP, numbers(784, 128))), n_rounds=61,
        in_a_row=5,
    ),
    Row(
        "LeNet-5 on 28x28, m = 256: training step", "PyTorch", None,
        pairs(lambda: training_step(LENET5, numbers(1, 28, 28, 256))), n_rounds=61, in_a_row=2,
    ),
    Row(
        "conv 64-64, 3x3, on 32x32, m = 32: forward + backward", "bare products", 1,
        pairs(lambda: beside_products(CONVOLUTION, numbers(*IMAGES))), n_rounds=31,
    ),
    Row(
        "  the same", "PyTorch", None, pairs(lambda: beside_pytorch(CONVOLUTION, numbers(*IMAGES))),
        n_rounds=21,
    ),
    Row("  the same, memory at the peak", "input + output", 1, peak_memory, unit="MB"),
    Row(
        "max pool 2x2 on 64 x 32x32, m = 32: forward + backward", "a copy of its input", 1,
        pairs(lambda: (both_directions(MaxPool2d(2), numbers(*IMAGES))[0], numbers(*IMAGES).copy)),
        n_rounds=61, in_a_row=2,
    ),
    Row(
        "  the same", "PyTorch", None, pairs(lambda: beside_pytorch(MaxPool2d(2), numbers(*IMAGES))),
        n_rounds=61, in_a_row=2,
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
    Row(
        "simulator with footprints, 1f1b, K = 32, M = 256", "without", 1,
        pairs(lambda: [simulation("1f1b", 32, 256, with_bytes) for with_bytes in (True, False)]), n_rounds=5,
    ),
    *(Row(what, beside, bound, speed_up(case, engine), n_rounds=11)
      for what, beside, bound, case, engine in CASES),
    Row(
        "graph, 12 products 1,024 x 64 x 1,024, copied meanwhile, threads", "one after the other", 1 / 2,
        copying, n_rounds=15,
    ),
]


def main():
    """Print the table."""
    print("float32, one thread unless it is said; medians of runs in turns, the ratio is that of the pairs\n"
          "bound: the smallest ratio that is possible, where what stands beside ours bounds it")
    print(LINE.format("what", "ours", "beside", "ratio", "bound"), flush=True)
    with watched(), blas_threads(1):
        for row in with_progress(ROWS, "rows"):
            say(_line(row, row.measure(max(1, round(PATIENCE * row.n_rounds)), row.in_a_row)))
    if pytorch() is None:
        print("no PyTorch: it is not installed, so these rows have no ratio")


def _line(row, found):
    bound = f">= {row.bound:.2f}" if row.bound else "-"
    if isinstance(found, str):
        return LINE.format(row.what, "-", found, "-", bound)
    ours, beside, ratio = found
    measured = row.what, f"{ours:.2f} {row.unit}"
    if ratio is None:
        return LINE.format(*measured, f"no {row.beside}", "-", bound)
    return LINE.format(*measured, f"{row.beside} {beside:.2f} {row.unit}", f"{ratio:.2f}", bound)


if __name__ == "__main__":
    argparse.ArgumentParser(description=__doc__.partition("\n")[0]).parse_args()
    main()
