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
from ..pipeline.layout import held_by, pairs_of, whole
from ..schedules import (
    SCHEDULES, Costs, Schedule, build_for_stages, data_parallel, in_copies, is_name,
)
from .exchanges import check_positions
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
    rows: whether convolutions are split by the rows of the image, see `Shard`.
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
        order="tp-dp-pp", all_reduce=OWNERS, recompute=False, seed=0, dtype=np.float64,
        partition=None, sample=None, costs=Costs(), link=Link(), ports=(), memory_limit=None,
        engine="cluster", accumulate="tree", grain=None, sequence=False,
        rows=False,
    ):
        D = self._D = argument("n_replicas", n_replicas)
        self._T = argument("n_shards", n_shards)
        K = argument("n_stages", n_stages)
        M = D if n_microbatches is None else argument("n_microbatches", n_microbatches)
        self._split = {"sequence": argument("sequence", sequence), "rows": argument("rows", rows)}
        self._order = one_of("order", order, ["-".join(axes) for axes in permutations(AXES)])
        super().__init__(
            layers, loss, K, M, _schedule(schedule, D, K, M), recompute, seed, dtype, partition, sample,
            costs, link, memory_limit, engine, accumulate, all_reduce, ports, grain,
        )
        first = self._shard(self._layers, 0)
        first.check()
        self._words, self._parted = first.words, first.parted
        if self._stream is not None and grain is not None and any(self._split.values()):
            raise ValueError(
                f"grain={grain} with sequence={sequence}, rows={rows} and {self.schedule.name!r}, which has "
                "no flush: sums over shards are counted in micro-batches there, so leave grain out"
            )

    def check_training(self, optimizer, clip=None):
        """Raise an error also for an optimizer that needs whole parameters, if shards have parts."""
        super().check_training(optimizer, clip)
        if self.has_updates and self._T > 1 and optimizer.needs_whole_parameters:
            raise ValueError(
                f"{type(optimizer).__name__} looks at whole parameters, of which each of {self._T} shards "
                f"has a part: use an order without U, unlike {self.schedule.name!r}"
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

    def _shard(self, layers, t):
        return Shard(layers, self.loss, t, self._T, **self._split)

    def _shards(self):
        if self._T == 1:
            return super()._shards()
        layers = self._layers
        if self.has_updates:  # they reach the network's own layers at the end of the run
            layers = tuple(layer for stage in super()._shards()[0][0] for layer in stage.layers)
        self._split_layers, self._parts = layers, [self._shard(layers, t) for t in range(self._T)]
        counts = list(map(len, self._layers_of_stages()))
        made = [_stages(shard.layers, counts, shard.loss) for shard in self._parts]
        return made, list(map(self._tied_in, made))

    def _held(self, shard, stages):
        if self._T == 1:
            return super()._held(shard, stages)
        layers = self._split_layers
        keys = {(id(owner), key[1]): key
                for key, (owner, _, _) in parameters_with(layers, _pairs(layers)).items()}
        held = self._parts[shard].held.items()
        origins = {(id(holder), place[1]): (keys[place], axis)
                   for place, (holder, axis) in held if place in keys}
        return [held_by(stage.layers, lambda key, owner: origins[id(owner), key[1]]) for stage in stages]

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
        return pairs_of(self.layers, self._joined(lambda stage: (stage.layers, self._gradients_of(stage))))

    def _layers_of_run(self):
        if self._T == 1:
            return super()._layers_of_run()
        found = self._joined(lambda stage: (stage.layers, _pairs(stage.layers)))
        for key, (owner, _, _) in parameters_with(self._split_layers, _pairs(self._split_layers)).items():
            setattr(owner, key[1], found[key][0])
        return self._split_layers

    def _joined(self, of_stage):
        """{the key of a parameter: [array]} of the whole network, from those of the shards' stages.

        of_stage: of_stage(stage) is (layers, a list of (array for W, array for b)).
        """
        found = {}
        for stages, wires in zip(self._run.shards, self._wires, strict=True):
            for stage, device in zip(stages, wires.placements[0], strict=True):
                found[stage.index, device] = {
                    key: [array] for key, (_, _, array) in parameters_with(*of_stage(stage)).items()
                }
        return whole(self._layout_of_run.work, found)


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
        self, layers, loss, n_shards, n_microbatches=1, recompute=False, seed=0,
        dtype=np.float64, costs=Costs(), link=Link(), ports=(), memory_limit=None, engine="cluster",
        accumulate="tree", sequence=False, rows=False,
    ):
        super().__init__(
            layers, loss, 1, n_shards, 1, n_microbatches, "gpipe", recompute=recompute,
            seed=seed, dtype=dtype, costs=costs, link=link, ports=ports, memory_limit=memory_limit,
            engine=engine, accumulate=accumulate, sequence=sequence, rows=rows,
        )


def _pairs(layers):
    return [(layer.W, layer.b) for layer in layers]


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
    if isinstance(schedule, Schedule) and schedule.n_microbatches == M:
        return schedule
    if M % D:
        raise ValueError(f"n_microbatches={M} over {D} replicas of {K} stages: use a multiple of {D}")
    if isinstance(schedule, str):
        schedule = build_for_stages(schedule, K, M // D)
    return in_copies(schedule, D) if isinstance(schedule, Schedule) else schedule


def _stages(lists, counts, loss):
    """The `Stage`s of a shard. lists: for each layer of the network, those of the shard.

    counts: for each stage, how many of these lists it has.
    """
    ends, last = pairwise(accumulate(counts, initial=0)), len(counts) - 1
    return [
        stage_of(s, list(chain(*lists[first:end])), loss if s == last else None)
        for s, (first, end) in enumerate(ends)
    ]
