"""A network that workers train through parameter servers, and its mini-batches."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Sequence
from fractions import Fraction
from itertools import count, islice
from typing import Any

import numpy as np

from ..arrays import computing, even_slices, leaves, overflow_refused, real_numbers
from ..checks import listed, one_of, shown, truth, whole_number, whole_numbers
from ..cluster import Cluster, Link, Port, checked_ports
from ..cluster.links import links_between
from ..collectives.group import flattened, join_chunks, unflattened
from ..engines import Threads
from ..layers import Layer, every_layer
from ..layers.layer import pairs_of_layers, parameters_with
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
    """A network that N workers train through servers, which have the weights, on simulated devices.

    Each server updates its part of the weights:

        w <- w - (the optimizer's step for g)

    `train(batches, optimizer)` makes the updates. Then `trace`, `updates`, `arrivals`
    and `kept` say what has happened.

    Args:
        layers, loss: as for `Sequential`; layers without `tie`.
        workers: N.
        servers: s, the devices among which the parameters are divided, as evenly as numbers allow. In a
            synchronous round, N n / s bytes of n bytes of weights go into each server, and as many out.
        on_workers: whether server k is not a device of its own, but a lane of the device of worker k. With
            s = N, each device then sends 2 (N - 1)/N n bytes in a round, as in a ring's all-reduce.
        mode: when a server updates, and answers a worker.
            "sync": once the gradients of all workers are there, each of its part of one mini-batch. These are
            summed. The slowest worker decides.
            "async": as each gradient comes, of a mini-batch of its own. No worker waits for another one, and
            gradients are stale.
        speeds: for each worker; at speed 1/4 a gradient takes four times as long. Left out, 1 for all.
        ticks: of a gradient at speed 1.
        engine: "cluster", simulated devices under one clock; or "threads" of this computer, where the seconds
            decide which gradient comes first: `arrivals` then repeats the run on the cluster, to the bit.
        link, ports: of the messages, as for `Cluster`. Servers are devices 0 to s - 1, workers are s to
            s + N - 1; with `on_workers`, worker k is device k. `minipipe.cluster.ports(s, b)` gives the
            servers alone an egress and an ingress of b bytes per tick.
        seed, dtype: as for `Network`.

    Raises:
        ValueError: for what does not fit, before anything is computed. A run that fails changes nothing.

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
        self._n_parts = N if one_of("mode", mode, MODES) == SYNC else 1  # of a mini-batch, each of a worker
        n_parameters = sum(vector.size for vector in self._vectors())
        if s > n_parameters:
            raise ValueError(
                f"servers={s} exceed the {n_parameters} parameters of the network: use at most {n_parameters}"
            )
        if self.ties:
            raise ValueError("a server updates a range of all numbers: use layers without `tie`")
        if self._on_workers and s > N:
            raise ValueError(f"servers={s} on the devices of {N} workers: use at most {N}")
        self._devices = range(N) if self._on_workers else range(s, s + N)  # of the workers
        self._ticks = ticks_of_each(N, ticks, speeds)
        links_between(link, self._devices.stop)
        self._link, self._ports = link, checked_ports(ports, self._devices.stop)
        self._engine = one_of("engine", engine, ENGINES)
        self.trace = None
        self.updates: list = []
        self.arrivals: list = []
        self.kept: dict = {}

    def train(  # type: ignore[override]  # no clip, since no device has all gradients
        self, batches: Sequence[tuple], optimizer: Optimizer, *, keep_every: int | None = None,
        arrivals: Sequence | None = None,
    ) -> list:
        """Make one update for each of `batches`; return J of each, at the weights that its workers read.

        Args:
            batches: a list of (X, Y).
            optimizer: one that takes each number by itself. Each server works with a copy that has the state
                of its part; after the run `optimizer` has the state of all.
            keep_every: None, or n: keep a copy of the weights after every n updates.
            arrivals: None; or those of another run, for each server the order of the workers' gradients,
                which then is this run's order, too.

        Then `trace` is the run's `Trace`; `updates` is the list of each `Update` of
        server 0, with its workers, its `read` and its `staleness`; `arrivals` is the
        order in which each server has got gradients; and `kept` is {number of updates:
        the weights then}, a list with an array for each.
        """
        checked_optimizer(optimizer).check_network(self.token)
        if why := optimizer.why_no_parts():
            raise ValueError(
                f"{type(optimizer).__name__} {why}, but a server updates a range of all "
                "numbers: use an optimizer that takes each number by itself, such as SGD"
            )
        batches, n_parts = self.checked_batches(batches), self._n_parts
        smallest = min(X.shape[-1] for X, _ in batches)
        if n_parts > smallest:
            raise ValueError(
                f"workers={n_parts} exceeds the batch of m={smallest} samples, of which each needs one: use "
                f"at most {smallest}, or a larger batch"
            )
        keep_every = None if keep_every is None else whole_number("keep_every", keep_every, 1)
        arrivals = self._checked_arrivals(arrivals, n_parts * len(batches))
        self._parameters.check()
        # for which numbers, a range of all, each server's optimizer remembers something
        held = held_by(self.layers, lambda key, _: (key, None))
        pieces = layout_of([[held]], [[range(self.n_servers)]], in_ranges=True).memory
        memories = memories_in(pieces, optimizer, self.layers)
        shares = []
        for k in range(self.n_servers):
            own = copy.copy(optimizer)
            own.memory = dict(memories[0, k])
            copies = [layer.copy() for layer in self.layers]
            shares.append(Share(copies, k, self.n_servers, own, n_parts, keep_every))
        programs = self._programs(shares, batches, arrivals)
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
        """Raise `ValueError`: the servers make the updates."""
        raise ValueError(
            "the servers make the updates: call train(batches, optimizer), with batches such as those of "
            "minipipe.servers.mini_batches(X, Y, batch_size, n=...), which are those of fit"
        )

    def use(self, weights: Sequence[np.ndarray]) -> None:
        """Replace the weights by these, one of `kept`."""
        self._parameters.check()
        parameters = parameters_with(self.layers, pairs_of_layers(self.layers))
        with self._lock, all_or_nothing(self._all_layers):
            for ((_, name, _), (layer, _, _)), array in zip(parameters.items(), weights, strict=True):
                setattr(layer, name, array.copy())
            self._parameters.check()

    def _checked_arrivals(self, arrivals, n):
        """Return for each server the order of the n gradients that come, or None."""
        N, s = self.n_workers, self.n_servers
        if arrivals is None:
            return [None] * s
        arrivals = [whole_numbers("arrivals", order, 0) for order in listed("arrivals", arrivals)]
        if len(arrivals) != s or any(len(order) < n or max(order) >= N for order in arrivals):
            raise ValueError(
                f"arrivals={shown(arrivals)} must be those of a run like this one: a list for each of {s} "
                f"servers, of at least {n} numbers of workers, 0 to {N - 1}"
            )
        for order in arrivals:
            for first in range(0, n, self._n_parts):
                of_update = order[first:first + self._n_parts]
                if len({*of_update}) < self._n_parts:
                    raise ValueError(
                        f"arrivals has the workers {', '.join(map(str, of_update))} for one update, but each "
                        f"of the {N} workers sends one gradient for it: name each once"
                    )
        return arrivals

    def _programs(self, shares, batches, arrivals):
        """Return the programs of all devices, as a cluster takes them."""
        n, s, n_parts = len(batches), self.n_servers, self._n_parts
        workers = []
        for number, ticks in enumerate(self._ticks):
            net = Sequential(self.layers, copy.copy(self.loss))
            replica = Replica(net, batches, n_parts, number % n_parts, self.n_steps)
            workers.append(worker(number, replica, n, s, ticks))
        servers = [
            server(share, self._devices, n, order)
            for share, order in zip(shares, arrivals, strict=True)
        ]
        if not self._on_workers:
            return [*servers, *workers]
        lanes = [{"compute": worker, "server": server} for worker, server in zip(workers, servers)]
        return [*lanes, *workers[s:]]

    def _names(self):
        """Return what pictures call the devices."""
        workers = [f"worker {number}" for number in range(self.n_workers)]
        if self._on_workers:
            return workers
        return ["server" if self.n_servers == 1 else f"server {k}" for k in range(self.n_servers)] + workers

    def _take(self, shares, optimizer, memory):
        """Make the weights, statistics and optimizer state of the finished run those of the network."""
        first = shares[0]
        write_shards(first.layers, [share.part for share in shares])  # server 0 has what layers count, too
        kept = {}
        for number in first.kept:
            vectors = join_chunks([share.kept[number] for share in shares], self._vectors())
            kept[number] = leaves(unflattened(vectors, pairs_of_layers(self.layers)))
        with self._lock, all_or_nothing([self, optimizer, *self._all_layers]):
            for layer, new in zip(self._all_layers, every_layer(first.layers), strict=True):
                for name in layer.arrays:
                    setattr(layer, name, getattr(new, name))
            optimizer.memory, optimizer.last_rate = memory, optimizer.learning_rate
            optimizer.n_updates += len(first.updates)
            optimizer.network = self.token
            self.n_steps += len(first.updates)
            self.updates, self.kept = first.updates, kept
            self.arrivals = [share.arrivals for share in shares]

    def _vectors(self):
        return flattened(pairs_of_layers(self.layers))


def round_ticks(
    times: Sequence[float], n_bytes: int, bandwidth: float, *, servers: int = 1, latency: float = 0
) -> Fraction | float:
    """Return the ticks of a synchronous round, from weights on all workers to new weights on all of them.

        max over i of (t_i + (N - i + 1) c) + N c + 2 latency

    where t_1 <= t_2 <= ... are the workers' times, and c = n / (s b) is what a server's
    part takes through its port in or its port out; nothing else is in the way. After
    the i-th gradient, N - i more pass the port. With equal workers, that is t + 2 N c +
    ...; if one is far slower, its t + (N + 1) c + ...

    Rounds in a row with equal workers take t + (N + s) c + ... each, up to the last
    one: the worker that gets its weights first is back first, so that the next
    gradients come in while these weights go out.

    Args:
        times: the ticks of a gradient, for each of the N workers, at least as many as servers.
        n_bytes: n, the bytes of all weights; a multiple of `servers`.
        bandwidth: b, of each port of a server, bytes per tick.
        servers: s.
        latency: ticks of a message.

    >>> int(round_ticks([5, 5, 5], n_bytes=8, bandwidth=4)), int(round_ticks([5, 5, 50], 8, 4))
    (17, 58)
    """
    N, c = len(times), Fraction(n_bytes) / (servers * Fraction(bandwidth))
    gathered = max(t + (N - i) * c for i, t in enumerate(sorted(times)))
    return gathered + N * c + 2 * latency


def mini_batches(
    X: np.ndarray, Y: np.ndarray, batch_size: int, *, n: int, seed: int = 0
) -> list[tuple]:
    """Return the first n mini-batches (X, Y) of several passes over the samples.

    Args:
        X, Y: (n[0], m) and (n[L], m).
        batch_size: the most samples of each; those of a pass are as equal as can be.
        n: how many mini-batches.
        seed: each pass is shuffled as by `fit`, so that `fit` meets the same mini-batches in the
            same order.

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
