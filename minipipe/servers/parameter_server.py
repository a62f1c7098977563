"""A network that workers train through parameter servers, and its mini-batches."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Sequence
from itertools import count, islice
from typing import Any

import numpy as np

from ..arrays import computing, even_slices, overflow_refused, real_numbers
from ..checks import one_of, truth, whole_number
from ..cluster import Cluster, Link, Port, checked_ports
from ..cluster.links import links_between
from ..collectives.group import flattened
from ..engines import Threads
from ..layers import Layer, every_layer
from ..layers.layer import pairs_of_layers
from ..losses import Loss
from ..network import Network, Sequential
from ..optimizers import Optimizer, checked_optimizer
from ..parallel.layout import MemoryInParts, held_by, layout_of, memories_in, write_shards
from ..state import all_or_nothing
from ..training import shuffled
from .programs import Replica, Share, server, ticks_of_each, worker

SYNC, ASYNC = MODES = "sync", "async"
CLUSTER, THREADS = ENGINES = "cluster", "threads"


class ParameterServer(Network):
    """A network that N workers train through parameter servers, on simulated devices.

    Each server updates its shard of the weights:

        w <- w - (the optimizer's step for g)

    `train(batches, optimizer)` makes the updates. Then `trace` is the `Trace` of the
    run, and `updates` the list of the `Update`s of server 0.

    Args:
        layers, loss: as for `Sequential`; layers without `tie`.
        workers: N.
        servers: s, the devices among which the parameters are divided, as equally as
            possible. In a synchronous round, each server receives N n / s bytes and
            sends N n / s bytes, for n bytes of weights.
        on_workers: whether server k is a lane of worker k's device, instead of a device
            of its own. With s = N, each device then sends 2 (N - 1)/N n bytes in a
            round, as in a ring all-reduce.
        mode: "sync": the workers share each mini-batch. A server waits for all their
            gradients, updates its shard with the sum, and answers all workers. The
            slowest worker determines the ticks of a round. "async": each worker has a
            mini-batch of its own. A server updates its shard with each gradient that
            arrives, and answers its worker. No worker waits for another, and gradients
            are stale.
        speeds: for each worker; at speed 1/4 a gradient takes four times as long. Left
            out, 1 for all.
        ticks: the ticks of a gradient at speed 1.
        engine: "cluster", simulated devices under one clock; or "threads" of this
            computer, where real time decides which gradient arrives first.
        link, ports: as for `Cluster`. Servers are devices 0 to s - 1, workers are s to
            s + N - 1; with `on_workers`, worker k is device k.
            `minipipe.cluster.ports(s, b)` gives each server an egress and an ingress of
            b bytes per tick.
        seed, dtype: as for `Network`.

    Raises:
        ValueError: for arguments that do not fit together.

    With such ports and a latency, and n divisible by s <= N, a synchronous round of
    workers that take t_1 <= t_2 <= ... ticks takes, for c = n / (s b),

        max over i of (t_i + (N - i + 1) c) + N c + 2 latency

    since N - i gradients enter a server after the i-th, and then N answers leave it.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> from minipipe.optimizers import SGD
    >>> layers = [Linear(1, 1, W=[[0.0]], b=[[0.0]])]
    >>> X = np.array([[1.0, 2.0]])
    >>> net = ParameterServer(layers, MeanSquaredError(), 2, mode="async", speeds=[1, 0.5])
    >>> costs = net.train([(X, X)] * 4, SGD(0.125))
    >>> [(update.workers, update.staleness) for update in net.updates]
    [((0,), 0), ((0,), 0), ((1,), 2), ((0,), 1)]
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, workers: int, *, servers: int = 1,
        on_workers: bool = False, mode: str = SYNC, speeds: Sequence[float] | None = None, ticks: float = 1,
        engine: str = CLUSTER, link: Link | dict = Link(), ports: Sequence[Port] = (), seed: int = 0,
        dtype: Any = None,
    ) -> None:
        super().__init__(layers, loss, seed, dtype)
        N = self.n_workers = whole_number("workers", workers, 1)
        s = self.n_servers = whole_number("servers", servers, 1)
        self._on_workers = truth("on_workers", on_workers)
        self._n_parts = N if one_of("mode", mode, MODES) == SYNC else 1  # parts of a mini-batch
        n_parameters = sum(vector.size for vector in flattened(pairs_of_layers(self.layers)))
        if s > n_parameters:
            raise ValueError(
                f"servers={s} exceed the {n_parameters} parameters of the network: use at most {n_parameters}"
            )
        if self.ties:
            raise ValueError("a server updates a range of all parameters: use layers without `tie`")
        if self._on_workers and s > N:
            raise ValueError(f"servers={s} on the devices of {N} workers: use at most {N}")
        self._devices = range(N) if self._on_workers else range(s, s + N)  # the workers' devices
        self._ticks = ticks_of_each(N, ticks, speeds)
        links_between(link, self._devices.stop)
        self._link, self._ports = link, checked_ports(ports, self._devices.stop)
        self._engine = one_of("engine", engine, ENGINES)
        self.trace = None
        self.updates: list = []

    def train(  # type: ignore[override]  # no clip, since no device has all gradients
        self, batches: Sequence[tuple], optimizer: Optimizer
    ) -> list:
        """Make an update for each mini-batch; return the list of their costs J.

        Args:
            batches: a list of (X, Y).
            optimizer: one that updates each entry by itself. Each server works with a
                copy that has the state of its shard; after the run, `optimizer` has the
                state of all shards.

        A run that fails changes nothing.
        """
        checked_optimizer(optimizer).check_network(self.token)
        if why := optimizer.why_no_parts():
            raise ValueError(
                f"{type(optimizer).__name__} {why}, but a server updates a range of all parameters: "
                "use an optimizer that updates each entry by itself, such as SGD"
            )
        batches, n_parts = self.checked_batches(batches), self._n_parts
        smallest = min(X.shape[-1] for X, _ in batches)
        if n_parts > smallest:
            raise ValueError(
                f"workers={n_parts} exceeds the batch of m={smallest} samples, and each needs one: use "
                f"at most {smallest}, or a larger batch"
            )
        self._parameters.check()
        # the range of all parameters of which each server keeps optimizer state
        held = held_by(self.layers, lambda key, _: (key, None))
        pieces = layout_of([[held]], [[range(self.n_servers)]], in_ranges=True).memory
        memories = memories_in(pieces, optimizer, self.layers)
        shares = []
        for k in range(self.n_servers):
            own = copy.copy(optimizer)
            own.memory = dict(memories[0, k])
            copies = [layer.copy() for layer in self.layers]
            shares.append(Share(copies, k, self.n_servers, own, n_parts))
        programs = self._programs(shares, batches)
        driver: Any = Threads(programs)
        if self._engine == CLUSTER:
            driver = Cluster(programs, link=self._link, ports=self._ports)
        with computing(), overflow_refused():
            trace = driver.run()
        trace.names, self.trace = self._names(), trace
        memory = MemoryInParts(pieces, {(0, k): share.optimizer.memory for k, share in enumerate(shares)})
        self._take(shares, optimizer, memory)
        return shares[0].costs

    def check_step(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError`, whatever `optimizer` and `clip` are: servers update."""
        raise ValueError(
            "the servers make the updates: call train(batches, optimizer), with batches such as those of "
            "minipipe.servers.mini_batches(X, Y, batch_size, n=...), which are those of fit"
        )

    def _programs(self, shares, batches):
        """Return the programs of all devices, for a `Cluster`."""
        n, s, n_parts = len(batches), self.n_servers, self._n_parts
        workers = []
        for number, ticks in enumerate(self._ticks):
            net = Sequential(self.layers, copy.copy(self.loss))
            replica = Replica(net, batches, n_parts, number % n_parts, self.n_steps)
            workers.append(worker(number, replica, n, s, ticks))
        servers = [server(share, self._devices, n) for share in shares]
        if not self._on_workers:
            return [*servers, *workers]
        lanes = [{"compute": worker, "server": server} for worker, server in zip(workers, servers)]
        return [*lanes, *workers[s:]]

    def _names(self):
        """Return the names of the devices in pictures."""
        workers = [f"worker {number}" for number in range(self.n_workers)]
        if self._on_workers:
            return workers
        return ["server" if self.n_servers == 1 else f"server {k}" for k in range(self.n_servers)] + workers

    def _take(self, shares, optimizer, memory):
        """Take over the weights, statistics and optimizer state of a finished run."""
        first = shares[0]
        write_shards(first.layers, [share.part for share in shares])  # server 0 also has the statistics
        with self._lock, all_or_nothing([self, optimizer, *self._all_layers]):
            for layer, new in zip(self._all_layers, every_layer(first.layers), strict=True):
                for name in layer.arrays:
                    setattr(layer, name, getattr(new, name))
            optimizer.memory, optimizer.last_rate = memory, optimizer.learning_rate
            optimizer.n_updates += len(first.updates)
            optimizer.network = self.token
            self.n_steps += len(first.updates)
            self.updates = first.updates


def mini_batches(
    X: np.ndarray, Y: np.ndarray, batch_size: int, *, n: int, seed: int = 0
) -> list[tuple]:
    """Return the first n mini-batches (X, Y) of several passes over the samples.

    Args:
        X, Y: (n[0], m) and (n[L], m).
        batch_size: the largest number of samples in each; sizes in a pass differ by at
            most one.
        n: the number of mini-batches.
        seed: each pass is shuffled as in `fit`, so `fit` with this seed trains on the
            same mini-batches in the same order.

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
