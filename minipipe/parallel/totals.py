"""What a stage sums over the micro-batches of a mini-batch."""

from collections import defaultdict
from functools import partial

from ..sums import SUMS, SumForEach


class Totals:
    """Sums of gradients, costs and the statistics that layers count, for each mini-batch.

    The gradients of each layer are summed by themselves, as soon as they are there. Of a stage that several
    devices have, each sums up what it has worked on; an all-reduce brings the sums together. A stage and
    what stands for it in a simulation have the same.

    n: the micro-batches of a mini-batch.
    accumulate: "tree" or "running", how gradients are summed; all else is summed along the tree.
    keeps_terms: whether the gradients that are added stay as they are; if not, they may take up the sum.
    """

    def __init__(self, n, accumulate="tree", keeps_terms=False):
        self._new_sum = partial(SUMS[accumulate], n)
        # index of a layer in the stage -> the sums of its (dW, db)
        self._gradients = defaultdict(partial(SumForEach, n, keeps_terms, SUMS[accumulate]))
        self._costs, self._statistics = SumForEach(n), SumForEach(n)
        self.part = None    # after a reduce-scatter: vectors, this device's part of the sum of the gradients
        self.of_tied = {}   # index of a tied layer in the stage -> the sum of the dW of all that share its W
        self.n_changes = 0  # since it was made: for those who count what is held

    def add(self, i, index, gradient):
        """Add (dW, db) of micro-batch i to those of the layer at `index`."""
        self._gradients[index].add(i, gradient)
        self.n_changes += 1

    def add_run(self, run, gradients):
        """Add {index of a layer: (dW, db)}, the sums over a run of micro-batches. run: their range."""
        for index, gradient in gradients.items():
            self._gradients[index].of(run.start).add_run(run, gradient)
        self.n_changes += 1

    def add_cost(self, i, J):
        """Add the cost of micro-batch i, its part of the whole."""
        self._costs.add(i, J)

    def add_statistics(self, i, statistics):
        """Add what the layers have counted in the forward of micro-batch i."""
        self._statistics.add(i, statistics)
        self.n_changes += 1

    def gradient(self, i, index):
        """(dW, db) of the layer at `index`, of the mini-batch of micro-batch i.

        The dW of tied layers is summed over all that share the W.
        """
        dW, db = self._gradients[index].of(i).value
        return self.of_tied.get(index, dW), db

    def cost(self, i=0):
        """J of the mini-batch of micro-batch i, in the last stage."""
        return self._costs.of(i).value

    def statistics(self, i=0):
        """What the layers have counted in the mini-batch of micro-batch i; None if that is nothing."""
        return self._statistics.of(i).value if self._statistics.has(i) else None

    def forget(self, i):
        """The sums of the mini-batch of micro-batch i are used up."""
        self.of_tied.clear()
        self.part = None
        for sums in (*self._gradients.values(), self._costs, self._statistics):
            sums.forget(i)
        self.n_changes += 1

    def keep_tied(self, index, dW):
        """`dW` is the sum for the tied layer at `index` of the stage."""
        self.of_tied[index] = dW
        self.n_changes += 1

    def gradients(self, i):
        """The sum of the gradients of all layers in one; its terms are {index of a layer: (dW, db)}."""
        total = self._new_sum()
        for index, sums in sorted(self._gradients.items()):  # in one order on all devices
            for node, term in sums.of(i).pending.items():
                total.pending.setdefault(node, {})[index] = term
        return total

    def replace_gradients(self, i, gradients):
        """Take over {index of a layer: (dW, db)}, the sum of all devices that have the stage."""
        for index, gradient in (gradients or {}).items():
            self._gradients[index].of(i).complete(gradient)
        self.n_changes += 1

    def keep_part(self, i, part):
        """Keep only `part` of the gradients, vectors: of the sum over all devices that have the stage."""
        for sums in self._gradients.values():
            sums.forget(i)
        self.part = part
        self.n_changes += 1

    def keep_vector(self, position, vector):
        """`vector` is the sum for the one at this position of `part`, over the tied layers that share it."""
        self.part = [*self.part[:position], vector, *self.part[position + 1:]]
        self.n_changes += 1

    def partial_gradients(self, i, indices):
        """{index of a layer: what is pending of its gradients}, for these layers."""
        return {index: self._gradients[index].of(i).pending for index in indices}

    def replace_partial(self, i, pending):
        """Take over what `partial_gradients` has given, summed over the devices of a group."""
        for index, of_layer in pending.items():
            self._gradients[index].of(i).pending = of_layer
        self.n_changes += 1

    def pending(self, i):
        """The partial sums of costs and statistics, for other devices that have the same stage."""
        return self._costs.of(i).pending, self._statistics.of(i).pending

    def absorb(self, i, pending):
        """Add the partial sums of another device, which has worked on other micro-batches."""
        for sums, partial_sums in zip((self._costs, self._statistics), pending, strict=True):
            sums.of(i).absorb(partial_sums)
        self.n_changes += 1

    def held(self):
        """All arrays that are kept, as nested lists."""
        gradients = [sums.pending for sums in self._gradients.values()]
        return [gradients, self._statistics.pending, self.of_tied, self.part]

    def n_held(self):
        """How many partial sums are kept: (of the gradients of a layer, of statistics)."""
        of_gradients = max((sums.n_pending for sums in self._gradients.values()), default=0)
        return of_gradients, self._statistics.n_pending
