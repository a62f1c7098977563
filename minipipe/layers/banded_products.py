"""The three matrix products of convolution, one band of columns at a time.

`columns` is the matrix of all windows of A: columns[(c, i), (p, k)] is entry i of window p of channel c of sample
k. It would be prod(kernel_size) times as large as A. A band of it, a few MiB, serves a matrix product just as well,
so one buffer is filled, used and filled again. With groups, each group of channels has its own product.

Shapes: A (C, *lengths, m), Z (O, *windows, m), W (O, C / groups, *kernel_size).
"""

import math

import numpy as np

from .windows import bands, sizes


def convolve(W, A, windows, groups, shape):
    """Z = W columns, of `shape`."""
    Z = np.empty(shape, np.result_type(W, A))
    W, Z_by_group = by_group(W, groups), by_group(Z, groups)
    for box, here, columns in buffers(shape, len(A), windows, Z.dtype):
        windows.unfold(A, box, columns)
        np.matmul(W, as_matrices(columns, groups, here), out=Z_by_group[..., here])
    return Z


def convolve_transposed(W, dZ, windows, groups, shape):
    """dA, of `shape`: the adjoint of `convolve` by A.

    dcolumns = W^T dZ, and dA sums over all windows in which a place stands. At stride 1 that is a convolution
    of dZ with the kernel reversed, which is faster, because filling a band costs less than adding it up.
    """
    if max(windows.stride) == 1:
        return convolve(reversed_kernel(W, groups), dZ, windows.reversed(), groups, shape)
    zero = type(W.flat[0])(0)  # a rational one, if the numbers are rational
    dA = np.full(shape, zero, np.result_type(W, dZ))
    W, dZ_by_group = by_group(W, groups), by_group(dZ, groups)
    for box, here, dcolumns in buffers(dZ.shape, len(dA), windows, dA.dtype):
        np.matmul(W.transpose(0, 2, 1), dZ_by_group[..., here], out=as_matrices(dcolumns, groups, here))
        windows.fold(dcolumns, box, dA)
    return dA


def correlate(dZ, A, windows, groups):
    """dW = dZ columns^T, in the form (groups, O / groups, C / groups * prod(kernel_size)): the adjoint of `convolve` by W."""
    dZ_by_group = by_group(dZ, groups)
    dW = 0
    for box, here, columns in buffers(dZ.shape, len(A), windows, np.result_type(dZ, A)):
        windows.unfold(A, box, columns)
        dW = dW + dZ_by_group[..., here] @ as_matrices(columns, groups, here).transpose(0, 2, 1)
    return dW


def reversed_kernel(W, groups):
    """(C, O / groups, *kernel_size): the channels have changed sides, and each axis runs backwards."""
    R = np.flip(W, axis=tuple(range(2, W.ndim)))
    R = R.reshape(groups, -1, *W.shape[1:]).swapaxes(1, 2)
    return R.reshape(-1, *R.shape[2:])


def buffers(shape, n_channels, windows, dtype):
    """For each band of outputs of `shape`: its box, its flat positions, and room for its columns, the same memory each time."""
    n_rows = n_channels * math.prod(windows.kernel_size)
    buffer = np.empty(0, dtype)
    for box, here in bands(shape[1:], n_rows * dtype.itemsize):
        n_numbers = n_rows * (here.stop - here.start)
        if buffer.size < n_numbers:  # only once: the first band is the largest
            buffer = np.empty(n_numbers, dtype)
        yield box, here, buffer[:n_numbers].reshape(n_channels, *windows.kernel_size, *sizes(box))


def by_group(array, groups):
    """(groups, channels of a group, all the rest), contiguous, so that BLAS can take it."""
    return np.ascontiguousarray(array).reshape(groups, len(array) // groups, -1)


def as_matrices(columns, groups, here):
    return columns.reshape(groups, -1, here.stop - here.start)
