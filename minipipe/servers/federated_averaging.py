"""Federated averaging: clients train on samples of their own, and a server averages their weights."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from ..arrays import computing, overflow_refused
from ..checks import items_of, listed, real_number, shown, whole_number
from ..cluster import Cluster, Link, Port
from ..layers import Layer, every_layer
from ..losses import Loss
from ..network import Network
from ..optimizers import Optimizer, checked_optimizer
from ..state import all_or_nothing
from .clients import Client, federated_client, federated_server, state_of, take
from .places import MOST, checked_way, ticks_of_each


class Round(NamedTuple):
    """The result of a round.

    number: from 1 on.
    chosen: the clients that were chosen.
    J: the mean of the costs that they met in their last pass, weighted by samples.
    bytes_down, bytes_up: from the server, and to it.
    ticks: its makespan.
    """

    number: int
    chosen: tuple
    J: float
    bytes_down: int
    bytes_up: int
    ticks: float


class FederatedAveraging(Network):
    """A network that clients train without giving their samples away, on simulated devices.

    In each round, a share C of the K clients gets the weights W_t; each makes E passes over its own samples
    in mini-batches of B, which leads it to W_k; and the server takes the average, weighted by samples:

        W_{t+1} = sum over the chosen clients of n_k / n W_k          n = the sum of their n_k

    With C = 1, E = 1 and B = None, a round is a step of gradient descent on all samples, however they are
    divided: FedSGD. What layers have counted, such as running means, is averaged like the weights.
    `round(optimizer)` makes one round, `train(rounds, optimizer)` several; `trace` is the last one's.

    Args:
        layers, loss: as for `Sequential`.
        clients: a list of (X_k, Y_k), see `clients_of`.
        fraction: C, above 0; of K clients, C K are chosen, rounded to a whole number.
        epochs: E, the passes that each makes over its own samples.
        batch_size: B, of its mini-batches; None for all n_k samples at once.
        speeds: for each client; at speed 1/4 a sample takes four times as long. Left out, 1 for all.
        ticks: of a sample at speed 1.
        link, ports: of the messages, as for `Cluster`. Device 0 is the server, devices 1, 2, ... are the
            clients of the round.
        seed, dtype: of the weights that layers were not given, as for `Sequential`; the seed is that of the
            choice of clients and of the order of their samples, too.

    Source: McMahan et al. 2016, arXiv 1602.05629; n is that of its erratum, of the chosen clients.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> from minipipe.optimizers import SGD
    >>> X = np.array([[1.0, 2.0, 3.0, 4.0]])
    >>> clients = [(X[:, :1], X[:, :1]), (X[:, 1:], X[:, 1:])]
    >>> net = FederatedAveraging([Linear(1, 1, W=[[0.0]], b=[[0.0]])], MeanSquaredError(), clients)
    >>> print(net.round(SGD(0.1)).bytes_up, net.trace.makespan)     # two numbers of 8 bytes each; 3 samples
    32 3
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, clients: Sequence[tuple], *, fraction: float = 1,
        epochs: int = 1, batch_size: int | None = None, speeds: Sequence[float] | None = None,
        ticks: float = 1, link: Link | dict = Link(), ports: Sequence[Port] = (), seed: int = 0,
        dtype: Any = "float64",
    ) -> None:
        super().__init__(layers, loss, seed, dtype)
        fraction = real_number("fraction", fraction, above=0, most=1)
        self._epochs, self._seed = whole_number("epochs", epochs, 1), whole_number("seed", seed, 0)
        batch_size = None if batch_size is None else whole_number("batch_size", batch_size, 1)
        self.clients = [
            Client(k, X, Y, self.layers, self.loss, batch_size, self._seed)
            for k, (X, Y) in enumerate(self._checked_clients(clients))
        ]
        K = len(self.clients)
        self.n_chosen = round(K * fraction)
        if not self.n_chosen:
            raise ValueError(f"fraction={fraction} of {K} clients selects nobody: use at least {1 / K:g}")
        self._ticks = ticks_of_each(K, ticks, speeds, "clients")
        self._way = checked_way(link, ports, 1 + self.n_chosen)
        self.n_rounds, self.trace = 0, None

    def check_step(self, optimizer: Optimizer) -> None:
        """Raise `ValueError`: the clients make the updates, not `fit` or `step`."""
        raise ValueError("the clients have the samples and make the updates: call train(rounds, optimizer)")

    def train(self, rounds: int, optimizer: Optimizer) -> list[Round]:
        """Make `rounds` rounds with `optimizer`, as for `round`; return a list of `Round`."""
        return [self.round(optimizer) for _ in range(whole_number("rounds", rounds, 1, MOST))]

    def round(self, optimizer: Optimizer) -> Round:
        """Make one round and return its `Round`. A round that fails changes nothing.

        optimizer: each client starts with a fresh copy.
        """
        checked_optimizer(optimizer)
        number = self.n_rounds + 1
        rng = np.random.default_rng([self._seed, number])
        chosen = sorted(rng.choice(len(self.clients), self.n_chosen, replace=False).tolist())
        working = [copy.copy(self.clients[k]) for k in chosen]  # the clients themselves wait for the end
        for one in working:
            one.optimizer = optimizer.fresh()
        found = SimpleNamespace(state=None, J=None)
        programs = [federated_server(state_of(self.layers), chosen, found)]
        programs += [federated_client(one, self._epochs, self._ticks[one.number], number) for one in working]
        with computing(), overflow_refused():
            trace = Cluster(programs, **self._way).run()
        trace.names = ["server", *(f"client {k}" for k in chosen)]
        layers = [layer.copy() for layer in self.layers]
        take(layers, found.state)
        with all_or_nothing([self, *self.clients, *self._all_layers]):
            for layer, new in zip(self._all_layers, every_layer(layers), strict=True):
                for name in layer.arrays:
                    setattr(layer, name, getattr(new, name))
            for one in working:
                self.clients[one.number].position = one.position
            self.n_rounds, self.trace = number, trace
        down = sum(message.n_bytes for message in trace.messages if message.source == 0)
        up = sum(message.n_bytes for message in trace.messages if message.to == 0)
        return Round(number, tuple(chosen), found.J, down, up, trace.makespan)

    def _own_counts(self):
        positions = [client.position for client in self.clients]
        return {"rounds": self.n_rounds, "positions": positions, "seed": self._seed}

    def _resume_own(self, state):
        """Take over the rounds and the clients' positions from `state`; without them, begin anew."""
        K = len(self.clients)
        positions = state.counts.get("positions", [0] * K)
        if len(positions) != K:
            raise ValueError(
                f"{state.source} is of {len(positions)} clients, the network has {K}: build it alike"
            )
        seed = state.counts.get("seed", self._seed)
        if seed != self._seed:
            raise ValueError(
                f"{state.source} is of rounds with seed={seed}, which decides who is chosen, but the network "
                f"has seed={self._seed}: build it alike"
            )
        self.n_rounds = state.counts.get("rounds", 0)
        for client, position in zip(self.clients, positions, strict=True):
            client.position = position

    def _checked_clients(self, clients):
        clients = listed("clients", clients)
        for k, pair in enumerate(clients):
            items = items_of(pair)
            if items is None or len(items) != 2:
                raise ValueError(f"clients[{k}] must be a pair (X, Y), got {shown(pair)}")
            if np.ndim(items[0]) >= 2 and not np.shape(items[0])[-1]:
                raise ValueError(f"client {k} is without data: leave it out")
        return [self.checked_batch(X, Y) for X, Y in clients]
