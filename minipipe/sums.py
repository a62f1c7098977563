"""Sums over micro-batches: along a fixed tree, or in order of arrival."""

from collections import defaultdict
from functools import partial
from typing import Any


class TreeSum:
    """The sum of `n` terms, added along one fixed binary tree.

    Floating-point addition is not associative, so a sum in order of arrival would
    differ from schedule to schedule. Here term i always meets the same partners:

        0   1   2   3   4        level 0: the terms
         \\ /     \\ /    |
         0+1     2+3    4        level 1
           \\     /      |
            0+1+2+3     4        level 2
                 \\     /
               the total

    Two neighbours are added as soon as both are there, so with terms in ascending or
    descending order, at most about log2(n) partial sums are pending. A term is a
    number, an array or anything else with a sum, or lists and tuples of these, all of
    one form; None stays None. The arrays of the terms are not changed.

    Args:
        n: the number of terms.

    >>> total = TreeSum(3)
    >>> for i in (2, 0, 1):
    ...     total.add(i, (10.0 ** i, None))
    >>> total.value
    (111.0, None)
    """

    def __init__(self, n: int):
        self.n = n
        self.pending: dict[Any, Any] = {}  # (level, place) -> partial sum

    def add(self, place: int, term: Any, level: int = 0) -> None:
        """Add term number `place`, or partial sum number `place` of a `level`.

        It is added to its partner, their sum to the partner of that, and so on, as long
        as the partners are pending. No term may be added twice.
        """
        pending, last = self.pending, (self.n - 1) >> level  # the last place at this level
        is_ours = False  # a term may be the caller's array, but the sum of two is a new one
        while last:
            partner = level, place ^ 1
            if partner in pending:
                # in either order: a + b and b + a have the same bits, but not (a + b) + c and a + (b + c)
                term = _sum(term, pending.pop(partner), is_ours)
                is_ours = True
            elif partner[1] <= last:
                break
            # without a partner at this level, the term moves up alone: adding 0 would turn -0.0 into 0.0
            level, place, last = level + 1, place >> 1, last >> 1
        pending[level, place] = term

    def absorb(self, pending: dict) -> None:
        """Add the `pending` sums of another object, which got other terms."""
        for (level, place), term in pending.items():
            self.add(place, term, level)

    @property
    def value(self) -> Any:
        """The sum of all terms; `RuntimeError` while some are missing."""
        if list(self.pending) != [self._top]:
            raise RuntimeError(f"the sum of {self.n} terms is not complete: add the others first")
        return self.pending[self._top]

    def complete(self, total: Any) -> None:
        """Set `total`, the sum of all terms, which was computed elsewhere."""
        self.pending = {self._top: total}

    @property
    def _top(self):
        return (self.n - 1).bit_length(), 0


class RunningSum(TreeSum):
    """The sum of `n` terms in one buffer, in order of arrival.

    The last bits may depend on that order. It needs the memory of one term, a `TreeSum`
    that of up to about log2(n). `pending` is {number of terms added: their sum}.

    Args:
        n: the number of terms, as in `TreeSum`.

    >>> total = RunningSum(3)
    >>> for i in (2, 0, 1):
    ...     total.add(i, (10.0 ** i, None))
    >>> total.value, len(total.pending)
    ((111.0, None), 1)
    """

    _is_ours = False  # whether the arrays of the sum are new ones, not those of the first term

    def add(self, place: int, term: Any, level: int = 0) -> None:
        """Add term number `place`, in any order; its `level` does not matter."""
        self.absorb({1: term})

    def absorb(self, pending: dict) -> None:
        """Add the `pending` sum of another object."""
        for n_added, term in pending.items():
            if self.pending:
                n_before, total = self.pending.popitem()
                term = _sum(total, term, in_place=self._is_ours)
                n_added, self._is_ours = n_before + n_added, True
            self.pending[n_added] = term

    @property
    def _top(self):
        return self.n


SUMS = {"tree": TreeSum, "running": RunningSum}  # ways to accumulate gradients, by name


def _sum(a, b, in_place):
    """Return a + b; with `in_place`, it may be written into the arrays of `a`."""
    if type(a) in (list, tuple):  # not isinstance: a NamedTuple such as `Moments` has its own sum
        return type(a)([_sum(of_a, of_b, in_place) for of_a, of_b in zip(a, b, strict=True)])
    if in_place and hasattr(a, "__setitem__") and a.dtype == b.dtype:  # else `+=` would round b to a's dtype
        a += b
        return a
    return None if a is None else a + b


class SumForEach:
    """The sums of consecutive mini-batches: micro-batch i belongs to number i // n.

    Args:
        n: the micro-batches per mini-batch.
        kind: `TreeSum` or `RunningSum`.

    >>> total = SumForEach(2)
    >>> total.add(2, 10)
    >>> total.add(3, 1)
    >>> total.of(3).value, total.has(4)
    (11, False)
    """

    def __init__(self, n: int, kind: type = TreeSum):
        self.n = n
        self.sums: defaultdict[int, Any] = defaultdict(partial(kind, n))

    def of(self, i: int) -> Any:
        """Return the sum of the mini-batch of micro-batch `i`."""
        return self.sums[i // self.n]

    def add(self, i: int, term: Any) -> None:
        """Add the `term` of micro-batch `i`."""
        self.sums[i // self.n].add(i % self.n, term)

    def has(self, i: int) -> bool:
        """Tell whether the mini-batch of micro-batch `i` has any term yet."""
        return bool(i // self.n in self.sums and self.sums[i // self.n].pending)

    def forget(self, i: int) -> None:
        """Drop the sum of the mini-batch of micro-batch `i`."""
        self.sums.pop(i // self.n, None)

    @property
    def pending(self) -> list:
        """The list of the pending partial sums of all mini-batches."""
        return [total.pending for total in self.sums.values()]
