"""The order of actions that a pipeline runs: of one mini-batch, or of a stream of many without a flush."""

from functools import partial
from inspect import signature
from itertools import zip_longest

from ..checks import one_of
from ..layers.recomputing import SELECTIVE
from ..schedules import (
    RECOMPUTE, SCHEDULES, Schedule, build_for_stages, is_name, names_having, with_recompute,
)
from ..schedules.counting import check_versions, updates
from .every_sqrt import EVERY_SQRT


def mode_of(recompute):
    """The name of a mode of recomputation, for all that `Pipeline` takes."""
    if isinstance(recompute, bool):
        return "always" if recompute else "never"
    return one_of("recompute", recompute, [*RECOMPUTE, EVERY_SQRT, SELECTIVE])


def checked_order(schedule, n_stages, n_microbatches, mode):
    """(order, stream) of a pipeline; `ValueError` for what does not fit it.

    For an order of one mini-batch, that is its `Schedule`, and None. For one without a flush, it is the
    `Schedule` of its first mini-batch, and a function: stream(n_batches) is the `Schedule` of so many, with
    an update of each stage for each of them.

    schedule: a name, a `Schedule`, or a function (n_stages, number of micro-batches) -> `Schedule`. A
        function whose order has updates goes on without a flush; so do the names without a flush.
    n_stages: its stages.
    n_microbatches: the parts of a mini-batch.
    mode: of recomputation, by its name.
    """
    make = _builder(schedule, n_microbatches)
    order = _made(make, n_stages, n_microbatches)
    has_a_flush = not order.asynchronous and (order is schedule or "U" not in order.kinds)
    if has_a_flush:
        if (order.n_stages, order.n_microbatches) != (n_stages, n_microbatches):
            raise ValueError(
                f"the schedule {order.name!r} is for {order.n_stages} stages and {order.n_microbatches} "
                f"micro-batches, but n_stages={n_stages} and n_microbatches={n_microbatches}: make them equal"
            )
        return with_recompute(order, "never" if mode == EVERY_SQRT else mode), None
    if mode == EVERY_SQRT:
        raise ValueError(
            "recompute='sqrt' is for orders of one mini-batch: "
            "use 'always' for one that goes on without a flush"
        )

    stream = partial(_stream_of, make, n_stages, n_microbatches, mode)
    return stream(_n_mini_batches(order, n_microbatches) if order is schedule else 1), stream


def _stream_of(make, n_stages, n_microbatches, mode, n_batches):
    """The `Schedule` of so many mini-batches."""
    order = _made(make, n_stages, n_batches * n_microbatches)
    _check_stream(order, n_stages, n_microbatches, n_batches)
    return with_recompute(order, mode)


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


def check_updates(order, stream, ties):
    """`ValueError` for tied weights in an order whose updates do not wait for a sum over stages.

    order, stream: as `checked_order` returns them.
    ties: {name: the layers that share a W}.
    """
    if not ties or "U" not in order.kinds:
        return
    if "S" in order.kinds:
        raise ValueError(
            f"tie={next(iter(ties))!r}: the gradient of tied weights is a sum over layers, of which no "
            f"device has all parts after an S, as the order of {order.name!r} has: use A"
        )
    if not (stream is None and _updates_at_the_end(order)):
        raise ValueError(
            f"tie={next(iter(ties))!r}: tied weights need a flush, which the order of {order.name!r} does "
            "not have on each device: put all its U behind all other actions"
        )


def check_updates_by(optimizer, order):
    """`ValueError` unless `optimizer` can make the updates of this order."""
    if "S" in order.kinds and optimizer.needs_whole_parameters:
        raise ValueError(
            f"{type(optimizer).__name__} looks at whole parameters, of which each device has a part after an "
            f"S, as the order of {order.name!r} has: use A, or an optimizer that takes each number by itself"
        )


def _updates_at_the_end(order):
    """Whether each device makes all its updates behind its last other action."""
    for device in range(len(order.devices)):
        kinds = [part.kind for part in order.parts(device)]
        if "U" in kinds and set(kinds[kinds.index("U"):]) != {"U"}:
            return False
    return True
