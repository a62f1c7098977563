"""Where the numbers of each parameter lie, the way from the whole to its parts and back, and ZeRO's parts."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..collectives.group import begin, flattened, join_chunks
from ..layers import Layer, every_layer
from ..layers.layer import pairs_of_layers, parameters_with

Key = tuple[int, str, int]    # of a parameter: as in the memory of an optimizer, see `parameters_with`
Place = tuple[int, int]       # (stage, device)
Arrays = dict[Key, list]      # for each parameter some arrays, such as what an optimizer remembers for it


class Piece(NamedTuple):
    """The numbers of a parameter that a device has.

    Args:
        parameter: its key in the network.
        axis: along which shards have it in blocks; None, if each of them has all of it.
        shape: of the block that the device has.
        block: its range along this axis, in the whole.
        numbers: None, if it has all numbers of the block; or their range, if these
            stand one after another.
        counts: whether the whole is made of this piece; not, if it is made of another
            with the same numbers.
    """

    parameter: Key
    axis: int | None
    shape: tuple
    block: range = range(0)
    numbers: range | None = None
    counts: bool = True

    def of(self, array):
        """Return the numbers of this piece, out of an array of the parameter's shape; it itself, if all."""
        if self.axis is not None:
            along = slice(self.block.start, self.block.stop)
            array = array[(slice(None),) * self.axis + (along,)].copy()  # a view would keep all of it
        if self.numbers is not None:
            array = array.reshape(-1)[self.numbers.start:self.numbers.stop].copy()
        return array


Pieces = dict[Place, dict[Key, Piece]]  # for each stage on a device: its keys, and what it has under them


class Layout(NamedTuple):
    """Where the parameters of a network lie, by stage and device.

    Args:
        work: the pieces with which layers compute, blocks of parameters.
        memory: those for which an optimizer keeps something; with ZeRO ranges of these
            blocks.
    """

    work: Pieces
    memory: Pieces


def held_by(layers: Sequence[Layer], origin_of) -> dict[Key, Piece]:
    """Return {key: `Piece`} of the parameters of a stage; in which block it is says `layout_of`.

    Args:
        origin_of: origin_of(key, layer that has it) is (key in the network, axis).
    """
    parameters = parameters_with(layers, pairs_of_layers(layers))
    return {key: Piece(*origin_of(key, owner), array.shape) for key, (owner, array, _) in parameters.items()}


def layout_of(shards: Sequence, holders: Sequence, in_ranges: bool) -> Layout:
    """Return the `Layout` of a network.

    Args:
        shards: for each shard of the network, for each of its stages, {key: `Piece`},
            see `held_by`.
        holders: likewise, the devices that have this stage, in the order of the copies.
        in_ranges: whether each of these devices updates a range of the stage's numbers:
            ZeRO.
    """
    work, memory, first = {}, {}, {}  # first: parameter -> how many entries the shards before this one have
    for t, (stages, devices_of_stages) in enumerate(zip(shards, holders, strict=True)):
        for s, (of_stage, devices) in enumerate(zip(stages, devices_of_stages, strict=True)):
            blocks = {}
            for key, piece in of_stage.items():
                if piece.axis is None:
                    blocks[key] = piece._replace(counts=t == 0)
                else:
                    start = first.get(piece.parameter, 0)
                    first[piece.parameter] = start + piece.shape[piece.axis]
                    blocks[key] = piece._replace(block=range(start, first[piece.parameter]))
            sizes = {key: int(np.prod(piece.shape, dtype=int)) for key, piece in blocks.items()}
            for rank, device in enumerate(devices):
                work[s, device] = {
                    key: piece._replace(counts=piece.counts and rank == 0) for key, piece in blocks.items()
                }
                memory[s, device] = work[s, device]
                if in_ranges:
                    own = ranges_of(sizes, rank, len(devices))
                    memory[s, device] = {key: blocks[key]._replace(numbers=own[key]) for key in own}
    return Layout(work, memory)


def ranges_of(sizes: Mapping[Key, int], rank: int, size: int) -> dict[Key, range]:
    """Return the part of `rank` of all numbers in a row, in `size` parts as equal as can be.

    Args:
        sizes: how many numbers each parameter has, in the order of the row.

    >>> ranges_of({"W": 4, "b": 2}, 0, 2), ranges_of({"W": 4, "b": 2}, 1, 2)
    ({'W': range(0, 3)}, {'W': range(3, 4), 'b': range(0, 2)})
    """
    start, stop = (begin(sum(sizes.values()), size, r) for r in (rank, rank + 1))
    found, position = {}, 0
    for key, n in sizes.items():
        numbers = range(max(start, position) - position, min(stop, position + n) - position)
        if numbers:
            found[key] = numbers
        position += n
    return found


def parts(pieces: Pieces, arrays: Mapping[Key, list]) -> dict[Place, Arrays]:
    """Return for each stage on a device its parts of `arrays`, which have the shapes of the parameters."""
    return {
        place: {
            key: [piece.of(array) for array in arrays[piece.parameter]]
            for key, piece in here.items() if piece.parameter in arrays
        }
        for place, here in pieces.items()
    }


def join_pieces(pieces: Pieces, of_places: dict[Place, Arrays]) -> Arrays:
    """Return the arrays of which `parts` has made these; it is enough to have the pieces that count."""
    found: dict[Key, list] = {}  # parameter -> [(piece, its arrays)]
    for place, here in pieces.items():
        arrays = of_places.get(place, {})
        for key, piece in here.items():
            if piece.counts and key in arrays:
                found.setdefault(piece.parameter, []).append((piece, arrays[key]))
    return {parameter: _joined(found[parameter]) for parameter in sorted(found)}


def _joined(rows: list) -> list:
    """Return the arrays of a parameter. rows: [(`Piece`, its arrays)], all that it is made of."""
    blocks: dict[int, list] = {}  # beginning of a block -> its rows
    for piece, arrays in sorted(rows, key=lambda row: row[0].block.start):
        blocks.setdefault(piece.block.start, []).append((piece, arrays))
    of_blocks = []
    for in_block in blocks.values():
        (piece, arrays), *_ = in_block
        if piece.numbers is not None:
            in_block.sort(key=lambda row: row[0].numbers.start)
            vectors = zip(*(of_piece for _, of_piece in in_block), strict=True)
            arrays = [_in_a_row(of_array, 0).reshape(piece.shape) for of_array in vectors]
        of_blocks.append(arrays)
    return [_in_a_row(arrays, piece.axis) for arrays in zip(*of_blocks, strict=True)]


def _in_a_row(arrays: Sequence, axis: int | None):
    return arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=axis)


class MemoryInParts(Mapping):
    """What an optimizer remembers, in the parts that devices keep; put together when somebody reads it.

    Args:
        pieces: what they are parts of.
        parts: for each stage on a device, its `Arrays`.
    """

    def __init__(self, pieces: Pieces, parts: dict[Place, Arrays]) -> None:
        self.pieces, self.parts, self._whole = pieces, parts, None

    def __getitem__(self, key: Key) -> list:
        return self._read()[key]

    def __iter__(self) -> Iterator[Key]:
        return iter(self._read())

    def __len__(self) -> int:
        return len(self._read())

    def _read(self) -> Arrays:
        if self._whole is None:
            elsewhere = [place for place, here in self.pieces.items()
                         if place not in self.parts and any(piece.counts for piece in here.values())]
            if elsewhere:
                raise RuntimeError(
                    f"what this optimizer remembers lies on {len(elsewhere)} other MPI ranks, too: "
                    "use the optimizer that net.collect(optimizer) returns, a call that all ranks make"
                )
            self._whole = join_pieces(self.pieces, self.parts)
        return self._whole


def memories_in(pieces: Pieces, optimizer, layers: Sequence[Layer]) -> dict[Place, Arrays]:
    """Return for each stage on a device its part of what an optimizer remembers, in these pieces.

    Raise `ValueError` if it remembers another network than that of these layers.
    """
    memory = optimizer.memory
    if isinstance(memory, MemoryInParts) and memory.pieces == pieces:
        return memory.parts
    parameters = parameters_with(layers, pairs_of_layers(layers))
    optimizer.check_memory({key: array.shape for key, (_, array, _) in parameters.items()})
    return parts(pieces, memory)


def pairs_of(layers: Sequence[Layer], arrays: Arrays) -> list[tuple]:
    """Return a list over `layers` of (dW, db), tuples for a layer made of layers.

    Args:
        arrays: {key of a parameter: [its gradient]}.
    """
    rest = iter(sorted(arrays))
    found = []
    for layer in layers:
        found.append(tuple(_nested(of_layer, arrays, rest) for of_layer in (layer.W, layer.b)))
    return found


def _nested(like, arrays: Arrays, rest: Iterator[Key]):
    if like is None:
        return None
    if isinstance(like, tuple):
        return tuple(_nested(inner, arrays, rest) for inner in like)
    return arrays[next(rest)][0]


# The part of a stage's parameters that one of several devices with the stage updates, or has: ZeRO.

def put_together(layers, parts):
    """Write the parts of all ranks into the parameters of `layers`, which are returned as vectors."""
    vectors = flattened(pairs_of_layers(layers))
    for vector, new in zip(vectors, join_chunks(parts, vectors), strict=True):
        vector[...] = new
    return vectors


class Owned:
    """What a device owns of the parameters of a stage: its own part, a list of `vectors`.

    Args:
        layers: of the stage.
        rank, size: which of how many parts is this device's own, see `ranges_of`.
        has_all: whether the layers have all numbers from the beginning, among which
            then are those of the `vectors`. If not, they hold arrays that look like
            their parameters, without numbers, until `gather` gives them all, which then
            are `whole`; after `free` they have none again.
    """

    def __init__(self, layers, rank, size, has_all):
        self._layers, self.has_all = layers, has_all
        parameters = parameters_with(layers, pairs_of_layers(layers))
        self._owners = {key: owner for key, (owner, _, _) in parameters.items()}
        self._ranges = ranges_of({key: W.size for key, (_, W, _) in parameters.items()}, rank, size)
        self.vectors = self._views()
        if not has_all:
            self.vectors = [vector.copy() for vector in self.vectors]
            self.free()

    def update(self, optimizer, gradients):
        """Update the own part, for which alone the optimizer keeps something.

        Args:
            gradients: of this part, vectors.

        The optimizer must take each number by itself, as all do that do not say
        `needs_whole_parameters`.
        """
        if len(gradients) != len(self.vectors):
            raise ValueError(
                f"{len(gradients)} gradients for {len(self.vectors)} parameters of a device's part: with "
                "zero above 0, a layer must return a gradient for each parameter; for frozen ones, use zero=0"
            )
        own = {
            key: (self._owners[key], vector, gradient)
            for key, vector, gradient in zip(self._ranges, self.vectors, gradients, strict=True)
        }
        new = list(optimizer.updated(own).values())
        if not self.has_all:
            self.vectors = new
            self.free()
            return
        _make_new(self._layers)
        self.vectors = self._views()
        for vector, numbers in zip(self.vectors, new, strict=True):
            vector[...] = numbers

    def gather(self, parts):
        """Write the parts of all ranks into the layers."""
        if not self.has_all:
            _make_new(self._layers)
        self.whole = put_together(self._layers, parts)

    def free(self):
        """Drop all numbers but those of the own part."""
        for layer in _with_parameters(self._layers):
            layer.W, layer.b = map(_without_numbers, (layer.W, layer.b))
        self.whole = []

    def _views(self):
        """The own part, as views of the arrays that the layers have now."""
        return [
            getattr(self._owners[key], key[1]).reshape(-1)[numbers.start:numbers.stop]
            for key, numbers in self._ranges.items()
        ]


def _make_new(layers):
    """Put a copy in the place of each parameter: messages and twins of the stage may have the old one."""
    for layer in _with_parameters(layers):
        layer.W, layer.b = (None if array is None else array.copy() for array in (layer.W, layer.b))


def _with_parameters(layers):
    """Return the layers, nested ones included, that have arrays; W and b of a block are tuples of theirs."""
    return [layer for layer in every_layer(layers) if layer.arrays]


def _without_numbers(array):
    """Return an array of the same shape and dtype that takes no memory; whoever reads it gets NaN."""
    if not isinstance(array, np.ndarray):
        return array  # None, or without numbers anyway
    return np.broadcast_to(np.array(np.nan, array.dtype), array.shape)
