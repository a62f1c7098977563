"""Cut a list of costs into stages, in exact arithmetic."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np

from ..arrays import even_slices
from ..checks import listed, real_number, shown, whole_number, whole_numbers


# Costs of any kind as proportional integers, with which all sums and comparisons are exact.

def checked(name: str, numbers: Any, length: int | None = None) -> list:
    """Return `numbers` as a list of Python numbers that can be costs.

    Args:
        name: their name in errors.
        numbers: finite numbers of at least 0.
        length: how many there must be, one for each layer; None for any length.

    Raises:
        ValueError: if they cannot be costs.
    """
    numbers = listed(name, numbers, least=0)
    if length is not None and len(numbers) != length:
        raise ValueError(
            f"{name} has {len(numbers)} numbers for {length} layers: give one for each, {length} in all"
        )
    return [real_number(f"{name}[{index}]", number, 0) for index, number in enumerate(numbers)]


def in_proportion(numbers: Sequence) -> list[int]:
    """Return the numbers times the smallest factor that makes all of them integers.

    >>> in_proportion([0.5, 2, 0.25])
    [2, 8, 1]
    """
    ratios = [number.as_integer_ratio() for number in numbers]
    scale = math.lcm(*(denominator for _, denominator in ratios))
    return [numerator * (scale // denominator) for numerator, denominator in ratios]


def sums(numbers: Iterable) -> list:
    """Return [0, n_0, n_0 + n_1, ...] for `numbers`: where layers begin and end."""
    return list(accumulate(numbers, initial=0))


# The cut with the least bottleneck, in O(K log L) for each of a few dozen steps.

def bisected(ends: Sequence[int], stages: int) -> list[int]:
    """Return the number of layers in each stage of the cut with the least bottleneck.

    Args:
        ends: the sums 0, c_0, c_0 + c_1, ... of integers of at least 0.
        stages: K.

    To test a limit, fill one stage after the other up to it. If the layers do not fit,
    the next limit to try is the smallest load that would have exceeded it: below this,
    each stage would get the same layers.
    """
    total = ends[-1]
    low, high = max(-(-total // stages), *(end - start for start, end in zip(ends, ends[1:]))), total
    while low < high:  # the least bottleneck is between them, and some cut has `high`
        fits, bottleneck = _filled(ends, stages, (low + high) // 2)
        if fits:
            high = bottleneck
        else:
            low = bottleneck
    return _evened(ends, stages, high)


def _reach(ends, start, limit):
    """Return the last end of a stage from `start` with a load of at most `limit`."""
    return bisect_right(ends, ends[start] + limit) - 1


def _filled(ends, n_stages, limit):
    """Return (True, largest load) if all layers fit, else (False, next limit)."""
    start, largest, next_limit = 0, 0, ends[-1]
    for _ in range(n_stages):
        end = _reach(ends, start, limit)
        largest = max(largest, ends[end] - ends[start])
        if end == len(ends) - 1:
            return True, largest
        next_limit = min(next_limit, ends[end + 1] - ends[start])
        start = end
    return False, next_limit


def _evened(ends, n_stages, limit):
    """Return the cut within `limit` of `min_max`: each stage near an equal share."""
    n_layers = len(ends) - 1
    earliest = [n_layers]  # the first layer at which the last 0, 1, 2, ... stages can begin
    for _ in range(n_stages - 1):
        earliest.append(bisect_left(ends, ends[earliest[-1]] - limit))
    counts, start = [], 0
    for n_left in range(n_stages, 0, -1):
        first = max(start + 1, earliest[n_left - 1])
        last = min(_reach(ends, start, limit), n_layers - n_left + 1)
        share = (n_left - 1) * ends[start] + ends[-1]  # n_left times where this stage should end
        above = bisect_right(ends, share // n_left, first, last + 1)
        end = min(
            (end for end in (above, above - 1) if first <= end <= last),
            key=lambda end: abs(n_left * ends[end] - share),
        )
        counts.append(end - start)
        start = end
    return counts


# The cuts themselves.

LARGEST_SQUARE = 2**62  # the sum of two of these, less 1, is the largest integer of 64 bits


def loads(costs: Sequence, counts: Sequence[int]) -> list:
    """Return the sum of the `costs` of the `counts[s]` layers of each stage s.

    >>> loads([10, 10, 10, 10, 11, 11], [3, 3])
    [30, 32]
    """
    costs, counts = checked("costs", costs), whole_numbers("counts", counts, 0)
    if sum(counts) != len(costs):
        raise ValueError(
            f"counts={shown(counts)} adds up to {sum(counts)} layers, but costs has {len(costs)}: "
            "give each layer a stage"
        )
    return [sum(costs[start:start + count]) for start, count in zip(sums(counts), counts)]


def equal_counts(n_layers: int, stages: int) -> list[int]:
    """Return the layers of each of `stages` equal parts of `n_layers`.

    The first may have one more.

    >>> equal_counts(7, 4)
    [2, 2, 2, 1]
    """
    n_layers = whole_number("n_layers", n_layers, 1)
    stages = whole_number("stages", stages)
    if not 1 <= stages <= n_layers:
        raise ValueError(
            f"stages={stages} does not fit {n_layers} layers: "
            f"use 1 to {n_layers} stages, so that each has a layer"
        )
    return [part.stop - part.start for part in even_slices(n_layers, stages)]


def histogram(costs: Sequence, stages: int) -> list[int]:
    """Return the cut of `costs` into `stages` by GPipe's released code.

        layer i goes to stage min(int(K (c_0 + ... + c_i) / total), K - 1)

    A layer that costs more than the share of a stage can leave a stage without layers:
    its count is 0, and a pipeline refuses such a list. Source: the public code to Huang
    et al. 2018, arXiv 1811.06965.

    >>> histogram([1, 1, 1, 1], 2), histogram([1, 8, 1], 3)
    ([1, 3], [1, 0, 2])
    """
    ends, counts = sums(_as_integers(costs, stages))[1:], [0] * stages
    if ends[-1] == 0:
        raise ValueError(
            f"all {len(ends)} costs are 0 and have no share of their sum: "
            "give one above 0, or use equal_counts"
        )
    for end in ends:
        counts[min(stages * end // ends[-1], stages - 1)] += 1
    return counts


def min_max(costs: Sequence, stages: int) -> list[int]:
    """Return the cut whose slowest stage, that with the most costs, is fastest.

    Args:
        costs: one for each of L layers: integers, Fractions or floats of at least 0,
            all taken exactly as they are.
        stages: K, at most L.

    Each stage gets at least one layer. Of several best cuts, it is the one in which
    each stage, from the first on, is nearest to an equal share of the rest. 10,000
    layers are cut into 1,024 stages in a fraction of a second.

    Raises:
        ValueError: there are more stages than layers.

    >>> min_max([10, 10, 10, 10, 11, 11], 2)
    [3, 3]
    """
    return bisected(sums(_as_integers(costs, stages)), stages)


def min_variance(costs: Sequence, stages: int) -> list[int]:
    """Return the cut whose stages vary least, as the paper on GPipe asks:

        minimise  sum of (load_s - total / K)^2,  which is the same as  sum of load_s^2

    Args:
        costs: one for each of L layers, as in `min_max`.
        stages: K, at most L.

    All stages wait for the slowest, which may be slower here than in the cut of
    `min_max`, never faster. Raises `ValueError` for more stages than layers. Dynamic
    programming in O(K L^2). Source: Huang et al. 2018, arXiv 1811.06965, section 2.2.

    >>> costs = [1, 5, 2, 3]                        # 6^2 + 2^2 + 3^2 = 49 is less than 1^2 + 5^2 + 5^2 = 51
    >>> loads(costs, min_variance(costs, 3)), loads(costs, min_max(costs, 3))
    ([6, 2, 3], [1, 5, 5])
    """
    costs = _as_integers(costs, stages)
    n_layers, never = len(costs), 1 + sum(costs) ** 2
    dtype = np.int64 if never < LARGEST_SQUARE else object
    ends = np.array(sums(costs), dtype)
    # best_s(end) = min over start of  best_{s-1}(start) + (load of the layers from start to end)^2
    best, begins = np.array([0] + [never] * n_layers, dtype), []
    for stage in range(stages):
        before, best, begin = best, np.full_like(best, never), [0] * (n_layers + 1)
        for end in range(stage + 1, n_layers - (stages - 1 - stage) + 1):
            values = before[stage:end] + (ends[end] - ends[stage:end]) ** 2
            first = int(values.argmin())
            best[end], begin[end] = values[first], stage + first
        begins.append(begin)
    counts, end = [], n_layers
    for begin in reversed(begins):
        counts.append(end - begin[end])
        end = begin[end]
    return counts[::-1]


def _as_integers(costs, stages):
    costs = checked("costs", costs)
    equal_counts(len(costs), stages)  # refuses more stages than layers
    return in_proportion(costs)
