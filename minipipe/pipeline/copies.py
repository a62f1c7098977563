"""The copies of a network's stages on other devices: objects of their own, which train on their own."""

import copy

import numpy as np


class Copies:
    """The stages of all copies of a network but the first one's, from run to run.

    Each has parameters, running statistics and what an optimizer keeps as arrays of its own. All make the
    same updates by the same gradients, so they stay equal to the first one's, bit for bit. What is assigned
    to the network's layers between two runs, by hand or out of a file, they take over.
    """

    def __init__(self):
        self._stages = {}    # (stage, device) -> `Stage`
        self._memories = {}  # (stage, device) -> what an optimizer remembers for it
        self._known = {}     # (stage, place in it) -> the first copy's array there, as all have it
        self._stepped = {}  # what the last step's optimizer remembered after it, held to know it again

    def on_devices(self, stages, placements):
        """{(stage, device): the `Stage`}; copies of the network with a stage on one device share it."""
        placed = {(stage.index, placements[0][stage.index]): stage for stage in stages}
        for placement in placements[1:]:
            for stage in stages:
                place = stage.index, placement[stage.index]
                if place not in placed:
                    placed[place] = self._stages[place] = self._stages.get(place) or stage.twin()
        return placed

    def follow(self, first):
        """Take over what has been assigned to the network's layers since the last update.

        first: the stages of the first copy. `RuntimeError` where they have changed in any other way.
        """
        for (index, device), stage in self._stages.items():
            pairs = zip(_places(first[index]), _places(stage), strict=True)
            for number, ((layer, name), (own, _)) in enumerate(pairs):
                array = getattr(layer, name)
                if array is not self._known.get((index, number)):
                    setattr(own, name, copy.deepcopy(array))
                elif array is not None and not np.array_equal(array, getattr(own, name)):
                    raise RuntimeError(
                        f"{layer!r}: {name} has been changed in place, so the copy on device {device} has "
                        "another one: assign a new array, which all copies take over"
                    )

    def forget(self):
        """After a run that has been undone, what the first copy has is new to the others."""
        self._known = {}

    def agree(self, first):
        """All copies have made the same update: what the first one has now, they have, too."""
        for stage in first if self._stages else ():
            for number, (layer, name) in enumerate(_places(stage)):
                self._known[stage.index, number] = getattr(layer, name)

    def optimizers(self, optimizer, stages):
        """{(stage, device): the optimizer of that copy}, for the step that `optimizer` is about to make."""
        if not _are_identical(optimizer.memory, self._stepped):
            self._memories = {}  # it was another one, or has been read out of a file
        found, first = {}, 0
        for stage in stages:
            of_layers = range(first, first + len(stage.layers))
            for place in self._stages:
                if place[0] == stage.index:
                    found[place] = copy.copy(optimizer)
                    found[place].memory = self._memories.get(place) or _memory_of(optimizer, of_layers)
            first += len(stage.layers)
        return found

    def step(self, optimizers, clipped, optimizer, first):
        """Each copy makes the update that the first one has made, by its own gradients.

        optimizers: what the method of that name has returned before.
        clipped: a function of gradients that returns those for the update.
        optimizer, first: that of the first copy, after its step, and its stages.
        """
        for place, stage in self._stages.items():
            stage.commit()
            optimizers[place].update(stage.layers, clipped(stage.gradients()))
            self._memories[place] = optimizers[place].memory
            stage.keep_optimizer_state(list(optimizers[place].memory.values()))
        self._stepped = {key: list(arrays) for key, arrays in optimizer.memory.items()}
        self.agree(first)


def _places(stage):
    """(layer, name) of the arrays that copies have alike: parameters, statistics, the keys of dropout."""
    return [(layer, name) for layer in stage.parts for name in (*layer.arrays, *layer.drawn)]


def _are_identical(memory, known):
    """Tell whether two memories have the same keys, even of no arrays, and the very same arrays."""
    return memory.keys() == known.keys() and all(
        len(arrays) == len(known[key]) and all(a is b for a, b in zip(arrays, known[key]))
        for key, arrays in memory.items()
    )


def _memory_of(optimizer, indices):
    """A copy of what is remembered for the layers with these indices, which count from 0 there."""
    return {
        (index - indices.start, name, position): [array.copy() for array in arrays]
        for (index, name, position), arrays in optimizer.memory.items() if index in indices
    }
