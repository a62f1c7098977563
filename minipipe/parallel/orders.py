"""The order of actions that a network runs: of one mini-batch, or of a stream of many without a flush."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from inspect import signature
from itertools import zip_longest
from typing import NamedTuple

from ..layers import Layer
from ..losses import Loss
from ..order import Costs, Schedule, in_copies
from ..order.counting import check_versions, updates
from ..partitioning.partition import counts_of, cut
from ..schedules import SCHEDULES, build_for_stages, data_parallel, is_name, names_having
from .options import Options, Split
from .rules import Setting, check_rules
from .units import changed, in_units, units_of


Order = str | Schedule | Callable[[int, int], Schedule]  # what a network takes as its schedule


class Ordered(NamedTuple):
    """What a network runs.

    schedule: of all copies and units; of a stream, for one mini-batch.
    stream: None; or, where there is no flush, stream(n_batches) is the `Schedule` of so many mini-batches.
    counts: how many layers each of its stages has.
    costs: of these stages.
    """

    schedule: Schedule
    stream: Callable | None
    counts: list[int]
    costs: Costs


def order_of(layers: Sequence[Layer], loss: Loss, options: Options, ties: Mapping) -> Ordered:
    """Return what a network of these layers runs; raise `ValueError` for options that do not go together.

    ties: {name: the layers that share a W}.
    """
    split, memory, sums = options.split, options.memory, options.sums
    order, stream = order_of_copies(options.schedule, split)
    check_rules(Setting(split, memory, sums, options.on, order, stream is not None, ties))
    of_stages = cut(layers, counts_of(split.stages, layers, loss))
    units = [units_of(part, memory, sums, options.weights.dtype) for part in of_stages]
    if stream is not None:
        stream = partial(_changed_stream, stream, units, options)
    order, counts, costs = in_units(order, units, options.on.costs)
    order = changed(order, memory, sums)
    costs.table(order.sharing)  # raises ValueError for costs of another number of stages
    return Ordered(order, stream, counts, costs)


def _changed_stream(stream, units, options, n_batches):
    """The order of so many mini-batches without a flush, with what the options add to it."""
    order, _, _ = in_units(stream(n_batches), units, options.on.costs)
    return changed(order, options.memory, options.sums)


def order_of_copies(schedule: Order, split: Split) -> tuple[Schedule, Callable | None]:
    """Return (order, stream) of D copies of a network of K stages; raise `ValueError` for what does not fit.

    For an order with a flush, return (its `Schedule`, None). For one without, return (the `Schedule` of the
    first mini-batch, or a given one as it is, stream): stream(n_batches) is the `Schedule` of n_batches
    mini-batches, with an update of each stage for each.

    schedule: for one copy, a name, a `Schedule` of K stages and M / D micro-batches, or a function (n_stages,
        number of micro-batches) -> `Schedule`; or a `Schedule` of all copies. A function whose order has
        updates goes on without a flush; so do the names without a flush.
    """
    D, K, M = split.D, split.K, split.M
    if D > 1 and K == 1 and isinstance(schedule, str) and schedule == "1f1b":
        return data_parallel(D, M), None  # 1F1B of one stage, which alone takes an M that D does not divide
    is_of_all = isinstance(schedule, Schedule) and (D == 1 or schedule.n_microbatches == M)
    if is_of_all:
        D = 1
    if M % D:
        raise ValueError(
            f"{M} micro-batches over {D} replicas of {K} stage{'s' * (K > 1)}: use a multiple of {D}, so "
            "that each has as many"
        )
    make, n = _builder(schedule, M // D), M // D
    order = _made(make, K, n)
    if not (order.asynchronous or ("U" in order.kinds and order is not schedule)):
        if (order.n_stages, order.n_microbatches) != (K, n):
            raise ValueError(
                f"the schedule {order.name!r} is for {order.n_stages} stages and {order.n_microbatches} "
                f"micro-batches, but there are {K} stages and {n} micro-batches"
                f"{' of each replica' * (D > 1)}: make them equal"
            )
        return in_copies(order, D), None
    stream = partial(_stream_of, make, K, n, D)
    return stream(_n_mini_batches(order, n) if order is schedule else 1), stream


def _stream_of(make, n_stages, n, D, n_batches):
    """The `Schedule` of so many mini-batches, each of `n` micro-batches in each of D copies."""
    order = _made(make, n_stages, n_batches * n)
    _check_stream(order, n_stages, n, n_batches)
    return in_copies(order, D, n)


def _builder(schedule, n):
    """A function (n_stages, number of micro-batches) -> Schedule. n: the micro-batches of a mini-batch."""
    if isinstance(schedule, Schedule):
        return lambda n_stages, n_microbatches: schedule
    if callable(schedule) and not isinstance(schedule, type):
        return schedule
    if is_name(schedule) and not SCHEDULES.facts[schedule].flush:
        if _updates_after_several(schedule):
            return partial(SCHEDULES[schedule], per_update=n)
        if n != 1:
            others = [name for name in names_having(flush=False) if _updates_after_several(name)]
            raise ValueError(
                f"n_microbatches={n}: {schedule!r} makes an update after each, so use 1; or "
                f"{' or '.join(map(repr, others))}"
            )
    return partial(build_for_stages, schedule)


def _updates_after_several(name):
    """Tell whether the builder of this name takes `per_update`, the micro-batches before each update."""
    return "per_update" in signature(SCHEDULES[name]).parameters


def _made(make, n_stages, n_microbatches):
    """The `Schedule` that a function makes, without faults."""
    order = make(n_stages, n_microbatches)
    if not isinstance(order, Schedule):
        raise ValueError(
            f"the function for the schedule returns {order!r} for {n_stages} stages and {n_microbatches} "
            "micro-batches: let it return a Schedule, such as gpipe(n_stages, n_microbatches)"
        )
    return order.validate()


def _n_mini_batches(order, n):
    """For how many mini-batches of `n` micro-batches a given schedule is: as many as it makes updates."""
    M, n_updates = order.n_microbatches, len({i for _, _, i, _ in updates(order)})
    if n * n_updates != M:
        raise ValueError(
            f"the schedule {order.name!r} makes {n_updates} updates with {M} micro-batches, but "
            f"n_microbatches={n} for each: use {M // n_updates}"
        )
    return n_updates


def _check_stream(order, n_stages, n, n_batches):
    """`ValueError` unless each stage makes one update for each mini-batch of `n` micro-batches."""
    M = n_batches * n
    if (order.n_stages, order.n_microbatches, order.n_copies) != (n_stages, M, 1):
        raise ValueError(
            f"the schedule {order.name!r} has {order.n_stages} stages, {order.n_microbatches} micro-batches "
            f"and copies of the network: {order.n_copies}; make it with {n_stages}, {M} and 1"
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
                    "put one U behind the last backward of each"
                )
    check_versions(order)
