"""The checked options of a network, and the pairs of options that it refuses."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations, product
from typing import Any, NamedTuple

from ..checks import items_of, one_of, real_number, shown, truth, whole_number, whole_numbers
from ..cluster import Link, Port, checked_ports, links_between
from ..collectives import ALL_REDUCES, OWNERS
from ..engines import check_size, world
from ..layers.attention import SELECTIVE
from ..order import RECOMPUTE, Costs, Schedule
from ..order.actions import MEETING
from ..order.costs import checked_costs
from ..partitioning.partition import CUT_BY
from ..sums import SUMS

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
        by: what is divided equally: "count", the number of layers; "parameters",
            "macs", "bytes" or "time"; or a function, see `minipipe.partition`.
        sample: a micro-batch (X, Y); "count" and "parameters" need none.
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
            buffer in order of arrival, then in the order of the replicas: the bits may
            depend on the schedule. J and batch norm's statistics always use the tree.
        all_reduce: how the replicas of a stage sum their gradients: "owners", in the
            order of `accumulate`; or another name of
            `minipipe.collectives.ALL_REDUCES`, whose bits depend on D.
        buckets: None, to exchange all gradients of a stage at once; a number of bytes,
            to exchange the gradients of the last layers as soon as they reach this
            size, while the backward of earlier layers continues; "ddp", the sizes that
            PyTorch's DistributedDataParallel begins with; or "layer", each layer's
            gradients separately.
        grain: None, or the samples of a grain. Micro-batches are cut at multiples of
            it, and pass the layers grain by grain. The network then has the bits of
            `Sequential` with this grain, however it is split.
        sync_batch_norm: whether the statistics of `BatchNorm` are over the D
            micro-batches that the replicas process at the same time; with M = D, over
            the full batch.
    """

    accumulate: str = "tree"
    all_reduce: str = OWNERS
    buckets: float | str | None = None
    grain: int | None = None
    sync_batch_norm: bool = False

    def __post_init__(self) -> None:
        one_of("accumulate", self.accumulate, SUMS)
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
        ports = items_of(self.ports)
        kept["ports"] = tuple([self.ports] if ports is None else ports)
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
        """Raise `ValueError` unless links, ports and MPI ranks fit `n_devices`."""
        links_between(self.link, n_devices)
        checked_ports(self.ports, n_devices)
        if self.engine == MPI:
            check_size(world(), n_devices)

    def places(self, n_devices: int) -> list[tuple]:
        """Return (t, d, p) of each device: its shard, replica and place in it.

        `n_devices` is the number of devices in the schedule of all replicas.
        """
        sizes = {"tp": self.shards, "dp": self.replicas, "pp": n_devices // self.replicas}
        slowest_first = self.numbering.split("-")[::-1]
        places = product(*(range(sizes[axis]) for axis in slowest_first))
        return [tuple(place[slowest_first.index(axis)] for axis in AXES) for place in places]

    def ranks(self, n_devices: int) -> list[list[int]]:
        """Return for each shard its list of devices; `n_devices` as for `places`."""
        ranks: list[list[int]] = [[] for _ in range(self.shards)]
        for place, device in sorted((place, device) for device, place in enumerate(self.places(n_devices))):
            ranks[place[0]].append(device)
        return ranks

    def groups(self, n_devices: int) -> dict[str, list]:
        """Return `Parallel.groups` for a schedule of `n_devices`."""
        found = {}
        for index, axis in enumerate(AXES):
            groups: dict[tuple, list] = {}
            for device, place in enumerate(self.places(n_devices)):
                groups.setdefault((place[:index], place[index + 1:]), []).append(device)
            found[axis] = sorted(groups.values())
        return found

    def names(self, n_devices: int) -> list[str]:
        """Return the names of devices in pictures, such as "device 5: d0 t1 p2".

        An axis of one device is left out. With a single axis, the list is empty.
        `n_devices` is as for `places`.
        """
        places = self.places(n_devices)
        axes = [(index, letter) for index, letter in ((1, "d"), (0, "t"), (2, "p")) if places[-1][index]]
        if len(axes) < 2:
            return []
        return [
            f"device {device}: {' '.join(f'{letter}{place[index]}' for index, letter in axes)}"
            for device, place in enumerate(places)
        ]


# The pairs of options that `Parallel` refuses, in one table.

class ChosenOptions(NamedTuple):
    """The options of a network, with what the rules must know of order and layers.

    Args:
        options: the network's.
        order: the `Schedule` of all replicas, before recomputation and ZeRO change it.
        is_stream: whether mini-batches follow each other without a flush.
        ties: {name: indices of the layers that share a W}.
    """

    options: Options
    order: Schedule
    is_stream: bool
    ties: Mapping

    @property
    def is_sharded(self) -> bool:
        """Whether each device with a replica of a stage updates a shard of it: ZeRO."""
        return "S" in self.order.kinds or (self.options.zero > 0 and self.order.has_copied_stages)


# (names of the options, whether (options, `ChosenOptions`) break the rule, message of the error)
REFUSALS: tuple[tuple[str, Callable, Callable], ...] = (
    (
        "schedule, replicas",
        lambda o, s: s.order.n_copies % o.replicas or len(s.order.devices) % o.replicas,
        lambda o, s: f"the order of {s.order.name!r} has {s.order.n_copies} copies of the network on "
        f"{len(s.order.devices)} devices, which are not {o.replicas} replicas: pass the order of one "
        "replica, or leave replicas out",
    ),
    (
        "bytes, engine",
        lambda o, s: o.counts_bytes and o.engine != CLUSTER,
        lambda o, s: f"engine={o.engine!r} cannot count bytes: leave out count_bytes and memory_limit, or "
        "use engine='cluster'",
    ),
    (
        "grain, accumulate",
        lambda o, s: o.sums.grain is not None and o.sums.accumulate != "tree",
        lambda o, s: f"grain={o.sums.grain} needs accumulate='tree', not {o.sums.accumulate!r}, to keep its "
        "bits",
    ),
    (
        "grain, all_reduce",
        lambda o, s: o.sums.grain is not None and o.sums.all_reduce != OWNERS and s.order.n_copies > 1,
        lambda o, s: f"grain={o.sums.grain} needs all_reduce={OWNERS!r}, not {o.sums.all_reduce!r}, to keep "
        "its bits",
    ),
    (
        "grain, sync_batch_norm",
        lambda o, s: o.sums.grain is not None and o.sums.sync_batch_norm,
        lambda o, s: f"sync_batch_norm=True with grain={o.sums.grain}: replicas exchange statistics in each "
        "micro-batch, not in each grain, so leave one of them out",
    ),
    (
        "replicas, sync_batch_norm",
        lambda o, s: o.sums.sync_batch_norm and not _has_equal_replicas(s.order, o.replicas),
        lambda o, s: f"sync_batch_norm=True with {o.microbatches} micro-batches over {o.replicas} "
        f"replicas: they exchange statistics in each micro-batch, so use a multiple of {o.replicas}, and "
        "one order for all replicas",
    ),
    (
        "copies, sync_batch_norm",
        lambda o, s: o.sums.sync_batch_norm and o.replicas == 1 and s.order.n_copies > 1,
        lambda o, s: f"sync_batch_norm=True with the {s.order.n_copies} copies of the network in "
        f"{s.order.name!r}: it only synchronises `replicas`, so use that option, or leave it out",
    ),
    (
        "schedule, sync_batch_norm",
        lambda o, s: o.sums.sync_batch_norm and s.is_stream,
        lambda o, s: f"sync_batch_norm=True with {s.order.name!r}, which has no flush: statistics of "
        "different weights would be mixed, so leave it out",
    ),
    (
        "zero, all_reduce",
        lambda o, s: s.is_sharded and o.sums.all_reduce != OWNERS,
        lambda o, s: f"all_reduce={o.sums.all_reduce!r}, but with zero, or an S in the order, each "
        f"device owns a part of the sum: use {OWNERS!r}",
    ),
    (
        "zero, microbatches",
        lambda o, s: o.zero == 3 and o.microbatches % o.replicas,
        lambda o, s: f"zero=3 with {o.microbatches} micro-batches over {o.replicas} replicas: all of them "
        f"gather parameters for each of their micro-batches, so use a multiple of {o.replicas}",
    ),
    (
        "zero, copies",
        lambda o, s: o.zero and s.order.has_copied_stages and any(
            len(s.order.holders(stage)) == 1 for stage in range(s.order.n_stages)
        ),
        lambda o, s: f"zero={o.zero} with {s.order.name!r}, in which some stages are on one device only: "
        "these have no replica to share with, so leave zero out, or use as many copies of each",
    ),
    (
        "schedule, ties",
        lambda o, s: s.ties and "U" in s.order.kinds and (s.is_stream or not _updates_at_the_end(s.order)),
        lambda o, s: f"tie={next(iter(s.ties))!r}: tied weights need a flush, which the order of "
        f"{s.order.name!r} does not have on each device: put all its U after all other actions",
    ),
    (
        "schedule, zero",
        lambda o, s: o.zero and s.order.kinds & (MEETING | {"U"}),
        lambda o, s: f"the order of {s.order.name!r} has its own sums or updates: leave out zero, or use an "
        "order without A, S, G and U",
    ),
)


def check_rules(chosen: ChosenOptions) -> None:
    """Raise `ValueError` with the message of the first rule that `chosen` breaks."""
    for _, is_broken, message in REFUSALS:
        if is_broken(chosen.options, chosen):
            raise ValueError(message(chosen.options, chosen))


def _has_equal_replicas(order: Schedule, D: int) -> bool:
    """Tell whether all D replicas have equal orders, each on devices of its own."""
    n, n_devices = len(order.devices) // D, len(order.devices)
    counts: dict[int, int] = {}  # replica -> its micro-batches so far
    numbers = []  # for each micro-batch, its index among those of its replica
    for copy in order.copies:
        numbers.append(counts.get(copy, 0))
        counts[copy] = numbers[-1] + 1
    work = [
        [(part.kind, part.stage, numbers[part.microbatch]) for part in order.parts(device)]
        for device in range(n_devices)
    ]
    return n_devices == n * D and work == work[:n] * D


def _updates_at_the_end(order: Schedule) -> bool:
    """Tell whether each device makes all its updates after its last other action."""
    for device in range(len(order.devices)):
        kinds = [part.kind for part in order.parts(device)]
        if "U" in kinds and set(kinds[kinds.index("U"):]) != {"U"}:
            return False
    return True
