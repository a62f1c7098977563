"""Which gradients travel together."""

from ..checks import listed, real_number

MIB = 2 ** 20
CAPS = (MIB, 25 * MIB)  # of the first bucket, and of the others: DDP's


def in_buckets(sizes, caps=CAPS):
    """Places of `sizes`, in lists: the buckets, in the order in which gradients are ready.

    sizes: the bytes of each gradient, in the order of the forward; the backward comes from the end.
    caps: bytes. A gradient is put into the bucket, and the bucket is closed if it has reached its cap, which
        it may exceed; a pair for the first bucket and for the others. The first is small, so that the
        exchange begins early.

    The rule is that of PyTorch's DistributedDataParallel. Source: Li et al. 2020, arXiv 2006.15704.

    >>> in_buckets([1605632, 2048, 1048576, 2048, 20480, 40])
    [[5, 4, 3, 2], [1, 0]]
    """
    sizes, caps = listed("sizes", sizes, least=0), listed("caps", caps)
    sizes = [real_number(f"sizes[{k}]", size, least=0) for k, size in enumerate(sizes)]
    if len(caps) != 2:
        raise ValueError(f"caps has {len(caps)} numbers: pass a pair, for the first bucket and the others")
    caps = [real_number(f"caps[{k}]", cap, least=0, infinite=True) for k, cap in enumerate(caps)]
    buckets, size = [[]], 0
    for place in reversed(range(len(sizes))):
        if sizes[place] and size >= caps[min(len(buckets) - 1, 1)]:
            buckets.append([])
            size = 0
        buckets[-1].append(place)
        size += sizes[place]
    return buckets
