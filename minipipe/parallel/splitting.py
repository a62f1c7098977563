"""Tensor parallelism: how each layer of a network is split over several devices."""

import copy
import sys
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import accumulate, chain, pairwise
from typing import Any

from ..layers import LAYERS, Layer, every_layer
from ..layers.exchanging import Bias, Copied, Gathered, Summed
from ..layers.layer import pairs_of_layers, parameters_with
from ..losses import LOSSES, Loss
from ..ties import Tied, ties_of
from .layout import Key, Piece, held_by
from .stage import Stage, stages_of


# Whether a class states a trait, such as `splits`, for what it computes itself, or only inherits it.

def is_ours(kind: type) -> bool:
    """Tell whether this package defines the class `kind`."""
    name, package = kind.__module__, __name__.partition(".")[0]
    return name.startswith(f"{package}.") and vars(sys.modules[name]).get(kind.__name__) is kind


@cache
def is_stated(kind: type, trait: str) -> bool:
    """Tell whether the attribute `trait` of a class was stated for what it computes.

    A user's class that redefines a method of a complete layer or loss computes
    something else: the traits that it inherits do not count, only those that it states
    anew. A class that completes an abstract base, such as `Elementwise`, keeps the
    traits of the base.

    Args:
        kind: the class of a layer or a loss.
        trait: the name of the attribute.

    >>> from ..layers import Linear
    >>> class Named(Linear):
    ...     def name(self):
    ...         return "mine"
    >>> class Doubled(Linear):
    ...     def forward(self, A_prev):
    ...         return 2 * super().forward(A_prev)
    >>> is_stated(Named, "splits"), is_stated(Doubled, "splits")
    (True, False)
    """
    complete = {*LAYERS.values(), *LOSSES.values()}
    for place, base in enumerate(kind.__mro__):
        if trait in vars(base):
            return True
        inherited = [one for one in kind.__mro__[place + 1:] if one is not object]
        if is_ours(base) or not any(one in complete or not is_ours(one) for one in inherited):
            continue
        if any(name in vars(one) for one in inherited for name in vars(base) if not name.startswith("__")):
            return False
    return False


# The ways in which a layer may be split.

WAYS = "outputs", "inputs", "units", "heads", "tokens"  # see `Layer.part`


def ways_of(layer: Layer) -> Mapping:
    """Return `layer.splits`; {} if it is not stated for this class, see `is_stated`.

    Raise `ValueError` for an unknown way, or one without the axis of a parameter.
    """
    kind: type = type(layer)
    if not is_stated(kind, "splits"):
        return {}
    for how, axes in layer.splits.items():
        if how not in WAYS:
            raise ValueError(f"{layer!r} has splits[{how!r}]: use one of {', '.join(map(repr, WAYS))}")
        if layer.layers:
            inner: list[Layer] = list(layer.layers)
            is_last_by_inputs = [way == "inputs" for way in axes] == [one is inner[-1] for one in inner]
            if how != "heads" or not is_last_by_inputs or any(
                its_how not in ways_of(one) for one, its_how in zip(inner, axes)
            ):
                raise ValueError(
                    f"{layer!r} has splits[{how!r}] = {axes!r}: use 'heads', with a split that each of its "
                    f"{len(inner)} layers states, and 'inputs' for the last alone"
                )
            continue
        for name in ("W", "b"):
            added_to_the_sum = how == "inputs" and name == "b"
            if getattr(layer, name) is not None and axes.get(name) is None and not added_to_the_sum:
                raise ValueError(
                    f"{layer!r} has a {name}, but splits[{how!r}] does not say how to cut it: add the axis "
                    f"along which it is cut, such as {{{name!r}: 0}}"
                )
    return layer.splits


class Shard:
    """The part of a network that one of T devices has.

    Args:
        layers, loss: the network's, which are not changed.
        rank: the index of this device among the T devices.
        size: T.

    Attributes:
        layers: for each layer of the network, the list of layers that this device has
            in its place: the layer or a copy of it, if all devices compute the same; or
            a part of it, with the exchanges around it.
        held: {(id of a layer of the network, name of its parameter): (layer of the
            shard, the axis of the split, or None if it has the whole parameter)}.
        ways: for each layer of the network, how it is split, in words.

    A layer, also a user's, states in `splits` how it may be split, see `Layer.part`.

    - A layer that can be split by outputs and a later one that can be split by inputs
      form a pair, if all layers between them act on each unit alone. Two Linear layers
      become W[rows] and W[:, columns]; the hidden units are never gathered.
    - Any other layer that can be split by outputs is, and its outputs are gathered.
    - Attention is split by heads; an Embedding, and the logits before a loss with a
      `part`, by tokens.
    - A residual connection whose layers are split becomes a Fork and a Join.
    - Every other layer is whole on each device: layers without `splits`, layers with
      fewer units than devices, and layers tied to one of these.
    """

    def __init__(self, layers: Sequence[Layer], loss: Loss, rank: int, size: int) -> None:
        self.rank, self.size = rank, size
        self._splits = {id(layer): ways_of(layer) if size > 1 else {} for layer in every_layer(layers)}
        self._tied = {name: [layers[index] for index in tied] for name, tied in ties_of(layers).items()}
        self.ways = ["whole"] * len(layers)
        self.held: dict = {}
        self.loss, self._logits = copy.copy(loss), None
        kind: type = type(loss)
        is_second = len(layers) - 1 in self._pairs(layers).values()
        if self._can(layers[-1], "outputs") and not is_second and is_stated(kind, "part"):
            W: Any = layers[-1].W
            of_classes = loss.part(len(W))
            if of_classes is not None:
                self.loss, self._logits = of_classes, layers[-1]
        self.layers = self._each(layers, "", self.ways)
        if size > 1 and set(self.ways) == {"whole"}:
            raise ValueError(
                f"shards={size} splits none of these {len(self.ways)} layers: use fewer, or write the "
                "attribute `splits` in your own layers"
            )

    def _each(self, layers, prefix, ways):
        """Return, for each of `layers`, the list of layers that replace it here.

        Set `ways[index]` to how the layer at `index` is split. Its skip connections are
        named "residual", `prefix` and the index.
        """
        found, pairs = [], self._pairs(layers)
        between = {i for first, second in pairs.items() for i in range(first + 1, second)}
        for index, layer in enumerate(layers):
            if index in pairs:
                parts, how = [Copied(), self._part(layer, "outputs")], "by outputs"
            elif index in pairs.values():
                parts, how = [self._part(layer, "inputs"), *self._leave(layer)], "by inputs"
            elif index in between:
                parts, how = [self._part(layer, "units")], "unit by unit"
            else:
                parts, how = self._alone(layer, f"{prefix}{index}")
            found.append(parts)
            ways[index] = how
        return found

    def _leave(self, layer):
        """Return what follows a `layer` split by inputs: the all-reduce and b."""
        if layer.b is None:
            return [Summed()]
        bias = Bias(layer.b.copy())
        self._hold(layer, bias, {"b": None})
        return [Summed(), bias]

    def _alone(self, layer, name):
        """Return (list of layers that this device has for `layer`, how it is split)."""
        if layer is self._logits:
            return [Copied(), self._part(layer, "outputs")], "by outputs, up to the loss"
        if self._can(layer, "outputs"):
            return [Copied(), self._part(layer, "outputs"), Gathered()], "by outputs, gathered"
        if self._can(layer, "heads"):
            return [Copied(), self._part(layer, "heads"), *self._leave(layer.layers[-1])], "by heads"
        if self._can(layer, "tokens"):
            return [self._part(layer, "tokens"), Summed()], "by tokens"
        inner = (layer.unrolled(f"residual {name}") if is_stated(type(layer), "unrolled") else None) or ()
        ways = [None] * len(inner)
        parts = list(chain(*self._each(inner, f"{name}.", ways)))
        if set(ways) <= {"whole"}:
            return self._whole(layer), "whole"
        ways = [how for part, how in zip(inner, ways, strict=True) if not (part.fork or part.join)]
        return parts, f"({', '.join(ways)})"

    def _whole(self, layer):
        """Return [`layer`] on device 0, which counts its statistics, else [a copy]."""
        mine = layer if self.rank == 0 else layer.copy()
        for theirs, ours in zip(every_layer([layer]), every_layer([mine]), strict=True):
            self._hold(theirs, ours, {"W": None, "b": None})
        return [mine]

    def _part(self, layer, how):
        """Return this device's part of `layer`, and enter its parameters in `held`."""
        part, axes = layer.part(how, self.rank, self.size), self._splits[id(layer)][how]
        if not layer.layers:
            self._hold(layer, part, axes)
            return part
        for theirs, ours, its_how in zip(layer.layers, part.layers, axes, strict=True):
            self._hold(theirs, ours, self._splits[id(theirs)][its_how])
        return part

    def _pairs(self, layers):
        """Return {index of a pair's first layer: index of its second}, see `Shard`."""
        found, index = {}, 0
        while index < len(layers):
            second = index + 1
            while second < len(layers) and self._can(layers[second], "units"):
                second += 1
            if (
                second < len(layers) and layers[index].tie is None and layers[second].tie is None
                and self._can(layers[index], "outputs") and self._can(layers[second], "inputs")
            ):
                found[index] = second
                index = second
            index += 1
        return found

    def _can(self, layer, how):
        """Tell whether `layer` can be split by `how`, with a unit for each device.

        The same must hold for all layers tied to it.
        """
        splits = self._splits.get(id(layer), {})
        if how not in splits:
            return False
        if layer.layers:
            return True
        axes = splits[how]
        shared = [one for one in self._tied.get(layer.tie, []) if one is not layer]
        return self._is_large_enough(layer, axes) and all(
            any(theirs.get("W") == axes.get("W") and self._is_large_enough(one, theirs)
                for theirs in self._splits[id(one)].values())
            for one in shared
        )

    def _is_large_enough(self, layer, axes):
        arrays = [(getattr(layer, name), axis) for name, axis in axes.items()]
        return all(array is None or array.shape[axis] >= self.size for array, axis in arrays)

    def _hold(self, layer, holder, axes):
        for name, axis in axes.items():
            self.held[id(layer), name] = holder, axis


class ShardedStages:
    """The stages of a run, for each shard.

    Args:
        stages: the stages of the whole network.
        loss: the network's loss.
        T: the number of shards.

    Attributes:
        layers: the network's layers.
        stages: for each shard, its stages; with one shard, those of the network.
    """

    def __init__(self, stages: Sequence[Stage], loss: Loss, T: int) -> None:
        self.layers = tuple(layer for stage in stages for layer in stage.layers)
        self._shards, self.stages = [], [stages]
        if T > 1:
            self._shards = [Shard(self.layers, loss, t, T) for t in range(T)]
            ends = list(accumulate([len(stage.layers) for stage in stages], initial=0))
            self.stages = []
            for shard in self._shards:  # shard.layers has a list for each layer of the network
                parts = [list(chain(*shard.layers[first:end])) for first, end in pairwise(ends)]
                self.stages.append(stages_of(parts, shard.loss))

    def held(self) -> list[list[dict[Key, Piece]]]:
        """Return `held_by` of each shard and stage."""
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
        """Return for each shard {name: its `Tied` layers}. ties: {name: indices}."""
        found = []
        for stages in self.stages:
            places: dict = {name: [] for name in ties}
            for stage in stages if ties else ():
                for index, layer in enumerate(stage.layers):
                    if layer.tie is not None:
                        places[layer.tie].append((stage.index, index))
            found.append({
                name: [Tied(layer, *place) for layer, place in zip(layers, places[name], strict=True)]
                for name, layers in ties.items()
            })
        return found


def synchronised(layer: Layer) -> Layer:
    """Return `layer`, or, if its samples interact, its `synchronised()` form.

    That form exchanges statistics between all replicas. Raise `ValueError` if it is
    missing, or if the layer whose samples interact is inside another layer.
    """
    if layer.alone_per_sample:
        return layer
    inside = next((part for part in every_layer(layer.layers) if not part.alone_per_sample), None)
    if inside is not None:
        raise ValueError(
            f"{inside!r} is inside {layer!r}, but only layers of the network itself communicate with other "
            "devices: use a Fork and a Join around it, or sync_batch_norm=False"
        )
    kind: type = type(layer)
    found = layer.synchronised() if is_stated(kind, "synchronised") else None
    if found is None:
        raise ValueError(
            f"{layer!r} is a layer of your own in which samples interact, and does not say what replicas "
            "must exchange: write synchronised() in it, use BatchNorm, or sync_batch_norm=False"
        )
    return found
