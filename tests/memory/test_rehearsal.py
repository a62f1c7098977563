"""Ticks, messages and bytes of any split are foreseen: its own programs run with arrays without numbers."""

import numpy as np
import pytest
from sampling import one_in

import minipipe as mp
from minipipe.order import in_copies, with_updates, with_zero
from minipipe.schedules import build

MSE, CLASSES = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()
SLOW = mp.Machine(link=mp.Link(latency=1))
NETWORKS = {  # name -> (layers, loss, shape of a sample)
    "mlp": ([
        mp.Linear(4, 8), mp.ReLU(), mp.Linear(8, 6), mp.BatchNorm(6), mp.Tanh(), mp.Dropout(0.5),
        mp.Linear(6, 3),
    ], MSE, (4,)),
    "transformer": (
        mp.models.transformer(n_tokens=10, d=8, n_heads=2, n_layers=1, n_places=4), CLASSES, (4,),
    ),
    "tied": (
        mp.models.transformer(n_tokens=10, d=8, n_heads=2, n_layers=1, n_places=4, tied=True), CLASSES, (4,),
    ),
    "convolutions": ([
        mp.Conv2d(2, 4, 3, padding=1), mp.ReLU(), mp.MaxPool2d(2), mp.Conv2d(4, 4, 3), mp.Flatten(),
        mp.Linear(16, 3),
    ], MSE, (2, 8, 8)),
}


def network(split, schedule="1f1b", **options):
    return lambda layers, loss: mp.Parallel(layers, loss, split, schedule, on=SLOW, **options)


def trained(net, shape, optimizer):
    """After one mini-batch of 13 samples; if there are updates, after one more."""
    tokens, rng = net.loss is CLASSES, np.random.default_rng(0)
    X = rng.integers(0, 10, (*shape, 13)) if tokens else rng.standard_normal((*shape, 13))
    Y = net.predict(X)
    Y = np.exp(Y) / np.exp(Y).sum(axis=0) if tokens else Y + 1
    if optimizer is None:
        net.forward_backward(X, Y)
    else:
        net.train([(X, Y)] * 2, optimizer.fresh())
    return net.trace


TWO_STAGES = mp.Split(stages=2, microbatches=4)
THREE_COPIES = mp.Split(replicas=3, microbatches=6)
ALL_THREE = mp.Split(replicas=2, shards=2, stages=2, microbatches=4)


@pytest.mark.parametrize("case", one_in(2, [
    ("mlp", network(ALL_THREE), mp.Adam()),
    ("mlp", network(mp.Split(shards=3, stages=2, microbatches=4), memory=mp.Memory("always")),
     mp.SGD(0.1, momentum=0.9)),
    ("mlp", network(THREE_COPIES, sums=mp.Sums(all_reduce="ring", buckets=1)), mp.Adam()),
    ("mlp", network(mp.Split(replicas=2, microbatches=4), sums=mp.Sums(sync_batch_norm=True)), None),
    ("mlp", network(THREE_COPIES, memory=mp.Memory(zero=1), sums=mp.Sums(buckets=100)), mp.Adam()),
    ("mlp", network(TWO_STAGES, with_updates(in_copies(build("1f1b", 2, 2), 2))), mp.Adam()),
    ("mlp", network(TWO_STAGES, with_zero(in_copies(build("zb-h1", 2, 2), 2), 3)), mp.Adam()),
    ("mlp", network(ALL_THREE, memory=mp.Memory(zero=3), sums=mp.Sums(buckets=1)), mp.Adam()),
    ("mlp", network(ALL_THREE, sums=mp.Sums(buckets=100, sync_batch_norm=True)), mp.Adam()),
    ("transformer", network(mp.Split(shards=mp.Shards(2, sequence=True))), mp.Adam()),
    ("tied", network(mp.Split(replicas=2, stages=2, microbatches=4)), mp.Adam()),
    ("convolutions", network(mp.Split(shards=2, stages=2, microbatches=2)), None),
]))
def test_all_that_a_run_counts_is_foreseen(case):
    """At every tick: spans, messages with their bytes, and what each device holds of each kind."""
    name, make, optimizer = case
    layers, loss, shape = NETWORKS[name]
    foreseen = mp.rehearse(make, layers, loss, shape, 13, optimizer=optimizer)
    counted = trained(make(layers, loss), shape, optimizer)
    assert foreseen.spans == counted.spans and foreseen.messages == counted.messages
    for device in range(counted.n_devices):
        assert foreseen.ledger(device) == counted.ledger(device)


def test_a_network_may_be_larger_than_this_computer():
    """175 billion parameters in float32, in a pair of layers: 8 shards in 2 copies, 88 GB each."""
    n, m = 295_804, 2
    layers = [mp.Linear(n, n, bias=False), mp.ReLU(), mp.Linear(n, n, bias=False)]
    build = network(mp.Split(replicas=2, shards=8), weights=mp.Weights(dtype="float32"))
    trace = mp.rehearse(build, layers, MSE, (n,), m, dtype="float32")
    a_device = 4 * n * n * 2 // 8
    assert max(trace.peak_bytes(["gradients"])) >= a_device > 87e9
    assert all(abs(n_bytes - a_device) <= 4 * n for n_bytes in trace.peak_bytes(["parameters"]))


def test_the_layers_stay_as_they_are():
    layers, loss, shape = NETWORKS["mlp"]
    mp.rehearse(network(mp.Split(shards=2)), layers, loss, shape, 8)
    assert all(layer.W is None for layer in layers)


@pytest.mark.parametrize("arguments, words", [
    (dict(m=0), "m=0"),
    (dict(input_shape=(5,)), r"5"),
    (dict(build=3), "build=3 must be a function"),
    (dict(build=lambda layers, loss: mp.Sequential(layers, loss)), "a Sequential, which has no devices"),
])
def test_what_does_not_fit_is_refused(arguments, words):
    layers, loss, shape = NETWORKS["mlp"]
    build = network(mp.Split(shards=2))
    arguments = dict(build=build, layers=layers, loss=loss, input_shape=shape, m=8) | arguments
    with pytest.raises(ValueError, match=words):
        mp.rehearse(**arguments)
