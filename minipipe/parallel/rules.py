"""The pairs of options that `Parallel` refuses, in one table."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from ..collectives import OWNERS
from ..order import Schedule
from ..order.actions import MEETING
from .options import CLUSTER, Options


class ChosenOptions(NamedTuple):
    """The options of a network, with what the rules need to know of its order and layers.

    Args:
        options: the network's.
        order: the `Schedule` of all replicas, before units, recomputation and ZeRO
            change it.
        is_stream: whether mini-batches follow each other without a flush.
        ties: {name: indices of the layers that share a W}.
    """

    options: Options
    order: Schedule
    is_stream: bool
    ties: Mapping

    @property
    def has_parts(self) -> bool:
        """Whether each device with a replica of a stage updates a shard of it: ZeRO."""
        return "S" in self.order.kinds or (self.options.zero > 0 and self.order.has_copied_stages)


class Refusal(NamedTuple):
    """A rule against a pair of options.

    Args:
        name: the names of the two options.
        is_broken: a function (options, `ChosenOptions`) -> bool.
        sentence: a function (options, `ChosenOptions`) -> message of the error.
    """

    name: str
    is_broken: Callable
    sentence: Callable


REFUSALS = (
    Refusal(
        "schedule, replicas",
        lambda o, s: s.order.n_copies % o.replicas or len(s.order.devices) % o.replicas,
        lambda o, s: f"the order of {s.order.name!r} has {s.order.n_copies} copies of the network on "
        f"{len(s.order.devices)} devices, which are not {o.replicas} replicas: pass the order of one "
        "replica, or leave replicas out",
    ),
    Refusal(
        "memory_limit, engine",
        lambda o, s: o.memory_limit is not None and o.engine != CLUSTER,
        lambda o, s: "a memory_limit needs the bytes that only the cluster counts: use engine='cluster'",
    ),
    Refusal(
        "count_bytes, engine",
        lambda o, s: o.count_bytes and o.engine != CLUSTER,
        lambda o, s: "count_bytes=True needs the bytes that only the cluster counts: use engine='cluster'",
    ),
    Refusal(
        "grain, accumulate",
        lambda o, s: o.sums.grain is not None and o.sums.accumulate != "tree",
        lambda o, s: f"grain={o.sums.grain} needs accumulate='tree', not {o.sums.accumulate!r}, to keep its "
        "bits",
    ),
    Refusal(
        "grain, all_reduce",
        lambda o, s: o.sums.grain is not None and o.sums.all_reduce != OWNERS and s.order.n_copies > 1,
        lambda o, s: f"grain={o.sums.grain} needs all_reduce={OWNERS!r}, not {o.sums.all_reduce!r}, to keep "
        "its bits",
    ),
    Refusal(
        "grain, sync_batch_norm",
        lambda o, s: o.sums.grain is not None and o.sums.sync_batch_norm,
        lambda o, s: f"sync_batch_norm=True with grain={o.sums.grain}: the copies meet in each "
        "micro-batch, not in each grain, so leave one of them out",
    ),
    Refusal(
        "replicas, sync_batch_norm",
        lambda o, s: o.sums.sync_batch_norm and not _has_equal_replicas(s.order, o.replicas),
        lambda o, s: f"sync_batch_norm=True with {o.microbatches} micro-batches over {o.replicas} "
        f"replicas: the copies meet in each micro-batch, so use a multiple of {o.replicas}, and one "
        "order for all copies",
    ),
    Refusal(
        "copies, sync_batch_norm",
        lambda o, s: o.sums.sync_batch_norm and o.replicas == 1 and s.order.n_copies > 1,
        lambda o, s: f"sync_batch_norm=True with the {s.order.n_copies} copies that the order of "
        f"{s.order.name!r} has itself: only replicas are synchronised, so use these, or leave it out",
    ),
    Refusal(
        "schedule, sync_batch_norm",
        lambda o, s: o.sums.sync_batch_norm and s.is_stream,
        lambda o, s: f"sync_batch_norm=True with {s.order.name!r}, which has no flush: the statistics would "
        "be of other weights, so leave it out",
    ),
    Refusal(
        "zero, all_reduce",
        lambda o, s: s.has_parts and o.sums.all_reduce != OWNERS,
        lambda o, s: f"all_reduce={o.sums.all_reduce!r}, but with zero, or an S in the order, each "
        f"device owns a part of the sum: use {OWNERS!r}",
    ),
    Refusal(
        "zero, microbatches",
        lambda o, s: o.zero == 3 and o.microbatches % o.replicas,
        lambda o, s: f"zero=3 with {o.microbatches} micro-batches over {o.replicas} replicas: all of them "
        f"gather parameters for each of their micro-batches, so use a multiple of {o.replicas}",
    ),
    Refusal(
        "zero, copies",
        lambda o, s: o.zero and s.order.has_copied_stages and any(
            len(s.order.holders(stage)) == 1 for stage in range(s.order.n_stages)
        ),
        lambda o, s: f"zero={o.zero} with {s.order.name!r}, in which some stages are on one device only: "
        "these have nobody to share with, so leave zero out, or use as many copies of each",
    ),
    Refusal(
        "schedule, ties",
        lambda o, s: s.ties and "U" in s.order.kinds and (s.is_stream or not _updates_at_the_end(s.order)),
        lambda o, s: f"tie={next(iter(s.ties))!r}: tied weights need a flush, which the order of "
        f"{s.order.name!r} does not have on each device: put all its U behind all other actions",
    ),
    Refusal(
        "schedule, zero",
        lambda o, s: o.zero and s.order.kinds & (MEETING | {"U"}),
        lambda o, s: f"the order of {s.order.name!r} says itself what is summed or updated when: leave out "
        "zero, or use an order without A, S, G and U",
    ),
)


def check_rules(chosen: ChosenOptions) -> None:
    """Raise `ValueError` with the sentence of the first rule that the `chosen` options break."""
    for refusal in REFUSALS:
        if refusal.is_broken(chosen.options, chosen):
            raise ValueError(refusal.sentence(chosen.options, chosen))


def _has_equal_replicas(order: Schedule, D: int) -> bool:
    """Tell whether all D replicas perform the same actions in the same order, each on its own devices."""
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
