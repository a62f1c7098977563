"""The run of a schedule without arrays, also in replicas and shards."""

import csv
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from functools import partial
from io import StringIO
from itertools import pairwise, product
from math import lcm
from typing import Any

from ..checks import one_of, whole_number
from ..cluster import Bytes, Counted, DeadlockError, Link, Port, Trace, UnreceivedError
from ..collectives import ALL_REDUCES, OWNERS, Group, all_reduce
from .changes import in_copies, with_all_reduce, with_zero
from .costs import Costs, checked_costs
from .faults import stop_of
from .programs import Wires, WithoutNumbers, cluster_of, perform_without_numbers, programs_of_schedule
from .reading import build
from .schedule import Schedule


def simulate(
    schedule: object, costs: Costs = Costs(), link: Link | dict = Link(),
    all_reduce: str = OWNERS, ports: Port | Sequence[Port] = (), *, devices: int | None = None,
    microbatches: int | None = None, as_far_as_it_goes: bool = False,
) -> Trace:
    """Return the `Trace` of `schedule`: when actions start and end, why devices wait.

    The devices run the programs of a pipeline, but compute no values.

    Args:
        schedule: a `Schedule`, or its name, text, file or function, as for `build`.
        costs: the ticks of each action, and the bytes of each message.
        link: a `Link` for all pairs of devices, or a dict {(source, to): Link}.
        all_reduce: as for `Sums`.
        ports: as for `Parallel`.
        devices, microbatches: as for `build`; only for a name or a function.
        as_far_as_it_goes: whether to run an order with faults, too, up to the actions
            at which its devices stop; the `stop` of the trace says where and why.

    Raises:
        ScheduleError: the schedule has faults.
        ValueError: costs or links do not fit it.

    >>> from minipipe.schedules import gpipe
    >>> simulate(gpipe(4, 8)).makespan      # (M + K - 1)(F + B) = (8 + 4 - 1)(1 + 2)
    33
    """
    checked_costs(costs)
    one_of("all_reduce", all_reduce, ALL_REDUCES)
    schedule = build(schedule, devices, microbatches)
    stop = None
    if as_far_as_it_goes:
        stop = stop_of(schedule)
    else:
        schedule.validate()
    perform_on, n_done = perform_without_numbers(costs, schedule.n_stages), stop.n_done if stop else None
    programs = programs_of_schedule(Wires(schedule), perform_on, all_reduce=all_reduce, n_done=n_done)
    cluster = cluster_of(programs, schedule, costs, link, ports=ports)
    if stop is not None:
        cluster.record.stop = stop
        with suppress(DeadlockError, UnreceivedError):
            cluster.run()
        return cluster.trace
    even = costs.even(schedule.sharing)
    if even is not None:
        cluster.record.even = partial(simulate, schedule, even, link, all_reduce, ports)
    return cluster.run()


# The playground's runs: replicas and shards that exchange and hold bytes, without a network.

EXCHANGING = "FRBI"  # kinds of work within which shards sum activations, or gradients of these
# columns of a profile, which must have the first three
COLUMNS = ("F", "I", "W", "sent", "activations", "parameters")


def stages_of_profile(text: str, n_stages: int) -> dict[str, list]:
    """Return {column: a number for each stage} of a CSV with a row for each layer.

    Args:
        text: a table with the `COLUMNS` F, I and W, in ticks. Three more, in bytes, may
            be left out: a layer's message, activations per micro-batch, and parameters.
        n_stages: the number of stages, which get equally many layers if possible.

    >>> stages_of_profile("F, I, W, sent\\n1, 1, 1, 8\\n2, 1, 0.5, 4", 1)["W"]
    [Fraction(3, 2)]
    """
    rows = list(csv.DictReader(StringIO(text.strip()), skipinitialspace=True))
    names = set(rows[0]) if rows else set()
    if not set(COLUMNS[:3]) <= names or len(rows) < n_stages:
        raise ValueError(
            f"a profile needs the columns F, I, W and a row for each layer, at least {n_stages}: it has "
            f"{len(rows)} rows, with {', '.join(map(str, names)) or 'no column'}; others that count are "
            f"{', '.join(COLUMNS[3:])}"
        )
    cuts = [stage * len(rows) // n_stages for stage in range(n_stages + 1)]
    found = {}
    for name in COLUMNS:
        layers = [Fraction(row.get(name) or 0) for row in rows]
        of_stages = [layers[start:end] for start, end in pairwise(cuts)]
        found[name] = [each[-1] if name == "sent" else sum(each) for each in of_stages]
    return found


def simulate_split(
    schedule: Schedule, costs: Costs, latency: Any = 0, transfer: Any = 0, *, copies: int = 1,
    zero: int = 0, shards: int = 1, gradients: Any = 0, activations: Any = 0, profile: str | None = None,
) -> Trace:
    """Return the `Trace` of a schedule in several replicas and shards.

    Args:
        schedule: the `Schedule` of one replica. Alone, it is run as far as it goes; in
            replicas or shards it must have no faults.
        costs: the ticks of each action.
        latency: ticks between the end of a transfer and the arrival.
        transfer: ticks for which a message between stages occupies its link.
        copies: D, the replicas of the network, which all-reduce their gradients.
        zero: the level of ZeRO among the replicas; 0: none.
        shards: T, the shards of each layer: T devices with consecutive numbers for one
            of the schedule do the same actions.
        gradients: ticks that a link would need for all gradients of a device.
        activations: ticks that a link would need for all that the shards of a device
            sum in a forward, and again in a backward.
        profile: a CSV as for `stages_of_profile`. It replaces `costs`, devices hold its
            bytes, and `transfer` is that of its largest message.

    >>> from ..schedules import gpipe
    >>> print(simulate_split(gpipe(2, 4), Costs(), copies=2, gradients=4).makespan)
    19
    """
    copies, shards = whole_number("copies", copies, 1), whole_number("shards", shards, 1)
    # a link carries `unit` bytes in a tick, so that messages and the parts of exchanges are whole bytes
    ticks = (transfer, gradients, activations)
    unit: Any = Fraction(
        lcm(*(Fraction(each).denominator for each in ticks)) * lcm(*schedule.sharing) * copies * shards
    )
    sent: Any = int(unit * transfer)
    held: tuple = ()
    if profile:
        if zero:
            raise ValueError("the bytes of a profile are counted without ZeRO: leave one of the two out")
        stages = stages_of_profile(profile, schedule.n_stages)
        costs = Costs(F=stages["F"], I=stages["I"], W=stages["W"])
        held = stages["activations"], stages["parameters"]
        if any(stages["sent"]) and transfer:
            sent, unit = stages["sent"], max(stages["sent"]) / transfer
    costs, link = replace(costs, message_bytes=sent), Link(latency, unit) if any(ticks) else Link(latency)
    if copies == shards == 1 and not profile:
        return simulate(schedule, costs, link, as_far_as_it_goes=True)
    whole = in_copies(schedule.validate(), copies)
    if zero:
        whole = with_zero(whole, zero)
    elif copies > 1 and "U" not in whole.kinds:
        whole = with_all_reduce(whole)
    shared, summed = ([int(unit * each / n) for n in schedule.sharing] for each in (activations, gradients))
    trace = _traced(whole, costs, link, shards, shared, summed, *held)
    trace.names = names_in_split(copies, len(schedule.devices), shards)
    return trace


def _traced(schedule, costs, link, shards, shared, gradients, activations=(), parameters=()):
    """Run a schedule whose stages exchange and hold bytes; return its `Trace`.

    Args:
        shared: for each stage, the bytes that its shards sum in each forward, and in
            each backward, of a micro-batch.
        gradients: those that its replicas sum.
        activations: those that a device keeps of a micro-batch until its backward; left
            out, no bytes are counted.
        parameters: those that a device always holds.
    """
    n = shards * len(schedule.devices)
    held = [Counted(parameters=0, activations=0) for _ in range(n)]
    work = perform_without_numbers(costs, schedule.n_stages)

    def keep(device, action, sign):
        """Count what `device` keeps before an action, or frees after it (sign -1)."""
        for part in action.parts if activations else ():
            if part.alive * sign > 0:
                held[device]["activations"] += sign * activations[part.stage]

    def perform_on(device):
        first = device - device % shards
        group = Group(device - first, range(first, first + shards), f"shards of device {first // shards}: ")

        def perform(action, inputs):
            keep(device, action, 1)
            results = yield from work(device)(action, inputs)
            keep(device, action, -1)
            for part in action.parts if shards > 1 else ():
                if part.kind in EXCHANGING:
                    yield from all_reduce(group, Bytes(shared[part.stage]))
            return results

        return perform

    programs: list = [None] * n
    for shard in range(shards):
        wires = Wires(schedule, ranks=range(shard, n, shards))
        places = [(stage, device) for device in wires.ranks for stage in wires.stages_on(device)]
        stages = {place: WithoutNumbers(gradients[place[0]]) for place in places}
        programs[shard::shards] = programs_of_schedule(wires, perform_on, stages)
        for stage, device in places if activations else ():
            held[device]["parameters"] += parameters[stage]
    holdings = [partial(Counted, each) for each in held] if activations else None
    shares = [n_stages for n_stages in schedule.stages_on for _ in range(shards)]
    return cluster_of(programs, schedule, costs, link, holdings, shares=shares).run()


def names_in_split(copies: int, devices: int, shards: int) -> list[str]:
    """Return the names of the rows of a picture, such as "device 1: p0 t1".

    They tell the number among `copies` (d), `devices` of one (p) and `shards` (t). The
    result is [] where only one of these is above 1.
    """
    axes = [(letter, size) for letter, size in zip("dpt", (copies, devices, shards)) if size > 1]
    if len(axes) < 2:
        return []
    places = product(*(range(size) for _, size in axes))
    words = (" ".join(f"{letter}{n}" for (letter, _), n in zip(axes, place)) for place in places)
    return [f"device {number}: {word}" for number, word in enumerate(words)]
