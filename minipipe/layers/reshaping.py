"""Layers that only move entries: Flatten, Reshape, Pad."""

import math
from collections.abc import Sequence

import numpy as np

from ..arrays import Shape, constant
from ..checks import listed, whole_numbers
from .layer import LAYERS, Layer


class Rearranged(Layer):
    """The base of layers that change only the shape of A_prev, and of dZ."""

    can_overflow = False

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        self.cache = A_prev.shape
        return A_prev.reshape(self.output_shape(A_prev.shape))

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        return dZ.reshape(self.cached(dZ, tuple))


@LAYERS(examples=lambda: [(Flatten(), (2, 5, 7))])
class Flatten(Rearranged):
    """A (n, m) from A_prev (..., m): the n entries of each sample as one column.

    Entries keep their values, so dA_prev is dZ in the old shape.

    >>> Flatten().forward(np.zeros((3, 4, 5, 2))).shape
    (60, 2)
    """

    def output_shape(self, shape: Shape) -> Shape:
        return math.prod(shape[:-1]), shape[-1]


@LAYERS(examples=lambda: [(Reshape((7, 2, 5)), (2, 5, 7))])
class Reshape(Rearranged):
    """A (*shape, m) from A_prev (..., m); dA_prev is dZ in the old shape.

    Raises `ValueError` if a sample does not have the number of entries of `shape`.

    >>> Reshape((1, 8, 8)).forward(np.zeros((64, 5))).shape
    (1, 8, 8, 5)
    """

    def __init__(self, shape: Sequence[int]):
        self.shape = whole_numbers("shape", shape, 1)
        if not self.shape:
            raise ValueError("Reshape(()): the shape of a sample needs at least one axis")

    def output_shape(self, shape: Shape) -> Shape:
        n, needed = math.prod(shape[:-1]), math.prod(self.shape)
        if n != needed:
            raise ValueError(f"{self!r} needs {needed} numbers in a sample, got {n} in A_prev {shape}")
        return *self.shape, shape[-1]


@LAYERS(examples=lambda: [(Pad([(0, 1), 2]), (2, 5, 7)), (Pad([(1, 0)]), (3, 1))])
class Pad(Layer):
    """A = A_prev with zeros around its spatial axes, between channels and samples.

    Args:
        widths: for each spatial axis the number of zeros on both sides, or a pair
            (before, after).

    The zeros are constants, so dA_prev is dZ without its margins.

    >>> Pad([1, (0, 2)]).forward(np.ones((1, 1, 2, 1)))[0, :, :, 0]
    array([[0., 0., 0., 0.],
           [1., 1., 0., 0.],
           [0., 0., 0., 0.]])
    """

    can_overflow = False

    def __init__(self, widths: Sequence):
        pairs = [width if hasattr(width, "__len__") else (width, width) for width in listed("widths", widths)]
        self.widths = tuple(whole_numbers(f"widths[{axis}]", pair, 0) for axis, pair in enumerate(pairs))
        if any(len(pair) != 2 for pair in self.widths):
            raise ValueError(f"{self!r}: each spatial axis needs a width or a pair (before, after)")

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        A = np.full(self.output_shape(A_prev.shape), constant(0, A_prev), A_prev.dtype, like=A_prev)
        self.cache = A_prev.shape
        A[self._inside(A_prev.shape)] = A_prev
        return A

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        return dZ[self._inside(self.cached(dZ, tuple))].copy()

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != len(self.widths) + 2:
            raise self.misfit(f"(C, *{len(self.widths)} spatial axes, m)", shape)
        spatial = (before + n + after for n, (before, after) in zip(shape[1:-1], self.widths))
        return shape[0], *spatial, shape[-1]

    def _inside(self, shape):
        return (slice(None), *(slice(before, before + n) for n, (before, _) in zip(shape[1:-1], self.widths)))
