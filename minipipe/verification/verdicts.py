"""Compare a pipeline with its reference: exactly, or how far floats are from it.

J and every gradient are compared, never sums or norms. Each function runs the
`Parallel` `pipe` on the mini-batch X, Y; `pipe.trace` is then the trace of this run.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays import computing, even_slices, grains_of, leaves, sum_in_order
from ..layers import every_layer
from ..layers.through import backward_through, forward_through, prepare_forward
from ..network import Network, Sequential
from ..parallel import Parallel, Pipeline


def equals_full_batch(pipe: Parallel, X: np.ndarray, Y: np.ndarray) -> bool:
    """Tell whether J, dW and db of `pipe` on X, Y are `==` to one full-width batch.

    Must hold for rational numbers, and for floats with so few bits that no operation
    rounds, but not with BatchNorm, which takes statistics over micro-batches.
    """
    return first_difference(*against_full_batch(pipe, X, Y)) is None


def against_full_batch(pipe: Parallel, X: np.ndarray, Y: np.ndarray) -> tuple[tuple, tuple]:
    """Return (J, gradients) of `pipe` on X, Y, and those of one full-width batch."""
    reference = _run(_like(pipe, Sequential(pipe.layers, pipe.loss)), X, Y)
    return _run(pipe, X, Y), reference


def equals_same_groups(pipe: Parallel, X: np.ndarray, Y: np.ndarray) -> bool:
    """Tell whether J, dW, db of `pipe` on X, Y are `==` to a loop over micro-batches.

    The loop has no stages, schedule or recomputation; with a `grain`, it runs over the
    grains. Must hold where `equals_full_batch` must, and with BatchNorm.
    """
    return first_difference(*against_same_groups(pipe, X, Y)) is None


def against_same_groups(pipe: Parallel, X: np.ndarray, Y: np.ndarray) -> tuple[tuple, tuple]:
    """Return (J, gradients) of `pipe` on X, Y, and of a loop over its micro-batches."""
    X, Y = pipe.checked_batch(X, Y)
    reference = _like(pipe, Sequential(pipe.layers, pipe.loss))
    layers, m, of_parts = reference.layers, X.shape[-1], []
    J: Any = 0
    loss: Any = pipe.loss
    with computing():
        for part in even_slices(m, pipe.n_microbatches) if pipe.grain is None else grains_of(m, pipe.grain):
            prepare_forward(every_layer(layers), training=True, step=pipe.n_steps, first_sample=part.start)
            J = J + loss.forward(forward_through(layers, X[..., part], {}), Y[..., part], m)
            _, gradients = backward_through(layers, loss.backward(), {})
            of_parts.append([leaves(pair) for pair in gradients])
    loss.cache = None
    sums = [[sum_in_order(terms) for terms in zip(*of_layer)] for of_layer in zip(*of_parts)]
    for indices in reference.ties.values():
        total = sum_in_order(sums[index][0] for index in indices)
        for index in indices:
            sums[index][0] = total
    return _run(pipe, X, Y), (J, sums)


def same_bits(pipe: Parallel, X: np.ndarray, Y: np.ndarray) -> bool:
    """Tell whether `pipe` on X, Y has the bits of one device with its micro-batches.

    Must hold for any floats, with the same number of BLAS threads (see
    `minipipe.arrays.blas_threads`). With a `grain`, the reference is `Sequential` with
    that grain.
    """
    return first_difference(*against_one_device(pipe, X, Y)) is None


def against_one_device(pipe: Parallel, X: np.ndarray, Y: np.ndarray) -> tuple[tuple, tuple]:
    """Return (J, gradients) of `pipe` on X, Y, and those of one device."""
    loss: Any = pipe.loss
    one_device: Network
    if pipe.grain is None:
        one_device = Pipeline(pipe.layers, loss, 1, pipe.n_microbatches, schedule="gpipe")
    else:
        one_device = Sequential(pipe.layers, loss, grain=pipe.grain)
    reference = _run(_like(pipe, one_device), X, Y)
    return _run(pipe, X, Y), reference


def first_difference(run: tuple, reference: tuple, exact: bool = True) -> str | None:
    """Return the first difference between two (J, gradients) in words, or None.

    Args:
        run, reference: the two pairs.
        exact: whether equal means `==`; if not, floats may differ by 1e-9 of the
            largest entry.
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
            wanted = f"{expected.shape} of {expected.dtype}"
            return f"{name} has shape {found.shape} of {found.dtype}, expected {wanted}"
        if not are_equal(found, expected, exact):
            at = np.unravel_index(np.argmax(found != expected), found.shape)
            return f"{name} differs: found {found[at]}, expected {expected[at]}"
    return None


def are_equal(found: np.ndarray, expected: np.ndarray, exact: bool = True) -> bool:
    """Tell whether `found` equals `expected`; `exact` as for `first_difference`."""
    if np.array_equal(found, expected):
        return True
    if exact or found.shape != expected.shape:
        return False
    return bool((abs(found - expected) <= 1e-9 * (1 + float(abs(expected).max(initial=0)))).all())


def last_places_apart(pipe: Parallel, X: np.ndarray, Y: np.ndarray) -> float:
    """Return how far `pipe` on X, Y is from one full-width batch, in last places.

    It is the largest difference in any array, in units of the distance from the largest
    entry of the array to the next float. It has no bound: floats are added in another
    order.

    >>> import numpy as np
    >>> from minipipe import Linear, MeanSquaredError
    >>> pipe = Pipeline([Linear(1, 1, W=[[1.0]])], MeanSquaredError(), 1, 2)
    >>> last_places_apart(pipe, np.array([[0.5, 0.25]]), np.array([[1.0, 0.0]]))
    0.0
    """
    (J, gradients), (J_full, of_full) = against_full_batch(pipe, X, Y)
    pairs = [(np.asarray(J), np.asarray(J_full)), *zip(leaves(gradients), leaves(of_full), strict=True)]
    return max(float(abs(mine - theirs).max() / np.spacing(abs(theirs).max())) for mine, theirs in pairs)


def _like(pipe, network):
    """Return `network` with the step and masks of `pipe`, and no recomputation."""
    network.n_steps = pipe.n_steps
    for layer in every_layer(network.layers):
        if layer.recomputes:
            layer.recomputes = False
    return network


def _run(model, X, Y):
    return model.forward_backward(X, Y), model.gradients
