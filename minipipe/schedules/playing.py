"""A schedule performed action by action: whether it comes to its end, and when."""

# For each kind: what must have been done to its stage and micro-batch, what not, and what it adds; and its way, the number
# of stages from its own to the one that needs its result.
FORWARD, INPUT, WEIGHT, AGAIN, UPDATED = 1, 2, 4, 8, 16
STEPS = {
    "F": (0, FORWARD, FORWARD, 1),
    "B": (FORWARD, INPUT | WEIGHT, INPUT | WEIGHT, -1),
    "I": (FORWARD, INPUT | WEIGHT, INPUT, -1),
    "W": (INPUT, WEIGHT, WEIGHT, 0),
    "R": (FORWARD, INPUT | AGAIN, AGAIN, 0),
    "U": (WEIGHT, UPDATED, UPDATED, 0),
}


def play(schedule, observer=None):
    """None if all devices come to their end with everything done; else, for each device, how many of its actions it can do.

    observer: `observer.perform(device, action, parts)` is called for each action when it is possible, that is, after those
    that it needs. Each device's order is given, so it does not matter which device is looked at first, and no clock is needed:
    each goes on until a message is missing, and is looked at again when that is there. Takes time in proportion to the number
    of actions.
    """
    n_stages, n_microbatches, versions = schedule.n_stages, schedule.n_microbatches, schedule.versions
    done = [bytearray(n_microbatches) for _ in range(n_stages)]
    # way -> stage -> which messages it has sent; the last row is for both ends of the pipeline, which wait for nobody, as do
    # actions that go no way (index -1 and index n_stages are the same row)
    nobody = bytes([True]) * n_microbatches
    sent = {way: [bytearray(n_microbatches) for _ in range(n_stages)] + [nobody] for way in (1, -1)} | {0: [nobody] * n_stages}
    waiting = {}  # (way, stage, micro-batch) of a message that was not sent yet -> the device that waits for it
    device_of, copy_of = schedule.device_of, schedule.copy_of or bytes(n_microbatches)
    updates = [0] * n_stages
    heads, ready = [0] * len(schedule.devices), list(range(len(schedule.devices)))
    perform = None if observer is None else observer.perform
    while ready:
        device = ready.pop()
        order = schedule.devices[device]
        for head in range(heads[device], len(order)):
            action = order[head]
            parts = (action,) if action[0].__class__ is str else action
            for kind, stage, i in parts:
                if kind not in STEPS or not (0 <= stage < n_stages and 0 <= i < n_microbatches):
                    break
                need, forbidden, _, way = STEPS[kind]
                state = done[stage][i]
                if state & need != need or state & forbidden or device_of[copy_of[i]][stage] != device:
                    break
                if versions and kind == "F" and versions[stage][i] > updates[stage]:
                    break
                if not sent[way][stage - way][i]:
                    waiting[way, stage - way, i] = device
                    break
            else:
                heads[device] = head + 1
                if perform is not None:
                    perform(device, action, parts)
                for kind, stage, i in parts:
                    _, _, adds, way = STEPS[kind]
                    done[stage][i] |= adds
                    if way:
                        sent[way][stage][i] = True
                        if (way, stage, i) in waiting:
                            ready.append(waiting.pop((way, stage, i)))
                    elif kind == "U":
                        updates[stage] += 1
                continue
            break
    complete = all(state & WEIGHT for row in done for state in row)
    at_the_end = all(head == len(order) for head, order in zip(heads, schedule.devices))
    return None if complete and at_the_end else heads


def devices_of_stages(schedule):
    """For each copy of the network, {stage: device}; if a stage is on several, the last of them."""
    copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
    found = [{} for _ in range(schedule.n_copies)]
    for device in range(len(schedule.devices)):
        places = {(stage, microbatch if len(found) > 1 else 0) for _, stage, microbatch in schedule.parts(device)}
        for stage, microbatch in places:
            found[copy_of[microbatch] if 0 <= microbatch < len(copy_of) else 0][stage] = device
    return found
