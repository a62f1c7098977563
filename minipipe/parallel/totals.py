"""The sums of a stage over micro-batches, and the versions of its weights."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from functools import partial
from typing import Any

from ..collectives import all_reduce_sum_and_gather, reduce_scatter_sum_and_gather
from ..collectives.group import Group, Program
from ..sums import SUMS, SumForEach


class Totals:
    """Sums of gradients, costs and layers' statistics over micro-batches.

    Each layer's gradients are summed separately, as soon as they are computed. If
    several devices have the stage, each sums over its own micro-batches, and an
    all-reduce adds the sums.

    Args:
        n: the number of micro-batches (or grains) in a mini-batch.
        accumulate: "tree" or "running", how gradients are summed. Costs and statistics
            are always summed along the tree.

    Attributes:
        part: after a reduce-scatter, this device's shard of the summed gradients, as
            vectors.
        of_tied: {index of a tied layer: dW, summed over all layers that share its W}.
    """

    def __init__(self, n: int, accumulate: str = "tree") -> None:
        self._new_sum: Callable[[], Any] = partial(SUMS[accumulate], n)
        # index of a layer in the stage -> the sums of its (dW, db)
        self._gradients: Any = defaultdict(partial(SumForEach, n, SUMS[accumulate]))
        self._costs, self._statistics = SumForEach(n), SumForEach(n)
        self.part: Any = None
        self.of_tied: dict = {}

    def add(self, i: int, index: int, gradient: tuple) -> None:
        """Add `gradient`, (dW, db) of micro-batch i, to the sums of layer `index`."""
        self._gradients[index].add(i, gradient)

    def add_cost(self, i: int, J: Any) -> None:
        """Add J, the share of micro-batch i in the cost of its mini-batch."""
        self._costs.add(i, J)

    def add_statistics(self, i: int, statistics: Any) -> None:
        """Add `statistics`, which the layers have counted in the forward of i."""
        self._statistics.add(i, statistics)

    def gradient(self, i: int, index: int) -> tuple:
        """Return (dW, db) of the layer at `index`, summed over i's mini-batch.

        The dW of a tied layer is summed over all layers that share its W.
        """
        dW, db = self._gradients[index].of(i).value
        return self.of_tied.get(index, dW), db

    def cost(self, i: int = 0) -> Any:
        """Return J of micro-batch i's mini-batch, in the last stage."""
        return self._costs.of(i).value

    def statistics(self, i: int = 0) -> Any:
        """Return the layers' statistics of micro-batch i's mini-batch, or None."""
        return self._statistics.of(i).value if self._statistics.has(i) else None

    def forget(self, i: int) -> None:
        """Drop the sums of the mini-batch of micro-batch i."""
        self.of_tied.clear()
        self.part = None
        for sums in (*self._gradients.values(), self._costs, self._statistics):
            sums.forget(i)

    def gradients(self, i: int) -> Any:
        """Return the sum of {index of a layer: (dW, db)} over i's mini-batch."""
        total = self._new_sum()
        for index, sums in sorted(self._gradients.items()):  # in one order on all devices
            for node, term in sums.of(i).pending.items():
                total.pending.setdefault(node, {})[index] = term
        return total

    def all_reduce(self, i: int, group: Group, algorithm: str) -> Program:
        """A program: all-reduce sums of i's mini-batch over `group` by `algorithm`."""
        counted = self._costs.of(i).pending, self._statistics.of(i).pending
        total, of_all = yield from all_reduce_sum_and_gather(group, self.gradients(i), counted, algorithm)
        for index, gradient in (total or {}).items():
            self._gradients[index].of(i).complete(gradient)
        self._absorb(i, group, of_all)

    def reduce_scatter(self, i: int, group: Group) -> Program:
        """A program: reduce-scatter sums of i's mini-batch in `group` to `part`."""
        counted = self._costs.of(i).pending, self._statistics.of(i).pending
        self.part, of_all = yield from reduce_scatter_sum_and_gather(group, self.gradients(i), counted)
        for sums in self._gradients.values():
            sums.forget(i)
        self._absorb(i, group, of_all)

    def _absorb(self, i, group, of_all):
        # costs and statistics are small: each device receives all of them, and adds them
        for of_other in of_all[:group.rank] + of_all[group.rank + 1:]:
            for sums, pending in zip((self._costs, self._statistics), of_other, strict=True):
                sums.of(i).absorb(pending)

    def held(self) -> list:
        """Return all arrays that are held, as nested lists."""
        gradients = [sums.pending for sums in self._gradients.values()]
        return [gradients, self._statistics.pending, self.of_tied, self.part]


class Versions(dict):
    """{version: weights} of a stage: the newest, and older ones that backwards need.

    Args:
        wanted: {micro-batch of the stage: the version that it uses}. Version v is
            `first` after v updates.
        first: the weights before the first update.

    >>> versions = Versions(wanted={0: 0, 1: 0, 2: 1}, first="W0")
    >>> versions.add("W1"), versions.used_by(0), list(versions.older)
    (None, None, ['W0'])
    >>> versions.used_by(1), list(versions.older)
    (None, [])
    """

    def __init__(self, wanted: dict[int, int], first: Any) -> None:
        super().__init__({0: first})
        self.wanted, self.newest = wanted, 0
        self._uses = Counter(wanted.values())  # version -> number of pending backwards that need it

    @property
    def older(self) -> list:
        """The weights of all versions except the newest."""
        return [weights for version, weights in self.items() if version != self.newest]

    def of(self, i: int) -> Any:
        """Return the weights that micro-batch i uses."""
        return self[self.wanted[i]]

    def add(self, weights: Any) -> None:
        """Add `weights`, which an update has made, as the newest version."""
        self.newest += 1
        self[self.newest] = weights
        self._drop(self.newest - 1)

    def used_by(self, i: int) -> None:
        """Record that the backward of i is done; drop its version if unused."""
        self._uses[self.wanted[i]] -= 1
        self._drop(self.wanted[i])

    def _drop(self, version):
        """Drop `version` if no backward needs it; the newest version stays."""
        if version != self.newest and not self._uses[version]:
            del self[version]
