"""The order of actions that a pipeline runs: of one mini-batch, or of many that follow each other without a flush."""

from itertools import zip_longest

from ..schedules import ASYNCHRONOUS, Schedule, build, pipedream_2bw, with_recompute
from ..schedules.counting import check_versions, updates
from .every_sqrt import EVERY_SQRT

MODES = {True: "always", False: "never"}


def checked_order(schedule, n_stages, n_microbatches, recompute):
    """(order, stream): the `Schedule` of one mini-batch, and None; or, if it has no flush, that of the first, and a function.

    stream(n_batches) is the `Schedule` of so many mini-batches, validated, with an update of each stage for each of them.

    schedule: a name, a `Schedule`, or a function (n_stages, number of micro-batches) -> `Schedule`.
    n_stages: its stages; n_microbatches: the parts of a mini-batch; ValueError where it has others.
    recompute: as for `Pipeline`.
    """
    endless = callable(schedule) or (isinstance(schedule, str) and schedule in ASYNCHRONOUS)
    if endless or (isinstance(schedule, Schedule) and schedule.asynchronous):
        if recompute == EVERY_SQRT:
            raise ValueError("recompute='sqrt' is for orders of one mini-batch: use 'always' for one that goes on without a flush")

        def stream(n_batches):
            order = _of_stream(schedule, n_stages, n_microbatches, n_batches)
            return with_recompute(order, MODES.get(recompute, recompute))

        return stream(_n_updates(schedule)), stream
    if not isinstance(schedule, Schedule):
        schedule = build(schedule, n_stages, n_microbatches)
    if (schedule.n_stages, schedule.n_microbatches) != (n_stages, n_microbatches):
        raise ValueError(
            f"the schedule {schedule.name!r} is for {schedule.n_stages} stages and {schedule.n_microbatches} micro-batches, "
            f"but n_stages={n_stages} and n_microbatches={n_microbatches}: make them equal"
        )
    mode = "never" if recompute == EVERY_SQRT else MODES.get(recompute, recompute)
    return with_recompute(schedule, mode).validate(), None


def _n_updates(schedule):
    """How many mini-batches a schedule is for; 1 if it can be made for any number."""
    return len({i for _, _, i, _ in updates(schedule)}) if isinstance(schedule, Schedule) else 1


def _of_stream(schedule, n_stages, n, n_batches):
    """The order of `n_batches` mini-batches of `n` micro-batches, as a checked `Schedule`."""
    M = n_batches * n
    order = schedule if isinstance(schedule, Schedule) else _builder(schedule, n)(n_stages, M)
    if order is schedule and n * _n_updates(order) != order.n_microbatches:
        raise ValueError(
            f"the schedule {order.name!r} makes {_n_updates(order)} updates with {order.n_microbatches} micro-batches, but "
            f"n_microbatches={n} for each: use {order.n_microbatches // _n_updates(order)}"
        )
    sizes = order.n_stages, order.n_microbatches
    if sizes != (n_stages, M) or order.n_copies > 1:
        raise ValueError(
            f"the schedule {order.name!r} has {sizes[0]} stages, {sizes[1]} micro-batches and copies of the network: "
            f"{order.n_copies}; make it with {n_stages}, {M} and 1"
        )
    order.validate()
    applied = [[] for _ in range(n_stages)]
    for _, stage, _, microbatches in updates(order):
        applied[stage].append(sorted(microbatches))
    mini_batches = [list(range(start, start + n)) for start in range(0, M, n)]
    for stage, found in enumerate(applied):
        for number, (update, mini_batch) in enumerate(zip_longest(found, mini_batches, fillvalue=[])):
            if update != mini_batch:
                raise ValueError(
                    f"the schedule {order.name!r} applies micro-batches {update} in update {number} of stage {stage}, "
                    f"but mini-batch {number} is {mini_batch}: put one U behind the last backward of each"
                )
    check_versions(order)
    return order


def _builder(schedule, per_update):
    """A function (n_stages, micro-batches of the stream) -> Schedule."""
    if callable(schedule):
        return schedule
    if schedule == "pipedream-2bw":
        return lambda n_stages, n_microbatches: pipedream_2bw(n_stages, n_microbatches, per_update)
    if per_update != 1:
        raise ValueError(
            f"n_microbatches={per_update}: {schedule!r} makes an update after each, so use 1; or 'pipedream-2bw'"
        )
    return ASYNCHRONOUS[schedule]


def updates_at_the_end(order):
    """Whether each device makes all its updates behind its last other action."""
    for device in range(len(order.devices)):
        kinds = [part.kind for part in order.parts(device)]
        if "U" in kinds and set(kinds[kinds.index("U"):]) != {"U"}:
            return False
    return True
