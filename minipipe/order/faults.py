"""All faults that a schedule can have, found before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from .actions import (
    CLOSING, FORWARD, INPUT, MEETING, MOST_ACTIONS, REPEATED, RULES, SUMMED, WEIGHT, Action, Fault, adding,
    join_with_or,
)
from .costs import as_float, divide_exactly, one_for_each
from .playing import Stop, play

if TYPE_CHECKING:
    from .schedule import Schedule


# The actions that close a mini-batch: `A` and `U`, or `S`, `U` and `G`.
#
# An order without any `A` is complete: the gradients of all copies are added up at its end. An order without
# any `U` is complete, too: the optimizer makes its step at the end. An order with some of them must have all,
# on each stage of each copy. Copies that have a stage on the same device share it there, with one `A` and one
# `U` for all of them.
#
# Where gradients are added up by `S`, each device has a shard of the sum: a `U` applies that shard, and then
# a `G` gathers the parameters.

def wrong_closings(schedule: Schedule) -> list:
    """Return the faults of the closing actions of a `schedule` that has no other faults."""
    kinds = schedule.kinds
    if not kinds & CLOSING:
        return []
    if kinds & {"S", "G", "X"} and ("A" in kinds or not {"S", "U"} <= kinds or schedule.versions):
        return ["an order with S, G or X has an S and a U for each stage, no A, no versions: see with_zero"]
    parts_of: dict[tuple[int, int], list] = {}
    for device, part, _ in schedule.walk():
        parts_of.setdefault((device, part.stage), []).append(part)
    found: list = []
    for (device, _), parts in parts_of.items():
        found += [(device, *fault) for fault in _closing_faults_of_stage(schedule, parts)]
    sums = adding(SUMMED, kinds)
    if found and sums:
        return found
    if "S" in kinds:
        for (device, _), parts in parts_of.items():
            found += [(device, *fault) for fault in _missing_parameters(parts, "X" not in kinds)]
    for stage in range(schedule.n_stages):
        devices = schedule.holders(stage)
        for kind in sorted(kinds & MEETING):
            numbers = [sum(part.kind == kind for part in parts_of[device, stage]) for device in devices]
            if len(set(numbers)) > 1:
                found.append(
                    f"devices {_text_of(devices)} have {_text_of(numbers)} {RULES[kind].name}s of stage "
                    f"{stage}: all start each of them together, so put equally many on each"
                )
        if len(devices) > 1 and not sums:
            found.append(
                f"stage {stage} is on devices {_text_of(devices)}, so an update needs the sum of their "
                "gradients: put an A before each U, as with_all_reduce does"
            )
        elif len(devices) == 1 and "S" in kinds:
            found.append(f"stage {stage} is on device {devices[0]} alone: leave out its S, G and X")
    return found


def _closing_faults_of_stage(schedule, parts):
    """Yield (action or None, fault) of the closing actions in `parts`, all actions of a device on a stage."""
    gradients = []  # the micro-batches whose gradients were computed since the last update
    summed = updated = None  # the `A` or `S` that has added them up, and that update
    refused = set()  # closing actions that come too early: each is reported once
    sums = adding(SUMMED, schedule.kinds)
    for part in parts:
        kind, stage, i = part
        if kind in REPEATED:
            continue
        if kind in CLOSING:  # it has the number of the last micro-batch whose gradient it includes
            does, last = "apply" if kind == "U" else "add up", max(gradients, default=i)
            if i not in gradients:
                applied = f"an update before it applied the gradient of micro-batch {i}"
                yield part, f"{part} has nothing to {does}: {applied}"
            elif last > i:
                yield part, (
                    f"{part} comes after the backward of micro-batch {last}, whose gradient it would {does}, "
                    f"too: put it before that, or write {stage}{kind}{last}"
                )
        elif updated and not schedule.versions and updated not in refused:
            refused.add(updated)
            yield part, (
                f"{part} comes after {updated}, so the order updates weights but does not say which ones it "
                "works with: pass versions, for each stage a row with the number of updates in the weights "
                "for each micro-batch, or put the update after the stage's last backward"
            )
        if kind in sums:
            summed = part
        elif kind == "U":
            if sums and not summed:
                yield part, (
                    f"{part} applies gradients that no {RULES[sums[0]].name} has added up: "
                    f"put {stage}{sums[0]}{i} before it"
                )
            gradients, summed, updated = [], None, part
        elif RULES[kind].adds & WEIGHT:
            gradients.append(i)
            if summed and summed not in refused:
                refused.add(summed)
                yield summed, (
                    f"{summed} comes before {part}, whose gradient it leaves out: put it after the stage's "
                    "last backward"
                )
    left_out = {"U": "U" in schedule.kinds and updated not in refused} | dict.fromkeys(sums, not summed)
    for kind in [kind for kind in left_out if left_out[kind] and gradients]:
        yield None, (
            f"no {RULES[kind].name} of stage {stage} takes in micro-batch{'es' * (len(gradients) > 1)} "
            f"{_text_of(sorted(gradients))}: an order with some {kind} has all of them, so put "
            f"{stage}{kind}{max(gradients)} after the stage's last backward"
        )


def _missing_parameters(parts, at_ends):
    """Yield (action, fault) for the first of a stage's `parts` that lacks parameters, or has too many.

    Args:
        at_ends: whether the device has all parameters at the beginning and at the end,
            as in an order without X; otherwise only its own shard.
    """
    whole = at_ends
    for part in parts:
        rule = RULES[part.kind]
        if rule.whole not in (None, whole):
            before, has = ("G", "only its own shard") if rule.whole else ("X", "all")
            yield part, (
                f"{part} comes when the device has {has} of the parameters: leave it out, or put "
                f"{part._replace(kind=before)} before it"
            )
            return
        whole = whole if rule.leaves is None else rule.leaves
    if whole != at_ends:
        kind = "G" if at_ends else "X"
        yield part, f"{part} is the last of its stage: put {part._replace(kind=kind)} after it"


def _text_of(numbers):
    return ", ".join(map(str, numbers))


# All faults; then those of sizes, of counts, of the order of actions, and of limits.

def faults(schedule: Schedule, most_alive: float | Sequence[float] | None = None) -> list[Fault]:
    """Return a list of the `Fault`s of an order, in time proportional to the number of its actions.

    Args:
        schedule: a `Schedule`.
        most_alive: the micro-batches that a device can keep, as for `Schedule.faults`.
    """
    def placed(fault):
        if isinstance(fault, Fault):
            return fault
        if isinstance(fault, str):
            return Fault(fault)
        device, part, words = fault  # part: the wrong action, or None
        return Fault(f"device {device}: {words}", device, schedule.position_of.get((device, part)))

    found = list(wrong_form(schedule))
    if not found:
        progress = play(schedule)
        if progress is not None:
            for faults_of in (_unknown, _on_two_devices, _wrong_count, _wrong_order, _weights_too_new):
                found += faults_of(schedule)
            found = found or wrong_closings(schedule) or [progress.deadlock()]
        else:
            found = wrong_closings(schedule)
            if most_alive is not None:
                found += _too_many_alive(schedule, most_alive)
    return list(map(placed, found))


def stop_of(schedule: Schedule) -> Stop | None:
    """Return the `Stop` of an order that cannot finish, or None.

    Raises:
        ScheduleError: the sizes of `schedule` are wrong, so what its actions mean is not known.
    """
    found = schedule.faults()
    if not found:
        return None
    if any(wrong_form(schedule)):
        schedule.validate()
    progress = play(schedule)
    if progress is None:  # only the closing actions are wrong
        return Stop(found, list(map(len, schedule.devices)), {})
    return progress.stop(found)


def wrong_form(schedule: Schedule) -> Iterator[str]:
    """Yield the faults of the sizes, of `copy_of` and of `versions`, which give actions their meaning."""
    n_stages, n_microbatches = schedule.n_stages, schedule.n_microbatches
    if not all(isinstance(size, Integral) and size >= 1 for size in (n_stages, n_microbatches)):
        yield (
            "a schedule needs at least 1 stage and 1 micro-batch, in whole numbers, not "
            f"{n_stages!r} and {n_microbatches!r}"
        )
        return
    if n_stages * n_microbatches > MOST_ACTIONS:
        sizes = f"stages={n_stages} and microbatches={n_microbatches}"
        yield f"{sizes} make more than {MOST_ACTIONS:,} actions: use fewer"
        return
    copies = schedule.copy_of
    if copies and (len(copies) != n_microbatches or not all(map(is_count, copies))):
        yield f"copy_of={copies} must have a copy, 0, 1, ..., for each of the {n_microbatches} micro-batches"
    elif copies and max(copies) >= len(set(copies)):
        idle = min(set(range(n_microbatches)) - set(copies))
        remedy = "where there is one copy, leave copy_of out"
        if len(set(copies)) > 1:
            remedy = "number the copies without a gap"
        yield f"copy_of={copies} leaves copy {idle} without micro-batches: {remedy}"
    shape = [len(row) for row in schedule.versions]
    if schedule.versions and shape != [n_microbatches] * n_stages:
        yield (
            f"versions has rows of lengths {shape}: give it {n_stages} rows, one for each stage, of "
            f"{n_microbatches} numbers"
        )
    wrong = [version for row in schedule.versions for version in row if not is_count(version)]
    if wrong:
        yield (
            f"versions has {wrong[0]!r}: it counts the updates in the weights, so write whole numbers of at "
            "least 0"
        )


def is_count(number: Any) -> bool:
    """Tell whether this is a whole number of at least 0; a boolean is not."""
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= 0


def _is_known(part, schedule):
    return 0 <= part.stage < schedule.n_stages and 0 <= part.microbatch < schedule.n_microbatches


def _unknown(schedule):
    for device, part in dict.fromkeys((device, part) for device, part, _ in schedule.walk()):
        if part.kind not in RULES:
            yield device, part, f"{part} is of unknown kind {part.kind!r}: use {join_with_or(RULES)}"
        elif not 0 <= part.stage < schedule.n_stages:
            yield device, part, f"{part} is unknown: stages are 0..{schedule.n_stages - 1}"
        elif not _is_known(part, schedule):
            yield device, part, f"{part} is unknown: micro-batches are 0..{schedule.n_microbatches - 1}"


def _on_two_devices(schedule):
    remedy = "" if schedule.copy_of else (
        ", unless there are copies of the network: say so by copy_of"
    )
    places = [(stage, copy) for copy, found in enumerate(schedule.devices_of) for stage in found]
    for stage, copy in sorted(places):
        devices = sorted(schedule.devices_of[copy][stage])
        if len(devices) > 1:
            yield (
                f"stage {stage}{f' of copy {copy}' if schedule.copy_of else ''} is on devices "
                f"{', '.join(map(str, devices))}: a stage's parameters are on one device only{remedy}"
            )


def _wrong_count(schedule):
    """Yield a fault for each action of a stage and a micro-batch that is missing or done twice."""
    place = schedule.position_of.get
    counts = Counter(part for _, part, _ in schedule.walk() if part.kind in RULES)
    for stage in range(schedule.n_stages):
        for microbatch, copy in enumerate(schedule.copies):
            device = schedule.device_of[copy].get(stage)
            who = "no device" if device is None else f"device {device}"
            never = "no device does" if device is None else f"device {device} never does"
            actions = {kind: Action(kind, stage, microbatch) for kind in RULES}
            count = {kind: counts[action] for kind, action in actions.items()}
            for action in actions.values():
                if counts[action] > 1 and action.kind not in REPEATED:
                    words = f"{who} does {action} {counts[action]} times (duplicated): once is enough"
                    yield Fault(words, device, place((device, action)))
            missing = [kind for kind in "FBIW" if not any(count[other] for other in adding(RULES[kind].adds))]
            if "B" in missing:  # it stands for both halves
                missing = [kind for kind in missing if kind in "FB"]
            for kind in missing:
                every = f"F and B (or I and W) of micro-batches 0..{schedule.n_microbatches - 1}"
                yield Fault(f"{never} {stage}{kind}{microbatch} (missing): every stage needs {every}", device)
            halves = [actions[kind] for kind in ("I", "W") if count[kind]]
            if count["B"] and halves:
                also = f"and also its half {halves[0]} (duplicated): use B, or I and W"
                yield Fault(f"{who} does {stage}B{microbatch} {also}", device, place((device, halves[0])))


def _wrong_order(schedule):
    """Yield a fault for each action before one that it needs, or after one that it must precede."""
    for device in range(len(schedule.devices)):
        positions = {}
        for position, part in enumerate(schedule.parts(device)):
            if part.kind in RULES:
                positions.setdefault(part, position)
        for part, position in positions.items():
            rule = RULES[part.kind]
            needed = [other for other in _others(part, rule.needs) if other in positions]
            first = next((other for other in needed if position < positions[other]), None)
            if first is not None:
                what = f"the gradient of micro-batch {part.microbatch} is complete"
                if RULES[first.kind].adds == FORWARD:
                    what = f"its forward {first}"
                elif rule.needs == INPUT:
                    what = f"{first}, the other half, which it needs"
                yield device, part, f"{part} comes before {what}"
            for other in _others(part, rule.forbids):
                said = RULES[other.kind].needs & rule.adds  # of `other`, which comes before what it needs
                if other in positions and position > positions[other] and not said:
                    yield device, part, f"{part} comes after {other}, which needs it"


def _others(part, bits):
    """Return the actions that add any of `bits` for the stage and micro-batch of `part`.

    Actions that repeat the work of `part` are left out: they are a wrong count, not a
    wrong order.
    """
    kinds = [kind for kind in adding(bits) if not RULES[kind].adds & RULES[part.kind].adds]
    return [Action(kind, part.stage, part.microbatch) for kind in kinds]


def _weights_too_new(schedule):
    """Yield a fault for each forward that needs weights of an update that comes later."""
    for device, part, made in schedule.walk():
        if schedule.versions and part.kind == "F" and _is_known(part, schedule):
            version = schedule.versions[part.stage][part.microbatch]
            if version > made:
                yield device, part, (
                    f"{part} needs the weights after {version} updates, but there were only "
                    f"{made} by then"
                )


def _too_many_alive(schedule, most_alive):
    limits = one_for_each("most_alive", most_alive, "limits", len(schedule.devices), "device")
    for device, limit in enumerate(limits):
        kept = 0
        for action in schedule.devices[device]:
            kept += sum(part.alive for part in action.parts if part.alive > 0)
            alive = as_float(divide_exactly(kept, schedule.stages_on[device]))
            if not alive <= limit:
                yield device, action.parts[0], (
                    f"with {action}, {alive} micro-batches are alive at once, above the "
                    f"limit of {limit}: put a backward before it"
                )
                break
            kept += sum(part.alive for part in action.parts if part.alive < 0)
