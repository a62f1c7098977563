"""Layers that share their W: which ones do, where it comes from, and how their gradients are added up."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from .arrays import in_a_row, sum_in_order
from .cluster import Receive, Send

if TYPE_CHECKING:
    from .layers.layer import Layer


def ties_of(layers: Sequence[Layer]) -> dict[str, list[int]]:
    """{name: indices of the layers with this `tie`, at least two of them}"""
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


def copy_tied_weight(layers: Sequence[Layer], indices: Sequence[int], index: int) -> None:
    """Give layer `index` a copy of the W that a layer tied to it, one of those at `indices`, has already."""
    first = next((tied for tied in indices if layers[tied].W is not None), None)
    if first is not None and layers[index].W is None:
        layers[index].W = layers[first].W.copy()


def check_tied_weights(layers: Sequence[Layer], indices: Sequence[int]) -> None:
    """Raise `ValueError` unless the tied layers at these `indices` have the same W."""
    first, *others = indices
    for index in others:
        if not np.array_equal(layers[first].W, layers[index].W):
            raise ValueError(
                f"layers {first} and {index} share tie={layers[index].tie!r}, but have different W: "
                "give it to one of them before they are in a network, or to each of them there"
            )


def sum_of_tied(parts: Iterable) -> Any:
    """dW of tied layers: the sum of their own, in the order of the layers.

    The order is always the same, and so are the bits, wherever the layers are.
    """
    return sum_in_order(parts)


def each_once(gradients: Iterable[tuple], ties: Mapping) -> list[tuple]:
    """`gradients`, a list over the layers of (dW, db), without the dW that a layer before has already.

    >>> each_once([("dW", "db"), ("dW", None), ("other dW", None)], {"name": [0, 1]})
    [('dW', 'db'), (None, None), ('other dW', None)]
    """
    again = {index for indices in ties.values() for index in indices[1:]}
    return [(None if index in again else dW, db) for index, (dW, db) in enumerate(gradients)]


class Tied(NamedTuple):
    """A layer that shares its W.

    Args:
        layer: its index in the network.
        stage, index: its stage, and its index there.
        parts: with ZeRO, {device that updates a part of it: (which of its vectors that
            is, its numbers)}.
    """

    layer: int
    stage: int
    index: int  # type: ignore[assignment]  # nobody asks for tuple.index
    parts: dict | None = None


def tied_in_parts(ties: Mapping, wires: Any, memory: Mapping) -> dict:
    """The tied layers of a shard, with the parts that devices update of them.

    Args:
        ties: {name: its `Tied` layers}.
        wires: of the shard.
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
    """Return a function (device) -> program, which sums the gradients of tied layers; None without any.

    Args:
        ties: {name: its `Tied` layers, in order}.
        wires: of the shard.
        stages: {(stage, device): the stage}.
    """
    if not ties:
        return None
    if "S" in wires.schedule.kinds:
        return lambda device: exchange_tied_parts(ties, stages, device)
    return lambda device: exchange_tied(ties, wires.placements, stages, device)


def exchange_tied(
    ties: Mapping, placements: Iterable[Sequence[int]], stages: Mapping, device: int
) -> Generator:
    """A program: tied layers send their dW to the first of them, which sends the sum back; so in each copy.

    Args:
        ties: {name: its `Tied` layers, in order}.
        placements: for each copy of the network, the device of each stage.
        stages: {(stage, device): the stage}.
        device: the number of this one.
    """
    # (name, first layer, its device) -> {(other layer, its device): None}, over the copies with that one
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
                parts[tied] = yield Receive(_tie_label("dW of", name, tied), place)  # on all devices the same
            total = sum_of_tied(parts.values())
            stage.keep_dW(own.index, total)
            for tied, place in family:
                yield Send(_tie_label("sum for", name, tied), total, place)
    for (name, _, first), family in families.items():
        for tied, place in family:
            if place == device:
                total = yield Receive(_tie_label("sum for", name, tied), first)
                stages[tied.stage, device].keep_dW(tied.index, total)


def exchange_tied_parts(ties: Mapping, stages: Mapping, device: int) -> Generator:
    """A program: devices that update parts of tied layers send each other what these parts have in common.

    Each then has the sum of all that share the numbers of its own parts, in the order
    of the layers.

    Args:
        ties: {name: its `Tied` layers, in order}.
        stages: {(stage, device): the stage}.
        device: the number of this one.
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
            totals.append(sum_of_tied(map(in_a_row, pieces.values())))
        for tied, total in zip(here, totals, strict=True):
            stages[tied.stage, device].keep_part_of_dW(tied.parts[device][0], total)


def _in_common(tied, family, device):
    """[(other layer, a device, the numbers that its part has in common with this device's part of `tied`)]"""
    _, own = tied.parts[device]
    found = []
    for other in family:
        for place, (_, theirs) in sorted(other.parts.items(), key=lambda row: row[1][1].start):
            numbers = range(max(own.start, theirs.start), min(own.stop, theirs.stop))
            if numbers:
                found.append((other, place, numbers))
    return found


def _numbers_of(tied, vector, device, numbers):
    """Return these numbers of the W of a tied layer. vector: the part of it that a device has."""
    first = tied.parts[device][1].start
    return vector[numbers.start - first:numbers.stop - first]


def _tie_label(what, name, tied):
    return f"{what} layer {tied.layer} ({name})"
