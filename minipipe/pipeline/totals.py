"""What a stage sums over the micro-batches of a mini-batch."""

from ..sums import SumForEach


class Totals:
    """Sums of gradients, costs and the statistics that layers count, each along the tree of its mini-batch.

    Of a stage that several devices have, each sums up what it has worked on; `pending`, `absorb` and
    `replace` bring the sums together. A stage and what stands for it in a simulation have the same.

    n: the micro-batches of a mini-batch.
    keeps_terms: whether the gradients that are added stay as they are; if not, they may take up the sum.
    """

    def __init__(self, n, keeps_terms=False):
        self._gradients = SumForEach(n, keeps_terms)
        self._costs, self._statistics = SumForEach(n), SumForEach(n)
        self._all = self._gradients, self._costs, self._statistics
        self.of_tied = {}   # index of a tied layer in the stage -> the sum of the dW of all that share its W
        self.n_changes = 0  # since it was made: for those who count what is held

    def add(self, i, gradients):
        """Add the weight gradients of micro-batch i."""
        self._gradients.add(i, gradients)
        self.n_changes += 1

    def add_cost(self, i, J):
        """Add the cost of micro-batch i, its part of the whole."""
        self._costs.add(i, J)

    def add_statistics(self, i, statistics):
        """Add what the layers have counted in the forward of micro-batch i."""
        self._statistics.add(i, statistics)
        self.n_changes += 1

    def gradients(self, i=0):
        """A list over the layers of `(dW, db)`, of the mini-batch of micro-batch i.

        The dW of tied layers are summed over all that share the W.
        """
        sums = self._gradients.of(i).value
        return [(self.of_tied.get(index, dW), db) for index, (dW, db) in enumerate(sums)]

    def cost(self, i=0):
        """J of the mini-batch of micro-batch i, in the last stage."""
        return self._costs.of(i).value

    def statistics(self, i=0):
        """What the layers have counted in the mini-batch of micro-batch i; None if that is nothing."""
        return self._statistics.of(i).value if self._statistics.has(i) else None

    def forget(self, i):
        """The sums of the mini-batch of micro-batch i are used up."""
        self.of_tied.clear()
        for sums in self._all:
            sums.forget(i)
        self.n_changes += 1

    def keep_tied(self, index, dW):
        """`dW` is the sum for the tied layer at `index` of the stage."""
        self.of_tied[index] = dW
        self.n_changes += 1

    def pending(self, i):
        """The partial sums of the mini-batch of micro-batch i, for another device that has the same stage."""
        return [sums.of(i).pending for sums in self._all]

    def absorb(self, i, pending):
        """Add the partial sums of another device, which has worked on other micro-batches."""
        for sums, nodes in zip(self._all, pending, strict=True):
            sums.of(i).absorb(nodes)
        self.n_changes += 1

    def replace(self, i, pending):
        """Take over the sums of another device, which are those of all micro-batches."""
        for sums, nodes in zip(self._all, pending, strict=True):
            sums.of(i).pending = nodes
        self.n_changes += 1

    def held(self):
        """All arrays that are kept, as nested lists."""
        return [self._gradients.pending, self._statistics.pending, self.of_tied]

    def n_held(self):
        """How many partial sums are kept: (of gradients, of statistics)."""
        return self._gradients.n_pending, self._statistics.n_pending
