"""How far rounding can move J, dW and db: bounds derived operation by operation, not guessed.

Notation: u is half the distance from 1 to the next float, gamma(n) = n u / (1 - n u). A sum of n products,
added up in any order and grouping, is off by at most gamma(n) times the sum of their absolute values (Higham,
Accuracy and Stability of Numerical Algorithms, 2002, section 3.1); fused multiply-adds only lower that.
So one bound holds for a full-width product and for the micro-batches' products merged along a tree.

For each array A the code carries an array E of the same shape, such that |computed - true| <= E for *every*
order of evaluation. Two evaluations therefore differ by at most 2 E. The A at hand is itself one evaluation,
so the true value is at most |A| + E in size, and that of any evaluation at most |A| + 2 E. The elementary
functions of NumPy are taken to be right to 4 units in the last place, 8u, as its own test suite demands.
Underflow is left out: results are taken to be zero or normal floats.

A layer says in `errors(A_prev, E, A, gamma)` what becomes of the E of its A_prev. It returns the E of its A,
and a function that makes of the derivative by A, and its E, those of dA_prev and of (dW, db). A loss returns
in `errors(A, E, Y, gamma)` the bounds of J and of dA.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..checks import listed, shown
from ..blas import computing
from ..arrays import real_numbers
from ..layers import LAYERS, Layer
from ..losses import Loss
from ..parallel.proved import is_stated


@dataclass(frozen=True)
class Bounds:
    """Bounds on the rounding errors of one evaluation, for J and, per layer, for `(dW, db)`."""

    J: float
    gradients: list


def rounding_bounds(layers: Iterable[Layer], loss: Loss, X: ArrayLike, Y: ArrayLike) -> Bounds:
    """`Bounds` for the mini-batch X, Y through `layers`.

    layers: they must have their parameters, and each a bound of its own, `errors`; others raise `ValueError`.
    loss: one that has a bound, too.
    X: (n[0], m), float32 or float64.
    Y: (n[L], m).

    Where rounding could move a ReLU's input across 0, the slope there counts as unknown, and the bound
    is large.
    """
    if not isinstance(loss, Loss) or not has_bound(loss):
        raise ValueError(f"no rounding bound is derived for loss={shown(loss)}")
    layers, X, Y = listed("layers", layers), real_numbers("X", X), real_numbers("Y", Y)
    if X.ndim != 2 or Y.ndim != 2:
        raise ValueError(f"X and Y have {X.ndim} and {Y.ndim} axes: bounds are derived for (n, m)")
    known = ", ".join(name for name, kind in LAYERS.items() if kind.errors is not None)
    for layer in layers:
        if not has_bound(layer):
            raise ValueError(
                f"no rounding bound is derived for {layer!r}: there is one for {known}; "
                "compare in rational numbers with equals_full_batch instead"
            )
    if X.dtype not in (np.float32, np.float64):
        raise ValueError(f"rounding bounds are derived for float32 and float64, not for {X.dtype}")
    # what overflows here is a bound that is not finite, and refused below
    with computing(), np.errstate(all="ignore"):
        bounds = _bounds(layers, loss, X, Y, Gamma(X.dtype))
    everything = [bounds.J, *(part for pair in bounds.gradients for part in pair if part is not None)]
    if not all(np.isfinite(part).all() for part in everything):
        raise ValueError(
            "rounding could change this result by any amount, so there is no finite bound: "
            "a probability is 0 or 1 to the last place, or numbers overflow; use logits, or smaller numbers"
        )
    return bounds


def has_bound(one: Layer | Loss) -> bool:
    """Tell whether a layer or a loss says how far rounding can move what it computes."""
    return getattr(one, "errors", None) is not None and is_stated(type(one), "errors")


def _bounds(layers, loss, X, Y, gamma):
    layers, A, E, backwards = [layer.copy() for layer in layers], X, np.zeros(X.shape), []
    for layer in layers:
        A_prev, A = A, layer.forward(A)
        E, backward = layer.errors(*_double(A_prev, E, A), gamma)
        backwards.append(backward)
    Y = Y.astype(X.dtype)
    loss.forward(A, Y)
    dA = loss.backward()
    loss.cache = None
    E_J, E = loss.errors(*_double(A, E, Y), gamma)
    gradients = []
    for layer, backward in zip(reversed(layers), reversed(backwards), strict=True):
        E, pair = backward(*_double(dA, E))
        gradients.append(pair)
        dA = layer.backward_input(dA)
    return Bounds(float(E_J), gradients[::-1])


class Gamma:
    """gamma(n) = n u / (1 - n u), with the u of a dtype. FUNCTION: the error of exp, log and tanh, in u."""

    FUNCTION = 8

    def __init__(self, dtype: np.dtype) -> None:
        self.u = float(np.finfo(dtype).eps) / 2

    def __call__(self, n: int) -> float:
        return n * self.u / (1 - n * self.u)


def _double(*arrays):
    return [np.asarray(array, np.float64) for array in arrays]
