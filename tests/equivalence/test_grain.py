"""Same bits whatever the split: with a grain, `Pipeline` and `DataParallel` have those of `Sequential`."""

import numpy as np
import pytest
from compared import assert_all_same, assert_same, difference
from memory.test_foresight import CONNECTED, LOSS, assert_same_bytes
from memory.test_foresight import LAYERS as MIXED
from memory.test_foresight import mini_batch as of_five
from sampling import one_in

import minipipe as mp
from minipipe.functions import grains_of, leaves
from minipipe.layers import every_layer
from minipipe.layers.through import backward_through, forward_through, prepare_forward
from minipipe.schedules import (
    RECOMPUTE, build_for_stages, in_segments, with_recompute, with_updates,
)
from minipipe.sums import TreeSum

MLP = [mp.Linear(20, 33), mp.ReLU(), mp.Linear(33, 17), mp.Tanh(), mp.Linear(17, 10)]


def mini_batch(m, n=20, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, m)), mp.one_hot(rng.integers(0, 10, m), 10)


def result(net, X, Y):
    """(J, gradients, what the layers have counted)"""
    J = np.asarray(net.forward_backward(X, Y))
    return J, net.gradients, list(map(np.asarray, leaves([counted for _, counted in net._counted])))


def test_the_reference_is_a_plain_loop_over_the_grains_added_along_the_tree():
    layers = [mp.Linear(20, 8), mp.BatchNorm(8), mp.Dropout(0.5), mp.Linear(8, 10)]
    net, loss = mp.Sequential(layers, mp.SoftmaxCrossEntropy(), grain=16), mp.SoftmaxCrossEntropy()
    X, Y = mini_batch(50)
    J, gradients, _ = result(net, X, Y)
    total = TreeSum(4)
    with mp.blas_threads(1):
        for k, (start, stop) in enumerate([(0, 16), (16, 32), (32, 48), (48, 50)]):
            prepare_forward(every_layer(net.layers), training=True, first_sample=start)
            part = X[:, start:stop].copy()
            of_J = loss.forward(forward_through(net.layers, part, {}), Y[:, start:stop].copy(), 50)
            total.add(k, (of_J, backward_through(net.layers, loss.backward(), {})[1]))
    assert_same((J, gradients), (np.asarray(total.value[0]), total.value[1]))


def test_the_bits_on_real_digits_depend_on_the_grain_alone():
    """Products long enough for every path of BLAS; 100 digits in grains of 16, the last one of 4."""
    X, Y = (part[:, :100].astype(np.float32) for part in mp.datasets.digits().train)
    layers = [mp.Linear(64, 96), mp.ReLU(), mp.Linear(96, 64), mp.Tanh(), mp.Linear(64, 10)]
    loss = mp.SoftmaxCrossEntropy()
    one = result(mp.Sequential(layers, loss, dtype=np.float32, grain=16), X, Y)
    for K, M, schedule in [
        (1, 7, "gpipe"), (1, 1, "gpipe"), (2, 3, "1f1b"), (3, 4, "zb-h1"), (5, 7, "1f1b"), (4, 2, "zb-v"),
    ]:
        pipe = mp.Pipeline(layers, loss, K, M, schedule, K > 2, dtype=np.float32, grain=16)
        assert_same(result(pipe, X, Y), one, f"K={K}, M={M}, {schedule}: the result")
    for D, M, buckets in [(1, None, None), (2, None, None), (3, 6, 8000), (5, None, 1), (7, 7, "ddp")]:
        pipe = mp.DataParallel(layers, loss, D, M, buckets=buckets, dtype=np.float32, grain=16)
        assert_same(result(pipe, X, Y), one, f"D={D}, M={M}, buckets={buckets}: the result")
    for other in (None, 15, 32, 100):
        assert difference(result(mp.Sequential(layers, loss, dtype=np.float32, grain=other), X, Y), one)
    for M in (2, 4, 7):
        assert difference(result(mp.Pipeline(layers, loss, 2, M, dtype=np.float32), X, Y), one)


def test_with_shards_of_layers_the_bits_do_not_depend_on_the_other_two_dimensions():
    X, Y = mini_batch(50)
    found = []
    for D, K, M in [(1, 1, 1), (2, 2, 6), (1, 3, 7), (3, 1, 3)]:
        net = mp.Hybrid(MLP, mp.SoftmaxCrossEntropy(), D, 2, K, M, grain=7)
        found.append(result(net, X, Y))
    assert_all_same(found)


def test_trained_parameters_are_equal_bit_by_bit():
    """20 steps with momentum, dropout and batch norm, on one device, in a pipeline and on 3 replicas."""
    layers = [mp.Linear(20, 33), mp.BatchNorm(33), mp.Dropout(0.25), mp.Linear(33, 10)]
    loss, ends = mp.SoftmaxCrossEntropy(), []
    for net in [
        mp.Sequential(layers, loss, grain=8),
        mp.Pipeline(layers, loss, 3, 4, "1f1b", recompute=True, grain=8),
        mp.Pipeline(layers, loss, 2, 5, "zb-h1", grain=8),
        mp.DataParallel(layers, loss, 3, grain=8),
    ]:
        optimizer = mp.SGD(0.1, momentum=0.9)
        for step in range(20):
            net.forward_backward(*mini_batch(40, seed=step))
            net.step(optimizer)
        ends.append([getattr(layer, name) for layer in every_layer(net.layers) for name in layer.arrays])
    assert_all_same(ends)


def test_an_order_with_updates_trains_to_the_same_bits_and_so_does_late_W():
    X, Y = mini_batch(50)
    net = mp.Sequential(MLP, mp.SoftmaxCrossEntropy(), grain=16)
    optimizer, costs = mp.Adam(), []
    for _ in range(3):
        costs.append(net.forward_backward(X, Y))
        net.step(optimizer)
    for schedule in (in_segments(build_for_stages("1f1b", 2, 3), 2), build_for_stages("1f1b-late-w", 4, 3)):
        pipe = mp.Pipeline(
            MLP, mp.SoftmaxCrossEntropy(), 4, 3, with_updates(schedule), optimizer=mp.Adam(), grain=16
        )
        assert pipe.train([(X, Y)] * 3) == costs
        assert_same([layer.W for layer in pipe.layers], [layer.W for layer in net.layers])


def test_a_stream_without_a_flush_has_the_same_bits_for_any_M():
    """PipeDream-2BW with its updates after 3 and after 6 micro-batches of the same 6 grains."""
    batches = [mini_batch(24, seed=seed) for seed in range(4)]
    found = []
    for M in (3, 6):
        pipe = mp.Pipeline(
            MLP, mp.SoftmaxCrossEntropy(), 3, M, "pipedream-2bw", optimizer=mp.SGD(0.1), grain=4
        )
        found.append(pipe.train(batches))
    assert found[0] == found[1]
    with pytest.raises(ValueError, match="grain=4 in one run without a flush needs mini-batches of one size"):
        pipe.train([mini_batch(24), mini_batch(28)])


def test_micro_batches_are_cut_at_multiples_of_the_grain_as_equal_as_can_be():
    assert grains_of(50, 16) == [slice(0, 16), slice(16, 32), slice(32, 48), slice(48, 50)]
    pipe = mp.Pipeline([mp.Linear(1, 1), mp.ReLU()], mp.MeanSquaredError(), 2, 3, grain=4)
    X = np.arange(26.0).reshape(1, 26)
    pipe.forward_backward(X, X)
    sent = [message.n_bytes // 8 for message in pipe.trace.messages if message.source == 0]
    assert sent == [12, 8, 6]      # 7 grains: 3, 2 and 2 of them, the last one of 2 samples


def test_a_layer_sees_one_grain_at_a_time_in_one_piece(monkeypatch):
    """Numbers that lie differently may be rounded differently."""
    seen, forward = [], mp.Linear.forward

    def watched(self, A_prev):
        seen.append((self.n_prev, self.first_sample, A_prev.shape[-1], A_prev.flags.c_contiguous))
        return forward(self, A_prev)

    monkeypatch.setattr(mp.Linear, "forward", watched)
    pipe = mp.Pipeline([mp.Linear(2, 3), mp.Linear(3, 1)], mp.MeanSquaredError(), 2, 2, "naive", grain=4)
    pipe.forward_backward(np.ones((2, 10)), np.ones((1, 10)))
    of_one = [(2, 0, 4), (2, 4, 4), (3, 0, 4), (3, 4, 4), (2, 8, 2), (3, 8, 2)]
    assert seen == [(*one, True) for one in of_one]


@pytest.mark.parametrize("name, recompute", one_in(3, ["1f1b", "zb-v", "chimera", "gpipe-late-w"], RECOMPUTE))
def test_its_bytes_are_foreseen_at_every_tick(name, recompute):
    """K = M = 4, 38 samples in 8 grains of 5, the last one of 3, and in 5 of 9; skips, ties and blocks."""
    schedule = with_recompute(build_for_stages(name, 4, 4), recompute)
    for layers, partition in [(MIXED, [2, 2, 3, 1]), (CONNECTED, [2, 3, 5, 4])]:
        for grain, sizes in [(5, [10, 10, 10, 8]), (9, [18, 9, 9, 2])]:
            of_size = {
                m: mp.footprints(layers, LOSS, 4, (5,), m, partition, grain=grain) for m in set(sizes)
            }
            pipe = mp.Pipeline(layers, LOSS, 4, 4, schedule, partition=partition, grain=grain)
            pipe.forward_backward(*of_five(38))
            foreseen = mp.simulate(schedule, footprints=[of_size[m] for m in sizes])
            assert_same_bytes(foreseen, pipe.trace)


@pytest.mark.parametrize("more, words", [
    ({"grain": 0}, "grain=0 must be at least 1"),
    ({"grain": 1.5}, "grain=1.5 must be a whole number"),
    ({"grain": "16"}, "grain='16' must be a whole number"),
    ({"grain": 4, "accumulate": "running"}, "grain=4 needs accumulate='tree', not 'running'"),
    ({"grain": 4, "all_reduce": "ring"}, "grain=4 needs all_reduce='owners', not 'ring'"),
])
def test_what_a_grain_cannot_be_is_refused_at_the_door(more, words):
    with pytest.raises(ValueError, match=words):
        mp.DataParallel(MLP, mp.SoftmaxCrossEntropy(), 2, **more)


def test_a_cut_that_would_fall_into_a_grain_is_refused():
    pipe = mp.Pipeline(MLP, mp.SoftmaxCrossEntropy(), 2, 5, grain=16)
    words = "n_microbatches=5 exceeds the 4 grains of 16 samples in a batch of m=50: a cut would fall into"
    with pytest.raises(ValueError, match=words):
        pipe.forward_backward(*mini_batch(50))
    pipe.forward_backward(*mini_batch(65))
