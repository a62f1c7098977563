"""A network that was copied or pickled trains as the one that it was made of, apart from it."""

import copy
import pickle

import numpy as np
import pytest
from compared import assert_all_same, assert_same, state
from sampling import one_in

import minipipe as mp
from minipipe.order import with_updates
from minipipe.schedules import gpipe

LOSS = mp.MeanSquaredError()
RNG = np.random.default_rng(0)
BATCHES = [(RNG.standard_normal((4, 8)), RNG.standard_normal((2, 8))) for _ in range(4)]
NORMS = [
    mp.Linear(4, 6), mp.BatchNorm(6), mp.Tanh(), mp.Dropout(0.25), mp.Linear(6, 4), mp.Tanh(), mp.Linear(4, 2)
]
TIED = [mp.Linear(4, 4, tie="W"), mp.BatchNorm(4), mp.Linear(4, 4, tie="W"), mp.Linear(4, 2)]
SYNC = mp.Sums(sync_batch_norm=True)

NETWORKS = {
    "one device": lambda: mp.Sequential(NORMS, LOSS),
    "pipeline": lambda: mp.Pipeline(NORMS, LOSS, 3, 2),
    "two copies on the same devices": lambda: mp.Pipeline(TIED, LOSS, 2, 4, "chimera"),
    "updates in the order": lambda: mp.Pipeline(NORMS, LOSS, 2, 2, with_updates(gpipe(2, 2))),
    "replicas": lambda: mp.DataParallel(TIED, LOSS, 2),
    "synchronised, one replica": lambda: mp.DataParallel(NORMS, LOSS, 1, sums=SYNC),
    "synchronised": lambda: mp.DataParallel(NORMS, LOSS, 2, sums=SYNC),
    "synchronised, updates": lambda: mp.DataParallel(NORMS, LOSS, 2, zero=1, sums=SYNC),
    "ZeRO 3": lambda: mp.DataParallel(NORMS, LOSS, 2, zero=3),
    "shards": lambda: mp.TensorParallel(NORMS, LOSS, 2),
    "shards with updates": lambda: mp.Parallel(
        NORMS, LOSS, mp.Split(shards=2, stages=2, microbatches=2), with_updates(gpipe(2, 2))
    ),
    "shards with ZeRO 1": lambda: mp.Parallel(
        NORMS, LOSS, mp.Split(replicas=2, shards=2, stages=2, microbatches=4), memory=mp.Memory(zero=1)
    ),
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


@pytest.mark.parametrize("name, way", one_in(3, NETWORKS, WAYS))
def test_it_trains_as_the_other_one(name, way):
    """Copied before its first run, and after two."""
    for n_before in (0, 2):
        net, optimizer = NETWORKS[name](), mp.Adam(0.1)
        train(net, optimizer, BATCHES[:n_before])
        assert_train_alike(net, optimizer, (WAYS[way](net), copy.deepcopy(optimizer)))


@pytest.mark.parametrize("name, way", one_in(3, [
    "one device", "pipeline", "replicas", "synchronised, one replica", "synchronised", "shards"
], WAYS))
def test_gradients_of_a_copy_are_applied_to_its_own_layers(name, way):
    net, optimizer = NETWORKS[name](), mp.Adam(0.1)
    net.forward_backward(*BATCHES[0])
    other = WAYS[way](net), copy.deepcopy(optimizer)
    for one, its in ((net, optimizer), other):
        one.step(its)
    assert_train_alike(net, optimizer, other)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", ["synchronised, updates", "ZeRO 3", "shards with updates"])
def test_a_file_of_a_copy_is_that_of_the_other_one(name, way, tmp_path):
    """Also where an optimizer was copied that has what it remembers in parts."""
    net, optimizer = NETWORKS[name](), mp.Adam(0.1)
    train(net, optimizer, BATCHES[:2])
    files = {}
    for path, copied in ((tmp_path / "net.npz", lambda one: one), (tmp_path / "copy.npz", WAYS[way])):
        mp.save(path, copied(net), copied(optimizer))
        files[path.name] = dict(np.load(path))
    assert_same(files["copy.npz"], files["net.npz"])


@pytest.mark.parametrize("way", WAYS)
def test_a_copy_counts_what_an_optimizer_keeps(way):
    net, optimizer = NETWORKS["shards"](), mp.Adam(0.1)
    train(net, optimizer, BATCHES[:1])
    copied = WAYS[way](net)
    for one in (net, copied):
        one.forward_backward(*BATCHES[1])
    assert net.trace.peak_bytes() == copied.trace.peak_bytes()


def test_a_batch_norm_of_ones_own_is_not_synchronised():
    class MyBatchNorm(mp.BatchNorm):
        def forward(self, A_prev):
            return 2 * super().forward(A_prev)

    with pytest.raises(ValueError, match=r"MyBatchNorm\(4\) is a layer of your own in which samples meet"):
        mp.DataParallel([mp.Linear(4, 4), MyBatchNorm(4)], LOSS, 2, sums=SYNC)
