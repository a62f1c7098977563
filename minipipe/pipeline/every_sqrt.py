"""Recomputation that keeps an input for every sqrt(L) layers of a stage."""

from math import isqrt

from ..partitioning.solvers import equal_counts
from ..schedules import costs_in_segments, in_segments, with_recompute

EVERY_SQRT = "sqrt"  # the mode that needs to know the layers, beside those of `schedules.RECOMPUTE`


def every_sqrt(schedule, counts, costs):
    """(schedule, counts, costs) with each stage of L layers cut into about sqrt(L) segments, all recomputed.

    Such a stage keeps sqrt(L) inputs of each micro-batch, and the caches of sqrt(L) layers at a time. Source:
    Chen et al. 2016, arXiv 1604.06174, section 4.

    schedule: a `Schedule` that recomputes nothing yet.
    counts: the number of layers of each stage.
    costs: the `Costs` of its stages, which the segments share.

    >>> from minipipe.schedules import Costs, gpipe
    >>> schedule, counts, costs = every_sqrt(gpipe(2, 1), [9, 4], Costs(F=6, B=12))
    >>> counts, costs.F
    ([3, 3, 3, 2, 2], [2, 2, 2, 3, 3])
    """
    n = [_nearest_root(count) for count in counts]
    finer = [part for count, length in zip(counts, n) for part in equal_counts(count, length)]
    return with_recompute(in_segments(schedule, n)), finer, costs_in_segments(costs, schedule, n)


def _nearest_root(n):
    """The whole number nearest to sqrt(n).

    >>> [_nearest_root(n) for n in (1, 2, 3, 6, 7, 12, 13)]
    [1, 1, 2, 2, 3, 3, 4]
    """
    root = isqrt(n)
    return root + (n > root * (root + 1))
