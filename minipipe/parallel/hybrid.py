"""Data, tensor and pipeline parallelism in one: D copies of K stages, each on a group of T devices."""

from itertools import accumulate, chain, pairwise, permutations, product

import numpy as np

from ..arguments import argument
from ..checks import one_of
from ..cluster import Link
from ..collectives import OWNERS
from ..layers.parameters import parameters_with
from ..layers.through import forward_through
from ..pipeline import Pipeline
from ..pipeline.talking_stage import stage_of
from ..pipeline.closing import Tied
from ..pipeline.copies import Copies
from ..schedules import (
    SCHEDULES, Costs, Schedule, build_for_stages, data_parallel, in_copies, is_name,
)
from .exchanges import check_positions
from .joining import joined_gradients, joined_optimizer, optimizer_of_shard, take_parameters
from .splitting import Shard

AXES = ("tp", "dp", "pp")


class Hybrid(Pipeline):
    """A drop-in for `Sequential` that trains on D T K simulated devices, in three dimensions at once.

    layers, loss, seed, dtype: as for `Sequential`.
    n_replicas: D, the copies of the network, which share the samples.
    n_shards: T, the devices that share the work inside each layer, see `Shard`.
    n_stages: K, the parts that the layers are cut into.
    n_microbatches: M, the parts of each mini-batch; left out, D. With several stages, D divides it.
    schedule: for one copy of the network, a name or a `Schedule` of K stages and M / D micro-batches; or a
        `Schedule` of all D copies and M micro-batches.
    sequence: whether what stands between the parts of a Transformer's blocks is split by positions, too.
    rows: whether convolutions are split by the rows of the image, see `Shard`. Both `sequence` and `rows` are
        refused with ZeRO, an order with `S`.
    order: which devices are neighbours, the fastest axis first: "tp-dp-pp" has the number
        t + T (d + D k), "tp-pp-dp" t + T (k + K d).
    all other arguments: as for `Pipeline`.

    Each gradient carries the 1/m of the whole mini-batch, so the copies' sum is the full batch's; the shards
    of a layer have different rows or columns of its gradient. `layers` and `gradients` are the whole
    network's. `groups` lists the devices of each group of each axis.

    Sources: Shoeybi et al. 2019, arXiv 1909.08053; Narayanan et al. 2021, arXiv 2104.04473.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [Linear(2, 4), ReLU(), Linear(4, 3), Linear(3, 1)]
    >>> net = Hybrid(layers, MeanSquaredError(), n_replicas=2, n_shards=2, n_stages=2, n_microbatches=4)
    >>> X, Y = np.arange(10.0).reshape(2, 5), np.ones((1, 5))
    >>> J = net.forward_backward(X, Y)
    >>> net.trace.n_devices, net.groups["pp"]
    (8, [[0, 4], [1, 5], [2, 6], [3, 7]])
    """

    def __init__(
        self, layers, loss, n_replicas=1, n_shards=1, n_stages=1, n_microbatches=None, schedule="1f1b",
        order="tp-dp-pp", all_reduce=OWNERS, optimizer=None, recompute=False, seed=0, dtype=np.float64,
        partition=None, sample=None, costs=Costs(), link=Link(), ports=(), memory_limit=None,
        engine="cluster", accumulate="tree", grain=None, sequence=False,
        rows=False,
    ):
        D = self._D = argument("n_replicas", n_replicas)
        self._T = argument("n_shards", n_shards)
        K = argument("n_stages", n_stages)
        M = D if n_microbatches is None else argument("n_microbatches", n_microbatches)
        self._remembered = {}  # what an optimizer keeps for the whole network's parameters
        self._split = {"sequence": argument("sequence", sequence), "rows": argument("rows", rows)}
        self._order = one_of("order", order, ["-".join(axes) for axes in permutations(AXES)])
        super().__init__(
            layers, loss, K, M, _schedule(schedule, D, K, M), recompute, seed, dtype, partition, sample,
            costs, link, memory_limit, optimizer, engine, accumulate, all_reduce, ports, grain,
        )
        first = self._shard(0)
        first.check()
        self._words, self._parted = first.words, first.parted
        if self._stream is not None and grain is not None and any(self._split.values()):
            raise ValueError(
                f"grain={grain} with sequence={sequence}, rows={rows} and {self.schedule.name!r}, which has "
                "no flush: sums over shards are counted in micro-batches there, so leave grain out"
            )
        split = [option for option, is_on in self._split.items() if is_on]
        if self._T > 1 and split and "S" in self.schedule.kinds:
            raise ValueError(
                f"{split[0]}=True with n_shards={self._T} and the S (ZeRO) of {self.schedule.name!r}: "
                "each shard has a summand of the gradients, and a reduce-scatter sums over replicas alone: "
                f"use {split[0]}=False, or an order without S"
            )
        if self._T > 1 and optimizer is not None and optimizer.needs_whole_parameters:
            raise ValueError(
                f"{type(optimizer).__name__} looks at whole parameters, of which each of {self._T} shards "
                "has a part: leave optimizer out, and use step(optimizer)"
            )

    def checked_batch(self, X, Y):
        """Return X and Y as a `Network` does; refuse positions, or rows, that the shards do not divide."""
        X, Y = super().checked_batch(X, Y)

        parted = [self.layers[index] for index in self._parted]

        def check(layer, shape):
            if layer in parted:
                check_positions(shape[1], self._T)
            return layer.output_shape(shape)

        if parted:
            forward_through(self.layers, X.shape, {}, call=check)
        return X, Y

    @property
    def split(self):
        """For each layer, how it is split over the shards."""
        return list(self._words)

    @property
    def groups(self):
        """{axis: its groups}: the devices of a group differ in this axis alone, and stand in its order."""
        sizes, found = self._sizes(self.schedule), {}
        for axis in AXES:
            others = [[(name, i) for i in range(sizes[name])] for name in AXES if name != axis]
            found[axis] = sorted(
                [self._rank(sizes, **dict(place), **{axis: i}) for i in range(sizes[axis])]
                for place in product(*others)
            )
        return found

    def keep_optimizer_state(self, optimizer):
        """What `optimizer` keeps counts on the devices that have the parameters, or their parts."""
        if self._T == 1:
            super().keep_optimizer_state(optimizer)
        else:
            self._remembered = dict(getattr(optimizer, "memory", {}))

    def optimizers(self, optimizer):
        if self._optimizers is None or self._T == 1:
            return super().optimizers(optimizer)
        if "S" in self.schedule.kinds:
            raise ValueError(
                "the optimizers of shards, of which copies have parts, are in parts of parts: "
                "use step(optimizer) for a training that is saved"
            )
        return [
            (joined_optimizer(layers, self._parts, stages, [own[k] for own in self._optimizers]), indices)
            for k, (indices, layers, *stages) in enumerate(self._in_stages())
        ]

    def resumed(self, optimizer, parts):
        """As for a `Network`; each shard's stage gets what belongs to it."""
        if self._optimizers is None or self._T == 1:
            super().resumed(optimizer, parts)
            return
        self._given.learning_rate = parts[0][0].learning_rate
        self._of_devices = {}
        for k, (_, layers, *stages) in enumerate(self._in_stages()):
            for own, shard, stage in zip(self._optimizers, self._parts, stages, strict=True):
                own[k] = optimizer_of_shard(layers, shard, stage, parts[k][0])

    def _in_stages(self):
        """For each stage (the indices of its layers, these layers, the stage of each shard)."""
        indices = self._layers_of_stages()
        layers = [[self.layers[index] for index in of_stage] for of_stage in indices]
        return list(zip(indices, layers, *self._made, strict=True))

    def _sizes(self, order):
        return {"tp": self._T, "dp": self._D, "pp": len(order.devices) // self._D}

    def _rank(self, sizes, **place):
        """The number of a device, from its place along each axis."""
        rank, stride = 0, 1
        for axis in self._order.split("-"):
            rank += stride * place[axis]
            stride *= sizes[axis]
        return rank

    def _ranks(self, order):
        sizes = self._sizes(order)
        places = list(product(range(sizes["dp"]), range(sizes["pp"])))
        return [[self._rank(sizes, tp=t, dp=d, pp=k) for d, k in places] for t in range(self._T)]

    def _shard(self, t):
        return Shard(self.layers, self.loss, t, self._T, **self._split)

    def _shards(self):
        if self._T == 1:
            return super()._shards()
        parts = [self._shard(t) for t in range(self._T)]
        counts = list(map(len, self._layers_of_stages()))
        made = [_stages(shard.layers, counts, shard.loss) for shard in parts]
        owners = parameters_with(self.layers, [(layer.W, layer.b) for layer in self.layers])
        arrays = {(id(owners[key][0]), key[1]): arrays for key, arrays in self._remembered.items()}
        for stages, shard in zip(made, parts, strict=True):
            for stage in stages:
                stage.keep_optimizer_state(shard.parts_of(arrays, stage.parts))
        self._parts, self._made = parts, made  # the shards, and for each its stages
        return made, list(map(self._tied_in, made))

    def _on_devices(self):
        if self._T == 1:
            return super()._on_devices()
        return Copies().on_devices  # shards, and so their copies, are cut from the network for each run

    def _tied_in(self, stages):
        """{name: the tied layers of a shard}, with their places in its stages."""
        places = {}
        for stage in stages:
            for index, layer in enumerate(stage.layers):
                if layer.tie is not None:
                    places.setdefault(layer.tie, []).append((stage.index, index))
        return {
            name: [Tied(layer, *place) for layer, place in zip(layers, places[name], strict=True)]
            for name, layers in self.ties.items()
        }

    def _summed_gradients(self):
        if self._T == 1:
            return super()._summed_gradients()
        gradients = [[pair for stage in stages for pair in self._gradients_of(stage)]
                     for stages in self._run.shards]
        return joined_gradients(self.layers, self._parts, gradients)

    def _finish_run(self):
        super()._finish_run()
        if self._optimizers is not None and self._T > 1:
            take_parameters(self._layers, self._parts)


class TensorParallel(Hybrid):
    """A drop-in for `Sequential` in which T simulated devices share the work inside each layer.

    layers, loss, seed, dtype: as for `Sequential`.
    n_shards: T, and `sequence`, `rows`: as for `Hybrid`. `split` says how each layer is divided among them.
    all other arguments: as for `Pipeline`.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> W1, W2 = [[1, 2], [3, -1], [-2, 1], [0, 1]], [[1, 0, 2, -1], [0, 1, -1, 3]]
    >>> first = Linear(2, 4, W=W1, b=[[0], [1], [0], [-1]])
    >>> net = TensorParallel([first, ReLU(), Linear(4, 2, W=W2, b=[[10], [20]])], MeanSquaredError(), 2)
    >>> J = net.forward_backward(np.array([[1.0, 2.0], [3.0, -1.0]]), np.array([[17.0, 8.0], [26.0, 27.0]]))
    >>> J, net.split
    (np.float64(1.25), ['by outputs', 'unit by unit', 'by inputs'])
    """

    def __init__(
        self, layers, loss, n_shards, n_microbatches=1, optimizer=None, recompute=False, seed=0,
        dtype=np.float64, costs=Costs(), link=Link(), ports=(), memory_limit=None, engine="cluster",
        accumulate="tree", sequence=False, rows=False,
    ):
        super().__init__(
            layers, loss, 1, n_shards, 1, n_microbatches, "gpipe", optimizer=optimizer, recompute=recompute,
            seed=seed, dtype=dtype, costs=costs, link=link, ports=ports, memory_limit=memory_limit,
            engine=engine, accumulate=accumulate, sequence=sequence, rows=rows,
        )


def _schedule(schedule, D, K, M):
    """The order of D copies of the network, each of K stages; of one copy, what `Pipeline` takes for it."""
    if D == 1:
        return schedule
    if is_name(schedule) and not SCHEDULES.facts[schedule].flush:
        raise ValueError(
            f"schedule={schedule!r} over {D} replicas: an order without a flush is for one copy of the "
            "network, so use n_replicas=1, or another schedule"
        )
    if K == 1 and isinstance(schedule, str) and schedule == "1f1b":
        return data_parallel(D, M)  # the same order, and M need not be a multiple of D
    if M % D:
        raise ValueError(f"n_microbatches={M} over {D} replicas of {K} stages: use a multiple of {D}")
    if isinstance(schedule, str):
        schedule = build_for_stages(schedule, K, M // D)
    if not isinstance(schedule, Schedule) or schedule.n_microbatches == M:
        return schedule
    return in_copies(schedule, D)


def _stages(lists, counts, loss):
    """The `Stage`s of a shard. lists: for each layer of the network, those of the shard.

    counts: for each stage, how many of these lists it has.
    """
    ends, last = pairwise(accumulate(counts, initial=0)), len(counts) - 1
    return [
        stage_of(s, list(chain(*lists[first:end])), loss if s == last else None)
        for s, (first, end) in enumerate(ends)
    ]
