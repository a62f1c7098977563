"""Which device has which part of each parameter, and ZeRO's shards."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from ..collectives.group import begin, flattened, join_chunks
from ..layers import Layer, every_layer
from ..layers.layer import pairs_of_layers, parameters_with
from ..optimizers import Optimizer

Key = tuple[int, str, int]    # names a parameter, as in the memory of an optimizer, see `parameters_with`
Place = tuple[int, int]       # (stage, device)
Arrays = dict[Key, list]      # for each parameter a list of arrays, such as its optimizer state


class Piece(NamedTuple):
    """The part of a parameter on a device: a block along an axis, or a range of it.

    Args:
        parameter: the key of the parameter in the network.
        axis: the axis along which tensor parallelism splits the parameter; None, if
            each shard has all of it.
        shape: the shape of the block.
        block: the range of the block along `axis`.
        numbers: with ZeRO, the range of the device's entries in the flattened block;
            None for the whole block.
        counts: whether `join_pieces` reads this piece; of equal pieces it reads one.
    """

    parameter: Key
    axis: int | None
    shape: tuple
    block: range = range(0)
    numbers: range | None = None
    counts: bool = True

    def of(self, array: np.ndarray) -> np.ndarray:
        """Return a copy of this piece of `array`, or `array` itself if it is all."""
        if self.axis is not None:
            along = slice(self.block.start, self.block.stop)
            array = array[(slice(None),) * self.axis + (along,)].copy()  # a view would keep all of it
        if self.numbers is not None:
            array = array.reshape(-1)[self.numbers.start:self.numbers.stop].copy()
        return array


Pieces = dict[Place, dict[Key, Piece]]  # for each stage on a device: {key in the stage: piece}


class Layout(NamedTuple):
    """The pieces of a network's parameters that each stage on each device has.

    Args:
        work: the blocks with which layers compute.
        memory: the pieces whose optimizer state is there: blocks; with ZeRO, ranges of
            them.
    """

    work: Pieces
    memory: Pieces


def held_by(layers: Sequence[Layer], origin_of: Callable) -> dict[Key, Piece]:
    """Return {key: `Piece`} of the parameters of a stage with these `layers`.

    `layout_of` sets the `block` of each.

    Args:
        layers: the layers of the stage.
        origin_of: a function of (key in the stage, layer with the parameter) that
            returns (key in the network, axis of the split).
    """
    parameters = parameters_with(layers, pairs_of_layers(layers))
    origins = {key: (*origin_of(key, owner), array.shape) for key, (owner, array, _) in parameters.items()}
    return {key: Piece(*origin) for key, origin in origins.items()}


def layout_of(shards: Sequence, holders: Sequence, in_ranges: bool) -> Layout:
    """Return the `Layout` of a network.

    Args:
        shards: for each shard of the network and each stage, a result of `held_by`.
        holders: for each shard and stage, its devices in the order of the replicas.
        in_ranges: whether each of these devices updates only a range of the stage's
            parameters: ZeRO.
    """
    work: Pieces = {}
    memory: Pieces = {}
    first: dict[Key, int] = {}  # parameter -> where the next shard's block begins
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
                    key: piece._replace(counts=piece.counts and rank == 0)
                    for key, piece in blocks.items()
                }
                memory[s, device] = work[s, device]
                if in_ranges:
                    own = ranges_of(sizes, rank, len(devices))
                    memory[s, device] = {key: blocks[key]._replace(numbers=own[key]) for key in own}
    return Layout(work, memory)


def ranges_of(sizes: Mapping[Key, int], rank: int, size: int) -> dict[Key, range]:
    """Divide the entries of all parameters, in one row, equally among ranks.

    Return {key: range of the entries of `rank` in the flattened parameter}, without
    parameters of which the rank has none.

    Args:
        sizes: {key: number of entries of the parameter}, in the order of the row.
        rank, size: which of how many ranks.

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
    """Cut whole `arrays` into the `pieces` of each stage on a device."""
    return {
        place: {
            key: [piece.of(array) for array in arrays[piece.parameter]]
            for key, piece in here.items() if piece.parameter in arrays
        }
        for place, here in pieces.items()
    }


def join_pieces(pieces: Pieces, of_places: dict[Place, Arrays]) -> Arrays:
    """Join `of_places`, a result of `parts`, to whole arrays; inverse of `parts`.

    Only the `pieces` that count must be there.
    """
    found: dict[Key, list] = {}  # parameter -> [(piece, its arrays)]
    for place, here in pieces.items():
        arrays = of_places.get(place, {})
        for key, piece in here.items():
            if piece.counts and key in arrays:
                found.setdefault(piece.parameter, []).append((piece, arrays[key]))
    return {parameter: _joined(found[parameter]) for parameter in sorted(found)}


def _joined(rows: list) -> list:
    """Return whole arrays of a parameter from `rows`, [(`Piece`, its arrays)]."""
    blocks: dict[int, list] = {}  # first index of a block -> its rows
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
    """Optimizer state in pieces, which are joined to whole arrays at the first read.

    Args:
        pieces: the `Pieces` that each stage on a device has.
        parts: their `Arrays`.
    """

    def __init__(self, pieces: Pieces, parts: dict[Place, Arrays]) -> None:
        self.pieces, self.parts = pieces, parts
        self._whole: Arrays | None = None

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
                    f"{len(elsewhere)} pieces of this optimizer's state are on other MPI ranks: "
                    "use the optimizer that net.collect(optimizer) returns, a call that all ranks make"
                )
            self._whole = join_pieces(self.pieces, self.parts)
        return self._whole


def memories_in(pieces: Pieces, optimizer: Optimizer, layers: Sequence[Layer]) -> dict[Place, Arrays]:
    """Return the state of `optimizer`, cut into the `pieces` of each stage on a device.

    Raise `ValueError` if the state does not fit `layers`.
    """
    memory = optimizer.memory
    if isinstance(memory, MemoryInParts) and memory.pieces == pieces:
        return memory.parts
    parameters = parameters_with(layers, pairs_of_layers(layers))
    optimizer.check_memory({key: array.shape for key, (_, array, _) in parameters.items()})
    return parts(pieces, memory)


# ZeRO: the shard of a stage's parameters that one of several devices updates, or has.

def write_shards(layers: Sequence[Layer], parts: Sequence[list]) -> list:
    """Write the shards of all ranks, `parts`, into `layers`; return flat vectors."""
    vectors = flattened(pairs_of_layers(layers))
    for vector, new in zip(vectors, join_chunks(parts, vectors), strict=True):
        vector[...] = new
    return vectors


class ParameterShard:
    """The shard of a stage's parameters that a device updates, as flat `vectors`.

    Args:
        layers: the layers of the stage.
        rank, size: which of how many shards is this device's, see `ranges_of`.
        has_all: whether the layers always have all parameters (ZeRO 1 and 2); the
            `vectors` are then views of them. Otherwise (ZeRO 3) the layers have
            parameters only from `gather` to `free`, and at other times arrays of the
            same shapes that take no memory.

    Attributes:
        vectors: for each parameter of which the device has a range, this range.
        whole: with ZeRO 3 and after `gather`, all parameters as flat vectors.
    """

    def __init__(self, layers: Sequence[Layer], rank: int, size: int, has_all: bool) -> None:
        self._layers, self.has_all = layers, has_all
        parameters = parameters_with(layers, pairs_of_layers(layers))
        self._owners = {key: owner for key, (owner, _, _) in parameters.items()}
        self._ranges = ranges_of({key: W.size for key, (_, W, _) in parameters.items()}, rank, size)
        self.vectors = self._views()
        if not has_all:
            self.vectors = [vector.copy() for vector in self.vectors]
            self.free()

    def update(self, optimizer: Optimizer, gradients: Sequence[np.ndarray]) -> None:
        """Update this shard with `optimizer` and the `gradients` of the `vectors`.

        The optimizer has state for this shard only. Raise `ValueError` if a layer has
        returned None as the gradient of a parameter.
        """
        if len(gradients) != len(self.vectors):
            raise ValueError(
                f"{len(gradients)} gradients for {len(self.vectors)} parameters of a device's shard: with "
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

    def gather(self, parts: Sequence[list]) -> None:
        """Write `parts`, the `vectors` of all ranks, into the layers."""
        if not self.has_all:
            _make_new(self._layers)
        self.whole = write_shards(self._layers, parts)

    def free(self) -> None:
        """Drop all parameters except this shard."""
        for layer in _with_parameters(self._layers):
            layer.W, layer.b = map(_without_memory, (layer.W, layer.b))
        self.whole = []

    def _views(self):
        """Return this shard as views of the arrays that the layers have now."""
        return [
            getattr(self._owners[key], key[1]).reshape(-1)[numbers.start:numbers.stop]
            for key, numbers in self._ranges.items()
        ]


def _make_new(layers):
    """Replace each parameter by a copy: messages may still read the old array."""
    for layer in _with_parameters(layers):
        layer.W, layer.b = (None if array is None else array.copy() for array in (layer.W, layer.b))


def _with_parameters(layers):
    """Return all layers with arrays, nested ones too, but no `Block`."""
    return [layer for layer in every_layer(layers) if layer.arrays]


def _without_memory(array):
    """Return an array of NaN, of the same shape and dtype, that takes no memory."""
    if not isinstance(array, np.ndarray):
        return array  # None or a meta array
    return np.broadcast_to(np.array(np.nan, array.dtype), array.shape)
