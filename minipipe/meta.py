"""Meta arrays: a shape and no values. They show what a computation will need.

Layers compute with a `MetaArray` as with any other array. Each result has the shape,
dtype and bytes of the real one, and is a view of another array if the real one is.
Nothing is computed and no memory is used. PyTorch has such tensors on its device
"meta".
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Callable, Iterable
from functools import cache, cached_property
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin
from numpy.lib.stride_tricks import as_strided, sliding_window_view
from numpy.typing import DTypeLike


class MetaArray(NDArrayOperatorsMixin):
    """An array of `shape` and `dtype` without values.

    `base` is the array whose memory a view uses, or None for an array with its own
    memory, as in NumPy. NumPy's functions return a MetaArray again; a new one is
    C-contiguous. Questions about values are answered so that all checks pass: `all()`
    is True, `any()` is False. Raises `TypeError` if a shape would depend on values, and
    for functions that it does not know.

    >>> A = MetaArray((300, 4), np.float32)
    >>> W = MetaArray((10**6, 300), np.float32)
    >>> W @ A, (W @ A).nbytes
    (MetaArray((1000000, 4), float32), 16000000)
    >>> A[:100].base is A, np.exp(A).base is A
    (True, False)
    """

    def __init__(self, shape: int | Iterable[int], dtype: DTypeLike = np.float64):
        # NumPy's int32 would overflow in products
        self.shape = (shape,) if isinstance(shape, int) else tuple(map(int, shape))
        self.dtype = np.dtype(dtype)
        self.base = None

    @cached_property
    def _layout(self):
        """An array with this shape and strides, to derive views; never read."""
        return _new_layout(self.shape, self.dtype)

    def _view(self, layout):
        view = MetaArray.__new__(MetaArray)
        view.shape, view.dtype, view._layout = layout.shape, layout.dtype, layout
        view.base = self if self.base is None else self.base
        return view

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    nbytes = property(lambda self: self.size * self.dtype.itemsize)
    T = property(lambda self: self.transpose())
    strides = property(lambda self: self._layout.strides)
    flat = property(lambda self: np.zeros(1, self.dtype), doc="One value for all entries.")

    def __len__(self) -> int:
        return self.shape[0]

    def __bool__(self) -> bool:
        raise TypeError(f"whether {self!r} is true depends on values, which it does not have")

    def __repr__(self) -> str:
        return f"MetaArray({self.shape}, {self.dtype})"

    # Views

    def __getitem__(self, key: Any) -> MetaArray:
        key = key if isinstance(key, tuple) else (key,)
        for part in key:
            if isinstance(part, PICKING):
                return self._picked(key)
        return self._view(self._layout[key if Ellipsis in key else (*key, ...)])

    def reshape(self, *shape: Any) -> MetaArray:
        shape = shape[0] if isinstance(shape[0], tuple) else shape
        try:
            return self._view(np.reshape(self._layout, shape, copy=False))
        except ValueError:
            copy = self.copy()
            return copy._view(np.reshape(copy._layout, shape, copy=False))

    def transpose(self, *axes: int) -> MetaArray:
        return self._view(self._layout.transpose(*axes))

    def swapaxes(self, first: int, second: int) -> MetaArray:
        return self._view(self._layout.swapaxes(first, second))

    def ravel(self) -> MetaArray:
        return self.reshape(-1)

    # New arrays

    def copy(self) -> MetaArray:
        return MetaArray(self.shape, self.dtype)

    def astype(self, dtype: DTypeLike, order: str = "K", copy: bool = True) -> MetaArray:
        fits = self.dtype == dtype and (order == "K" or self._layout.flags.c_contiguous)
        return self if fits and not copy else MetaArray(self.shape, dtype)

    def repeat(self, n: int, axis: int) -> MetaArray:
        return MetaArray(_along(self.shape, axis, n * self.shape[axis]), self.dtype)

    def take(self, indices: Any, axis: int) -> MetaArray:
        return MetaArray(_along(self.shape, axis, *np.shape(indices)), self.dtype)

    def _picked(self, key):
        if any(getattr(part, "dtype", None) == np.bool_ for part in key):
            raise TypeError(
                "the shape of A[mask] depends on values, which a MetaArray does not have: use A * mask"
            )
        if len(key) == 1:
            return self.take(*key, axis=0)
        nothing = np.broadcast_to(np.empty((), "V0"), self.shape)  # 0 bytes each
        key = tuple(np.zeros(part.shape, int) if isinstance(part, MetaArray) else part for part in key)
        return MetaArray(nothing[key].shape, self.dtype)

    # Reductions; NumPy asks `__array_ufunc__`, which mypy does not know

    def sum(self, axis: Any = None, keepdims: bool = False) -> MetaArray:
        return np.add.reduce(self, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]

    def max(self, axis: Any = None, keepdims: bool = False) -> MetaArray:
        return np.maximum.reduce(self, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]

    def min(self, axis: Any = None, keepdims: bool = False) -> MetaArray:
        return np.minimum.reduce(self, axis=axis, keepdims=keepdims)  # type: ignore[call-overload]

    def mean(self, axis: Any = None, keepdims: bool = False) -> MetaArray:
        return self.sum(axis, keepdims) / 1

    def all(self) -> bool:
        return True

    def any(self) -> bool:
        return False

    # What NumPy asks

    def __reduce__(self) -> tuple:
        return MetaArray, (self.shape, self.dtype)  # a copy is an array of its own, and nothing is read

    def __setitem__(self, key: Any, value: Any) -> None:
        """Do nothing: there are no values."""

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise TypeError(
            f"{self!r} has a shape but no values: allocate what you write it into with np.zeros_like"
        )

    def __array_ufunc__(
        self, ufunc: np.ufunc, method: str, *inputs: Any, out: Any = None, **options: Any
    ) -> Any:
        if out is not None:
            return out[0]
        if method == "__call__" and ufunc.nout == 1:
            shapes = [getattr(A, "shape", ()) for A in inputs]
            shape = _shape_of_product(*shapes) if ufunc is np.matmul else _broadcast(*shapes)
            return MetaArray(shape, _dtype_of_result(ufunc, *map(_kind, inputs)))
        A = inputs[0]
        if method == "reduce":
            return MetaArray(
                _reduced(A.shape, **options), ufunc.resolve_dtypes((None, A.dtype, None), reduction=True)[-1]
            )
        if method == "reduceat":
            return MetaArray((len(inputs[1]), *A.shape[1:]), A.dtype)
        return NotImplemented

    def __array_function__(self, function: Callable, types: Any, arguments: tuple, options: dict) -> Any:
        if function in VIEWS:
            A, *others = arguments
            return A._view(function(A._layout, *others, **options))
        if function not in FUNCTIONS:
            return NotImplemented
        return FUNCTIONS[function](*arguments, **options)


@cache
def _new_layout(shape, dtype):
    strides = [dtype.itemsize * math.prod(shape[axis + 1:]) for axis in range(len(shape))]
    return as_strided(np.empty((), dtype), shape, strides, writeable=False)


PICKING = MetaArray, np.ndarray, list  # in an index, these make a new array
_broadcast = cache(np.broadcast_shapes)


def _shape_of_product(first, second):
    if min(len(first), len(second)) < 2:
        raise TypeError(
            f"the product of arrays of shapes {first} and {second} is only known for matrices: "
            "reshape to (1, n) or (n, 1)"
        )
    if first[-1] != second[-2]:
        raise ValueError(
            f"matrices of shapes {first} and {second} have no product: "
            f"make {first[-1]} and {second[-2]} equal"
        )
    return *_broadcast(first[:-2], second[:-2]), first[-2], second[-1]


def _kind(A):
    """Return what decides the dtype of a result: A's dtype, or a Python type."""
    return A.dtype if hasattr(A, "dtype") else type(A)


@cache
def _dtype_of_result(ufunc, *kinds):
    return ufunc.resolve_dtypes((*kinds, None))[-1]


def _reduced(shape, axis=0, keepdims=False):
    axes = range(len(shape)) if axis is None else np.atleast_1d(axis).tolist()
    axes = {axis % len(shape) for axis in axes}
    return tuple(1 if axis in axes else n for axis, n in enumerate(shape) if keepdims or axis not in axes)


def _concatenate(arrays, axis=0):
    length = sum(A.shape[axis] for A in arrays)
    return MetaArray(_along(arrays[0].shape, axis, length), np.result_type(*arrays))


def _along(shape, axis, *lengths):
    """Return `shape` with `lengths` in place of the one at `axis`, perhaps below 0."""
    axis = range(len(shape))[axis]
    return *shape[:axis], *lengths, *shape[axis + 1:]


def _clip(A, low, high):
    given = [limit for limit in (A, low, high) if limit is not None]
    return MetaArray(np.broadcast_shapes(*map(np.shape, given)), np.result_type(*given))


# functions whose result is a view
VIEWS = {np.moveaxis, np.swapaxes, np.expand_dims, np.broadcast_to, np.flip, sliding_window_view}
FUNCTIONS: dict[Callable, Callable] = {
    np.shape: lambda A: A.shape,
    np.result_type: lambda *arrays: np.result_type(*(getattr(A, "dtype", A) for A in arrays)),
    np.empty: MetaArray,
    np.arange: lambda n: MetaArray(n, int),
    np.full: lambda shape, value, dtype, order="C", device=None: MetaArray(shape, dtype),
    np.zeros_like: lambda A: A.copy(),
    np.asarray: lambda A, dtype: MetaArray(A.shape, dtype),
    np.ascontiguousarray: lambda A, dtype=None: A.astype(dtype or A.dtype, order="C", copy=False),
    np.where: lambda mask, A, B: MetaArray(
        np.broadcast_shapes(*map(np.shape, (mask, A, B))), np.result_type(A, B)
    ),
    np.clip: _clip,
    np.array_equal: lambda A, B: True,
    np.vdot: lambda A, B: 0.0,
    np.concatenate: _concatenate,
    np.split: lambda A, parts, axis=0: list(map(A._view, np.split(A._layout, parts, axis))),
}
