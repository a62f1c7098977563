"""`minipipe bench`: times as ratios, measured side by side in one process.

On some processors OpenBLAS chooses AVX-512 kernels that are slower than its AVX2 ones; therefore a second line,
with the kernels named by hand.
"""

import os
import statistics
import subprocess
import sys
import time

import numpy as np

from ..cluster import Link
from ..layers import Linear, ReLU
from ..losses import SoftmaxCrossEntropy
from ..network import Sequential
from ..optimizers import SGD
from ..pipeline import Costs
from ..pipeline.program import cluster_of
from ..schedules import one_f_one_b

SIZES, M_SAMPLES = (784, 512, 512, 10), 128
ROUNDS, STEPS = 61, 5
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS")
KERNEL = "OPENBLAS_CORETYPE"
INSIDE = "MINIPIPE_BENCH_INSIDE"


def run(options):
    if INSIDE in os.environ:
        return _bench_training_step()
    print(f"training step, {'-'.join(map(str, SIZES))}, m = {M_SAMPLES}, float32, plain SGD, one BLAS thread; medians of {ROUNDS}", flush=True)
    for kernel in (None, "Zen"):
        name = f"with {KERNEL}={kernel}" if kernel else "as OpenBLAS chooses"
        print(f"  NumPy's matrix products {name + ':':34}", end=" ", flush=True)
        _in_a_process_with_one_thread(kernel)
    _bench_simulator()


def _in_a_process_with_one_thread(kernel):
    """BLAS reads its settings when it is loaded, so each of them needs a new process."""
    settings = {name: "1" for name in (*THREADS, INSIDE)} | ({KERNEL: kernel} if kernel else {})
    subprocess.run([sys.executable, "-m", "minipipe", "bench"], env=os.environ | settings, check=True)


def _bench_training_step():
    rng = np.random.default_rng(0)
    X = rng.standard_normal((SIZES[0], M_SAMPLES), dtype=np.float32)
    labels = rng.integers(0, SIZES[-1], M_SAMPLES)
    ours = _minipipe_step(X, labels)
    try:
        theirs = _torch_step(X, labels)
    except ImportError:
        print(f"{1e3 * statistics.median(_seconds(ours) for _ in range(ROUNDS)):.2f} ms; no ratio, since PyTorch is not installed")
        return
    pairs = [(_seconds(ours), _seconds(theirs)) for _ in range(ROUNDS)]
    ratio = statistics.median(mine / their for mine, their in pairs)
    ours_ms, theirs_ms = (1e3 * statistics.median(column) for column in zip(*pairs))
    print(f"{ours_ms:.2f} ms, PyTorch eager {theirs_ms:.2f} ms, ratio {ratio:.3f}")


def _minipipe_step(X, labels):
    layers = []
    for n_prev, n in zip(SIZES, SIZES[1:]):
        layers += [Linear(n_prev, n), ReLU()]
    net = Sequential(layers[:-1], SoftmaxCrossEntropy(), dtype=np.float32)
    optimizer = SGD(learning_rate=0.01)
    Y = (np.arange(SIZES[-1])[:, None] == labels).astype(np.float32)

    def step():
        net.forward_backward(X, Y)
        net.step(optimizer)

    return step


def _torch_step(X, labels):
    import torch

    torch.set_num_threads(1)
    modules = []
    for n_prev, n in zip(SIZES, SIZES[1:]):
        modules += [torch.nn.Linear(n_prev, n), torch.nn.ReLU()]
    net = torch.nn.Sequential(*modules[:-1])
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    loss = torch.nn.CrossEntropyLoss()
    inputs, targets = torch.from_numpy(X.T.copy()), torch.from_numpy(labels)

    def step():
        optimizer.zero_grad()
        loss(net(inputs), targets).backward()
        optimizer.step()

    return step


def _seconds(step):
    """Seconds of one of `STEPS` steps in a row."""
    begin = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - begin) / STEPS


def _bench_simulator():
    print("simulator, 1F1B without arithmetic")
    _simulate(8, 64)
    for n_stages, n_microbatches in [(64, 256), (64, 512), (64, 1024), (64, 2048)]:
        schedule = one_f_one_b(n_stages, n_microbatches)
        seconds = min(_simulate(n_stages, n_microbatches, schedule) for _ in range(3))
        n_actions = 2 * n_stages * n_microbatches
        print(f"  K = {n_stages}, M = {n_microbatches:4}: {n_actions:7,} compute actions in {seconds:.3f} s, {n_actions / seconds:9,.0f} a second")


def _simulate(n_stages, n_microbatches, schedule=None):
    cluster = cluster_of(schedule or one_f_one_b(n_stages, n_microbatches), Costs(), Link())
    begin = time.perf_counter()
    cluster.run()
    return time.perf_counter() - begin
