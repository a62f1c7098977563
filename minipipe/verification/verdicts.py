"""Does a pipeline equal its reference, or differ from it by no more than rounding can explain?

Compared for J and for every parameter, never for sums or norms. Each verdict runs `pipe` on the mini-batch
X, Y, so that `pipe.trace` is the trace of the run just judged.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from ..arguments import argument
from ..arrays import computing, even_slices, grains_of, leaves, real_numbers, sum_in_order
from ..checks import listed, shown
from ..layers import LAYERS, Layer, every_layer
from ..layers.through import backward_through, forward_through, prepare_forward
from ..losses import Loss
from ..network import Sequential
from ..parallel import Pipeline
from ..parallel.proved import is_stated
from ..ties import sum_of_tied


# How far rounding can move J, dW and db: bounds derived operation by operation, not guessed.
#
# Notation: u is half the distance from 1 to the next float, gamma(n) = n u / (1 - n u). A sum of n products,
# added up in any order and grouping, is off by at most gamma(n) times the sum of their absolute values
# (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 3.1); fused multiply-adds only lower
# that. So one bound holds for a full-width product and for the micro-batches' products merged along a tree.
#
# For each array A the code carries an array E of the same shape, such that |computed - true| <= E for *every*
# order of evaluation. Two evaluations therefore differ by at most 2 E. The A at hand is itself one
# evaluation, so the true value is at most |A| + E in size, and that of any evaluation at most |A| + 2 E. The
# elementary functions of NumPy are taken to be right to 4 units in the last place, 8u, as its own test suite
# demands. Underflow is left out: results are taken to be zero or normal floats.
#
# A layer says in `errors(A_prev, E, A, gamma)` what becomes of the E of its A_prev. It returns the E of its
# A, and a function that makes of the derivative by A, and its E, those of dA_prev and of (dW, db). A loss
# returns in `errors(A, E, Y, gamma)` the bounds of J and of dA.

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


# The verdicts.

def equals_full_batch(pipe, X, Y):
    """Whether J, dW and db are `==` to those of one full-width batch.

    Must hold for rational numbers, and for floats so small and even that no operation rounds.
    With BatchNorm it does not hold, because the statistics are those of the micro-batches:
    see `equals_same_groups`.
    """
    return _equal(*against_full_batch(pipe, X, Y))


def against_full_batch(pipe, X, Y):
    """Return (J, gradients) of `pipe` and (J, gradients) of one full-width batch."""
    argument("pipe", pipe)
    reference = _run(_like(pipe, Sequential(pipe.layers, pipe.loss)), X, Y)
    return _run(pipe, X, Y), reference


def equals_same_groups(pipe, X, Y):
    """Whether J, dW and db are `==` to the sums over micro-batches that pass through all layers one by one.

    The reference is a plain loop, without stages, schedule or recomputation; with a `grain`, over the grains.
    Must hold where `equals_full_batch` must, and for networks with BatchNorm, too.
    """
    return _equal(*against_same_groups(pipe, X, Y))


def against_same_groups(pipe, X, Y):
    """Return (J, gradients) of `pipe` and (J, gradients) of a plain loop over its micro-batches or grains."""
    argument("pipe", pipe)
    X, Y = pipe.checked_batch(X, Y)
    reference = _like(pipe, Sequential(pipe.layers, pipe.loss))
    with computing():
        J, of_parts = _part_by_part(pipe, reference.layers, X, Y)
    sums = [[sum_in_order(terms) for terms in zip(*of_layer)] for of_layer in zip(*of_parts)]
    for indices in reference.ties.values():
        total = sum_of_tied([sums[index][0] for index in indices])
        for index in indices:
            sums[index][0] = total
    return _run(pipe, X, Y), (J, sums)


def _part_by_part(pipe, layers, X, Y):
    """J, and for each micro-batch of `pipe` the gradients of the layers."""
    J, of_parts = 0, []
    m = X.shape[-1]
    for part in even_slices(m, pipe.n_microbatches) if pipe.grain is None else grains_of(m, pipe.grain):
        prepare_forward(every_layer(layers), training=True, step=pipe.n_steps, first_sample=part.start)
        J = J + pipe.loss.forward(forward_through(layers, X[..., part], {}), Y[..., part], X.shape[-1])
        _, gradients = backward_through(layers, pipe.loss.backward(), {})
        of_parts.append([leaves(pair) for pair in gradients])
    pipe.loss.cache = None
    return J, of_parts


def same_bits(pipe, X, Y):
    """Whether J, dW and db have the same bits as with one stage, GPipe's schedule and no recomputation.

    Must hold for any floats: the same micro-batches, added along the same tree, with one number of threads in
    BLAS (see `minipipe.blas_threads`). With late W, so has the one stage; with a `grain`, the reference is
    `Sequential` with that grain.
    """
    return _equal(*against_one_device(pipe, X, Y))


def against_one_device(pipe, X, Y):
    """Return (J, gradients) of `pipe` and (J, gradients) of one device with its micro-batches or grains."""
    argument("against_one_device.pipe", pipe)
    if pipe.grain is None:
        schedule = "gpipe-late-w" if "W*" in pipe.schedule.kinds else "gpipe"
        one_device = Pipeline(pipe.layers, pipe.loss, 1, pipe.n_microbatches, schedule)
    else:
        one_device = Sequential(pipe.layers, pipe.loss, grain=pipe.grain)
    reference = _run(_like(pipe, one_device), X, Y)
    return _run(pipe, X, Y), reference


def difference_in_words(run: tuple, reference: tuple, exact: bool = True) -> str | None:
    """Return the first difference between two (J, gradients) in words, or None if they are equal.

    exact: whether equal means `==`; if not, floats may differ by 1e-9 of the largest entry.
    """
    (J, gradients), (J_reference, gradients_reference) = run, reference
    pairs = [("J", np.asarray(J), np.asarray(J_reference))]
    for index, (mine, theirs) in enumerate(zip(gradients, gradients_reference, strict=True)):
        mine, theirs = leaves(mine), leaves(theirs)
        names = ("dW", "db") if len(mine) <= 2 else [f"gradient {k}" for k in range(len(mine))]
        for name, one, other in zip(names, mine, theirs):
            pairs.append((f"{name} of layer {index}", one, other))
    for name, found, expected in pairs:
        if found.shape != expected.shape or found.dtype != expected.dtype:
            expected = f"{expected.shape} of {expected.dtype}"
            return f"{name} has shape {found.shape} of {found.dtype}, expected {expected}"
        equal = np.array_equal(found, expected)
        if not exact and not equal:
            slack = 1e-9 * (1 + float(abs(expected).max(initial=0)))
            equal = bool((abs(found - expected) <= slack).all())
        if not equal:
            index = np.unravel_index(np.argmax(found != expected), found.shape)
            return f"{name} differs: found {found[index]}, expected {expected[index]}"
    return None


def share_of_bound(pipe, X, Y):
    """The largest difference to one full-width batch, as a share of what rounding can explain.

    Must be at most 1 for any floats: each of the two evaluations is within its bound of the true value.
    Raises `ValueError` where rounding could change a result by any amount.
    """
    argument("pipe", pipe)
    X, Y = pipe.checked_batch(X, Y)
    J, gradients = _run(pipe, X, Y)
    J_full, gradients_full = _run(_like(pipe, Sequential(pipe.layers, pipe.loss)), X, Y)
    bounds = rounding_bounds(pipe.layers, pipe.loss, X, Y)
    shares = [_share(J, J_full, bounds.J)]
    shares += map(_share, leaves(gradients), leaves(gradients_full), leaves(bounds.gradients))
    return max(shares)


def _like(pipe, network):
    """`network`, which recomputes nothing, at the same step as `pipe`: what is random in it is the same."""
    network.n_steps = pipe.n_steps
    for layer in every_layer(network.layers):
        if layer.recomputes:
            layer.recomputes = False
    return network


def _run(model, X, Y):
    return model.forward_backward(X, Y), model.gradients


def _equal(run, reference):
    """Whether two `(J, gradients)` are equal, and equal in dtype, parameter by parameter."""
    (J, gradients), (J_reference, gradients_reference) = run, reference
    pairs = [
        (np.asarray(J), np.asarray(J_reference)),
        *zip(leaves(gradients), leaves(gradients_reference), strict=True),
    ]
    return all(mine.dtype == theirs.dtype and np.array_equal(mine, theirs) for mine, theirs in pairs)


def _share(value, reference, bound):
    difference = abs(np.asarray(value, np.float64) - np.asarray(reference, np.float64))
    limit = np.maximum(2 * np.asarray(bound, np.float64), np.finfo(float).tiny)
    return float(np.max(difference / limit))
