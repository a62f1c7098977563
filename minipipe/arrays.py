"""Arrays: checks of arguments, small pure functions, and the number of BLAS threads."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
import operator
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from fractions import Fraction
from functools import cache, reduce
from math import inf
from numbers import Real
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from .checks import Number, python_number, shown, whole_number
from .meta import MetaArray

# Type names in signatures of layers and networks
Tree: TypeAlias = Any  # an array, or None, or a tuple or list of trees
Gradients: TypeAlias = tuple[Tree, Tree]  # (dW, db) of a layer
Shape: TypeAlias = tuple[Any, ...]  # the shape of an array, or a pair of shapes for a pair of arrays


def is_finite(array: np.ndarray | tuple) -> bool:
    """Tell whether all entries of an array, or of a tuple of arrays, are finite.

    The sum of squares is finite only if all entries are, and takes one pass. If it
    overflows, the entries are checked one by one.
    """
    if isinstance(array, tuple):
        return all(map(is_finite, array))
    if array.dtype.kind != "f":
        return True
    return bool(np.vdot(array, array) < inf or np.isfinite(array).all())  # NaN < inf is False


def real_numbers(name: str, values: ArrayLike) -> np.ndarray:
    """Return `values` as an array of finite real numbers; errors call it `name`.

    Objects that are plain numbers become float64, unless there is a fraction among
    them.
    """
    if isinstance(values, np.ma.MaskedArray):
        raise ValueError(f"{name} is a masked array, whose mask would be lost: fill it, or leave samples out")
    try:
        array: Any = values if isinstance(values, MetaArray) else np.asarray(values)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"{name}={shown(values)} cannot be turned into an array: {error}") from None
    if array.dtype == object:
        array = _of_objects(name, array)
    if array.dtype.kind not in "fiubO":
        raise ValueError(f"{name} is an array of {array.dtype}: pass real numbers")
    if not is_finite(array):
        bad = np.argwhere(~np.isfinite(array))
        raise ValueError(
            f"{name} holds NaN or infinity in {len(bad)} of {array.size} places, the first at index "
            f"{tuple(bad[0].tolist())}: clean the data first"
        )
    return array


def _of_objects(name, array):
    exact = False
    for index, value in np.ndenumerate(array):
        if not isinstance(value, (Real, np.bool_)) or not -inf < value < inf:
            raise ValueError(f"{name} holds {shown(value)} at index {index}: pass numbers, and finite ones")
        exact = exact or isinstance(value, Fraction)
    try:
        return array if exact else array.astype(np.float64)
    except OverflowError:
        raise ValueError(
            f"{name} holds an integer too large for float64: scale it, or use fractions"
        ) from None


def floats(dtype: DTypeLike) -> np.dtype:
    """Return the `np.dtype` of `dtype`; raise `ValueError` unless it is of floats."""
    found = known_dtype(dtype)
    if found.kind != "f":
        raise ValueError(
            f"dtype={shown(dtype)} must be one of floats, such as np.float32; "
            "for exact numbers, use layer.copy(minipipe.exact.rational)"
        )
    return found


def not_zero_in(dtype: np.dtype, name: str, number: Number) -> None:
    """Raise `ValueError`, with `name`, if `number`, above 0, rounds to 0 in `dtype`."""
    if dtype.kind == "f" and dtype.type(number) == 0:
        raise ValueError(
            f"{name}={number} is 0 in {dtype}: use a larger one, such as {np.finfo(dtype).eps:.0e}"
        )


def as_floats(name: str, numbers: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return `numbers` in `dtype`, unchanged if either dtype is object.

    Args:
        name: the name of the numbers in an error.
        numbers: an array of finite numbers.
        dtype: an `np.dtype` of floats, or object.

    Raises:
        ValueError: for a number that is too large for `dtype`.
    """
    if object in (numbers.dtype, dtype) or numbers.dtype == dtype:
        return numbers
    with np.errstate(over="ignore"):
        found = numbers.astype(dtype)
    if not is_finite(found):
        largest, end = float(abs(numbers).max()), float(np.finfo(dtype).max)
        raise ValueError(
            f"{name} holds {largest:.3g}, but {dtype} ends at {end:.3g}: scale it, or make the network with "
            "dtype='float64'"
        )
    return found


def known_dtype(dtype: DTypeLike) -> np.dtype:
    """Return the `np.dtype` of `dtype`; raise `ValueError` if NumPy knows none."""
    try:
        return np.dtype(dtype)
    except (TypeError, ValueError):
        raise ValueError(f"dtype={shown(dtype)} is not known: use one such as np.float32") from None


def converted(array: np.ndarray, convert: Any) -> np.ndarray:
    """Return `convert(array)` in the shape of `array`.

    A NumPy type `convert` is applied by `astype`: in an older NumPy, np.float64(array)
    of an array with one entry is a number without a shape.
    """
    if isinstance(convert, type) and issubclass(convert, np.generic):
        return array.astype(convert)
    return convert(array)


def array_of_numbers(value: Any) -> np.ndarray:
    """Return `value`, a number or an array of numbers, as an array; refuse others.

    A `MetaArray`, see `minipipe.meta`, is returned unchanged.
    """
    array = value if hasattr(value, "reshape") else np.asarray(value)
    is_row = array.ndim > 0 and not hasattr(value, "shape")  # such as a list
    no_numbers = array.dtype.kind not in "fiubcO" or (
        array.dtype == object and None in map(python_number, array.reshape(-1))
    )
    if is_row or no_numbers:
        raise ValueError(f"{shown(value)} is neither a number nor an array of numbers: send one of them")
    return array


def constant(value: Number, Z: np.ndarray) -> Any:
    """Return the number `value` in a type that keeps the dtype of Z in `value * Z`.

    For floats, that is a Python float. For rational numbers, which refuse floats, it is
    a rational number with exactly this value.

    >>> (np.float32([3.0]) * constant(0.5, np.float32([3.0]))).dtype
    dtype('float32')
    >>> constant(0.5, np.array([Fraction(3)]))
    Fraction(1, 2)
    """
    return Z.flat[0] * 0 + Fraction(value) if Z.dtype == object else float(value)


def masked(numbers: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """Return `numbers` * `mask`; converting the boolean mask first is faster."""
    product = mask.astype(numbers.dtype)
    product *= numbers
    return product


def row_sums(rows: np.ndarray) -> np.ndarray:
    """Return the sums (n, 1) of the rows of a matrix (n, m): db, if `rows` is dZ.

    A matrix product with ones is several times faster than `sum`.
    """
    ones = np.empty((rows.shape[1], 1), rows.dtype, like=rows)  # like: a MetaArray if rows is one
    ones[:] = 1
    return rows @ ones


def sigmoid(Z: np.ndarray) -> np.ndarray:
    """Return 1 / (1 + e^-Z) for any finite Z; no exponential can overflow."""
    share, rest = np.exp(Z * (Z < 0)), np.exp(-abs(Z))
    rest += 1
    share /= rest
    return share


def overflow_refused() -> np.errstate:
    """Return a context without warnings of overflow, for code that raises errors."""
    return np.errstate(over="ignore", invalid="ignore")


def sum_of_squares(array: np.ndarray) -> Number:
    """Return the sum of the squares in `array`: in float64, or exact for fractions."""
    if array.dtype == object:
        return (array * array).sum()
    numbers = array.astype(np.float64, copy=False).ravel()
    return float(np.vdot(numbers, numbers))


def norm(array: np.ndarray) -> Number:
    """Return the root of `sum_of_squares(array)`; raise if it is not finite.

    >>> norm(np.float32([[3.0], [4.0]]))
    5.0
    """
    return root(sum_of_squares(array))


def root(square: Any) -> Number:
    """Return the root of `square`; raise `FloatingPointError` if it is not finite.

    The root of a rational number is exact if it is rational, else rounded once.
    """
    if isinstance(square, Fraction):
        over, under = math.isqrt(square.numerator), math.isqrt(square.denominator)
        exact = type(square)(over, under)
        return exact if exact * exact == square else square.sqrt()  # type: ignore[attr-defined]  # a Rational
    if not math.isfinite(square):
        raise FloatingPointError("the squares of these numbers add up to more than float64 can hold")
    return math.sqrt(square)


def leaves(tree: Tree) -> list:
    """Return the arrays in `tree`, nested tuples and lists, as a list without None.

    >>> leaves((1, (None, 2), [3]))
    [1, 2, 3]
    """
    if tree is None:
        return []
    if not isinstance(tree, (tuple, list)):
        return [tree]
    return [leaf for part in tree for leaf in leaves(part)]


def scaled(tree: Tree, factor: Number) -> Tree:
    """Return `tree`, nested tuples and lists, with each array times `factor`.

    >>> scaled([(1, None), ((2,), 3)], 10)
    [(10, None), ((20,), 30)]
    """
    if isinstance(tree, (tuple, list)):
        return type(tree)(scaled(part, factor) for part in tree)
    return None if tree is None else tree * factor


def sum_in_order(parts: Iterable) -> Tree:
    """Return the sum of the arrays `parts`, from first to last; None counts as 0."""
    parts = [part for part in parts if part is not None]
    return reduce(operator.add, parts) if parts else None


def shape_of(A: Tree) -> Shape:
    """Return the shape of `A`; for a tuple of arrays, the tuple of their shapes."""
    return tuple(map(shape_of, A)) if isinstance(A, tuple) else A.shape


def even_slices(length: int, n_parts: int) -> list[slice]:
    """Return `n_parts` slices of 0..length, whose sizes differ by at most one.

    >>> even_slices(10, 4)
    [slice(0, 3, None), slice(3, 6, None), slice(6, 8, None), slice(8, 10, None)]
    """
    size, longer = divmod(length, n_parts)
    edges = [part * size + min(part, longer) for part in range(n_parts + 1)]
    return [slice(start, stop) for start, stop in zip(edges, edges[1:])]


def own_part(array: np.ndarray, axis: int, rank: int, size: int) -> np.ndarray:
    """Return a copy of part `rank` of `size` even parts of `array` along `axis`.

    >>> own_part(np.arange(10), 0, rank=1, size=4)
    array([3, 4, 5])
    """
    return array[(slice(None),) * axis + (even_slices(array.shape[axis], size)[rank],)].copy()


def grains_of(m: int, grain: int) -> list[slice]:
    """Return slices of `grain` samples of 0..m; the last one may be shorter."""
    return [slice(start, min(start + grain, m)) for start in range(0, m, grain)]


def one_hot(labels: ArrayLike, n_classes: int, dtype: DTypeLike = np.float64) -> np.ndarray:
    """Return Y (n_classes, ..., m): Y[c, ..., k] is 1 where labels[..., k] is c.

    Args:
        labels: (m,) or (..., m), such as (T, m) for sequences: whole numbers in
            0..n_classes-1; `ValueError` is raised for others.
        n_classes: the number of classes.
        dtype: the dtype of Y.

    >>> one_hot([2, 0], n_classes=3)
    array([[0., 1.],
           [0., 0.],
           [1., 0.]])
    >>> one_hot([[2, 0], [1, 1]], n_classes=3).shape
    (3, 2, 2)
    """
    try:
        labels = np.asarray(labels)
    except ValueError as error:  # lists of different lengths
        raise ValueError(f"labels={shown(labels)} is not an array: {error}") from None
    n_classes = whole_number("n_classes", n_classes)
    if labels.ndim < 1 or labels.dtype.kind not in "iu":
        raise ValueError(
            f"labels must be whole numbers of shape (..., m), got shape {labels.shape} of {labels.dtype}"
        )
    if labels.size and not 0 <= labels.min() <= labels.max() < n_classes:
        raise ValueError(
            f"labels run from {labels.min()} to {labels.max()}, "
            f"but n_classes={n_classes} allows 0 to {n_classes - 1}"
        )
    return (np.arange(n_classes).reshape(-1, *labels.ndim * [1]) == labels).astype(known_dtype(dtype))


def accuracy(A: ArrayLike, Y: ArrayLike) -> float:
    """Return the share of positions where A (n, ..., m) and Y are largest in one row.

    A and Y have equal shapes and finite numbers; `ValueError` is raised for others. A
    position is a column of (n, m), or one of the T positions of a sample in (n, T, m).

    >>> accuracy(np.array([[0.2, 0.9], [0.8, 0.1]]), np.array([[1, 1], [0, 0]]))
    0.5
    """
    A, Y = real_numbers("A", A), real_numbers("Y", Y)
    if A.shape != Y.shape or A.ndim < 2 or len(A) < 2:
        raise ValueError(
            "accuracy compares two arrays of the same shape with at least 2 rows, "
            f"got {A.shape} and {Y.shape}: for one output, pass a metric of your own"
        )
    if not A.size:
        raise ValueError(f"accuracy of arrays of shape {A.shape}: pass at least 1 sample")
    return float(np.mean(A.argmax(axis=0) == Y.argmax(axis=0)))


# The number of threads of NumPy's matrix products while minipipe computes: one, unless you set another.
#
# Small products, such as those of a micro-batch, are slower with several threads, above all if other programs
# run. And the low bits of a product depend on the number of threads.

_depth = ContextVar("depth", default=0)  # the number of nested `blas_threads` blocks


@contextmanager
def blas_threads(n: int) -> Iterator[None]:
    """Let NumPy's matrix products, also those of minipipe, use n threads in this block.

    Args:
        n: at least 1.

    Without it, minipipe computes with one thread, and other NumPy code with its own
    setting. So your own loop over layers is only sure to give the bits of a network's
    run inside `blas_threads(1)`. OpenBLAS, MKL and BLIS have one setting for the whole
    process: if several of your threads train at once, put one block around them all.
    Apple's Accelerate has no such setting; there, the block does nothing.

    >>> from minipipe import MeanSquaredError, Linear, Sequential
    >>> with blas_threads(4):           # for products of matrices with thousands of rows
    ...     J = Sequential([Linear(2, 1)], MeanSquaredError()).predict(np.eye(2))
    """
    n = whole_number("n", n, 1)
    with _libraries().limit(limits=n, user_api="blas"):
        depth = _depth.set(_depth.get() + 1)
        try:
            yield
        finally:
            _depth.reset(depth)


def computing() -> AbstractContextManager:
    """Return a context with one BLAS thread, or as many as `blas_threads` around it."""
    return nullcontext() if _depth.get() else blas_threads(1)


@cache
def _libraries():
    """Return the controller of NumPy's BLAS libraries, which takes 1 ms to make."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
