"""The pipeline: a network cut into stages, run by a schedule on a cluster."""

import numpy as np

from ..changes import Changes
from ..checks import whole_number
from ..cluster import Link
from ..collectives import OWNERS
from ..layers import every_layer
from ..layers.recomputing import SELECTIVE, recomputing
from ..network import check_finite_cost, check_finite_run
from ..partitioning.partition import counts_of, cut
from ..schedules import Costs
from ..schedules.costs import checked_costs
from .batches import MicroBatches, checked_batches
from .closing import tied_layers
from .every_sqrt import EVERY_SQRT, every_sqrt
from .in_stages import InStages
from .known_bytes import KnownBytes
from .layout import MemoryInParts, memories_in, parts
from .machine import CLUSTER, Machine
from .orders import check_updates, checked_order, mode_of
from .run import Run
from .talking_stage import stage_of
from .wires import Wires, skips_across_stages


class Pipeline(InStages):
    """A drop-in for `Sequential` that trains on simulated devices.

    layers, loss, seed, dtype: as for `Sequential`.
    n_stages: K, the parts that the layers are cut into.
    n_microbatches: M, the parts that each mini-batch is cut into, ragged ones if need be.
    schedule: one of the names in `minipipe.schedules.SCHEDULES`; a `Schedule`; or
        a function (n_stages, number of micro-batches) -> `Schedule`.
    recompute: True or "always", keep only each stage's input and compute its forward again before the
        backward; "except_last", for all but the last micro-batch; "sqrt", always, but keep an input for
        every sqrt(L) of a stage's L layers: each stage then becomes about sqrt(L) stages on one device,
        which share its costs; "selective", only the shares within attention, see `recomputing`: the order
        stays as it is, and the costs of B, or I, are yours to raise.
    partition: a list with the number of layers of each stage; left out, as equal as can be; "parameters", or
        "macs", "bytes", "time" or a function, to balance that, see `partition`.
    sample: a micro-batch (X, Y), for all of these but "parameters".
    costs, link: the ticks of the actions and of the messages.
    memory_limit: bytes per device, past which a run stops with `MemoryLimitError`. What is held at the start
        and the end of each action counts; inside it, layers need more for a moment, see `temporaries`.
    engine: "cluster", simulated devices under one clock; "threads", where each device is a thread of this
        computer; or "mpi", where it is a process that `mpiexec` has started, see `InStages`. All give the
        same bits. The trace of the last two is in seconds; costs and link do not count, and neither do
        bytes that are held; a mini-batch then runs to its end, not tick by tick.
    accumulate: how gradients are summed over micro-batches. "tree", along a fixed tree: the bits are those of
        every schedule, and a device keeps up to about log2(M) + 1 partial sums. "running", in one buffer in
        order of arrival, and those of several copies in the order of the copies: one sum, the bits of which
        may depend on the schedule. (J and batch norm's statistics are small: they always go along the tree.)
    all_reduce: how copies of a stage on several devices put their gradients together: "owners", along that
        tree, too; or another of `minipipe.collectives.ALL_REDUCES`, where their bits depend on the number of
        copies, and each copy has the same.
    ports: what several links share, as for `Cluster`.
    grain: None, or the samples of a grain, as for `Sequential`, whose bits it then has, however it is split:
        micro-batches are cut at multiples of it, and pass the layers of a stage grain by grain.

    `forward_backward(X, Y)` runs a mini-batch to its end; `start(X, Y)` and `tick()` run it tick by tick.
    Then J, `gradients` and `trace` are those of that run. Every forward and backward of a mini-batch uses
    the same parameters; only `step(optimizer)` changes them. `train(batches, optimizer)` does both for a list
    of mini-batches; an order that makes the updates itself, by actions `U`, runs in no other way. Wrong
    arguments and data raise `ValueError` at once, a schedule with faults `ScheduleError`. Source: Huang
    et al. 2018, arXiv 1811.06965.

    The bytes in a trace depend on the order, the costs and the shapes, not on the numbers in the arrays. So
    they are counted in the first mini-batch of its shapes, and the next ones take them over. They are counted
    in each with a memory_limit, with `tick`, or with a layer or loss of yours that defines anew what a
    network calls. Once they are taken over, the process keeps the memory that it has freed.

    With an asynchronous schedule, such as "pipedream", `train` sends mini-batches one behind another, without
    ever waiting for the last of one before the next begins. The schedule's `versions` then say at which
    weights a gradient is computed; a stage keeps each version as long as a micro-batch needs it. Tied weights
    are refused: they would need a flush. Source: Narayanan et al. 2019, SOSP.

    A run that fails, or that is left for another one before its end, changes no parameters, running
    statistics or optimizer: an order with updates works with layers of its own, and hands over their arrays
    at its end. What else a layer of yours changes in itself stays with the run.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [Linear(2, 4), ReLU(), Linear(4, 1)]
    >>> pipe = Pipeline(layers, MeanSquaredError(), n_stages=3, n_microbatches=2)
    >>> X, Y = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([[1.0, 0.0, 1.0]])
    >>> J = pipe.forward_backward(X, Y)
    >>> pipe.trace.makespan, [dW.shape for dW, db in pipe.gradients if dW is not None]
    (12, [(4, 2), (1, 4)])
    >>> from minipipe.optimizers import SGD
    >>> stream = Pipeline(layers, MeanSquaredError(), 3, 1, "pipedream")
    >>> costs = stream.train([(X, Y)] * 8, SGD(learning_rate=0.1))
    >>> len(costs), stream.trace.makespan                                   # (M + K - 1)(F + B)
    (8, 30)
    """

    def __init__(
        self, layers, loss, n_stages, n_microbatches, schedule="gpipe", recompute=False, seed=0,
        dtype=np.float64, partition=None, sample=None, costs=Costs(), link=Link(), memory_limit=None,
        engine=CLUSTER, accumulate="tree", all_reduce=OWNERS, ports=(), grain=None,
    ):
        n_stages = whole_number("n_stages", n_stages)
        n_microbatches = whole_number("n_microbatches", n_microbatches)
        recompute = mode_of(recompute)
        if recompute == SELECTIVE:
            layers, recompute = recomputing(layers), "never"
        super().__init__(layers, loss, seed, dtype, grain)
        checked_costs(costs)
        counts = counts_of(partition, self.layers, n_stages, sample, loss)
        self.schedule, self._stream = checked_order(schedule, n_stages, n_microbatches, recompute)
        if recompute == EVERY_SQRT:
            self.schedule, counts, costs = every_sqrt(self.schedule, counts, costs)
        machine = Machine(costs, link, ports, memory_limit, engine, accumulate, all_reduce)
        self._machine = machine.checked(self.schedule, sum(map(len, self._ranks(self.schedule))), grain)
        self._n_microbatches = n_microbatches
        parts = cut(self.layers, counts)
        self._own_stages = tuple(stage_of(s, part) for s, part in enumerate(parts[:-1]))
        self._own_stages += stage_of(len(parts) - 1, parts[-1], loss),
        self.stages = self._own_stages
        self._place_of = [(s, index) for s, count in enumerate(counts) for index in range(count)]
        check_updates(self.schedule, self._stream, self.ties)
        self._run = self._wires = self._known = self._optimizer = None  # the optimizer: of a run with updates
        self._memory = {}
        self._check_alike(counts)

    def forward_backward(self, X, Y):
        """The cost J of the mini-batch X (n[0], m), Y (n[L], m); the gradients are then in `gradients`."""
        self._check_without_updates("train([(X, Y), ...], optimizer)")
        self.run_to_the_end(self.schedule, checked_batches(self, [(X, Y)]))
        return self.J

    def check_fit(self, optimizer, clip=None):
        """Raise an error unless `fit` can train this network with `optimizer`."""
        if self._stream is not None:
            raise ValueError(
                f"the schedule {self.schedule.name!r} lets mini-batches follow each other without a flush, "
                "for which fit would wait: use train([(X, Y), ...], optimizer)"
            )
        super().check_fit(optimizer, clip)

    def start(self, X, Y, optimizer=None):
        """Load a mini-batch, and leave the clock at tick 0; `tick` goes on from there.

        optimizer: for an order that makes the updates itself; a step makes those of any other.
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
                f"the order of {self.schedule.name!r} has no U for an optimizer: hand it to step(optimizer)"
            )
        batches = checked_batches(self, [(X, Y)])
        self._prepare(self.schedule)
        self._load(batches, optimizer)

    def tick(self):
        """Move every device by one tick; returns whether the mini-batch needs more of them.

        After the last tick, J, gradients and trace are those that `forward_backward` would have left.
        """
        self._check_ticks()
        unfinished = self._loaded_run().tick()
        if not unfinished:
            self._commit()
        return unfinished

    def train(self, batches, optimizer, clip=None):
        """The costs of mini-batches, with an update by `optimizer` after each, as for a `Network`.

        With an asynchronous schedule, all of them go through the pipeline in one run; with another, each is a
        run of its own. Raises `FloatingPointError` if anything overflows; the parameters are then those
        before that run. An order that makes the updates itself gives each device an optimizer of its own,
        which goes on from this one; at the end of the run, this one has what they remember.
        """
        if not self.has_updates:
            return super().train(batches, optimizer, clip)
        self.check_training(optimizer, clip)
        batches = checked_batches(self, batches, in_one_run=self._stream is not None)
        if self._stream is not None:
            self.schedule = self._stream(len(batches))
            self.run_to_the_end(self.schedule, batches, optimizer)
            return list(self.stages[-1].costs)
        costs = []
        for batch in batches:
            self.run_to_the_end(self.schedule, [batch], optimizer)
            costs.append(self.J)
        return costs

    @property
    def J(self):
        """The cost of the mini-batch that was run last."""
        self._loaded_run().check()
        last = self.stages[-1]
        return last.costs[-1] if last.costs else last.cost()

    @property
    def trace(self):
        """The `Trace` of the last run, or of what has happened of it so far."""
        return self._loaded_run().cluster.trace

    @property
    def replicas(self):
        """For each copy of the network, its layers after the last run, and the steps since.

        Where the order makes the updates, each copy has made them itself; a step is made once, and all copies
        take it over. Of layers that are split, these are the first shard's.
        """
        self._loaded_run().check()
        stages = self._run.stages
        return [
            [layer for stage, device in enumerate(placement) for layer in stages[stage, device].layers]
            for placement in self._wires[0].placements
        ]

    def __repr__(self):
        return (
            f"Pipeline({list(self.stages)}, {self.loss}, schedule={self.schedule.name!r}, "
            f"n_microbatches={self.n_microbatches})"
        )

    def run_to_the_end(self, order, batches, optimizer=None):
        """Load mini-batches, which are checked already, and run them to their end.

        optimizer: of an order with updates. Only in the first run of its kind are bytes counted, see
        `KnownBytes`.
        """
        self._prepare(order)
        try:
            kind = self._load(batches, optimizer, takes_over_bytes=True)
            self._run.to_the_end()
            if kind is not None:
                self._known.keep(kind, self._run.cluster.record.memory)
            self._commit()
        except BaseException:
            self._undo_run()
            raise

    def _prepare(self, order):
        """Leave a run that has not come to its end, and make the `Wires` of `order`, unless they are there.

        Runs of another order hold other bytes.
        """
        self.forget_run()
        self._committed = False
        if self._wires is None or self._wires[0].schedule != order:
            skips = skips_across_stages(self.skips, self._place_of)
            self._wires = [Wires(order, skips, ranks) for ranks in self._ranks(order)]
            self._known = KnownBytes(self._machine)

    def _ranks(self, order):
        """For each shard of the network, the device on the cluster of each device of the schedule."""
        return [range(len(order.devices))]

    def _shards(self):
        """For each shard of the network its stages; here it is whole. And the layers that are tied there.

        Where the order makes updates, their layers are others than the network's.
        """
        stages = self._own_stages
        if self.has_updates:
            stages = tuple(stage.twin() for stage in stages)
        return [stages], [tied_layers(self.ties, self._place_of)]

    def _load(self, batches, optimizer=None, takes_over_bytes=False):
        """Make a run, with its clock at 0; return its kind, see `KnownBytes`.

        optimizer: of an order with updates.
        takes_over_bytes: whether it takes over the bytes of an equal run before, if there was one.
        """
        shards, tied = self._shards()
        self._layout_of_run, memories = None, {}
        if optimizer is not None or self._memory or len(shards) > 1:
            self._layout_of_run = self._layout(shards)
        if optimizer is not None:
            memories = memories_in(self._layout_of_run.memory, optimizer, self._layers)
        elif self._memory:
            memories = parts(self._layout_of_run.memory, self._memory)
        kind = known_bytes = None
        if takes_over_bytes:
            places = enumerate(self._wires[0].placements[0])
            kind = self._known.kind(shards[0], [list(memories.get(place, {}).values()) for place in places],
                                    batches)
            known_bytes = self._known.rows(kind)
        line = MicroBatches(batches, self.n_microbatches, self.n_steps, self.grain, len(shards))
        self._optimizer = optimizer
        self._run = Run(
            self._wires, shards, line, optimizer, memories, tied, self._machine, known_bytes
        )
        self.stages = tuple(shards[0])
        return kind

    def _commit(self):
        """Once for each run that came to its end: its gradients wait for a step, or its updates count."""
        if self._committed:
            return
        gradients, changes = self._run.or_fail(self._finite_gradients), Changes()
        self._run.finish()
        if self.has_updates:
            self._take_updates(changes)
        else:
            counted = [(stage.parts, self._statistics_of(stage)) for stage in self._stages_here()]
            changes.of(self, _gradients=gradients, _counted=counted)
        changes.of(self, _committed=True, _optimizer=None)
        self.decide(changes)

    def _take_updates(self, changes):
        """The network's layers, and the optimizer, become what they are at the end of the run."""
        for layer, arrays in self._updated():
            changes.of(layer, **arrays)
        optimizers = {place: stage.optimizer for place, stage in self._run.stages.items()}
        memories = {place: own.memory for place, own in optimizers.items()}
        twin, own = changes.twin(self._optimizer), next(iter(optimizers.values()))
        kept = {name: value for name, value in vars(own).items() if name != "_learning_rate"}
        vars(twin).update(kept | {"memory": MemoryInParts(self._layout_of_run.memory, memories)})
        changes.of(self, n_steps=self.n_steps + len(self.stages[-1].costs))

    def _updated(self):
        """[(a layer of the network, {name: array} that it has at the end of the run)]"""
        own = every_layer([layer for stage in self._own_stages for layer in stage.layers])
        pairs = zip(own, every_layer(self._layers_of_run()), strict=True)
        return [(layer, {name: getattr(new, name) for name in layer.arrays}) for layer, new in pairs]

    def _layers_of_run(self):
        """The layers of the first copy at the end of a run with updates."""
        return [layer for stage in self.stages for layer in stage.layers]

    def _finite_gradients(self):
        """Those of the run, or None if its updates have used them up; all that it has computed is finite."""
        for J in self.stages[-1].costs:
            check_finite_cost(self.loss, J)
        if self.has_updates:
            return None
        gradients = self._summed_gradients()
        check_finite_run(self.loss, self.J, self.layers, gradients)
        return gradients

    def _check_ticks(self):
        """Raise `ValueError` for an engine that measures seconds."""
        if self._machine.engine != CLUSTER:
            raise ValueError(
                f"{self._machine.engine} know seconds, not ticks: use forward_backward, or engine='cluster'"
            )

    def _loaded_run(self):
        if self._run is None:
            remedy = "forward_backward(X, Y), or start(X, Y) and tick()"
            remedy = "train([(X, Y), ...], optimizer)" if self.has_updates else remedy
            raise RuntimeError(f"nothing has run yet: call {remedy}")
        return self._run

    def _check_without_updates(self, remedy):
        """Raise `ValueError` if the order makes the updates itself."""
        if self.has_updates:
            raise ValueError(f"the order of {self.schedule.name!r} updates the stages itself: use {remedy}")
