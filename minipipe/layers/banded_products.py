"""The three matrix products of convolution, one band of rows at a time.

`columns` is the matrix of all windows of A: columns[(c, i), (p, k)] is entry i of window p of channel c
of sample k. It would be prod(kernel_size) times as large as A, and windows one row apart have all but one
of their rows in common. Therefore A is unfolded along every axis but the first, rows outermost. The columns
of one row of windows then are kernel_size[0] rows side by side: a matrix that needs no copy of its own.
One buffer, a few MiB, holds a band of rows, is used and filled again. With groups, each group of channels has
its own product.

Shapes: A (C, *lengths, m), Z (O, *windows, m), W (O, C / groups, *kernel_size). Source: Cho and Brand 2017,
arXiv 1706.06873.
"""

import math

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from .windows import bands, sizes

LEAST_COLUMNS = 32     # with fewer, a row of windows is not worth a matrix product of its own
SMALL_PRODUCT = 10**6  # multiplications: up to here, OpenBLAS with AVX-512 does not copy its operands first
LEAST_PART = 256       # columns: a row is not cut into smaller parts to make its products small
COST_OF_ADDING = 2     # times that of copying a number


def convolve(W, A, windows, groups, shape):
    """Z = W columns.

    W: (O, C / groups, *kernel_size).
    A: (C, *lengths, m).
    windows: the `Windows` of the kernel on A.
    groups: of channels.
    shape: that of Z, (O, *windows, m).
    """
    if not row_by_row(windows, shape):
        W, A, windows = W[:, :, None], A[:, None], windows.as_one_row()
        return convolve(W, A, windows, groups, (shape[0], 1, *shape[1:])).reshape(shape)
    Z = np.empty(shape, np.result_type(W, A), like=A)
    W_by_group, Z_by_group = rows_first(W).reshape(groups, 1, 1, len(W) // groups, -1), by_group(Z, groups)
    for here, columns in columns_by_row(A, windows, groups, shape, Z.dtype):
        np.matmul(W_by_group, columns, out=by_row(Z_by_group[..., here], columns))
    return Z


def convolve_transposed(W, dZ, windows, groups, shape):
    """dA: the adjoint of `convolve` by A.

    W: (O, C / groups, *kernel_size).
    dZ: (O, *windows, m).
    windows: the `Windows` of the kernel on A.
    groups: of channels.
    shape: that of A, (C, *lengths, m).

    dcolumns = W^T dZ, and dA sums over all windows in which a position stands. At stride 1 that is a
    convolution of dZ with the kernel reversed, which is faster, unless it has to unfold far more numbers than
    are added here.
    """
    n_added, n_unfolded = shape[0] * math.prod(dZ.shape[1:]), len(dZ) * math.prod(shape[1:])
    if max(windows.stride) == 1 and n_unfolded < COST_OF_ADDING * n_added:
        return convolve(reversed_kernel(W, groups), dZ, windows.reversed(), groups, shape)
    if not row_by_row(windows, dZ.shape):
        W, dZ, windows = W[:, :, None], dZ[:, None], windows.as_one_row()
        return convolve_transposed(W, dZ, windows, groups, (shape[0], 1, *shape[1:])).reshape(shape)
    zero = type(W.flat[0])(0)  # a rational one, if the numbers are rational
    dA = np.full(shape, zero, np.result_type(W, dZ), like=dZ)
    dA_by_group, dZ_by_group = dA.reshape(groups, -1, *shape[1:]), by_group(dZ, groups)
    W_by_group = rows_first(W).reshape(groups, len(W) // groups, -1)
    height, stride = windows.kernel_size[0], windows.stride[0]
    for box, here, rows in bands_of_rows(len(dA), windows, groups, dZ.shape, dA.dtype, like=dA):
        rows[:] = 0
        dZ_by_row = dZ_by_group[..., here].reshape(*dZ_by_group.shape[:2], sizes(box)[0], -1)
        for y in range(dZ_by_row.shape[2]):
            below = rows[:, y * stride:y * stride + height]
            below += (W_by_group.swapaxes(1, 2) @ dZ_by_row[:, :, y]).reshape(below.shape)
        windows.fold(rows, box, dA_by_group)
    return dA


def correlate(dZ, A, windows, groups):
    """dW = dZ columns^T, of the shape of W but for the kernel's axes: the adjoint of `convolve` by W.

    dZ: (O, *windows, m).
    A: (C, *lengths, m).
    windows: the `Windows` of the kernel on A.
    groups: of channels.

    Computed as dW^T = columns dZ^T, the same sums, in which BLAS reads the larger matrix as it lies.
    """
    if not row_by_row(windows, dZ.shape):
        return correlate(dZ[:, None], A[:, None], windows.as_one_row(), groups)
    dZ_by_group = by_group(dZ, groups)
    dW_transposed = 0
    for here, columns in columns_by_row(A, windows, groups, dZ.shape, np.result_type(dZ, A)):
        dZ_by_row = by_row(dZ_by_group[..., here], columns)
        for y, part in np.ndindex(columns.shape[1:3]):
            dW_transposed += columns[:, y, part] @ dZ_by_row[:, y, part].swapaxes(1, 2)
    dW = dW_transposed.swapaxes(1, 2).reshape(len(dZ), windows.kernel_size[0], len(A) // groups, -1)
    return dW.swapaxes(1, 2)


def row_by_row(windows, shape):
    """Whether each row of windows, along the first spatial axis of the output, has a product of its own.

    A row's columns must lie side by side, and be many enough. If not, all windows become one row: an axis of
    length 1 is put in front, and A is unfolded along every axis that it had.
    """
    return windows.dilation[0] == 1 and (shape[1] == 1 or math.prod(shape[2:]) >= LEAST_COLUMNS)


def columns_by_row(A, windows, groups, shape, dtype):
    """For each band of rows of windows: its flat positions in the output, and its columns row by row.

    A: (C, *lengths, m).
    windows: the `Windows` of the kernel on A.
    groups: of channels.
    shape: that of the output, (O, *windows, m).
    dtype: that of the columns.

    The columns, (groups, rows, parts of a row, kernel_size[0] * C / groups * ..., columns of a part),
    are views that overlap.
    """
    A_by_group = A.reshape(groups, -1, *A.shape[1:])
    height, stride = windows.kernel_size[0], windows.stride[0]
    for box, here, rows in bands_of_rows(len(A), windows, groups, shape, dtype, like=A):
        windows.unfold(A_by_group, box, rows)
        n_columns = math.prod(sizes(box)[1:])
        n_numbers = rows[0, 0].size // n_columns  # of a column, in one row
        n_parts = parts_of_a_row(n_columns, shape[0] // groups * height * n_numbers)
        parts = rows.reshape(*rows.shape[:2], n_numbers, n_parts, -1)
        columns = sliding_window_view(parts, height, axis=1)[:, ::stride].transpose(0, 1, 3, 5, 2, 4)
        yield here, columns.reshape(*columns.shape[:3], -1, columns.shape[-1])


def bands_of_rows(n_channels, windows, groups, shape, dtype, like):
    """For each band of rows of windows: its box, its flat positions in the output, and room for `unfold`.

    n_channels: of the array that is unfolded.
    windows: the `Windows` of the kernel on it.
    groups: of channels.
    shape: that of the output, (O, *windows, m).
    dtype: that of the room.
    like: an array of the kind that the room is to be, see `minipipe.meta`.

    The room is the same memory each time.
    """
    height, stride, widths = windows.kernel_size[0], windows.stride[0], windows.kernel_size[1:]
    memory = np.empty(0, dtype, like=like)
    for box, here in bands(shape[1:], n_channels * math.prod(widths) * dtype.itemsize, height, stride):
        n, *others = sizes(box)
        shape_of_rows = groups, (n - 1) * stride + height, n_channels // groups, *widths, *others
        size = math.prod(shape_of_rows)
        if memory.size < size:  # only once: the first band is the largest
            memory = np.empty(size, dtype, like=like)
        yield box, here, memory[:size].reshape(shape_of_rows)


def parts_of_a_row(n_columns, n_multiplications):
    """Into how many equal parts a row's columns are cut, so that each product is small but not too small.

    n_multiplications is the number of a single column.

    >>> parts_of_a_row(7168, 6 * 25), parts_of_a_row(1024, 64 * 576)
    (2, 1)
    """
    for n_parts in range(-(-n_columns * n_multiplications // SMALL_PRODUCT), n_columns // LEAST_PART + 1):
        if n_columns % n_parts == 0:
            return n_parts
    return 1


def reversed_kernel(W, groups):
    """(C, O / groups, *kernel_size): the channels have changed sides, and each axis runs backwards."""
    R = np.flip(W, axis=tuple(range(2, W.ndim)))
    R = R.reshape(groups, -1, *W.shape[1:]).swapaxes(1, 2)
    return R.reshape(-1, *R.shape[2:])


def rows_first(W):
    """(O, kernel_size[0], C / groups, ...): the order of the numbers in a column."""
    return W.reshape(*W.shape[:3], -1).swapaxes(1, 2)


def by_group(array, groups):
    """(groups, channels of a group, all the rest), a view of an array in one piece."""
    return array.reshape(groups, len(array) // groups, -1)


def by_row(Z_by_group, columns):
    """Z as (groups, rows, parts of a row, channels of a group, columns of a part): a view."""
    return np.moveaxis(Z_by_group.reshape(*Z_by_group.shape[:2], *columns.shape[1:3], -1), 1, 3)
