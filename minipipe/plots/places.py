"""Which stage and which copy of the network a device works on."""

from typing import NamedTuple

from .colours import parts_of


class Places(NamedTuple):
    """Where each stage stands among those of its device, and the copy of the network that it belongs to.

    of: {(device, stage): its place among the device's stages, from 0}.
    n: the most stages of one device.
    n_copies: of the network.
    shared: whether a device has stages of several copies.
    copy_of: {micro-batch: its copy}.
    copy_at: {(device, stage): its copy}.
    """

    of: dict
    n: int
    n_copies: int
    shared: bool
    copy_of: dict
    copy_at: dict


def places_of(trace):
    """The `Places` of a trace: a device's stages by the copy of the network, then by number.

    Copy 0 is that of the first micro-batch. One that meets a stage on another device than all copies before
    have it on passes through the next copy.
    """
    homes, first_at = {}, {}  # {micro-batch: {stage: device}}, {(device, stage): the first micro-batch there}
    for span in trace.spans:
        for part in parts_of(span.label):
            if hasattr(part, "stage") and hasattr(part, "microbatch"):
                homes.setdefault(part.microbatch, {}).setdefault(part.stage, span.device)
                first_at.setdefault((span.device, part.stage), part.microbatch)
    copies, copy_of = [], {}  # {stage: device} of each copy
    for i in sorted(homes):
        fitting = (copy for copy, home in enumerate(copies) if _agree(home, homes[i]))
        copy_of[i] = next(fitting, len(copies))
        if copy_of[i] == len(copies):
            copies.append({})
        copies[copy_of[i]] |= homes[i]
    copy_at = {position: copy_of[i] for position, i in first_at.items()}
    stages = [
        sorted((copy, stage) for (owner, stage), copy in copy_at.items() if owner == device)
        for device in range(trace.n_devices)
    ]
    of = {
        (device, stage): place
        for device, its_stages in enumerate(stages)
        for place, (_, stage) in enumerate(its_stages)
    }
    copies_at = {(device, copy) for (device, _), copy in copy_at.items()}
    shared = len(copies_at) > len({device for device, _ in copies_at})
    return Places(of, max([1, *map(len, stages)]), max(1, len(copies)), shared, copy_of, copy_at)


def _agree(home, other):
    """Whether no stage is on two devices."""
    return all(home.get(stage, device) == device for stage, device in other.items())
