"""Pooling: one number for each window that slides over 1, 2 or 3 spatial axes.

A_prev is `(C, L, m)`, `(C, H, W, m)` or `(C, D, H, W, m)`. An axis of length n has (n +
2 * padding - kernel_size) // stride + 1 windows. Loops run over the offsets in a
window, never over windows: for each offset, a strided view of A_prev holds the entry at
that offset of every window. Padding is not stored: a window takes part only at the
offsets that lie inside A_prev.
"""

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ..arrays import Shape, constant, masked
from .layer import LAYERS, Layer
from .windows import EVERY, PerAxis, Windows


class Pool(Layer):
    """The base of max and average pooling: the windows and their offsets.

    Args:
        kernel_size: length of a window; like stride and padding, a whole number, or a
            tuple of one per spatial axis.
        stride: positions from one window to the next; None: kernel_size, without
            overlap.
        padding: at most half of kernel_size, so that no window is empty.
    """

    n_axes: int
    splits: ClassVar[Mapping] = {"units": {}}

    def __init__(self, kernel_size: PerAxis, stride: PerAxis | None = None, padding: PerAxis = 0):
        stride = kernel_size if stride is None else stride
        self.windows = Windows.of(self.n_axes, kernel_size, stride, padding, dilation=1)
        vars(self).update(self.windows.arguments())
        if self.windows.stride == self.windows.kernel_size:
            self.stride = None
        for k, pair in zip(self.windows.kernel_size, self.windows.padding):
            if 2 * max(pair) > k:
                raise ValueError(f"{self!r}: padding={max(pair)} exceeds kernel_size // 2, {k // 2}")

    def tiles(self, shape: Shape) -> bool:
        """Tell whether each entry of A_prev, of this `shape`, is in just one window."""
        w = self.windows
        left_over = np.remainder(shape[1:-1], w.stride)
        return w.stride == w.kernel_size and not np.any(w.padding) and not np.any(left_over)

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != self.n_axes + 2:
            lengths = ", ".join("DHW"[-self.n_axes:])
            raise self.misfit(f"(C, {lengths}, m)", shape)
        return shape[0], *self.windows.count(shape[1:-1]), shape[-1]

    def at_offsets(self, shape: Shape) -> list:
        """Return [(index into A, index into A_prev)] for the offsets in a window.

        The last axis is fastest. For an A_prev of `shape`, they select two views of
        equal shape: the windows whose entry at the offset lies inside A_prev, and these
        entries.
        """
        every_window = (*(slice(0, n) for n in self.windows.count(shape[1:-1])), EVERY)
        offsets = np.ndindex(*self.windows.kernel_size)
        inside = (self.windows.inside(offset, shape[1:-1], every_window) for offset in offsets)
        return [((EVERY, *here), (EVERY, *there)) for here, there in inside]


class MaxPool(Pool):
    """A = the maximum of each window.  dA_prev: its position gets dA, the others get 0.

    dA/dA_prev is 1 at the maximum and 0 elsewhere; where windows overlap, their
    contributions add up. Of equal entries, the first of the window counts (last axis
    fastest), as in PyTorch. Padding counts as minus infinity. Arguments: see `Pool`.
    Source: Ranzato et al. 2007, CVPR.
    """

    can_overflow = False

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        """Return A of A_prev; keep the offset of each window's maximum."""
        shape, dtype = self.output_shape(A_prev.shape), A_prev.dtype
        if dtype.kind in "iub":  # in uint8, no number is below all others
            A_prev = A_prev.astype(np.int64)
        lowest = -np.inf if dtype.kind == "f" else A_prev.min() - 1
        A = np.full(shape, lowest, A_prev.dtype, like=A_prev)
        kind = np.min_scalar_type(math.prod(self.windows.kernel_size))
        offsets = np.full(shape, 0, kind, like=A_prev)
        for offset, (here, there) in enumerate(self.at_offsets(A_prev.shape)):
            is_larger = A_prev[there] > A[here]
            np.maximum(offsets[here], is_larger * kind.type(offset), out=offsets[here])
            np.maximum(A[here], A_prev[there], out=A[here])
        self.cache = A_prev.shape, offsets
        return A.astype(dtype, copy=False)

    def backward_input(self, dA: np.ndarray) -> np.ndarray:
        shape, offsets = self.cached(dA, lambda cache: cache[0])
        tiles = self.tiles(shape)  # then each entry is written once
        if tiles:
            dA_prev = np.empty(shape, dA.dtype, like=dA)
        else:
            dA_prev = np.full(shape, constant(0, dA), dA.dtype, like=dA)
        for offset, (here, there) in enumerate(self.at_offsets(shape)):
            arriving = masked(dA[here], offsets[here] == offset)
            if tiles:
                dA_prev[there] = arriving
            else:
                dA_prev[there] += arriving
        return dA_prev


class AvgPool(Pool):
    """A = the sum of a window / N, N = prod(kernel_size).  dA_prev: each gets dA / N.

    Where windows overlap, their contributions add up. Padding counts as zeros, and its
    positions count in N, as with PyTorch's count_include_pad=True. Arguments: see
    `Pool`. Source: LeCun et al. 1998.
    """

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        A = np.full(self.output_shape(A_prev.shape), constant(0, A_prev), A_prev.dtype, like=A_prev)
        for here, there in self.at_offsets(A_prev.shape):
            A[here] += A_prev[there]
        self.cache = A_prev.shape
        return A / math.prod(self.windows.kernel_size)

    def backward_input(self, dA: np.ndarray) -> np.ndarray:
        shape = self.cached(dA, tuple)
        share = dA / math.prod(self.windows.kernel_size)
        if self.tiles(shape):
            for axis, k in enumerate(self.windows.kernel_size, start=1):
                share = share.repeat(k, axis)
            return share
        dA_prev = np.full(shape, constant(0, dA), dA.dtype, like=dA)
        for here, there in self.at_offsets(shape):
            dA_prev[there] += share[here]
        return dA_prev


@LAYERS(examples=lambda: [(MaxPool1d(3), (2, 7))])
class MaxPool1d(MaxPool):
    """The `MaxPool` of sequences, A (C, L', m) from A_prev (C, L, m).

    >>> MaxPool1d(2).forward(np.array([[[3.0], [1.0], [2.0], [5.0]]]))[0, :, 0]
    array([3., 5.])
    """

    n_axes = 1


@LAYERS(examples=lambda: [(MaxPool2d(2), (2, 5, 7)), (MaxPool2d(3, stride=2, padding=1), (2, 5, 7))])
class MaxPool2d(MaxPool):
    """The `MaxPool` of images, A (C, H', W', m) from A_prev (C, H, W, m)."""

    n_axes = 2


@LAYERS(examples=lambda: [(MaxPool3d((2, 1, 3), stride=1), (2, 3, 4, 5))])
class MaxPool3d(MaxPool):
    """The `MaxPool` of volumes, A (C, D', H', W', m) from A_prev (C, D, H, W, m)."""

    n_axes = 3


@LAYERS(examples=lambda: [(AvgPool1d(3), (2, 7))])
class AvgPool1d(AvgPool):
    """The `AvgPool` of sequences, A (C, L', m) from A_prev (C, L, m).

    >>> AvgPool1d(2, stride=1).forward(np.array([[[3.0], [1.0], [2.0], [5.0]]]))[0, :, 0]
    array([2. , 1.5, 3.5])
    """

    n_axes = 1


@LAYERS(examples=lambda: [(AvgPool2d(2), (2, 5, 7)), (AvgPool2d(3, stride=2, padding=1), (2, 5, 7))])
class AvgPool2d(AvgPool):
    """The `AvgPool` of images, A (C, H', W', m) from A_prev (C, H, W, m)."""

    n_axes = 2


@LAYERS(examples=lambda: [(AvgPool3d((2, 1, 3), stride=1), (2, 3, 4, 5))])
class AvgPool3d(AvgPool):
    """The `AvgPool` of volumes, A (C, D', H', W', m) from A_prev (C, D, H, W, m)."""

    n_axes = 3


@LAYERS(examples=lambda: [(GlobalAvgPool(), (2, 5, 7))])
class GlobalAvgPool(Layer):
    """A (C, m), the mean of each channel of A_prev (C, ..., m).

    dA_prev is dA / (positions of a channel), at each position. Source: Lin, Chen, Yan
    2013, arXiv 1312.4400, section 3.2.

    >>> GlobalAvgPool().forward(np.array([[[3.0], [1.0], [2.0], [6.0]]]))
    array([[3.]])
    """

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        self.output_shape(A_prev.shape)
        self.cache = A_prev.shape
        return A_prev.mean(axis=tuple(range(1, A_prev.ndim - 1)))

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) < 3:
            raise self.misfit("(C, ..., m) with spatial axes", shape)
        return shape[0], shape[-1]

    def backward_input(self, dA: np.ndarray) -> np.ndarray:
        shape = self.cached(dA, tuple)
        share = np.expand_dims(dA / math.prod(shape[1:-1]), tuple(range(1, len(shape) - 1)))
        return np.broadcast_to(share, shape).copy()
