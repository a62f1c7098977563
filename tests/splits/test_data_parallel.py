"""Data parallelism: copies of a network give the gradients of one, however many and however exchanged."""

from fractions import Fraction

import numpy as np
import pytest
from cases import eighths
from compared import assert_all_same, assert_equals_full_batch, assert_same
from hypothesis import given, settings
from hypothesis import strategies as st
from memory.test_foresight import MACHINE, THREE_COPIES, assert_foreseen
from memory.test_foresight import LAYERS as MIXED
from splits.one_network import EXACT, LAYERS, LOSS, mini_batch

import minipipe as mp
from minipipe.cluster import ports
from minipipe.collectives import ALL_REDUCES, all_reduce_ticks
from minipipe.order import in_copies
from minipipe.parallel import in_buckets
from minipipe.schedules import build, data_parallel

KINDS = pytest.mark.parametrize("all_reduce", ALL_REDUCES)


def one_device(M, dtype):
    """One device with the same micro-batches."""
    return mp.Pipeline(LAYERS, LOSS, 1, M, dtype=dtype)


@settings(max_examples=20)
@given(st.data())
def test_in_rational_arithmetic_the_sum_over_the_copies_is_the_full_batchs_gradient(data):
    """Any number of copies, shards, stages, micro-batches and samples; any all-reduce; buckets or not."""
    D, T, K = data.draw(st.integers(1, 5)), data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    M = data.draw(st.integers(D, 9)) if K == 1 else D * data.draw(st.integers(1, 9 // D))
    X, Y = map(eighths, mini_batch(data.draw(st.integers(M, 3 * M))))
    sums = mp.Sums(
        all_reduce=data.draw(st.sampled_from(list(ALL_REDUCES))),
        buckets=data.draw(st.sampled_from([None, 1, 100, "ddp", "layer"])),
    )
    memory = mp.Memory(data.draw(st.sampled_from(["never", "always"])))
    net = mp.Parallel(EXACT, LOSS, mp.Split(D, T, K, M), memory=memory, sums=sums)
    assert_equals_full_batch(net, X, Y)


@pytest.mark.parametrize("D, dtype", [(1, np.float32), (2, np.float64), (3, np.float32), (8, np.float64)])
def test_any_floats_have_the_bits_of_one_device_with_the_same_micro_batches(D, dtype):
    X, Y = mini_batch(37, dtype)
    one = one_device(8, dtype)
    J = one.forward_backward(X, Y)
    for buckets in (None, 1, 300, 10**6):
        net = mp.DataParallel(LAYERS, LOSS, D, 8, dtype=dtype, sums=mp.Sums(buckets=buckets))
        assert_same((net.forward_backward(X, Y), net.gradients), (J, one.gradients))


@KINDS
def test_every_copy_gets_the_same_bits(all_reduce):
    """With "owners", and others along a tree for runs of 2^j micro-batches: those of one device."""
    X, Y = mini_batch(37, np.float32)
    for D in (2, 3, 4):
        schedule = in_copies(build("1f1b", 2, 4), D)
        pipe = mp.Parallel(
            LAYERS, LOSS, mp.Split(stages=2, microbatches=4 * D), schedule,
            sums=mp.Sums(all_reduce=all_reduce), weights=mp.Weights(dtype=np.float32),
        )
        J = pipe.forward_backward(X, Y)
        stages = {}
        for (index, _), stage in pipe._run.stages.items():
            stages.setdefault(index, []).append(stage.gradients())
        for copies in stages.values():
            assert_all_same(copies)
        one = one_device(4 * D, np.float32)
        assert one.forward_backward(X, Y) == J  # costs always meet along the tree
        along_a_tree = ALL_REDUCES.facts[all_reduce].order.startswith("tree")
        if all_reduce == "owners" or (D in (2, 4) and along_a_tree):
            assert_same(pipe.gradients, one.gradients)


# Bytes and ticks


@KINDS
def test_bytes_are_foreseen_at_every_tick(all_reduce):
    assert_foreseen(THREE_COPIES, 8, 40, MIXED, sums=mp.Sums(all_reduce=all_reduce), on=MACHINE)


@KINDS
def test_the_exchange_takes_the_ticks_of_its_formula(all_reduce):
    """One layer of 16 x 15 weights and 16 biases, so 2048 bytes on 4 ports of 16 bytes a tick.

    F + B, and the all-reduce. With "owners" J travels in its messages, with the others in one of its own.
    """
    net = mp.DataParallel(
        [mp.Linear(15, 16)], LOSS, 4, sums=mp.Sums(all_reduce=all_reduce),
        on=mp.Machine(link=mp.Link(latency=100), ports=ports(4, 16)),
    )
    net.forward_backward(np.ones((15, 8)), np.ones((16, 8)))
    before = 0 if all_reduce == "owners" else 100
    assert net.trace.makespan == 3 + before + all_reduce_ticks(all_reduce, 4, 2048, 100, Fraction(1, 16))


@pytest.mark.parametrize("caps, sizes, buckets", [
    ((2**20, 25 * 2**20), [1605632, 2048, 1048576, 2048, 20480, 40], [[5, 4, 3, 2], [1, 0]]),
    ((2**20, 2**20), [2048, 2**20] * 3, [[5], [4, 3], [2, 1], [0]]),
    ((2**20, 25 * 2**20), [4 * 10**6] * 20,
     [[19], [18, 17, 16, 15, 14, 13, 12], [11, 10, 9, 8, 7, 6, 5], [4, 3, 2, 1, 0]]),
    ((1, 1), [5, 0, 5, 0], [[3, 2, 1], [0]]),
    ((1, 1), [0, 5], [[1, 0]]),
])
def test_buckets_are_ddps(caps, sizes, buckets):
    """Three golden cases of DistributedDataParallel; what has no parameters joins the bucket above."""
    assert in_buckets(sizes, caps) == buckets


def test_the_last_layers_are_the_first_bucket():
    """784-512-512-10 in float32: 1,071,144 bytes of the upper two layers reach the first cap of 1 MiB."""
    layers = [mp.Linear(784, 512), mp.ReLU(), mp.Linear(512, 512), mp.ReLU(), mp.Linear(512, 10)]
    net = mp.DataParallel(layers, LOSS, 2, dtype=np.float32, sums=mp.Sums(buckets="ddp"))
    assert [len(stage.layers) for stage in net.stages] == [1, 4]
    assert str(net.schedule).splitlines()[0] == "device 0: 0F0 1F0 1B0 1A0 0B0 0A0"


def test_each_stage_has_buckets_of_its_own():
    """Two copies of two stages; in each, the upper layer's gradients travel while the lower one works."""
    layers, sums = [mp.Linear(2, 2) for _ in range(4)], mp.Sums(buckets="layer")
    net = mp.Parallel(layers, LOSS, mp.Split(replicas=2, shards=2, stages=2), sums=sums)
    assert [len(stage.layers) for stage in net.stages] == [1, 1, 1, 1]
    assert str(net.schedule).splitlines()[:2] == [
        "device 0: 0F0 1F0 1B0 1A0 0B0 0A0", "device 1: 2F0 3F0 3B0 3A0 2B0 2A0",
    ]


# Orders


def test_runs_are_contiguous_and_as_equal_as_can_be():
    schedule = data_parallel(3, 8, 2)
    assert [[action.microbatch for action in order if action.kind == "F" and action.stage == 0]
            for order in schedule.devices] == [[0, 1, 2], [3, 4, 5], [6, 7]]
    assert str(schedule).splitlines()[2] == "device 2: 0F6 1F6 1B6 0B6 0F7 1F7 1B7 0B7"
