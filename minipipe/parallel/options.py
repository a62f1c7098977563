"""The options of a network: plain data, each of which checks its own fields.

`minipipe.parallel.rules` refuses the pairs that do not go together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any

from ..checks import items_of, one_of, real_number, shown, truth, whole_number, whole_numbers
from ..cluster import Link, Port, checked_ports, links_between
from ..cluster.links import check_link, check_ports
from ..collectives import ALL_REDUCES, OWNERS
from ..engines import check_size, world
from ..layers.attention import SELECTIVE
from ..order import RECOMPUTE, Costs
from ..order.costs import checked_costs
from ..partitioning.partition import CUT_BY
from ..sums import checked_accumulate

CLUSTER, THREADS, MPI = ENGINES = "cluster", "threads", "mpi"
AXES = "tp", "dp", "pp"
EVERY_SQRT = "sqrt"
RECOMPUTE_MODES = *RECOMPUTE, EVERY_SQRT, SELECTIVE
DDP, LAYER = "ddp", "layer"                # values of `Sums.buckets`
MOST_RANKS = 10**6


@dataclass(frozen=True)
class Cut:
    """Where layers are cut into stages.

    Args:
        stages: K; or a list with the number of layers of each stage.
        by: what the stages share equally: "count", the number of layers; "parameters",
            "macs", "bytes" or "time"; or a function, see `minipipe.partition`.
        sample: a micro-batch (X, Y), which all but "count" and "parameters" need.
    """

    stages: int | Sequence[int]
    by: str | Callable = "count"
    sample: tuple | None = field(default=None, compare=False, repr=False)

    def __post_init__(self) -> None:
        by, counts = self.by, items_of(self.stages)
        if isinstance(by, type) or not (callable(by) or (isinstance(by, str) and by in CUT_BY)):
            names = ", ".join(map(repr, CUT_BY))
            raise ValueError(
                f"by={shown(by)} must be one of {names}, or a function (layer, input_shape) -> cost"
            )
        if not counts:
            vars(self).update(stages=whole_number("stages", self.stages, 1))
            return
        vars(self).update(stages=tuple(whole_numbers("stages", counts, 1)))
        if by != "count":
            raise ValueError(f"stages={counts} says where to cut, and so does by={by!r}: use one")

    @property
    def n(self) -> int:
        """K, the number of stages."""
        return self.stages if isinstance(self.stages, int) else len(self.stages)


@dataclass(frozen=True)
class Sums:
    """How gradients are summed over micro-batches and replicas.

    Args:
        accumulate: "tree", along a fixed tree: all schedules give the same bits, and a
            device holds up to about log2(M) + 1 partial sums. Or "running", in one
            buffer in order of arrival, and over replicas in the order of the replicas:
            one sum, whose bits may depend on the schedule. (J and batch norm's
            statistics are small: they are always summed along the tree.)
        all_reduce: how the replicas of a stage sum their gradients: "owners", in the
            order of `accumulate`; or another name of
            `minipipe.collectives.ALL_REDUCES`, which gives all replicas the same bits,
            but different bits for another D.
        buckets: None, to exchange all gradients of a stage at once; a number of bytes,
            to exchange the gradients of the last layers as soon as they reach this
            size, while the backward of earlier layers continues; "ddp", the sizes that
            PyTorch's DistributedDataParallel begins with; or "layer", each layer's
            gradients separately.
        grain: None, or the samples of a grain, as for `Sequential`. The network then
            has the bits of `Sequential` with this grain, however it is split:
            micro-batches are cut at multiples of it, and pass the layers grain by
            grain.
        sync_batch_norm: whether `BatchNorm` computes its statistics over all replicas,
            forward and backward: over the D micro-batches that they process at the same
            time; with M = D, over the full batch.
    """

    accumulate: str = "tree"
    all_reduce: str = OWNERS
    buckets: float | str | None = None
    grain: int | None = None
    sync_batch_norm: bool = False

    def __post_init__(self) -> None:
        checked_accumulate(self.accumulate)
        one_of("all_reduce", self.all_reduce, ALL_REDUCES)
        if isinstance(self.buckets, str):
            one_of("buckets", self.buckets, (DDP, LAYER))
        elif self.buckets is not None:
            note = " bytes, 'ddp' or 'layer'"
            vars(self).update(buckets=real_number("buckets", self.buckets, above=0, note=note, infinite=True))
        if self.grain is not None:
            vars(self).update(grain=whole_number("grain", self.grain, 1))
        vars(self).update(sync_batch_norm=truth("sync_batch_norm", self.sync_batch_norm))


@dataclass(frozen=True)
class Options:
    """The checked arguments of a `Parallel`, under the same names.

    `stages` is always a `Cut`, `microbatches` a number, and `ports` a tuple.
    """

    replicas: int
    shards: int
    stages: Any
    microbatches: Any
    schedule: Any
    recompute: str
    zero: int
    sums: Sums
    engine: str
    costs: Costs
    link: Link | dict
    ports: Port | Sequence[Port]
    numbering: str
    count_bytes: bool
    memory_limit: float | None
    seed: int
    dtype: Any  # None, or the dtype of the network

    def __post_init__(self) -> None:
        kept = vars(self)
        for name in ("replicas", "shards"):
            kept[name] = whole_number(name, kept[name], 1, MOST_RANKS)
        if not isinstance(self.stages, Cut):
            if items_of(self.stages) is not None:
                raise ValueError(
                    f"stages={shown(self.stages)} must be a whole number, or Cut({shown(self.stages)})"
                )
            kept["stages"] = Cut(self.stages)
        n = self.microbatches
        kept["microbatches"] = self.replicas if n is None else whole_number("microbatches", n, 1)
        one_of("recompute", self.recompute, RECOMPUTE_MODES)
        kept["zero"] = whole_number("zero", self.zero, 0, 3)
        if not isinstance(self.sums, Sums):
            raise ValueError(f"sums={shown(self.sums)} must be a Sums, such as Sums(grain=8)")
        one_of("engine", self.engine, ENGINES)
        checked_costs(self.costs)
        check_link(self.link)
        ports = items_of(self.ports)
        kept["ports"] = tuple([self.ports] if ports is None else ports)
        check_ports(kept["ports"])
        one_of("numbering", self.numbering, ["-".join(axes) for axes in permutations(AXES)])
        kept["count_bytes"] = truth("count_bytes", self.count_bytes)
        if self.memory_limit is not None:
            note = " bytes, such as 8 * 2**30"
            limit = real_number("memory_limit", self.memory_limit, above=0, note=note, infinite=True)
            kept["memory_limit"] = limit
        kept["seed"] = whole_number("seed", self.seed, 0, 2**128 - 1)

    @property
    def counts_bytes(self) -> bool:
        """Whether a run counts the bytes that devices hold."""
        return self.count_bytes or self.memory_limit is not None

    def check_devices(self, n_devices: int) -> None:
        """Raise `ValueError` unless links, ports and MPI ranks fit a cluster of `n_devices` devices."""
        links_between(self.link, n_devices)
        checked_ports(self.ports, n_devices)
        if self.engine == MPI:
            check_size(world(), n_devices)

    def ranks(self, n_devices: int) -> list[list[int]]:
        """Return, for each shard, the cluster's device for each device of the schedule.

        Args:
            n_devices: the number of devices in the schedule of all replicas, which has
                one replica after another.
        """
        sizes = self._sizes(n_devices)
        places = list(product(range(sizes["dp"]), range(sizes["pp"])))
        return [[self._rank(sizes, tp=t, dp=d, pp=k) for d, k in places] for t in range(sizes["tp"])]

    def groups(self, n_devices: int) -> dict[str, list]:
        """Return {axis: its groups}: the devices of a group, in order, differ in this axis only.

        Args:
            n_devices: as for `ranks`.
        """
        sizes, found = self._sizes(n_devices), {}
        for axis in AXES:
            others = [[(name, i) for i in range(sizes[name])] for name in AXES if name != axis]
            found[axis] = sorted(
                [self._rank(sizes, **dict(place), **{axis: i}) for i in range(sizes[axis])]
                for place in product(*others)
            )
        return found

    def names(self, n_devices: int) -> list[str]:
        """Return the devices' names in pictures, such as "device 5: d0 t1 p2"; [] for a single axis.

        d, t and p are the indices of the replica, the shard and the device within a
        replica. An axis of one device is left out.

        Args:
            n_devices: as for `ranks`.
        """
        sizes, names = self._sizes(n_devices), {}
        letters = {axis: letter for axis, letter in zip(("dp", "tp", "pp"), "dtp") if sizes[axis] > 1}
        if len(letters) < 2:
            return []
        for place in product(*map(range, sizes.values())):
            at = dict(zip(sizes, place))
            rank = self._rank(sizes, **at)
            names[rank] = f"device {rank}: {' '.join(f'{letters[axis]}{at[axis]}' for axis in letters)}"
        return [names[rank] for rank in sorted(names)]

    def _sizes(self, n_devices):
        return {"tp": self.shards, "dp": self.replicas, "pp": n_devices // self.replicas}

    def _rank(self, sizes, **place):
        """Return the number of a device. place: its index along each axis."""
        rank, stride = 0, 1
        for axis in self.numbering.split("-"):
            rank += stride * place[axis]
            stride *= sizes[axis]
        return rank
