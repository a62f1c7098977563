"""Tied layers, which share one W: their indices, and the sum of their gradients."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from .arrays import sum_in_order
from .cluster import Receive, Send


def ties_of(layers: Sequence) -> dict[str, list[int]]:
    """Return {name: indices of the layers with this `tie`}, if they can share one W."""
    ties: dict[str, list[int]] = {}
    for index, layer in enumerate(layers):
        if layer.tie is not None:
            ties.setdefault(layer.tie, []).append(index)
    for name, indices in ties.items():
        if len(indices) == 1:
            raise ValueError(
                f"only layer {indices[0]} has tie={name!r}: give it to the layer that shares its W, too"
            )
        shapes = [layers[index].parameter_shapes()[0] for index in indices]
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(
                f"layers {indices} share tie={name!r}, but their W have shapes {shapes}: make them equal"
            )
    return ties


def check_tied_weights(layers: Sequence, indices: Sequence[int]) -> None:
    """Raise `ValueError` unless the tied `layers` at these `indices` have equal W."""
    first, *others = indices
    for index in others:
        if not np.array_equal(layers[first].W, layers[index].W):
            raise ValueError(
                f"layers {first} and {index} share tie={layers[index].tie!r}, but have different W: "
                "assign W to one of them before they are in a network, or to each of them there"
            )


def each_once(gradients: Iterable[tuple], ties: Mapping) -> list[tuple]:
    """Return `gradients`, (dW, db) of each layer, with each dW of `ties` only once.

    >>> each_once([("dW", "db"), ("dW", None), ("other dW", None)], {"name": [0, 1]})
    [('dW', 'db'), (None, None), ('other dW', None)]
    """
    again = {index for indices in ties.values() for index in indices[1:]}
    return [(None if index in again else dW, db) for index, (dW, db) in enumerate(gradients)]


class Tied(NamedTuple):
    """A layer that shares its W.

    Args:
        layer: its index in the network.
        stage, index: its stage, and its index in the stage.
        parts: with ZeRO, {device that updates a shard of its W: (position of the shard
            among the device's vectors, the range of its entries in W)}.
    """

    layer: int
    stage: int
    index: int  # type: ignore[assignment]  # hides tuple.index, which nothing calls
    parts: dict | None = None


def with_tied_shards(ties: Mapping, wires: Any, memory: Mapping) -> dict:
    """Return `ties` of a tensor-parallel shard with the ZeRO shards of their W.

    Args:
        ties: {name: its `Tied` layers}.
        wires: the `Wires` of the shard.
        memory: {(stage, device): {key of a vector: `Piece`}}, see `Layout`.
    """
    def parts_of(tied):
        return {
            device: (position, piece.numbers)
            for device in wires.holders(tied.stage)
            for position, piece in enumerate(memory[tied.stage, device].values())
            if piece.parameter[:2] == (tied.layer, "W")
        }

    return {name: [tied._replace(parts=parts_of(tied)) for tied in family] for name, family in ties.items()}


def program_of_ties(ties: Mapping, wires: Any, stages: Mapping) -> Callable | None:
    """Return a function (device) -> program that sums dW of tied layers, or None.

    Args:
        ties: {name: its `Tied` layers, in order}.
        wires: the `Wires` of the tensor-parallel shard.
        stages: {(stage, device): the stage}.
    """
    if not ties:
        return None
    if "S" in wires.schedule.kinds:
        return lambda device: exchange_tied_shards(ties, stages, device)
    return lambda device: exchange_tied(ties, wires.placements, stages, device)


def exchange_tied(
    ties: Mapping, placements: Iterable[Sequence[int]], stages: Mapping, device: int
) -> Generator:
    """A program: in each replica, sum dW of tied layers on the first one's device.

    Args:
        ties: {name: its `Tied` layers, in order}.
        placements: for each replica of the network, the device of each stage.
        stages: {(stage, device): the stage}.
        device: the number of this device.
    """
    # (name, first layer, its device) -> {(other layer, its device): None}, over replicas with that device
    families: dict[tuple, dict] = {}
    for placement in placements:
        for name, (own, *others) in ties.items():
            family = families.setdefault((name, own, placement[own.stage]), {})
            family.update({(tied, placement[tied.stage]): None for tied in others})
    for (name, _, first), family in families.items():
        for tied, place in family:
            if place == device:
                yield Send(_tie_label("dW of", name, tied), stages[tied.stage, device].dW(tied.index), first)
    for (name, own, first), family in families.items():
        if first == device:
            stage = stages[own.stage, device]
            parts = {own: stage.dW(own.index)}
            for tied, place in family:
                parts[tied] = yield Receive(_tie_label("dW of", name, tied), place)
            total = sum_in_order(parts.values())
            stage.keep_dW(own.index, total)
            for tied, place in family:
                yield Send(_tie_label("sum for", name, tied), total, place)
    for (name, _, first), family in families.items():
        for tied, place in family:
            if place == device:
                total = yield Receive(_tie_label("sum for", name, tied), first)
                stages[tied.stage, device].keep_dW(tied.index, total)


def exchange_tied_shards(ties: Mapping, stages: Mapping, device: int) -> Generator:
    """A program: sum dW of tied layers with ZeRO, in the order of the layers.

    Devices exchange the entries that their shards share.

    Args:
        ties: {name: its `Tied` layers, in order}.
        stages: {(stage, device): the stage}.
        device: the number of this device.
    """
    for name, family in ties.items():
        here = [tied for tied in family if device in tied.parts]
        own = {tied.layer: stages[tied.stage, device].part_of_dW(tied.parts[device][0]) for tied in here}
        for tied in here:
            for other, to, numbers in _in_common(tied, family, device):
                if to != device:
                    label = _tie_label("a part of dW of", f"{name}, {other.layer}", tied)
                    yield Send(label, _numbers_of(tied, own[tied.layer], device, numbers), to)
        totals = []
        for tied in here:
            pieces: dict[int, list] = {other.layer: [] for other in family}
            for other, source, numbers in _in_common(tied, family, device):
                if source == device:
                    piece = _numbers_of(other, own[other.layer], device, numbers)
                else:
                    label = _tie_label("a part of dW of", f"{name}, {tied.layer}", other)
                    piece = yield Receive(label, source)
                pieces[other.layer].append(piece)
            totals.append(sum_in_order(map(np.concatenate, pieces.values())))
        for tied, total in zip(here, totals, strict=True):
            stages[tied.stage, device].keep_part_of_dW(tied.parts[device][0], total)


def _in_common(tied, family, device):
    """Return [(layer, device, range of entries)] that other shards share with ours."""
    _, own = tied.parts[device]
    found = []
    for other in family:
        for place, (_, theirs) in sorted(other.parts.items(), key=lambda row: row[1][1].start):
            numbers = range(max(own.start, theirs.start), min(own.stop, theirs.stop))
            if numbers:
                found.append((other, place, numbers))
    return found


def _numbers_of(tied, vector, device, numbers):
    """Return the entries `numbers` of W from `vector`, the shard of `device`."""
    first = tied.parts[device][1].start
    return vector[numbers.start - first:numbers.stop - first]


def _tie_label(what, name, tied):
    return f"{what} layer {tied.layer} ({name})"
