"""What a table of actions says without saying it: how many micro-batches there are, and copies."""


def n_microbatches_of(devices):
    """How many micro-batches the orders of `devices` have: one more than the largest that several have.

    So an action that names one too many is to blame, rather than all others that lack it.
    """
    on = _devices_of(devices, lambda part: part.microbatch)
    several = sum(map(bool, devices)) > 1
    return 1 + max([i for i in on if not several or len(on[i]) > 1] or on)


def copies_of(devices):
    """For each micro-batch, the copy of the network that it passes through; empty if there is one.

    Each copy has all stages, each of them on a device where no other copy has it. Whatever else puts a stage
    on several devices is left to be called a fault.
    """
    on = _devices_of(devices, lambda part: (part.microbatch, part.stage))
    n_microbatches, n_stages = (1 + max(place) for place in zip(*on))
    if len(on) < n_microbatches * n_stages or any(len(found) > 1 for found in on.values()):
        return ()
    ways = [tuple(min(on[i, stage]) for stage in range(n_stages)) for i in range(n_microbatches)]
    copies = list(dict.fromkeys(ways))
    if len(copies) == 1 or any(len(set(placed)) < len(copies) for placed in zip(*copies)):
        return ()
    return tuple(map(copies.index, ways))


def _devices_of(devices, what):
    """{what(action): the devices that have such an action}"""
    found = {}
    for device, order in enumerate(devices):
        for action in order:
            for part in action.parts:
                found.setdefault(what(part), set()).add(device)
    return found
