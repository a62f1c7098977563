"""Ticks, messages and bytes of any split are foreseen: its own programs run with arrays without numbers."""

import numpy as np
import pytest
from sampling import one_in

import minipipe as mp
from minipipe.schedules import build, in_copies, with_updates, with_zero

MSE, CLASSES = mp.MeanSquaredError(), mp.SoftmaxCrossEntropy()
LINK = mp.Link(latency=1)
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


def hybrid(*sizes, **options):
    return lambda layers, loss: mp.Hybrid(layers, loss, *sizes, link=LINK, **options)


def copies(*sizes, **options):
    return lambda layers, loss: mp.DataParallel(layers, loss, *sizes, link=LINK, **options)


def order(schedule):
    return lambda layers, loss: mp.Pipeline(layers, loss, 2, 4, schedule, link=LINK)


def trained(network, shape, optimizer):
    """After one mini-batch of 13 samples; if there are updates, after one more."""
    tokens, rng = network.loss is CLASSES, np.random.default_rng(0)
    X = rng.integers(0, 10, (*shape, 13)) if tokens else rng.standard_normal((*shape, 13))
    Y = network.predict(X)
    Y = np.exp(Y) / np.exp(Y).sum(axis=0) if tokens else Y + 1
    if optimizer is None:
        network.forward_backward(X, Y)
    else:
        network.train([(X, Y)] * 2, optimizer.fresh())
    return network.trace


@pytest.mark.parametrize("case", one_in(2, [
    ("mlp", hybrid(2, 2, 2, 4), mp.Adam()),
    ("mlp", hybrid(1, 3, 2, 4, recompute=True), mp.SGD(0.1, momentum=0.9)),
    ("mlp", copies(3, 6, buckets=1, all_reduce="ring"), mp.Adam()),
    ("mlp", copies(2, 4, sync_batch_norm=True), None),
    ("mlp", copies(3, 6, buckets=100, zero=1), mp.Adam()),
    ("mlp", order(with_updates(in_copies(build("1f1b", 2, 2), 2))), mp.Adam()),
    ("mlp", order(with_zero(in_copies(build("zb-h1", 2, 2), 2), 3)), mp.Adam()),
    ("transformer", hybrid(1, 2, 1, sequence=True), mp.Adam()),
    ("tied", hybrid(2, 1, 2, 4), mp.Adam()),
    ("convolutions", hybrid(1, 2, 2, 2), None),
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
    trace = mp.rehearse(hybrid(2, 8, 1, dtype="float32"), layers, MSE, (n,), m, dtype="float32")
    a_device = 4 * n * n * 2 // 8
    assert max(trace.peak_bytes(["gradients"])) >= a_device > 87e9
    assert all(abs(n_bytes - a_device) <= 4 * n for n_bytes in trace.peak_bytes(["parameters"]))


def test_the_layers_stay_as_they_are():
    layers, loss, shape = NETWORKS["mlp"]
    mp.rehearse(hybrid(1, 2, 1), layers, loss, shape, 8)
    assert all(layer.W is None for layer in layers)


@pytest.mark.parametrize("arguments, words", [
    (dict(m=0), "m=0"),
    (dict(input_shape=(5,)), r"5"),
    (dict(build=3), "build=3 must be a function"),
    (dict(build=lambda layers, loss: mp.Sequential(layers, loss)), "a Sequential, which has no devices"),
])
def test_what_does_not_fit_is_refused(arguments, words):
    layers, loss, shape = NETWORKS["mlp"]
    arguments = dict(build=hybrid(1, 2, 1), layers=layers, loss=loss, input_shape=shape, m=8) | arguments
    with pytest.raises(ValueError, match=words):
        mp.rehearse(**arguments)
