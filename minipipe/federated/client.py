"""A client: its samples, its copy of the network, and what it does with them in a round."""

import copy

import numpy as np

from ..arrays import constant, even_slices
from ..layers.parameters import pairs_of_layers, parameters_with
from ..network import Sequential


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
