"""A network cut into stages: its updates, its checkpoints, and its work in several MPI processes."""

import copy
from collections.abc import Callable

import numpy as np

from ..arrays import leaves
from ..checks import shown
from ..engines import world
from ..layers import every_layer
from ..network import Network
from ..optimizers import Optimizer, checked_optimizer
from .layout import MemoryInParts
from .options import MPI
from .stage import itself


class InStages(Network):
    """A network whose layers lie in stages.

    `_own_stages` have the network's layers; `stages` are those of the last run. `_run` is that run, or None;
    `_committed`, whether it has come to its end. `_place_of` has for each layer its (stage, index there).
    `_memory` is what the optimizer of the last step remembers.

    With `engine="mpi"`, all ranks make the same network, and the same calls in the same order. Each works
    with the stages of its own device, and `step` updates these; J is known to all. `gradients`, `trace`,
    `predict` and `minipipe.save` bring together what the ranks have, so all must call them, even where only
    rank 0 prints or draws. `ValueError` says where arguments or mini-batches differ. Of layers in several
    parts, each rank works with its part, but has the whole, and gets the others' gradients after each run.
    """

    @property
    def n_stages(self) -> int:
        """How many stages there are."""
        return len(self.stages)

    @property
    def n_microbatches(self) -> int:
        """The number of micro-batches in each mini-batch."""
        return self._options.microbatches

    @property
    def has_updates(self) -> bool:
        """Whether the order makes the updates, by actions `U`, and not `step(optimizer)`."""
        return "U" in self.schedule.kinds

    def check_step(self, optimizer: Optimizer) -> None:
        """Raise `ValueError` unless this is an optimizer, `RuntimeError` if the order makes the updates."""
        checked_optimizer(optimizer)
        if self.has_updates:
            raise RuntimeError(
                f"the order of {self.schedule.name!r} updates the stages itself: "
                "a step would be a second update; use train([(X, Y), ...], optimizer)"
            )

    def check_training(self, optimizer: Optimizer, clip: float | None = None) -> None:
        """Raise `ValueError` unless `train(batches, optimizer, clip)` can update this network."""
        if not self.has_updates:
            super().check_training(optimizer, clip)
            return
        checked_optimizer(optimizer)
        if clip is not None:
            raise ValueError(
                f"clip={shown(clip)} with the order of {self.schedule.name!r}, whose devices update before "
                "they know the norm of all gradients: leave clip out, or use an order without U"
            )

    def predict(self, X: np.ndarray) -> np.ndarray:
        """Return the output of the last layer for X (n[0], m), as one full-width batch."""
        if self._options.engine == MPI:
            self.collect()
        return super().predict(X)

    def _idle_layers(self):
        if self._run is None or self._committed:
            return self.layers
        return [layer.copy(itself) for layer in self.layers]

    def keep_memory(self, optimizer: Optimizer) -> None:
        """Keep the state of `optimizer` for the next run; all copies take over the updated parameters.

        With MPI, and unless layers are split, `optimizer` then has the state of this rank's layers alone.
        """
        if self._run is not None and not self._is_split():
            for (index, _), stage in self._run.stages.items():
                stage.follow(self._own_stages[index])
        if not self._has_all():
            of_layers = self._layers_of_stages()
            here = [index for stage in self._stages_here() for index in of_layers[stage.index]]
            memory = optimizer.memory.items()
            optimizer.memory = {key: arrays for key, arrays in memory if key[0] in here}
        self._memory = optimizer.memory

    def forget_run(self) -> None:
        """Leave a run that has not come to its end, and forget what the last one has left."""
        self._undo_run()
        self._run = self._from_all_ranks = None
        super().forget_run()

    def _undo_run(self) -> None:
        """Leave a run, unless it has come to its end and counts."""
        if self._run is not None and not self._committed:
            self._run.leave()

    def collect(self, optimizer: Optimizer | None = None) -> Optimizer | None:
        """Return `optimizer` with its state of all ranks; get the parameters of the other ranks, too."""
        if self._options.engine != MPI:
            return optimizer
        for stage, owner in () if self._has_all() else zip(self._own_stages, self._owners()[0], strict=True):
            weights = world().broadcast(stage.weights(), owner, "collecting the parameters")
            for (layer, name), array in zip(stage.parameters, weights, strict=True):
                setattr(layer, name, array)
        if optimizer is None or (self._has_all() and not isinstance(optimizer.memory, MemoryInParts)):
            return optimizer
        found, memory, words = copy.copy(optimizer), optimizer.memory, "what an optimizer remembers"
        if isinstance(memory, MemoryInParts):
            found.memory = MemoryInParts(memory.pieces, world().brought_together(memory.parts, words))
        else:
            found.memory = world().brought_together(memory, words)
        return found

    def once(self, function: Callable[[], None]) -> None:
        """Call `function` on rank 0, while the others wait."""
        if self._options.engine != MPI or world().rank == 0:
            function()
        if self._options.engine == MPI:
            world().broadcast(None, 0, "rank 0's work on a file")

    @property
    def gradients(self) -> list[tuple]:
        """A list over the layers of `(dW, db)`, summed over the micro-batches of the last mini-batch."""
        if self._gradients is None:
            self._loaded_run().check()
            raise RuntimeError(
                f"the order of {self.schedule.name!r} has applied the gradients itself (its U): to read "
                "them, use a schedule without U and zero=0"
            )
        return self._collected_gradients()

    def own_gradients(self) -> list[tuple]:
        """Return [(dW, db)] of the layers; (None, None) for one that only other ranks update."""
        return self.gradients if self._has_all() or self._gradients is None else self._gradients

    def _squares_of_layers(self):
        """Return for each layer the sum of the squares of its gradients; ranks send each other theirs."""
        own = super()._squares_of_layers()
        if self._has_all():
            return own
        of_ranks = world().gathered(own, "the norm of the gradients")
        owners = self._owners()[0]
        return [of_ranks[owners[stage]][index] for index, (stage, _) in enumerate(self._place_of)]

    def _collected_gradients(self):
        """Return the gradients of all layers; with MPI, the rank that has a stage broadcasts them."""
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
        """Return the summed [(dW, db)] of all layers; (None, None) for one that only other ranks update."""
        here, found = self._stages_here(), []
        for stage in self.stages:
            found += stage.gradients() if stage in here else [(None, None)] * len(stage.layers)
        return found

    def _is_split(self):
        """Return whether a layer may be in several parts, on several devices."""
        return self._options.shards > 1

    def _has_all(self):
        """Return whether this process has all parameters. Layers that are split are whole on all ranks."""
        return self._options.engine != MPI or self._is_split()

    def _stages_here(self):
        """Return the stages that this process updates: with MPI, and unless layers are split, those of its
        device; otherwise all.
        """
        if self._has_all():
            return self.stages
        return [stage for stage, ranks in zip(self.stages, zip(*self._owners())) if world().rank in ranks]

    def _owners(self):
        """Return [[rank]]: for each copy of the network, the rank that has each stage."""
        (ranks,) = self._ranks(self.schedule)
        return [[ranks[device] for device in placement] for placement in self.schedule.placements]

    def _check_alike(self, counts):
        """Raise `ValueError` unless all ranks have made the same network."""
        if self._options.engine != MPI:
            return
        parts = every_layer(self.layers)
        arrays = [getattr(part, name) for part in parts for name in (*part.arrays, *part.drawn)]
        sums = self._options.sums
        world().check_alike({
            "schedule": str(self.schedule), "layers": str(list(self.layers)), "cut": str(counts),
            "loss": repr(self.loss), "summing": f"{sums.accumulate}, {sums.all_reduce}",
            "parameters": leaves(arrays),
        })

    def _layers_of_stages(self):
        """Return, for each stage, the indices of its layers in the network."""
        found = {}
        for index, (stage, _) in enumerate(self._place_of):
            found.setdefault(stage, []).append(index)
        return list(found.values())
