"""The options of a network: plain data, each of which checks its own fields.

`minipipe.parallel.rules` refuses the pairs that do not go together.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any, ClassVar, NamedTuple

from ..arguments import argument, optional
from ..arrays import floats
from ..as_code import AsCode
from ..checks import items_of, one_of, shown, whole_numbers
from ..cluster import Link, Port, checked_ports, links_between
from ..cluster.links import check_link, check_ports
from ..collectives import ALL_REDUCES, OWNERS
from ..engines import check_size, world
from ..layers.recomputing import SELECTIVE
from ..order import RECOMPUTE, Costs
from ..order.costs import checked_costs
from ..partitioning.partition import CUT_BY
from ..sums import checked_accumulate

CLUSTER, THREADS, MPI = ENGINES = "cluster", "threads", "mpi"
AXES = "tp", "dp", "pp"
EVERY_SQRT = "sqrt"
RECOMPUTE_MODES = *RECOMPUTE, EVERY_SQRT, SELECTIVE  # of recomputation
DDP, LAYER = "ddp", "layer"                # names of buckets


class Plain(AsCode):
    """Plain data whose fields are checked when it is made, and that prints as the call that makes it.

    example: a call, which an error shows to who has passed something else.
    """

    example: ClassVar[str]

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

    def __post_init__(self) -> None:
        by, counts = self.by, items_of(self.stages)
        if isinstance(by, type) or not (callable(by) or (isinstance(by, str) and by in CUT_BY)):
            names = ", ".join(map(repr, CUT_BY))
            raise ValueError(
                f"by={shown(by)} must be one of {names}, or a function (layer, input_shape) -> cost"
            )
        if not counts:
            self._keep(stages=argument("Cut.stages", self.stages))
        else:
            self._keep(stages=tuple(whole_numbers("stages", counts, 1)))
            if by != "count":
                raise ValueError(f"stages={counts} says where to cut, and so does by={by!r}: use one")

    @property
    def n(self) -> int:
        """K."""
        return len(self.stages) if isinstance(self.stages, tuple) else self.stages

    def argument(self, name: str) -> Any:
        """Return what the constructor took as `name`; of a sample, nothing that would be printed."""
        return None if name == "sample" else super().argument(name)


@dataclass(frozen=True, repr=False)
class Split(Plain):
    """How a network is split over D x T x K devices.

    replicas: D, the copies of the network, which share the samples.
    shards: T, the devices that share the work inside each layer.
    stages: K, the parts that the layers are cut into; or a `Cut`.
    microbatches: M, the parts of each mini-batch, of all copies together; left out, D. They may be ragged.
    order: how devices are numbered, the fastest axis first. Device t of the shards, d of the copies and p of
        the P devices of a copy (K, or fewer if some have several stages) has the number t + T (d + D p) with
        "tp-dp-pp", and t + T (p + P d) with "tp-pp-dp".
    """

    example = "Split(replicas=2)"
    replicas: int = 1
    shards: int = 1
    stages: int | Cut = 1
    microbatches: int | None = None
    order: str = "tp-dp-pp"

    def __post_init__(self) -> None:
        one_of("order", self.order, ["-".join(axes) for axes in permutations(AXES)])
        self._keep(replicas=argument("Split.replicas", self.replicas))
        self._keep(microbatches=optional("microbatches", self.microbatches))
        self._keep(shards=argument("Split.shards", self.shards))
        if not isinstance(self.stages, Cut):
            self._keep(stages=Cut(argument("Split.stages", self.stages)))

    def argument(self, name: str) -> Any:
        """Return what the constructor took as `name`, in its shortest form."""
        value = super().argument(name)
        return value.n if isinstance(value, Cut) and value == Cut(value.n) else value

    @property
    def D(self) -> int:
        """The copies of the network."""
        return self.replicas

    @property
    def T(self) -> int:
        """The devices that share the work inside each layer."""
        return self.shards

    @property
    def K(self) -> int:
        """The stages."""
        return self.stages.n

    @property
    def M(self) -> int:
        """The micro-batches."""
        return self.replicas if self.microbatches is None else self.microbatches

    def ranks(self, n_devices: int) -> list[list[int]]:
        """Return [[device on the cluster]]: for each shard, that of each device of the schedule.

        n_devices: of the schedule of all copies; the first copy has the first of them, and so on.

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
        costs; or "selective", only the attention weights P are computed again, see `recomputing`: the order
        stays, and you raise the costs of B (or I).
    zero: the level of ZeRO, see `minipipe.order.with_zero`. Source: Rajbhandari et al. 2020, arXiv
        1910.02054.
        0: each device with a copy of a stage updates all of it.
        1: it updates only its part, 1/N of the parameters for N such devices, and has optimizer state for
            that alone.
        2: with buckets, it also drops the other parts of each bucket's gradients once they are summed.
        3: FSDP, it also keeps only its part of the parameters, and gathers those of a unit for each forward
            and backward. A unit is a bucket, or without buckets a layer; with "sqrt", about sqrt(L) layers.
        From 1 on the updates are in the order: call `train(batches, optimizer)`, with an optimizer that takes
        each number by itself.
    limit: bytes per device, past which a run stops with `MemoryLimitError`. What is held at the start and the
        end of each action counts; inside it, layers need more for a moment, see `temporaries`.
    count_bytes: whether the trace says what devices hold, see `Trace.peak_bytes`. With a limit it does.
    """

    example = "Memory(recompute='always')"
    recompute: str = "never"
    zero: int = 0
    limit: int | None = None
    count_bytes: bool = False

    def __post_init__(self) -> None:
        one_of("recompute", self.recompute, RECOMPUTE_MODES)
        self._keep(
            zero=argument("zero", self.zero), limit=optional("limit", self.limit),
            count_bytes=argument("count_bytes", self.count_bytes),
        )

    @property
    def counts(self) -> bool:
        """Whether a run counts the bytes that devices hold."""
        return self.count_bytes or self.limit is not None


@dataclass(frozen=True, repr=False)
class Sums(Plain):
    """How gradients are summed over micro-batches and copies.

    accumulate: "tree", along a fixed tree: all schedules give the same bits, and a device holds up to
        about log2(M) + 1 partial sums; or "running", in one buffer in order of arrival, and those of several
        copies in the order of the copies: one sum, the bits of which may depend on the schedule. (J and batch
        norm's statistics are small: they always go along the tree.)
    all_reduce: how copies of a stage sum their gradients: "owners", as `accumulate` says; or another of
        `minipipe.collectives.ALL_REDUCES`, which gives all copies the same bits, but others for another D.
    buckets: None, to exchange all gradients of a stage at once; a number of bytes, to exchange those of its
        last layers while the backward of those below goes on, as soon as their bytes reach this number;
        "ddp", for the sizes that PyTorch's DistributedDataParallel begins with; or "layer", each by itself.
    grain: None, or the samples of a grain, as for `Sequential`, whose bits the network then has, however it
        is split: micro-batches are cut at multiples of it, and pass the layers of a stage grain by grain.
    sync_batch_norm: whether `BatchNorm` takes its statistics over all copies, forward and backward: over the
        D micro-batches that they work on at once; with M = D, over the full batch.
    """

    example = "Sums(grain=8)"
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
        computer; or "mpi", where it is a process that `mpiexec` has started, see `InStages`. All give a
        `Parallel` the same bits. On "threads" and "mpi" the trace is in measured seconds; costs, link and
        ports are not used, bytes are not counted, and `start` and `tick` are refused.
    costs: a `Costs`, in ticks: a number is for a device's share of the network, which its stages divide; a
        list has one for each stage.
    link: the ticks of the messages: one `Link`, or a dict {(source, to): Link}.
    ports: what several links share, as for `Cluster`.
    """

    example = "Machine(link=Link(latency=1))"
    engine: str = CLUSTER
    costs: Costs = Costs()
    link: Link | dict = Link()
    ports: Sequence[Port] = ()

    def __post_init__(self) -> None:
        one_of("engine", self.engine, ENGINES)
        checked_costs(self.costs)
        check_link(self.link)
        ports = items_of(self.ports)
        self._keep(ports=tuple([self.ports] if ports is None else ports))
        check_ports(self.ports)

    def check(self, n_devices: int) -> None:
        """Raise `ValueError` for links, ports or MPI ranks that are not those of so many devices."""
        links_between(self.link, n_devices)
        checked_ports(self.ports, n_devices)
        if self.engine == MPI:
            check_size(world(), n_devices)


@dataclass(frozen=True, repr=False)
class Weights(Plain):
    """The seed and dtype of weights that layers were not given.

    seed: layer i draws from `default_rng([seed, i])`.
    dtype: of the stored floats.
    """

    example = "Weights(seed=1)"
    seed: int = 0
    dtype: Any = "float64"

    def __post_init__(self) -> None:
        self._keep(seed=argument("seed", self.seed), dtype=floats(self.dtype).name)


class Options(NamedTuple):
    """The options of a `Parallel`, in the order of its arguments."""

    split: Split
    schedule: Any
    memory: Memory
    sums: Sums
    on: Machine
    weights: Weights


def check_kinds(**options) -> None:
    """Raise `ValueError` unless each option is of its kind. options: name = (value, kind)."""
    for name, (value, kind) in options.items():
        if not isinstance(value, kind):
            raise ValueError(f"{name}={shown(value)} must be a {kind.__name__}, such as {kind.example}")
