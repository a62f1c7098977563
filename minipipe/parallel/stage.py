"""A stage: consecutive layers with their stash, their gradients and their bytes."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any

from ..cluster.memory import Kept, Shelf
from ..collectives.group import Group, Program
from ..layers import Layer, every_layer
from ..layers.layer import commit, take_statistics
from ..layers.through import (
    Exchange, backward_program, first_with_parameters, forward_program, handed_on, prepare_forward,
    weight_gradients,
)
from ..losses import Loss
from ..optimizers import Optimizer
from ..order.actions import Action
from ..order.programs import NOTHING, gather_parameters
from .batches import MicroBatches, in_grains, side_by_side
from .layout import Arrays, ParameterShard
from .totals import Totals, Versions

PASSING = "F", "R", "B", "I"  # the kinds of action in which a micro-batch passes the layers


def itself(array: Any) -> Any:
    """Return `array` itself: `Layer.copy(itself)` shares all arrays of the layer."""
    return array


def _without_cache(layer, A):
    """Run `layer` forward, and drop its cache: the forward will be recomputed."""
    A = handed_on(layer, A)
    layer.cache = None
    return A


class Stage:
    """Consecutive layers on one device, with many micro-batches in flight.

    Args:
        index: the place of the stage in the pipeline. Stage 0 computes no dA_prev.
        layers: its layers.
        loss: the loss in the last stage, None in all others.

    Attributes:
        shard: the `ParameterShard` of the device; None, if it updates all parameters.

    A forward stores in `stash[i]` what the backward of micro-batch i needs: the cache
    of each layer. If the forward will be recomputed, it stores only the stage's input,
    in `inputs[i]`. The layers hold the cache of one micro-batch at a time.

    An action is a program. It yields an `Exchange` where a layer or the loss
    communicates with other devices, and otherwise nothing.

    Skip connections are dicts {name: array}. They enter together with A_prev (or dA)
    and leave together with A (or dA_prev).

    If the order updates weights, `versions[v]` are the arrays of `parameters`, a list
    of (layer, name), after v updates of this run. Each action uses the version of its
    micro-batch.
    """

    def __init__(self, index: int, layers: Iterable[Layer], loss: Loss | None = None) -> None:
        self.index, self.loss, self.layers = index, loss, tuple(layers)
        self.parts = list(every_layer(self.layers))
        self.parameters = [(layer, name) for layer in self.parts for name in layer.arrays]
        self._statistics = [place for place in self.parameters if place[1] not in ("W", "b")]
        self._with_caches: tuple[Any, ...] = self.layers if loss is None else (*self.layers, loss)
        self.optimizer: Any
        self.shard: Any
        self.line: Any
        # {kind of action: how often the layers and the loss communicate with other devices in it}
        forward = sum(owner.exchanges[0] for owner in self._with_caches)
        first = 0 if index > 0 else first_with_parameters(self.layers)
        backward = sum(layer.exchanges[1] for layer in self.layers[first:])
        self._n_exchanges = {"F": forward, "R": forward, "B": backward, "I": backward}
        self.begin(MicroBatches([], 1, 0))  # an empty run, so that all attributes are there

    def begin(
        self, line: MicroBatches, accumulate: str = "tree", recomputed: Collection = (),
        memory: Arrays | None = None, wanted: dict[int, int] | None = None,
        optimizer: Optimizer | None = None, place: tuple[int, int, bool] | None = None,
    ) -> None:
        """Start a run.

        Args:
            line: the `MicroBatches`. If they are cut into grains, each i in the methods
                below is the index of a grain.
            accumulate: how gradients are summed, as in `Sums`.
            recomputed: {(stage, micro-batch)} of the forwards that will be recomputed.
            memory: the optimizer state of the stage's parameters.
            wanted: for an order with updates, {micro-batch: the version of the weights
                that it uses}.
            optimizer: the network's, for an order with updates. The stage updates with
                a copy, but reads the learning rate of the original.
            place: (rank, size, has_all) of a `ParameterShard`, or None.
        """
        self.line, self._recomputed = line, recomputed
        self.inputs: dict = {}  # micro-batch -> (A_prev, skips), for a recompute
        self.stash: dict = {}  # micro-batch -> caches of the layers, and of the loss in the last stage
        self.halves: dict = {}  # micro-batch -> {index of a layer: what it has `put_aside` from I to W}
        self.totals = Totals(line.n_grains, accumulate)
        self.costs: list = []  # in the last stage: J of each mini-batch whose update is done
        self.versions = None
        self.shard = None if place is None else ParameterShard(self.layers, *place)
        if wanted is not None and not self.is_sharded:
            self.versions = Versions(wanted, self.weights())
        self.memory, self.optimizer = memory or {}, None
        if optimizer is not None:
            self._given, self.optimizer = optimizer, copy.copy(optimizer)
            self.optimizer.memory = dict(self.memory)

    def n_exchanges(self, part: Action) -> int:
        """Return how often layers communicate with other devices in `part`."""
        n = self._n_exchanges[part.kind] if part.kind in PASSING else 0
        return n * len(self.line.grains[part.microbatch]) if n else 0

    def act(self, part: Action, incoming: Any, skips: dict) -> Program:
        """A program: execute a part of an action by grains; return (outgoing, skips).

        Args:
            part: the part of the action.
            incoming: A_prev of a forward, or dA of a backward; else None.
            skips: {name: array} of the skip connections that enter here.
        """
        if part.kind in PASSING:
            grains = self.line.grains[part.microbatch]
            if len(grains) == 1:
                return (yield from self._pass(part, grains[0], incoming, skips))
            edges, results = self.line.edges(grains), []
            given = zip(in_grains(incoming, edges), in_grains(skips, edges), strict=True)
            for j, of_grain in zip(grains, given, strict=True):
                results.append((yield from self._pass(part, j, *of_grain)))
            return tuple(map(side_by_side, zip(*results, strict=True)))
        if part.kind == "U":
            self.update(self.line.grains[part.microbatch][-1])
        elif part.kind == "X":
            self.shard.free()
        else:
            for j in self.line.grains[part.microbatch]:
                self.backward_weight(j)
        return NOTHING

    def _pass(self, part, j, incoming, skips):
        """A program: run grain j through the layers."""
        kind, _, i = part
        if kind == "F":
            A_prev = self.line.inputs[j] if self.index == 0 else incoming
            return self.forward(j, A_prev, skips, keep_input_only=(self.index, i) in self._recomputed)
        if kind == "R":
            return self.recompute(j)
        if kind == "B":
            return self.backward(j, incoming, skips)
        return self.backward_input(j, incoming, skips)

    def forward(
        self, i: int, A_prev: Any, skips: dict, keep_input_only: bool = False, is_known: bool = False
    ) -> Program:
        """A program that returns (A (n, m_i), skips); A is None in the last stage.

        Args:
            i: the index of the micro-batch.
            A_prev: the output of the stage before; in stage 0 the samples.
            skips: {name: array} of the skip connections that end here.
            keep_input_only: whether this forward will be recomputed.
            is_known: whether this is the recomputation: J and the statistics have been
                added before.
        """
        self._use_version_of(i)
        origin = self.line.origins[i]
        prepare_forward(self.parts, training=True, step=origin.step, first_sample=origin.first_sample)
        kept, call = None, handed_on
        if keep_input_only:
            kept, call = (A_prev, dict(skips)), _without_cache
        A = yield from forward_program(self.layers, A_prev, skips, call)
        if self.loss is not None:
            J: Any = self.loss.forward(A, self.line.labels[i], origin.m)
            if self.loss.exchanges[0]:
                J = yield Exchange(self.loss, J, A)
            if not is_known:
                self.totals.add_cost(i, J)
            A = None
        statistics, caches = take_statistics(self.parts), self._take_caches()
        if statistics is not None and not is_known:
            self.totals.add_statistics(i, statistics)
        if kept is None:
            self.stash[i] = caches
        else:
            self.inputs[i] = kept
        return A, skips

    def recompute(self, i: int) -> Program:
        """A program: run the forward of micro-batch i again, to get its caches."""
        A_prev, skips = self.inputs.pop(i)
        yield from self.forward(i, A_prev, skips, is_known=True)
        return NOTHING

    def backward(self, i: int, dA: Any, skips: dict) -> Program:
        """A program that adds weight gradients, and returns (dA_prev, skips).

        Args:
            i: the index of the micro-batch.
            dA: the gradient with respect to this stage's output; None in the last
                stage, whose loss computes it.
            skips: {name: gradient} of the skip connections that begin here.
        """
        dA = self._begin_backward(i, dA)
        add = partial(self._add_gradient, i)
        dA_prev = yield from backward_program(self.layers, dA, skips, self.index > 0, add)
        self._used_version(i)
        return dA_prev, skips

    def backward_input(self, i: int, dA: Any, skips: dict) -> Program:
        """A program: `backward`(i, dA, skips) without weight gradients.

        What `backward_weight` needs is then in `halves[i]`.
        """
        dA, keep = self._begin_backward(i, dA), self.halves.setdefault(i, {}).__setitem__
        dA_prev = yield from backward_program(self.layers, dA, skips, self.index > 0, keep)
        return dA_prev, skips

    def backward_weight(self, i: int) -> None:
        """Compute the weight gradients of micro-batch i, and add them to their sum."""
        self._use_version_of(i)
        for index, half in self.halves.pop(i).items():
            self._add_gradient(i, index, half)
        self._used_version(i)

    def update(self, i: int) -> None:
        """Update the parameters with the gradients of micro-batch i's mini-batch.

        The optimizer makes new arrays: backwards may still need the present ones.
        """
        if self.versions is not None:
            self._use(self.versions[self.versions.newest])
        self.optimizer.learning_rate = self._given.learning_rate
        if self.shard is not None:
            self.shard.update(self.optimizer, self.totals.part)
        else:
            self.optimizer.update(self.layers, self.gradients(i))
        commit(self.parts, self.totals.statistics(i))
        if self.loss is not None:
            self.costs.append(self.totals.cost(i))
        self.totals.forget(i)
        if self.versions is not None:
            self.versions.add(self.weights())

    # Exchanges with replicas of this stage on other devices, and with tied layers in other stages.

    def all_reduce(self, i: int, group: Group, algorithm: str) -> Program:
        """A program: all-reduce the gradients of a mini-batch over devices.

        Args:
            i: a micro-batch of the mini-batch (not the index of a grain).
            group: the `Group` of the devices with this stage.
            algorithm: a name of `ALL_REDUCES`.
        """
        return self.totals.all_reduce(self.line.grains[i][-1], group, algorithm)

    def reduce_scatter(self, i: int, group: Group) -> Program:
        """A program: sum as `all_reduce`(i, group), but only this device's shard."""
        return self.totals.reduce_scatter(self.line.grains[i][-1], group)

    def gather(self, group: Group) -> Program:
        """A program: all-gather the shards of parameters that `group` has updated."""
        self.shard.gather((yield from gather_parameters(group, self.shard.vectors)))

    def dW(self, index: int) -> Any:
        """Return the summed dW of the layer at `index`."""
        return self._gradient(0, index)[0]

    def keep_dW(self, index: int, dW: Any) -> None:
        """Store `dW`, the sum over all layers that share W with that at `index`."""
        self.totals.of_tied[index] = dW

    def part_of_dW(self, position: int) -> Any:
        """Return the vector at `position` of this device's shard of the gradients."""
        return self.totals.part[position]

    def keep_part_of_dW(self, position: int, vector: Any) -> None:
        """Replace the vector at `position` by `vector`, its sum over tied layers."""
        part = self.totals.part  # make a new list: the old one belongs to the exchange that has made it
        self.totals.part = [*part[:position], vector, *part[position + 1:]]

    # The end of a run, and what the network reads.

    def leave(self) -> None:
        """Drop the caches of the layers and the statistics that they have counted."""
        self.line = None
        self._take_caches()
        take_statistics(self.parts)

    def gradients(self, i: int = 0) -> list[tuple]:
        """Return [(dW, db)] of all layers, summed over micro-batch i's mini-batch."""
        return [self._gradient(i, index) for index in range(len(self.layers))]

    def weights(self) -> list:
        """Return the arrays of `parameters`."""
        return [getattr(layer, name) for layer, name in self.parameters]

    @property
    def is_sharded(self) -> bool:
        """Whether the device keeps only a shard of the parameters (ZeRO 3)."""
        return self.shard is not None and not self.shard.has_all

    def statistics(self) -> list:
        """Return the running statistics: arrays of `parameters` without a gradient."""
        return [getattr(layer, name) for layer, name in self._statistics]

    def keep_statistics(self, arrays: Sequence) -> None:
        """Set the running statistics to `arrays`, a result of `statistics`."""
        for (layer, name), array in zip(self._statistics, arrays, strict=True):
            setattr(layer, name, array)

    def follow(self, other: Stage) -> None:
        """Take over the arrays of `other`, the same stage in another replica."""
        for (layer, name), (first, _) in zip(self.parameters, other.parameters, strict=True):
            setattr(layer, name, getattr(first, name))

    def twin(self) -> Stage:
        """Return the same stage with copies of its layers, which share their arrays."""
        return type(self)(self.index, [layer.copy(itself) for layer in self.layers], copy.copy(self.loss))

    def __repr__(self) -> str:
        return f"Stage({self.index}, {list(self.layers)})"

    def _take_caches(self):
        caches = [owner.cache for owner in self._with_caches]
        for owner in self._with_caches:
            owner.cache = None
        return caches

    def _begin_backward(self, i, dA):
        """Restore the caches of micro-batch i; return dA, with a loss from the loss."""
        self._use_version_of(i)
        for owner, cache in zip(self._with_caches, self.stash.pop(i), strict=True):
            owner.cache = cache
        if self.loss is not None:
            dA = self.loss.backward()
            self.loss.cache = None
        return dA

    def _add_gradient(self, i, index, half):
        """Add the weight gradients of a layer, made of what it has `put_aside`."""
        self.totals.add(i, index, weight_gradients(self.layers[index], half))

    def _gradient(self, i, index):
        """Return (dW, db) of the layer at `index`, None where it has no parameter."""
        layer = self.layers[index]
        return self.totals.gradient(i, index) if layer.has_parameters else (layer.W, layer.b)

    def _used_version(self, i):
        if self.versions is not None:
            self.versions.used_by(i)
            # point the layers at the newest weights; they would keep a dropped version alive
            self._use(self.versions[self.versions.newest])

    def _use_version_of(self, i):
        if self.versions is not None:
            self._use(self.versions.of(i))

    def _use(self, arrays):
        places = self._statistics if self.is_sharded else self.parameters
        for (layer, name), array in zip(places, arrays, strict=True):
            setattr(layer, name, array)


def stages_of(parts: Sequence[Sequence[Layer]], loss: Loss) -> tuple[Stage, ...]:
    """Return the `Stage`s with the layers of `parts`; the last one gets the `loss`."""
    last = len(parts) - 1
    return tuple(Stage(s, layers, loss if s == last else None) for s, layers in enumerate(parts))


# What a stage holds on its device, for counting bytes.

class Holdings:
    """All arrays that `stages` hold on a device in a run, by kind.

    The mini-batch is not among them: it is on the host.
    """

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._stages = stages
        self._inputs, self._caches = Shelf(), Shelf([stage.halves for stage in stages])
        for stage in stages:
            stage.inputs, stage.stash = Kept(self._inputs), Kept(self._caches)

    def __call__(self) -> dict[str, Any]:
        """Return {kind: nested lists of arrays, or a `Shelf`} at this moment."""
        kinds = "parameters", "optimizer state", "weight versions", "gradients"
        held: dict = {kind: [] for kind in kinds}
        for stage in self._stages:
            newest, older = stage.weights(), []
            if stage.is_sharded:
                newest = [stage.shard.vectors, stage.shard.whole, stage.statistics()]
            elif stage.versions is not None:
                newest, older = stage.versions[stage.versions.newest], stage.versions.older
            held["parameters"].append(newest)
            memory = stage.memory if stage.optimizer is None else stage.optimizer.memory
            held["optimizer state"].append(list(memory.values()))
            held["weight versions"].append(older)
            held["gradients"].append(stage.totals.held())
        return held | {"stashed inputs": self._inputs, "caches": self._caches}
