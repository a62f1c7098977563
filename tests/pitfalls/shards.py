"""Bugs where several devices share the work inside a layer, with their checks against the full batch."""

import tempfile
from pathlib import Path

import numpy as np
from cases import Rounding
from compared import assert_equals_full_batch, assert_same, parameters
from pitfalls.networks import LAYERS, LOSS, exact, mini_batch

import minipipe as mp
from minipipe.collectives import all_reduce
from minipipe.collectives.group import flattened, unflattened
from minipipe.layers.dropout import DropoutPart
from minipipe.layers.embedding import EmbeddingPart
from minipipe.layers.exchanging import Copied
from minipipe.order import programs, with_updates
from minipipe.parallel import layout
from minipipe.parallel.splitting import Shard
from minipipe.parallel.totals import Totals
from minipipe.schedules import build


def assert_shards_are_right(layers, T=2):
    assert_equals_full_batch(mp.TensorParallel(exact(layers), LOSS, T), *mini_batch(3))


def bias_added_by_every_shard(monkeypatch):
    """The bias of a layer that is split by inputs is added before the sum over the devices, so T times."""
    leave = Shard._leave
    monkeypatch.setattr(Shard, "_leave", lambda self, layer: leave(self, layer)[::-1])


def check_bias_added_by_every_shard():
    layers = mp.Sequential(LAYERS, LOSS).layers
    for layer in layers[::2]:
        layer.b = layer.b + 1
    for T in (2, 3):
        assert_shards_are_right(layers, T)


def input_gradient_not_reduced(monkeypatch):
    """Megatron's f is left out: each device hands back its own summand of dA_prev."""
    monkeypatch.setattr(Copied, "exchanges", (False, False))
    monkeypatch.setattr(Copied, "backward_input", lambda self, dZ: dZ)


def check_input_gradient_not_reduced():
    """It shows in the layers below the second pair; the first layer's dA_prev is nobody's."""
    assert_shards_are_right(LAYERS + LAYERS[2:])


def a_mask_for_each_shard(monkeypatch):
    """Devices that have the same activations draw different dropout masks."""
    whole = Shard._whole

    def with_another_key(self, layer):
        (own,) = whole(self, layer)
        if isinstance(own, mp.Dropout):
            own.key = own.key + np.uint64(self.rank)
        return [own]

    monkeypatch.setattr(Shard, "_whole", with_another_key)


def check_a_mask_for_each_shard():
    """Between two pairs of layers, where all devices have all units."""
    assert_shards_are_right([*LAYERS[:3], mp.Dropout(0.5), *LAYERS[2:]])


def norm_gradients_not_summed(monkeypatch):
    """Each device keeps the gradients of LayerNorm and of biases over its own positions."""
    monkeypatch.setattr(Totals, "replace_partial", lambda self, i, pending: None)


def check_norm_gradients_not_summed(dropout=0.0):
    """The last token of all occurs, and the shares do not divide the tokens."""
    attention = mp.MultiHeadAttention(4, 2), Rounding(), mp.Dropout(dropout)
    block = mp.Residual(mp.LayerNorm(4), Rounding(), *attention)
    layers = exact([mp.Embedding(5, 4), block, Rounding(), mp.LayerNorm(4), Rounding(), mp.Linear(4, 5)])
    tokens = np.array([[0, 4], [1, 2], [4, 3], [2, 0]])
    net = mp.TensorParallel(layers, mp.SoftmaxCrossEntropy(), mp.Shards(2, sequence=True))
    assert_equals_full_batch(net, tokens, mp.one_hot(tokens[::-1], 5).astype(int))


def norm_gradients_averaged(monkeypatch):
    """The devices' gradients of LayerNorm over their positions are averaged, and not added up."""

    def mean(group, value, algorithm):
        total = yield from all_reduce(group, value, algorithm)
        return unflattened([vector / group.size for vector in flattened(total)], total)

    monkeypatch.setattr(programs, "all_reduce", mean)


check_norm_gradients_averaged = check_norm_gradients_not_summed


def one_mask_for_all_positions(monkeypatch):
    """Devices that have different positions draw the same dropout mask."""
    monkeypatch.setattr(DropoutPart, "_kept", mp.Dropout._kept)


def check_one_mask_for_all_positions():
    check_norm_gradients_not_summed(dropout=0.25)


def vocabulary_edge(monkeypatch):
    """Each device has as many tokens as the shares that divide evenly, so the last ones are nobody's."""
    init = EmbeddingPart.__init__

    def without_the_last(self, whole, run):
        init(self, whole, run)
        self.run = slice(run.start, run.stop - (run.stop == whole.n_tokens))

    monkeypatch.setattr(EmbeddingPart, "__init__", without_the_last)


check_vocabulary_edge = check_norm_gradients_not_summed


def everybody_saves(monkeypatch):
    """Each shard writes its part of a parameter into the whole, and zeros elsewhere: the last one's stay."""
    in_a_row = layout._in_a_row

    def of_the_last(arrays, axis):
        return in_a_row([array * (array is arrays[-1]) for array in arrays], axis)

    monkeypatch.setattr(layout, "_in_a_row", of_the_last)


def check_everybody_saves():
    """What the shards have updated themselves, the network has; and what it saves can be loaded."""
    X, Y = mini_batch(4, np.float64)
    order = with_updates(build("gpipe", 1, 2))
    own = mp.Parallel(LAYERS, LOSS, mp.Split(shards=2, microbatches=2), order)
    own.train([(X, Y)], mp.SGD(0.5))
    stepped, loaded = mp.TensorParallel(LAYERS, LOSS, 2, 2), mp.Sequential(LAYERS, LOSS, seed=1)
    stepped.forward_backward(X, Y)
    stepped.step(mp.SGD(0.5))
    with tempfile.TemporaryDirectory() as folder:
        mp.save(Path(folder) / "net.npz", stepped)
        mp.load(Path(folder) / "net.npz", loaded)
    assert_same(parameters(own.layers), parameters(loaded.layers))
