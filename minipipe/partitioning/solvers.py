"""Cut a list of costs into stages, in exact arithmetic."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import Any

import numpy as np

from ..arrays import even_slices
from ..checks import listed, real_number, shown, whole_number, whole_numbers


# Costs of any kind as proportional integers, with which all sums and comparisons are exact.

def checked(name: str, numbers: Any, length: int | None = None, of: str = "layers") -> list:
    """Return `numbers` as a list of Python numbers; raise `ValueError` if they cannot be costs.

    Args:
        name: their name in errors.
        numbers: finite numbers of at least 0.
        length: how many there must be; None for any length.
        of: what they belong to, in errors.
    """
    numbers = listed(name, numbers, least=0)
    if length is not None and len(numbers) != length:
        raise ValueError(
            f"{name} has {len(numbers)} numbers for {length} {of}: give one for each, {length} in all"
        )
    return [real_number(f"{name}[{index}]", number, 0) for index, number in enumerate(numbers)]


def in_proportion(*lists: Sequence) -> tuple[list[list[int]], int]:
    """Return (lists of integers, scale): all numbers times the smallest `scale` that makes them integers.

    >>> in_proportion([0.5, 2], [Fraction(1, 3)])
    ([[3, 12], [2]], 6)
    """
    ratios = [[number.as_integer_ratio() for number in numbers] for numbers in lists]
    scale = math.lcm(*(denominator for numbers in ratios for _, denominator in numbers))
    return [
        [numerator * (scale // denominator) for numerator, denominator in numbers] for numbers in ratios
    ], scale


def sums(numbers: Iterable) -> list:
    """Return [0, n_0, n_0 + n_1, ...] for `numbers`: where each layer begins, and the end of the last."""
    return list(accumulate(numbers, initial=0))


def readable(integer: int, scale: int) -> float:
    """Return `integer / scale` for a message: an int, or the float next to it that is not below it.

    >>> readable(6, 3), readable(1, 3) >= Fraction(1, 3)
    (2, True)
    """
    if integer % scale == 0:
        return integer // scale
    number = integer / scale
    return number if Fraction(number) >= Fraction(integer, scale) else math.nextafter(number, math.inf)


# The best cut of costs alone, in O(K log L) for each of a few dozen steps.

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


def stages_needed(ends: Sequence[int], limit: int) -> int:
    """Return the smallest number of stages within `limit`, a load. ends: as for `bisected`."""
    n_stages, start = 0, 0
    while start < len(ends) - 1:
        n_stages, start = n_stages + 1, _reach(ends, start, limit)
    return n_stages


def _reach(ends, start, limit):
    """Return the last possible end of a stage that begins at `start` and whose load is at most `limit`."""
    return bisect_right(ends, ends[start] + limit) - 1


def _filled(ends, n_stages, limit):
    """Return (True, largest load) if the layers fit within `limit`, else (False, the next limit to try)."""
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
    """Return the cut within `limit` whose stages, in turn, are nearest to an equal share of the rest."""
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


# The best cut for any price of a stage, by dynamic programming in O(K L^2).

LARGEST_COST = 2**62  # the sum of two of these, less 1, is the largest integer of 64 bits


def integers(numbers: Sequence[int], never: int) -> np.ndarray:
    """Return an array of the integers `numbers` in which sums up to 2 * `never` do not overflow."""
    return np.array(numbers, np.int64 if never < LARGEST_COST else object)


def best_cut(
    n_layers: int, stages: int, price: Callable, combine: Callable, never: int
) -> tuple[int, list[int]]:
    """Return (value, counts) of the cut of least value, which is best_{K-1}(L):

        best_s(end) = min over start of  combine(best_{s-1}(start), price(s, start, end))

    Args:
        n_layers, stages: L and K.
        price: a function (stage, starts, end) that returns an array with a price for
            each start in the slice `starts`.
        combine: np.maximum or np.add.
        never: a number above the value of every allowed cut; the price of a stage that
            is not allowed.

    Of several best starts, the first counts.
    """
    best = integers([0] + [never] * n_layers, never)
    begins = []
    for stage in range(stages):
        before, best, begin = best, np.full_like(best, never), [0] * (n_layers + 1)
        for end in range(stage + 1, n_layers - (stages - 1 - stage) + 1):
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


# Stages that fit into the memory of their device.

def within_memory(
    price: Callable, never: int, memory: Sequence | None, memory_limit: float | Sequence | None,
    n_layers: int, stages: int,
) -> Callable:
    """Return `price` with `never` for stages that do not fit; raise `ValueError` if no cut fits.

    Args:
        price, never: as in `best_cut`.
        memory: the memory of each layer.
        memory_limit: the memory of a device, in the same unit; one number, or one per
            device.
        n_layers, stages: L and K.
    """
    if memory is None or memory_limit is None:
        given, other = ("memory_limit", "memory") if memory is None else ("memory", "memory_limit")
        raise ValueError(
            f"{given} is given without {other}: "
            "give both, in one unit: what each layer holds, and the limit"
        )
    memory = checked("memory", memory, n_layers)
    given_limits: Any = memory_limit if hasattr(memory_limit, "__len__") else [memory_limit] * stages
    limits = checked("memory_limit", list(given_limits), stages, of="devices")
    (memory, limits), scale = in_proportion(memory, limits)
    above_all = 1 + sum(memory) + max(limits)
    ends = integers(sums(memory), above_all)

    def excess(stage, starts, end):
        return ends[end] - ends[starts] - limits[stage]

    def restricted(stage, starts, end):
        return np.where(excess(stage, starts, end) > 0, never, price(stage, starts, end))

    missing, _ = best_cut(n_layers, stages, excess, np.maximum, above_all)
    if missing:
        raise ValueError(_what_is_missing(memory, limits, missing, lambda n: readable(n, scale)))
    return restricted


def _what_is_missing(memory, limits, missing, shown):
    """Return the message that no cut fits, with the remedy.

    Args:
        memory, limits: the memory of the layers and of the devices, as integers.
        missing: by how much each limit is too small.
        shown: a function that converts such an integer to the user's unit.
    """
    largest = max(range(len(memory)), key=memory.__getitem__)
    if len(set(limits)) > 1:
        words = f"limits that differ, {shown(sum(limits))} in all"
        remedy = f"give each device {shown(missing)} more"
    else:
        words = f"a limit of {shown(limits[0])} each"
        remedy = f"use a limit of {shown(limits[0] + missing)}"
        if memory[largest] <= limits[0]:
            remedy += f", or {stages_needed(sums(memory), limits[0])} devices"
    return (
        f"no cut of the {len(memory)} layers fits {len(limits)} devices with {words}: "
        f"the layers hold {shown(sum(memory))} together, "
        f"and layer {largest} alone {shown(memory[largest])}: {remedy}"
    )


# The cuts themselves.

def loads(costs: Sequence, counts: Sequence[int]) -> list:
    """Return the sum of the costs in each stage, of a cut with `counts[s]` consecutive layers in stage s.

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
    """Return the layers of each of the `stages` of an equal cut of `n_layers`; the first may have one more.

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
    """Return the cut of `costs` into `stages` by GPipe's released code: the number of layers of each.

        layer i goes to stage min(int(K (c_0 + ... + c_i) / total), K - 1)

    A layer that costs more than the share of a stage can leave a stage without layers: its count is 0,
    and a pipeline refuses such a list. Source: the public code to Huang et al.
    2018, arXiv 1811.06965.

    >>> histogram([1, 1, 1, 1], 2), histogram([1, 8, 1], 3)     # a layer that ends at a border is behind it
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


def min_max(
    costs: Sequence, stages: int, speeds: Sequence | None = None, cut_costs: Sequence | None = None,
    memory: Sequence | None = None, memory_limit: float | Sequence | None = None,
) -> list[int]:
    """Return the cut whose slowest stage is as fast as in any cut:

        minimise the largest, over the stages s, of  (sum of its costs) / speeds[s] + cut_costs at its ends

    Args:
        costs: one for each of L layers: integers, Fractions or floats of at least 0,
            all taken exactly as they are.
        stages: K, at most L.
        speeds: the speeds of the K devices, in order; 1 if None.
        cut_costs: for each of the L - 1 borders between layers, the cost of a cut there
            for each of its two stages: one sends activations, the other gradients.
        memory: the memory of each layer.
        memory_limit: the memory of a device, in the same unit; one number, or one per
            device.

    Each stage gets at least one layer. Of several best cuts, the result is always the
    same; with costs alone, the cut whose stages, one after another, are nearest to an
    equal share of the rest. Costs alone are cut by bisection: 10,000 layers in 1,024
    stages in a fraction of a second. With other arguments, it is dynamic programming in
    O(K L^2): some seconds for 1,000 layers in 64 stages.

    Raises:
        ValueError: if the lengths of the arguments do not fit, or no cut fits into the
            memory; the message has the smallest sufficient limit.

    >>> min_max([10, 10, 10, 10, 11, 11], 2)
    [3, 3]
    >>> min_max([1, 1, 1, 1, 1, 1], 2, speeds=[1, 2]), min_max([1, 1, 1, 1], 2, cut_costs=[0, 9, 9])
    ([2, 4], [1, 3])
    >>> min_max([1, 1, 1, 9], 2, memory=[5, 5, 1, 1], memory_limit=7)
    [1, 3]
    """
    if all(given is None for given in (speeds, cut_costs, memory, memory_limit)):
        return bisected(sums(_as_integers(costs, stages)), stages)
    costs = _checked_costs(costs, stages)
    n_layers = len(costs)
    cut_costs = [0] * (n_layers - 1) if cut_costs is None else cut_costs
    cut_costs = checked("cut_costs", cut_costs, n_layers - 1, of="places between layers")
    (costs, cuts), _ = in_proportion(costs, cut_costs)
    slowness, scale = _slowness(speeds, stages)
    cuts = [0, *(scale * cut for cut in cuts), 0]
    never = 1 + max(slowness) * sum(costs) + 2 * max(cuts)
    ends, at_cuts = integers(sums(costs), never), integers(cuts, never)

    def load(stage, starts, end):
        return slowness[stage] * (ends[end] - ends[starts]) + at_cuts[starts] + at_cuts[end]

    price = load
    if memory is not None or memory_limit is not None:
        price = within_memory(load, never, memory, memory_limit, n_layers, stages)
    return best_cut(n_layers, stages, price, np.maximum, never)[1]


def min_variance(costs: Sequence, stages: int) -> list[int]:
    """Return the cut whose stages vary least, as the paper on GPipe asks:

        minimise  sum over the stages s of  (load_s - total / K)^2,  which is the same as  sum of load_s^2

    Args:
        costs: one for each of L layers, as in `min_max`.
        stages: K, at most L.

    All stages wait for the slowest, which may be slower here than in the cut of
    `min_max`, never faster. Raises as `min_max`. Dynamic programming in O(K L^2).
    Source: Huang et al. 2018, arXiv 1811.06965, section 2.2.

    >>> costs = [1, 5, 2, 3]                        # 6^2 + 2^2 + 3^2 = 49 is less than 1^2 + 5^2 + 5^2 = 51
    >>> loads(costs, min_variance(costs, 3)), loads(costs, min_max(costs, 3))
    ([6, 2, 3], [1, 5, 5])
    """
    costs = _as_integers(costs, stages)
    never = 1 + sum(costs) ** 2
    ends = integers(sums(costs), never)

    def square(stage, starts, end):
        return (ends[end] - ends[starts]) ** 2

    return best_cut(len(costs), stages, square, np.add, never)[1]


def _checked_costs(costs, stages):
    costs = checked("costs", costs)
    equal_counts(len(costs), stages)  # refuses more stages than layers
    return costs


def _as_integers(costs, stages):
    (costs,), _ = in_proportion(_checked_costs(costs, stages))
    return costs


def _slowness(speeds, n_stages):
    """Return (integers proportional to 1 / speed, the factor)."""
    speeds = [1] * n_stages if speeds is None else checked("speeds", speeds, n_stages, of="devices")
    if 0 in speeds:
        raise ValueError(
            f"speeds[{speeds.index(0)}]=0 is the speed of a device that never ends: "
            "use one above 0, or fewer devices"
        )
    (slowness,), scale = in_proportion([1 / Fraction(*speed.as_integer_ratio()) for speed in speeds])
    return slowness, scale
