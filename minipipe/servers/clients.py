"""Which client has which samples, and what a client and the server do in a round of federated averaging.

Device 0 is the server, device 1 + k the k-th of the chosen clients.
"""

import copy
from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..arrays import constant, even_slices, real_numbers
from ..checks import listed, real_number, truth, whole_number
from ..cluster import Compute, Label, Receive, Send
from ..collectives.group import flattened
from ..layers.layer import pairs_of_layers
from ..network import Sequential, checked_inputs
from ..parallel.layout import put_together
from ..sums import TreeSum
from .places import MOST
from .share import counted_places

RUNS = 2  # of samples, for each client in a skewed split
DOWN, UP = "weights", "update"  # the names of the messages


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
    m, K = X.shape[-1], whole_number("clients", clients, 1, MOST)
    if Y.ndim != 2 or Y.shape[-1] != m:
        raise ValueError(f"Y of shape {Y.shape} for {m} samples: pass one-hot columns, one for each")
    skewed = truth("skewed", skewed)
    sizes = [1] * K if sizes is None else listed("sizes", sizes)
    if len(sizes) != K:
        raise ValueError(f"sizes has {len(sizes)} numbers for {K} clients: give each one")
    sizes = [real_number(f"sizes[{k}]", size, above=0) for k, size in enumerate(sizes)]
    rng = np.random.default_rng(whole_number("seed", seed, 0))
    order, owners = rng.permutation(m), np.arange(K)
    if skewed:
        order = order[np.argsort(Y[:, order].argmax(axis=0), kind="stable")]
        owners = rng.permutation(np.repeat(owners, RUNS))
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


class Client:
    """A client: its samples, its copy of the network, and where it is in its samples.

    number: of this client.
    X, Y: its own samples, n of them.
    layers, loss: of the network.
    batch_size: B, the most samples of its mini-batches; None for all n at once.
    seed: each pass over its samples shuffles them with default_rng([seed, number, pass]).

    position: how many mini-batches it has worked on.
    optimizer: its own in a round, or None.
    """

    def __init__(self, number, X, Y, layers, loss, batch_size, seed):
        self.number, self.X, self.Y, self.n, self._seed = number, X, Y, X.shape[-1], seed
        self._net = Sequential(layers, copy.copy(loss))  # its loss has a cache of its own
        size = self.n if batch_size is None else batch_size
        self.batches = even_slices(self.n, -(-self.n // size))
        self.position, self.optimizer = 0, None

    @property
    def layers(self):
        """The layers of its copy of the network."""
        return self._net.layers

    def go_over_its_samples(self):
        """Train on each of its mini-batches once; return the mean of their costs."""
        order = np.arange(self.n)
        if len(self.batches) > 1:
            number = self.position // len(self.batches)
            order = np.random.default_rng([self._seed, self.number, number]).permutation(self.n)
        total = 0
        for batch in self.batches:
            at = order[batch]
            self._net.n_steps = self.position
            total += self._net.forward_backward(np.take(self.X, at, axis=-1), np.take(self.Y, at, axis=-1))
            self._net.step(self.optimizer)
            self.position += 1
        return total / len(self.batches)


# What clients send back, and what the server makes of it: an average weighted by samples.

class Upload(NamedTuple):
    """What a client sends at the end of its round.

    n: its samples.
    state: its vectors, as `state_of` returns them.
    J: the mean of the costs that it has met in its last pass.
    """

    n: int
    state: list
    J: float


def averaged(uploads):
    """Return (state, J): the sum over clients of n_k / n times what each has sent, n the samples of all.

    uploads: {client: `Upload`}, at least one. The sum is along the tree over the clients in order.
    """
    n, total = sum(upload.n for upload in uploads.values()), TreeSum(len(uploads))
    for place, (_, upload) in enumerate(sorted(uploads.items())):
        share = Fraction(upload.n, n)
        vectors = [constant(share, vector) * vector for vector in upload.state]
        total.add(place, (vectors, constant(share, np.asarray(upload.J)) * upload.J))
    return total.value


def state_of(layers):
    """Return what a round sends: the parameters and what the layers have counted, as vectors."""
    counted = [getattr(*place) for place in counted_places(layers)]
    return flattened([pairs_of_layers(layers), counted])


def take(layers, state):
    """Give `layers` the parameters and what was counted, as `state_of` returns them."""
    n = len(flattened(pairs_of_layers(layers)))
    put_together(layers, [state[:n]])
    for (layer, name), vector in zip(counted_places(layers), state[n:], strict=True):
        setattr(layer, name, vector.reshape(getattr(layer, name).shape))


# The programs.

class Pass(NamedTuple):
    """A client goes over its samples once.

    >>> print(Pass(client=17, number=2, round=3))
    c17.2
    """

    client: int
    number: int
    round: int

    @property
    def kind(self):
        return "local training"

    def __str__(self):
        return f"c{self.client}.{self.number}"


def federated_server(state, chosen, found):
    """The server: it sends the weights to the clients, collects what they send back, and averages.

    state: what each client starts from.
    chosen: the clients.
    found: a namespace, which gets the average as `state` and `J`.
    """
    devices = dict(enumerate(chosen, start=1))
    for device in devices:
        yield Send(DOWN, state, to=device)
    uploads = {}
    for device, client in devices.items():
        uploads[client] = yield Receive(UP, source=device)
    found.state, found.J = yield Compute(Label("average", "U"), averaged, uploads, ticks=0)


def federated_client(one, epochs, ticks, number):
    """A client: it gets the weights, trains on its own samples, and sends back what they have become.

    one: the `Client`.
    epochs: E, its passes.
    ticks: of a sample.
    number: of the round.
    """
    take(one.layers, (yield Receive(DOWN, source=0)))
    for done in range(epochs):
        J = yield Compute(Pass(one.number, done, number), one.go_over_its_samples, ticks=one.n * ticks)
    yield Send(UP, Upload(one.n, state_of(one.layers), J), to=0)
