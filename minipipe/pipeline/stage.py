"""One part of the network, an object on its own: its layers, its stash, its gradients."""

import copy

from ..cluster import Buffers
from ..functions import leaves
from ..layers import every_layer
from ..layers.through import backward_input_through, backward_through, forward_through, prepare_forward
from ..network import commit, take_statistics
from ..sums import TreeSum


class Stage:
    """Consecutive layers on one device, with many micro-batches in flight.

    index: the place of the stage in the pipeline; stage 0 computes no dA_prev, since nobody wants it.
    loss: the last stage's, None for the others.

    A forward leaves in `stash[i]` what the backward of micro-batch i needs, the cache of each layer; or, when it
    will be recomputed, in `inputs[i]` only the stage's input. The layers know of one micro-batch at a time.

    Skip connections that come from other stages enter beside A_prev (or dA), and those that go on to others are left
    beside A (or dA_prev), as {name: array}.
    """

    def __init__(self, index, layers, loss=None):
        self.index, self.layers, self.loss = index, layers, loss
        self._everyone = list(every_layer(layers))
        self.keep_optimizer_state([])
        self.begin(1, None)

    def begin(self, n_microbatches, batch):
        """Start a run: `batch`, `MicroBatches` or a `Stream`, is read by the first stage (inputs) and the last (labels)."""
        self.batch = batch
        self.inputs = Stash()  # micro-batch -> (A_prev, skips), for a recompute
        self.stash = Stash()   # micro-batch -> caches of the layers, and of the loss in the last stage
        self.halves = Stash()  # micro-batch -> (dZ, cache) of each layer, between the two halves of a backward
        self.gradient_sum = TreeSum(n_microbatches)
        self.cost_sum = TreeSum(n_microbatches)
        self.statistics_sum = TreeSum(n_microbatches)
        self.tied_sums = {}    # place of a tied layer in this stage -> the sum of the dW of all that share its W
        self._parameters = Buffers([[getattr(layer, name) for name in layer.arrays] for layer in self._everyone])
        self._sums = Buffers()

    def forward(self, i, A_prev, skips, keep_input_only=False):
        """(A (n, m_i), skips) of micro-batch i; the last stage, which sends nothing on, has None for A."""
        if self.index == 0:
            A_prev = self.batch.inputs(i)
        entering = dict(skips)
        A, J = self._through_layers(i, A_prev, skips)
        self._add(self.statistics_sum, i, take_statistics(self._everyone))
        if self.loss is not None:
            self.cost_sum.add(i, J)
        caches = self._take_caches()
        if keep_input_only:
            self.inputs[i] = A_prev, entering
        else:
            self.stash[i] = caches
        return A, skips

    def recompute(self, i):
        """The forward of micro-batch i again, from its stashed input, to have its caches back."""
        self._through_layers(i, *self.inputs.pop(i))
        take_statistics(self._everyone)  # the forward has counted them
        self.stash[i] = self._take_caches()

    def backward(self, i, dA, skips):
        """(dA_prev, skips) of micro-batch i; its weight gradients go into the sum over micro-batches."""
        dA = self._begin_backward(i, dA)
        dA_prev, gradients = backward_through(self.layers, dA, skips, wants_dX=self.index > 0)
        self._add(self.gradient_sum, i, gradients)
        return dA_prev, skips

    def backward_input(self, i, dA, skips):
        """The first half of a backward: (dA_prev, skips) of micro-batch i. What the other half needs lies in `halves[i]`."""
        dA = self._begin_backward(i, dA)
        halves = [None] * len(self.layers)

        def keep(index, dZ):
            layer = self.layers[index]
            halves[index], layer.cache = (dZ, layer.cache), None

        dA_prev = backward_input_through(self.layers, dA, skips, self.index > 0, keep)
        self.halves[i] = halves
        return dA_prev, skips

    def backward_weight(self, i):
        """The second half: the weight gradients of micro-batch i, into the sum over micro-batches."""
        gradients = []
        for layer, half in zip(self.layers, self.halves.pop(i), strict=True):
            if half is None:  # a layer without parameters, below all that have some
                gradients.append((layer.W, layer.b))
                continue
            dZ, layer.cache = half
            gradients.append(layer.backward_weight(dZ))
            layer.cache = None
        self._add(self.gradient_sum, i, gradients)

    def gradients(self):
        """A list over the stage's layers of `(dW, db)`, summed over all micro-batches, and dW over the layers that share a W."""
        return [(self.tied_sums.get(place, dW), db) for place, (dW, db) in enumerate(self.gradient_sum.value)]

    def keep_tied_sum(self, place, dW):
        """`dW` is the sum for the tied layer at this place."""
        self.tied_sums[place] = dW
        self._count_sums()

    def cost(self):
        """J of the mini-batch, in the last stage."""
        return self.cost_sum.value

    def sums(self):
        """What is there of the sums over micro-batches, to be handed to the other copy of this stage."""
        return [tree_sum.pending for tree_sum in self._tree_sums()]

    def absorb(self, sums):
        """Add the sums of the other copy of this stage, which has worked on the other micro-batches."""
        for tree_sum, pending in zip(self._tree_sums(), sums, strict=True):
            tree_sum.absorb(pending)
        self._count_sums()

    def replace(self, sums):
        """Take over the sums of the other copy of this stage, which are the totals."""
        for tree_sum, pending in zip(self._tree_sums(), sums, strict=True):
            tree_sum.pending = pending
        self._count_sums()

    def twin(self):
        """The same stage in another copy of the network, with arrays of its own."""
        twin = Stage(self.index, [layer.copy() for layer in self.layers], copy.copy(self.loss))
        twin.keep_optimizer_state(copy.deepcopy(self._optimizer_state))
        return twin

    def keep_optimizer_state(self, arrays):
        """`arrays` are what an optimizer keeps for these layers."""
        self._optimizer_state, self._buffers_of_optimizer = arrays, Buffers(arrays)

    def commit(self):
        """At the end of a mini-batch: the layers draw their conclusions from the statistics of all its micro-batches."""
        commit(self._everyone, self.statistics_sum.value)

    def holdings(self):
        """All that this stage holds on its device, by kind; the mini-batch itself lies on the host."""
        return {
            "parameters": self._parameters,
            "optimizer state": self._buffers_of_optimizer,
            "gradients": self._sums,
            "stashed inputs": self.inputs.buffers,
            "caches": Buffers([self.stash.buffers, self.halves.buffers]) if self.halves else self.stash.buffers,
        }

    def __repr__(self):
        return f"Stage({self.index}, {self.layers})"

    def _through_layers(self, i, A, skips):
        """(A, None), or (None, J) in the last stage, where J is this micro-batch's part of the cost."""
        prepare_forward(self._everyone, training=True, step=self.batch.step(i), first_sample=self.batch.first_sample(i))
        A = forward_through(self.layers, A, skips)
        if self.loss is None:
            return A, None
        return None, self.loss.forward(A, self.batch.labels(i), self.batch.batch_size(i))

    def _begin_backward(self, i, dA):
        """Give the layers their caches of micro-batch i back; dA, which in the last stage is the loss's."""
        for owner, cache in zip(self._cache_owners(), self.stash.pop(i), strict=True):
            owner.cache = cache
        if self.loss is not None:
            dA = self.loss.backward()
            self.loss.cache = None
        return dA

    def _add(self, tree_sum, i, term):
        tree_sum.add(i, term)
        if leaves(term):
            self._count_sums()

    def _count_sums(self):
        self._sums = Buffers([self.gradient_sum.pending, self.statistics_sum.pending, self.tied_sums])

    def _tree_sums(self):
        return self.gradient_sum, self.cost_sum, self.statistics_sum

    def _cache_owners(self):
        return self.layers if self.loss is None else [*self.layers, self.loss]

    def _take_caches(self):
        caches = [owner.cache for owner in self._cache_owners()]
        for owner in self._cache_owners():
            owner.cache = None
        return caches


class Stash(dict):
    """{micro-batch: arrays}, with the `buffers` of them all; those of a micro-batch are found once, when it is put in."""

    def __init__(self):
        super().__init__()
        self._buffers, self.buffers = {}, Buffers()

    def __setitem__(self, i, arrays):
        super().__setitem__(i, arrays)
        self._buffers[i] = Buffers(arrays)
        self.buffers = Buffers(self._buffers)

    def pop(self, i):
        """Take out the arrays of micro-batch i."""
        del self._buffers[i]
        self.buffers = Buffers(self._buffers)
        return super().pop(i)
