"""The state of a training: another network goes on from it with the same bits, in memory or out of a file.

At the end, a network that was copied or pickled trains as the one that it was made of, apart from it.
"""

import copy
import pickle

import numpy as np
import pytest
from compared import assert_all_same, assert_same, parameters, state
from sampling import one_in

import minipipe as mp
from minipipe.order import with_updates
from minipipe.schedules import build, gpipe

LOSS = mp.MeanSquaredError()
LAYERS = [mp.Linear(3, 4), mp.BatchNorm(4), mp.ReLU(), mp.Dropout(0.25), mp.Linear(4, 4), mp.Linear(4, 2)]
rng = np.random.default_rng(0)
BATCHES = [(rng.standard_normal((3, 8)), rng.standard_normal((2, 8))) for _ in range(4)]
CLIENTS = [(X[:, :m], Y[:, :m]) for (X, Y), m in zip(BATCHES, (4, 6, 8, 2), strict=True)]
NETWORKS = {
    "Sequential": lambda layers: mp.Sequential(layers, LOSS, grain=2),
    "stages": lambda layers: mp.Parallel(
        layers, LOSS, stages=3, microbatches=4, sums=mp.Sums(grain=2)
    ),
    "ZeRO": lambda layers: mp.Parallel(
        layers, LOSS, replicas=2, stages=2, zero=3, sums=mp.Sums(grain=2)
    ),
}


@pytest.mark.parametrize("first, second", one_in(3, NETWORKS, [*NETWORKS][::-1]))
def test_another_network_goes_on_with_the_same_bits(first, second):
    """The state is a copy: later updates of the first network do not reach it."""
    net, optimizer = NETWORKS[first](LAYERS), mp.Adam(0.1)
    net.train(BATCHES[:2], optimizer)
    kept = net.state(optimizer)
    expected = net.train(BATCHES[2:], optimizer)
    other, own = NETWORKS[second](LAYERS), mp.Adam(0.5)
    for _ in range(2):  # from one state as often as one likes
        other.resume(kept, own)
        assert (other.n_steps, own.n_updates, own.learning_rate) == (2, 2, 0.1)
        assert other.train(BATCHES[2:], own) == expected
        assert_same(parameters(other.layers), parameters(net.layers))
        assert_same(dict(own.memory), dict(optimizer.memory))


def test_servers_go_on_from_the_state_of_others():
    """On the cluster, where the order of arrival is given: of several servers, and of one."""
    def net(servers):
        return mp.ParameterServer(LAYERS, LOSS, 2, servers=servers, mode="async")

    whole, optimizer = net(2), mp.Adam(0.1)
    whole.train(BATCHES[:2], optimizer)
    kept = whole.state(optimizer)
    expected = whole.train(BATCHES[2:], optimizer)
    other, own = net(1), mp.Adam(0.5)
    other.resume(kept, own)
    assert other.train(BATCHES[2:], own) == expected
    assert_same(parameters(other.layers), parameters(whole.layers))
    assert_same(dict(own.memory), dict(optimizer.memory))


def federated():
    return mp.FederatedAveraging(LAYERS, LOSS, CLIENTS, fraction=0.5, batch_size=2)


@pytest.mark.parametrize("through", ["a state", "a file"])
def test_rounds_go_on_with_all_that_is_remembered(through, tmp_path):
    """Which clients are chosen, and where in its samples a client is."""
    net = federated()
    net.train(3, mp.Adam(0.1))
    if through == "a file":
        mp.save(tmp_path / "net.npz", net, mp.Adam(0.1))
    kept = net.state(mp.Adam(0.1))
    expected = net.train(3, mp.Adam(0.1))
    other, own = federated(), mp.Adam(0.5)
    if through == "a file":
        mp.load(tmp_path / "net.npz", other, own)
    else:
        other.resume(kept, own)
    assert [done[:3] for done in other.train(3, own)] == [done[:3] for done in expected]
    assert_same(parameters(other.layers), parameters(net.layers))


def test_rounds_go_on_from_a_network_that_knows_of_none():
    net = federated()
    net.train(1, mp.Adam(0.1))
    net.resume(mp.Sequential(LAYERS, LOSS).state())
    assert (net.n_rounds, net.positions) == (0, [0] * 4)
    assert_same(net.round(mp.Adam(0.1))[:3], federated().round(mp.Adam(0.1))[:3])


@pytest.mark.parametrize("change, words", [
    (lambda net: net.resume({"arrays": 1}), "is not a State: pass what net.state"),
    (lambda net: net.resume(mp.Sequential(LAYERS[:1], LOSS).state()), "holds 1 layers, the network has 6"),
    (lambda net: net.resume(net.state(), mp.Adam()), "was saved without an optimizer"),
    (lambda net: net.resume(net.state(mp.SGD(0.1)), mp.Adam()), "the state of SGD, the optimizer has Adam"),
    (lambda net: net.state(mp.Adam), "pass an object, such as SGD"),
])
def test_what_does_not_fit_moves_nothing(change, words):
    net = NETWORKS["Sequential"](LAYERS)
    before = parameters(net.layers)
    with pytest.raises(ValueError, match=words):
        change(net)
    assert_same(parameters(net.layers), before)


def test_the_state_of_other_clients_is_refused():
    kept = federated().state(mp.Adam(0.1))
    with pytest.raises(ValueError, match="is of 4 clients with seed=0, the network has 3 with seed=0"):
        mp.FederatedAveraging(LAYERS, LOSS, CLIENTS[:3]).resume(kept)
    with pytest.raises(ValueError, match="with seed=0, the network has 4 with seed=1: build it alike"):
        mp.FederatedAveraging(LAYERS, LOSS, CLIENTS, seed=1).resume(kept)


# Copies

NORMS = [
    mp.Linear(3, 6), mp.BatchNorm(6), mp.Tanh(), mp.Dropout(0.25), mp.Linear(6, 4), mp.Tanh(), mp.Linear(4, 2)
]
TIED = [mp.Linear(3, 3, tie="W"), mp.BatchNorm(3), mp.Linear(3, 3, tie="W"), mp.Linear(3, 2)]
SYNC = mp.Sums(sync_batch_norm=True)

COPIED = {
    "one device": lambda: mp.Sequential(NORMS, LOSS),
    "pipeline": lambda: mp.Pipeline(NORMS, LOSS, 3, 2),
    "threads": lambda: mp.Pipeline(NORMS, LOSS, 3, 2, engine="threads"),
    "two copies on the same devices": lambda: mp.Pipeline(TIED, LOSS, 2, 4, schedule="chimera"),
    "updates in the order": lambda: mp.Pipeline(NORMS, LOSS, 2, 2, schedule=with_updates(gpipe(2, 2))),
    "replicas": lambda: mp.DataParallel(TIED, LOSS, 2),
    "synchronised, one replica": lambda: mp.DataParallel(NORMS, LOSS, 1, sums=SYNC),
    "synchronised": lambda: mp.DataParallel(NORMS, LOSS, 2, sums=SYNC),
    "synchronised, updates": lambda: mp.DataParallel(NORMS, LOSS, 2, zero=1, sums=SYNC),
    "ZeRO 3": lambda: mp.DataParallel(NORMS, LOSS, 2, zero=3),
    "shards": lambda: mp.TensorParallel(NORMS, LOSS, 2, count_bytes=True),
    "shards with updates": lambda: mp.Parallel(
        NORMS, LOSS, shards=2, stages=2, microbatches=2, schedule=with_updates(gpipe(2, 2))),
    "shards with ZeRO 1": lambda: mp.Parallel(
        NORMS, LOSS, replicas=2, shards=2, stages=2, microbatches=4, zero=1),
}
WAYS = {"copy": copy.copy, "deepcopy": copy.deepcopy, "pickle": lambda net: pickle.loads(pickle.dumps(net))}


def train(net, optimizer, batches):
    """Return the costs of the mini-batches, with an update after each."""
    return net.train(batches, optimizer) if batches else []


def assert_train_alike(net, optimizer, other):
    """Raise unless both have the same costs from here on, and then the same arrays in all their copies."""
    costs = train(net, optimizer, BATCHES[2:])
    assert_same(train(*other, BATCHES[2:]), costs, "costs of the copy")
    assert_same(state(other[0].layers), state(net.layers))
    assert_all_same([state(layers) for layers in getattr(other[0], "replicas", [other[0].layers])])


@pytest.mark.parametrize("name, way", one_in(3, COPIED, WAYS))
def test_it_trains_as_the_other_one(name, way):
    """Copied before its first run, and after two."""
    for n_before in (0, 2):
        net, optimizer = COPIED[name](), mp.Adam(0.1)
        train(net, optimizer, BATCHES[:n_before])
        assert_train_alike(net, optimizer, (WAYS[way](net), copy.deepcopy(optimizer)))


def test_a_copy_counts_what_an_optimizer_keeps():
    net, optimizer = COPIED["shards"](), mp.Adam(0.1)
    train(net, optimizer, BATCHES[:1])
    copies = [way(net) for way in WAYS.values()]
    for one in (net, *copies):
        one.forward_backward(*BATCHES[1])
    assert_all_same([one.trace.peak_bytes() for one in copies], net.trace.peak_bytes())


@pytest.mark.parametrize("make", [
    lambda layers: mp.Sequential(layers, LOSS),
    lambda layers: mp.Pipeline(layers, LOSS, 1, 2, schedule=with_updates(build("gpipe", 1, 2))),
    lambda layers: mp.Pipeline(layers, LOSS, 1, 1, schedule="pipedream"),
    lambda layers: mp.DataParallel(layers, LOSS, 2, zero=1),
    lambda layers: mp.DataParallel(layers, LOSS, 2, zero=3),
    lambda layers: mp.Parallel(
        layers, LOSS, shards=2, microbatches=2, schedule=with_updates(build("gpipe", 1, 2))),
    lambda layers: mp.ParameterServer(layers, LOSS, 2, servers=2),
], ids=["one device", "stages", "a stream", "ZeRO 1", "ZeRO 3", "shards", "servers"])
def test_an_optimizer_that_remembers_another_network_is_refused(make):
    """Of as many layers, but other shapes; nothing moves."""
    batch, adam = [(np.ones((4, 4)), np.ones((2, 4)))], mp.Adam()
    make([mp.Linear(4, 6), mp.Linear(6, 2)]).train(batch, adam)
    net = make([mp.Linear(4, 3), mp.Linear(3, 2)])
    before = copy.deepcopy((parameters(net.layers), dict(adam.memory), adam.n_updates))
    with pytest.raises(ValueError, match="this optimizer remembers the gradients of another network"):
        net.train(batch, adam)
    assert_same((parameters(net.layers), dict(adam.memory), adam.n_updates), before)


def test_a_copy_of_a_run_under_way_is_refused():
    pipe = COPIED["pipeline"]()
    pipe.start(*BATCHES[0])
    pipe.tick()
    with pytest.raises(RuntimeError, match="this run is under way, and its programs cannot be copied"):
        copy.deepcopy(pipe)
