"""What each MPI rank has of a network that several ranks share."""

import copy
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise

from ..arrays import leaves
from ..engines import world
from ..layers import Layer, every_layer
from ..losses import Loss
from ..optimizers import Optimizer
from ..order import Schedule
from .layout import MemoryInParts
from .options import MPI, Options


class Ranks:
    """The MPI ranks that share a network, of which this process is one; or this process alone, which has all.

    options, schedule: of the network.
    counts: for each stage, the number of its layers.

    A rank has the layers of its stages. Layers that are split over shards are whole on all ranks, and then
    each rank has all. Whatever needs more asks `of_all_layers`, a call that all ranks make.
    """

    def __init__(self, options: Options, schedule: Schedule, counts: Sequence[int]) -> None:
        self.are_several = options.engine == MPI
        self.has_all = not self.are_several or options.shards > 1
        self._layers = [range(*ends) for ends in pairwise(accumulate(counts, initial=0))]  # of each stage
        ranks = options.ranks(len(schedule.devices))[0]
        # for each copy of the network, the rank that has each stage
        self._owners = [[ranks[device] for device in placement] for placement in schedule.placements]

    def layers_here(self) -> list[int]:
        """Return the indices of the layers that this rank updates."""
        found = []
        for layers, *owners in zip(self._layers, *self._owners, strict=True):
            if self.has_all or world().rank in owners:
                found += layers
        return found

    def of_all_layers(self, own: list, what: str) -> list:
        """Return a list over all layers, of which each rank has the entries of its own layers.

        own: this rank's list over all layers; the entries of layers that only other ranks have do not count.
        what: what this is for, in the error of a rank that waits in vain.
        """
        if self.has_all:
            return own
        found = []
        for layers, owner in zip(self._layers, self._owners[0], strict=True):
            found += world().broadcast([own[index] for index in layers], owner, what)
        return found

    def collect_parameters(self, layers: Sequence[Layer]) -> None:
        """Give the layers of the network the parameters that other ranks have updated."""
        if self.has_all:
            return
        places = [[(part, name) for part in every_layer([layer]) for name in part.arrays] for layer in layers]
        own = [[getattr(*place) for place in of_layer] for of_layer in places]
        arrays = self.of_all_layers(own, "collecting the parameters")
        for of_layer, new in zip(places, arrays, strict=True):
            for (part, name), array in zip(of_layer, new, strict=True):
                setattr(part, name, array)

    def with_all_memory(self, optimizer: Optimizer) -> Optimizer:
        """Return `optimizer`, or where ranks remember parts, a copy of it that has those of all ranks."""
        in_parts = self.are_several and isinstance(optimizer.memory, MemoryInParts)
        if self.has_all and not in_parts:
            return optimizer
        found, memory, words = copy.copy(optimizer), optimizer.memory, "what an optimizer remembers"
        if in_parts:
            found.memory = MemoryInParts(memory.pieces, world().brought_together(memory.parts, words))
        else:
            found.memory = world().brought_together(memory, words)
        return found

    def once(self, function: Callable[[], None], what: str) -> None:
        """Call `function` on rank 0, while the others wait. what: as for `of_all_layers`."""
        if not self.are_several or world().rank == 0:
            function()
        if self.are_several:
            world().broadcast(None, 0, what)

    def check_alike(self, schedule: Schedule, layers: Sequence[Layer], loss: Loss, sums) -> None:
        """Raise `ValueError` unless all ranks have made the same network."""
        if not self.are_several:
            return
        parts = every_layer(layers)
        arrays = [getattr(part, name) for part in parts for name in (*part.arrays, *part.drawn)]
        world().check_alike({
            "schedule": str(schedule), "layers": str(list(layers)), "cut": str(list(map(len, self._layers))),
            "loss": repr(loss), "summing": f"{sums.accumulate}, {sums.all_reduce}",
            "parameters": leaves(arrays),
        })
