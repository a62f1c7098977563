"""All that can be wrong with a schedule, found before anything runs."""

from collections import Counter
from numbers import Integral

from .closing import wrong_closings
from .deadlock import deadlock
from .playing import play
from .rules import CLOSING, FORWARD, INPUT, RULES, WEIGHT, adding, one_of


def faults(schedule, most_alive=None, most_versions=None):
    """Every fault of `schedule` in words. Takes time in proportion to the number of actions."""
    found = wrong_form(schedule)
    if found:
        return found
    stop = play(schedule)
    if stop is not None:
        found = _unknown(schedule) + _on_two_devices(schedule)
        found += _wrong_count(schedule) + _wrong_order(schedule)
        return found or wrong_closings(schedule) or [deadlock(schedule, stop)]
    found = wrong_closings(schedule)
    if most_alive is not None:
        found += _too_many_alive(schedule, most_alive)
    if most_versions is not None and schedule.versions:
        found += _too_old_weights(schedule, most_versions)
    return found


def wrong_form(schedule):
    """What is wrong with the sizes, `copy_of` and `versions`, which say how to read the actions."""
    found = []
    n_stages, n_microbatches = schedule.n_stages, schedule.n_microbatches
    if n_stages < 1 or n_microbatches < 1:
        return [f"a schedule needs at least 1 stage and 1 micro-batch, not {n_stages} and {n_microbatches}"]
    copies = schedule.copy_of
    numbers = all(isinstance(copy, Integral) and copy >= 0 for copy in copies)
    if copies and (len(copies) != n_microbatches or not numbers):
        found.append(
            f"copy_of={copies} must have a copy, 0, 1, ..., for each of the {n_microbatches} micro-batches"
        )
    elif copies and max(copies) >= len(set(copies)):
        idle = min(set(range(n_microbatches)) - set(copies))
        several = len(set(copies)) > 1
        remedy = "where there is one copy, leave copy_of out"
        if several:
            remedy = "number the copies without a gap"
        found.append(f"copy_of={copies} leaves copy {idle} without micro-batches: {remedy}")
    shape = [len(row) for row in schedule.versions]
    if schedule.versions and shape != [n_microbatches] * n_stages:
        found.append(
            f"versions has rows of lengths {shape}: give it {n_stages} rows, one for each stage, of "
            f"{n_microbatches} numbers"
        )
    wrong = [
        version for row in schedule.versions for version in row
        if not (isinstance(version, Integral) and version >= 0)
    ]
    if wrong:
        found.append(
            f"versions has {wrong[0]!r}: it counts the updates in the weights, so write whole numbers of at "
            "least 0"
        )
    return found


def _unknown(schedule):
    found = []
    for device in range(len(schedule.devices)):
        for part in dict.fromkeys(schedule.parts(device)):
            if part.kind not in RULES:
                found.append(f"device {device}: {part} is of unknown kind {part.kind!r}: use {one_of(RULES)}")
            elif not 0 <= part.stage < schedule.n_stages:
                found.append(f"device {device}: {part} is unknown: stages are 0..{schedule.n_stages - 1}")
            elif not 0 <= part.microbatch < schedule.n_microbatches:
                found.append(
                    f"device {device}: {part} is unknown: micro-batches are 0..{schedule.n_microbatches - 1}"
                )
    return found


def _on_two_devices(schedule):
    devices_of = {}
    copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
    for device in range(len(schedule.devices)):
        for _, stage, microbatch in schedule.parts(device):
            copy = copy_of[microbatch] if 0 <= microbatch < len(copy_of) else 0
            devices_of.setdefault((stage, copy), set()).add(device)
    return [
        f"stage {stage}{f' of copy {copy}' if schedule.copy_of else ''} is on devices "
        f"{', '.join(map(str, sorted(devices)))}: a stage's parameters are on one device only"
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
            count = {kind: counts[kind, stage, microbatch] for kind in RULES}
            found += _wrong_count_of(stage, microbatch, count, device, schedule.n_microbatches)
    return found


def _wrong_count_of(stage, microbatch, count, device, n_microbatches):
    """What is done too often, or never, of a stage and a micro-batch. count: how often, for each kind."""
    found = []
    who = "no device" if device is None else f"device {device}"
    never = "no device does" if device is None else f"device {device} never does"
    for kind in RULES:
        if count[kind] > 1:
            found.append(
                f"{who} does {stage}{kind}{microbatch} {count[kind]} times (duplicated): once is enough"
            )
    for kind in _missing(count):
        found.append(
            f"{never} {stage}{kind}{microbatch} (missing): every stage needs F and B (or I and W) of "
            f"micro-batches 0..{n_microbatches - 1}"
        )
    halves = [kind for kind in adding(RULES["B"].adds) if kind != "B" and count[kind]]
    if count["B"] and halves:
        found.append(
            f"{who} does {stage}B{microbatch} and also its half {stage}{halves[0]}{microbatch} (duplicated): "
            "use B, or I and W"
        )
    return found


def _missing(count):
    """The kinds that a stage lacks for a micro-batch: those that add what nobody has added."""
    lacking = FORWARD | INPUT | WEIGHT
    for kind, rule in RULES.items():
        if count[kind]:
            lacking &= ~rule.adds
    missing = []
    for kind, rule in RULES.items():
        if lacking and rule.adds & lacking == rule.adds:
            missing.append(kind)
            lacking &= ~rule.adds
    return missing


def _wrong_order(schedule):
    """Actions before one that they need, or after one that they must come before."""
    found = []
    for device in range(len(schedule.devices)):
        positions = {}
        for position, part in enumerate(schedule.parts(device)):
            positions.setdefault(part, position)
        for part, position in positions.items():
            if part.kind not in RULES:
                continue
            rule = RULES[part.kind]
            needed, too_early = (_others(part, bits, positions) for bits in (rule.needs, rule.forbids))
            if needed and position < positions[needed[0]]:
                found.append(f"device {device}: {part} comes before {_needed(needed[0], part)}")
            for other in too_early:
                said = RULES[other.kind].needs & rule.adds  # of `other`, which comes before what it needs
                if position > positions[other] and not said:
                    found.append(f"device {device}: {part} comes after {other}, which needs it")
    return found + _weights_too_new(schedule)


def _others(part, bits, known):
    """Those of `known` that add any of `bits` where `part` works, but do not do its work.

    Who does the same work twice has a wrong count, not a wrong order.
    """
    kinds = [kind for kind in adding(bits) if not RULES[kind].adds & RULES[part.kind].adds]
    actions = [part._replace(kind=kind) for kind in kinds]
    return [action for action in actions if action in known]


def _needed(other, part):
    """What `part` needs of the action `other`, in words."""
    if RULES[other.kind].adds == FORWARD:
        return f"its forward {other}"
    if RULES[part.kind].needs == INPUT:
        return f"{other}, the other half, which it needs"
    return f"the gradient of micro-batch {part.microbatch} is complete"


def _weights_too_new(schedule):
    """Forwards with weights that no update has made yet."""
    found = []
    for device in range(len(schedule.devices) if schedule.versions else 0):
        made = Counter()
        for part in schedule.parts(device):
            made[part.stage] += part.kind == "U"
            known = 0 <= part.stage < schedule.n_stages and 0 <= part.microbatch < schedule.n_microbatches
            if part.kind == "F" and known:
                version = schedule.versions[part.stage][part.microbatch]
                if version > made[part.stage]:
                    found.append(
                        f"device {device}: {part} needs the weights after {version} updates, but there were "
                        f"only {made[part.stage]} by then"
                    )
    return found


def _too_many_alive(schedule, most_alive):
    found = []
    limits = most_alive if hasattr(most_alive, "__len__") else [most_alive] * len(schedule.devices)
    if len(limits) != len(schedule.devices):
        return [
            f"most_alive has {len(limits)} limits for {len(schedule.devices)} devices: give one number, or "
            "one per device"
        ]
    for device, limit in enumerate(limits):
        alive = 0
        for action in schedule.devices[device]:
            alive += sum(part.alive for part in action.parts if part.alive > 0)
            if not alive <= limit:
                found.append(
                    f"device {device}: with {action}, {alive} micro-batches are alive at once, above the "
                    f"limit of {limit}: put a backward before it"
                )
                break
            alive += sum(part.alive for part in action.parts if part.alive < 0)
    return found


def _too_old_weights(schedule, most_versions):
    found = []
    for device in range(len(schedule.devices)):
        made = Counter()
        for part in schedule.parts(device):
            made[part.stage] += part.kind == "U"
            version = schedule.versions[part.stage][part.microbatch]
            if part.kind not in CLOSING and not made[part.stage] - version < most_versions:
                found.append(
                    f"device {device}: {part} needs the weights after {version} updates, which no longer "
                    f"exist: there were {made[part.stage]}, and only the newest {most_versions} versions are "
                    "kept"
                )
    return found
