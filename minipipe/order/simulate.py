"""The run of a schedule without arrays."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from ..checks import one_of
from ..cluster import DeadlockError, Link, Port, Trace, UnreceivedError
from ..collectives import ALL_REDUCES, OWNERS
from ..registry import Registry
from .costs import Costs, checked_costs
from .faults import stop_of
from .programs import Wires, cluster_of, perform_without_numbers, programs_of_schedule
from .reading import build


@dataclass(frozen=True)
class ForesightFacts:
    """The facts of a way to predict the bytes of a run. needs: what it is made from."""

    needs: str


# name -> function (schedule, what it needs) -> object with wires, perform_on, stages, sum_tied and holdings()
FORESIGHTS = Registry("minipipe.planning", ForesightFacts)


def simulate(
    schedule: object, costs: Costs = Costs(), link: Link | dict = Link(), footprints: object = None,
    all_reduce: str = OWNERS, ports: Port | Sequence[Port] = (), *, devices: int | None = None,
    microbatches: int | None = None, as_far_as_it_goes: bool = False,
) -> Trace:
    """Return the `Trace` of `schedule`: when actions start and end, why devices wait.

    It runs the programs of a pipeline, without their functions.

    Args:
        schedule: a `Schedule`, or its name, text, file or function, as for `build`.
        costs: the ticks of each action, and the bytes of each message.
        link: a `Link` for all pairs of devices, or a dict {(source, to): Link}.
        footprints: the bytes of a micro-batch on each stage, by `footprints` or
            `measure`, or a list of these, one for each micro-batch, where their sizes
            differ. The trace then has the bytes that each device will hold, and
            messages have their size.
        all_reduce: as for `Sums`.
        ports: as for `Parallel`.
        devices, microbatches: as for `build`; only for a name or a function.
        as_far_as_it_goes: whether to run an order with faults, too, up to the actions
            at which its devices stop; the `stop` of the trace says where and why. With
            footprints, such an order is refused.

    Raises:
        ScheduleError: the schedule has faults.
        ValueError: costs, links or footprints do not fit it.

    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(4, 8)).makespan      # (M + K - 1)(F + B) = (8 + 4 - 1)(1 + 2)
    33
    """
    checked_costs(costs)
    one_of("all_reduce", all_reduce, ALL_REDUCES)
    schedule = build(schedule, devices, microbatches)
    stop = None
    if as_far_as_it_goes and footprints is None:
        stop = stop_of(schedule)
    else:
        schedule.validate()
    if footprints is None:
        perform_on, n_done = perform_without_numbers(costs, schedule.n_stages), stop.n_done if stop else None
        programs = programs_of_schedule(Wires(schedule), perform_on, all_reduce=all_reduce, n_done=n_done)
        holdings = None
    else:
        foreseen = FORESIGHTS.load()["of footprints"](schedule, footprints)
        programs = programs_of_schedule(
            foreseen.wires, foreseen.perform_on, foreseen.stages, foreseen.sum_tied, all_reduce
        )
        holdings = foreseen.holdings()
    cluster = cluster_of(programs, schedule, costs, link, holdings, ports=ports)
    if stop is not None:
        cluster.record.stop = stop
        with suppress(DeadlockError, UnreceivedError):
            cluster.run()
        return cluster.trace
    even = costs.even(schedule.sharing)
    if even is not None:
        cluster.record.even = partial(simulate, schedule, even, link, footprints, all_reduce, ports)
    return cluster.run()
