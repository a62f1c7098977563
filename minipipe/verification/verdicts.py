"""Does a pipeline equal its reference? Compared for J and for every parameter, never for sums or norms."""

from typing import NamedTuple

import numpy as np

from ..network import Sequential
from ..pipeline import Pipeline
from .rounding import rounding_bounds


class Setting(NamedTuple):
    """One way to run a network: K stages, M micro-batches, a schedule, recomputation or not."""

    n_stages: int
    n_microbatches: int
    schedule: str = "gpipe"
    recompute: bool = False

    def run(self, layers, loss, X, Y):
        """`(J, gradients)` of `layers`, which have their parameters, in a pipeline of this setting."""
        pipe = Pipeline(layers, loss, self.n_stages, self.n_microbatches, self.schedule, self.recompute)
        return pipe.forward_backward(X, Y), pipe.gradients


def equals_full_batch(layers, loss, X, Y, setting):
    """Whether J, dW and db are `==` to those of one full-width batch.

    Must hold for rational numbers, and for floats so small and even that no operation rounds.
    """
    return equal(setting.run(layers, loss, X, Y), _full_batch(layers, loss, X, Y))


def same_bits(layers, loss, X, Y, setting):
    """Whether J, dW and db have the same bits as with one stage, GPipe's schedule and no recomputation.

    Must hold for any floats: the same micro-batches, added along the same tree.
    """
    reference = Setting(1, setting.n_microbatches)
    return equal(setting.run(layers, loss, X, Y), reference.run(layers, loss, X, Y))


def share_of_bound(layers, loss, X, Y, setting):
    """The largest difference to one full-width batch, as a share of what rounding can explain.

    Must be at most 1 for any floats; two evaluations differ by at most twice the bound of each.
    """
    J, gradients = setting.run(layers, loss, X, Y)
    J_full, gradients_full = _full_batch(layers, loss, X, Y)
    bounds = rounding_bounds(layers, loss, X, Y)
    shares = [_share(J, J_full, bounds.J)]
    for pair, pair_full, pair_bound in zip(gradients, gradients_full, bounds.gradients, strict=True):
        shares += [_share(*parts) for parts in zip(pair, pair_full, pair_bound) if parts[0] is not None]
    return max(shares)


def equal(run, reference):
    """Whether two `(J, gradients)` are equal, and equal in dtype, parameter by parameter."""
    (J, gradients), (J_reference, gradients_reference) = run, reference
    return bool(J == J_reference) and all(
        (mine is None) == (theirs is None)
        and (mine is None or (mine.dtype == theirs.dtype and np.array_equal(mine, theirs)))
        for pair, pair_reference in zip(gradients, gradients_reference, strict=True)
        for mine, theirs in zip(pair, pair_reference, strict=True)
    )


def _full_batch(layers, loss, X, Y):
    net = Sequential(layers, loss)
    return net.forward_backward(X, Y), net.gradients


def _share(value, reference, bound):
    difference = abs(np.asarray(value, np.float64) - np.asarray(reference, np.float64))
    limit = 2 * np.asarray(bound, np.float64)
    return float(np.max(np.where(difference == 0, 0, difference / np.where(limit > 0, limit, np.finfo(float).tiny))))
