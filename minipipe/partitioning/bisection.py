"""The best cut of costs alone, in O(K log L) for each of a few dozen steps."""

from bisect import bisect_left, bisect_right


def bisected(ends, n_stages):
    """The counts of a cut with the least bottleneck.

    ends: the sums 0, c_0, c_0 + c_1, ... of integers of at least 0.

    Filling one stage after the other up to a limit tells whether a limit can be kept. If it cannot,
    the smallest load that went past it is the next limit worth trying: below that, the same stages would be
    filled with the same layers.
    """
    total = ends[-1]
    low, high = max(-(-total // n_stages), *(end - start for start, end in zip(ends, ends[1:]))), total
    while low < high:  # the least bottleneck is between them, and some cut has `high`
        fits, bottleneck = _filled(ends, n_stages, (low + high) // 2)
        if fits:
            high = bottleneck
        else:
            low = bottleneck
    return _evened(ends, n_stages, high)


def stages_needed(ends, limit):
    """How few stages can keep `limit`, which is at least the largest cost."""
    n_stages, start = 0, 0
    while start < len(ends) - 1:
        n_stages, start = n_stages + 1, _reach(ends, start, limit)
    return n_stages


def _reach(ends, start, limit):
    """Where a stage that begins at `start` ends at the latest."""
    return bisect_right(ends, ends[start] + limit) - 1


def _filled(ends, n_stages, limit):
    """(True, the largest load) if `limit` can be kept, else (False, the next limit worth trying)."""
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
    """Of the cuts that keep `limit`: stage by stage, the nearest to an equal share of what is left."""
    n_layers = len(ends) - 1
    earliest = [n_layers]  # where the last 0, 1, 2, ... stages can begin at the earliest
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
