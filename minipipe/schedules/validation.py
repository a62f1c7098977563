"""All that can be wrong with a schedule, found before anything runs."""

from collections import Counter
from numbers import Integral

from .counting import updates
from .playing import STEPS, play


def faults(schedule, most_alive=None, most_versions=None):
    """Every fault of `schedule` in words. Takes time in proportion to the number of actions."""
    found = wrong_form(schedule)
    if found:
        return found
    heads = play(schedule)
    if heads is not None:
        found = _unknown(schedule) + _on_two_devices(schedule) + _wrong_count(schedule) + _wrong_order(schedule)
        return found or [_deadlock(schedule, heads)]
    found = _wrong_updates(schedule)
    if most_alive is not None:
        found += _too_many_alive(schedule, most_alive)
    if most_versions is not None and schedule.versions:
        found += _too_old_weights(schedule, most_versions)
    return found


def prerequisites(part, schedule):
    """The `(kind, stage, microbatch)` that must be complete before `part` can start."""
    kind, stage, microbatch = part
    if kind == "F":
        return [("F", stage - 1, microbatch)] if stage > 0 else []
    if kind == "W":
        return [("I", stage, microbatch)]
    if kind == "U":
        return [("W" if _halved(schedule, stage, microbatch) else "B", stage, microbatch)]
    own_forward = [("F", stage, microbatch)]
    if kind in "BI" and stage < schedule.n_stages - 1:
        return own_forward + [("I" if _halved(schedule, stage + 1, microbatch) else "B", stage + 1, microbatch)]
    return own_forward


def _halved(schedule, stage, microbatch):
    return any(("I", stage, microbatch) in order for order in schedule.devices)


def wrong_form(schedule):
    """What is wrong with the sizes, `copy_of` and `versions`, which say how to read the actions."""
    found = []
    n_stages, n_microbatches = schedule.n_stages, schedule.n_microbatches
    if n_stages < 1 or n_microbatches < 1:
        return [f"a schedule needs at least 1 stage and 1 micro-batch, not {n_stages} and {n_microbatches}"]
    if schedule.copy_of and (len(schedule.copy_of) != n_microbatches or not set(schedule.copy_of) <= {0, 1}):
        found.append(f"copy_of={schedule.copy_of} must have a 0 or 1 for each of the {n_microbatches} micro-batches")
    elif schedule.copy_of and 0 not in schedule.copy_of:
        found.append(f"copy_of={schedule.copy_of} leaves copy 0 without micro-batches: where there is one copy, leave copy_of out")
    shape = [len(row) for row in schedule.versions]
    if schedule.versions and shape != [n_microbatches] * n_stages:
        found.append(f"versions has rows of lengths {shape}: give it {n_stages} rows, one for each stage, of {n_microbatches} numbers")
    wrong = [version for row in schedule.versions for version in row if not (isinstance(version, Integral) and version >= 0)]
    if wrong:
        found.append(f"versions has {wrong[0]!r}: it counts the updates in the weights, so write whole numbers of at least 0")
    return found


def _unknown(schedule):
    found = []
    for device in range(len(schedule.devices)):
        for part in schedule.parts(device):
            if part.kind not in STEPS:
                found.append(f"device {device}: {part} is of unknown kind {part.kind!r}: use F, B, I, W, R or U")
            elif not 0 <= part.stage < schedule.n_stages:
                found.append(f"device {device}: {part} is unknown: stages are 0..{schedule.n_stages - 1}")
            elif not 0 <= part.microbatch < schedule.n_microbatches:
                found.append(f"device {device}: {part} is unknown: micro-batches are 0..{schedule.n_microbatches - 1}")
    return found


def _on_two_devices(schedule):
    devices_of = {}
    copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
    for device in range(len(schedule.devices)):
        for _, stage, microbatch in schedule.parts(device):
            copy = copy_of[microbatch] if 0 <= microbatch < len(copy_of) else 0
            devices_of.setdefault((stage, copy), set()).add(device)
    return [
        f"stage {stage}{f' of copy {copy}' if schedule.copy_of else ''} is on devices {', '.join(map(str, sorted(devices)))}: "
        "a stage's parameters are on one device only"
        for (stage, copy), devices in sorted(devices_of.items()) if len(devices) > 1
    ]


def _wrong_count(schedule):
    found = []
    counts = Counter(part for device in range(len(schedule.devices)) for part in schedule.parts(device))
    device_of = schedule.device_of
    copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
    for stage in range(schedule.n_stages):
        for microbatch in range(schedule.n_microbatches):
            device = device_of[copy_of[microbatch]].get(stage)
            count = {kind: counts[kind, stage, microbatch] for kind in STEPS}
            found += _wrong_count_of(stage, microbatch, count, device, schedule.n_microbatches)
    return found


def _wrong_count_of(stage, microbatch, count, device, n_microbatches):
    found = []
    who, never = (f"device {device}", f"device {device} never does") if device is not None else ("no device", "no device does")
    for kind in STEPS:
        if count[kind] > 1:
            found.append(f"{who} does {stage}{kind}{microbatch} {count[kind]} times (duplicated): once is enough")
    for kind in _missing(count):
        found.append(
            f"{never} {stage}{kind}{microbatch} (missing): every stage needs F and B (or I and W) of micro-batches 0..{n_microbatches - 1}"
        )
    if count["B"] and (count["I"] or count["W"]):
        half = "I" if count["I"] else "W"
        found.append(f"{who} does {stage}B{microbatch} and also its half {stage}{half}{microbatch} (duplicated): use B, or I and W")
    return found


def _missing(count):
    """The kinds that a stage lacks for a micro-batch, given how many it has of each."""
    backward = ["IW"[place] for place, kind in enumerate("IW") if not count[kind]] if count["I"] or count["W"] else ["B"]
    return ["F"] * (not count["F"]) + backward * (not count["B"])


def _wrong_order(schedule):
    found = []
    for device in range(len(schedule.devices)):
        place = {}
        for position, part in enumerate(schedule.parts(device)):
            place.setdefault(tuple(part), position)
        for (kind, stage, microbatch), position in place.items():
            forward, half = place.get(("F", stage, microbatch)), place.get(("I", stage, microbatch))
            backward = place.get(("B", stage, microbatch), half)
            complete = place.get(("B", stage, microbatch), place.get(("W", stage, microbatch)))
            name = f"{stage}{kind}{microbatch}"
            if kind in "BI" and forward is not None and position < forward:
                found.append(f"device {device}: {name} comes before its forward {stage}F{microbatch}")
            if kind == "W" and half is not None and position < half:
                found.append(f"device {device}: {name} comes before {stage}I{microbatch}, the other half, which it needs")
            if kind == "R" and forward is not None and position < forward:
                found.append(f"device {device}: {name} recomputes before there was a forward {stage}F{microbatch}")
            if kind == "R" and backward is not None and position > backward:
                found.append(f"device {device}: {name} comes after {stage}{'B' if half is None else 'I'}{microbatch}, which needs it")
            if kind == "U" and complete is not None and position < complete:
                found.append(f"device {device}: {name} comes before the gradient of micro-batch {microbatch} is complete")
    return found + _weights_too_new(schedule)


def _weights_too_new(schedule):
    """Forwards with weights that no update has made yet."""
    found = []
    for device in range(len(schedule.devices) if schedule.versions else 0):
        made = Counter()
        for part in schedule.parts(device):
            made[part.stage] += part.kind == "U"
            if part.kind == "F" and 0 <= part.stage < schedule.n_stages and 0 <= part.microbatch < schedule.n_microbatches:
                version = schedule.versions[part.stage][part.microbatch]
                if version > made[part.stage]:
                    found.append(
                        f"device {device}: {part} needs the weights after {version} updates, but there were only {made[part.stage]} by then"
                    )
    return found


def _wrong_updates(schedule):
    """Updates that are not named by the last of the micro-batches whose gradients they apply."""
    found = []
    for device, stage, i, applied in updates(schedule):
        if i not in applied:
            found.append(f"device {device}: {stage}U{i} has nothing to apply: an update before it applied the gradient of micro-batch {i}")
        elif max(applied) > i:
            found.append(
                f"device {device}: {stage}U{i} comes after the backward of micro-batch {max(applied)}, whose gradient it would apply, "
                f"too: put it before that, or write {stage}U{max(applied)}"
            )
    return found


def _too_many_alive(schedule, most_alive):
    found = []
    limits = most_alive if hasattr(most_alive, "__len__") else [most_alive] * len(schedule.devices)
    if len(limits) != len(schedule.devices):
        return [f"most_alive has {len(limits)} limits for {len(schedule.devices)} devices: give one number, or one per device"]
    for device, limit in enumerate(limits):
        alive = 0
        for action in schedule.devices[device]:
            kinds = [part.kind for part in action.parts]
            alive += kinds.count("F")
            if not alive <= limit:
                found.append(
                    f"device {device}: with {action}, {alive} micro-batches are alive at once, above the limit of {limit}: "
                    "put a backward before it"
                )
                break
            alive -= kinds.count("B") + kinds.count("W")
    return found


def _too_old_weights(schedule, most_versions):
    found = []
    for device in range(len(schedule.devices)):
        made = Counter()
        for part in schedule.parts(device):
            made[part.stage] += part.kind == "U"
            version = schedule.versions[part.stage][part.microbatch]
            if part.kind != "U" and not made[part.stage] - version < most_versions:
                found.append(
                    f"device {device}: {part} needs the weights after {version} updates, which no longer exist: there were "
                    f"{made[part.stage]}, and only the newest {most_versions} versions are kept"
                )
    return found


def _deadlock(schedule, heads):
    """The cycle of who waits for whom, where each device is stuck at `heads[device]`."""
    device_of = schedule.placements
    copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
    performed = {part for head, order in zip(heads, schedule.devices) for action in order[:head] for part in action.parts}

    def need(device):
        """The action that the device waits for; each other one before it has been performed."""
        action = schedule.devices[device][heads[device]]
        needs = [need for part in action.parts for need in prerequisites(part, schedule)]
        return next(need for need in needs if need not in performed)

    def holder_of(need):
        return device_of[copy_of[need[2]]][need[1]]

    path = [next(device for device, order in enumerate(schedule.devices) if heads[device] < len(order))]
    while (holder := holder_of(need(path[-1]))) not in path:
        path.append(holder)
    links = []
    for device in path[path.index(holder):]:
        kind, stage, microbatch = need(device)
        links.append(
            f"device {device} cannot start {schedule.devices[device][heads[device]]} "
            f"before {stage}{kind}{microbatch} on device {holder_of(need(device))}"
        )
    return "deadlock: " + ", and ".join(links)
