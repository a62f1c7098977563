"""Published figures of splits, by simulation, and by runs with arrays without numbers."""

from fractions import Fraction
from functools import partial

import numpy as np
import pytest

import minipipe as mp
from minipipe.collectives import Group, all_gather, reduce_scatter
from minipipe.functions import even_slices
from minipipe.papers import megatron_activations

LOSS = mp.MeanSquaredError()


def test_what_a_network_split_and_a_data_split_of_eight_equal_layers_send():
    """8 layers 64 -> 64, float64, 32 samples, 4 devices: the three cuts, and the all-reduce of all."""
    layers = [mp.Linear(64, 64) for _ in range(8)]

    def bytes_of(build, word):
        trace = mp.rehearse(build, layers, LOSS, (64,), 32)
        return sum(message.n_bytes for message in trace.messages if word in str(message.label))

    pipeline = mp.rehearse(lambda layers, loss: mp.Pipeline(layers, loss, 4, 8), layers, LOSS, (64,), 32)
    assert sum(message.n_bytes for message in pipeline.messages) == 98_304
    assert bytes_of(lambda layers, loss: mp.DataParallel(layers, loss, 4), "owners all-reduce") == 1_597_440


def by_units(rank, N, sizes, m):
    """A step of layers with these sizes, each split by outputs over N devices; numbers do not matter."""
    group, rows = Group(rank, range(N)), [even_slices(n, N) for n in sizes]
    A = np.zeros((sizes[0], m))
    parts = [np.zeros((part[rank].stop - part[rank].start, n_prev)) for n_prev, part in zip(sizes, rows[1:])]
    for W in parts:
        A = np.vstack((yield from all_gather(group, W @ A)))
    dZ = A[rows[-1][rank]]
    for W, its_rows in reversed(list(zip(parts[1:], rows[1:]))):
        shares = W.T @ dZ
        dZ = yield from reduce_scatter(group, [shares[part] for part in its_rows])


@pytest.mark.parametrize("sizes, n_bytes", [((64,) * 9, 737_280), ((64, 128, 128, 64, 10), 499_200)])
def test_what_a_layer_split_by_outputs_sends(sizes, n_bytes):
    """A travels forward and dA back, (N - 1) n m numbers each; no dA of the last layer. Float64, N = 4."""
    trace = mp.Cluster([by_units(rank, 4, sizes, 32) for rank in range(4)]).run()
    assert sum(message.n_bytes for message in trace.messages) == n_bytes


@pytest.mark.parametrize("N, n_prev, n", [(2, 3, 4), (4, 6, 8), (5, 7, 10)])
def test_a_layer_split_sends_what_a_data_split_does_if_a_batch_has_one_sample_more_than_inputs(N, n_prev, n):
    """m = n_prev + 1: 2 (N - 1) n (n_prev + 1) numbers for a hidden layer."""
    m = n_prev + 1
    sent = [
        sum(message.n_bytes for message in
            mp.Cluster([by_units(rank, N, sizes, m) for rank in range(N)]).run().messages)
        for sizes in ((n_prev, n, 5), (n_prev, 5))
    ]
    net = mp.DataParallel([mp.Linear(n_prev, n)], LOSS, N)
    net.forward_backward(np.ones((n_prev, N)), np.ones((n, N)))
    of_data = sum(message.n_bytes for message in net.trace.messages if "all-reduce" in str(message.label))
    assert sent[0] - sent[1] == of_data == 2 * (N - 1) * n * (n_prev + 1) * 8


def test_the_parameters_of_the_network_that_the_book_trains_on_two_devices():
    """Zhang et al., Dive into Deep Learning, section 13.5: LeNet with 20 and 50 channels."""
    layers = [
        mp.Conv2d(1, 20, 3), mp.ReLU(), mp.AvgPool2d(2), mp.Conv2d(20, 50, 5), mp.ReLU(), mp.AvgPool2d(2),
        mp.Flatten(), mp.Linear(800, 128), mp.ReLU(), mp.Linear(128, 10),
    ]
    assert mp.describe(layers, (1, 28, 28)).parameters == 129_068


def test_the_activations_of_a_layer_of_gpt_3():
    """Alone, on 8 devices, and with the places between blocks shared, too; arXiv 2205.05198, table 2."""
    held = partial(megatron_activations, 2048, 1, 12288, 96)
    assert [held(), held(8), held(8, True)] == [2_868_903_936, 578_813_952, 358_612_992]
    selective = [held(8, recompute="selective"), held(8, True, "selective")]
    assert [*selective, held(recompute="full")] == [327_155_712, 106_954_752, 50_331_648]
    for h, heads, shares in ((6144, 64, Fraction(320, 3)), (12288, 96, 80), (20480, 128, 64)):
        less = partial(megatron_activations, 2048, 1, h, heads)
        assert less() - less(recompute="selective") == shares * 2048 * h


def test_a_layer_splits_bytes_grow_with_the_samples_and_a_data_splits_do_not():
    """Of a pair of layers 64 -> 256 -> 64 over 4 devices; 397,056 bytes a rank for the data split."""
    layers, sent = [mp.Linear(64, 256), mp.ReLU(), mp.Linear(256, 64)], {}
    for m in (32, 64):
        for split in (mp.TensorParallel, mp.DataParallel):
            trace = mp.rehearse(partial(on_four, split), layers, LOSS, (64,), m)
            mine = [message for message in trace.messages if message.source == 0]
            sent[split, m] = sum(message.n_bytes for message in mine)
    by_layers, by_data = (
        [sent[split, m] for m in (32, 64)] for split in (mp.TensorParallel, mp.DataParallel)
    )
    assert by_layers == [24_576, 2 * 24_576]  # forward alone: nobody wants the first layer's dX
    assert by_data == [397_056, 397_056]


def on_four(split, layers, loss):
    return split(layers, loss, 4)
