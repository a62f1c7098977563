"""One part of the network, an object on its own: its layers, its stash, its gradients, its bytes."""

import copy
from functools import partial

from ..cluster.memory import Kept, Shelf
from ..layers import every_layer
from ..layers.layer import commit, take_statistics
from ..layers.through import (
    Exchange, backward_program, first_with_parameters, forward_program, handed_on, prepare_forward,
    weight_gradients,
)
from ..order.programs import NOTHING, gather_parameters
from .batches import MicroBatches, in_grains, side_by_side
from .layout import Owned
from .totals import Totals, Versions

PASSING = "F", "R", "B", "I"  # the kinds of action by which a micro-batch passes the layers


def itself(array):
    """Return the array: for copies of layers that have the same ones."""
    return array


def _without_cache(layer, A):
    """Hand A on from `layer` and drop its cache at once, since the forward will be recomputed."""
    A = handed_on(layer, A)
    layer.cache = None
    return A


class Stage:
    """Consecutive layers on one device, with many micro-batches in flight.

    Args:
        index: the place of the stage in the pipeline; stage 0 computes no dA_prev,
            since nobody wants it.
        layers: its layers.
        loss: the last stage's, None for the others.

    A forward leaves in `stash[i]` what the backward of micro-batch i needs, the cache
    of each layer; or, when it will be recomputed, in `inputs[i]` only the stage's
    input. The layers know of one micro-batch at a time.

    What an action does is a program. It yields an `Exchange` wherever a layer, or the
    loss, talks to other devices; a stage without such layers yields nothing, and
    `run_alone` returns what it returns.

    Skip connections enter beside A_prev (or dA) and are left beside A (or dA_prev), as
    {name: array}.

    Where the order updates weights, `versions[v]` are the parameters after v updates of
    this run, a list with one array for each (layer, name) in `parameters`; each action
    works with those of its micro-batch.
    """

    def __init__(self, index, layers, loss=None):
        self.index, self.loss, self.layers = index, loss, tuple(layers)
        self.parts = list(every_layer(self.layers))
        self.parameters = [(layer, name) for layer in self.parts for name in layer.arrays]
        self._statistics = [place for place in self.parameters if place[1] not in ("W", "b")]
        self._with_caches = self.layers if loss is None else (*self.layers, loss)
        self.optimizer, self._memory, self._given = None, {}, None
        self.owned = None  # what the device owns of its parameters, where that is a part
        # {kind of action: how often the layers and the loss talk to other devices in it}
        forward = sum(owner.exchanges[0] for owner in self._with_caches)
        first = 0 if index > 0 else first_with_parameters(self.layers)
        backward = sum(layer.exchanges[1] for layer in self.layers[first:])
        self._n_exchanges = {"F": forward, "R": forward, "B": backward, "I": backward}
        self.begin(MicroBatches([], 1, 0))  # an empty run, so that all attributes are there

    def begin(
        self, line, accumulate="tree", recomputed=(), memory=None, wanted=None, optimizer=None, place=None
    ):
        """Start a run.

        Args:
            line: the `MicroBatches`, kept until the run is over. Where these are cut
                into grains, runs of samples that pass the layers by themselves, each i
                below is the number of a grain.
            accumulate: how gradients are summed over them, as in `Sums`.
            recomputed: {(stage, micro-batch)} of the forwards that will be recomputed.
            memory: what an optimizer remembers for the parameters here, as in its
                `memory`.
            wanted: {micro-batch of this stage: the version of the weights that it
                uses}, if they change.
            optimizer: the one that trains the network, if the order has updates: the
                stage makes them with one of its own, which goes on from there, at the
                learning_rate that the other has then.
            place: (rank, size, has_all) as for `Owned`, where the device updates a part
                of the parameters.
        """
        self.line, self._recomputed = line, recomputed
        self.inputs = {}  # micro-batch -> (A_prev, skips), for a recompute
        self.stash = {}   # micro-batch -> caches of the layers, and of the loss in the last stage
        self.halves = {}  # micro-batch -> {index of a layer: what it has `put_aside` between two halves}
        self.totals = Totals(line.n_grains, accumulate)
        self.costs = []   # of the mini-batches whose update is done, in the last stage
        self.versions = None
        self.owned = None if place is None else Owned(self.layers, *place)
        if wanted is not None and not self.in_parts:
            self.versions = Versions(wanted, self.weights())
        self._memory, self._given, self.optimizer = memory or {}, optimizer, None
        if optimizer is not None:
            self.optimizer = copy.copy(optimizer)
            self.optimizer.memory = dict(self._memory)

    def n_exchanges(self, part):
        """Return how often layers talk to other devices in this part of an action."""
        n = self._n_exchanges[part.kind] if part.kind in PASSING else 0
        return n * len(self.line.grains[part.microbatch]) if n else 0

    def act(self, part, incoming, skips):
        """A program that does a part of an action, grain by grain, and returns (outgoing, skips)."""
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
            self.owned.free()
        else:
            for j in self.line.grains[part.microbatch]:
                self.backward_weight(j)
        return NOTHING

    def _pass(self, part, j, incoming, skips):
        """Let grain j pass the layers."""
        kind, _, i = part
        if kind == "F":
            A_prev = self.line.take_inputs(j) if self.index == 0 else incoming
            return self.forward(j, A_prev, skips, keep_input_only=(self.index, i) in self._recomputed)
        if kind == "R":
            return self.recompute(j)
        if kind == "B":
            return self.backward(j, incoming, skips)
        return self.backward_input(j, incoming, skips)

    def forward(self, i, A_prev, skips, keep_input_only=False, is_known=False):
        """A program: (A (n, m_i), skips) of micro-batch i; the last stage has None for A.

        Args:
            i: the number of the micro-batch.
            A_prev: the output of the stage before; in stage 0 the samples.
            skips: {name: array} of the skip connections that end here.
            keep_input_only: whether there will be a recompute.
            is_known: whether this is that recompute, so that J and the statistics have
                been added.
        """
        self._use_version_of(i)
        origin = self.line.origins[i]
        prepare_forward(self.parts, training=True, step=origin.step, first_sample=origin.first_sample)
        kept, call = None, handed_on
        if keep_input_only:
            kept, call = (A_prev, dict(skips)), _without_cache
        A = yield from forward_program(self.layers, A_prev, skips, call)
        if self.loss is not None:
            J = self.loss.forward(A, self.line.labels[i], origin.m)
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

    def recompute(self, i):
        """A program: run the forward of micro-batch i again, from its input, for its caches alone."""
        yield from self.forward(i, *self.inputs.pop(i), is_known=True)
        return NOTHING

    def backward(self, i, dA, skips):
        """A program: (dA_prev, skips) of micro-batch i, whose weight gradients go into their sum."""
        dA = self._begin_backward(i, dA)
        add = partial(self._add_gradient, i)
        dA_prev = yield from backward_program(self.layers, dA, skips, self.index > 0, add)
        self._used_version(i)
        return dA_prev, skips

    def backward_input(self, i, dA, skips):
        """A program, the first half of a backward: (dA_prev, skips) of micro-batch i.

        What the other half needs lies in `halves[i]` then.
        """
        dA, keep = self._begin_backward(i, dA), self.halves.setdefault(i, {}).__setitem__
        dA_prev = yield from backward_program(self.layers, dA, skips, self.index > 0, keep)
        return dA_prev, skips

    def backward_weight(self, i):
        """The second half: the weight gradients of micro-batch i, into their sum."""
        self._use_version_of(i)
        for index, half in self.halves.pop(i).items():
            self._add_gradient(i, index, half)
        self._used_version(i)

    def update(self, i):
        """W <- W - (the optimizer's step), by the gradients of the mini-batch whose last micro-batch is i.

        The optimizer makes new arrays, the next version, so that the one before stays
        for those who need it.
        """
        if self.versions is not None:
            self._use(self.versions[self.versions.newest])
        self.optimizer.learning_rate = self._given.learning_rate
        if self.owned is not None:
            self.owned.update(self.optimizer, self.totals.part)
        else:
            self.optimizer.update(self.layers, self.gradients(i))
        self.commit(i)
        if self.loss is not None:
            self.costs.append(self.cost(i))
        self.totals.forget(i)
        if self.versions is not None:
            self.versions.add(self.weights())

    # Where it meets the same stage on other devices, and tied layers in other stages.

    def all_reduce(self, i, group, algorithm):
        """A program: get the sums of all devices of the group, which have copies of the stage.

        Args:
            i: a micro-batch of the mini-batch; here it does count micro-batches, not
                grains.
        """
        return self.totals.all_reduce(self.line.grains[i][-1], group, algorithm)

    def reduce_scatter(self, i, group):
        """A program: get this device's part of the sum of all gradients, and keep no others. i: as above."""
        return self.totals.reduce_scatter(self.line.grains[i][-1], group)

    def gather(self, group):
        """A program: get the parts of the parameters that the other devices of the group have updated."""
        self.owned.gather((yield from gather_parameters(group, self.owned.vectors)))

    def dW(self, index):
        """The sum of the weight gradients of the layer at `index`."""
        return self._gradient(0, index)[0]

    def keep_dW(self, index, dW):
        """Keep the sum of the weight gradients of all layers that share the W of the one at `index`."""
        self.totals.of_tied[index] = dW

    def part_of_dW(self, position):
        """The vector at this position of the device's part of the gradients, after a reduce-scatter."""
        return self.totals.part[position]

    def keep_part_of_dW(self, position, vector):
        """Keep in its place the sum of all layers that share these numbers of W."""
        part = self.totals.part  # a new list: the one before belongs to the exchange that has made it
        self.totals.part = [*part[:position], vector, *part[position + 1:]]

    # The end of a run, and what the network reads.

    def leave(self):
        """Leave no cache in the layers, and nothing that they have counted."""
        self.line = None
        self._take_caches()
        take_statistics(self.parts)

    def commit(self, i=0):
        """Give the layers the statistics of the mini-batch of micro-batch i, at its end."""
        commit(self.parts, self.totals.statistics(i))

    def gradients(self, i=0):
        """A list over its layers of `(dW, db)`, summed over the mini-batch of micro-batch i.

        The dW of tied layers are summed over all that share the W.
        """
        return [self._gradient(i, index) for index in range(len(self.layers))]

    def cost(self, i=0):
        """J of the mini-batch of micro-batch i, in the last stage."""
        return self.totals.cost(i)

    def weights(self):
        """The arrays of its `parameters`."""
        return [getattr(layer, name) for layer, name in self.parameters]

    @property
    def in_parts(self):
        """Whether its device owns only a part of its parameters, and has all of them only now and then."""
        return self.owned is not None and not self.owned.has_all

    def statistics(self):
        """The arrays of its `parameters` that no gradient moves: running statistics."""
        return [getattr(layer, name) for layer, name in self._statistics]

    def keep_statistics(self, arrays):
        """Take over what `statistics` has given."""
        for (layer, name), array in zip(self._statistics, arrays, strict=True):
            setattr(layer, name, array)

    def optimizer_state(self):
        """What an optimizer keeps for these layers."""
        return list((self._memory if self.optimizer is None else self.optimizer.memory).values())

    def follow(self, other):
        """Take over the arrays of the same stage in another copy."""
        for (layer, name), (first, _) in zip(self.parameters, other.parameters, strict=True):
            setattr(layer, name, getattr(first, name))

    def twin(self):
        """The same stage with layers of its own, which have the same arrays: no run writes into them."""
        return type(self)(self.index, [layer.copy(itself) for layer in self.layers], copy.copy(self.loss))

    def __repr__(self):
        return f"Stage({self.index}, {list(self.layers)})"

    def _take_caches(self):
        caches = [owner.cache for owner in self._with_caches]
        for owner in self._with_caches:
            owner.cache = None
        return caches

    def _begin_backward(self, i, dA):
        """Give the layers their caches of micro-batch i back; dA, which in the last stage is the loss's."""
        self._use_version_of(i)
        for owner, cache in zip(self._with_caches, self.stash.pop(i), strict=True):
            owner.cache = cache
        if self.loss is not None:
            dA = self.loss.backward()
            self.loss.cache = None
        return dA

    def _add_gradient(self, i, index, half):
        """Add the weight gradients of micro-batch i in one layer, from what it has `put_aside` for them."""
        self.totals.add(i, index, weight_gradients(self.layers[index], half))

    def _gradient(self, i, index):
        """(dW, db) of the layer at `index`: its parameters, None or tuples of None, if it has none."""
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
        places = self._statistics if self.in_parts else self.parameters
        for (layer, name), array in zip(places, arrays, strict=True):
            setattr(layer, name, array)


def stages_of(parts, loss):
    """Return a tuple of `Stage`s. parts: the layers of each; the last one gets the loss."""
    last = len(parts) - 1
    return tuple(Stage(s, layers, loss if s == last else None) for s, layers in enumerate(parts))


# What a stage holds on its device, for those who count bytes.

KEPT = ("stashed inputs", "caches")  # what a stage keeps of a micro-batch


class Holdings:
    """All that the stages of a device hold in a run, by kind; the mini-batch itself lies on the host.

    Args:
        stages: those on the device.
    """

    def __init__(self, stages):
        self._stages, self._shelf = stages, Shelf(KEPT)
        for stage in stages:
            stage.inputs = Kept(self._shelf, "stashed inputs", stage.inputs)
            stage.stash = Kept(self._shelf, "caches", stage.stash)

    def __call__(self):
        """Return {kind: nested lists of arrays, or a `Shelf`}, as they are now."""
        kinds = "parameters", "optimizer state", "weight versions", "gradients", *KEPT
        held = {kind: [] for kind in kinds}
        for stage in self._stages:
            newest, older = stage.weights(), []
            if stage.in_parts:
                newest = [stage.owned.vectors, stage.owned.whole, stage.statistics()]
            elif stage.versions is not None:
                newest, older = stage.versions[stage.versions.newest], stage.versions.older
            held["parameters"].append(newest)
            held["optimizer state"].append(stage.optimizer_state())
            held["weight versions"].append(older)
            held["gradients"].append(stage.totals.held())
            held["caches"].append(stage.halves)
        held["stashed inputs"] = self._shelf
        return held
