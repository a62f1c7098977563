"""Pooling: one number for each window that slides over an image, in 1, 2 or 3 dimensions.

A_prev is `(C, L, m)`, `(C, H, W, m)` or `(C, D, H, W, m)`: channels, spatial axes, samples. A window of
`kernel_size` by ... starts at every `stride`-th place, `padding` places before the first number, so an axis of n
numbers gives (n + 2 * padding - kernel_size) // stride + 1 windows. The loops run over the offsets in a window, never
over windows: at each offset, one strided view of A_prev holds that number of every window. Padding is not stored: at
each offset, only the windows take part that have a number there.
"""

import math
from itertools import product

import numpy as np

from ..functions import constant
from .layer import Layer


class Pool(Layer):
    """What max and average pooling share: the windows, and the walk over the spatial axes.

    kernel_size, stride, padding: whole numbers, or one for each spatial axis. stride: left out, the kernel_size, so
    that windows do not overlap. padding: at most half of kernel_size, so that each window holds a number.
    """

    n_axes = None

    def __init__(self, kernel_size, stride=None, padding=0):
        self.kernel_size = self._for_each_axis("kernel_size", kernel_size, least=1)
        self.stride = self._for_each_axis("stride", kernel_size if stride is None else stride, least=1)
        self.padding = self._for_each_axis("padding", padding, least=0)
        for k, p in zip(self.kernel_size, self.padding):
            if 2 * p > k:
                raise ValueError(f"{self!r}: padding={p} exceeds half of kernel_size={k}, so a window could be empty: use at most {k // 2}")

    def forward(self, A_prev):
        if A_prev.ndim != self.n_axes + 2:
            raise ValueError(
                f"{self!r} needs A_prev of {self.n_axes + 2} axes, channels, {self.n_axes} spatial and samples, got {A_prev.shape}"
            )
        for n, k, p in zip(A_prev.shape[1:], self.kernel_size, self.padding):
            if k > n + 2 * p:
                raise ValueError(
                    f"{self!r}: kernel_size={k} exceeds an axis of {n} numbers with padding={p} on both sides: "
                    f"use at most {n + 2 * p}, or more padding"
                )
        return self.pool(A_prev)

    @property
    def overlap(self):
        """Whether windows may share a number; if not, a backward writes each derivative once and adds nothing."""
        return any(stride < k for k, stride in zip(self.kernel_size, self.stride))

    def windows(self, shape):
        """The `Windows` along each spatial axis of an A_prev of the given shape."""
        return [Windows(*numbers) for numbers in zip(shape[1:-1], self.kernel_size, self.stride, self.padding)]

    def output_shape(self, shape):
        """The shape of A for an A_prev of the given shape."""
        return shape[0], *(len(along.starts) for along in self.windows(shape)), shape[-1]

    def at_offsets(self, shape):
        """[(index into A, index into A_prev)] for each offset in a window, in the order of reading.

        The two views have the same shape: the windows that have a number at the offset, and these numbers.
        """
        every = slice(None)
        along_axes = product(*(along.at_offsets() for along in self.windows(shape)))
        return [((every, *here), (every, *there)) for here, there in (zip(*pairs) for pairs in along_axes)]

    def _for_each_axis(self, name, value, least):
        values = (value,) * self.n_axes if np.ndim(value) == 0 else tuple(value)
        if len(values) != self.n_axes or min(values) < least:
            raise ValueError(f"{type(self).__name__}: {name}={value} must be one number of at least {least}, or {self.n_axes} of them")
        return values

    def __repr__(self):
        return f"{type(self).__name__}({self.kernel_size}, stride={self.stride}, padding={self.padding})"


class Windows:
    """The windows along one axis of n numbers: window j covers places j * stride - padding + 0 .. kernel_size - 1."""

    def __init__(self, n, kernel_size, stride, padding):
        self.n, self.kernel_size, self.stride, self.padding = n, kernel_size, stride, padding
        self.starts = np.arange(-padding, n + padding - kernel_size + 1, stride)

    def at_offsets(self):
        """[(slice of the windows that have a number there, slice of these numbers)] for each offset in a window."""
        return [self._at(offset - self.padding) for offset in range(self.kernel_size)]

    def _at(self, shift):
        first = max(-(shift // self.stride), 0)
        last = min((self.n - 1 - shift) // self.stride, len(self.starts) - 1)
        if first > last:
            return slice(0), slice(0)
        return slice(first, last + 1), slice(first * self.stride + shift, last * self.stride + shift + 1, self.stride)


class MaxPool(Pool):
    """A = the largest number of each window.  dA_prev: dA goes to the place of that number, the others get 0.

    Moving the largest number moves A by as much, moving another one does not: dA/dA_prev is 1 there, 0 elsewhere.
    Windows that overlap add up. Of equal numbers, the first of the window in the order of reading counts, as in
    PyTorch. Padding counts as minus infinity. Source: Ranzato et al. 2007, CVPR.
    """

    def pool(self, A_prev):
        """`cache` has, for each window, the offset of its largest number, counted in the order of reading."""
        A, offsets = self._first_numbers(A_prev)
        for offset, (here, there) in list(enumerate(self.at_offsets(A_prev.shape)))[1:]:
            numbers = A_prev[there].copy()  # read twice, which is faster in one piece
            np.maximum(offsets[here], (numbers > A[here]) * offsets.dtype.type(offset), out=offsets[here])
            np.maximum(A[here], numbers, out=A[here])
        self.cache = A_prev.shape, offsets
        return A

    def backward_input(self, dA):
        shape, offsets = self.cached(dA, lambda cache: self.output_shape(cache[0]))
        dA_prev = np.full(shape, constant(0, dA), dA.dtype)
        for offset, (here, there) in enumerate(self.at_offsets(shape)):
            largest = offsets[here] == offset
            if self.overlap:
                dA_prev[there] += dA[here] * largest
            else:
                np.multiply(dA[here], largest, out=dA_prev[there])
        return dA_prev

    def _first_numbers(self, A_prev):
        """(the first number of each window, its offset, which padding may have moved), as a start for the maximum."""
        channels, *spatial, m = A_prev.shape
        starts = [along.starts for along in self.windows(A_prev.shape)]
        places = np.ravel_multi_index(np.ix_(*(np.maximum(start, 0) for start in starts)), spatial)
        numbers = A_prev.reshape(channels, -1, m).take(places.ravel(), axis=1).reshape(channels, *places.shape, m)
        offsets = np.ravel_multi_index(np.ix_(*(np.maximum(-start, 0) for start in starts)), self.kernel_size)
        small = np.min_scalar_type(math.prod(self.kernel_size))
        return numbers, np.broadcast_to(offsets.astype(small)[..., None], numbers.shape).copy()


class AvgPool(Pool):
    """A = the sum of each window / the number of its places.  dA_prev: every place gets dA / that number.

    dA/dA_prev is 1 / (kernel_size * ...) for each number in the window; windows that overlap add up. Padding counts
    as zeros, and its places count, too: PyTorch's count_include_pad=True. Source: LeCun et al. 1998.
    """

    def pool(self, A_prev):
        self.cache = A_prev.shape
        A = np.full(self.output_shape(A_prev.shape), constant(0, A_prev), A_prev.dtype)
        for here, there in self.at_offsets(A_prev.shape):
            A[here] += A_prev[there]
        return A / math.prod(self.kernel_size)

    def backward_input(self, dA):
        shape = self.cached(dA, self.output_shape)
        dA_prev = np.full(shape, constant(0, dA), dA.dtype)
        share = dA / math.prod(self.kernel_size)
        for here, there in self.at_offsets(shape):
            if self.overlap:
                dA_prev[there] += share[here]
            else:
                dA_prev[there] = share[here]
        return dA_prev


class MaxPool1d(MaxPool):
    """The `MaxPool` of sequences, A (C, L', m) from A_prev (C, L, m).

    >>> MaxPool1d(2).forward(np.array([[[3.0], [1.0], [2.0], [5.0]]]))[0, :, 0]
    array([3., 5.])
    """

    n_axes = 1


class MaxPool2d(MaxPool):
    """The `MaxPool` of images, A (C, H', W', m) from A_prev (C, H, W, m)."""

    n_axes = 2


class MaxPool3d(MaxPool):
    """The `MaxPool` of volumes, A (C, D', H', W', m) from A_prev (C, D, H, W, m)."""

    n_axes = 3


class AvgPool1d(AvgPool):
    """The `AvgPool` of sequences, A (C, L', m) from A_prev (C, L, m).

    >>> AvgPool1d(2, stride=1).forward(np.array([[[3.0], [1.0], [2.0], [5.0]]]))[0, :, 0]
    array([2. , 1.5, 3.5])
    """

    n_axes = 1


class AvgPool2d(AvgPool):
    """The `AvgPool` of images, A (C, H', W', m) from A_prev (C, H, W, m)."""

    n_axes = 2


class AvgPool3d(AvgPool):
    """The `AvgPool` of volumes, A (C, D', H', W', m) from A_prev (C, D, H, W, m)."""

    n_axes = 3


class GlobalAvgPool(Layer):
    """A (C, m), the mean of each channel of A_prev (C, ..., m); dA_prev is dA / (numbers in a channel), at each place.

    Source: Lin, Chen, Yan 2013, arXiv 1312.4400, section 3.2.

    >>> GlobalAvgPool().forward(np.array([[[3.0], [1.0], [2.0], [6.0]]]))
    array([[3.]])
    """

    def forward(self, A_prev):
        if A_prev.ndim < 3:
            raise ValueError(f"{self!r} needs A_prev of at least 3 axes, channels, spatial ones and samples, got {A_prev.shape}")
        self.cache = A_prev.shape
        return A_prev.mean(axis=tuple(range(1, A_prev.ndim - 1)))

    def backward_input(self, dA):
        shape = self.cached(dA, lambda shape: (shape[0], shape[-1]))
        spatial = shape[1:-1]
        dA = dA / math.prod(spatial)
        return np.broadcast_to(np.expand_dims(dA, tuple(range(1, len(shape) - 1))), shape).copy()
