"""All that can be wrong with a schedule, found before anything runs."""

from collections import Counter

KINDS = ("F", "B", "I", "W", "R")


def faults(schedule):
    """Every fault of `schedule` in words. Takes time in proportion to the number of actions."""
    if schedule.n_stages < 1 or schedule.n_microbatches < 1:
        return [f"a schedule needs at least 1 stage and 1 micro-batch, not {schedule.n_stages} and {schedule.n_microbatches}"]
    heads = play(schedule)
    if heads is None:
        return []
    found = _unknown(schedule) + _on_two_devices(schedule) + _wrong_count(schedule) + _wrong_order(schedule)
    return found or [_deadlock(schedule, heads)]


def play(schedule):
    """Perform the schedule without a clock: None if it comes to its end, else how far each device gets."""
    n_stages, n_microbatches = schedule.n_stages, schedule.n_microbatches
    done_F, done_I, done_W, done_R = ([bytearray(n_microbatches) for _ in range(n_stages)] for _ in range(4))  # a B is both halves
    device_of = {action.stage: device for device, order in enumerate(schedule.devices) for action in order}
    heads = [0] * len(schedule.devices)
    ready = list(range(len(schedule.devices)))
    while ready:
        device = ready.pop()
        order = schedule.devices[device]
        while heads[device] < len(order):
            kind, stage, microbatch = order[heads[device]]
            if not (0 <= stage < n_stages and 0 <= microbatch < n_microbatches and device_of[stage] == device):
                break
            if kind == "F":
                if done_F[stage][microbatch] or not (stage == 0 or done_F[stage - 1][microbatch]):
                    break
                done_F[stage][microbatch] = True
            elif kind == "W":
                if done_W[stage][microbatch] or not done_I[stage][microbatch]:
                    break
                done_W[stage][microbatch] = True
            elif done_I[stage][microbatch] or not done_F[stage][microbatch]:
                break
            elif kind == "B" or kind == "I":
                if stage < n_stages - 1 and not done_I[stage + 1][microbatch]:
                    break
                done_I[stage][microbatch] = True
                if kind == "B":
                    done_W[stage][microbatch] = True
            elif kind == "R" and not done_R[stage][microbatch]:
                done_R[stage][microbatch] = True
            else:
                break
            heads[device] += 1
            needed_by = device_of.get(stage + 1 if kind == "F" else stage - 1, device)
            if needed_by != device and needed_by not in ready:
                ready.append(needed_by)
    complete = all(all(flags) for done in (done_F, done_W) for flags in done)
    at_the_end = all(head == len(order) for head, order in zip(heads, schedule.devices))
    return None if complete and at_the_end else heads


def prerequisites(action, schedule):
    """The `(kind, stage, microbatch)` that must be complete before `action` can start."""
    kind, stage, microbatch = action
    if kind == "F":
        return [("F", stage - 1, microbatch)] if stage > 0 else []
    if kind == "W":
        return [("I", stage, microbatch)]
    own_forward = [("F", stage, microbatch)]
    if kind in "BI" and stage < schedule.n_stages - 1:
        halved = any(("I", stage + 1, microbatch) in order for order in schedule.devices)
        return own_forward + [("I" if halved else "B", stage + 1, microbatch)]
    return own_forward


def _unknown(schedule):
    found = []
    for device, order in enumerate(schedule.devices):
        for action in order:
            if action.kind not in KINDS:
                found.append(f"device {device}: {action} is of unknown kind {action.kind!r}: use F, B, I, W or R")
            elif not 0 <= action.stage < schedule.n_stages:
                found.append(f"device {device}: {action} is unknown: stages are 0..{schedule.n_stages - 1}")
            elif not 0 <= action.microbatch < schedule.n_microbatches:
                found.append(f"device {device}: {action} is unknown: micro-batches are 0..{schedule.n_microbatches - 1}")
    return found


def _on_two_devices(schedule):
    devices_of = {}
    for device, order in enumerate(schedule.devices):
        for action in order:
            devices_of.setdefault(action.stage, set()).add(device)
    return [
        f"stage {stage} is on devices {', '.join(map(str, sorted(devices)))}: a stage's parameters are on one device only"
        for stage, devices in sorted(devices_of.items()) if len(devices) > 1
    ]


def _wrong_count(schedule):
    found = []
    counts = Counter(tuple(action) for order in schedule.devices for action in order)
    device_of = {action.stage: device for device, order in enumerate(schedule.devices) for action in order}
    for stage in range(schedule.n_stages):
        who = f"device {device_of[stage]}" if stage in device_of else "no device"
        for microbatch in range(schedule.n_microbatches):
            count = {kind: counts[kind, stage, microbatch] for kind in KINDS}
            for kind in KINDS:
                if count[kind] > 1:
                    found.append(f"{who} does {stage}{kind}{microbatch} {count[kind]} times (duplicated): once is enough")
            never = f"{who} never does" if stage in device_of else "no device does"
            for kind in _missing(count):
                found.append(
                    f"{never} {stage}{kind}{microbatch} (missing): every stage needs F and B (or I and W) of micro-batches "
                    f"0..{schedule.n_microbatches - 1}"
                )
            if count["B"] and (count["I"] or count["W"]):
                half = "I" if count["I"] else "W"
                found.append(
                    f"{who} does {stage}B{microbatch} and also its half {stage}{half}{microbatch} (duplicated): use B, or I and W"
                )
    return found


def _missing(count):
    """The kinds that a stage lacks for a micro-batch, given how many it has of each."""
    backward = ["IW"[place] for place, kind in enumerate("IW") if not count[kind]] if count["I"] or count["W"] else ["B"]
    return ["F"] * (not count["F"]) + backward * (not count["B"])


def _wrong_order(schedule):
    found = []
    for device, order in enumerate(schedule.devices):
        place = {}
        for position, action in enumerate(order):
            place.setdefault(tuple(action), position)
        for (kind, stage, microbatch), position in place.items():
            forward, half = place.get(("F", stage, microbatch)), place.get(("I", stage, microbatch))
            backward = place.get(("B", stage, microbatch), half)
            name = f"{stage}{kind}{microbatch}"
            if kind in "BI" and forward is not None and position < forward:
                found.append(f"device {device}: {name} comes before its forward {stage}F{microbatch}")
            if kind == "W" and half is not None and position < half:
                found.append(f"device {device}: {name} comes before {stage}I{microbatch}, the other half, which it needs")
            if kind == "R" and forward is not None and position < forward:
                found.append(f"device {device}: {name} recomputes before there was a forward {stage}F{microbatch}")
            if kind == "R" and backward is not None and position > backward:
                found.append(f"device {device}: {name} comes after {stage}{'B' if half is None else 'I'}{microbatch}, which needs it")
    return found


def _deadlock(schedule, heads):
    """The cycle of who waits for whom, where each device is stuck at `heads[device]`."""
    placement = schedule.placement
    performed = {tuple(action) for head, order in zip(heads, schedule.devices) for action in order[:head]}

    def need(device):
        """The action that the device waits for; each other one before it has been performed."""
        action = schedule.devices[device][heads[device]]
        return next(need for need in prerequisites(action, schedule) if need not in performed)

    path = [next(device for device, order in enumerate(schedule.devices) if heads[device] < len(order))]
    while (holder := placement[need(path[-1])[1]]) not in path:
        path.append(holder)
    links = []
    for device in path[path.index(holder):]:
        kind, stage, microbatch = need(device)
        links.append(
            f"device {device} cannot start {schedule.devices[device][heads[device]]} "
            f"before {stage}{kind}{microbatch} on device {placement[stage]}"
        )
    return "deadlock: " + ", and ".join(links)
