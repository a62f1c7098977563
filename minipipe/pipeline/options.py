"""How a network is split over devices, what these keep, how they sum, and what they run on.

Each is plain data, which checks its own fields. What the fields of several of them mean for each other is
for `minipipe.parallel.rules`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any, NamedTuple

from ..arguments import argument, optional
from ..as_code import AsCode
from ..checks import floats, items_of, one_of, shown, whole_numbers
from ..cluster import Link, Port, checked_ports, links_between
from ..cluster.links import check_link
from ..collectives import ALL_REDUCES, OWNERS
from ..engines import check_size, world
from ..layers.recomputing import SELECTIVE
from ..partitioning.partition import NAMES
from ..schedules import RECOMPUTE, Costs
from ..schedules.costs import checked_costs
from ..sums import checked_accumulate

CLUSTER, THREADS, MPI = ENGINES = "cluster", "threads", "mpi"
AXES = "tp", "dp", "pp"
EVERY_SQRT = "sqrt"
MODES = *RECOMPUTE, EVERY_SQRT, SELECTIVE  # of recomputation
DDP, LAYER = "ddp", "layer"                # names of buckets


class Plain(AsCode):
    """Plain data whose fields are checked when it is made, and that prints as the call that makes it."""

    def _keep(self, **fields) -> None:
        """Let fields be what their checks have made of them."""
        vars(self).update(fields)


@dataclass(frozen=True, repr=False)
class Cut(Plain):
    """Where layers are cut into stages.

    stages: K; or a list with the number of layers of each stage.
    by: "count", as equally many layers in each stage as can be; or "parameters", "macs", "bytes", "time" or a
        function, to balance that, see `minipipe.partition`.
    sample: a micro-batch (X, Y), for all of these but "count" and "parameters".
    """

    stages: int | Sequence[int]
    by: str | Callable = "count"
    sample: tuple | None = field(default=None, compare=False)

    def __post_init__(self):
        by, counts = self.by, items_of(self.stages)
        if isinstance(by, type) or not (callable(by) or (isinstance(by, str) and by in NAMES)):
            names = ", ".join(map(repr, NAMES))
            raise ValueError(
                f"by={shown(by)} must be one of {names}, or a function (layer, input_shape) -> cost"
            )
        if counts is None:
            self._keep(stages=argument("Cut.stages", self.stages))
        else:
            self._keep(stages=tuple(whole_numbers("stages", counts, 1)))
            if by != "count":
                raise ValueError(f"stages={counts} says where to cut, and so does by={by!r}: use one")

    @property
    def n(self) -> int:
        """K."""
        return len(self.stages) if isinstance(self.stages, tuple) else self.stages

    def argument(self, name):
        """Return what the constructor took as `name`; of a sample, nothing that would be printed."""
        return None if name == "sample" else super().argument(name)


@dataclass(frozen=True, repr=False)
class Shards(Plain):
    """How devices share the work inside layers, see `minipipe.parallel.splitting.Shard`.

    n: T, the devices.
    sequence: whether what stands between the parts of a Transformer's blocks is split by positions, too.
    rows: whether convolutions are split by the rows of the image.
    """

    n: int
    sequence: bool = False
    rows: bool = False

    def __post_init__(self):
        self._keep(
            n=argument("Shards.n", self.n), sequence=argument("sequence", self.sequence),
            rows=argument("rows", self.rows),
        )
        if self.sequence and self.rows:
            raise ValueError("sequence=True and rows=True: positions are split one way, so use one of them")


@dataclass(frozen=True, repr=False)
class Split(Plain):
    """How a network is split over D x T x K devices.

    replicas: D, the copies of the network, which share the samples.
    shards: T, the devices that share the work inside each layer; or `Shards`.
    stages: K, the parts that the layers are cut into; or a `Cut`.
    microbatches: M, the parts of each mini-batch, of all copies together; left out, D. They may be ragged.
    order: which devices are neighbours, the fastest axis first: "tp-dp-pp" has the number t + T (d + D k),
        "tp-pp-dp" t + T (k + K d).
    """

    replicas: int = 1
    shards: int | Shards = 1
    stages: int | Cut = 1
    microbatches: int | None = None
    order: str = "tp-dp-pp"

    def __post_init__(self):
        one_of("order", self.order, ["-".join(axes) for axes in permutations(AXES)])
        self._keep(replicas=argument("Split.replicas", self.replicas))
        M = self.replicas if self.microbatches is None else argument("microbatches", self.microbatches)
        self._keep(microbatches=M)
        for name, kind in (("shards", Shards), ("stages", Cut)):
            value = getattr(self, name)
            if not isinstance(value, kind):
                self._keep(**{name: kind(argument(f"Split.{name}", value))})

    def argument(self, name):
        """Return what the constructor took as `name`, in its shortest form."""
        value = super().argument(name)
        if isinstance(value, (Shards, Cut)) and value == type(value)(value.n):
            return value.n
        return None if name == "microbatches" and value == self.replicas else value

    @property
    def D(self) -> int:
        """The copies of the network."""
        return self.replicas

    @property
    def T(self) -> int:
        """The devices that share the work inside each layer."""
        return self.shards.n

    @property
    def K(self) -> int:
        """The stages."""
        return self.stages.n

    @property
    def M(self) -> int:
        """The micro-batches."""
        return self.microbatches

    def ranks(self, n_devices: int) -> list[list[int]]:
        """Return for each shard the device on the cluster of each device of a schedule.

        n_devices: how many the schedule of all copies has, those of one copy after those of the other.

        >>> Split(replicas=2, shards=2, stages=2).ranks(4)
        [[0, 4, 2, 6], [1, 5, 3, 7]]
        """
        sizes = self._sizes(n_devices)
        places = list(product(range(sizes["dp"]), range(sizes["pp"])))
        return [[self._rank(sizes, tp=t, dp=d, pp=k) for d, k in places] for t in range(sizes["tp"])]

    def groups(self, n_devices: int) -> dict[str, list]:
        """Return {axis: its groups}: the devices of a group differ in this axis alone, and are in its order.

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

    def _sizes(self, n_devices):
        return {"tp": self.T, "dp": self.D, "pp": n_devices // self.D}

    def _rank(self, sizes, **place):
        """The number of a device, from its place along each axis."""
        rank, stride = 0, 1
        for axis in self.order.split("-"):
            rank += stride * place[axis]
            stride *= sizes[axis]
        return rank


@dataclass(frozen=True, repr=False)
class Memory(Plain):
    """What devices keep.

    recompute: "never"; "always", keep only each stage's input, and compute its forward again before the
        backward; "except_last", for all but the last micro-batch; "sqrt", always, but keep an input for
        every sqrt(L) of a stage's L layers, which then are about sqrt(L) stages on one device that share its
        costs; or "selective", only the shares within attention, see `recomputing`: the order stays as it is,
        and the costs of B, or I, are yours to raise.
    zero: 0; or 1, 2 or 3, and each device that has a copy of a stage updates only its own part of the
        parameters, so that its optimizer remembers only that: ZeRO, see `minipipe.schedules.with_zero`. With
        2, and buckets, it keeps only its part of the gradients, too. With 3, FSDP, it keeps only its part of
        the parameters, and gathers those of a bucket, of a layer if none are named, for each forward and
        backward. The updates are then in the order, so `train` takes the mini-batches and the optimizer,
        which must take each number by itself, as most here do.
    limit: bytes per device, past which a run stops with `MemoryLimitError`. What is held at the start and the
        end of each action counts; inside it, layers need more for a moment, see `temporaries`.
    """

    recompute: str = "never"
    zero: int = 0
    limit: int | None = None

    def __post_init__(self):
        one_of("recompute", self.recompute, MODES)
        self._keep(zero=argument("zero", self.zero), limit=optional("limit", self.limit))


@dataclass(frozen=True, repr=False)
class Sums(Plain):
    """How gradients are summed over micro-batches and copies.

    accumulate: "tree", along a fixed tree: the bits are those of every schedule, and a device keeps up to
        about log2(M) + 1 partial sums; or "running", in one buffer in order of arrival, and those of several
        copies in the order of the copies: one sum, the bits of which may depend on the schedule. (J and batch
        norm's statistics are small: they always go along the tree.)
    all_reduce: how copies of a stage on several devices put their gradients together: "owners", along that
        tree, too; or another of `minipipe.collectives.ALL_REDUCES`, where their bits depend on the number of
        copies, and each copy has the same.
    buckets: None, to exchange all gradients of a stage at once; a number of bytes, to exchange those of its
        last layers while the backward of those below goes on, as soon as there are so many of them; "ddp",
        for the sizes that PyTorch's DistributedDataParallel begins with; or "layer", each by itself.
    grain: None, or the samples of a grain, as for `Sequential`, whose bits the network then has, however it
        is split: micro-batches are cut at multiples of it, and pass the layers of a stage grain by grain.
    sync_batch_norm: whether the copies put the statistics of each `BatchNorm` together, forward and backward,
        in each of the micro-batches that they work on at once; with one for each copy, these are the full
        batch's.
    """

    accumulate: str = "tree"
    all_reduce: str = OWNERS
    buckets: float | str | None = None
    grain: int | None = None
    sync_batch_norm: bool = False

    def __post_init__(self):
        checked_accumulate(self.accumulate)
        one_of("all_reduce", self.all_reduce, ALL_REDUCES)
        if isinstance(self.buckets, str):
            one_of("buckets", self.buckets, (DDP, LAYER))
        else:
            self._keep(buckets=optional("buckets", self.buckets))
        self._keep(
            grain=optional("grain", self.grain),
            sync_batch_norm=argument("sync_batch_norm", self.sync_batch_norm),
        )


@dataclass(frozen=True, repr=False)
class Machine(Plain):
    """What a network runs on.

    engine: "cluster", simulated devices under one clock; "threads", where each device is a thread of this
        computer; or "mpi", where it is a process that `mpiexec` has started, see `InStages`. All give the
        same bits. The trace of the last two is in seconds; costs and link do not count, and neither do
        bytes that are held; a mini-batch then runs to its end, not tick by tick.
    costs: the ticks of the actions of a copy; with several stages on a device, they share them.
    link: the ticks of the messages: one `Link`, or a dict {(source, to): Link}.
    ports: what several links share, as for `Cluster`.
    """

    engine: str = CLUSTER
    costs: Costs = Costs()
    link: Link | dict = Link()
    ports: Sequence[Port] = ()

    def __post_init__(self):
        one_of("engine", self.engine, ENGINES)
        checked_costs(self.costs)
        check_link(self.link)
        ports = items_of(self.ports)
        self._keep(ports=tuple([self.ports] if ports is None else ports))

    def check(self, n_devices: int) -> None:
        """Raise `ValueError` for links, ports or MPI ranks that are not those of so many devices."""
        links_between(self.link, n_devices)
        checked_ports(self.ports, n_devices)
        if self.engine == MPI:
            check_size(world(), n_devices)


@dataclass(frozen=True, repr=False)
class Weights(Plain):
    """How the weights are made that the layers do not have yet, as for `Sequential`.

    seed: those of a layer are drawn from `default_rng([seed, index of the layer])`.
    dtype: of their floats.
    """

    seed: int = 0
    dtype: Any = "float64"

    def __post_init__(self):
        self._keep(seed=argument("seed", self.seed))
        floats(self.dtype)


class Options(NamedTuple):
    """All that a network is made with, beside layers and loss."""

    split: Split = Split()
    schedule: Any = "1f1b"
    memory: Memory = Memory()
    sums: Sums = Sums()
    on: Machine = Machine()
    weights: Weights = Weights()



def check_kinds(**options) -> None:
    """Raise `ValueError` unless each option is of its kind. options: name = (value, kind)."""
    for name, (value, kind) in options.items():
        if not isinstance(value, kind):
            raise ValueError(f"{name}={shown(value)} must be a {kind.__name__}, such as {kind()}")
