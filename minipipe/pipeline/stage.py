"""One part of the network, an object on its own: its layers, its stash, its gradients."""

from ..network import backward_through
from .treesum import TreeSum


class Stage:
    """Consecutive layers on one device, with many micro-batches in flight.

    index: the place of the stage in the pipeline; stage 0 computes no dA_prev, since nobody wants it.
    loss: the last stage's, None for the others.

    A forward leaves in `stash[i]` what the backward of micro-batch i needs, the cache of each layer; or, when it
    will be recomputed, in `inputs[i]` only the stage's input. The layers know of one micro-batch at a time.
    """

    def __init__(self, index, layers, loss=None):
        self.index, self.layers, self.loss = index, layers, loss
        self.begin(1, None)

    def begin(self, n_microbatches, batch):
        """Start a mini-batch: `batch` is a `MicroBatches`, read by the first stage (inputs) and the last (labels)."""
        self.batch = batch
        self.inputs = {}  # micro-batch -> A_prev, for a recompute
        self.stash = {}   # micro-batch -> caches of the layers, and of the loss in the last stage
        self.has_gradient = None  # for each layer, whether there is a dW and a db
        self.gradient_sum = TreeSum(n_microbatches)
        self.cost_sum = TreeSum(n_microbatches)

    def forward(self, i, A_prev, keep_input_only=False):
        """A (n, m_i) of micro-batch i; the last stage, which sends nothing on, returns None."""
        if self.index == 0:
            A_prev = self.batch.inputs(i)
        A, J = self._through_layers(i, A_prev)
        if self.loss is not None:
            self.cost_sum.add(i, [J])
        caches = self._take_caches()
        if keep_input_only:
            self.inputs[i] = A_prev
        else:
            self.stash[i] = caches
        return A

    def recompute(self, i):
        """The forward of micro-batch i again, from its stashed input, to have its caches back."""
        self._through_layers(i, self.inputs.pop(i))
        self.stash[i] = self._take_caches()

    def backward(self, i, dA):
        """dA_prev of micro-batch i; its weight gradients go into the sum over micro-batches."""
        for owner, cache in zip(self._cache_owners(), self.stash.pop(i), strict=True):
            owner.cache = cache
        if self.loss is not None:
            dA = self.loss.backward()
            self.loss.cache = None
        dA_prev, gradients = backward_through(self.layers, dA, wants_dX=self.index > 0)
        self.has_gradient = [[part is not None for part in pair] for pair in gradients]
        self.gradient_sum.add(i, [part for pair in gradients for part in pair if part is not None])
        return dA_prev

    def gradients(self):
        """A list over the stage's layers of `(dW, db)`, summed over all micro-batches."""
        parts = iter(self.gradient_sum.value)
        return [tuple(next(parts) if present else None for present in pair) for pair in self.has_gradient]

    def cost(self):
        """J of the mini-batch, in the last stage."""
        return self.cost_sum.value[0]

    def holdings(self):
        """All that this stage holds on its device, by kind; the mini-batch itself lies on the host."""
        return {
            "parameters": [(layer.W, layer.b) for layer in self.layers],
            "gradients": self.gradient_sum.pending,
            "stashed inputs": self.inputs,
            "caches": self.stash,
        }

    def __repr__(self):
        return f"Stage({self.index}, {self.layers})"

    def _through_layers(self, i, A):
        """(A, None), or (None, J) in the last stage, where J is this micro-batch's part of the cost."""
        for layer in self.layers:
            A = layer.forward(A)
        if self.loss is None:
            return A, None
        return None, self.loss.forward(A, self.batch.labels(i), self.batch.m)

    def _cache_owners(self):
        return self.layers if self.loss is None else [*self.layers, self.loss]

    def _take_caches(self):
        caches = [owner.cache for owner in self._cache_owners()]
        for owner in self._cache_owners():
            owner.cache = None
        return caches
