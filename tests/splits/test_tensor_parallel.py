"""Several devices share the work inside each layer: one device's gradients, in any place and order.

Layers are split by outputs, inputs, heads or tokens.
"""

import numpy as np
import pytest
from cases import Rounding, eighths, exact
from compared import assert_equals_full_batch
from hypothesis import given, settings
from hypothesis import strategies as st

import minipipe as mp
from minipipe.cluster import ports
from minipipe.collectives import ALL_REDUCES
from minipipe.layers.exchanging import Summed
from minipipe.schedules import names_for

LOSS, CLASSES = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()

MLP = [
    mp.Linear(3, 5), mp.Tanh(), Rounding(), mp.Linear(5, 4), mp.Fork("skip"), mp.ReLU(),
    mp.Linear(4, 7), mp.Linear(7, 4), mp.Join("skip"), mp.Linear(4, 2),
]
CNN = [
    mp.Conv2d(2, 3, 3, padding=1), mp.GroupNorm(3, 3), mp.ReLU(), Rounding(), mp.MaxPool2d(2),
    mp.Conv2d(3, 4, 2), mp.ReLU(), Rounding(), mp.Conv2d(4, 3, 1), mp.Flatten(), mp.Linear(3, 3),
]
TRANSFORMER = [
    mp.Embedding(7, 4, tie="words"), mp.PositionalEmbedding(4, 4),
    mp.Chain(
        mp.Residual(mp.LayerNorm(4), Rounding(), mp.MultiHeadAttention(4, 2, causal=True), Rounding()),
        mp.Residual(
            mp.LayerNorm(4), Rounding(), mp.Linear(4, 6), mp.GELU(), Rounding(), mp.Linear(6, 4), Rounding()
        ),
    ),
    mp.Residual(
        mp.LayerNorm(4), Rounding(), mp.MultiHeadAttention(4, 4), mp.Dropout(0.25), Rounding()
    ),
    mp.LayerNorm(4), mp.Linear(4, 7, tie="words"),
]
LOGITS = [mp.Linear(3, 4), mp.LayerNorm(4), mp.Linear(4, 5)]


def samples(name, m):
    """(layers, loss, X, Y) of one of the networks."""
    rng = np.random.default_rng(m)
    if name == "transformer":
        tokens, labels = rng.integers(0, 7, (2, 2, m))
        return TRANSFORMER, CLASSES, tokens, mp.one_hot(labels, 7)
    if name == "logits":
        return LOGITS, CLASSES, rng.standard_normal((3, m)), mp.one_hot(rng.integers(0, 5, m), 5)
    if name == "cnn":
        return CNN, LOSS, rng.standard_normal((2, 4, 4, m)), rng.standard_normal((3, m))
    return MLP, LOSS, rng.standard_normal((3, m)), rng.standard_normal((2, m))


def rationals(name, m):
    """The same in rational numbers."""
    layers, loss, X, Y = samples(name, m)
    return exact(layers), loss, X if X.dtype.kind == "i" else eighths(X), eighths(Y)


SIZES = {"mlp": (2, 3, 4), "cnn": (2, 3), "transformer": (2,), "logits": (2, 3, 4)}


@pytest.mark.parametrize("name", SIZES)
@settings(max_examples=6)
@given(data=st.data())
def test_in_fractions_all_splits_at_once_are_the_full_batch(name, data):
    """D copies of K stages on groups of T devices, ragged, with every schedule, recomputation and buckets."""
    T, D = data.draw(st.sampled_from(SIZES[name])), data.draw(st.integers(1, 2))
    K, M = data.draw(st.integers(1, 3)), D * data.draw(st.integers(1, 4 - D))
    schedules = names_for(stages=K, microbatches=M // D)
    layers, loss, X, Y = rationals(name, data.draw(st.integers(M, M + 1)))
    place = data.draw(st.sampled_from(["tp-dp-pp", "pp-tp-dp", "dp-pp-tp"]))
    sums = mp.Sums(
        data.draw(st.sampled_from(["tree", "running"])), data.draw(st.sampled_from(sorted(ALL_REDUCES))),
        data.draw(st.sampled_from([None, 1, 200, "ddp"])),
    )
    if data.draw(st.booleans()):
        sums = mp.Sums(buckets=sums.buckets, grain=1)
    net = mp.Parallel(
        layers, loss, replicas=D, shards=T, stages=K, microbatches=M, numbering=place,
        schedule=data.draw(st.sampled_from(schedules)),
        recompute=data.draw(st.sampled_from(["never", "always"])), sums=sums,
    )
    assert_equals_full_batch(net, X, Y)


def test_a_transformer_block_is_split_by_heads_and_units():
    """LayerNorm and the residual stream stay whole; a head, and a hidden unit, is on one device."""
    block = [mp.TransformerBlock(4, 2, 6), mp.Linear(4, 1)]
    words = "((whole, by heads), (whole, by outputs, unit by unit, by inputs))"
    assert mp.TensorParallel(block, LOSS, 2).ways == [words, "whole"]


# Devices and their numbers


def test_devices_are_numbered_as_in_megatron_lm():
    """As in Megatron-LM: T = 2, D = 2, K = 4."""
    layers = [mp.Linear(2, 2) for _ in range(4)]
    groups = mp.Parallel(layers, LOSS, replicas=2, shards=2, stages=4).groups
    assert groups["dp"][:4] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["pp"] == [[0, 4, 8, 12], [1, 5, 9, 13], [2, 6, 10, 14], [3, 7, 11, 15]]
    split = dict(replicas=2, shards=2, stages=2, numbering="tp-pp-dp")
    groups = mp.Parallel(layers[:2], LOSS, **split).groups
    assert groups["pp"] == [[0, 2], [1, 3], [4, 6], [5, 7]]
    assert groups["dp"] == [[0, 4], [1, 5], [2, 6], [3, 7]]


@pytest.mark.parametrize("order", ["tp-dp-pp", "dp-pp-tp", "pp-tp-dp"])
def test_messages_stay_within_the_groups(order):
    """Every device is in one group of each axis; groups of two axes share one device at most."""
    layers, loss, X, Y = samples("mlp", 4)
    net = mp.Parallel(layers, loss, replicas=2, shards=2, stages=2, microbatches=4, numbering=order)
    net.forward_backward(X, Y)
    pairs = [
        (message.source, message.to) for message in net.trace.messages if message.source != message.to
    ]
    for axis, groups in net.groups.items():
        assert sorted(sum(groups, [])) == list(range(8)), axis
    together = {frozenset(pair) for groups in net.groups.values() for group in groups for pair in [group]}
    assert {frozenset(pair) for pair in pairs} == together


def test_shards_take_longer_over_slow_links():
    """Fast links inside nodes of two: neighbours along T first, then along D."""
    layers, loss, X, Y = samples("mlp", 8)
    links = mp.parallel.in_nodes(4, 2, mp.Link(latency=1), mp.Link(latency=10))
    makespan = {}
    for order in ("tp-dp-pp", "dp-tp-pp"):
        split = dict(replicas=2, shards=2, microbatches=4, numbering=order)
        net = mp.Parallel(layers, loss, **split, link=links)
        net.forward_backward(X, Y)
        makespan[order] = net.trace.makespan
    assert makespan["tp-dp-pp"] < makespan["dp-tp-pp"]
    net = mp.TensorParallel(layers, loss, 2, ports=ports(2, 64))
    net.forward_backward(X, Y)
    assert net.trace.makespan > 3


@pytest.mark.parametrize("layers, split, words", [
    (MLP, dict(replicas=2, shards=2, stages=2, microbatches=3), "use a multiple of 2"),
    (MLP, dict(shards=2, numbering="tp-pp"), "numbering='tp-pp' must be one of 'tp-dp-pp', 'tp-pp-dp'"),
    (MLP, dict(replicas=3, microbatches=2), "3 copies of the network, but 2 micro-batches"),
    (TRANSFORMER, dict(shards=3), "2 heads over 3 shards: shards must divide the number of heads"),
])
def test_splits_that_do_not_fit_are_refused(layers, split, words):
    with pytest.raises(ValueError, match=words):
        mp.Parallel(layers, CLASSES, **split)


def test_a_communicating_layer_without_a_group_is_refused():
    with pytest.raises(RuntimeError, match="needs other devices, but runs on one here"):
        mp.Sequential([mp.Linear(2, 2), Summed()], LOSS).forward_backward(np.ones((2, 1)), np.ones((2, 1)))


def test_a_device_counts_optimizer_state_of_its_shard_only():
    """Adam's two moments of a pair over four devices: a quarter of W1, b1 and W2, and all of b2."""
    layers = [mp.Linear(64, 256), mp.ReLU(), mp.Linear(256, 64)]
    X = np.ones((64, 4))
    net, adam = mp.TensorParallel(layers, LOSS, 4, count_bytes=True), mp.Adam(0.1)
    net.forward_backward(X, X)
    net.step(adam)
    net.forward_backward(X, X)
    assert net.trace.peak_bytes(["parameters"]) == [8 * 8320] * 4
    assert net.trace.peak_bytes(["optimizer state"]) == [2 * 8 * 8320] * 4


@pytest.mark.parametrize("K", [1, 2])
def test_exchanges_inside_an_action_do_not_change_its_ticks(K):
    """Two pairs: 12 ticks forward, 24 back, also where the first layer's dA_prev is not needed."""
    layers = [layer for _ in range(4) for layer in (mp.Linear(4, 4), mp.ReLU())]
    net = mp.Parallel(layers, LOSS, shards=2, stages=K, costs=mp.Costs(F=12, B=24))
    net.forward_backward(np.ones((4, 2)), np.ones((4, 2)))
    assert net.trace.makespan == 36 * K


# Bytes


def bytes_sent(trace, word):
    return sum(message.n_bytes for message in trace.messages if word in str(message.label))


def test_bytes_of_the_three_splits_of_a_convolution():
    """3 x 3, 16 -> 16 channels, images of 32 x 32, m = 8, float32, N = 4: bytes in all."""
    layers = [mp.Conv2d(16, 16, 3, padding=1), mp.ReLU(), mp.Conv2d(16, 16, 3, padding=1)]
    X = np.zeros((16, 32, 32, 8), np.float32)

    def trace_of(build, layers):
        net = build(layers, LOSS)
        net.forward_backward(X, np.zeros_like(X))
        return net.trace

    def shards(layers, loss):
        return mp.TensorParallel(layers, loss, 4, dtype="float32")

    by_outputs = trace_of(shards, layers[:1])
    assert bytes_sent(by_outputs, "all-gather") == 1_572_864
    pair = trace_of(shards, layers)  # the second one by inputs: a sum of all devices' outputs
    assert bytes_sent(pair, "all-reduce") == 3_145_728
    copies = trace_of(lambda layers, loss: mp.DataParallel(layers, loss, 4, dtype="float32"), layers[:1])
    assert bytes_sent(copies, "owners all-reduce") == 55_680
