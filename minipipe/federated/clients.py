"""Which client has which samples, and how a client trains on them."""

import copy

import numpy as np

from ..arguments import argument
from ..arrays import constant, even_slices, real_numbers
from ..checks import listed, real_number
from ..layers.layer import pairs_of_layers, parameters_with
from ..network import Sequential, checked_inputs

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


# A client: its samples, its copy of the network, and what it does with them in a round.

class Client:
    """One client.

    number: which of all.
    X, Y: its own samples, n of them.
    layers, loss: of the network.
    rounds: the `Rounds`.
    seed: each of its passes over its samples shuffles them with default_rng([seed, number, pass]).

    position: how many mini-batches it has worked on.
    optimizer: its own, if it keeps what it remembers from one round to the next.
    """

    def __init__(self, number, X, Y, layers, loss, rounds, seed):
        self.number, self.X, self.Y, self.n = number, X, Y, X.shape[-1]
        self._net = Sequential(layers, copy.copy(loss))  # clients on threads compute at the same time
        size = self.n if rounds.batch_size is None else rounds.batch_size
        self._batches = even_slices(self.n, -(-self.n // size))
        self.steps = rounds.n_steps or len(self._batches)
        self._proximal, self._seed = rounds.proximal, seed
        self.position, self.optimizer = 0, None

    @property
    def layers(self):
        """The layers of its copy of the network."""
        return self._net.layers

    def samples(self):
        """Return the number of samples in the next `steps` mini-batches."""
        n_batches = len(self._batches)
        batches = (self._batches[(self.position + step) % n_batches] for step in range(self.steps))
        return sum(batch.stop - batch.start for batch in batches)

    def work(self, anchor):
        """Train on the next `steps` mini-batches; return the mean of their costs.

        anchor: {place: the parameter} of the round's first weights, for the proximal term.
        """
        total = 0
        for _ in range(self.steps):
            number, batch = divmod(self.position, len(self._batches))
            order = np.arange(self.n)
            if len(self._batches) > 1:
                order = np.random.default_rng([self._seed, self.number, number]).permutation(self.n)
            chosen = order[self._batches[batch]]
            self._net.n_steps = self.position
            X, Y = np.take(self.X, chosen, axis=-1), np.take(self.Y, chosen, axis=-1)
            total += self._net.forward_backward(X, Y)
            if self._proximal:
                pull(self._net, anchor, self._proximal)
            self._net.step(self.optimizer)
            self.position += 1
        return total / self.steps

    def anchor(self):
        """The parameters as they are now, for `work`."""
        if not self._proximal:
            return {}
        pairs = pairs_of_layers(self.layers)
        return {key: W.copy() for key, (_, W, _) in parameters_with(self.layers, pairs).items()}


def pull(net, anchor, mu):
    """Add mu (W - W_t) to each gradient: that of mu/2 ||W - W_t||^2, which keeps a client near the others.

    Source: Li et al. 2018, FedProx, arXiv 1812.06127.
    """
    for key, (_, W, g) in parameters_with(net.layers, net.gradients).items():
        g += constant(mu, W) * (W - anchor[key])
