"""A run: stages on devices, mini-batches, and the engine that runs the order."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from ..arrays import computing, overflow_refused
from ..cluster import Compute
from ..cluster.trace import Tick
from ..collectives import Group
from ..collectives.group import unflattened
from ..engines import Mpi, Threads, keep_memory, world
from ..layers import Layer
from ..layers.exchanging import join_group
from ..layers.layer import pairs_of_layers, parameters_with
from ..layers.through import resumed
from ..optimizers import Optimizer
from ..order.costs import divide_exactly
from ..order.programs import Wires, cluster_of, programs_of_schedule
from ..ties import program_of_ties, with_tied_shards
from .batches import MicroBatches
from .layout import Arrays, Layout, Place, join_pieces
from .options import MPI, THREADS, Options
from .splitting import ShardedStages
from .stage import Holdings, Stage


# The groups of devices between which the layers of a stage communicate inside an action.

def join_shards(stages: Mapping[Place, Stage], groups: Sequence[Sequence[int]]) -> None:
    """Give layers that communicate the group of devices that share their stage.

    `stages` are {(stage, device): the `Stage`}; `groups` are, for each device of the
    schedule, the devices of its shards in order.
    """
    of_device = {}
    for number, devices in enumerate(groups):
        for rank, device in enumerate(devices):
            of_device[device] = Group(rank, devices, f"shards of device {number}: ")
    for (_, device), stage in stages.items():
        join_group([*stage.layers, stage.loss] if stage.loss else stage.layers, of_device[device])


def join_replicas(stages: Mapping[Place, Stage], ranks: Sequence[Sequence[int]], D: int) -> None:
    """Give each synchronised layer the group of devices with its stage in D replicas.

    `stages` are {(stage, device): the `Stage`}; `ranks` are, for each shard of the
    network, its devices, one replica after another.
    """
    of_device = {}
    for devices in ranks:
        n = len(devices) // D
        for place, device in enumerate(devices):
            of_device[device] = place // n, [devices[place % n + copy * n] for copy in range(D)]
    for (index, device), stage in stages.items():
        group = Group(*of_device[device], f"layers of stage {index}: ")
        join_group([layer for layer in stage.layers if layer.over_copies], group)


class Run:
    """A run of mini-batches through the stages of a network, in a schedule's order.

    Args:
        wires: for each shard of the network, the `Wires` of the `Schedule`.
        whole: the network's `ShardedStages`. The first replica works with them,
            the other replicas with twins.
        line: the `MicroBatches`.
        optimizer: the network's optimizer, if the order has updates; else None.
        memories: {(stage, device): the optimizer state of the parameters there}.
        ties: {name: indices of the layers that share a W}.
        layout: the `Layout` of the network's parameters.
        options: the `Options` of the network.

    With several shards, each device of the schedule stands for a group of devices, one
    per shard, which run the same order and communicate inside their actions.
    """

    def __init__(
        self, wires: Sequence[Wires], whole: ShardedStages, line: MicroBatches, optimizer: Optimizer | None,
        memories: Mapping[Place, Arrays], ties: Mapping[str, Sequence[int]], layout: Layout,
        options: Options,
    ) -> None:
        order, shards = wires[0].schedule, whole.stages
        self._line, self._whole, self.shards, self._pieces = line, whole, shards, layout.work
        all_tied = whole.tied(ties)
        if "S" in order.kinds:
            all_tied = [with_tied_shards(*pair, layout.memory) for pair in zip(all_tied, wires, strict=True)]
        self._is_shared = options.engine == MPI  # each process runs one device
        self._ticks, self._wires = options.costs.duration(order), wires
        self.stages: dict = {}
        made_at: dict = {}
        shares_at: dict = {}
        for shard, of_shard, tied in zip(wires, shards, all_tied, strict=True):
            if self._is_shared:
                # the stages on this rank, of whichever replica; other replicas are in other processes
                rank, devices_of_stages = world().rank, zip(*shard.placements, strict=True)
                placed = {
                    (stage.index, rank): stage
                    for stage, devices in zip(of_shard, devices_of_stages, strict=True) if rank in devices
                }
            else:
                placed = _on_devices(of_shard, shard.placements)
            self._begin(placed, optimizer, memories, shard, options.sums.accumulate)
            self.stages |= placed
            sum_tied = program_of_ties(tied, shard, self.stages)
            made = programs_of_schedule(
                shard, lambda device: partial(self._perform, device), self.stages, sum_tied,
                options.sums.all_reduce,
            )
            made_at |= zip(shard.ranks, made)
            shares_at |= zip(shard.ranks, order.stages_on)
        if len(shards) > 1:
            join_shards(self.stages, list(zip(*[shard.ranks for shard in wires])))
        if options.sums.sync_batch_norm:
            join_replicas(self.stages, [shard.ranks for shard in wires], options.replicas)
        programs, shares = ([found[rank] for rank in sorted(found)] for found in (made_at, shares_at))
        self.cluster: Any
        if options.engine == THREADS:
            self.cluster = Threads(programs, shares=shares)
            return
        if self._is_shared:
            self.cluster = Mpi(programs, shares=shares)
            self._last = shards[0][-1]
            self._root: Any = wires[0].placements[0][-1]
            return
        holdings = None
        if options.counts_bytes:
            on_device: list = [[] for _ in programs]
            for (_, device), stage in self.stages.items():
                on_device[device].append(stage)
            holdings = list(map(Holdings, on_device))
        else:
            keep_memory()
        self.cluster = cluster_of(
            programs, order, options.costs, options.link, holdings, options.memory_limit, options.ports,
            shares, divide_exactly(line.n_samples, order.n_microbatches),
        )

    def to_the_end(self, equal: dict[str, Any]) -> None:
        """Run all programs until they are done.

        MPI ranks first compare the mini-batches, and `equal` {name: value}.
        """
        with self.as_a_whole():
            if not self._is_shared:
                self.cluster.run()
                return
            self.cluster.run(self._line.equal_on_all_ranks() | equal)
        # a rank with the last stage broadcasts the costs of the mini-batches
        costs = None
        if world().rank == self._root:
            costs = self._last.costs or [self._last.totals.cost()]
        costs = world().broadcast(costs, self._root, "the cost")
        if self._last not in self.stages.values():
            self._last.costs = costs

    def tick(self) -> Tick:
        """Advance by one tick; return a `Tick`, true until the run is done."""
        self._check_not_failed()
        with self.as_a_whole():
            return self.cluster.tick()

    def check(self) -> None:
        """Raise `RuntimeError` unless the run is done."""
        self._check_not_failed()
        if not self.cluster.done:
            raise RuntimeError("the mini-batch is not finished: call tick() until it returns False")

    @contextmanager
    def as_a_whole(self) -> Iterator[None]:
        """Compute in this `with` block; an exception ends the run and clears caches."""
        try:
            with computing(), overflow_refused():
                yield
        except BaseException as error:
            self.cluster.failure = error
            self.leave()
            raise

    def leave(self) -> None:
        """Drop the caches and statistics of this run from the layers."""
        for stage in self.stages.values():
            stage.leave()

    def _check_not_failed(self):
        if self.cluster.failure is not None:
            raise RuntimeError(
                f"the mini-batch has stopped with an error ({self.cluster.failure!r}): start it again"
            )

    def _begin(self, stages, optimizer, memories, wires, accumulate):
        line, order = self._line, wires.schedule
        for (index, device), stage in stages.items():
            memory = memories.get((index, device))
            if optimizer is None:
                stage.begin(line, accumulate, order.recomputed, memory)
            else:
                versions = order.versions[index] if order.versions else [0] * order.n_microbatches
                wanted = {
                    j: version
                    for i, (version, grains) in enumerate(zip(versions, line.grains, strict=True))
                    for j in grains if wires.device(index, i) == device
                }
                holders = wires.holders(index)
                place = None
                if "S" in order.kinds:
                    place = holders.index(device), len(holders), "X" not in order.kinds
                stage.begin(line, accumulate, order.recomputed, memory, wanted, optimizer, place)

    def finish(self) -> None:
        """Finish the run: with ZeRO 3, gather a stage's shards on all its devices."""
        for stage in self.stages.values():
            stage.line = None
        for wires in self._wires:
            for index in range(wires.schedule.n_stages) if "X" in wires.schedule.kinds else ():
                holders = wires.holders(index)
                shards = {device: self.stages[index, device].shard
                          for device in holders if (index, device) in self.stages}
                vectors = {device: shard.vectors for device, shard in shards.items()}
                if self._is_shared:  # a collective call, for which every rank needs the order of the stages
                    vectors = world().gathered_dict(vectors, "the shards of the parameters")
                for shard in shards.values():
                    shard.gather([vectors[device] for device in holders])

    def _perform(self, device, action, inputs):
        """Perform `action` as a program: a Compute.

        If layers communicate with other devices, it is cut at each exchange into
        Computes of equal ticks.
        """
        parts, n_exchanges = [], 0
        for part in action.parts:
            stage = self.stages[part.stage, device]
            parts.append((stage, part))
            n_exchanges += stage.n_exchanges(part)
        ticks = divide_exactly(self._ticks(action), 1 + n_exchanges) if n_exchanges else None
        work = _in_turn(parts, inputs)
        exchange, results = yield Compute(action, resumed, work, None, inputs, ticks=ticks)
        while exchange is not None:
            answer = yield from exchange.program
            exchange, results = yield Compute(action, resumed, work, answer, ticks=ticks)
        return results

    # The results of the stages, for the whole network. With shards, these are calls that all ranks make;
    # otherwise an MPI rank returns the results of the stages that it has.

    def gradients(self) -> list[tuple]:
        """Return [(dW, db)] of all layers; (None, None) for layers of other ranks."""
        if len(self.shards) > 1:
            joined = [array for array, in self._joined(Stage.gradients).values()]  # in order of their keys
            return unflattened(joined, pairs_of_layers(self._whole.layers))
        found: list = []
        for stage in self.shards[0]:
            is_here = stage in self.stages.values()
            found += stage.gradients() if is_here else [(None, None)] * len(stage.layers)
        return found

    def statistics(self) -> list[tuple]:
        """Return [(layers, their statistics)], one pair for each stage."""
        if len(self.shards) == 1:
            here = [stage for stage in self.shards[0] if stage in self.stages.values()]
            return [(stage.parts, stage.totals.statistics()) for stage in here]
        found = self._of_first_replica(lambda stage: stage.totals.statistics())
        places = enumerate(self._wires[0].placements[0])
        return [(stage.parts, found[place]) for stage, place in zip(self.shards[0], places, strict=True)]

    def whole_layers(self) -> Sequence[Layer]:
        """Return the network's layers, after joining the arrays of all shards."""
        layers = self._whole.layers
        if len(self.shards) > 1:
            found = self._joined(lambda stage: pairs_of_layers(stage.layers))
            for key, (owner, _, _) in parameters_with(layers, pairs_of_layers(layers)).items():
                setattr(owner, key[1], found[key][0])
            statistics = self._of_first_replica(Stage.statistics)
            for stage, place in zip(self.shards[0], enumerate(self._wires[0].placements[0]), strict=True):
                stage.keep_statistics(statistics[place])
        return layers

    def _joined(self, of_stage):
        """Return {key of a parameter: [its whole array]}, joined from all shards.

        of_stage(stage) returns [(array for W, array for b)] of the stage's layers.
        """
        def by_key(stage):
            found = parameters_with(stage.layers, of_stage(stage))
            return {key: [array] for key, (_, _, array) in found.items()}

        return join_pieces(self._pieces, self._of_first_replica(by_key))

    def _of_first_replica(self, of_stage):
        """Return {(stage, device): of_stage(stage)} of each shard's first replica."""
        found = {}
        for stages, wires in zip(self.shards, self._wires, strict=True):
            for stage, device in zip(stages, wires.placements[0], strict=True):
                if (stage.index, device) in self.stages:
                    found[stage.index, device] = of_stage(stage)
        if self._is_shared:
            found = world().gathered_dict(found, "bringing the parts of layers together")
        return found


def _in_turn(parts, inputs):
    """A program: execute `parts`, [(stage, part)], with inputs [(incoming, skips)]."""
    results = []
    for (stage, part), given in zip(parts, inputs, strict=True):
        results.append((yield from stage.act(part, *given)))
    return results


def _on_devices(stages, placements):
    """Return {(stage, device): `Stage`}: `stages` for replica 0, twins for others.

    Replicas with the same stage on the same device share it.
    """
    placed = {(stage.index, placements[0][stage.index]): stage for stage in stages}
    for placement in placements[1:]:
        for stage in stages:
            place = stage.index, placement[stage.index]
            if place not in placed:
                placed[place] = stage.twin()
    return placed
