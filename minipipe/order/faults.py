"""All faults that a schedule can have, found before anything runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from .actions import (
    CLOSING, MEETING, MOST_ACTIONS, REPEATED, RULES, SUMMED, WEIGHT, Action, Fault, adding,
)
from .costs import as_float, divide_exactly, one_for_each
from .playing import Stop, play, unknown

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
    """Return the faults of closing actions, where a `schedule` has no others."""
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
    for (device, _), parts in parts_of.items() if "S" in kinds else ():
        last = [part for part in parts if RULES[part.kind].leaves is not None][-1]
        if RULES[last.kind].leaves == ("X" in kinds):
            after = last._replace(kind="X" if "X" in kinds else "G")
            found.append((device, last, f"{last} is the last of its stage: put {after} after it"))
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
    """Yield (action or None, fault) of the closing actions in `parts`, of one stage."""
    gradients = []  # the micro-batches whose gradients were computed since the last update
    summed = updated = None  # the `A` or `S` since the last update, and that update
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


def _text_of(numbers):
    return ", ".join(map(str, numbers))


# All faults; then the faults of sizes, of missing actions, and of limits.

def faults(schedule: Schedule, most_alive: float | Sequence[float] | None = None) -> list[Fault]:
    """Return the `Fault`s of an order, in time proportional to its actions.

    Of several actions in wrong places on one device, only the first is a fault.

    Args:
        schedule: a `Schedule`.
        most_alive: the micro-batches that a device can keep, as for `Schedule.faults`.
    """
    return _judged(schedule, most_alive)[0]


def stop_of(schedule: Schedule) -> Stop | None:
    """Return the `Stop` of a `schedule` that cannot finish, or None.

    Raises:
        ScheduleError: its sizes are wrong, so what its actions mean is not known.
    """
    found, progress = _judged(schedule)
    if any(wrong_form(schedule)):
        schedule.validate()
    if progress is not None:
        return progress.stop(found)
    # only the closing actions are wrong
    return Stop(found, list(map(len, schedule.devices)), {}) if found else None


def _judged(schedule, most_alive=None):
    """Return (the faults, the `Progress` at the stop, or None if all finish)."""
    def placed(fault):
        if isinstance(fault, str):
            return fault if isinstance(fault, Fault) else Fault(fault)
        device, part, words = fault  # part: the wrong action, or None
        return Fault(f"device {device}: {words}", device, schedule.position_of.get((device, part)))

    found, progress = list(wrong_form(schedule)), None
    if not found:
        progress = play(schedule)
        if progress is not None:
            actions = [(device, part, unknown(schedule, part)) for device, part, _ in schedule.walk()]
            found = [action for action in actions if action[2] is not None]
            found += [*progress.wrong_actions(), *_missing(schedule)]
            found = found or wrong_closings(schedule) or [progress.deadlock()]
        else:
            found = wrong_closings(schedule)
            if most_alive is not None:
                found += _too_many_alive(schedule, most_alive)
    return list(dict.fromkeys(map(placed, found))), progress


def wrong_form(schedule: Schedule) -> Iterator[str]:
    """Yield the faults of a `schedule`'s sizes, `copy_of` and `versions`."""
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
    """Tell whether `number` is whole and at least 0; a boolean is not."""
    return isinstance(number, Integral) and not isinstance(number, bool) and int(number) >= 0


def _missing(schedule):
    """Yield a fault for each forward and backward that no device does."""
    counts = Counter(part for _, part, _ in schedule.walk())
    for stage in range(schedule.n_stages):
        for microbatch, copy in enumerate(schedule.copies):
            device = schedule.device_of[copy].get(stage)
            who = "no device does" if device is None else f"device {device} never does"
            count = {kind: counts[Action(kind, stage, microbatch)] for kind in RULES}
            missing = [kind for kind in "FBIW" if not any(count[other] for other in adding(RULES[kind].adds))]
            if "B" in missing:  # it stands for both halves
                missing = [kind for kind in missing if kind in "FB"]
            for kind in missing:
                every = f"F and B (or I and W) of micro-batches 0..{schedule.n_microbatches - 1}"
                yield Fault(f"{who} {stage}{kind}{microbatch} (missing): every stage needs {every}", device)


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
