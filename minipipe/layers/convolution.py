"""Convolution over one, two or three axes, as matrix products of bands of unfolded windows."""

import math

import numpy as np

from .initialization import he
from .layer import Layer, as_dtype_of
from .windows import Windows, bands, sizes


class Kernel(Layer):
    """What convolution and its transpose share: parameters, checks, bias. `n_axes` is the number of spatial axes."""

    n_axes = None

    def __init__(self, in_channels, out_channels, windows, groups, bias):
        if min(in_channels, out_channels, groups) < 1:
            raise ValueError(f"in_channels={in_channels}, out_channels={out_channels} and groups={groups} must be at least 1")
        if in_channels % groups or out_channels % groups:
            raise ValueError(
                f"groups={groups} does not divide both in_channels={in_channels} and out_channels={out_channels}: "
                f"use a divisor of {math.gcd(in_channels, out_channels)}"
            )
        self.in_channels, self.out_channels, self.groups = in_channels, out_channels, groups
        self.windows, self.bias = windows, bias

    def initialize(self, rng, dtype=np.float64):
        if self.W is None:
            n_prev = self.in_channels // self.groups * math.prod(self.windows.kernel_size)
            self.W = he(rng, n_prev, self.out_channels).reshape(self.shape_of_W()).astype(dtype)
        if self.bias and self.b is None:
            self.b = np.zeros((self.out_channels, *(1,) * (self.n_axes + 1)), self.W.dtype)

    def forward(self, A_prev):
        if A_prev.ndim != self.n_axes + 2 or len(A_prev) != self.in_channels:
            lengths = ", ".join("DHW"[-self.n_axes:])
            raise ValueError(
                f"{self!r} needs A_prev of shape ({self.in_channels}, {lengths}, m), got {A_prev.shape}: channels are the "
                "first axis, samples the last"
            )
        if self.W is None or (self.bias and self.b is None):
            raise RuntimeError(f"{self!r} has no parameters yet: call initialize(rng), or put it into a Sequential")
        Z = self.product(as_dtype_of(A_prev, self.W), A_prev)
        if self.b is not None:
            Z += as_dtype_of(A_prev, self.b)
        self.cache = A_prev
        return Z

    def backward_weight(self, dZ):
        A_prev = self.cached(dZ, self.output_shape)
        dW = self.product_for_W(dZ, A_prev).reshape(self.shape_of_W())
        if self.b is None:
            return dW, None
        rows = dZ.reshape(len(dZ), -1)
        ones = np.ones((rows.shape[1], 1), dZ.dtype)  # row sums as a matrix product, as in Linear
        return dW, (rows @ ones).reshape(self.b.shape)

    def __repr__(self):
        return f"{type(self).__name__}({self.in_channels}, {self.out_channels}, kernel_size={self.windows.kernel_size})"


class Convolution(Kernel):
    """Z[o, p, k] = sum_{c, i} W[o, c, i] A_prev[c, p * stride + i * dilation - padding, k] + b[o]

    A_prev (C, *lengths, m), W (O, C / groups, *kernel_size), b (O, 1, ..., 1), Z (O, *windows, m). The place p
    and the entry i of the kernel have one index per spatial axis; a place outside A_prev counts as 0. There are
    (n + 2 padding - dilation (kernel_size - 1) - 1) // stride + 1 windows on an axis of length n.
    With groups, output channel o sees only the C / groups input channels of its own group.

    Unfold A_prev: let column (p, k) of a matrix list all numbers that window p of sample k covers,
    columns[(c, i), (p, k)] = A_prev[c, p * stride + i * dilation - padding, k]. Then this is the Linear layer:

        Z = W columns + b      dcolumns = W^T dZ      dW = dZ columns^T      db = row sums of dZ

    and since A_prev[c, q, k] stands in `columns` once for each window that covers place q, dA_prev sums dcolumns
    over these (`fold`). No product divides by m and each sum over k runs over samples, so the gradients of
    micro-batches add up. The matrix is prod(kernel_size) times as large as A_prev; only a band of it exists at a
    time, and backward unfolds again instead of caching.

    Parameters and defaults are PyTorch's; padding="same" keeps the length, the odd zero going behind. W is drawn
    by `he` with the C / groups * prod(kernel_size) inputs of an output. Source: LeCun et al. 1989, Neural
    Computation 1(4); the matrix product: Chellapilla, Puri, Simard 2006.
    """

    def __init__(self, in_channels, out_channels, kernel_size, stride=1, padding=0, dilation=1, groups=1, bias=True):
        windows = Windows.of(self.n_axes, kernel_size, stride, padding, dilation)
        super().__init__(in_channels, out_channels, windows, groups, bias)

    def shape_of_W(self):
        return self.out_channels, self.in_channels // self.groups, *self.windows.kernel_size

    def output_shape(self, A_prev):
        return self.out_channels, *self.windows.count(A_prev.shape[1:-1]), A_prev.shape[-1]

    def product(self, W, A_prev):
        return convolve(W, A_prev, self.windows, self.groups, self.output_shape(A_prev))

    def backward_input(self, dZ):
        A_prev = self.cached(dZ, self.output_shape)
        return convolve_transposed(as_dtype_of(dZ, self.W), dZ, self.windows, self.groups, A_prev.shape)

    def product_for_W(self, dZ, A_prev):
        return correlate(dZ, A_prev, self.windows, self.groups)


def convolve(W, A, windows, groups, shape):
    """Z = W columns of `shape`, from A."""
    Z = np.empty(shape, np.result_type(W, A))
    W, rows = by_group(W, groups), by_group(Z, groups)
    for box, here, columns in unfolding(Z.shape, len(A), windows, Z.dtype):
        windows.unfold(A, box, columns)
        np.matmul(W, columns_by_group(columns, box, groups), out=rows[..., here])
    return Z


def convolve_transposed(W, dZ, windows, groups, shape):
    """The adjoint of `convolve` by A: dA of `shape` is W^T dZ, folded."""
    dtype = np.result_type(W, dZ)
    dA = np.full(shape, type(W.flat[0])(0), dtype)  # the 0 of exact numbers, too
    W, rows = by_group(W, groups), by_group(dZ, groups)
    for box, here, columns in unfolding(dZ.shape, len(dA), windows, dtype):
        np.matmul(W.transpose(0, 2, 1), rows[..., here], out=columns_by_group(columns, box, groups))
        windows.fold(columns, box, dA)
    return dA


def correlate(dZ, A, windows, groups):
    """The adjoint of `convolve` by W: dW = dZ columns^T, from A."""
    dtype = np.result_type(dZ, A)
    rows = by_group(dZ, groups)
    dW = 0
    for box, here, columns in unfolding(dZ.shape, len(A), windows, dtype):
        windows.unfold(A, box, columns)
        dW = dW + rows[..., here] @ columns_by_group(columns, box, groups).transpose(0, 2, 1)
    return dW


def unfolding(shape, n_channels, windows, dtype):
    """For each band of outputs of `shape` (O, *windows, m): its box, its flat positions, and a buffer for its columns."""
    n_rows = n_channels * math.prod(windows.kernel_size)
    buffer = None
    for box, here in bands(shape[1:], n_rows * dtype.itemsize):
        n_numbers = n_rows * (here.stop - here.start)
        if buffer is None:  # the first band is the largest
            buffer = np.empty(n_numbers, dtype)
        yield box, here, buffer[:n_numbers].reshape(n_channels, *windows.kernel_size, *sizes(box))


def by_group(array, groups):
    """(groups, channels of a group, everything else), contiguous."""
    return np.ascontiguousarray(array).reshape(groups, len(array) // groups, -1)


def columns_by_group(columns, box, groups):
    return columns.reshape(groups, -1, math.prod(sizes(box)))


class Conv1d(Convolution):
    """Convolution over one axis: A_prev (C, L, m), W (O, C / groups, kernel), Z (O, L', m).

    A kernel of 5 on 8 numbers has 8 - 5 + 1 = 4 places to be:

    >>> layer = Conv1d(1, 1, kernel_size=5)
    >>> layer.W, layer.b = np.array([[[1.0, 0.0, 0.0, 0.0, -1.0]]]), np.zeros((1, 1, 1))
    >>> A_prev = np.array([0.0, 1.0, 4.0, 9.0, 16.0, 25.0, 36.0, 49.0]).reshape(1, 8, 1)
    >>> layer.forward(A_prev).ravel()
    array([-16., -24., -32., -40.])
    >>> dA_prev, dW, db = layer.backward(np.ones((1, 4, 1)))
    >>> dA_prev.ravel()
    array([ 1.,  1.,  1.,  1., -1., -1., -1., -1.])
    >>> dW.ravel(), db.ravel()
    (array([ 14.,  30.,  54.,  86., 126.]), array([4.]))
    """

    n_axes = 1


class Conv2d(Convolution):
    """Convolution over images: A_prev (C, H, W, m), W (O, C / groups, *kernel_size), Z (O, H', W', m).

    >>> layer = Conv2d(3, 8, kernel_size=3, padding="same")
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.zeros((3, 5, 7, 2))).shape
    (8, 5, 7, 2)
    """

    n_axes = 2


class Conv3d(Convolution):
    """Convolution over volumes: A_prev (C, D, H, W, m), W (O, C / groups, *kernel_size), Z (O, D', H', W', m)."""

    n_axes = 3
