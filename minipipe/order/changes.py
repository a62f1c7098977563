"""Functions that change a schedule: recomputation, overlaps, copies, all-reduces and updates."""

from dataclasses import replace

from ..checks import shown
from ..arguments import argument
from .actions import Action, Overlap
from .limits import check_number_of_actions
from .rules import INPUT, MEETING, RULES, WEIGHT
from .schedule import checked_schedule

# mode -> what it adds to a schedule's name
RECOMPUTE = {"never": "", "always": "+recompute", "except_last": "+recompute except last"}


def with_recompute(schedule, mode="always"):
    """`schedule` with an `R` before each `B` or `I`: the forward again, from the stage's stashed input.

    An R needs no gradient, so a device that waits for one has its R done before it arrives.

    mode: "always"; "never"; or "except_last", where the last micro-batch of each copy keeps its caches: in
        GPipe its backward follows at once on the last device, so there a recomputation that no gap would
        hide is saved.

    A schedule that has an R already is refused. Source: GPipe, section 2.3; Chen et al. 2016, arXiv
    1604.06174; torchgpipe's checkpoint="except_last", arXiv 2004.09910.

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
    kept = set(schedule.last_of_copy) if mode == "except_last" else ()
    devices = tuple(
        tuple(step for action in order for step in (*_recomputations(action, kept), action))
        for order in schedule.devices
    )
    return replace(schedule, devices=devices, name=schedule.name + RECOMPUTE[mode])


def _recomputations(action, kept):
    """What must be recomputed before `action`: all that makes the gradient of a stage's input.

    kept: the micro-batches whose caches are there.
    """
    return [
        Action("R", stage, microbatch) for kind, stage, microbatch in action.parts
        if microbatch not in kept and kind in RULES and RULES[kind].adds & INPUT
    ]


def without_overlaps(schedule):
    """`schedule` with the forward of each overlap before its backward; each starts when it can.

    >>> from .schedule import Schedule
    >>> print(without_overlaps(Schedule.from_text(["F0 0F1&0B0 B1"])))
    device 0: 0F0 0F1 0B0 0B1
    """
    devices = tuple(
        tuple(schedule.parts(device)) for device in range(len(checked_schedule(schedule).devices))
    )
    return replace(schedule, devices=devices, name=schedule.name + "+apart")


def in_copies(schedule, n, per=None):
    """`n` copies of the network, each on devices of its own, which work by `schedule`: data parallelism.

    per: how many micro-batches a copy has of each mini-batch, in an order of several without a flush; left
        out, all that are there.

    Of n `per` micro-batches of a mini-batch, copy c has those from c `per` on. Where the schedule has several
    copies already, as Chimera's has, it has n times as many then. Where it has updates, but nothing that adds
    up gradients, an `A` comes before each `U`.

    >>> from ..schedules.one_stage_each import gpipe
    >>> print(in_copies(gpipe(1, 2), 2))
    device 0: 0F0 0F1 0B1 0B0
    device 1: 0F2 0F3 0B3 0B2
    >>> in_copies(gpipe(1, 2), 2).copy_of
    (0, 0, 1, 1)
    >>> from ..schedules.asynchronous import pipedream
    >>> print(in_copies(pipedream(1, 2), 2, per=1))
    device 0: 0F0 0B0 0A0 0U0 0F2 0B2 0A2 0U2
    device 1: 0F1 0B1 0A1 0U1 0F3 0B3 0A3 0U3
    """
    checked_schedule(schedule)
    n, M = argument("n", n), schedule.n_microbatches
    per = M if per is None else argument("per", per)
    if M % per:
        raise ValueError(
            f"per={per} does not divide the {M} micro-batches of {schedule.name!r}: use as many as each "
            "mini-batch has"
        )
    check_number_of_actions(n * sum(map(len, schedule.devices)))
    if n == 1:
        return schedule
    with_sums = "U" in schedule.kinds and not schedule.kinds & MEETING
    devices, copy_of, versions = [], [0] * (n * M), [[0] * (n * M) for _ in schedule.versions]
    for c in range(n):
        places = [i // per * per * n + c * per + i % per for i in range(M)]
        devices += [tuple(_at_places(order, places, with_sums)) for order in schedule.devices]
        for i, place in enumerate(places):
            copy_of[place] = c * schedule.n_copies + schedule.copies[i]
            for row, of_one in zip(versions, schedule.versions, strict=True):
                row[place] = of_one[i]
    return replace(
        schedule, devices=tuple(devices), n_microbatches=n * M, name=f"{schedule.name} in {n} copies",
        copy_of=tuple(copy_of), versions=tuple(map(tuple, versions)),
    )


def _at_places(order, places, with_sums):
    """The actions of `order`, each with the micro-batch at its place; `with_sums`, an `A` before each `U`."""
    for action in order:
        parts = [part._replace(microbatch=places[part.microbatch]) for part in action.parts]
        if with_sums and action.kind == "U":
            yield parts[0]._replace(kind="A")
        yield parts[0] if len(parts) == 1 else Overlap(*parts)


def with_all_reduce(schedule):
    """`schedule` with an `A` for each stage of each copy: gradients are added up while other stages compute.

        device 0: ... 1B3 1B2 0B3 0B2    becomes    ... 1B3 1B2 1A3 0B3 0B2 0A3

    Each A comes as early as it can: right behind the stage's last backward, or behind the A of a later stage,
    since all devices take them from the last stage to the first. In one order on all devices they never wait
    for each other in a circle, and backwards end in that order anyway. A schedule that has A or U already is
    refused, and so is one with faults. Source: Li et al. 2020, arXiv 2006.15704, section 3.2.

    >>> from ..schedules.one_stage_each import gpipe
    >>> print(with_all_reduce(in_copies(gpipe(1, 2), 2)))
    device 0: 0F0 0F1 0B1 0B0 0A1
    device 1: 0F2 0F3 0B3 0B2 0A3
    """
    for kind in sorted(MEETING):
        refuse(schedule, kind, f"has {RULES[kind].name}s already: use it as it is")
    refuse(schedule, "U", "has updates already, which come behind the all-reduces: add those last")
    schedule.validate()
    devices = []
    for device, order in enumerate(schedule.devices):
        additions, position = [], 0
        for stage, (its_last, microbatch) in sorted(_last_gradients(schedule, device).items(), reverse=True):
            position = max(position, its_last)
            additions.append((position, Action("A", stage, microbatch)))
        devices.append(_with(order, additions))
    return replace(schedule, devices=tuple(devices), name=schedule.name + "+all-reduce")


def with_updates(schedule):
    """`schedule` with a `U` for each stage of each copy: with that, a mini-batch ends in its order.

    Each U comes right behind the stage's last backward. Where there are all-reduces, a device has its updates
    at the end: an update waits for the sum, and whatever came behind it would wait, too. Where copies of a
    stage are on several devices and there are no all-reduces yet, `with_all_reduce` is applied first. A
    schedule that has U already is refused, and so is one with faults.

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
            additions = [(len(order) - 1, part._replace(kind="U")) for part in order if part.kind == "A"]
        devices.append(_with(order, additions))
    return replace(schedule, devices=tuple(devices), name=schedule.name + "+updates")


def refuse(schedule, kind, why):
    """`ValueError` if the schedule has actions of this kind."""
    if kind in checked_schedule(schedule).kinds:
        raise ValueError(f"the schedule {schedule.name!r} {why}")


def _last_gradients(schedule, device):
    """{stage: (position of the action that completes its gradients, the largest of its micro-batches)}"""
    found = {}
    for position, action in enumerate(schedule.devices[device]):
        for kind, stage, microbatch in action.parts:
            if RULES[kind].adds & WEIGHT:
                largest = max(microbatch, found[stage][1]) if stage in found else microbatch
                found[stage] = position, largest
    return found


def _with(order, additions):
    """`order` with each action of `additions`, pairs (position, action), behind what stands there."""
    behind = [[] for _ in order]
    for position, action in additions:
        behind[position].append(action)
    return tuple(step for action, more in zip(order, behind) for step in (action, *more))
