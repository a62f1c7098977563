"""A sum whose rounding does not depend on the order in which its terms arrive."""

import numpy as np


class TreeSum:
    """The sum of `n` terms, added along one fixed binary tree.

    Floating-point addition is not associative, so a sum in order of arrival would differ from schedule to
    schedule. Here term i always meets the same partners:

        0   1   2   3   4        level 0: the terms
         \\ /     \\ /    |
         0+1     2+3    4        level 1
           \\     /      |
            0+1+2+3     4        level 2
                 \\     /
               the total

    Two neighbours are merged as soon as both are there, so terms that arrive in order, upwards or downwards,
    leave at most about log2(n) partial sums waiting. A term is a number, an array or anything else with a
    sum, or lists and tuples of these, all of one form; None stays None.

    n: how many terms there are.
    keeps_terms: whether the arrays of the terms stay as they are; if not, one of them may take up the sum.

    >>> total = TreeSum(3)
    >>> for i in (2, 0, 1):
    ...     total.add(i, (10.0 ** i, None))
    >>> total.value
    (111.0, None)
    """

    def __init__(self, n, keeps_terms=True):
        self.n = n
        self.pending = {}  # (level, place) -> partial sum
        self._keeps_terms = keeps_terms

    def add(self, i, term):
        """Add term `i`, a number from 0 to n - 1 that was not added before."""
        self._put(0, i, term)

    def absorb(self, pending):
        """Add what is `pending` in another sum of the same `n` terms, of which it has got others."""
        for (level, place), term in pending.items():
            self._put(level, place, term)

    def _put(self, level, place, term):
        """Merge `term` with its partner, that sum with its own, and so on, as long as they are there."""
        n_places = -(-self.n // 2 ** level)
        may_change = not self._keeps_terms  # a term may be somebody else's array, but a sum of two is ours
        while n_places > 1:
            partner = place ^ 1
            if partner < n_places:
                if (level, partner) not in self.pending:
                    break
                # a + b and b + a have the same bits
                term = _sum(term, self.pending.pop((level, partner)), in_place=may_change)
                may_change = True
            level, place, n_places = level + 1, place // 2, (n_places + 1) // 2
        self.pending[level, place] = term

    @property
    def value(self):
        """The total; `RuntimeError` while terms are missing."""
        top = ((self.n - 1).bit_length(), 0)
        if list(self.pending) != [top]:
            raise RuntimeError(f"the sum of {self.n} terms is not complete: add the others first")
        return self.pending[top]


def _sum(a, b, in_place):
    """a + b; in_place: whether the arrays of `a` may take it up."""
    if a is None:
        return None
    if type(a) in (list, tuple):
        return type(a)([_sum(*pair, in_place) for pair in zip(a, b, strict=True)])
    if in_place and isinstance(a, np.ndarray) and a.dtype == b.dtype:
        return np.add(a, b, out=a)
    return a + b


class SumForEach:
    """The `TreeSum` of each mini-batch in a line of several.

    n: the micro-batches of each; micro-batch i is part i mod n of mini-batch i // n.
    keeps_terms: as for `TreeSum`.

    >>> total = SumForEach(2)
    >>> total.add(2, 10)
    >>> total.add(3, 1)
    >>> total.of(3).value, total.has(4)
    (11, False)
    """

    def __init__(self, n, keeps_terms=True):
        self.n, self.sums, self._keeps_terms = n, {}, keeps_terms

    def of(self, i):
        """The `TreeSum` of the mini-batch that micro-batch i is part of."""
        if i // self.n not in self.sums:
            self.sums[i // self.n] = TreeSum(self.n, self._keeps_terms)
        return self.sums[i // self.n]

    def add(self, i, term):
        """Add the term of micro-batch i."""
        self.of(i).add(i % self.n, term)

    def has(self, i):
        """Whether a term of the mini-batch that micro-batch i is part of is there."""
        return bool(i // self.n in self.sums and self.sums[i // self.n].pending)

    def forget(self, i):
        """Drop the sum of the mini-batch that micro-batch i is part of."""
        self.sums.pop(i // self.n, None)

    @property
    def pending(self):
        """The partial sums of all mini-batches under way, as a list."""
        return [tree_sum.pending for tree_sum in self.sums.values()]

    @property
    def n_pending(self):
        """How many partial sums that is."""
        return sum(len(tree_sum.pending) for tree_sum in self.sums.values())
