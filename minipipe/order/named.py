"""The schedules with a name that answer a request: a search that starts from them never loses to one."""

from dataclasses import replace
from functools import partial
from inspect import signature

from .actions import Action
from .names import SCHEDULES, names_having

INSTEAD = {"B": "IW", "I": "B", "W": ""}  # kind -> what does its work, where the order has no such kind
NAMES = {"FB": "+whole", "FIW": "+halves"}  # what is added to a name then


def named_schedules(request):
    """Those with one copy of the network and the placement of `request`, in its kinds.

    Where halves are asked for, a backward in one piece becomes its two halves in turn. Where they are not, an
    I becomes a B, and its W is left out. Overlaps are taken apart.
    """
    n_devices, n_microbatches = len(request.limits), request.n_microbatches
    v = request.n_stages // n_devices
    builders = [SCHEDULES[name] for name in names_having(flush=True, late_w=False, stages_per_device=v)]
    if v > 2:  # those that can be built for any number of stages on each device
        builders = [
            partial(builder, v=v) for builder in SCHEDULES.values() if "v" in signature(builder).parameters
        ]
    found = []
    for build in builders:
        try:
            schedule = _in_kinds(build(n_devices, n_microbatches), request.kinds)
        except ValueError:  # it does not exist for these sizes
            continue
        if schedule.n_copies == 1 and tuple(schedule.placement) == request.placement:
            found.append(schedule)
    return found


def _in_kinds(schedule, kinds):
    if schedule.kinds <= set(kinds):
        return schedule
    devices = []
    for device in range(len(schedule.devices)):
        order = []
        for kind, stage, i in schedule.parts(device):
            order += [Action(other, stage, i) for other in (kind if kind in kinds else INSTEAD[kind])]
        devices.append(tuple(order))
    return replace(schedule, devices=tuple(devices), name=schedule.name + NAMES[kinds])
