"""A schedule performed without a clock: which of its actions can ever start."""

# what an action needs to have been done to its stage and micro-batch, what not, and what it adds
FORWARD, INPUT, WEIGHT, AGAIN, UPDATED = 1, 2, 4, 8, 16
STEPS = {
    "F": (0, FORWARD, FORWARD),
    "B": (FORWARD, INPUT | WEIGHT, INPUT | WEIGHT),
    "I": (FORWARD, INPUT | WEIGHT, INPUT),
    "W": (INPUT, WEIGHT, WEIGHT),
    "R": (FORWARD, INPUT | AGAIN, AGAIN),
    "U": (WEIGHT, UPDATED, UPDATED),
}


def play(schedule):
    """None if all devices come to their end with everything done; else, for each device, how many of its actions it can do.

    Takes time in proportion to the number of actions: a device that is stuck is looked at again when a device has done
    something that it may need.
    """
    n_stages, n_microbatches = schedule.n_stages, schedule.n_microbatches
    done = [bytearray(n_microbatches) for _ in range(n_stages + 1)]  # the last row stays 0
    device_of = devices_of_stages(schedule)
    copy_of = schedule.copy_of or bytes(n_microbatches)
    updates, versions = [0] * n_stages, schedule.versions
    heads = [0] * len(schedule.devices)
    ready = list(range(len(schedule.devices)))

    def possible(part, device):
        kind, stage, microbatch = part
        if kind not in STEPS or not (0 <= stage < n_stages and 0 <= microbatch < n_microbatches):
            return False
        need, forbidden, _ = STEPS[kind]
        state = done[stage][microbatch]
        if state & need != need or state & forbidden or device_of[copy_of[microbatch]][stage] != device:
            return False
        if kind == "F":
            return (stage == 0 or done[stage - 1][microbatch]) and (not versions or versions[stage][microbatch] <= updates[stage])
        return kind not in "BI" or stage == n_stages - 1 or done[stage + 1][microbatch] & INPUT

    while ready:
        device = ready.pop()
        order = schedule.devices[device]
        while heads[device] < len(order):
            action = order[heads[device]]
            parts = action if action.kind == "F&B" else (action,)
            if not all(possible(part, device) for part in parts):
                break
            for kind, stage, microbatch in parts:
                done[stage][microbatch] |= STEPS[kind][2]
                updates[stage] += kind == "U"
                after = stage + (kind == "F") - (kind in "BI")
                needed_by = device_of[copy_of[microbatch]].get(after, device)
                if needed_by != device and needed_by not in ready:
                    ready.append(needed_by)
            heads[device] += 1
    complete = all(state & WEIGHT for row in done[:-1] for state in row)
    at_the_end = all(head == len(order) for head, order in zip(heads, schedule.devices))
    return None if complete and at_the_end else heads


def devices_of_stages(schedule):
    """For each copy of the network, {stage: device}; if a stage is on several, the last of them."""
    copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
    found = [{} for _ in range(schedule.n_copies)]
    for device in range(len(schedule.devices)):
        for _, stage, microbatch in schedule.parts(device):
            copy = copy_of[microbatch] if 0 <= microbatch < len(copy_of) else 0
            found[copy][stage] = device
    return found
