"""What minipipe adds to the layers, to be measured: its runs, and its simulations."""

import numpy as np

from minipipe import (
    SGD, Cluster, DataParallel, Linear, MeanSquaredError, Pipeline, Sequential, SoftmaxCrossEntropy,
    footprints, one_hot, simulate,
)
from minipipe.arrays import even_slices, leaves
from minipipe.cluster import ports
from minipipe.collectives import Group, all_reduce
from minipipe.models import mlp
from minipipe.schedules import build


def numbers(*shape):
    return np.random.default_rng(0).standard_normal(shape, dtype=np.float32)


def pipeline_beside_a_loop(widths, n_microbatches):
    """Return a training step of a `Pipeline` of 4 stages, and of a plain loop over the same micro-batches."""
    X, Y = numbers(widths[0], 128), one_hot(np.arange(128) % 10, 10, np.float32)
    layers, loss, optimizer = mlp(widths), SoftmaxCrossEntropy(), SGD(0.01)
    pipe = Pipeline(layers, loss, 4, n_microbatches, "1f1b", dtype=np.float32)
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
