"""Functions that change a schedule: recomputation, replicas, updates, segments."""

from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import accumulate, chain, zip_longest
from typing import Any

from ..checks import python_number, shown, whole_number, whole_numbers
from .actions import CLOSING, INPUT, MEETING, RULES, WEIGHT, Action, Overlap
from .costs import (
    NO_COSTS, Costs, check_number_of_actions, checked_costs, divide_exactly, one_for_each,
)
from .schedule import Schedule, checked_schedule


# mode -> what it adds to a schedule's name
RECOMPUTE = {"never": "", "always": "+recompute", "except_last": "+recompute except last"}


def with_recompute(schedule: Schedule, mode: str = "always") -> Schedule:
    """Return `schedule` with an `R` before each `B` or `I`: recompute the forward.

    An R needs no gradient, so a device does it while it waits for one.

    Args:
        schedule: a `Schedule` without R.
        mode: "always"; "never"; or "except_last", where the last micro-batch of each
            replica keeps its caches: in GPipe its backward follows at once on the last
            device, so that a recomputation would delay it.

    Source: GPipe, section 2.3; Chen et al. 2016, arXiv 1604.06174; torchgpipe's
    checkpoint="except_last", arXiv 2004.09910.

    >>> from ..schedules.one_stage_each import gpipe
    >>> print(with_recompute(gpipe(1, 2), "except_last"))
    device 0: 0F0 0F1 0B1 0R0 0B0
    """
    checked_schedule(schedule)
    if not isinstance(mode, str) or mode not in RECOMPUTE:
        modes = ", ".join(map(repr, RECOMPUTE))
        raise ValueError(
            f"recompute={shown(mode)} must be one of {modes}; or 'sqrt' or 'selective', for a network"
        )
    if mode == "never":
        return schedule
    refuse(schedule, "R", "recomputes already: use it as it is, with recompute='never'")
    last = {copy: i for i, copy in enumerate(schedule.copies)}  # {replica: its last micro-batch}
    kept = last.values() if mode == "except_last" else ()
    devices = []
    for order in schedule.devices:
        steps: list[Action | Overlap] = []
        for action in order:
            for kind, stage, i in action.parts:
                if i not in kept and kind in RULES and RULES[kind].adds & INPUT:
                    steps.append(Action("R", stage, i))
            steps.append(action)
        devices.append(tuple(steps))
    return replace(schedule, devices=tuple(devices), name=schedule.name + RECOMPUTE[mode])


def in_copies(schedule: Schedule, n: int, per: int | None = None) -> Schedule:
    """Return the schedule of `n` replicas on different devices: data parallelism.

    Each mini-batch then has n * per micro-batches, and replica c takes `per` of them,
    from number c * per. A schedule with several replicas, such as Chimera's, gets n
    times as many. If it has updates, but no sums, an `A` comes before each `U`.

    Args:
        schedule: the `Schedule` of each replica.
        n: the number of replicas.
        per: how many micro-batches a replica has of each mini-batch, if the schedule
            has several mini-batches without a flush; left out, all micro-batches.

    >>> from ..schedules.one_stage_each import gpipe
    >>> print(in_copies(gpipe(1, 2), 2))
    device 0: 0F0 0F1 0B1 0B0
    device 1: 0F2 0F3 0B3 0B2
    >>> from ..schedules.asynchronous import pipedream
    >>> print(in_copies(pipedream(1, 2), 2, per=1))
    device 0: 0F0 0B0 0A0 0U0 0F2 0B2 0A2 0U2
    device 1: 0F1 0B1 0A1 0U1 0F3 0B3 0A3 0U3
    """
    checked_schedule(schedule)
    n, M = whole_number("n", n, 1), schedule.n_microbatches
    per = M if per is None else whole_number("per", per, 1)
    if M % per:
        raise ValueError(
            f"per={per} does not divide the {M} micro-batches of {schedule.name!r}: use the number of "
            "micro-batches in each mini-batch"
        )
    check_number_of_actions(n * sum(map(len, schedule.devices)))
    if n == 1:
        return schedule
    with_sums = "U" in schedule.kinds and not schedule.kinds & MEETING
    devices, copy_of, versions = [], [0] * (n * M), [[0] * (n * M) for _ in schedule.versions]
    for c in range(n):
        places = [i // per * per * n + c * per + i % per for i in range(M)]  # numbers in replica c
        for order in schedule.devices:
            steps: list[Action | Overlap] = []
            for action in order:
                parts = [part._replace(microbatch=places[part.microbatch]) for part in action.parts]
                if with_sums and action.kind == "U":
                    steps.append(parts[0]._replace(kind="A"))
                steps.append(parts[0] if len(parts) == 1 else Overlap(*parts))
            devices.append(tuple(steps))
        for i, place in enumerate(places):
            copy_of[place] = c * schedule.n_copies + schedule.copies[i]
            for row, of_one in zip(versions, schedule.versions, strict=True):
                row[place] = of_one[i]
    return replace(
        schedule, devices=tuple(devices), n_microbatches=n * M, name=f"{schedule.name} in {n} copies",
        copy_of=tuple(copy_of), versions=tuple(map(tuple, versions)),
    )


def with_all_reduce(schedule: Schedule) -> Schedule:
    """Return `schedule` with an `A` for each stage: sums travel during backwards.

        device 0: ... 1B3 1B2 0B3 0B2    becomes    ... 1B3 1B2 1A3 0B3 0B2 0A3

    Each A comes as early as it can: right after the stage's last backward, or after the
    A of a later stage. All devices take the A from the last stage to the first: in one
    order, they never wait for each other in a circle. A schedule with A, U or faults is
    refused. Source: Li et al. 2020, arXiv 2006.15704, section 3.2.

    >>> from ..schedules.one_stage_each import gpipe
    >>> print(with_all_reduce(in_copies(gpipe(1, 2), 2)))
    device 0: 0F0 0F1 0B1 0B0 0A1
    device 1: 0F2 0F3 0B3 0B2 0A3
    """
    for kind in sorted(MEETING):
        refuse(schedule, kind, f"has {RULES[kind].name}s already: use it as it is")
    refuse(schedule, "U", "has updates already, which come after the all-reduces: add updates last")
    schedule.validate()
    devices = []
    for device, order in enumerate(schedule.devices):
        additions, position = [], 0
        for stage, (its_last, microbatch) in sorted(_last_gradients(schedule, device).items(), reverse=True):
            position = max(position, its_last)
            additions.append((position, Action("A", stage, microbatch)))
        devices.append(_with(order, additions))
    return replace(schedule, devices=tuple(devices), name=schedule.name + "+all-reduce")


def with_updates(schedule: Schedule) -> Schedule:
    """Return `schedule` with a `U` for each stage, which updates its weights.

    Each U comes right after the stage's last backward. With all-reduces, which are
    added if replicas of a stage are on several devices, updates come at the end: an
    update waits for its sum, and all actions after it would, too. A schedule with U or
    faults is refused.

    >>> from ..schedules.one_stage_each import one_f_one_b
    >>> print(with_updates(one_f_one_b(2, 2)))
    device 0: 0F0 0F1 0B0 0B1 0U1
    device 1: 1F0 1B0 1F1 1B1 1U1
    """
    refuse(schedule, "U", "has updates already: use it as it is")
    schedule.validate()
    if schedule.has_copied_stages and "A" not in schedule.kinds:
        schedule = with_all_reduce(schedule)
    devices = []
    for device, order in enumerate(schedule.devices):
        last = _last_gradients(schedule, device).items()
        additions = [(position, Action("U", stage, microbatch)) for stage, (position, microbatch) in last]
        if "A" in schedule.kinds:
            sums = [part for part in schedule.parts(device) if part.kind == "A"]
            additions = [(len(order) - 1, part._replace(kind="U")) for part in sums]
        devices.append(_with(order, additions))
    return replace(schedule, devices=tuple(devices), name=schedule.name + "+updates")


def refuse(schedule: Schedule, kind: str, why: str) -> None:
    """Raise `ValueError`, which says `why`, if `schedule` has actions of `kind`."""
    if kind in checked_schedule(schedule).kinds:
        raise ValueError(f"the schedule {schedule.name!r} {why}")


def _last_gradients(schedule, device):
    """Return {stage: (position of its last gradient, largest micro-batch)}."""
    found = {}
    for position, action in enumerate(schedule.devices[device]):
        for kind, stage, microbatch in action.parts:
            if RULES[kind].adds & WEIGHT:
                largest = max(microbatch, found[stage][1]) if stage in found else microbatch
                found[stage] = position, largest
    return found


def _with(order, additions):
    """Return `order` with each action of [(position, action)] put after `position`."""
    after = [[] for _ in order]
    for position, action in additions:
        after[position].append(action)
    return tuple(step for action, more in zip(order, after) for step in (action, *more))


# Orders in which each replica has a shard of gradients and parameters: ZeRO.

def with_zero(schedule: Schedule, level: int, prefetch: int = 1) -> Schedule:
    """Return `schedule` with ZeRO's actions: each replica updates a shard of a stage.

        S   reduce-scatter: each device gets the sum of its shard of the gradients
        U   updates this shard; the optimizer has no state for the others
        G   gather: each device gets the shards of the parameters that the others have
        X   free: each device keeps only its own shard of the parameters

    Args:
        schedule: a `Schedule` of several replicas.
        level: 1: all S come after the device's last backward; until then a device keeps
            all its gradients.
            2: each S comes as early as the A of `with_all_reduce`; a device keeps a
            shard of most gradients.
            3: FSDP, where a device keeps only its shard of the parameters, too. A G
            brings the others before each forward and each backward of the stage, and an
            X then frees them.
        prefetch: with level 3, how many pieces of work earlier a G begins, so that it
            travels meanwhile. The device then has all parameters of that many more
            stages at once.

    Each of N replicas sends 2 (N - 1)/N of a stage's parameters with level 1 or 2, as
    in an all-reduce. With level 3 it sends (2 n + 1) (N - 1)/N of them, for the n
    micro-batches of a replica. A schedule with A, S, U or faults is refused; with level
    3, also one whose replicas have unequal work. Sources: Rajbhandari et al. 2020,
    arXiv 1910.02054; Zhao et al. 2023, arXiv 2304.11277.

    >>> from ..schedules.one_stage_each import data_parallel
    >>> two = data_parallel(2, 2, stages=2)
    >>> print(with_zero(two, 1))
    device 0: 0F0 1F0 1B0 0B0 1S0 0S0 1U0 1G0 0U0 0G0
    device 1: 0F1 1F1 1B1 0B1 1S1 0S1 1U1 1G1 0U1 0G1
    >>> print(with_zero(two, 2).devices[0][3])
    1S0
    >>> print(*with_zero(two, 3, prefetch=0).devices[0])
    0G0 0F0 0X0 1G0 1F0 1X0 1G0 1B0 1X0 1S0 0G0 0B0 0X0 0S0 1U0 0U0
    """
    if python_number(level) not in (1, 2, 3):
        raise ValueError(f"zero={shown(level)} must be 1, 2 or 3")
    prefetch = whole_number("prefetch", prefetch, 0)
    summed = with_all_reduce(schedule)
    devices = []
    for order in summed.devices:
        scatters = [action._replace(kind="S") for action in order if action.kind == "A"]
        if level == 1:
            work = [action for action in order if action.kind != "A"] + scatters
        else:
            work = [action._replace(kind="S") if action.kind == "A" else action for action in order]
        if level == 3:
            work = _in_parts(work, prefetch)
        ends = [action._replace(kind=kind) for action in scatters for kind in ("U" if level == 3 else "UG")]
        devices.append((*work, *ends))
    found = replace(schedule, devices=tuple(devices), name=f"{schedule.name}+zero {level}")
    return found.validate() if level == 3 else found


def _in_parts(order, prefetch):
    """Return `order` with a `G` before and an `X` after each piece of work on a stage.

    A piece is a forward, or all actions of a backward that follow each other: 0R0 0B0,
    or 0I0 0W0.
    """
    pieces = []  # [(stage, microbatch), positions of its first and its last action, whether it is a forward]
    for position, action in enumerate(order):
        for kind, stage, i in action.parts if action.kind not in CLOSING else ():
            last = pieces[-1] if pieces else None
            if last and last[0] == (stage, i) and last[2] == position - 1 and "F" not in (kind, last[3]):
                last[2] = position
            else:
                pieces.append([(stage, i), position, position, kind])
    before, after = [[[] for _ in order] for _ in range(2)]
    free_from: dict = {}  # stage -> the position after which its last piece of work has freed it
    for number, ((stage, i), _, last, _) in enumerate(pieces):
        # a G must not come before the X of the stage's last piece, which would free the gathered parameters
        early = pieces[max(0, number - prefetch)][1]
        before[max(early, free_from.get(stage, -1) + 1)].append(Action("G", stage, i))
        after[last].append(Action("X", stage, i))
        free_from[stage] = last
    return list(chain(*(
        (*gathers, action, *frees) for gathers, action, frees in zip(before, order, after)
    )))


# Recomputation in smaller pieces: a device's stage cut into several.

def in_segments(schedule: Schedule, n: int | Sequence[int]) -> Schedule:
    """Return `schedule` with each stage cut into `n` consecutive ones on its device.

        device 0: F0 ... B0    becomes, for n = 2,    0F0 1F0 ... 1B0 0B0

    With recomputation, a device then keeps the input of each segment, and the caches of
    one segment at a time. For a micro-batch and a stage of L equal layers that is about
    n + L / n times the size of a layer, instead of L; it is least for n = sqrt(L). Each
    segment has its own all-reduce and update. Source: Chen et al. 2016, arXiv
    1604.06174, section 4.

    Args:
        schedule: the `Schedule` with whole stages.
        n: a number, or a list with one for each stage.

    >>> from .changes import with_recompute
    >>> from ..schedules.one_stage_each import gpipe
    >>> print(with_recompute(in_segments(gpipe(1, 1), 2)))
    device 0: 0F0 1F0 1R0 1B0 0R0 0B0
    """
    lengths = _for_each_stage(n, checked_schedule(schedule).n_stages)
    check_number_of_actions(max(lengths) * sum(map(len, schedule.devices)))
    segments = [range(end - length, end) for end, length in zip(accumulate(lengths), lengths)]
    devices = tuple(
        tuple(segment for action in order for segment in _segments(action, segments))
        for order in schedule.devices
    )
    versions = tuple(row for row, length in zip(schedule.versions, lengths) for _ in range(length))
    name = f"{schedule.name} in {lengths[0] if len(set(lengths)) == 1 else lengths} segments"
    return replace(schedule, devices=devices, n_stages=sum(lengths), name=name, versions=versions)


def costs_in_segments(
    costs: Costs, schedule: Schedule, n: int | Sequence[int], shards: int = 1
) -> Costs:
    """Return the `Costs` of the stages that `in_segments` makes, equal shares.

    The last segment of a stage sends the message of the stage, the others send to their
    own device. A tick is the same `share` of the network as before, with `shards`
    devices for each of the schedule. `n` is as for `in_segments`.

    >>> from ..schedules.one_stage_each import gpipe
    >>> costs = costs_in_segments(Costs(F=[2, 3], B=4, message_bytes=8), gpipe(2, 1), [1, 2])
    >>> costs.F, costs.B, costs.message_bytes
    ([2, Fraction(3, 2), Fraction(3, 2)], [4, 2, 2], [8, 0, 8])
    """
    lengths = _for_each_stage(n, checked_schedule(schedule).n_stages)
    check_number_of_actions(sum(lengths))
    costs = checked_costs(costs).by_stage(schedule.placement, schedule.stages_on)
    costs.table(schedule.sharing)
    sent = costs.bytes_sent(schedule.n_stages)
    segments = {"message_bytes": [[0] * (length - 1) + [size] for size, length in zip(sent, lengths)]}
    for name in (field.name for field in fields(costs)):
        cost = getattr(costs, name)
        if cost is not None and name not in (*segments, *NO_COSTS):
            parts = lengths
            if not hasattr(cost, "__len__"):
                parts = [a * b for a, b in zip(lengths, schedule.sharing)]
            whole = one_for_each(name, cost, "costs", schedule.n_stages, "stage")
            segments[name] = [
                [divide_exactly(*pair)] * length for *pair, length in zip(whole, parts, lengths)
            ]
    lists: dict[str, Any] = {name: list(chain(*of_stages)) for name, of_stages in segments.items()}
    tick = costs.tick_of(schedule.sharing, shards=whole_number("shards", shards, 1))
    return Costs(**lists, unit=costs.unit, share=None if tick is None else tick.share)


def _for_each_stage(n, n_stages):
    lengths = one_for_each("n", n, "numbers of segments", n_stages, "stage")
    return list(whole_numbers("n", lengths, 1))


def _segments(action, segments):
    """Return an action for each segment; an overlap pairs those of its two actions."""
    if action.kind == "F&B":
        pairs = zip_longest(*(_segments(part, segments) for part in action.parts))
        return [Overlap(*pair) if None not in pair else pair[0] or pair[1] for pair in pairs]
    kind, stage, microbatch = action
    # A backward and its kin go from the last segment to the first; a W waits for none, and goes up as F does.
    order = segments[stage] if kind in "FW" else reversed(segments[stage])
    return [Action(kind, segment, microbatch) for segment in order]
