"""Published figures of splits, by simulation, and by runs with arrays without numbers."""

from fractions import Fraction
from functools import partial

import pytest

import minipipe as mp
from minipipe.schedules import build, data_parallel, with_updates, with_zero

LOSS = mp.MeanSquaredError()


@pytest.mark.parametrize("n_prev, n, N, stages", [
    (399_999, 320_000, 4, (896, 704, 512)), (399_999, 320_000, 16, (608, 368, 128)),
    (999_999, 1_000_000, 4, (7000, 5500, 4000)), (999_999, 1_000_000, 16, (4750, 2875, 1000)),
])
def test_the_gigabytes_of_networks_of_128_billion_and_of_a_trillion_parameters(n_prev, n, N, stages):
    """16 bytes for each parameter without ZeRO; stages 2 and 3 once all sums are there. arXiv 1910.02054."""
    sizes = mp.footprints(
        [mp.Linear(n_prev, n)], LOSS, 1, (n_prev,), 1, optimizer=mp.Adam(), precision="mixed", patterns=["FB"]
    )

    def gigabytes(order):
        trace = mp.simulate(order, mp.Costs(U=1), mp.Link(latency=1), sizes)
        kinds = "parameters", "gradients", "optimizer state"
        return [sum(held.get(kind, 0) for kind in kinds) / 1e9 for _, held in trace.ledger(N - 1)]

    order = data_parallel(N, N)
    assert max(gigabytes(with_updates(order))) == 16 * n * (n_prev + 1) / 1e9
    one, two, three = (gigabytes(with_zero(order, level)) for level in (1, 2, 3))
    assert max(one) == stages[0] and stages[1] in two and stages[2] in three


def test_what_a_network_split_and_a_data_split_of_eight_equal_layers_send():
    """8 layers 64 -> 64, float64, 32 samples, 4 devices: the three cuts, and the all-reduce of all."""
    layers = [mp.Linear(64, 64) for _ in range(8)]

    def bytes_of(build, word):
        trace = mp.rehearse(build, layers, LOSS, (64,), 32)
        return sum(message.n_bytes for message in trace.messages if word in str(message.label))

    pipeline = mp.rehearse(lambda layers, loss: mp.Pipeline(layers, loss, 4, 8), layers, LOSS, (64,), 32)
    assert sum(message.n_bytes for message in pipeline.messages) == 98_304
    assert bytes_of(lambda layers, loss: mp.DataParallel(layers, loss, 4), "owners all-reduce") == 1_597_440


def test_the_parameters_of_the_network_that_the_book_trains_on_two_devices():
    """Zhang et al., Dive into Deep Learning, section 13.5: LeNet with 20 and 50 channels."""
    layers = [
        mp.Conv2d(1, 20, 3), mp.ReLU(), mp.AvgPool2d(2), mp.Conv2d(20, 50, 5), mp.ReLU(), mp.AvgPool2d(2),
        mp.Flatten(), mp.Linear(800, 128), mp.ReLU(), mp.Linear(128, 10),
    ]
    assert mp.describe(layers, (1, 28, 28)).parameters == 129_068


@pytest.mark.parametrize("d, bubble", [(1, Fraction(31, 128)), (4, Fraction(7, 32)), (16, Fraction(1, 8))])
def test_more_copies_and_fewer_stages_have_a_smaller_bubble(d, bubble):
    """n = 32 devices, b' = 128 micro-batches: (n - d)/b' of the ideal time. arXiv 2104.04473, 3.3.1."""
    p, m = 32 // d, 128 // d
    trace = mp.simulate(build("1f1b", p, m))
    assert Fraction(trace.makespan - 3 * m, 3 * m) == bubble == Fraction(p - 1, m)


def test_the_bubble_of_the_network_of_145_6_billion_parameters():
    """24 copies of 8 stages, 96 micro-batches each: 7/96."""
    assert Fraction(mp.simulate(build("1f1b", 8, 96)).makespan, 3 * 96) - 1 == Fraction(7, 96)


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
