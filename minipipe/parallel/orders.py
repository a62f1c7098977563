"""The order of actions that a network runs: for a mini-batch, or without a flush."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from inspect import signature
from itertools import chain, zip_longest
from math import isqrt
from os import PathLike
from typing import Any

from ..arrays import known_dtype
from ..checks import listed, real_number
from ..description import parameters_of_layers
from ..layers import Layer
from ..layers.attention import SELECTIVE
from ..losses import Loss
from ..order import (
    Costs, Schedule, costs_in_segments, in_copies, in_segments, with_all_reduce, with_recompute, with_updates,
    with_zero,
)
from ..order.actions import MEETING
from ..order.counting import updates
from ..order.reading import build, registered_name, said_by
from ..partitioning.partition import counts_of, cut_into_stages
from ..partitioning.solvers import equal_counts
from ..schedules import SCHEDULES, data_parallel, names_having
from .options import DDP, EVERY_SQRT, LAYER, ChosenOptions, Cut, Options, check_rules


# Buckets: the gradients that are exchanged together.

MIB = 2 ** 20
CAPS = (MIB, 25 * MIB)  # bytes of the first bucket, and of the others, in PyTorch's DDP


def in_buckets(sizes: Sequence[float], caps: Sequence[float] = CAPS) -> list[list[int]]:
    """Return the buckets, lists of indices into `sizes`, in the order of the backward.

    Args:
        sizes: the bytes of each gradient, in the order of the forward.
        caps: a pair of bytes, for the first bucket and for the others. A bucket is
            closed once it has reached its cap, which it may exceed. The first cap is
            small, so that the exchange begins early.

    PyTorch's DistributedDataParallel has this rule: Li et al. 2020, arXiv 2006.15704.

    >>> in_buckets([1605632, 2048, 1048576, 2048, 20480, 40])
    [[5, 4, 3, 2], [1, 0]]
    """
    sizes, caps = listed("sizes", sizes, least=0), listed("caps", caps)
    sizes = [real_number(f"sizes[{k}]", size, least=0) for k, size in enumerate(sizes)]
    if len(caps) != 2:
        raise ValueError(f"caps has {len(caps)} numbers: pass a pair, for the first bucket and the others")
    caps = [real_number(f"caps[{k}]", cap, least=0, infinite=True) for k, cap in enumerate(caps)]
    size: float = 0
    buckets: list[list[int]] = [[]]
    for place in reversed(range(len(sizes))):
        if sizes[place] and size >= caps[min(len(buckets) - 1, 1)]:
            buckets.append([])
            size = 0
        buckets[-1].append(place)
        size += sizes[place]
    return buckets


# Units: the parts of a stage that are recomputed, gathered or summed separately.

def units_of(layers: Sequence[Layer], options: Options) -> list[int]:
    """Return the number of layers in each unit of the stage with these `layers`.

    With buckets, a unit is a bucket. With zero=3 and without buckets, it is a layer
    with parameters and the layers without parameters before it, so that a device
    gathers the parameters of one layer at a time. With recompute="sqrt", the L layers
    of the stage, or of each bucket, are about sqrt(L) units, whose inputs are kept
    (Chen et al. 2016, arXiv 1604.06174, section 4).

    Args:
        layers: the layers of the stage.
        options: the network's; buckets, zero, recompute and dtype are read.
    """
    by_sqrt, buckets = options.recompute == EVERY_SQRT, options.sums.buckets
    if buckets is None and options.zero == 3 and not by_sqrt:
        buckets = LAYER
    units = [len(layers)]
    if buckets is not None:
        sizes = [known_dtype(options.dtype).itemsize * n for n in parameters_of_layers(layers)]
        cap: Any = 1 if buckets == LAYER else buckets
        caps = CAPS if buckets == DDP else [cap, cap]
        units = [len(places) for places in reversed(in_buckets(sizes, caps))]
    return list(chain(*map(sqrt_units, units))) if by_sqrt else units


def sqrt_units(n_layers: int) -> list[int]:
    """Divide L = `n_layers` layers into about sqrt(L) units; return their sizes.

    >>> sqrt_units(9), sqrt_units(5)
    ([3, 3, 3], [3, 2])
    >>> [len(sqrt_units(n)) for n in (1, 2, 3, 6, 7, 12, 13)]
    [1, 1, 2, 2, 3, 3, 4]
    """
    root = isqrt(n_layers)
    if n_layers > root * (root + 1):  # sqrt(L) is nearer to root + 1: (root + 1/2)^2 = root (root + 1) + 1/4
        root += 1
    return equal_counts(n_layers, root)


def changed(order: Schedule, units: Sequence[Sequence[int]], options: Options) -> tuple:
    """Return (order, counts, costs) with a stage for each unit.

    Add what `options` ask for: the actions R, A, or ZeRO's S, G and X.

    Args:
        order: the `Schedule` of all replicas.
        units: for each stage, the number of layers in each of its units.
        options: the network's, with the `Costs` of the stages.
    """
    n, counts, costs = list(map(len, units)), list(chain(*units)), options.costs
    if max(n) > 1:
        costs = costs_in_segments(costs, order, n, options.shards)
        order = in_segments(order, n)
    in_order = {EVERY_SQRT: "always", SELECTIVE: "never"}  # other modes have the same name in an order
    order = with_recompute(order, in_order.get(options.recompute, options.recompute))
    has_buckets = options.sums.buckets is not None
    if options.zero and order.has_copied_stages:
        order = with_zero(order, options.zero).validate()
    elif options.zero:  # one replica: each device makes its updates last, since tied layers need a flush
        order = with_updates(order)
        devices = [sorted(actions, key=lambda action: action.kind == "U") for actions in order.devices]
        order = replace(order, devices=tuple(map(tuple, devices)))
    elif has_buckets and order.has_copied_stages and not order.kinds & (MEETING | {"U"}):
        order = with_all_reduce(order)
    return order, counts, costs


# The order of a whole network.

Order = str | PathLike | Schedule | Sequence | Callable  # everything that `build` takes as a schedule


def order_of(
    layers: Sequence[Layer], loss: Loss | None, options: Options, ties: Mapping, n_batches: int | None = None
) -> tuple[Schedule, Options | None, list[int], Costs]:
    """Return the order that a network runs: (schedule, stream, counts, costs).

    Args:
        layers, loss, options: the network's.
        ties: {name: indices of the layers that share a W}.
        n_batches: the number of mini-batches in an order without a flush, see
            `order_of_replicas`.

    Returns:
        The `Schedule` of all replicas and units; None or, without a flush, the options
        with which this function makes the order of several mini-batches; the number of
        layers in each stage of the schedule; and the `Costs` of these stages.

    Raises:
        ValueError: for options that are incompatible.
    """
    order, is_stream = order_of_replicas(options, n_batches)
    check_rules(ChosenOptions(options, order, is_stream, ties))
    of_stages, stream = counts_of(options.stages, layers, loss), None
    if is_stream:
        stream = replace(options, stages=Cut(of_stages), schedule=said_by(options.schedule))
    units = [units_of(part, options) for part in cut_into_stages(layers, of_stages)]
    order, counts, costs = changed(order, units, options)
    costs.duration(order)  # raises ValueError unless costs has an entry for each stage
    return order, stream, counts, costs


def order_of_replicas(options: Options, n_batches: int | None = None) -> tuple[Schedule, bool]:
    """Return (order of D replicas of K stages, whether it has no flush).

    With a flush, the order is that of a mini-batch. Without a flush, it is that of
    `n_batches` mini-batches, with an update of each stage after each of them; left out,
    1, or as many as a given `Schedule` has.

    Asynchronous schedules have no flush, and neither have functions whose order has
    updates.

    Args:
        options: the network's. `options.schedule` is everything that `build` takes, for
            one replica and M / D micro-batches; or a `Schedule` of all replicas.
        n_batches: the number of mini-batches without a flush; None: 1, or as many as a
            given `Schedule` has.

    Raises:
        ValueError: if the schedule does not fit D, K and M.
    """
    D, K, M = options.replicas, options.stages.n, options.microbatches
    said = said_by(options.schedule)
    if D > 1 and K == 1 and said is SCHEDULES["1f1b"]:
        return data_parallel(D, M), False  # 1F1B of one stage, for any M
    is_given = isinstance(said, Schedule)
    if is_given and said.n_microbatches == M:
        D = 1  # the given schedule has all replicas
    if M % D:
        raise ValueError(
            f"{M} micro-batches over {D} replicas of {K} stage{'s' * (K > 1)}: use a multiple of {D}, so "
            "that all replicas get the same number"
        )
    n = M // D
    name = None if is_given else registered_name(said)
    if name is not None and not SCHEDULES.facts[name].flush:
        if _updates_after_several(name):
            said = partial(said, per_update=n)
        elif n != 1:
            others = [name for name in names_having(flush=False) if _updates_after_several(name)]
            raise ValueError(
                f"microbatches={n}: {name!r} makes an update after each micro-batch, so use 1; or "
                f"{' or '.join(map(repr, others))}"
            )
    order = said.validate() if is_given else build(said, None, n, stages=K).validate()
    if not (order.asynchronous or ("U" in order.kinds and not is_given)):
        if (order.n_stages, order.n_microbatches) != (K, n):
            raise ValueError(
                f"the schedule {order.name!r} is for {order.n_stages} stages and {order.n_microbatches} "
                f"micro-batches, but there are {K} stages and {n} micro-batches"
                f"{' of each replica' * (D > 1)}: make them equal"
            )
        return in_copies(order, D), False
    if n_batches is None and is_given:  # one update for each mini-batch
        n_batches = len({i for _, _, i, _ in updates(order)})
        if n * n_batches != order.n_microbatches:
            raise ValueError(
                f"the schedule {order.name!r} makes {n_batches} updates with {order.n_microbatches} "
                f"micro-batches, but microbatches={n} for each: use {order.n_microbatches // n_batches}"
            )
    n_batches = n_batches or 1
    if not is_given and n_batches > 1:
        order = build(said, None, n_batches * n, stages=K).validate()
    _check_stream(order, K, n, n_batches)
    return in_copies(order, D, n), True


def _updates_after_several(name):
    """Tell whether the builder `name` takes the micro-batches per update."""
    return "per_update" in signature(SCHEDULES[name]).parameters


def _check_stream(order, n_stages, n, n_batches):
    """Raise `ValueError` unless a stage updates once for each `n` micro-batches."""
    M = n_batches * n
    if (order.n_stages, order.n_microbatches, order.n_copies) != (n_stages, M, 1):
        raise ValueError(
            f"the schedule {order.name!r} has {order.n_stages} stages, {order.n_microbatches} micro-batches "
            f"and {order.n_copies} copies of the network: make it with {n_stages}, {M} and 1"
        )
    applied = [[] for _ in range(n_stages)]
    for _, stage, _, microbatches in updates(order):
        applied[stage].append(sorted(microbatches))
    mini_batches = [list(range(start, start + n)) for start in range(0, M, n)]
    for stage, found in enumerate(applied):
        for number, (update, mini_batch) in enumerate(zip_longest(found, mini_batches, fillvalue=[])):
            if update != mini_batch:
                raise ValueError(
                    f"the schedule {order.name!r} applies micro-batches {update} in update {number} of stage "
                    f"{stage}, but mini-batch {number} is {mini_batch}: "
                    "put one U after the last backward of each"
                )
