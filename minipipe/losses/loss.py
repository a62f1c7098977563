"""The base of all losses, and where 1/m comes from; the squared error is the model.

J = 1/m sum of L(a, y) over the m samples of the *whole* mini-batch. A micro-batch
passes fewer columns than m but divides by the same m, so J = J_1 + J_2 + ... and dW =
dW_1 + dW_2 + ... over micro-batches, whatever their sizes.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..checks import Number, shown, to_be_written, whole_number, without_return
from ..arrays import is_finite, real_numbers
from ..registry import AsCode, Examples, Registry

LOSSES = Registry("minipipe.losses", Examples)  # examples: (loss, "numbers", "classes" or "bits" as labels)


class Loss(AsCode):
    """A cost of predictions `A` (n, m) against labels `Y` of the same shape.

        forward(A, Y, m)  -> J     this micro-batch's part of the cost, divided by m
        backward()        -> dA    the gradient with respect to A, with the factor 1/m

    `m` is the size of the whole mini-batch; left out, it is the number of columns of
    `A`. `cache` is the one value that `backward` needs. Both results have the dtype of
    `A`. `forward` raises `ValueError` if the shapes differ, and for labels that do not
    fit this cost. A class writes `cost` and `derivative`.
    """

    cache: Any = None
    takes: str = "numbers"    # or "probabilities", predictions between 0 and 1
    exchanges: tuple[bool, bool] = False, False  # whether forward, backward are programs, see `Exchange`

    def forward(self, A: ArrayLike, Y: ArrayLike, m: int | None = None) -> Number:
        """Return J = 1/m sum of L(a, y) over these samples, and fill `cache`.

        `A` are the predictions (n, ..., samples), `Y` the labels in the same shape; `m`
        is the number of samples in the whole mini-batch, by default those of A.
        """
        A, Y = _as_numbers("A", A), _as_numbers("Y", Y)
        m = A.shape[-1] if m is None else whole_number("m", m, 1)
        if A.shape != Y.shape:
            raise ValueError(self._shape_message(A.shape, Y.shape, m))
        if A.dtype.kind in "iub":
            A = A.astype(np.float64)
        if Y.dtype == object:
            Y = real_numbers("Y", Y)
        self.check(Y)
        J = self.cost(A, Y.astype(A.dtype, copy=False), m)
        if J is None:
            raise without_return(self, "cost", "J")
        return J

    def backward(self) -> np.ndarray:
        """Return dA = dJ/dA, in the shape of A; the factor 1/m is in it."""
        if self.cache is None:
            raise RuntimeError(f"{self!r}: backward needs the cache of a forward: call forward(A, Y) first")
        dA = self.derivative(*self.cache)
        if dA is None:
            raise without_return(self, "derivative", "dA")
        return dA

    def cost(self, A: np.ndarray, Y: np.ndarray, m: int) -> Number:
        """Return J of A, Y and m; set `cache` to the arguments of `derivative`."""
        raise to_be_written(self, "Loss", "cost(self, A, Y, m)", "J, and leaves self.cache")

    def derivative(self, *cache: Any) -> np.ndarray:
        """Return dA from the entries of `cache`."""
        raise to_be_written(self, "Loss", "derivative(self, *cache)", "dA")

    def part(self, n_classes: int) -> Loss | None:
        """Return this loss for `n_classes` that are split over devices, or None."""
        return None

    def check(self, Y: np.ndarray) -> None:
        """Raise `ValueError` for labels `Y` that do not fit this cost."""
        if not is_finite(Y):
            raise ValueError(f"{self!r}: the labels hold NaN or infinity: clean the data first")

    def _shape_message(self, shape, shape_of_labels, m):
        if shape[-1] == shape_of_labels[-1]:  # perhaps a micro-batch, but the user has passed m samples
            shape, shape_of_labels = (*shape[:-1], m), (*shape_of_labels[:-1], m)
        message = f"{self!r}: the labels have shape {shape_of_labels}, but the predictions have {shape}: "
        if len(shape_of_labels) == 1 and shape[0] == 1:
            return message + "make them one row with Y.reshape(1, -1)"
        if len(shape_of_labels) == 1:
            one_hot = f"minipipe.one_hot(labels, n_classes={shape[0]})"
            return message + f"turn class numbers into columns with {one_hot}"
        return message + "one column of labels for each sample, one row for each output"


@LOSSES(examples=lambda: [(MeanSquaredError(), "numbers")])
class MeanSquaredError(Loss):
    """J = 1/(2m) sum_k ||a_k - y_k||^2,  dA = (A - Y) / m.

    The half cancels the 2 of the derivative. Source: Gauss 1809.

    >>> loss = MeanSquaredError()
    >>> loss.forward(np.array([[1.0, 3.0]]), np.array([[0.0, 1.0]]))      # (1 + 4) / (2 * 2)
    np.float64(1.25)
    >>> loss.backward()
    array([[0.5, 1. ]])
    """

    def cost(self, A: np.ndarray, Y: np.ndarray, m: int) -> Number:
        error = A - Y
        self.cache = error, m
        return (error * error).sum() / (2 * m)

    def derivative(self, error: np.ndarray, m: int) -> np.ndarray:
        return error / m


def _as_numbers(name: str, values: Any) -> np.ndarray:
    """Return `values` as an array of numbers; a `MetaArray` stays as it is."""
    ndim = 0 if isinstance(values, (type, np.ma.MaskedArray)) else getattr(values, "ndim", 0)
    if not ndim or values.dtype.kind not in "fiubO":
        values = real_numbers(name, values)
    if not values.ndim:
        raise ValueError(f"{name}={shown(values)} is one number: pass an array of shape (n, m)")
    return values
