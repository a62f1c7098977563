"""A network that workers train through parameter servers."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np

from ..arrays import computing, leaves, overflow_refused
from ..checks import listed, one_of, real_number, truth, whole_number, whole_numbers
from ..cluster import Cluster, Link, Port
from ..collectives.group import flattened, join_chunks
from ..engines import Threads
from ..layers import Layer, every_layer
from ..layers.layer import pairs_of_layers
from ..losses import Loss
from ..network import Network
from ..optimizers import Optimizer, checked_optimizer
from ..parallel.layout import MemoryInParts, held_by, layout_of, memories_in, put_together
from ..state import all_or_nothing
from .places import MOST, Places, checked_way, ticks_of_each
from .programs import asynchronous, synchronous, training_worker
from .share import Replica, Share, counted_places

SYNC, ASYNC = MODES = "sync", "async"
CLUSTER, THREADS = ENGINES = "cluster", "threads"


class ParameterServer(Network):
    """A network that N workers train through servers, which have the weights, on simulated devices.

    Each server updates its part of the weights:

        w <- w - (the optimizer's step for g)

    `train(batches, optimizer)` makes the updates. Then `trace`, `updates`, `arrivals` and `kept` say what has
    happened.

    Args:
        layers, loss: as for `Sequential`.
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
        update_ticks: of an update on a server.
        engine: "cluster", simulated devices under one clock; or "threads" of this computer, where the seconds
            decide which gradient comes first: `arrivals` then repeats the run on the cluster, to the bit.
        link, ports: of the messages, as for `Cluster`. Servers are devices 0 to s - 1, workers are s to
            s + N - 1; with `on_workers`, worker k is device k. `minipipe.cluster.ports(s, b)` gives the
            servers alone an egress and an ingress of b bytes per tick.
        seed, dtype: of the weights that layers were not given, as for `Sequential`.

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
        update_ticks: float = 0, engine: str = "cluster", link: Link | dict = Link(),
        ports: Sequence[Port] = (), seed: int = 0, dtype: Any = "float64",
    ) -> None:
        super().__init__(layers, loss, seed, dtype)
        N = self.n_workers = whole_number("workers", workers, 1, MOST)
        s = self.n_servers = whole_number("servers", servers, 1, MOST)
        self._mode, on_workers = one_of("mode", mode, MODES), truth("on_workers", on_workers)
        n_parameters = sum(vector.size for vector in self._vectors())
        if s > n_parameters:
            raise ValueError(
                f"servers={s} exceed the {n_parameters} parameters of the network: use at most {n_parameters}"
            )
        if s > 1 and self.ties:
            raise ValueError(f"servers={s} would tear tied layers apart: use 1 server")
        if on_workers and s > N:
            raise ValueError(f"servers={s} on the devices of {N} workers: use at most {N}")
        self._places, self._ticks = Places.of(s, N, on_workers), ticks_of_each(N, ticks, speeds)
        self._update_ticks = real_number("update_ticks", update_ticks, least=0, note=" ticks", clock=True)
        n_devices = 1 + max(self._places.servers + self._places.workers)
        self._engine, self._way = one_of("engine", engine, ENGINES), checked_way(link, ports, n_devices)
        self.trace, self.updates, self.arrivals, self.kept = None, [], [], {}

    def train(
        self, batches: Sequence[tuple], optimizer: Optimizer, *, keep_every: int | None = None,
        arrivals: Sequence | None = None,
    ) -> list:
        """Make one update for each of `batches`; return J of each, at the weights that its workers read.

        Args:
            batches: a list of (X, Y).
            optimizer: each server works with a copy that has the state of its part; after the run `optimizer`
                has the state of all.
            keep_every: None, or n: keep a copy of the weights after every n updates.
            arrivals: None; or those of another run, for each server the order of the workers' gradients,
                which then is this run's order, too.

        Then `trace` is the run's `Trace`; `updates` is the list of each `Update` of server 0, with its
        workers, its `read` and its `staleness`; `arrivals` is the order in which each server has got
        gradients; and `kept` is {number of updates: the weights then}, a list with an array for each.
        """
        checked_optimizer(optimizer)
        if self.n_servers > 1 and optimizer.needs_whole_parameters:
            raise ValueError(
                f"servers={self.n_servers} with {type(optimizer).__name__}, which looks at whole parameters, "
                "of which each server has a part: use one server, or an optimizer that takes each number by "
                "itself"
            )
        batches, n_parts = self.checked_batches(batches), self._n_parts
        smallest = min(X.shape[-1] for X, _ in batches)
        if n_parts > smallest:
            raise ValueError(
                f"workers={n_parts} exceeds the batch of m={smallest} samples, of which each needs one: use "
                f"at most {smallest}, or a larger batch"
            )
        keep_every = None if keep_every is None else whole_number("keep_every", keep_every, 1)
        orders = self._checked_arrivals(arrivals, len(batches))
        pieces = self._pieces()
        memories = memories_in(pieces, optimizer, self.layers)
        shares = [self._share(k, keep_every, optimizer, memories[0, k]) for k in range(self.n_servers)]
        programs = self._programs(shares, batches, orders)
        driver = Cluster(programs, **self._way) if self._engine == CLUSTER else Threads(programs)
        with computing(), overflow_refused():
            self.trace = driver.run()
        self.trace.names = self._places.names()
        memory = MemoryInParts(pieces, {(0, k): share.optimizer.memory for k, share in enumerate(shares)})
        self._take(shares, optimizer, memory, len(batches))
        return shares[0].costs

    def check_step(self, optimizer: Optimizer) -> None:
        """Raise `ValueError`: the servers make the updates."""
        raise ValueError(
            "the servers make the updates: call train(batches, optimizer), with batches such as those of "
            "minipipe.servers.mini_batches(X, Y, batch_size, n=...), which are those of fit"
        )

    def use(self, weights: Sequence[np.ndarray]) -> None:
        """Replace the weights by these, one of `kept`."""
        for vector, array in zip(self._vectors(), weights, strict=True):
            vector[...] = array.reshape(-1)

    @property
    def _n_parts(self):
        """The parts of a mini-batch, each of another worker."""
        return self.n_workers if self._mode == SYNC else 1

    def _checked_arrivals(self, arrivals, n):
        """Return for each server the order of what comes, or None."""
        if arrivals is None:
            return [None] * self.n_servers
        arrivals = [whole_numbers("arrivals", order, 0) for order in listed("arrivals", arrivals)]
        if len(arrivals) != self.n_servers or any(len(order) < n * self._n_parts for order in arrivals):
            raise ValueError(
                f"arrivals has {len(arrivals)} orders of {[len(order) for order in arrivals]} gradients for "
                f"{self.n_servers} servers and {n} mini-batches: pass those of a run like this one"
            )
        if max(map(max, arrivals)) >= self.n_workers:
            raise ValueError(
                f"arrivals names worker {max(map(max, arrivals))} of {self.n_workers}: pass those of a run "
                "like this one"
            )
        return arrivals

    def _programs(self, shares, batches, orders):
        n, is_sync = len(batches), self._mode == SYNC
        workers = []
        for number in range(self.n_workers):
            part, first = (number, 0) if is_sync else (0, number if number < n else None)
            replica = Replica(
                self._copies(), copy.copy(self.loss), batches, self._n_parts, part, self.n_servers,
                self.n_steps,
            )
            workers.append(training_worker(number, first, replica, self._ticks[number], self._places))
        program = synchronous if is_sync else asynchronous
        servers = [
            program(share, self._places, n, order, self._update_ticks)
            for share, order in zip(shares, orders, strict=True)
        ]
        return self._places.programs(servers, workers)

    def _pieces(self):
        """Return what each server's optimizer remembers, see `Layout`: all numbers, or a range of them."""
        held = held_by(self.layers, lambda key, _: (key, None))
        return layout_of([[held]], [[range(self.n_servers)]], in_ranges=self.n_servers > 1).memory

    def _share(self, k, keep_every, optimizer, memory):
        own = copy.copy(optimizer)
        own.memory = dict(memory)
        return Share(self._copies(), self.ties, k, self.n_servers, own, self._n_parts, keep_every)

    def _copies(self):
        return [layer.copy() for layer in self.layers]

    def _take(self, shares, optimizer, memory, n_updates):
        """Make the weights, statistics and optimizer state of the finished run those of the network."""
        layers = self._copies()
        counted = counted_places(shares[0].layers)
        for (layer, name), (of_server, _) in zip(counted_places(layers), counted, strict=True):
            setattr(layer, name, getattr(of_server, name))
        put_together(layers, [share.part for share in shares])
        kept = {
            version: self._arrays([share.kept[version] for share in shares]) for version in shares[0].kept
        }
        with all_or_nothing([self, optimizer, *self._all_layers]):
            for layer, new in zip(self._all_layers, every_layer(layers), strict=True):
                for name in layer.arrays:
                    setattr(layer, name, getattr(new, name))
            optimizer.memory, optimizer.last_rate = memory, optimizer.learning_rate
            optimizer.n_updates += n_updates
            self.n_steps += n_updates
            self.updates, self.kept = shares[0].updates, kept
            self.arrivals = [share.arrivals for share in shares]

    def _arrays(self, parts):
        """Return the weights of which the servers have these parts, as a list of arrays."""
        vectors = self._vectors()
        shapes = [array.shape for array in leaves(pairs_of_layers(self.layers))]
        whole = join_chunks(parts, vectors)
        return [vector.reshape(shape) for vector, shape in zip(whole, shapes, strict=True)]

    def _vectors(self):
        return flattened(pairs_of_layers(self.layers))
