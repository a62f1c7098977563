"""The mini-batches of several passes over the data, in one line."""

from itertools import count, islice

import numpy as np

from ..arguments import argument
from ..arrays import even_slices, real_numbers
from ..training import shuffled


def mini_batches(X, Y, batch_size, n, seed=0):
    """The first n mini-batches of one pass over the samples after the other: a list of (X, Y).

    X, Y: (n[0], m) and (n[L], m).
    batch_size: the most samples of each; those of a pass are as equal as can be.
    n: how many.
    seed: each pass is shuffled as by `fit`, so that `fit` meets the same mini-batches in the same order.

    >>> X = np.arange(4.0).reshape(1, 4)
    >>> [part.tolist() for part, _ in mini_batches(X, X, batch_size=2, n=3)]
    [[[3.0, 0.0]], [[2.0, 1.0]], [[2.0, 1.0]]]
    """
    X, Y = real_numbers("X", X), real_numbers("Y", Y)
    if not X.shape or X.shape[-1:] != Y.shape[-1:] or not X.shape[-1]:
        raise ValueError(
            f"X of shape {X.shape} and Y of shape {Y.shape}: give both "
            "the same samples, at least 1, as their last axis"
        )
    m, batch_size = X.shape[-1], argument("batch_size", batch_size)
    n, seed = argument("mini_batches.n", n), argument("seed", seed)
    parts = even_slices(m, -(-m // batch_size))
    line = ((shuffled(m, seed, epoch), part) for epoch in count(1) for part in parts)
    chosen = (order[part] for order, part in islice(line, n))
    return [(np.take(X, at, axis=-1), np.take(Y, at, axis=-1)) for at in chosen]
