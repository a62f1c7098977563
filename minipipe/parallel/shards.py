"""The layers of a network that a run works with: whole, or in shards."""

from collections.abc import Mapping, Sequence
from itertools import accumulate, chain, pairwise

from ..description import weights_of_layers
from ..layers import Layer, every_layer
from ..layers.layer import pairs_of_layers, parameters_with
from ..losses import Loss
from ..ties import Tied
from .layout import Key, Piece, held_by
from .splitting import Shard, is_stated
from .stage import Stage, stages_of


class InShards:
    """The layers of a run, whole or in shards.

    `stages` has for each shard its stages; `layers` are those of the whole.

    stages: of the whole; of one shard, these are its own.
    loss: of the network.
    T: how many shards.
    """

    def __init__(self, stages: Sequence[Stage], loss: Loss, T: int) -> None:
        self.layers = tuple(layer for stage in stages for layer in stage.layers)
        self._shards, self.stages = [], [stages]
        if T > 1:
            self._shards = [Shard(self.layers, loss, t, T) for t in range(T)]
            ends = list(accumulate([len(stage.layers) for stage in stages], initial=0))
            self.stages = []
            for shard in self._shards:  # it has a list of layers for each layer of the whole
                parts = [list(chain(*shard.layers[first:end])) for first, end in pairwise(ends)]
                self.stages.append(stages_of(parts, shard.loss))

    def held(self) -> list[list[dict[Key, Piece]]]:
        """Return, for each shard and stage, {key: `Piece` of the network's parameter}."""
        keys = {(id(owner), key[1]): key
                for key, (owner, _, _) in parameters_with(self.layers, pairs_of_layers(self.layers)).items()}
        found = []
        for t, stages in enumerate(self.stages):
            origins = {place: (key, None) for place, key in keys.items()}
            if self._shards:
                held = self._shards[t].held.items()
                origins = {(id(holder), place[1]): (keys[place], axis)
                           for place, (holder, axis) in held if place in keys}
            found.append([
                held_by(stage.layers, lambda key, owner: origins[id(owner), key[1]]) for stage in stages
            ])
        return found

    def tied(self, ties: Mapping[str, Sequence[int]]) -> list[dict]:
        """Return for each shard {name: its `Tied` layers}. ties: {name: the layers of the whole}."""
        found = []
        for stages in self.stages:
            places = {name: [] for name in ties}
            for stage in stages if ties else ():
                for index, layer in enumerate(stage.layers):
                    if layer.tie is not None:
                        places[layer.tie].append((stage.index, index))
            found.append({
                name: [Tied(layer, *place) for layer, place in zip(layers, places[name], strict=True)]
                for name, layers in ties.items()
            })
        return found


def macs_of_shard(layers: Sequence[Layer], shard: Shard, macs: Sequence[int]) -> list[int]:
    """Return the multiply-accumulates of each layer on a shard, from those of the whole layers, `macs`.

    They are in proportion to the weights W that the shard holds. The first shard has the most.
    """
    whole = weights_of_layers(layers)
    held = [sum(weights_of_layers(parts)) for parts in shard.layers]
    return [n * part // all_ if all_ else n for n, part, all_ in zip(macs, held, whole, strict=True)]


# Which layers of a copy of the network compute together with those of the other copies.

def synchronised(layer: Layer) -> Layer:
    """Return the layer; `layer.synchronised()`, if a sample's A depends on other samples.

    Raise `ValueError` for a layer that has no such form, and for one inside another layer.
    """
    if layer.alone_per_sample:
        return layer
    inside = next((part for part in every_layer(layer.layers) if not part.alone_per_sample), None)
    if inside is not None:
        raise ValueError(
            f"{inside!r} is inside {layer!r}, but only layers of the network itself talk to other devices: "
            "use a Fork and a Join around it, or sync_batch_norm=False"
        )
    found = layer.synchronised() if is_stated(type(layer), "synchronised") else None
    if found is None:
        raise ValueError(
            f"{layer!r} is a layer of your own in which samples meet, and nobody knows what copies must "
            "exchange: write synchronised() in it, use BatchNorm, or sync_batch_norm=False"
        )
    return found
