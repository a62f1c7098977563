"""Federated averaging: clients train, and a server averages their weights."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Sequence
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..arrays import computing, constant, even_slices, overflow_refused, real_numbers
from ..checks import items_of, listed, real_number, shown, truth, whole_number, whole_numbers
from ..cluster import Cluster, Compute, Label, Link, Port, Receive, Send, Trace, checked_ports
from ..cluster.links import links_between
from ..layers import Layer, every_layer
from ..losses import Loss
from ..network import Network, Sequential, checked_inputs
from ..optimizers import Optimizer, checked_optimizer
from ..state import all_or_nothing
from ..sums import TreeSum
from .programs import ticks_of_each

DOWN, UP = "weights", "update"  # the names of the messages


class Round(NamedTuple):
    """The result of a round.

    `J` is the mean of the clients' costs in their last pass, weighted by samples.
    """

    number: int  # 1 for the first round
    chosen: tuple  # the indices of its clients
    J: float
    bytes_down: int  # sent by the server
    bytes_up: int  # sent to the server
    ticks: float


class FederatedAveraging(Network):
    """A network that simulated clients train without giving their samples away.

    In each round, a share C of the K clients receives the weights W_t. Each makes E
    passes over its samples in mini-batches of B, which lead it to W_k. The server
    averages these, weighted by samples:

        W_{t+1} = sum over the chosen clients of n_k / n W_k,   n = the sum of their n_k

    With C = 1, E = 1 and B = None, a round is a step of gradient descent on all
    samples, however they are divided: FedSGD. Running statistics of layers are averaged
    like the weights. `round(optimizer)` makes one round, `train(rounds, optimizer)`
    several; `trace` is the trace of the last round.

    Args:
        layers, loss: as for `Sequential`.
        clients: a list of (X_k, Y_k), see `clients_of`.
        fraction: C, above 0; of K clients, C K are chosen, rounded to a whole number.
        epochs: E, the passes that each client makes over its samples in a round.
        batch_size: B, the samples of a mini-batch; None for all n_k samples at once.
        speeds: for each client; at speed 1/4 a sample takes four times as long. Left
            out, 1 for all.
        ticks: the ticks of a sample at speed 1.
        link, ports: as for `Cluster`. Device 0 is the server; devices 1, 2, ... are the
            clients of the round.
        seed, dtype: as for `Network`. The seed also determines which clients are
            chosen, and the order of their samples.

    Source: McMahan et al. 2016, arXiv 1602.05629, with its erratum: n is that of the
    chosen clients.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> from minipipe.optimizers import SGD
    >>> X = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> clients = [(X[:, :1], X[:, :1]), (X[:, 1:], X[:, 1:])]
    >>> net = FederatedAveraging([Linear(1, 1, W=[[0.0]], b=[[0.0]])], MeanSquaredError(), clients)
    >>> print(net.round(SGD(0.1)).bytes_up, net.trace.makespan)  # two numbers of 8 bytes each; 3 samples
    32 3
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, clients: Sequence[tuple], *, fraction: float = 1,
        epochs: int = 1, batch_size: int | None = None, speeds: Sequence[float] | None = None,
        ticks: float = 1, link: Link | dict = Link(), ports: Sequence[Port] = (), seed: int = 0,
        dtype: Any = None,
    ) -> None:
        super().__init__(layers, loss, seed, dtype)
        fraction = real_number("fraction", fraction, above=0, most=1)
        self._epochs, self._seed = whole_number("epochs", epochs, 1), whole_number("seed", seed, 0)
        batch_size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
        self.clients = []
        for k, pair in enumerate(listed("clients", clients)):
            items = items_of(pair)
            if items is None or len(items) != 2:
                raise ValueError(f"clients[{k}] must be a pair (X, Y), got {shown(pair)}")
            if np.ndim(items[0]) >= 2 and not np.shape(items[0])[-1]:
                raise ValueError(f"client {k} is without data: leave it out")
            X, Y = self.checked_batch(*items)
            n = X.shape[-1]
            self.clients.append(Client(X, Y, n, even_slices(n, -(-n // (batch_size or n)))))
        K = len(self.clients)
        self.n_chosen = round(K * fraction)
        if not self.n_chosen:
            raise ValueError(f"fraction={fraction} of {K} clients selects no client: use at least {1 / K:g}")
        self._ticks = ticks_of_each(K, ticks, speeds, "clients")
        links_between(link, 1 + self.n_chosen)
        self._link, self._ports = link, checked_ports(ports, 1 + self.n_chosen)
        self.n_rounds, self.positions = 0, [0] * K
        self.trace: Trace | None = None

    def check_step(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError`, whatever `optimizer` and `clip` are: clients update."""
        raise ValueError("the clients have the samples and make the updates: call train(rounds, optimizer)")

    def train(  # type: ignore[override]  # rounds, since the clients have the mini-batches
        self, rounds: int, optimizer: Optimizer
    ) -> list[Round]:
        """Make `rounds` rounds with `optimizer`; return the list of `Round`s."""
        return [self.round(optimizer) for _ in range(whole_number("rounds", rounds, 1))]

    def round(self, optimizer: Optimizer) -> Round:
        """Make one round and return its `Round`; one that fails changes nothing.

        Each client starts with a fresh copy of `optimizer`.
        """
        checked_optimizer(optimizer)
        self._parameters.check()
        number, found = self.n_rounds + 1, SimpleNamespace(state=None, J=None)
        rng = np.random.default_rng([self._seed, number])
        chosen = sorted(rng.choice(len(self.clients), self.n_chosen, replace=False).tolist())
        programs = [self._server(found), *(self._client(k, optimizer.fresh()) for k in chosen)]
        with computing(), overflow_refused():
            trace = Cluster(programs, link=self._link, ports=self._ports).run()
        trace.names = ["server", *(f"client {k}" for k in chosen)]
        positions = self.positions.copy()
        for k in chosen:
            positions[k] += self._epochs * len(self.clients[k].batches)
        with self._lock, all_or_nothing([self, *self._all_layers]):
            take(self.layers, found.state)
            self.n_rounds, self.positions, self.trace = number, positions, trace
        down = sum(message.n_bytes for message in trace.messages if message.source == 0)
        up = sum(message.n_bytes for message in trace.messages if message.to == 0)
        return Round(number, tuple(chosen), found.J, down, up, trace.makespan)

    def _server(self, found):
        """The server's program: send the weights, receive and average the clients'.

        `found` gets the averages, as its attributes `state` and `J`.
        """
        devices, uploads = range(1, 1 + self.n_chosen), []
        for device in devices:
            yield Send(DOWN, state_of(self.layers), to=device)
        for device in devices:
            uploads.append((yield Receive(UP, source=device)))
        found.state, found.J = yield Compute(Label("average", "U"), averaged, uploads, ticks=0)

    def _client(self, k, optimizer):
        """The program of client k: receive weights, train them, and send them back."""
        net, client, position = Sequential(self.layers, self.loss), self.clients[k], self.positions[k]
        take(net.layers, (yield Receive(DOWN, source=0)))
        for done in range(self._epochs):
            label = Label(f"c{k}.{done}", "local training")
            J = yield Compute(label, self._pass, k, net, position, optimizer, ticks=client.n * self._ticks[k])
            position += len(client.batches)
        yield Send(UP, Upload(client.n, state_of(net.layers), J), to=0)

    def _pass(self, k, net, position, optimizer):
        """Train `net` with `optimizer` on client k's samples; return the mean cost.

        The client has trained on `position` mini-batches before. A pass shuffles its
        samples with default_rng([seed, k, number of the pass]).
        """
        X, Y, n, batches = self.clients[k]
        order, total = np.arange(n), 0
        if len(batches) > 1:
            order = np.random.default_rng([self._seed, k, position // len(batches)]).permutation(n)
        for step, batch in enumerate(batches, position):
            net.n_steps, at = step, order[batch]
            total += net.forward_backward(np.take(X, at, axis=-1), np.take(Y, at, axis=-1))
            net.step(optimizer)
        return total / len(batches)

    def _own_counts(self):
        return {"rounds": self.n_rounds, "positions": self.positions, "seed": self._seed}

    def _resume_own(self, state):
        """Take over rounds and positions from `state`; if it has none, begin at 0."""
        K, counts = len(self.clients), state.counts
        positions = whole_numbers(f"{state.source}: positions", counts.get("positions", [0] * K), 0)
        seed = counts.get("seed", self._seed)
        if (len(positions), seed) != (K, self._seed):
            raise ValueError(
                f"{state.source} is of {len(positions)} clients with seed={shown(seed)}, the network has {K} "
                f"with seed={self._seed}: make it with the clients and the seed of the state"
            )
        self.n_rounds = whole_number(f"{state.source}: rounds", counts.get("rounds", 0), 0)
        self.positions = list(positions)


class Client(NamedTuple):
    """A client: its n samples X, Y, and `batches`, the slices of a pass over them."""

    X: np.ndarray
    Y: np.ndarray
    n: int
    batches: list


class Upload(NamedTuple):
    """What a client of n samples sends: `state_of` its layers, J of its last pass."""

    n: int
    state: list
    J: float


def averaged(uploads: Sequence[Upload]) -> tuple[list, Any]:
    """Return the mean (state, J) of `uploads`, one for each client, by samples.

    It is the sum of n_k / n times their values, n = sum of n_k, along the tree over the
    clients in order.
    """
    n, total = sum(upload.n for upload in uploads), TreeSum(len(uploads))
    for place, upload in enumerate(uploads):
        share = Fraction(upload.n, n)
        state = [constant(share, array) * array for array in upload.state]
        total.add(place, (state, constant(share, np.asarray(upload.J)) * upload.J))
    return total.value


def arrays_of(layers: Sequence[Layer]) -> list[tuple[Layer, str]]:
    """Return [(layer, name)] of all parameters and statistics of `layers`."""
    names = [(layer, name) for layer in every_layer(layers) for name in layer.arrays]
    return [(layer, name) for layer, name in names if getattr(layer, name) is not None]


def state_of(layers: Sequence[Layer]) -> list:
    """Return the arrays of `arrays_of(layers)`, which a round sends."""
    return [getattr(layer, name) for layer, name in arrays_of(layers)]


def take(layers: Sequence[Layer], state: Sequence) -> None:
    """Set the arrays of `layers` to `state`, a result of `state_of`."""
    for (layer, name), array in zip(arrays_of(layers), state, strict=True):
        setattr(layer, name, array)


def clients_of(
    X: np.ndarray, Y: np.ndarray, clients: int, *, skewed: bool = False,
    sizes: Sequence[float] | None = None, seed: int = 0,
) -> list[tuple]:
    """Divide samples among clients; return [(X_k, Y_k)].

    Args:
        X, Y: (n[0], m), and (n[L], m), one-hot.
        clients: K, at most m; if skewed, at most m / 2.
        skewed: if False, the samples are shuffled, so that each client has samples of
            all classes. If True, they are sorted by class and cut into 2 K runs, of
            which each client gets two, so that it has few classes. Source: McMahan et
            al. 2016, arXiv 1602.05629, section 3.
        sizes: for each client, its relative number of samples; left out, all are equal.
        seed: determines the order of the samples, and which client gets which runs.

    Raises:
        ValueError: if a client would be without data.

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
