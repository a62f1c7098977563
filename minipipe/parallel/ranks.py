"""What MPI ranks compare and collect of a network that they share."""

import copy
import sys
from collections.abc import Callable, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any

import numpy as np

from .. import __version__
from ..engines import world
from ..layers import Layer
from ..losses import Loss
from ..optimizers import Optimizer
from ..order import Schedule
from ..state import State, named_arrays
from .layout import MemoryInParts
from .options import MPI, Options

# the options that must be equal on all ranks, in addition to layers, loss, cut and schedule
OPTIONS = "replicas", "shards", "microbatches", "recompute", "zero", "sums", "numbering", "seed", "dtype"
EVERY = 64  # runs between two comparisons of all arrays


class Ranks:
    """The MPI ranks that share a network; with another engine, this process alone.

    Args:
        options, schedule, layers: the network's.
        counts: for each stage, the number of its layers.

    Attributes:
        are_several: whether the engine is "mpi".
        has_all: whether this rank has the parameters of all layers.

    A rank has the layers of its stages; with several shards, each rank has all layers.
    `of_all_layers`, a call that all ranks make, collects what other ranks have.

    Before each run and each step, the ranks compare what they train with. Of parameters
    and optimizer state, they compare the arrays that the user has assigned. Those that
    an update has made are compared in every 64th run only, in case a program has
    written into one: comparing them takes as long as the step of an MLP 784-512-512-10
    with 64 samples.
    """

    def __init__(
        self, options: Options, schedule: Schedule, layers: Sequence[Layer], counts: Sequence[int]
    ) -> None:
        self.are_several, self._options, self._all_layers = options.engine == MPI, options, layers
        self.has_all = not self.are_several or options.shards > 1
        self._layers = [range(*ends) for ends in pairwise(accumulate(counts, initial=0))]  # per stage
        ranks = options.ranks(len(schedule.devices))[0]
        # for each replica, the rank of each stage
        placements: Any = schedule.placements
        self._owners = [[ranks[device] for device in placement] for placement in placements]
        self._is_here = [self.has_all or world().rank in owners for owners in zip(*self._owners, strict=True)]
        self._known: dict = {}  # {key: array} of parameters and optimizer state that need no comparison
        if self.are_several:
            world().n_networks += 1
            self._network = f"network {world().n_networks}"
            # ((index of a layer, name of an array), layer or layer in it, attribute)
            self._places = [((int(name.split("/")[0].split(".")[0]), name), *place)
                            for name, *place in named_arrays(layers)]

    def layers_here(self) -> list[int]:
        """Return the indices of the layers that this rank updates."""
        return list(chain(*(layers for layers, is_here in zip(self._layers, self._is_here) if is_here)))

    def of_all_layers(self, here: list, what: str) -> list:
        """Return a list over all layers, broadcast by the ranks that have them.

        Args:
            here: this rank's list over all layers; entries of other ranks' layers are
                not read.
            what: the name of the call, see `World.gathered`.
        """
        if self.has_all:
            return here
        found = []
        for layers, owner in zip(self._layers, self._owners[0], strict=True):
            mine = [here[index] for index in layers]
            found += world().broadcast(mine, owner, f"{what} of {self._network}")
        return found

    def collect_parameters(self) -> None:
        """Set the parameters of the network to those that their ranks have updated."""
        if self.has_all:
            return
        here: list[list] = [[] for _ in self._all_layers]
        for (index, _), *place in self._places:
            here[index].append(getattr(*place))
        arrays = chain(*self.of_all_layers(here, "collecting the parameters"))
        for (_, layer, name), array in zip(self._places, arrays, strict=True):
            setattr(layer, name, array)
        self._known |= self._arrays()

    def with_all_memory(self, optimizer: Optimizer) -> Optimizer:
        """Return `optimizer`, or a copy with the state that other ranks have."""
        is_in_pieces = self.are_several and isinstance(optimizer.memory, MemoryInParts)
        if self.has_all and not is_in_pieces:
            return optimizer
        found, memory = copy.copy(optimizer), optimizer.memory
        what = f"collecting the optimizer state of {self._network}"
        if is_in_pieces:
            found.memory = MemoryInParts(memory.pieces, world().gathered_dict(memory.parts, what))
        else:
            found.memory = world().gathered_dict(memory, what)
        return found

    def once(self, function: Callable[[], None]) -> None:
        """Call `function` on rank 0, while the other ranks wait."""
        if not self.are_several or world().rank == 0:
            function()
        if self.are_several:
            world().broadcast(None, 0, "rank 0's work on a file")

    def check_network(self, schedule: Schedule, loss: Loss) -> None:
        """Raise `ValueError` unless ranks have equal layers, `loss` and `schedule`."""
        if not self.are_several:
            return
        python = ".".join(map(str, sys.version_info[:2]))
        world().check_equal({
            "versions": f"minipipe {__version__}, NumPy {np.__version__}, Python {python}",
            "layers": str(list(self._all_layers)), "loss": repr(loss),
            "cut": str(list(map(len, self._layers))),
            **{name: repr(getattr(self._options, name)) for name in OPTIONS},
            "schedule": str(schedule), "parameters": list(self._arrays().values()),
        }, "making a network")
        self._known = self._arrays()

    def check_step(self, optimizer: Optimizer, clip: float | None) -> None:
        """Raise `ValueError` unless all ranks make the same step(optimizer, clip)."""
        if self.are_several:
            things = self.to_compare(optimizer) | {"clip": repr(clip)}
            world().check_equal(things, f"a step of {self._network}")

    def check_state(self, state: State, optimizer: Optimizer | None) -> None:
        """Raise `ValueError` unless ranks resume equal `state` and `optimizer`."""
        if not self.are_several:
            return
        *counts, memory = state.optimizer or [{}]
        remembered = [array for key in sorted(memory) for array in memory[key]]
        world().check_equal({
            "optimizer": repr(optimizer), "state": f"{state.n_steps} steps, {counts}",
            "arrays of the state": [*(state.arrays[name] for name in sorted(state.arrays)), *remembered],
        }, f"loading the state of {self._network}")

    def to_compare(self, optimizer: Optimizer | None = None) -> dict:
        """Return {name: value} of what `World.check_equal` must compare.

        `optimizer` is that of the next update, if it is known.
        """
        if not self.are_several:
            return {}
        found: dict[str, Any] = {"network": self._network}
        if optimizer is not None:
            state = [getattr(optimizer, name, None) for name in ("n_updates", "learning_rate", "last_pass")]
            found |= {"optimizer": f"{optimizer!r} after {state[0]} updates", "rate and epochs": str(state)}
        if world().n_runs % EVERY == 0:
            self.forget()
        arrays = self._arrays(optimizer)
        new = {key: array for key, array in arrays.items() if self._known.get(key) is not array}
        self._known |= new
        found["assigned arrays"] = ", ".join(name for _, name, *place in new if not place)
        for stage, (layers, is_here) in enumerate(zip(self._layers, self._is_here, strict=True)):
            of_stage = [array for (index, *_), array in new.items() if index in layers]
            found[f"parameters or optimizer state of stage {stage}"] = of_stage if is_here else None
        return found

    def kept_memory(self, optimizer: Optimizer) -> dict:
        """Return the state of `optimizer` after an update, for this rank's layers."""
        if not self.has_all:
            here, memory = self.layers_here(), optimizer.memory.items()
            optimizer.memory = {key: arrays for key, arrays in memory if key[0] in here}
        self.know(optimizer)
        return optimizer.memory

    def know(self, optimizer: Optimizer) -> None:
        """Do not compare the present arrays: an update by `optimizer` has made all."""
        if self.are_several:
            self._known = self._arrays(optimizer)

    def forget(self) -> None:
        """Let the ranks compare all arrays before the next run or step."""
        self._known = {}

    def _arrays(self, optimizer: Optimizer | None = None) -> dict:
        """Return {(index of a layer, name, ...): array}, optimizer state included."""
        found = {key: getattr(layer, array) for key, layer, array in self._places}
        memory = getattr(optimizer, "memory", None)
        if isinstance(memory, dict):  # else ZeRO's shards, which differ between ranks
            found |= {(*key, number): array for key, arrays in memory.items()
                      for number, array in enumerate(arrays)}
        return found
