"""Sums over micro-batches: along a fixed tree, or in order of arrival."""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections import defaultdict
from functools import partial
from typing import Any

from .checks import shown


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

    Two neighbours are merged as soon as both are there, so terms that arrive in order,
    upwards or downwards, leave at most about log2(n) partial sums waiting. A term is a
    number, an array or anything else with a sum, or lists and tuples of these, all of
    one form; None stays None.

    The arrays of the terms stay as they are, since whoever has handed them over may
    still hold them: two terms are added into a new array, and only such an array, which
    the sum itself has made, takes up more.

    Args:
        n: how many terms there are.

    >>> total = TreeSum(3)
    >>> for i in (2, 0, 1):
    ...     total.add(i, (10.0 ** i, None))
    >>> total.value
    (111.0, None)
    """

    def __init__(self, n: int):
        self.n = n
        self.pending: dict[tuple[int, int], Any] = {}  # (level, place) -> partial sum

    def add(self, place: int, term: Any, level: int = 0) -> None:
        """Add term number `place`, from 0 to n - 1, which was not added before; or a partial sum of a level.

        It is merged with its partner, that sum with its own, and so on, as long as they
        are there.
        """
        pending, last = self.pending, (self.n - 1) >> level  # the last place at this level
        is_ours = False  # a term may be somebody else's array, but the sum of two is a new one
        while last:
            partner = level, place ^ 1
            if partner in pending:
                # in either order: a + b and b + a have the same bits, (a + b) + c and a + (b + c) have not
                term = _sum(term, pending.pop(partner), is_ours)
                is_ours = True
            elif partner[1] <= last:
                break
            # without any partner at this level, the term moves up alone: adding 0 would turn -0.0 into 0.0
            level, place, last = level + 1, place >> 1, last >> 1
        pending[level, place] = term

    def absorb(self, pending: dict) -> None:
        """Add what is `pending` in another sum of the same `n` terms, of which it has got others."""
        for (level, place), term in pending.items():
            self.add(place, term, level)

    @property
    def value(self) -> Any:
        """The total; `RuntimeError` while terms are missing."""
        return _complete(self, self._top)

    def complete(self, total: Any) -> None:
        """Take over the sum of all terms, which others have found."""
        self.pending = {self._top: total}

    @property
    def _top(self):
        return (self.n - 1).bit_length(), 0


class RunningSum:
    """The sum of `n` terms in one buffer, added in order of arrival, which may decide the last bits.

    It keeps the place of one term, where a `TreeSum` keeps up to about log2(n). Terms
    as for that: the first two are added into a new array, which takes up the others.

    Args:
        n: how many terms there are.

    >>> total = RunningSum(3)
    >>> for i in (2, 0, 1):
    ...     total.add(i, (10.0 ** i, None))
    >>> total.value, len(total.pending)
    ((111.0, None), 1)
    """

    def __init__(self, n: int):
        self.n = n
        self.pending: dict[int, Any] = {}  # how many terms have been added -> their sum
        self._is_ours = False  # whether the arrays of that sum are new ones, and not those of the first term

    def add(self, i: int, term: Any) -> None:
        """Add term `i`, a number from 0 to n - 1 that was not added before."""
        self._put(1, term)

    def absorb(self, pending: dict) -> None:
        """Add what is `pending` in another sum of the same `n` terms, of which it has got others."""
        for n_added, term in pending.items():
            self._put(n_added, term)

    def _put(self, n_added, term):
        if self.pending:
            n_before, total = self.pending.popitem()
            term = _sum(total, term, in_place=self._is_ours)
            n_added, self._is_ours = n_before + n_added, True
        self.pending[n_added] = term

    @property
    def value(self) -> Any:
        """The total; `RuntimeError` while terms are missing."""
        return _complete(self, self.n)

    def complete(self, total: Any) -> None:
        """Take over the sum of all terms, which others have found."""
        self.pending = {self.n: total}


SUMS = {"tree": TreeSum, "running": RunningSum}  # ways to accumulate gradients, by name


def checked_accumulate(accumulate: str) -> str:
    """`accumulate`, if it is the name of one of `SUMS`."""
    if not (isinstance(accumulate, str) and accumulate in SUMS):
        raise ValueError(f"accumulate={shown(accumulate)} is not known: use one of {', '.join(SUMS)}")
    return accumulate


def _complete(total, last):
    """Return the sum of all terms, which is pending as `last`, and nothing else is; else raise."""
    if list(total.pending) != [last]:
        raise RuntimeError(f"the sum of {total.n} terms is not complete: add the others first")
    return total.pending[last]


def _sum(a, b, in_place):
    """Return a + b. in_place: whether the arrays of `a` may take it up."""
    if type(a) in (list, tuple):  # not isinstance: a NamedTuple such as `Moments` has a sum of its own
        return type(a)([_sum(of_a, of_b, in_place) for of_a, of_b in zip(a, b, strict=True)])
    if in_place and hasattr(a, "__setitem__") and a.dtype == b.dtype:  # else `+=` would round b to a's dtype
        a += b
        return a
    return None if a is None else a + b


class SumForEach:
    """The sum of each mini-batch in a line of several.

    Args:
        n: the micro-batches of each; micro-batch i is part i mod n of mini-batch i //
            n.
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
        """The sum of the mini-batch that micro-batch i is part of."""
        return self.sums[i // self.n]

    def add(self, i: int, term: Any) -> None:
        """Add the term of micro-batch i."""
        self.sums[i // self.n].add(i % self.n, term)

    def has(self, i: int) -> bool:
        """Whether a term of the mini-batch that micro-batch i is part of is there."""
        return bool(i // self.n in self.sums and self.sums[i // self.n].pending)

    def forget(self, i: int) -> None:
        """Drop the sum of the mini-batch that micro-batch i is part of."""
        self.sums.pop(i // self.n, None)

    @property
    def pending(self) -> list:
        """The partial sums of all mini-batches under way, as a list."""
        return [total.pending for total in self.sums.values()]

    @property
    def n_pending(self) -> int:
        """How many partial sums that is."""
        return sum(len(total.pending) for total in self.sums.values())
