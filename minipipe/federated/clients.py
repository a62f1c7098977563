"""Which client has which samples."""

import numpy as np

from ..arguments import argument
from ..arrays import real_numbers
from ..checks import listed, real_number
from ..network import checked_inputs

SHARDS = 2  # of each client in a skewed split


def clients_of(X, Y, n_clients, skewed=False, sizes=None, seed=0):
    """A list with (X_k, Y_k) for each client; together they have every sample once.

    X: (n[0], m), and Y: (n[L], m), one-hot.
    n_clients: K, at most m; skewed, at most m / 2.
    skewed: False, and each client has samples of all classes, as they come; True, and the samples are sorted
        by class and cut into 2 K runs, of which each client gets two: it knows a class or two, hardly more.
        Source: McMahan et al. 2016, arXiv 1602.05629, section 3.
    sizes: for each client, how many samples it has, in proportion to the others'; left out, as many as all.
    seed: of the order of the samples, and of who gets which run.

    >>> X, Y = np.arange(8.0).reshape(1, 8), np.repeat(np.eye(4), 2, axis=1)
    >>> [(X_k.shape[-1], Y_k.any(axis=-1).sum()) for X_k, Y_k in clients_of(X, Y, 2, sizes=[1, 3])]
    [(2, np.int64(2)), (6, np.int64(4))]
    >>> [Y_k.any(axis=-1).sum() for _, Y_k in clients_of(X, Y, 2, skewed=True)]
    [np.int64(2), np.int64(2)]
    """
    X, Y = checked_inputs(X), real_numbers("Y", Y)
    m, K = X.shape[-1], argument("n_clients", n_clients)
    if Y.ndim != 2 or Y.shape[-1] != m:
        raise ValueError(f"{m} samples but labels of shape {Y.shape}: pass one-hot columns, one for each")
    n_runs = K * (SHARDS if argument("skewed", skewed) else 1)
    sizes = [1] * K if sizes is None else listed("sizes", sizes)
    if len(sizes) != K:
        raise ValueError(f"sizes has {len(sizes)} numbers for {K} clients: give each one")
    sizes = [real_number(f"sizes[{k}]", size, above=0) for k, size in enumerate(sizes)]
    rng = np.random.default_rng(argument("seed", seed))
    order, owners = rng.permutation(m), np.arange(K)
    if skewed:
        order = order[np.argsort(Y[:, order].argmax(axis=0), kind="stable")]
        owners = rng.permutation(np.repeat(owners, SHARDS))
    ends = np.rint(m * np.cumsum([sizes[k] for k in owners]) / sum(sizes[k] for k in owners)).astype(int)
    runs = np.split(order, ends[:-1])
    of_clients = [np.concatenate([runs[i] for i in np.flatnonzero(owners == k)]) for k in range(K)]
    for k, samples in enumerate(of_clients):
        if not samples.size:
            raise ValueError(
                f"client {k} is without data: {m} samples in {n_runs} runs for {K} clients; use fewer "
                "clients, or sizes that differ less"
            )
    return [(np.take(X, samples, axis=-1), np.take(Y, samples, axis=-1)) for samples in of_clients]
