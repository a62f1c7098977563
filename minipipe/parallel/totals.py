"""What a stage sums over the micro-batches of a mini-batch, and the versions of its weights."""

from collections import Counter, defaultdict
from functools import partial


from ..collectives import all_reduce_sum_and_gather, reduce_scatter_sum_and_gather
from ..sums import SUMS, SumForEach


class Totals:
    """Sums of gradients, costs and the statistics that layers count, for each mini-batch.

    The gradients of each layer are summed by themselves, as soon as they are there. Of
    a stage that several devices have, each sums up what it has worked on; an all-reduce
    brings the sums together. A stage and what stands for it in a simulation have the
    same.

    Args:
        n: the micro-batches of a mini-batch.
        accumulate: "tree" or "running", how gradients are summed; all else is summed
            along the tree.
    """

    def __init__(self, n, accumulate="tree"):
        self._new_sum = partial(SUMS[accumulate], n)
        # index of a layer in the stage -> the sums of its (dW, db)
        self._gradients = defaultdict(partial(SumForEach, n, SUMS[accumulate]))
        self._costs, self._statistics = SumForEach(n), SumForEach(n)
        self.part = None    # after a reduce-scatter: vectors, this device's part of the sum of the gradients
        self.of_tied = {}   # index of a tied layer in the stage -> the sum of the dW of all that share its W

    def add(self, i, index, gradient):
        """Add (dW, db) of micro-batch i to those of the layer at `index`."""
        self._gradients[index].add(i, gradient)

    def add_cost(self, i, J):
        """Add the cost of micro-batch i, its part of the whole."""
        self._costs.add(i, J)

    def add_statistics(self, i, statistics):
        """Add what the layers have counted in the forward of micro-batch i."""
        self._statistics.add(i, statistics)

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
        """Drop the sums of the mini-batch of micro-batch i."""
        self.of_tied.clear()
        self.part = None
        for sums in (*self._gradients.values(), self._costs, self._statistics):
            sums.forget(i)

    def gradients(self, i):
        """The sum of the gradients of all layers in one; its terms are {index of a layer: (dW, db)}."""
        total = self._new_sum()
        for index, sums in sorted(self._gradients.items()):  # in one order on all devices
            for node, term in sums.of(i).pending.items():
                total.pending.setdefault(node, {})[index] = term
        return total

    def all_reduce(self, i, group, algorithm):
        """A program: each device of the group gets the sums of all, in the mini-batch of micro-batch i."""
        counted = self._costs.of(i).pending, self._statistics.of(i).pending
        total, of_all = yield from all_reduce_sum_and_gather(group, self.gradients(i), counted, algorithm)
        for index, gradient in (total or {}).items():
            self._gradients[index].of(i).complete(gradient)
        self._absorb(i, group, of_all)

    def reduce_scatter(self, i, group):
        """A program: each device of the group gets a part of the summed gradients, and drops all others."""
        counted = self._costs.of(i).pending, self._statistics.of(i).pending
        self.part, of_all = yield from reduce_scatter_sum_and_gather(group, self.gradients(i), counted)
        for sums in self._gradients.values():
            sums.forget(i)
        self._absorb(i, group, of_all)

    def _absorb(self, i, group, of_all):
        # costs and statistics are small: each device gets those of all others, and adds them up itself
        for of_other in of_all[:group.rank] + of_all[group.rank + 1:]:
            for sums, pending in zip((self._costs, self._statistics), of_other, strict=True):
                sums.of(i).absorb(pending)

    def held(self):
        """All arrays that are kept, as nested lists."""
        gradients = [sums.pending for sums in self._gradients.values()]
        return [gradients, self._statistics.pending, self.of_tied, self.part]

    def n_held(self):
        """How many partial sums are kept: (of the gradients of a layer, of statistics)."""
        of_gradients = max((sums.n_pending for sums in self._gradients.values()), default=0)
        return of_gradients, self._statistics.n_pending


# The versions of its weights that a stage keeps, where updates do not wait for all micro-batches.

class Versions(dict):
    """{version: weights} of a stage: the `newest`, and each older one until no backward needs it any more.

    Args:
        wanted: {micro-batch: the version that it uses}, of those that the stage works
            on; version v is what v updates have made of `first`.
        first: the weights before the first update.

    >>> versions = Versions(wanted={0: 0, 1: 0, 2: 1}, first="W0")
    >>> versions.add("W1"), versions.used_by(0), list(versions.older)
    (None, None, ['W0'])
    >>> versions.used_by(1), list(versions.older)
    (None, [])
    """

    def __init__(self, wanted, first):
        super().__init__({0: first})
        self.wanted, self.newest = wanted, 0
        self._uses = Counter(wanted.values())  # version -> backwards to come that need it

    @property
    def older(self):
        """The weights of all versions but the newest."""
        return [weights for version, weights in self.items() if version != self.newest]

    def of(self, i):
        """The weights that micro-batch i uses."""
        return self[self.wanted[i]]

    def add(self, weights):
        """An update has made the next version."""
        self.newest += 1
        self[self.newest] = weights
        self._drop(self.newest - 1)

    def used_by(self, i):
        """Micro-batch i has had its backward."""
        self._uses[self.wanted[i]] -= 1
        self._drop(self.wanted[i])

    def _drop(self, version):
        """Drop a version once nothing needs it; the newest stays."""
        if version != self.newest and not self._uses[version]:
            del self[version]
