"""What a network in stages adds to any other, beside its runs: updates, what a checkpoint asks for, and that
several processes may share it.
"""

import copy
from functools import partial

from ..engines import world
from ..functions import leaves
from ..layers import every_layer
from ..network import Network
from ..optimizers import checked_optimizer
from .machine import MPI
from .own_part import in_one, in_parts


class InStages(Network):
    """A network whose layers lie in `stages`, each with what an optimizer keeps for its layers.

    `_optimizers` are those of an order that makes the updates itself, for each shard of the network one a
    stage; otherwise None. `_run` is the last run, or None; `_committed`, whether it has come to its end.
    `_place_of` has for each layer its (stage, index there).

    With `engine="mpi"`, all ranks make the same network, and the same calls in the same order. Each works
    with the stages of its own device, and `step` updates these; J is known to all. `gradients`, `trace`,
    `predict` and `minipipe.save` bring together what the ranks have, so all must call them, even where only
    rank 0 prints or draws. `ValueError` says where arguments or mini-batches differ. Of layers in several
    parts, each rank works with its part, but has the whole, and gets the others' gradients after each run.
    """

    @property
    def n_stages(self):
        """How many stages there are."""
        return len(self.stages)

    @property
    def n_microbatches(self):
        """The parts of each mini-batch."""
        return self._n_microbatches

    @property
    def accumulate(self):
        """How gradients are summed over them: "tree" or "running"."""
        return self._machine.accumulate

    def check_step(self, optimizer):
        """Raise an error unless `optimizer` can make an update of this network."""
        checked_optimizer(optimizer)
        if self._optimizers is not None:
            raise RuntimeError(
                f"the order of {self.schedule.name!r} updates the stages itself: "
                "a step would be a second update; use train([(X, Y), ...])"
            )

    def step(self, optimizer, clip=None):
        """As for a `Network`; what the optimizer keeps for the parameters lies with their stages."""
        self.check_step(optimizer)
        of_copies = self._copies.optimizers(optimizer, self.stages)
        super().step(optimizer, clip)
        self._copies.step(of_copies, partial(self._clipped, clip), optimizer, self.stages)
        self.keep_optimizer_state(optimizer)

    def predict(self, X):
        """The output of the last layer for X (n[0], m), as one full-width batch, as for a `Network`."""
        if self._machine.engine == MPI:
            self.collect()
        return super().predict(X)

    def keep_optimizer_state(self, optimizer):
        """The stages count what `optimizer` keeps for their layers among what they hold.

        On one rank of several, it keeps nothing for others.
        """
        kept = {stage: [] for stage in self._stages_here()}
        for key, arrays in list(optimizer.memory.items()):
            if not arrays:
                continue
            of_stage = kept.get(self.stages[self._place_of[key[0]][0]])
            if of_stage is None:
                del optimizer.memory[key]
            else:
                of_stage += arrays
        for stage in self.stages:
            stage.keep_optimizer_state(kept.get(stage, []))

    def optimizers(self, optimizer):
        """As for a `Network`; the optimizers of an order with updates are those of its stages."""
        if self._optimizers is None:
            return super().optimizers(optimizer)
        (of_stages,) = self._optimizers
        if "S" in self.schedule.kinds and self._of_devices:
            of_stages = [
                in_one(stage.layers, self._optimizers_of_parts(stage, devices))
                for stage, devices in zip(self.stages, self._holders())
            ]
        return list(zip(of_stages, self._layers_of_stages()))

    def _optimizers_of_parts(self, stage, devices):
        """Those with which these devices update their parts of a stage; between processes, their memory."""
        found = {device: self._of_devices[stage.index, device]
                 for device in devices if (stage.index, device) in self._of_devices}
        if self._machine.engine == MPI:
            memories = {device: own.memory for device, own in found.items()}
            memories = world().brought_together(memories, "what optimizers remember of their parts")
            like = next(iter(found.values()), self._optimizers[0][stage.index])
            for device, memory in memories.items():
                found[device] = copy.copy(like)
                found[device].memory = memory
        return [found[device] for device in devices]

    def resumed(self, optimizer, parts):
        """As for a `Network`; each copy, or each device that updates a part, gets what belongs to it."""
        super().resumed(optimizer, parts)
        if self._optimizers is None:
            return
        self._given.learning_rate = parts[0][0].learning_rate
        self._of_devices = {}
        for stage, devices, (whole, _) in zip(self.stages, self._holders(), parts):
            for rank, device in enumerate(devices):
                own = whole
                if "S" in self.schedule.kinds:
                    own = in_parts(stage.layers, whole, rank, len(devices))
                self._of_devices[stage.index, device] = own

    def forget_run(self):
        """Undo a run that has not come to its end, and forget what the last one has left."""
        self._undo_run()
        self._run = self._from_all_ranks = None
        super().forget_run()

    def _undo_run(self) -> None:
        """Undo a run, unless it has come to its end and counts."""
        self._settle()
        if self._run is not None and not self._committed:
            self._run.restore()
            self._copies.forget()

    def collect(self, optimizer=None):
        """As for a `Network`: the parameters of other ranks, and what is remembered for them, come here."""
        parts = self.optimizers(optimizer)
        if self._has_all():
            return parts
        everything = [(copy.copy(part), layers) for part, layers in parts]
        for part, _ in everything:
            part.memory = dict(part.memory)
        for stage, layers, owner in zip(self.stages, self._layers_of_stages(), self._owners()[0]):
            part, of_part = next(((part, of) for part, of in everything if layers[0] in of), (None, ()))
            inside = [of_part.index(layer) for layer in layers if layer in of_part]
            memory = {} if part is None else part.memory
            mine = [stage.weights(), {key: kept for key, kept in memory.items() if key[0] in inside}]
            if part is not None:
                mine += [part.n_updates, part.learning_rate, part.last_rate]
            weights, remembered, *numbers = world().broadcast(mine, owner, "collecting the parameters")
            for (layer, name), array in zip(stage.parameters, weights, strict=True):
                setattr(layer, name, array)
            if part is not None:
                part.resume(memory | remembered, *numbers)
        return everything

    def once(self, function):
        """As for a `Network`: rank 0 does it, while the others wait."""
        if self._machine.engine != MPI or world().rank == 0:
            function()
        if self._machine.engine == MPI:
            world().broadcast(None, 0, "rank 0's work on a file")

    @property
    def gradients(self):
        """A list over the layers of `(dW, db)`, summed over the micro-batches of the last mini-batch."""
        if self._gradients is None:
            self._loaded_run().check()
            raise RuntimeError(
                f"the updates in the order of {self.schedule.name!r} have used the gradients up"
            )
        return self._collected_gradients()

    def own_gradients(self):
        """As for a `Network`; of the layers of other ranks, a pair of None for each."""
        return self.gradients if self._has_all() or self._gradients is None else self._gradients

    def _squares_of_layers(self):
        """As for a `Network`; the ranks tell each other those of their layers, so all have the same sum."""
        own = super()._squares_of_layers()
        if self._has_all():
            return own
        of_ranks = world().gathered(own, "the norm of the gradients")
        owners = self._owners()[0]
        return [of_ranks[owners[stage]][index] for index, (stage, _) in enumerate(self._place_of)]

    def _collected_gradients(self):
        """The gradients of all layers, from the ranks that have them."""
        if self._has_all():
            return self._gradients
        if self._from_all_ranks is None:
            words = "collecting the gradients"
            parts = [
                world().broadcast([self._gradients[index] for index in layers], owner, words)
                for layers, owner in zip(self._layers_of_stages(), self._owners()[0])
            ]
            self._from_all_ranks = [pair for part in parts for pair in part]
        return self._from_all_ranks

    def _summed_gradients(self):
        return [pair for stage in self.stages for pair in self._gradients_of(stage)]

    def _gradients_of(self, stage):
        """Its gradients, from the rank that has it where layers are in several parts.

        Where they are not, for the stage of another rank a pair of None for each layer.
        """
        if self._machine.engine == MPI and self._is_split():
            return self._run.sums_of_all_ranks()[stage][0]
        if self._machine.engine == MPI and stage not in self._stages_here():
            return [(None, None)] * len(stage.layers)
        return stage.gradients()

    def _statistics_of(self, stage):
        """What its layers have counted; where layers are in several parts, from the rank that has it."""
        if self._machine.engine == MPI and self._is_split():
            return self._run.sums_of_all_ranks()[stage][1]
        return stage.totals.statistics()

    def _on_devices(self):
        """What puts the stages of all copies on their devices: those of the last run, as they are now."""
        self._copies.follow(self.stages)
        return self._copies.on_devices

    def _optimizer_of(self, shard, stage, device):
        """The optimizer with which the order updates a stage of a shard on a device."""
        own = self._of_devices.get((stage, device), self._optimizers[shard][stage])
        own.learning_rate = self._given.learning_rate
        return own

    def _is_split(self):
        """Whether a layer may be in several parts, on several devices."""
        return len(self._ranks(self.schedule)) > 1

    def _has_all(self):
        """Whether this process has all parameters. Of layers in several parts, all ranks have the whole."""
        return self._machine.engine != MPI or self._is_split()

    def _stages_here(self):
        """Those that this process updates: all, or on one rank of several those of its device."""
        if self._has_all():
            return self.stages
        return [stage for stage, ranks in zip(self.stages, zip(*self._owners())) if world().rank in ranks]

    def _owners(self):
        """For each copy of the network, the rank that has each stage."""
        (ranks,) = self._ranks(self.schedule)
        return [[ranks[device] for device in placement] for placement in self.schedule.placements]

    def _check_alike(self, counts):
        """`ValueError` unless all ranks have made the same network."""
        if self._machine.engine != MPI:
            return
        if self._is_split() and self._optimizers is not None:
            raise ValueError(
                "on MPI ranks, layers in several parts are updated by step(optimizer): leave optimizer out"
            )
        parts = every_layer(self.layers)
        arrays = [getattr(part, name) for part in parts for name in (*part.arrays, *part.drawn)]
        world().check_alike({
            "schedule": str(self.schedule), "layers": str(list(self.layers)), "cut": str(counts),
            "loss": repr(self.loss), "summing": f"{self._machine.accumulate}, {self._machine.all_reduce}",
            "parameters": leaves(arrays),
        })

    def _holders(self):
        """For each stage, the devices that have a copy of it, in the order of the copies."""
        return [list(dict.fromkeys(devices)) for devices in zip(*self._owners(), strict=True)]

    def _layers_of_stages(self):
        """For each stage, the indices of its layers in the network."""
        found = {}
        for index, (stage, _) in enumerate(self._place_of):
            found.setdefault(stage, []).append(index)
        return list(found.values())
