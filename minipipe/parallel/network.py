"""The network that D x T x K simulated devices train together."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from ..checks import shown
from ..cluster import Link, Port, Trace
from ..cluster.trace import Tick
from ..layers import Layer, every_layer
from ..layers.attention import SELECTIVE, recomputing
from ..losses import Loss
from ..network import Network, check_finite_cost, check_finite_run
from ..optimizers import Optimizer, checked_optimizer
from ..order import Costs
from ..order.programs import Wires
from ..partitioning.partition import cut_into_stages
from ..state import State, all_or_nothing, checked_state
from .batches import MicroBatches, checked_batches
from .layout import MemoryInParts, layout_of, memories_in, parts
from .options import CLUSTER, Cut, Options, Sums
from .orders import Order, order_of
from .ranks import Ranks
from .run import Run
from .splitting import ShardedStages, Shard, synchronised
from .stage import itself, stages_of


class Parallel(Network):
    """A drop-in for `Sequential` that D x T x K simulated devices train together.

    Args:
        layers, loss: as for `Sequential`.
        replicas: D, the replicas of the network, which share the samples.
        shards: T, the devices that share the work inside each layer, see `ways`.
        stages: K, the number of stages; or a `Cut`, which says where to cut. A schedule
            that puts v stages on a device runs on K / v devices.
        microbatches: M, the parts of each mini-batch, of all replicas together; left
            out, D. Their sizes may differ by one sample.
        schedule: a name, text, file or function, see `minipipe.schedules.build`, for
            one replica, K stages and M / D micro-batches; or a `Schedule` of all
            replicas and M micro-batches.
        recompute: which forwards are recomputed before their backward. "never";
            "always", devices keep only each stage's input; "except_last", all but the
            last micro-batch; "sqrt", always, but the L layers of a stage become about
            sqrt(L) stages on its device, each of which keeps its input; "selective",
            only the attention weights P, inside B (or I): raise its cost in `costs`.
        zero: the level of ZeRO (Rajbhandari et al. 2020, arXiv 1910.02054), see
            `minipipe.order.with_zero`. 0: each of N devices with a replica of a stage
            updates all of it. 1: each updates its shard, 1/N of the parameters, and has
            optimizer state for it only. 2: with buckets, it also keeps only its shard
            of the summed gradients. 3: FSDP, it also keeps only its shard of the
            parameters, and gathers a bucket's, or without buckets a layer's, for each
            forward and backward. From level 1 on, the order makes the updates: call
            `train`, with an optimizer that updates each entry by itself.
        sums: a `Sums`: how gradients are added up.
        engine: "cluster", simulated devices under one clock; "threads" of this
            computer; or "mpi", processes that `mpiexec` has started. All give the same
            bits. With "threads" and "mpi", the trace is in measured seconds; costs,
            link and ports are not used, bytes are not counted, and `start` and `tick`
            are refused.
        costs: a `Costs`, in ticks: a number is for a device's share of the network,
            divided among its stages; a list has one number for each stage.
        link: the ticks of messages: one `Link`, or a dict {(source, to): Link}.
        ports: what several links share, as for `Cluster`.
        numbering: the axes by which devices are numbered, the fastest first. Device t
            of the shards, d of the replicas and p of the P devices of a replica has the
            number t + T (d + D p) with "tp-dp-pp", t + T (p + P d) with "tp-pp-dp".
        count_bytes: whether the trace has the bytes that devices hold, see
            `Trace.peak_bytes`. Counting takes time. A memory_limit implies it.
        memory_limit: bytes per device, past which a run stops with `MemoryLimitError`.
            The bytes at the start and the end of each action count.
        seed: the seed of weights that are not given, see `Network`.
        dtype: the float type of the whole network, see `Network`.

    `forward_backward(X, Y)` runs a mini-batch, `start(X, Y)` and `tick()` run it tick
    by tick, and `step(optimizer)` updates the parameters. `train(batches, optimizer)`
    does both for each mini-batch; an order that makes the updates itself, by actions
    `U`, needs it. J, `gradients` and `trace` are those of the last run.

    Each gradient carries the 1/m of the whole mini-batch, so the replicas' sum is the
    full batch's gradient. `layers` and `gradients` are the whole network's.

    With `engine="mpi"`, `mpiexec -n 2 python3 train.py` runs a program on all ranks:

        import minipipe as mp
        layers = [mp.Linear(64, 32), mp.ReLU(), mp.Linear(32, 10)]
        loss, (X, Y) = mp.SoftmaxCrossEntropy(), mp.datasets.digits().train
        net = mp.Parallel(layers, loss, stages=2, microbatches=4, engine="mpi")
        report = print if mp.engines.world().rank == 0 else None
        mp.fit(net, X, Y, mp.SGD(0.1), 2, batch_size=32, report=report)
        mp.save("digits.npz", net)                # by all ranks; rank 0 writes

    Ranks must make the same calls in the same order, also of `gradients`, `trace`,
    `predict`, `save`, `load`. An error says where calls, arguments, data, parameters or
    optimizers differ; nothing has changed then. If one rank raises an exception in a
    run, all ranks raise it; an exception that is not caught ends the job.

    With an asynchronous schedule, such as "pipedream", `train` sends mini-batches one
    after another, without a flush. The schedule's `versions` say with which weights a
    gradient is computed; a stage keeps each version as long as a micro-batch needs it.
    Tied weights are refused: they need a flush.

    A run that fails or is abandoned changes no parameters, running statistics or
    optimizer. An order with updates works with copies of the layers; other attributes
    that a layer of yours changes stay in the copies.

    Sources: Huang et al. 2018, arXiv 1811.06965; Shoeybi et al. 2019, arXiv 1909.08053;
    Narayanan et al. 2019, SOSP, and 2021, arXiv 2104.04473.

    >>> import numpy as np
    >>> from minipipe import Linear, MeanSquaredError, ReLU
    >>> layers = [Linear(2, 4), ReLU(), Linear(4, 3), Linear(3, 1)]
    >>> net = Parallel(layers, MeanSquaredError(), replicas=2, shards=2, stages=2, microbatches=4)
    >>> X, Y = np.arange(10.0).reshape(2, 5), np.ones((1, 5))
    >>> J = net.forward_backward(X, Y)
    >>> net.trace.n_devices, net.groups["pp"]
    (8, [[0, 4], [1, 5], [2, 6], [3, 7]])
    """

    def __init__(
        self, layers: Sequence[Layer], loss: Loss, *, replicas: int = 1, shards: int = 1,
        stages: int | Cut = 1, microbatches: int | None = None, schedule: Order = "1f1b",
        recompute: str = "never", zero: int = 0, sums: Sums = Sums(), engine: str = CLUSTER,
        costs: Costs = Costs(), link: Link | dict = Link(), ports: Port | Sequence[Port] = (),
        numbering: str = "tp-dp-pp", count_bytes: bool = False, memory_limit: float | None = None,
        seed: int = 0, dtype: DTypeLike | None = None,
    ) -> None:
        options = Options(
            replicas, shards, stages, microbatches, schedule, recompute, zero, sums, engine, costs, link,
            ports, numbering, count_bytes, memory_limit, seed, dtype,
        )
        if options.recompute == SELECTIVE:
            layers = recomputing(layers)
        super().__init__(layers, loss, options.seed, options.dtype, sums.grain)
        options = replace(options, dtype=self.dtype)
        self.schedule, self._stream, counts, costs = order_of(self.layers, loss, options, self.ties)
        options.check_devices(options.shards * len(self.schedule.devices))
        self._options = replace(options, costs=costs)
        self._at_work = tuple(map(synchronised, self.layers)) if sums.sync_batch_norm else self.layers
        self._own_stages = stages_of(cut_into_stages(self._at_work, counts), loss)
        self.stages = self._own_stages  # with the network's layers; after a run, the stages of the run
        # for each layer, its (stage, index there)
        self._place_of = [(s, index) for s, count in enumerate(counts) for index in range(count)]
        self._run: Any = None
        self._optimizer: Optimizer | None = None  # the optimizer of a run with updates
        self._wires: Any = None  # the wires of the order, the same for all runs
        self._layout: Any = None  # where the parameters are, the same for all runs
        self._from_all_ranks: list[tuple] | None = None  # the gradients that ranks have broadcast
        self._memory: dict = {}  # optimizer state after the last step
        self._ranks = Ranks(self._options, self.schedule, self.layers, counts)
        self._ranks.check_network(self.schedule, loss)
        self._ways = Shard(self._at_work, loss, 0, options.shards).ways

    def forward_backward(self, X: np.ndarray, Y: np.ndarray) -> Any:
        """Run the mini-batch X (n[0], m), Y (n[L], m); set `gradients`; return J."""
        self._check_without_updates("train([(X, Y), ...], optimizer)")
        self.run_to_the_end(checked_batches(self, [(X, Y)]))
        return self.J

    @property
    def n_stages(self) -> int:
        """The number of stages."""
        return len(self.stages)

    @property
    def n_microbatches(self) -> int:
        """The number of micro-batches in each mini-batch."""
        return self._options.microbatches

    @property
    def has_updates(self) -> bool:  # type: ignore[override]  # `Network` has a constant
        """Whether the order makes the updates, by actions `U`, and not `step`."""
        return "U" in self.schedule.kinds

    @property
    def ways(self) -> list[str]:
        """For each layer, how it is split over the shards."""
        return list(self._ways)

    @property
    def groups(self) -> dict[str, list]:
        """{axis: its groups}; devices of a group differ only in their place along it.

        The axes are "tp", the shards, "dp", the replicas, and "pp", the stages.
        """
        return self._options.groups(len(self.schedule.devices))

    def check_step(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise an error unless `step(optimizer, clip)` is possible.

        It is a `RuntimeError` if the order has updates, otherwise a `ValueError`.
        """
        self._ranks.check_step(optimizer, clip)
        checked_optimizer(optimizer).check_network(self.token)
        if self.has_updates:
            raise RuntimeError(
                f"the order of {self.schedule.name!r} updates the stages itself: "
                "a step would be a second update; use train([(X, Y), ...], optimizer)"
            )

    def check_training(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError` unless train(batches, optimizer, clip) can start."""
        if not self.has_updates:
            self._ranks.forget()  # at the beginning of a training, ranks compare all arrays
            super().check_training(optimizer, clip)
            return
        checked_optimizer(optimizer).check_network(self.token)
        if clip is not None:
            raise ValueError(
                f"clip={shown(clip)} with the order of {self.schedule.name!r}, whose devices update before "
                "they know the norm of all gradients: leave clip out, or use an order without U"
            )
        is_sharded = "S" in self.schedule.kinds or self._options.shards > 1
        if is_sharded and (why := optimizer.why_no_parts()):
            raise ValueError(
                f"{type(optimizer).__name__} {why}, but with {self.schedule.name!r}, each device updates "
                "a part of a parameter: use an order without U and zero=0, or an optimizer whose step "
                "updates each number by itself"
            )

    def check_fit(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError` unless `fit` can use `optimizer` and `clip` here."""
        if self._stream is not None:
            raise ValueError(
                f"the schedule {self.schedule.name!r} lets mini-batches follow each other without a flush, "
                "for which fit would wait: use train([(X, Y), ...], optimizer)"
            )
        super().check_fit(optimizer, clip)

    def start(self, X: np.ndarray, Y: np.ndarray, optimizer: Optimizer | None = None) -> None:
        """Load a mini-batch, with the clock at tick 0; `tick` continues from there.

        Args:
            X, Y: the mini-batch, (n[0], m) and (n[L], m).
            optimizer: for an order that makes the updates itself; otherwise None.
        """
        self._check_ticks()
        if self._stream is not None:
            self._check_without_updates("train([(X, Y), ...], optimizer)")
        if optimizer is None:
            self._check_without_updates("start(X, Y, optimizer)")
        elif self.has_updates:
            self.check_training(optimizer)
        else:
            raise ValueError(
                f"the order of {self.schedule.name!r} has no U for an optimizer: pass it to step(optimizer)"
            )
        batches = checked_batches(self, [(X, Y)])
        self._prepare()
        self._load(batches, optimizer)

    def tick(self) -> Tick:
        """Advance by one tick; return a `Tick`, true until the run is done."""
        self._check_ticks()
        passed = self._loaded_run().tick()
        if not passed:
            self._commit()
        return passed

    def train(self, batches: Iterable[tuple], optimizer: Optimizer, clip: float | None = None) -> list:
        """Update with `optimizer` after each mini-batch; return the list of costs.

        Without a flush, all mini-batches are one run, otherwise each is a run. If the
        order has updates, each device works with a copy of `optimizer`, which gets
        their state after the run.

        Args:
            batches: mini-batches (X, Y).
            optimizer: makes the updates.
            clip: None, or the largest norm of all gradients, see `Network.step`.

        Raises:
            FloatingPointError: if anything overflows; that run then changes nothing.
        """
        if not self.has_updates:
            return super().train(batches, optimizer, clip)
        self.check_training(optimizer, clip)
        batches = checked_batches(self, batches, in_one_run=self._stream is not None)
        if self._stream is not None:
            self.schedule, *_ = order_of(self.layers, self.loss, self._stream, self.ties, len(batches))
            self.run_to_the_end(batches, optimizer)
            return list(self.stages[-1].costs)
        costs = []
        for batch in batches:
            self.run_to_the_end([batch], optimizer)
            costs.append(self.J)
        return costs

    @property
    def J(self) -> Any:
        """The cost of the mini-batch that was run last."""
        self._loaded_run().check()
        last = self.stages[-1]
        return last.costs[-1] if last.costs else last.totals.cost()

    @property
    def gradients(self) -> list[tuple]:
        """The list over the layers of `(dW, db)` of the last mini-batch.

        With MPI, all ranks must ask for it, since each broadcasts those of its stages.
        """
        here = self.own_gradients()
        if self._from_all_ranks is None:
            self._from_all_ranks = self._ranks.of_all_layers(here, "collecting the gradients")
        return self._from_all_ranks

    def own_gradients(self) -> list[tuple]:
        """Return [(dW, db)] of all layers; (None, None) for layers of other ranks."""
        if self._gradients is None:
            self._loaded_run().check()
            raise RuntimeError(
                f"the order of {self.schedule.name!r} has applied the gradients itself (its U): to read "
                "them, use a schedule without U and zero=0"
            )
        return self._gradients

    @property
    def trace(self) -> Trace:
        """The `Trace` of the last run, up to the present tick."""
        trace = self._loaded_run().cluster.trace
        trace.names = self._options.names(len(self.schedule.devices))
        return trace

    @property
    def replicas(self) -> list[list[Layer]]:
        """For each replica, its layers after the last run and the steps since.

        All replicas take over a step, but make updates of the order themselves. With
        several shards, these are the layers of the first shard after the last run.
        """
        self._loaded_run().check()
        stages = self._run.stages
        return [
            [layer for stage, device in enumerate(placement) for layer in stages[stage, device].layers]
            for placement in self._wires[0].placements
        ]

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({list(self.stages)}, {self.loss}, schedule={self.schedule.name!r}, "
            f"microbatches={self.n_microbatches})"
        )

    def run_to_the_end(self, batches: Sequence[tuple], optimizer: Optimizer | None = None) -> None:
        """Run checked mini-batches `batches` (X, Y), and commit the results.

        If the order has updates, they are made with `optimizer`.
        """
        self._prepare()
        try:
            self._load(batches, optimizer)
            self._run.to_the_end(self._ranks.to_compare(optimizer))
            self._commit()
        except BaseException:
            if self._run is not None and not self._committed:
                self._run.leave()
            raise

    def keep_memory(self, optimizer: Optimizer) -> None:
        """Keep the state of `optimizer`; give all replicas the updated parameters."""
        if self._run is not None and self._options.shards == 1:
            for (index, _), stage in self._run.stages.items():
                stage.follow(self._own_stages[index])
        self._memory = self._ranks.kept_memory(optimizer)

    def collect(self, optimizer: Optimizer | None = None) -> Optimizer | None:
        """Collect all ranks' parameters; return `optimizer` with all of its state."""
        self._ranks.collect_parameters()
        return None if optimizer is None else self._ranks.with_all_memory(optimizer)

    def once(self, function: Callable[[], None]) -> None:
        """Call `function` on rank 0, while the other ranks wait."""
        self._ranks.once(function)

    def resume(self, state: State, optimizer: Optimizer | None = None) -> None:
        """Resume from `state` with `optimizer`; MPI ranks compare them before."""
        self._ranks.check_state(checked_state(state), optimizer)
        super().resume(state, optimizer)

    def forget_run(self) -> None:
        """Abandon an unfinished run, and drop the results of the last run."""
        if self._run is not None and not self._committed:
            self._run.leave()
        self._run = self._from_all_ranks = None
        super().forget_run()

    def _prepare(self):
        """Abandon an unfinished run; make the `Wires` of the schedule, if it is new."""
        self._parameters.check()
        self.forget_run()
        self._committed = False
        order = self.schedule
        if self._wires is None or self._wires[0].schedule != order:
            skips = [(name, *(self._place_of[end][0] for end in ends)) for name, ends in self.skips.items()]
            wires = [Wires(order, skips, ranks) for ranks in self._options.ranks(len(order.devices))]
            self._layout = None
            self._wires = wires  # last: an interrupt before this line must not mix two orders

    def _load(self, batches, optimizer=None):
        """Make a run, with its clock at 0. optimizer: for an order with updates."""
        stages = self._own_stages
        if self.has_updates:  # an interrupted run leaves the network's own layers as they are
            stages = tuple(stage.twin() for stage in stages)
        sharded = ShardedStages(stages, self.loss, self._options.shards)
        order = self._wires[0].schedule
        if self._layout is None:
            holders = [[wires.holders(s) for s in range(order.n_stages)] for wires in self._wires]
            self._layout = layout_of(sharded.held(), holders, in_ranges="S" in order.kinds)
        memories = {}
        if optimizer is not None:
            memories = memories_in(self._layout.memory, optimizer, self._layers)
        elif self._memory:
            memories = parts(self._layout.memory, self._memory)
        line = MicroBatches(batches, self.n_microbatches, self.n_steps, self.grain)
        self._optimizer = optimizer
        self._run = Run(
            self._wires, sharded, line, optimizer, memories, self.ties, self._layout, self._options
        )
        self.stages = tuple(sharded.stages[0])

    def _commit(self):
        """Commit a finished run, once: keep its gradients, or take over its updates."""
        if self._committed:
            return
        gradients = None
        with self._run.as_a_whole():
            for J in self.stages[-1].costs:
                check_finite_cost(self.loss, J)
            if not self.has_updates:
                gradients = self._run.gradients()
                check_finite_run(self.loss, self.J, self.layers, gradients)
        self._run.finish()
        # collective calls come before the block, in which Ctrl-C is held back
        found = self._run.whole_layers() if self.has_updates else self._run.statistics()
        optimizers = [] if self._optimizer is None else [self._optimizer]
        # all new arrays exist by now: the commit computes nothing, it only assigns
        with self._lock, all_or_nothing([self, *optimizers, *self._all_layers]):
            if self.has_updates:
                self._take_updates(found)
            else:
                self._gradients, self._counted = gradients, found
            self._committed, self._optimizer = True, None

    def _take_updates(self, layers):
        """Take the arrays of `layers`, updated by the run, and the optimizer state."""
        at_work = every_layer([layer for stage in self._own_stages for layer in stage.layers])
        for layer, new in zip(at_work, every_layer(layers), strict=True):
            for name in layer.arrays:
                setattr(layer, name, getattr(new, name))
        self._parameters.keep()
        optimizers = {place: stage.optimizer for place, stage in self._run.stages.items()}
        # keep the user's learning rate: each U has read it from the user's optimizer
        rate = self._optimizer.learning_rate
        vars(self._optimizer).update(vars(next(iter(optimizers.values()))))
        self._optimizer.learning_rate = rate
        self._optimizer.count_step(self.token)
        memories = {place: optimizer.memory for place, optimizer in optimizers.items()}
        self._optimizer.memory = MemoryInParts(self._layout.memory, memories)
        self.n_steps += len(self.stages[-1].costs)
        self._ranks.know(self._optimizer)

    def _idle_layers(self):
        if self._run is None or self._committed:
            return self.layers
        # an unfinished run has its caches in the layers
        return [layer.copy(itself) for layer in self.layers]

    def _squares_of_layers(self):
        return self._ranks.of_all_layers(super()._squares_of_layers(), "the norm of the gradients")

    def _check_ticks(self):
        """Raise `ValueError` for an engine that measures seconds."""
        engine = self._options.engine
        if engine != CLUSTER:
            raise ValueError(f"{engine} know seconds, not ticks: use forward_backward, or engine='cluster'")

    def _loaded_run(self):
        if self._run is None:
            call = "train([(X, Y), ...], optimizer)" if self.has_updates else "forward_backward(X, Y)"
            raise RuntimeError(f"nothing has run yet: call {call}")
        return self._run

    def _check_without_updates(self, remedy):
        """Raise `ValueError` if the order makes the updates itself."""
        if self.has_updates:
            raise ValueError(f"the order of {self.schedule.name!r} updates the stages itself: use {remedy}")
