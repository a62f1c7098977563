"""Who gets which samples: a line of mini-batches for workers, or some of the samples for each client."""

from itertools import count, islice

import numpy as np

from ..arrays import even_slices, real_numbers
from ..checks import listed, real_number, truth, whole_number
from ..network import checked_inputs
from ..training import shuffled


def mini_batches(X, Y, batch_size, *, n, seed=0):
    """Return the first n mini-batches of one pass over the samples after the other: a list of (X, Y).

    X, Y: (n[0], m) and (n[L], m).
    batch_size: the most samples of each; those of a pass are as equal as can be.
    n: how many mini-batches.
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
    m, batch_size = X.shape[-1], whole_number("batch_size", batch_size, 1)
    n, seed = whole_number("n", n, 1), whole_number("seed", seed, 0)
    parts = even_slices(m, -(-m // batch_size))
    line = ((shuffled(m, seed, epoch), part) for epoch in count(1) for part in parts)
    chosen = (order[part] for order, part in islice(line, n))
    return [(np.take(X, at, axis=-1), np.take(Y, at, axis=-1)) for at in chosen]


def clients_of(X, Y, clients, *, skewed=False, sizes=None, seed=0):
    """Return a list with (X_k, Y_k) for each client; together they have every sample once.

    X: (n[0], m), and Y: (n[L], m), one-hot.
    clients: K, at most m; skewed, at most m / 2.
    skewed: False, and each client has samples of all classes, as they come; True, and the samples are sorted
        by class and cut into 2 K runs, of which each client gets two, so that it knows a class or two, hardly
        more. Source: McMahan et al. 2016, arXiv 1602.05629, section 3.
    sizes: for each client, how many samples it has, in proportion to the others'; left out, as many as all.
    seed: of the order of the samples, and of which client gets which run.

    >>> X, Y = np.arange(8.0).reshape(1, 8), np.repeat(np.eye(4), 2, axis=1)
    >>> [(X_k.shape[-1], Y_k.any(axis=-1).sum()) for X_k, Y_k in clients_of(X, Y, 2, sizes=[1, 3])]
    [(2, np.int64(2)), (6, np.int64(4))]
    >>> [Y_k.any(axis=-1).sum() for _, Y_k in clients_of(X, Y, 2, skewed=True)]
    [np.int64(2), np.int64(2)]
    """
    X, Y = checked_inputs(X), real_numbers("Y", Y)
    m, K = X.shape[-1], whole_number("clients", clients, 1)
    if Y.ndim != 2 or Y.shape[-1] != m:
        raise ValueError(f"Y of shape {Y.shape} for {m} samples: pass one-hot columns, one for each")
    sizes = [1] * K if sizes is None else listed("sizes", sizes)
    if len(sizes) != K:
        raise ValueError(f"sizes has {len(sizes)} numbers for {K} clients: give each one")
    sizes = [real_number(f"sizes[{k}]", size, above=0) for k, size in enumerate(sizes)]
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    order, owners = rng.permutation(m), np.arange(K)
    if truth("skewed", skewed):
        order = order[np.argsort(Y[:, order].argmax(axis=0), kind="stable")]
        owners = rng.permutation(np.repeat(owners, 2))
    ends = np.rint(m * np.cumsum([sizes[k] for k in owners]) / sum(sizes[k] for k in owners)).astype(int)
    runs = np.split(order, ends[:-1])
    of_clients = [np.concatenate([runs[i] for i in np.flatnonzero(owners == k)]) for k in range(K)]
    for k, samples in enumerate(of_clients):
        if not samples.size:
            raise ValueError(
                f"client {k} is without data: {m} samples in {len(runs)} runs for {K} clients; use fewer "
                "clients, or sizes that differ less"
            )
    return [(np.take(X, samples, axis=-1), np.take(Y, samples, axis=-1)) for samples in of_clients]
