"""Layers made of layers."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import Gradients, Shape, shape_of, sum_in_order
from .activations import Dropout, Tanh
from .convolution import Conv2d
from .embedding import Embedding, PositionalEmbedding
from .layer import LAYERS, Layer, MadeGradients, OneLayer, checked_layers, every_layer
from .linear import Linear
from .normalization import BatchNorm, LayerNorm
from .skips import Fork, Join
from .through import forward_through, in_one_piece, put_aside, weight_gradients


class Block(Layer):
    """A layer made of `layers`: W, b, dW and db are tuples, one entry per layer.

    A subclass writes `output_shape`, `macs` and

        through(A_prev)    -> A; it sets `kept`, not None, to what derivatives needs
        derivatives(dZ)    -> (dA_prev, gradients with respect to the layers' outputs)

    The layers compute the gradients of their parameters themselves: after
    `backward_input`, the cache holds (dZ, cache) of each layer, and nothing else.
    """

    arrays = ()
    weight_after_input = True
    through: Callable[[Any], Any]
    derivatives: Callable[[Any], tuple]

    def __init__(self, layers: Iterable[Layer]):
        self.layers = tuple(checked_layers(layers, least=0))
        met = set()
        for layer in every_layer(self.layers):
            if layer.fork or layer.join or layer.tie:
                raise ValueError(f"{layer!r} is inside a layer: skips and ties belong to a network's list")
            if id(layer) in met:
                raise ValueError(f"the same {layer!r} is in two places of a block: make an object for each")
            met.add(id(layer))
        self.cache = None

    alone_per_sample = property(lambda self: all(layer.alone_per_sample for layer in self.layers))
    W = property(lambda self: tuple(layer.W for layer in self.layers))
    b = property(lambda self: tuple(layer.b for layer in self.layers))

    @property
    def cache(self) -> Any:
        """All that backward needs, as a `BlockCache`; None before a forward.

        The layers and this block hold its parts. If a subclass writes a whole
        `backward`, `backward_input` leaves `MadeGradients` here.
        """
        if isinstance(self.halves, MadeGradients):
            return self.halves
        if self.kept is None and self.halves is None:
            return None
        return BlockCache([layer.cache for layer in self.layers], self.kept, self.halves)

    @cache.setter
    def cache(self, value: Any) -> None:
        if value is None:
            value = BlockCache([None] * len(self.layers), None, None)
        if isinstance(value, MadeGradients):
            value = BlockCache([None] * len(self.layers), None, value)
        for layer, cache in zip(self.layers, value.of_layers, strict=True):
            layer.cache = cache
        self.kept, self.halves = value.kept, value.halves

    def part(self: OneLayer, how: str, rank: int, size: int) -> OneLayer:
        part = copy.copy(self)
        ways = zip(self.layers, self.splits[how], strict=True)
        part.layers = tuple(layer.part(its_how, rank, size) for layer, its_how in ways)
        part.cache = None
        return part

    def initialize(self, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> None:
        for layer in self.layers:
            layer.initialize(rng, dtype)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        self.halves = None  # drop what an earlier backward_input has left
        return self.through(A_prev)

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        self.check_forward(self.kept)
        dA_prev, dZ_of_layers = self.derivatives(dZ)
        self.kept, self.halves = None, list(map(put_aside, self.layers, dZ_of_layers))
        return dA_prev

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        if self.halves is None:
            self.backward_input(dZ)
        pairs = list(map(weight_gradients, self.layers, self.halves))
        return tuple(dW for dW, _ in pairs), tuple(db for _, db in pairs)

    def parameter_shapes(self) -> tuple:
        shapes = [layer.parameter_shapes() for layer in self.layers]
        return tuple(W for W, _ in shapes), tuple(b for _, b in shapes)


class BlockCache(NamedTuple):
    """What the backward of a block needs.

    Args:
        of_layers: the caches of its layers.
        kept: what `Block.through` has kept.
        halves: after `backward_input`, the result of `put_aside` for each layer.
    """

    of_layers: list
    kept: object
    halves: Any


@LAYERS(examples=lambda: [
    (Chain(Linear(3, 5), Tanh(), Linear(5, 2)), (3,)),
    (Chain(Embedding(7, 4), PositionalEmbedding(4, 5), Linear(4, 3)), (5,)),
])
class Chain(Block):
    """Layers one after another, as one layer: A = f_n(... f_1(A_prev)).

    Without layers, A = A_prev. By the chain rule, the gradient passes through the
    layers from the last to the first.

    >>> from .activations import ReLU
    >>> from .linear import Linear
    >>> layer = Chain(Linear(2, 3), ReLU(), Linear(3, 1))
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.zeros((2, 5))).shape
    (1, 5)
    >>> [W if W is None else W.shape for W in layer.W]
    [(3, 2), None, (1, 3)]
    """

    can_overflow = False  # its layers are checked one by one
    takes = property(lambda self: self.layers[0].takes if self.layers else "numbers")

    def __init__(self, *layers: Layer):
        super().__init__(layers)

    def through(self, A_prev: np.ndarray) -> np.ndarray:
        self.kept = shape_of(A_prev)
        return forward_through(self.layers, A_prev, skips={})

    def derivatives(self, dZ: np.ndarray) -> tuple:
        of_layers = []
        for layer in reversed(self.layers):
            of_layers.append(dZ)
            dZ = in_one_piece(layer.backward_input(dZ))
        return dZ, of_layers[::-1]

    def unrolled(self, name: str) -> tuple[Layer, ...] | None:
        return self.layers

    def output_shape(self, shape: Shape) -> Shape:
        for layer in self.layers:
            shape = layer.output_shape(shape)
        return shape

    def macs(self, shape: Shape) -> int:
        macs = 0
        for layer in self.layers:
            macs += layer.macs(shape)
            shape = layer.output_shape(shape)
        return macs


class Branches(Block):
    """Several chains of layers with the same input A_prev.

    A branch is a list of layers; the output of an empty list is A_prev. The cost
    depends on A_prev through each branch, so dA_prev is the sum over the branches.
    `kept` has the shapes of their outputs.
    """

    joined: Callable[[Sequence[np.ndarray]], np.ndarray]  # A, from the branches' outputs
    parted: Callable[[np.ndarray], list]  # the gradient of each branch, from dZ
    joined_shape: Callable[[Sequence[Shape]], Shape]  # the shape of A, from those of the branches

    def __init__(self, *branches: Layer | Sequence[Layer]):
        if not branches:
            raise ValueError(f"{type(self).__name__} needs at least 1 branch, got 0: pass lists of layers")
        lists = [branch if isinstance(branch, (list, tuple)) else [branch] for branch in branches]
        super().__init__([Chain(*layers) for layers in lists])

    def through(self, A_prev: np.ndarray) -> np.ndarray:
        parts = [branch.forward(A_prev) for branch in self.layers]
        self.kept = [part.shape for part in parts]
        self.joined_shape(self.kept)
        return self.joined(parts)

    def derivatives(self, dZ: np.ndarray) -> tuple:
        self.check_dZ(dZ, self.joined_shape(self.kept))
        of_branches = self.parted(dZ)
        parts = [branch.backward_input(d) for branch, d in zip(self.layers, of_branches)]
        return sum_in_order(parts), of_branches  # tokens have no derivative: None

    def output_shape(self, shape: Shape) -> Shape:
        return self.joined_shape([branch.output_shape(shape) for branch in self.layers])

    def macs(self, shape: Shape) -> int:
        return sum(branch.macs(shape) for branch in self.layers)

    def argument(self, name: str) -> Any:
        return [list(branch.layers) for branch in self.layers]


@LAYERS(examples=lambda: [(
    Add([Linear(3, 2)], [Linear(3, 4), Dropout(0.5), Linear(4, 2)], [Tanh(), Linear(3, 2)]), (3,),
)])
class Add(Branches):
    """A = the sum of the branches' outputs, which have equal shapes.

    Each branch gets all of dZ, since dA/d(branch) = 1.

    >>> from .activations import ReLU
    >>> layer = Add([ReLU()], [])
    >>> layer.forward(np.array([[-1.0, 2.0]]))
    array([[-1.,  4.]])
    >>> layer.backward_input(np.array([[1.0, 1.0]]))
    array([[1., 2.]])
    """

    def joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return sum_in_order(parts)

    def parted(self, dZ: np.ndarray) -> list[np.ndarray]:
        return [dZ] * len(self.layers)

    def joined_shape(self, shapes: Sequence[Shape]) -> Shape:
        if any(shape != shapes[0] for shape in shapes):
            raise ValueError(f"{self!r} cannot add outputs of shapes {shapes}: make them equal")
        return shapes[0]


@LAYERS(examples=lambda: [
    (Residual(Linear(3, 5), Tanh(), Linear(5, 3)), (3,)),
    (Residual(Conv2d(2, 2, 3, padding=1), Residual(BatchNorm(2), Tanh())), (2, 3, 4)),
])
class Residual(Add):
    """A = A_prev + f(A_prev), where f is `layers` one after another.

    If f changes the shape, use `Add(layers, shortcut)` instead. dA_prev = dZ + (dZ
    passed back through f): the first term reaches A_prev unchanged, however many layers
    there are. Source: He et al. 2015, arXiv 1512.03385.

    >>> from .linear import Linear
    >>> layer = Residual(Linear(1, 1, W=[[3.0]], b=[[0.5]]))
    >>> layer.forward(np.array([[2.0]]))
    array([[8.5]])
    """

    def __init__(self, *layers: Layer):
        super().__init__([], layers)

    def unrolled(self, name: str) -> tuple[Layer, ...] | None:
        inner = self.layers[1].layers
        return (Fork(name), *inner, Join(name)) if inner else None

    def argument(self, name: str) -> Any:
        return self.layers[1].layers


@LAYERS(examples=lambda: [
    (Concat([], [Linear(3, 2), LayerNorm(2)], Tanh()), (3,)),
    (Concat([], [Linear(3, 2)]), (3,)),
    (Concat([Linear(3, 2)], [Residual(Linear(3, 3))]), (3, 5)),
])
class Concat(Branches):
    """A = the branches' outputs, concatenated along axis 0 (features or channels).

    The other axes must be equal. Each row of A comes from one branch, so each branch
    gets its own rows of dZ. Source: Szegedy et al. 2014, arXiv 1409.4842.

    >>> Concat([], []).forward(np.array([[1.0, 2.0]]))
    array([[1., 2.],
           [1., 2.]])
    """

    def joined(self, parts: Sequence[np.ndarray]) -> np.ndarray:
        return np.concatenate(parts)

    def parted(self, dZ: np.ndarray) -> list[np.ndarray]:
        stops = list(itertools.accumulate(shape[0] for shape in self.kept))
        # copies, since views would keep all of dZ
        return [dZ[start:stop].copy() for start, stop in zip([0, *stops], stops)]

    def joined_shape(self, shapes: Sequence[Shape]) -> Shape:
        if any(shape[1:] != shapes[0][1:] for shape in shapes):
            raise ValueError(f"{self!r} cannot concatenate {shapes}: make all axes but the first equal")
        return sum(shape[0] for shape in shapes), *shapes[0][1:]
