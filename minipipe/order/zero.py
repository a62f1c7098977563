"""Orders in which each copy of the network has a part of what all copies need: ZeRO."""

from dataclasses import replace
from itertools import chain

from ..arguments import argument
from ..checks import python_number, shown
from .actions import Action
from .changes import with_all_reduce
from .rules import CLOSING


def with_zero(schedule, level, prefetch=1):
    """`schedule` with what ZeRO 1, 2 or 3 adds to it: each copy updates a part of a stage.

        S   reduce-scatter: each device gets the sum of its own part of the gradients, and drops the others
        U   updates this part; the optimizer keeps nothing for the others
        G   gather: each device gets the parts of the parameters that the others have
        X   free: each device keeps its own part of the parameters alone

    level: 1, where all S stand behind the device's last backward, so that it has all gradients before; 2,
        where each is as early as the A of `with_all_reduce`, so that it has a part of most of them; or 3,
        FSDP, where a device has a part of the parameters, too: a G brings the others before each forward and
        each backward of the stage, and an X frees them behind it.
    prefetch: with 3, how many pieces of work before the one that needs it a G begins, so that it travels
        meanwhile; in so many stages more, the parameters are there at once.

    From each of N copies, 1 and 2 send as much as an all-reduce: 2 (N - 1)/N of a stage's parameters; 3 sends
    (2 n + 1) (N - 1)/N of them for the n micro-batches of a copy. A schedule with A, S or U is refused, and
    so is one with faults, and with 3 one whose copies have unequal work. Sources: Rajbhandari et al. 2020,
    arXiv 1910.02054; Zhao et al. 2023, arXiv 2304.11277.

    >>> from ..schedules.replicas import data_parallel
    >>> two = data_parallel(2, 2, n_stages=2)
    >>> print(with_zero(two, 1))
    device 0: 0F0 1F0 1B0 0B0 1S0 0S0 1U0 1G0 0U0 0G0
    device 1: 0F1 1F1 1B1 0B1 1S1 0S1 1U1 1G1 0U1 0G1
    >>> print(with_zero(two, 2).devices[0][3])
    1S0
    >>> print(*with_zero(two, 3, prefetch=0).devices[0])
    0G0 0F0 0X0 1G0 1F0 1X0 1G0 1B0 1X0 1S0 0G0 0B0 0X0 0S0 1U0 0U0
    """
    level, prefetch = checked_level(level), argument("prefetch", prefetch)
    summed = with_all_reduce(schedule)
    devices = []
    for order in summed.devices:
        scatters = [action._replace(kind="S") for action in order if action.kind == "A"]
        work = [action for action in order if action.kind != "A"] + scatters
        if level > 1:
            work = [action._replace(kind="S") if action.kind == "A" else action for action in order]
        if level == 3:
            work = _in_parts(work, prefetch)
        ends = [action._replace(kind=kind) for action in scatters for kind in ("U" if level == 3 else "UG")]
        devices.append((*work, *ends))
    found = replace(schedule, devices=tuple(devices), name=f"{schedule.name}+zero {level}")
    return found.validate() if level == 3 else found


def checked_level(level):
    """Return `level` if ZeRO has it; raise `ValueError` for anything else."""
    if python_number(level) not in (1, 2, 3):
        raise ValueError(f"zero={shown(level)} must be 1, 2 or 3")
    return level


def _in_parts(order, prefetch):
    """`order` with a `G` before, and an `X` behind, each piece of work on a stage and a micro-batch.

    Such a piece is a forward, or all that follows one another of a backward: 0R0 0B0, or 0I0 0W0.
    """
    pieces = []  # [(stage, microbatch), positions of its first and its last action, whether it is a forward]
    for position, action in enumerate(order):
        for kind, stage, i in action.parts if action.kind not in CLOSING else ():
            last = pieces[-1] if pieces else None
            if last and last[0] == (stage, i) and last[2] == position - 1 and "F" not in (kind, last[3]):
                last[2] = position
            else:
                pieces.append([(stage, i), position, position, kind])
    before, behind = [[[] for _ in order] for _ in range(2)]
    free_from = {}  # stage -> the position behind which its last piece of work has freed it
    for number, ((stage, i), _, last, _) in enumerate(pieces):
        early = pieces[max(0, number - prefetch)][1]
        before[max(early, free_from.get(stage, -1) + 1)].append(Action("G", stage, i))
        behind[last].append(Action("X", stage, i))
        free_from[stage] = last
    return list(chain(*(
        (*gathers, action, *frees) for gathers, action, frees in zip(before, order, behind)
    )))
