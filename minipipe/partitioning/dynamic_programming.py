"""The best cut for any price of a stage, in O(K L^2)."""

import numpy as np

LARGEST = 2**62  # the sum of two of these, less 1, is the largest integer of 64 bits


def integers(numbers, never):
    """An array of integers that sums up to twice `never` do not overflow."""
    return np.array(numbers, np.int64 if never < LARGEST else object)


def best_cut(n_layers, n_stages, price, combine, never):
    """(value, counts) of the cut of least value, which is best_{K-1}(L):

        best_s(end) = min over start of  combine(best_{s-1}(start), price(s, start, end))

    n_layers, n_stages: L and K.
    price: price(stage, starts, end) is an array with a price for each start of a slice.
    combine: np.maximum or np.add.
    never: more than the value of any cut that is allowed, and the price of a stage that is not.

    Of equal ones, the first start is taken.
    """
    best = integers([0] + [never] * n_layers, never)
    begins = []
    for stage in range(n_stages):
        before, best, begin = best, np.full_like(best, never), [0] * (n_layers + 1)
        for end in range(stage + 1, n_layers - (n_stages - 1 - stage) + 1):
            starts = slice(stage, end)
            values = combine(before[starts], price(stage, starts, end))
            first = int(values.argmin())
            best[end], begin[end] = min(values[first], never), stage + first
        begins.append(begin)
    counts, end = [], n_layers
    for begin in reversed(begins):
        counts.append(end - begin[end])
        end = begin[end]
    return int(best[-1]), counts[::-1]
