"""Does a pipeline equal its reference? Compared for J and for every parameter, never for sums or norms.

Each verdict runs `pipe` on the mini-batch X, Y, so that `pipe.trace` is the trace of the run just judged.
"""

import numpy as np

from ..network import Sequential
from ..pipeline import Pipeline
from .rounding import rounding_bounds


def equals_full_batch(pipe, X, Y):
    """Whether J, dW and db are `==` to those of one full-width batch.

    Must hold for rational numbers, and for floats so small and even that no operation rounds.
    """
    return _equal(_run(pipe, X, Y), _run(Sequential(pipe.layers, pipe.loss), X, Y))


def same_bits(pipe, X, Y):
    """Whether J, dW and db have the same bits as with one stage, GPipe's schedule and no recomputation.

    Must hold for any floats: the same micro-batches, added along the same tree.
    """
    return _equal(_run(pipe, X, Y), _run(Pipeline(pipe.layers, pipe.loss, 1, pipe.n_microbatches), X, Y))


def share_of_bound(pipe, X, Y):
    """The largest difference to one full-width batch, as a share of what rounding can explain.

    Must be at most 1 for any floats: each of the two evaluations is within its bound of the true value. A gradient
    that is not finite has an infinite share. Raises `ValueError` where rounding could change a result by any amount.
    """
    X, Y = pipe.checked_batch(X, Y)
    J, gradients = _run(pipe, X, Y)
    J_full, gradients_full = _run(Sequential(pipe.layers, pipe.loss), X, Y)
    bounds = rounding_bounds(pipe.layers, pipe.loss, X, Y)
    shares = [_share(J, J_full, bounds.J)]
    for pair, pair_full, pair_bound in zip(gradients, gradients_full, bounds.gradients, strict=True):
        shares += [_share(*parts) for parts in zip(pair, pair_full, pair_bound) if parts[0] is not None]
    return max(shares)


def _run(model, X, Y):
    return model.forward_backward(X, Y), model.gradients


def _equal(run, reference):
    """Whether two `(J, gradients)` are equal, and equal in dtype, parameter by parameter."""
    (J, gradients), (J_reference, gradients_reference) = run, reference
    return bool(J == J_reference) and np.asarray(J).dtype == np.asarray(J_reference).dtype and all(
        (mine is None) == (theirs is None)
        and (mine is None or (mine.dtype == theirs.dtype and np.array_equal(mine, theirs)))
        for pair, pair_reference in zip(gradients, gradients_reference, strict=True)
        for mine, theirs in zip(pair, pair_reference, strict=True)
    )


def _share(value, reference, bound):
    difference = abs(np.asarray(value, np.float64) - np.asarray(reference, np.float64))
    limit = np.maximum(2 * np.asarray(bound, np.float64), np.finfo(float).tiny)
    return float(np.max(np.where(np.isfinite(difference), difference / limit, np.inf)))
