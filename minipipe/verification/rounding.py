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
"""

from dataclasses import dataclass

import numpy as np

from ..checks import listed, real_numbers, shown
from ..functions import sigmoid
from ..layers import Linear, ReLU, Sigmoid, Tanh
from ..losses import BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from ..blas import computing

FUNCTION = 8  # error of exp, log, log1p and tanh, in units of u


@dataclass(frozen=True)
class Bounds:
    """Bounds on the rounding errors of one evaluation, for J and, per layer, for `(dW, db)`."""

    J: float
    gradients: list


def rounding_bounds(layers, loss, X, Y):
    """`Bounds` for the mini-batch X, Y through `layers`.

    layers: they must have their parameters, and be of the kinds in `FORWARD`; others raise `ValueError`.
    loss: one of the three.
    X: (n[0], m), float32 or float64.
    Y: (n[L], m).

    Where rounding could move a ReLU's input across 0, the slope there counts as unknown, and the bound
    is large.
    """
    if type(loss) not in LOSSES:
        raise ValueError(f"no rounding bound is derived for loss={shown(loss)}")
    layers, X, Y = listed("layers", layers), real_numbers("X", X), real_numbers("Y", Y)
    if X.ndim != 2 or Y.ndim != 2:
        raise ValueError(f"X and Y have {X.ndim} and {Y.ndim} axes: bounds are derived for (n, m)")
    known = ", ".join(kind.__name__ for kind in FORWARD)
    for layer in layers:
        if type(layer) not in FORWARD:
            raise ValueError(
                f"no rounding bound is derived for {layer!r}: there is one for {known}; "
                "compare in rational numbers with equals_full_batch instead"
            )
    if X.dtype not in (np.float32, np.float64):
        raise ValueError(f"rounding bounds are derived for float32 and float64, not for {X.dtype}")
    # what overflows here is a bound that is not finite, and refused below
    with computing(), np.errstate(all="ignore"):
        bounds = _bounds(layers, loss, X, Y, _Gamma(X.dtype))
    everything = [bounds.J, *(part for pair in bounds.gradients for part in pair if part is not None)]
    if not all(np.isfinite(part).all() for part in everything):
        raise ValueError(
            "rounding could change this result by any amount, so there is no finite bound: "
            "a probability is 0 or 1 to the last place, or numbers overflow; use logits, or smaller numbers"
        )
    return bounds


def _bounds(layers, loss, X, Y, gamma):
    layers = [layer.copy() for layer in layers]
    values, errors = [X], [np.zeros(X.shape)]
    for layer in layers:
        values.append(layer.forward(values[-1]))
        errors.append(FORWARD[type(layer)](layer, *_double(values[-2], errors[-1], values[-1]), gamma))
    Y = Y.astype(X.dtype)
    loss.forward(values[-1], Y)
    dA = loss.backward()
    loss.cache = None
    J_error, E = LOSSES[type(loss)](loss, *_double(values[-1], errors[-1], Y), X.shape[-1], gamma)
    gradients = [(None, None)] * len(layers)
    for index in reversed(range(len(layers))):
        layer = layers[index]
        D, A_prev, A = _double(dA, values[index], values[index + 1])
        if isinstance(layer, Linear):
            gradients[index] = _weight_errors(D, E, A_prev, errors[index], gamma)
            E = abs(layer.W).T @ E + gamma(layer.n) * abs(layer.W).T @ (abs(D) + 2 * E)
        else:
            slope, slope_error = SLOPES[type(layer)](A_prev, errors[index], A, errors[index + 1], gamma.u)
            rounding = gamma(2) * (abs(D) + 2 * E) * (slope + 2 * slope_error)
            E = E * (slope + 2 * slope_error) + (abs(D) + E) * slope_error + rounding
        dA = layer.backward_input(dA)
    return Bounds(float(J_error), gradients)


class _Gamma:
    def __init__(self, dtype):
        self.u = float(np.finfo(dtype).eps) / 2

    def __call__(self, n):
        return n * self.u / (1 - n * self.u)


def _double(*arrays):
    return [np.asarray(array, np.float64) for array in arrays]


def _linear(layer, A_prev, E, Z, gamma):
    W, b = _double(abs(layer.W), abs(layer.b))
    return W @ E + gamma(layer.n_prev + 1) * (W @ (abs(A_prev) + 2 * E) + b)


def _weight_errors(D, E_D, A, E_A, gamma):
    """dW = D A^T and db = row sums of D, sums over the m samples."""
    D, A = abs(D), abs(A)
    rounding = gamma(D.shape[1] + 1)
    dW = E_D @ (A + 2 * E_A).T + (D + E_D) @ E_A.T + rounding * (D + 2 * E_D) @ (A + 2 * E_A).T
    db = (E_D + rounding * (D + 2 * E_D)).sum(axis=1, keepdims=True)
    return dW, db


FORWARD = {  # (layer, A_prev, its error, A, gamma) -> error of A
    Linear: _linear,
    ReLU: lambda layer, Z, E, A, gamma: E,                                               # |relu'| <= 1
    # |tanh'| <= 1, |A| <= 1
    Tanh: lambda layer, Z, E, A, gamma: E + FUNCTION * gamma.u,
    Sigmoid: lambda layer, Z, E, A, gamma: _sigmoid_error(A, E, gamma),
}


def _sigmoid_error(A, E, gamma):
    """sigmoid' is at most 1/4, and sigmoid(z + e) at most e^|e| sigmoid(z)."""
    moved = np.minimum(E / 4, A * np.expm1(E))
    return moved + gamma(2 * FUNCTION + 4) * (A + 2 * moved)


SLOPES = {  # (Z, its error, A, its error, u) -> slope, its error
    ReLU: lambda Z, E_Z, A, E, u: ((Z > 0) * 1.0, (abs(Z) <= 2 * E_Z) * 1.0),
    Tanh: lambda Z, E_Z, A, E, u: (1 - A * A, 2 * E + 3 * u),                            # |(1 - a^2)'| <= 2
    Sigmoid: lambda Z, E_Z, A, E, u: (A * (1 - A), E + 3 * u),                           # |(a - a^2)'| <= 1
}


def _mean_squared_error(loss, A, E, Y, m, gamma):
    error = abs(A - Y)
    J = ((2 * error + 3 * E) * E + gamma(A.size + 4) * (error + 2 * E) ** 2).sum() / (2 * m)
    return J, (E + gamma(2) * (error + 2 * E)) / m


def _softmax_cross_entropy(loss, Z, E, Y, m, gamma):
    """With every logit of a column off by at most delta, each P moves by a factor within e^(+-2 delta)."""
    shifted = Z - Z.max(axis=0)
    P = np.exp(shifted) / np.exp(shifted).sum(axis=0)
    delta = E.max(axis=0) + gamma.u * (abs(shifted).max(axis=0) + 4 * E.max(axis=0))
    # relative; twice, since |log(1 - x)| <= 2 x for x <= 1/2
    of_total = 2 * (gamma(FUNCTION) + gamma(len(Z)))
    E_P = P * np.exp(2 * E.max(axis=0)) * np.expm1(2 * delta + of_total + gamma(FUNCTION + 2))
    log_total = np.log(np.exp(shifted).sum(axis=0))
    cost = log_total + (Y * abs(shifted)).sum(axis=0)
    moved = 2 * delta + of_total
    of_cost = moved + gamma(FUNCTION + 2 + len(Z) + 1) * (cost + 2 * moved)
    J = (of_cost + gamma(m + 1) * (cost + 2 * of_cost)).sum() / m
    return J, (E_P + gamma(2) * (abs(P - Y) + 2 * E_P)) / m


def _binary_cross_entropy(loss, A, E, Y, m, gamma):
    u = gamma.u
    if loss.from_logits:
        s = sigmoid(A)
        E_s = _sigmoid_error(s, E, gamma)
        size = 2 * abs(A) + 1
        per_term = E + gamma(2 * FUNCTION + 4) * (size + 4 * E)
        dA = (E_s + gamma(2) * (abs(s - Y) + 2 * E_s)) / m
    else:
        a, not_a = np.maximum(A - 2 * E, 0), np.maximum(1 - A - 2 * E - u, 0)  # the least that they can be
        of_a = np.where(Y > 0, Y * (E / a), 0) + np.where(Y < 1, (1 - Y) * ((E + u) / not_a), 0)
        size = np.where(Y > 0, -Y * np.log(a), 0) + np.where(Y < 1, -(1 - Y) * np.log(not_a), 0)
        reciprocal = np.where(Y > 0, Y / a, 0) + np.where(Y < 1, (1 - Y) / not_a, 0)
        of_reciprocal = np.where(Y > 0, Y * E / a**2, 0) + np.where(Y < 1, (1 - Y) * (E + u) / not_a**2, 0)
        per_term = of_a + gamma(FUNCTION + 4) * (size + 2 * of_a)
        dA = (of_reciprocal + gamma(5) * (reciprocal + 2 * of_reciprocal)) / m
    J = (per_term + gamma(A.size + 1) * (size + 2 * per_term)).sum() / m
    return J, dA


LOSSES = {  # (loss, A, its error, Y, m, gamma) -> error of J, error of dA
    MeanSquaredError: _mean_squared_error,
    SoftmaxCrossEntropy: _softmax_cross_entropy,
    BinaryCrossEntropy: _binary_cross_entropy,
}
