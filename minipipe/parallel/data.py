"""Data parallelism: copies of a network share the samples of each mini-batch."""

import numpy as np

from ..arguments import argument
from ..checks import floats, real_number
from ..cluster import Link
from ..collectives import OWNERS
from ..description import parameters_of_layers
from ..layers.layer import checked_layers
from ..pipeline import Pipeline
from ..pipeline.talking_stage import stage_of
from ..schedules import Costs, data_parallel, with_all_reduce, with_updates, with_zero
from ..schedules.zero import checked_level
from .buckets import CAPS, in_buckets
from .synchronised import synchronised


class DataParallel(Pipeline):
    """A drop-in for `Sequential` that trains on simulated devices, each with a copy of the whole network.

    layers, loss, seed, dtype: as for `Sequential`.
    n_replicas: D, the copies.
    n_microbatches: M, the parts of each mini-batch, at least D; left out, D. Each copy gets a run of
        them, and adds up its gradients, which are exchanged once.
    all_reduce: how the copies put their gradients together: "owners", with the bits of one device that
        has the same micro-batches, whatever D is; or another of `minipipe.collectives.ALL_REDUCES`, with
        the same bits on all copies.
    buckets: None, to exchange all gradients at the end; a number of bytes, to exchange those of the last
        layers while the backward of those below goes on, as soon as there are so many of them; or "ddp", for
        the sizes that PyTorch's DistributedDataParallel begins with.
    zero: None; or 1, 2 or 3, and each copy updates only its own part of the parameters, 1/D of them, so that
        its optimizer remembers only that: ZeRO, see `minipipe.schedules.with_zero`. The copies get the same
        bits, and send as many numbers as without. With 2, and buckets, a copy also keeps only its part of
        the gradients, once those of a bucket are there. With 3, FSDP, it keeps only its part of the
        parameters, too, and gathers those of a bucket, of one layer if there are no buckets, for each forward
        and backward: more numbers travel. The updates are then in the order of the run, so `train` takes the
        mini-batches and the optimizer, which must take each number by itself, as most here do. It needs
        "owners".
    sync_batch_norm: whether the copies put the statistics of each `BatchNorm` together, forward and backward,
        in each of the micro-batches that they work on at once; with one for each copy, these are the full
        batch's. Then all copies need equally many micro-batches.
    costs: the ticks of the actions of a copy; F = 1 is the forward of the whole network.
    recompute, link, ports, memory_limit, engine, accumulate, grain: as for `Pipeline`.

    Each gradient carries the 1/m of the whole mini-batch, so the copies' *sum* is the full batch's gradient,
    for shards of any sizes. Batch norm has the statistics of each micro-batch, which do not depend on D,
    unless `sync_batch_norm` says otherwise.

    >>> from minipipe.layers import Linear
    >>> from minipipe.losses import MeanSquaredError
    >>> X, Y = np.array([[1.0, 2.0, 3.0, 5.0, 8.0]]), np.array([[1.0, 1.0, 2.0, 3.0, 5.0]])
    >>> net = DataParallel([Linear(1, 1)], MeanSquaredError(), n_replicas=2)
    >>> J = net.forward_backward(X, Y)
    >>> print(net.schedule)
    device 0: 0F0 0B0
    device 1: 0F1 0B1
    """

    def __init__(
        self, layers, loss, n_replicas, n_microbatches=None, all_reduce=OWNERS, buckets=None,
        recompute=False, seed=0, dtype=np.float64, costs=Costs(), link=Link(), ports=(), memory_limit=None,
        engine="cluster", accumulate="tree", grain=None, zero=None, sync_batch_norm=False,
    ):
        layers, n_replicas = checked_layers(layers), argument("n_replicas", n_replicas)
        M = n_replicas if n_microbatches is None else argument("n_microbatches", n_microbatches)
        level = None if zero is None else checked_level(zero)
        if buckets is None and level == 3:
            buckets = 1  # each layer by itself: no device ever has all of the network
        counts = [len(layers)] if buckets is None else _counts(layers, buckets, dtype)
        schedule = data_parallel(n_replicas, M, len(counts))
        sync_batch_norm = argument("sync_batch_norm", sync_batch_norm)
        if sync_batch_norm and (M % n_replicas or grain is not None):
            raise ValueError(
                f"sync_batch_norm=True with n_microbatches={M} over {n_replicas} replicas and grain={grain}: "
                f"the copies meet in each micro-batch, so use a multiple of {n_replicas}, and no grain"
            )
        if level is not None and n_replicas > 1:
            schedule = with_zero(schedule, level)
        elif buckets is not None and n_replicas > 1:
            schedule = with_all_reduce(schedule)
        if level is not None and "U" not in schedule.kinds:
            schedule = with_updates(schedule)
        super().__init__(
            layers, loss, len(counts), M, schedule, recompute, seed, dtype, counts, costs=costs,
            link=link, memory_limit=memory_limit, engine=engine, accumulate=accumulate,
            all_reduce=all_reduce, ports=ports, grain=grain,
        )
        if sync_batch_norm:
            self.stages = self._own_stages = tuple(
                stage_of(stage.index, list(map(synchronised, stage.layers)), stage.loss)
                for stage in self._own_stages
            )


def _counts(layers, buckets, dtype):
    """How many layers there are in each stage, if each stage is a bucket."""
    itemsize = floats(dtype).itemsize
    sizes = [itemsize * n for n in parameters_of_layers(layers)]
    is_ddp = isinstance(buckets, str) and buckets == "ddp"
    caps = CAPS if is_ddp else [real_number("buckets", buckets, above=0)] * 2
    return [len(places) for places in reversed(in_buckets(sizes, caps))]
