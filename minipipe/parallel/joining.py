"""The whole network's parameters and gradients, and what optimizers remember, from those of its shards."""

import copy
from functools import partial
from itertools import chain

import numpy as np

from ..layers import every_layer
from ..layers.parameters import parameters_with


def joined_gradients(layers, shards, gradients):
    """A list over the network's layers of (dW, db), from those of its shards.

    gradients: for each shard a list over its layers, one after the other.
    """
    of_shards = [
        dict(_by_parameter(list(chain(*shard.layers)), pairs)) for shard, pairs in zip(shards, gradients)
    ]

    def value(shard, holder, name):
        return of_shards[shard].get((id(holder), name))

    return [_joined(layer, shards, value) for layer in layers]


def take_parameters(layers, shards):
    """The network's layers get the parameters that its shards have."""
    def value(shard, holder, name):
        return getattr(holder, name)

    for layer in every_layer(layers):
        if layer.arrays:  # a layer made of layers has none of its own
            layer.W, layer.b = (_whole_array(layer, name, shards, value) for name in ("W", "b"))


def joined_optimizer(layers, shards, stages, optimizers):
    """The optimizer of consecutive layers of the network, from those of its shards.

    stages, optimizers: for each shard, the `Stage` that it has of these layers, and that one's optimizer.
    """
    whole = copy.copy(optimizers[0])
    whole.memory = {}
    remembered = [
        {(id(holder), key[1]): one.memory[key] for key, holder in _holders(stage.layers).items()}
        for stage, one in zip(stages, optimizers, strict=True) if one.memory
    ]
    for key, layer in _holders(layers).items() if any(remembered) else ():
        whole.memory[key] = [
            _whole_array(layer, key[1], shards, partial(_nth, remembered, n)) for n in range(whole.n_memories)
        ]
    return whole


def optimizer_of_shard(layers, shard, stage, whole):
    """The optimizer of a shard's stage, from that of the network's `layers` there."""
    own = copy.copy(whole)
    arrays = {
        (id(layer), key[1]): whole.memory[key] for key, layer in _holders(layers).items() if whole.memory
    }
    places = {(id(holder), key[1]): (key, axis) for key, (holder, axis) in shard.held.items()}
    own.memory = {}
    for key, holder in _holders(stage.layers).items() if arrays else ():
        of_network, axis = places[id(holder), key[1]]
        own.memory[key] = [shard.part_of(array, axis) for array in arrays[of_network]]
    return own


def _nth(remembered, n, t, holder, name):
    return remembered[t][id(holder), name][n]


def _holders(layers):
    """{the key of a parameter in an optimizer's memory: the layer that has it}"""
    pairs = [(layer.W, layer.b) for layer in layers]
    return {key: layer for key, (layer, _, _) in parameters_with(layers, pairs).items()}


def _joined(layer, shards, value):
    if not layer.arrays:
        pairs = [_joined(part, shards, value) for part in layer.layers]
        return tuple(dW for dW, _ in pairs), tuple(db for _, db in pairs)
    return tuple(_whole_array(layer, name, shards, value) for name in ("W", "b"))


def _whole_array(layer, name, shards, value):
    """The array of all shards' parts. value(number of a shard, layer of it, name): its part."""
    if getattr(layer, name) is None:
        return None
    places = [shard.held[id(layer), name] for shard in shards]
    axis = places[0][1]
    if axis is None:
        return value(0, places[0][0], name)
    return np.concatenate([value(t, holder, name) for t, (holder, _) in enumerate(places)], axis=axis)


def _by_parameter(layers, pairs):
    """((id of a layer without layers, "W" or "b"), its gradient), from the gradients of `layers`."""
    for layer, (dW, db) in zip(layers, pairs, strict=True):
        if not layer.arrays:
            yield from _by_parameter(layer.layers, list(zip(dW, db, strict=True)))
        else:
            yield (id(layer), "W"), dW
            yield (id(layer), "b"), db
