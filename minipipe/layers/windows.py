"""Windows of a kernel that slides over any number of axes, and products over them."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from ..arrays import Shape, even_slices
from ..checks import whole_number, whole_numbers

PerAxis: TypeAlias = int | Sequence[int]  # one number for all spatial axes, or one per axis
Box: TypeAlias = tuple[slice, ...]  # windows on each spatial axis, and samples
BUFFER_BYTES = 6 * 2**20  # per band of columns: efficient products, but still in the processor's cache
EVERY = slice(None)


@dataclass(frozen=True)
class Windows:
    """Windows of a kernel: window p covers p * stride + i * dilation - padding.

    The fields have an entry per spatial axis: kernel_size, the entries i of a window;
    stride, the positions from one window to the next; padding, the zeros (before,
    after) the array; dilation, the positions from one entry to the next. A position
    outside the array counts as 0; no padded copy of the array is made.
    """

    kernel_size: tuple
    stride: tuple
    padding: tuple
    dilation: tuple

    @classmethod
    def of(
        cls, n_axes: int, kernel_size: PerAxis, stride: PerAxis, padding: PerAxis | str, dilation: PerAxis
    ) -> Windows:
        """Return the windows on `n_axes` spatial axes for a user's arguments.

        kernel_size, stride, padding and dilation are those of `Kernel` in
        convolution.py.
        """
        kernel_size = per_axis("kernel_size", kernel_size, n_axes, 1)
        stride, dilation = per_axis("stride", stride, n_axes, 1), per_axis("dilation", dilation, n_axes, 1)
        if isinstance(padding, str) and padding != "same":
            raise ValueError(f'padding={padding!r} is not known: use "same", a whole number, or one per axis')
        if not isinstance(padding, str):
            pairs = [(n, n) for n in per_axis("padding", padding, n_axes, 0)]
        elif max(stride) > 1:
            raise ValueError(f'padding="same" keeps the length, which stride={stride} cannot: use stride=1')
        else:
            total = [d * (k - 1) for k, d in zip(kernel_size, dilation)]
            pairs = [(n // 2, n - n // 2) for n in total]
        return cls(kernel_size, stride, tuple(pairs), dilation)

    def arguments(self) -> dict[str, Any]:
        """Return the shortest arguments with which `of` makes these windows."""
        is_even = all(before == after for before, after in self.padding)
        return {
            "kernel_size": shortest(self.kernel_size), "stride": shortest(self.stride),
            "padding": shortest([before for before, _ in self.padding]) if is_even else "same",
            "dilation": shortest(self.dilation),
        }

    @property
    def span(self) -> tuple[int, ...]:
        """Positions that a window spans: dilation * (kernel_size - 1) + 1."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel_size, self.dilation))

    def reversed(self) -> Windows:
        """Return, for stride 1, `Windows` of the windows that cover each position.

        Position q is entry i of window q + padding - i * dilation, so i runs backwards.
        """
        pairs = zip(self.span, self.padding)
        padding = tuple((span - 1 - before, span - 1 - after) for span, (before, after) in pairs)
        return Windows(self.kernel_size, self.stride, padding, self.dilation)

    def count(self, lengths: Shape) -> Shape:
        """Return the windows on each axis: (n + padding - span) // stride + 1.

        `lengths` has n, the length of the array, for each axis.
        """
        for n, pad, span in zip(lengths, self.padding, self.span):
            if n + sum(pad) < span:
                raise ValueError(
                    f"a kernel that spans {self.span} places does not fit into spatial axes of lengths "
                    f"{tuple(lengths)} with padding {self.padding}: {span} > {n} + {sum(pad)}"
                )
        axes = zip(lengths, self.padding, self.span, self.stride)
        return tuple((n + sum(pad) - span) // s + 1 for n, pad, span, s in axes)

    def without_first_axis(self) -> Windows:
        """Return the same windows along all axes but the first."""
        return Windows(self.kernel_size[1:], self.stride[1:], self.padding[1:], self.dilation[1:])

    def as_one_row(self) -> Windows:
        """Return the same windows with an axis of length 1 in front."""
        padding = (0, 0), *self.padding
        return Windows((1, *self.kernel_size), (1, *self.stride), padding, (1, *self.dilation))

    def unfold(self, A: np.ndarray, box: Box, rows: np.ndarray) -> None:
        """Copy the entries of A under the windows of `box` to `rows`.

            rows[g, y, c, i, p, k] = A[g, c, y0 + y, q, k],  q of entry i of window p

        All axes but the first spatial one are unfolded; y0 is the first position on it
        that the windows cover. i, p and q stand for one index per other spatial axis.

        Args:
            A: (groups, C, *lengths, m).
            box: a tuple of slices: windows on each spatial axis, and samples.
            rows: (groups, positions of the first axis, C, *kernel_size[1:], *sizes of
                the rest of the box); it is overwritten.
        """
        inside, covered = self.rows_inside(A.shape[2], box, rows.shape[1])
        rows[:, :inside.start] = 0
        rows[:, inside.stop:] = 0
        others = self.without_first_axis()
        for i in np.ndindex(*others.kernel_size):
            windows, positions = others.inside(i, A.shape[3:-1], box[1:])
            piece = rows[(EVERY, inside, EVERY, *i)]
            for axis, part in enumerate(windows, start=3):
                if part.stop - part.start < piece.shape[axis]:
                    piece[(EVERY,) * axis + (slice(part.start),)] = 0
                    piece[(EVERY,) * axis + (slice(part.stop, None),)] = 0
            piece[(EVERY, EVERY, EVERY, *windows)] = A[(EVERY, EVERY, covered, *positions)].swapaxes(1, 2)

    def fold(self, rows: np.ndarray, box: Box, A: np.ndarray) -> None:
        """Add each entry of `rows` to the position of A that `unfold` copies from.

        Args:
            rows, box, A: those of `unfold`.
        """
        inside, covered = self.rows_inside(A.shape[2], box, rows.shape[1])
        others = self.without_first_axis()
        for i in np.ndindex(*others.kernel_size):
            windows, positions = others.inside(i, A.shape[3:-1], box[1:])
            piece = rows[(EVERY, inside, EVERY, *i, *windows)]
            A[(EVERY, EVERY, covered, *positions)] += piece.swapaxes(1, 2)

    def rows_inside(self, n: int, box: Box, n_rows: int) -> tuple[slice, slice]:
        """Return (slice of the rows inside the array, slice of their positions there).

        The windows of `box` cover `n_rows` rows; n is the length of the first axis.
        """
        y0 = box[0].start * self.stride[0] - self.padding[0][0]
        start = min(n_rows, max(0, -y0))
        stop = max(start, min(n_rows, n - y0))
        return slice(start, stop), slice(y0 + start, y0 + stop)

    def inside(self, i: Sequence[int], lengths: Shape, box: Box) -> tuple:
        """Return slices: (windows whose entry i lies in the array, positions of it).

        The windows are those of `box`, numbered from its first; `lengths` are those of
        the array's axes.
        """
        windows, positions = [], []
        axes = zip(lengths, box, self.stride, self.dilation, i, self.padding)
        for n, part, s, d, offset, (before, _) in axes:
            start = offset * d - before                                     # the position in window 0
            # the first window with the entry at position 0 or later
            first = max(part.start, -(start // s))
            # the end of the windows with the entry at position n - 1 or earlier
            stop = max(first, min(part.stop, (n - 1 - start) // s + 1))
            windows.append(slice(first - part.start, stop - part.start))
            positions.append(slice(first * s + start, stop * s + start, s))
        return windows, (*positions, box[-1])


def bands(shape: Shape, bytes_of_one: int, span: int = 1, stride: int = 1) -> Iterator[tuple[Box, slice]]:
    """Cut an array of `shape` into boxes of about BUFFER_BYTES; yield (box, where).

    `box` has a slice for each axis; `where` is the slice of its positions in the
    flattened array. A box is some rows of the first axis, or, if one row is too large,
    a part of a row along the next axis, and so on. One position takes `bytes_of_one`
    bytes, and n rows of output need (n - 1) * stride + span rows of input in memory.

    >>> [where for box, where in bands((4, 5), BUFFER_BYTES // 10)]
    [slice(0, 10, None), slice(10, 20, None)]
    """
    room = BUFFER_BYTES // bytes_of_one
    parts = []
    for axis, length in enumerate(shape):
        size = room // math.prod(shape[axis + 1:])
        if axis == 0:
            size, room = (size - span) // stride + 1, room // span
        parts.append(even_slices(length, -(-length // max(1, size))))
    stop = 0
    for box in itertools.product(*parts):
        start, stop = stop, stop + math.prod(sizes(box))
        yield box, slice(start, stop)


def sizes(box: Box) -> tuple[int, ...]:
    """Return the shape that `box`, a tuple of slices, cuts out."""
    return tuple(part.stop - part.start for part in box)


def shortest(values: Sequence[int]) -> PerAxis:
    """Return `values`, one per axis, as one number if they are equal."""
    return values[0] if len(set(values)) == 1 else tuple(values)


def per_axis(name: str, value: PerAxis, n_axes: int, least: int) -> tuple[int, ...]:
    """Return `value` as a tuple with one whole number per spatial axis.

    It is a whole number from `least`, or a tuple or list of `n_axes`; `name` is for
    errors.
    """
    if not isinstance(value, (tuple, list)):
        return (whole_number(name, value, least),) * n_axes
    if len(value) != n_axes:
        raise ValueError(f"{name}={value} has {len(value)} numbers for {n_axes} axes: give one per axis")
    return whole_numbers(name, value, least)


# The three matrix products of convolution, one band of rows at a time.
#
# `columns` is the matrix of all windows of A: columns[(c, i), (p, k)] is entry i of window p of channel c of
# sample k. It would be prod(kernel_size) times as large as A, although windows one row apart share all but
# one of their rows. Therefore A is unfolded along every axis but the first, with rows as the outermost axis.
# The columns of one row of windows then are kernel_size[0] consecutive rows, a view without a copy. One
# buffer of a few MiB holds a band of rows, and is filled again for the next. With groups, each group of
# channels has its own product.
#
# Shapes: A (C, *lengths, m), Z (O, *windows, m), W (O, C / groups, *kernel_size); `windows` are the `Windows`
# of the kernel on A. Source: Cho and Brand 2017, arXiv 1706.06873.

LEAST_COLUMNS = 32     # with fewer columns, a row of windows gets no matrix product of its own
SMALL_PRODUCT = 10**6  # multiplications up to which OpenBLAS with AVX-512 does not copy its operands first
LEAST_PART = 256       # columns: the smallest part into which a row is cut to make its products small
COST_OF_ADDING = 2     # the time to add a number, relative to copying one


def convolve(W: np.ndarray, A: np.ndarray, windows: Windows, groups: int, shape: Shape) -> np.ndarray:
    """Return Z = W columns, of this `shape`.

    W, A, `windows` and `groups` are those of the comment above.
    """
    if not row_by_row(windows, shape):
        W, A, windows = W[:, :, None], A[:, None], windows.as_one_row()
        return convolve(W, A, windows, groups, (shape[0], 1, *shape[1:])).reshape(shape)
    Z = np.empty(shape, np.result_type(W, A), like=A)
    W_by_group, Z_by_group = rows_first(W).reshape(groups, 1, 1, len(W) // groups, -1), by_group(Z, groups)
    for here, columns in columns_by_row(A, windows, groups, shape, Z.dtype):
        np.matmul(W_by_group, columns, out=by_row(Z_by_group[..., here], columns))
    return Z


def convolve_transposed(
    W: np.ndarray, dZ: np.ndarray, windows: Windows, groups: int, shape: Shape
) -> np.ndarray:
    """Return dA of this `shape`, from dZ: the adjoint of `convolve` with respect to A.

    dcolumns = W^T dZ, and dA at a position is the sum over all windows that cover it.
    At stride 1 that is a convolution of dZ with the reversed kernel, which is faster
    unless it unfolds far more numbers than are added here. W, `windows` and `groups`
    are those of `convolve`.
    """
    n_added, n_unfolded = shape[0] * math.prod(dZ.shape[1:]), len(dZ) * math.prod(shape[1:])
    if max(windows.stride) == 1 and n_unfolded < COST_OF_ADDING * n_added:
        return convolve(reversed_kernel(W, groups), dZ, windows.reversed(), groups, shape)
    if not row_by_row(windows, dZ.shape):
        W, dZ, windows = W[:, :, None], dZ[:, None], windows.as_one_row()
        return convolve_transposed(W, dZ, windows, groups, (shape[0], 1, *shape[1:])).reshape(shape)
    zero = type(W.flat[0])(0)  # rational if W is rational
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


def correlate(dZ: np.ndarray, A: np.ndarray, windows: Windows, groups: int) -> np.ndarray:
    """Return dW = dZ columns^T: the adjoint of `convolve` with respect to W.

    Later kernel axes of dW are one axis. It is computed as dW^T = columns dZ^T: the
    same sums, but BLAS need not transpose the larger matrix. A, `windows` and `groups`
    are those of `convolve`.
    """
    if not row_by_row(windows, dZ.shape):
        return correlate(dZ[:, None], A[:, None], windows.as_one_row(), groups)
    dZ_by_group = by_group(dZ, groups)
    dW_transposed: Any = 0
    for here, columns in columns_by_row(A, windows, groups, dZ.shape, np.result_type(dZ, A)):
        dZ_by_row = by_row(dZ_by_group[..., here], columns)
        for y, part in np.ndindex(columns.shape[1:3]):
            dW_transposed += columns[:, y, part] @ dZ_by_row[:, y, part].swapaxes(1, 2)
    dW = dW_transposed.swapaxes(1, 2).reshape(len(dZ), windows.kernel_size[0], len(A) // groups, -1)
    return dW.swapaxes(1, 2)


def row_by_row(windows: Windows, shape: Shape) -> bool:
    """Tell whether each row of `windows` gets its own product; `shape` is that of Z.

    Its rows of A must be consecutive, and its columns many. If not, all windows become
    one row: an axis of length 1 is put in front, and A is unfolded along all its axes.
    """
    return windows.dilation[0] == 1 and (shape[1] == 1 or math.prod(shape[2:]) >= LEAST_COLUMNS)


def columns_by_row(
    A: np.ndarray, windows: Windows, groups: int, shape: Shape, dtype: np.dtype
) -> Iterator[tuple]:
    """Yield (slice of the flattened Z, columns) for each band of rows of windows.

    A, `windows` and `groups` are the arguments of `convolve`, `shape` is the shape of Z,
    and `dtype` the columns' dtype. The columns are overlapping views (groups, rows,
    parts of a row, kernel_size[0] * C / groups * ..., columns of a part).
    """
    A_by_group = A.reshape(groups, -1, *A.shape[1:])
    height, stride = windows.kernel_size[0], windows.stride[0]
    for box, here, rows in bands_of_rows(len(A), windows, groups, shape, dtype, like=A):
        windows.unfold(A_by_group, box, rows)
        n_columns = math.prod(sizes(box)[1:])
        n_numbers = rows[0, 0].size // n_columns  # entries of a column in one row
        n_parts = parts_of_a_row(n_columns, shape[0] // groups * height * n_numbers)
        parts = rows.reshape(*rows.shape[:2], n_numbers, n_parts, -1)
        columns = sliding_window_view(parts, height, axis=1)[:, ::stride].transpose(0, 1, 3, 5, 2, 4)
        yield here, columns.reshape(*columns.shape[:3], -1, columns.shape[-1])


def bands_of_rows(
    n_channels: int, windows: Windows, groups: int, shape: Shape, dtype: np.dtype, like: np.ndarray
) -> Iterator[tuple]:
    """Yield (box, slice of the flattened Z, buffer for `unfold`) for each band.

    The buffer for `n_channels` channels is the same memory each time, of the type of
    `like`, see `minipipe.meta`. `windows`, `groups`, `shape` and `dtype` are those of
    `columns_by_row`.
    """
    height, stride, widths = windows.kernel_size[0], windows.stride[0], windows.kernel_size[1:]
    memory = np.empty(0, dtype, like=like)
    for box, here in bands(shape[1:], n_channels * math.prod(widths) * dtype.itemsize, height, stride):
        n, *others = sizes(box)
        shape_of_rows = groups, (n - 1) * stride + height, n_channels // groups, *widths, *others
        size = math.prod(shape_of_rows)
        if memory.size < size:  # once, since the first band is the largest
            memory = np.empty(size, dtype, like=like)
        yield box, here, memory[:size].reshape(shape_of_rows)


def parts_of_a_row(n_columns: int, n_multiplications: int) -> int:
    """Return into how many equal parts to cut a row, so that products are small.

    The row has `n_columns`, with `n_multiplications` for each.

    >>> parts_of_a_row(7168, 6 * 25), parts_of_a_row(1024, 64 * 576)
    (2, 1)
    """
    for n_parts in range(-(-n_columns * n_multiplications // SMALL_PRODUCT), n_columns // LEAST_PART + 1):
        if n_columns % n_parts == 0:
            return n_parts
    return 1


def reversed_kernel(W: np.ndarray, groups: int) -> np.ndarray:
    """Return W as (C, O / groups, *kernel_size), with each kernel axis reversed.

    `groups` is the number of groups of channels.
    """
    R = np.flip(W, axis=tuple(range(2, W.ndim)))
    R = R.reshape(groups, -1, *W.shape[1:]).swapaxes(1, 2)
    return R.reshape(-1, *R.shape[2:])


def rows_first(W: np.ndarray) -> np.ndarray:
    """Return W as (O, kernel_size[0], C / groups, ...): the order within a column."""
    return W.reshape(*W.shape[:3], -1).swapaxes(1, 2)


def by_group(array: np.ndarray, groups: int) -> np.ndarray:
    """Return a contiguous `array` as (groups, channels of a group, rest), a view."""
    return array.reshape(groups, len(array) // groups, -1)


def by_row(Z_by_group: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Return `Z_by_group` like `columns`: (groups, rows, parts, channels, columns)."""
    return np.moveaxis(Z_by_group.reshape(*Z_by_group.shape[:2], *columns.shape[1:3], -1), 1, 3)
