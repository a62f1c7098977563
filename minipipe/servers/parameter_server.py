"""A network that workers train through parameter servers."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import copy
from collections.abc import Sequence

import numpy as np

from ..arguments import argument
from ..arrays import even_slices, leaves
from ..checks import listed, shown, whole_number, whole_numbers
from ..collectives.group import flattened, join_chunks
from ..layers import Layer, every_layer
from ..layers.layer import pairs_of_layers
from ..losses import Loss
from ..network import Network
from ..optimizers import SGD, Optimizer, checked_optimizer
from ..parallel.batches import checked_batches
from ..parallel.driving import checked_machine, run_programs, shared
from ..parallel.layout import MemoryInParts, held_by, layout_of, memories_in, put_together
from ..parallel.options import Machine, Weights, check_kinds
from ..state import Changes
from .options import HOGWILD, SYNC, Pace, Servers
from .places import GradientTimes, Places
from .programs import SharedMemory, asynchronous, hogwild_memory, hogwild_worker, synchronous, training_worker
from .share import Replica, Share, counted_places


class ParameterServer(Network):
    """A network that N workers train through servers, which have the weights, on simulated devices.

    layers, loss: as for `Sequential`.
    n_workers: N.
    servers: `Servers`: how many, and when they update.
    n_microbatches: of "sync", the parts of a mini-batch, divided among the workers in runs; left out, N.
    pace: a `Pace`: how long gradients and updates take.
    on: a `Machine`, without costs. Servers are devices 0 to s - 1, workers are s to s + N - 1; with
        `on_workers`, worker k is device k. `ports(s, b)` of `minipipe.cluster` gives the servers alone an
        egress and an ingress. On real hardware the seconds decide who comes first; `arrivals` then repeats
        the run on the cluster, to the bit.
    weights: `Weights`; its seed is that of random delays, too.

    `train(batches, optimizer)` returns J of each update; each server updates its part of the weights:

        w <- w - (the optimizer's step for g)

    Then `trace`, `updates`, `late`, `arrivals` and `kept` say what has happened.

    Raises `ValueError` for what does not fit, before anything is computed. A run that fails changes nothing.

    >>> import numpy as np
    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> from minipipe.optimizers import SGD
    >>> layers = [Linear(1, 1, W=[[0.0]], b=[[0.0]])]
    >>> X = np.array([[1.0, 2.0]])
    >>> servers, pace = Servers(mode="async"), Pace(speeds=[1, 0.5])
    >>> net = ParameterServer(layers, MeanSquaredError(), 2, servers, pace=pace)
    >>> costs = net.train([(X, X)] * 4, SGD(0.125))
    >>> [(update.workers, update.staleness) for update in net.updates]
    [((0,), 0), ((0,), 0), ((1,), 2), ((0,), 1)]
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, n_workers: int, servers: Servers = Servers(),
        n_microbatches: int | None = None, pace: Pace = Pace(), on: Machine = Machine(),
        weights: Weights = Weights(),
    ) -> None:
        check_kinds(
            servers=(servers, Servers), pace=(pace, Pace), on=(on, Machine), weights=(weights, Weights)
        )
        super().__init__(layers, loss, weights.seed, weights.dtype)
        N = self.n_workers = argument("n_workers", n_workers)
        self._servers, s = servers, servers.n
        self.n_microbatches = self._checked_microbatches(n_microbatches)
        if servers.backups >= N:
            raise ValueError(
                f"backups={servers.backups} of {N} workers leave none to wait for: use at most {N - 1}"
            )
        n_parameters = sum(vector.size for vector in self._vectors())
        if s > n_parameters:
            raise ValueError(
                f"n={s} servers exceed the {n_parameters} parameters of the network: use at most "
                f"{n_parameters}"
            )
        if s > 1 and self.ties:
            raise ValueError(f"n={s} servers would tear tied layers apart: use 1 server")
        if servers.on_workers and s > N:
            raise ValueError(f"n={s} servers on the devices of {N} workers: use at most {N}")
        self._places = Places.of(s, N, servers.on_workers)
        self._times, self._update_ticks = GradientTimes(N, pace, weights.seed), pace.update_ticks
        self._machine = checked_machine(on, 1 + max(self._places.servers + self._places.workers))
        self._shares, self.trace, self.updates, self.late, self.arrivals, self.kept = (), None, [], [], [], {}

    @property
    def n_servers(self) -> int:
        """s, the servers."""
        return self._servers.n

    def train(
        self, batches: Sequence[tuple], optimizer: Optimizer, keep_every: int | None = None,
        arrivals: Sequence | None = None,
    ) -> list:
        """Make one update for each of `batches`; return J of each, at the weights that its workers read.

        batches: a list of (X, Y).
        optimizer: each server works with a copy that has the state of its part; after the run `optimizer` has
            the state of all.
        keep_every: None, or n: keep a copy of the weights after every n updates.
        arrivals: None; or those of another run, for each server the order of the workers' gradients, which
            then is this run's order, too.

        Then `trace` is the run's `Trace`; `updates` the list of each `Update` of server 0, with its workers,
        its `read` and its `staleness`, and `late` of what was thrown away; `arrivals` is the order in which
        each server has got gradients, and `kept` is {number of updates: the weights then}, a list with an
        array for each.
        """
        self.check_training(optimizer)
        batches = checked_batches(self, batches)
        keep_every = None if keep_every is None else argument("keep_every", keep_every)
        orders = self._checked_arrivals(arrivals, len(batches))
        pieces = self._pieces()
        memories = memories_in(pieces, optimizer, self.layers)
        shares = [self._share(k, keep_every, optimizer, memories[0, k]) for k in range(self.n_servers)]
        programs = self._programs(shares, batches, orders, optimizer.learning_rate)
        names = self._places.names()
        self.trace = run_programs(self._machine, programs, batches, names)
        shares = [self._shared(k, share) for k, share in enumerate(shares)]
        memory = MemoryInParts(pieces, {(0, k): share.memory for k, share in enumerate(shares)})
        self._take(shares, optimizer, memory, len(batches))
        return shares[0].costs

    def check_step(self, optimizer: Optimizer) -> None:
        """Raise `ValueError`: the servers make the updates."""
        raise ValueError(
            "the servers make the updates: call train(batches, optimizer), with batches such as those of "
            "minipipe.servers.mini_batches(X, Y, batch_size, n), which are those of fit"
        )

    def check_fit(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError`: the servers make the updates, not `fit`."""
        self.check_step(optimizer)

    def check_training(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError` unless servers can make the updates of `optimizer`."""
        checked_optimizer(optimizer)
        s = self.n_servers
        if clip is not None:
            raise ValueError(f"clip={shown(clip)}, but no server has the norm of all gradients: leave it out")
        if s > 1 and optimizer.needs_whole_parameters:
            raise ValueError(
                f"n={s} servers with {type(optimizer).__name__}, which looks at whole parameters, of which "
                "each server has a part: use one server, or an optimizer that takes each number by itself"
            )
        is_plain = type(optimizer) is SGD and not (optimizer.momentum or optimizer.weight_decay)
        if self._servers.mode == HOGWILD and not is_plain:
            raise ValueError(
                f"mode 'hogwild' with {type(optimizer).__name__}: without a lock, use SGD without momentum "
                "or weight decay"
            )

    def use(self, weights: Sequence[np.ndarray]) -> None:
        """Go on with these weights, one of `kept`, in the place of the last."""
        for vector, array in zip(self._vectors(), weights, strict=True):
            vector[...] = array.reshape(-1)

    def _checked_microbatches(self, n_microbatches):
        if self._servers.mode != SYNC:
            if n_microbatches is not None and whole_number("n_microbatches", n_microbatches) != 1:
                raise ValueError(
                    f"n_microbatches={n_microbatches} in mode {self._servers.mode!r}, where each worker has "
                    "mini-batches of its own: leave it out"
                )
            return 1
        if n_microbatches is None:
            return self.n_workers
        return whole_number("n_microbatches", argument("n_microbatches", n_microbatches), self.n_workers)

    def _checked_arrivals(self, arrivals, n):
        """For each server the order of what comes, or None."""
        if arrivals is None:
            return [None] * self.n_servers
        arrivals = [whole_numbers("arrivals", order, 0) for order in listed("arrivals", arrivals)]
        wanted = n * {SYNC: self.n_workers - self._servers.backups, HOGWILD: 2}.get(self._servers.mode, 1)
        if len(arrivals) != self.n_servers or any(len(order) < wanted for order in arrivals):
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

    def _programs(self, shares, batches, orders, learning_rate):
        n, N = len(batches), self.n_workers
        first = [number if number < n else None for number in range(N)]
        runs = [range(1)] * N
        if self._servers.mode == SYNC:
            first = [0] * N
            runs = [range(part.start, part.stop) for part in even_slices(self.n_microbatches, N)]
        workers = []
        for number in range(N):
            replica = Replica(
                self._copies(), copy.copy(self.loss), batches, self.n_microbatches, runs[number],
                self.n_servers, self.n_steps,
            )
            given = number, first[number], replica, self._times, self._places
            if self._servers.mode == HOGWILD:
                workers.append(hogwild_worker(*given, learning_rate, self._update_ticks))
            else:
                workers.append(training_worker(*given))
        servers = [self._server(share, batches, order) for share, order in zip(shares, orders, strict=True)]
        return self._places.programs(servers, workers)

    def _server(self, share, batches, order):
        n = len(batches)
        if self._servers.mode == HOGWILD:
            return hogwild_memory(share, self._places, n, order)
        if self._servers.mode == SYNC:
            m_of, n_wanted = [X.shape[-1] for X, _ in batches], self.n_workers - self._servers.backups
            return synchronous(share, self._places, n_wanted, m_of, order, self._update_ticks)
        return asynchronous(share, self._places, n, self._servers.bound, order, self._update_ticks)

    def _pieces(self):
        """What each server's optimizer remembers, see `Layout`: all, or a range of the network's numbers."""
        held = held_by(self.layers, lambda key, _: (key, None))
        return layout_of([[held]], [[range(self.n_servers)]], in_ranges=self.n_servers > 1).memory

    def _share(self, k, keep_every, optimizer, memory):
        kind, own = SharedMemory if self._servers.mode == HOGWILD else Share, copy.copy(optimizer)
        own.memory = dict(memory)
        return kind(
            self._copies(), self.ties, k, self.n_servers, own, self.n_microbatches,
            self._servers.compensation, keep_every,
        )

    def _copies(self):
        return [layer.copy() for layer in self.layers]

    def _shared(self, k, share):
        """What has come of server k, which on MPI only its own rank knows."""
        names = "part", "counted", "memory", "costs", "updates", "late", "arrivals", "kept"
        return shared(self._machine.engine, self._places.servers[k], share, names)

    def _take(self, shares, optimizer, memory, n_updates):
        """Make the weights, statistics and optimizer state of the finished run those of the network."""
        changes, layers = Changes(), self._copies()
        for (layer, name), array in zip(counted_places(layers), shares[0].counted, strict=True):
            setattr(layer, name, array)
        put_together(layers, [share.part for share in shares])
        for layer, new in zip(every_layer(self.layers), every_layer(layers), strict=True):
            changes.of(layer, **{name: getattr(new, name) for name in layer.arrays})
        changes.of(optimizer, memory=memory, n_updates=optimizer.n_updates + n_updates,
                   last_rate=optimizer.learning_rate)
        kept = {
            version: self._arrays([share.kept[version] for share in shares]) for version in shares[0].kept
        }
        changes.of(
            self, updates=shares[0].updates, late=shares[0].late, kept=kept, n_steps=self.n_steps + n_updates,
            arrivals=[share.arrivals for share in shares],
        )
        self.decide(changes)

    def _arrays(self, parts):
        """The weights of which the servers have these parts, as a list of arrays."""
        vectors = self._vectors()
        shapes = [array.shape for array in leaves(pairs_of_layers(self.layers))]
        whole = join_chunks(parts, vectors)
        return [vector.reshape(shape) for vector, shape in zip(whole, shapes, strict=True)]

    def _vectors(self):
        return flattened(pairs_of_layers(self.layers))
