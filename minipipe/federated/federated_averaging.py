"""Federated averaging: clients train on data of their own, and a server averages what they come to."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np

from ..arguments import argument
from ..arrays import accuracy, leaves
from ..checks import function, items_of, listed, shown
from ..collectives.group import unflattened
from ..layers import Layer, every_layer
from ..layers.layer import finite, pairs_of_layers
from ..losses import Loss
from ..network import Network
from ..optimizers import Optimizer, checked_optimizer
from ..parallel.driving import checked_machine, run_programs, shared
from ..parallel.options import MPI, Machine, Weights, check_kinds
from ..servers.options import Pace
from ..servers.places import GradientTimes
from ..state import Changes, check_optimizer_state, restore
from . import programs
from .clients import Client
from .programs import averaged, revealed, state_of, take
from .rounds import Rounds


class Round(NamedTuple):
    """The result of a round.

    number: from 1 on.
    chosen, reported: the clients that were chosen, and those of them that the average is of.
    J: the mean of the costs that they met in their last pass; None if too few have reported.
    bytes_down, bytes_up: from the server, and to it.
    ticks: its makespan; seconds on threads and MPI.
    score: on the validation data, or None.
    """

    number: int
    chosen: tuple
    reported: tuple
    J: float | None
    bytes_down: int
    bytes_up: int
    ticks: float
    score: float | None


class FederatedAveraging(Network):
    """A network that clients train without giving their samples away, on simulated devices.

    In each round, a share C of the K clients gets the weights W_t; each makes E passes over its own samples
    in mini-batches of B, which leads it to W_k; and the server takes the average, weighted by samples:

        W_{t+1} = sum over those who report of n_k / n W_k          n = the sum of their n_k

    layers, loss: as for `Sequential`.
    clients: a list of (X_k, Y_k), see `clients_of`.
    rounds: `Rounds`: C, E, B, and what else clients do in a round.
    outer: None; or an optimizer of the server, which is handed W_t - (the average) as a gradient, and makes
        W_{t+1}: with Nesterov momentum, DiLoCo (Douillard et al. 2023, arXiv 2311.08105). The network has a
        fresh copy of it.
    pace: a `Pace`: how long a sample takes on each client.
    on: a `Machine`, without costs, with the same bits on all engines. Device 0 is the server, devices 1, 2,
        ... are the clients of the round.
    weights: `Weights`; its seed is that of all choices, too.

    With C = 1, E = 1 and B = None, a round is a step of gradient descent on all samples, however they are
    divided: FedSGD. What layers have counted, such as running means, is averaged like the weights.
    `round(optimizer)` makes one round, `train(n_rounds, optimizer)` several; `trace` is the last one's.

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
        self, layers: Sequence[Layer], loss: Loss, clients: Sequence[tuple], rounds: Rounds = Rounds(),
        outer: Optimizer | None = None, pace: Pace = Pace(), on: Machine = Machine(),
        weights: Weights = Weights(),
    ) -> None:
        check_kinds(rounds=(rounds, Rounds), pace=(pace, Pace), on=(on, Machine), weights=(weights, Weights))
        super().__init__(layers, loss, weights.seed, weights.dtype)
        if pace.delay or pace.update_ticks:
            raise ValueError(
                f"delay={pace.delay} and update_ticks={pace.update_ticks} are of parameter servers: "
                "leave them out"
            )
        self._rounds, self._seed = rounds, weights.seed
        self._outer = None if outer is None else checked_optimizer(outer).fresh()
        self.clients = [
            Client(k, X, Y, self.layers, self.loss, rounds, self._seed)
            for k, (X, Y) in enumerate(self._checked_clients(clients))
        ]
        K = len(self.clients)
        self.n_chosen = self._checked_share(K)
        self._times, self._machine = GradientTimes(K, pace), checked_machine(on, 1 + self.n_chosen)
        if rounds.keep_memory and on.engine == MPI:
            raise ValueError(
                "keep_memory=True with Machine('mpi'): a client may come to another rank, without its "
                "memory; use on=Machine('cluster') or Machine('threads')"
            )
        self.n_rounds, self.trace = 0, None

    def check_step(self, optimizer: Optimizer) -> None:
        """Raise `ValueError`: the clients make the updates, not `fit` or `step`."""
        raise ValueError("the clients have the samples and make the updates: call train(n_rounds, optimizer)")

    def train(
        self, n_rounds: int, optimizer: Optimizer, validation: tuple | None = None,
        metric: Callable = accuracy, report: Callable | None = None,
    ) -> list[Round]:
        """Make `n_rounds` rounds; return a list of `Round`.

        optimizer: as for `round`.
        validation: a pair (X, Y) on which the metric is taken after each round.
        metric: the score is `metric(net.predict(X), Y)`.
        report: called with one line per round; None for silence.
        """
        checked_optimizer(optimizer)
        n_rounds, metric = argument("n_rounds", n_rounds), function("metric", metric)
        validation = None if validation is None else self.checked_batch(*validation)
        history = []
        for _ in range(n_rounds):
            done = self.round(optimizer)
            if validation is not None:
                done = done._replace(score=metric(self.predict(validation[0]), validation[1]))
            history.append(done)
            if report is not None:
                score = "" if done.score is None else f"   score {100 * done.score:.1f} %"
                J = "too few clients reported" if done.J is None else f"J {float(done.J):.4f}"
                report(f"round {done.number}   {J}{score}")
        return history

    def round(self, optimizer: Optimizer) -> Round:
        """Make one round and return its `Round`, with score None. A round that fails changes nothing.

        optimizer: each client starts with a fresh copy. With `keep_memory`, it resumes its own state with
            this learning rate; another class raises `ValueError`.
        """
        checked_optimizer(optimizer)
        number, found, changes = self.n_rounds + 1, {}, Changes()
        chosen = self._chosen(number)
        working = {k: self._at_work(self.clients[k], optimizer) for k in chosen}
        trace = run_programs(
            self._machine, self._programs(number, working, found),
            [(one.X, one.Y) for one in self.clients], ["server", *(f"client {k}" for k in chosen)],
        )
        reported, J = self._take(found, changes)
        for k, one in working.items():  # on every MPI rank
            position = self.clients[k].position + self._rounds.n_epochs * one.steps
            kept = one.optimizer if self._rounds.keep_memory else None
            changes.of(self.clients[k], position=position, optimizer=kept)
        changes.of(self, n_rounds=number, trace=trace)
        self.decide(changes)
        down = sum(message.n_bytes for message in trace.messages if message.source == 0)
        up = sum(message.n_bytes for message in trace.messages if message.to == 0)
        return Round(number, tuple(chosen), reported, J, down, up, trace.makespan, None)

    def _chosen(self, number):
        """The clients of a round, in order."""
        rng = np.random.default_rng([self._seed, number])
        return sorted(rng.choice(len(self.clients), self.n_chosen, replace=False).tolist())

    def _at_work(self, client, optimizer):
        """A copy of a client, with an optimizer of its own; the client itself waits for the round's end."""
        one = copy.copy(client)
        one.optimizer = optimizer.fresh()
        if client.optimizer is not None:
            before = client.optimizer
            if type(before) is not type(optimizer):
                raise ValueError(
                    f"client {client.number} remembers the updates of {type(before).__name__}, which "
                    f"{type(optimizer).__name__} cannot go on with: use the same for all rounds"
                )
            rates = optimizer.learning_rate, before.last_rate
            one.optimizer.resume(dict(before.memory), before.n_updates, *rates)
        return one

    def _own_optimizers(self):
        kept = {f"client {client.number}": client.optimizer for client in self.clients}
        return {"outer": self._outer, **kept}

    def _own_counts(self):
        positions = [client.position for client in self.clients]
        return {"rounds": self.n_rounds, "positions": positions, "seed": self._seed}

    def _resume_own(self, state, optimizer, changes):
        """Take up what a state has of clients, rounds and the outer optimizer; what it lacks begins anew."""
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
        changes.of(self, n_rounds=state.counts.get("rounds", 0))
        if self._outer is not None:
            outer = self._outer.fresh()
            if "outer" in state.optimizers:
                check_optimizer_state(state, "outer", outer)
                restore(outer, state.optimizers["outer"])
            changes.of(self, _outer=outer)
        for client, position in zip(self.clients, positions, strict=True):
            name, own = f"client {client.number}", None
            if optimizer is not None and name in state.optimizers and self._rounds.keep_memory:
                own = optimizer.fresh()
                check_optimizer_state(state, name, own)
                restore(own, state.optimizers[name])
            changes.of(client, position=position, optimizer=own)

    def _programs(self, number, working, found):
        chosen = list(working)
        rng = np.random.default_rng([self._seed, number, 1])
        leaves_early = rng.random(len(chosen)) < self._rounds.drop_out
        n_least = 2 if self._rounds.secure else 1  # the sum of one is its own numbers
        secret = [self._seed, number] if self._rounds.secure else None
        state = state_of(self.layers)
        server = programs.federated_server(state, chosen, n_least, self._rounds.secure, self._average, found)
        return [server] + [
            programs.federated_client(
                one, chosen, self._rounds.n_epochs, self._times.of(k, number), number, drops_out, secret
            )
            for (k, one), drops_out in zip(working.items(), leaves_early, strict=True)
        ]

    def _take(self, found, changes):
        """(who has reported, J) of a round, of which the network shall get the weights."""
        result = SimpleNamespace(**({"reported": [], "state": None, "J": None} | found))
        result = shared(self._machine.engine, 0, result, ("reported", "state", "J"))
        if result.state is not None:
            self._step(state_of(self.layers), result.state, changes)
        return tuple(result.reported), result.J

    def _average(self, uploads, secrets):
        """(state, J) of what clients have sent."""
        if self._rounds.secure:
            return revealed(uploads, secrets, state_of(self.layers))
        return averaged(uploads)

    def _step(self, old, average, changes):
        """The network's state shall be the average, or what the outer optimizer makes of it."""
        layers = [layer.copy() for layer in self.layers]
        if self._outer is None:
            take(layers, average)
        else:
            like = pairs_of_layers(layers)
            n = len(leaves(like))
            changes.twin(self._outer).update(layers, unflattened(outer_gradient(old[:n], average[:n]), like))
            take(layers, state_of(layers)[:n] + average[n:])
        for layer in every_layer(layers):
            for name in layer.arrays:
                array = getattr(layer, name)
                if array is not None and not isinstance(array, tuple):
                    finite(layer, array, f"{name} after this round")
        for layer, new in zip(every_layer(self.layers), every_layer(layers), strict=True):
            changes.of(layer, **{name: getattr(new, name) for name in layer.arrays})

    def _checked_clients(self, clients):
        clients = listed("clients", clients)
        for k, pair in enumerate(clients):
            items = items_of(pair)
            if items is None or len(items) != 2:
                raise ValueError(f"clients[{k}] must be a pair (X, Y), got {shown(pair)}")
            if np.ndim(items[0]) >= 2 and not np.shape(items[0])[-1]:
                raise ValueError(f"client {k} is without data: leave it out")
        return [self.checked_batch(X, Y) for X, Y in clients]

    def _checked_share(self, K):
        """How many clients a round has."""
        fraction = self._rounds.fraction
        n = round(K * fraction)
        if not n:
            raise ValueError(f"fraction={fraction} of {K} clients selects nobody: use at least {1 / K:g}")
        if self._rounds.secure and n < 2:
            raise ValueError(
                f"secure=True with {n} client a round: the sum of one is its own numbers; use a fraction of "
                f"at least {2 / K:g}"
            )
        return n


def outer_gradient(old, average):
    """W_t - (the average), what the outer optimizer is handed: it points away from where the clients went.

    old, average: lists of vectors.
    """
    return [before - after for before, after in zip(old, average, strict=True)]
