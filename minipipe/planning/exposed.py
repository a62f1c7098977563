"""When copies on one device each have ended at the earliest, if they exchange bucket by bucket."""


def least_with_buckets(M, F, B, scatter, gather, zero=0):
    """A time below which the makespan cannot be.

    M: the micro-batches of a copy.
    F, B: the time of a forward and of a backward of each bucket, what is recomputed included.
    scatter, gather: for each bucket, a time below which to add its gradients up at their owners, and to hand
        its parameters round, cannot be. A device does one of these at a time, while it computes.
    zero: 0; or 1, 2 or 3, as for `with_zero`, with a prefetch of 1.

    The gradients of a bucket are there when the last backward has passed it; the last bucket comes first.
    Without ZeRO, an exchange scatters and gathers at once. With 1, all exchanges follow the last backward;
    with 2, they scatter before it, and gather behind it. With 3, each forward and backward waits for its
    parameters, which travel while the piece of work before it is done, unless that needs the same bucket.

    >>> for zero in (0, 1, 2, 3):
    ...     print(zero, least_with_buckets(1, [4, 4], [8, 8], [3, 3], [3, 3], zero))
    0 30
    1 36
    2 33
    3 33
    """
    backwards = range(len(F))[::-1]
    if zero == 3:
        return _with_gathers(M, F, B, scatter, gather)
    now = M * (sum(F) + sum(B)) - sum(B)
    sent = 0
    for bucket in backwards:
        now += B[bucket]
        if zero != 1:
            sent = max(sent, now) + scatter[bucket] + (0 if zero else gather[bucket])
    if not zero:
        return sent
    return max(sent, now) + (sum(scatter) if zero == 1 else 0) + sum(gather)


def _with_gathers(M, F, B, scatter, gather):
    """That of ZeRO-3."""
    forth = list(enumerate(F))
    pieces = (forth + list(enumerate(B))[::-1]) * M
    begin = end = sent = 0  # of the piece before, and when all is there that has travelled so far
    before = None
    for number, (bucket, ticks) in enumerate(pieces):
        there = sent = max(sent, end if bucket == before else begin) + gather[bucket]
        if number > len(pieces) - len(B):  # behind the last backward of the bucket before
            sent = max(sent, end) + scatter[before]
        begin = max(end, there)
        end, before = begin + ticks, bucket
    return max(sent, end) + scatter[before]
