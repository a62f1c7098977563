"""All that can be wrong with a schedule, found before anything runs."""

from collections import Counter
from numbers import Integral

from .actions import Action
from .closing_faults import wrong_closings
from .deadlock import deadlock
from .limits import MOST_ACTIONS, one_for_each
from .playing import play
from .rules import CLOSING, FORWARD, INPUT, REPEATED, RULES, adding, one_of, works_on
from .shares import as_float, share


def faults(schedule, most_alive=None, most_versions=None):
    """Every fault of `schedule` in words. Takes time in proportion to the number of actions."""
    found = list(wrong_form(schedule)) or list(_late_W_out_of_place(schedule))
    if found:
        return found
    stop = play(schedule)
    if stop is not None:
        for faults_of in (_unknown, _on_two_devices, _wrong_count, _wrong_order, _weights_too_new):
            found += faults_of(schedule)
        return found or wrong_closings(schedule) or [deadlock(schedule, stop)]
    found = wrong_closings(schedule)
    if most_alive is not None:
        found += _too_many_alive(schedule, most_alive)
    if most_versions is not None and schedule.versions:
        found += _too_old_weights(schedule, most_versions)
    return found


def wrong_form(schedule):
    """What is wrong with the sizes, `copy_of` and `versions`, which say how to read the actions."""
    n_stages, n_microbatches = schedule.n_stages, schedule.n_microbatches
    if not all(isinstance(size, Integral) and size >= 1 for size in (n_stages, n_microbatches)):
        yield (
            "a schedule needs at least 1 stage and 1 micro-batch, in whole numbers, not "
            f"{n_stages!r} and {n_microbatches!r}"
        )
        return
    if n_stages * n_microbatches > MOST_ACTIONS:
        sizes = f"n_stages={n_stages} and n_microbatches={n_microbatches}"
        yield f"{sizes} make more than {MOST_ACTIONS:,} actions: use fewer"
        return
    copies = schedule.copy_of
    if copies and (len(copies) != n_microbatches or not all(map(_counts, copies))):
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
    wrong = [version for row in schedule.versions for version in row if not _counts(version)]
    if wrong:
        yield (
            f"versions has {wrong[0]!r}: it counts the updates in the weights, so write whole numbers of at "
            "least 0"
        )


def _late_W_out_of_place(schedule):
    """What a `W*` cannot be in: its one product takes in a run of micro-batches, with the same weights."""
    if "W*" not in schedule.kinds:
        return
    copies, why = list(schedule.copies), ""
    if schedule.versions:
        why = "versions say that weights change on the way"
    elif copies != sorted(copies):
        why = "copy_of says that those of a copy do not follow each other"
    for device, part, _ in schedule.walk():
        if part.kind == "W*" and (why or len(schedule.holders(part.stage)) < schedule.n_copies):
            yield (
                f"device {device}: {part} makes the weight gradients of all micro-batches in one product, "
                f"but {why or 'copies of the network share the device'}: use a W for each micro-batch"
            )


def _counts(number):
    return isinstance(number, Integral) and number >= 0


def _is_known(part, schedule):
    return 0 <= part.stage < schedule.n_stages and 0 <= part.microbatch < schedule.n_microbatches


def _unknown(schedule):
    for device, part in dict.fromkeys((device, part) for device, part, _ in schedule.walk()):
        if part.kind not in RULES:
            yield f"device {device}: {part} is of unknown kind {part.kind!r}: use {one_of(RULES)}"
        elif not 0 <= part.stage < schedule.n_stages:
            yield f"device {device}: {part} is unknown: stages are 0..{schedule.n_stages - 1}"
        elif not _is_known(part, schedule):
            yield f"device {device}: {part} is unknown: micro-batches are 0..{schedule.n_microbatches - 1}"
        elif part != _at(schedule, *part):
            yield (
                f"device {device}: {part} leaves out micro-batches behind {part.microbatch}, but takes in "
                f"all: write {_at(schedule, *part)}"
            )


def _on_two_devices(schedule):
    remedy = "" if schedule.copy_of else (
        ", unless there are copies of the network: say so by copy_of, or --copy-of on the command line"
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
    """What is done too often, or never, of a stage and a micro-batch."""
    counts = Counter(_at(schedule, *part) for _, part, _ in schedule.walk() if part.kind in RULES)
    for stage in range(schedule.n_stages):
        for microbatch, copy in enumerate(schedule.copies):
            device = schedule.device_of[copy].get(stage)
            who = "no device" if device is None else f"device {device}"
            never = "no device does" if device is None else f"device {device} never does"
            actions = {kind: _at(schedule, kind, stage, microbatch) for kind in RULES}
            count = {kind: counts[action] for kind, action in actions.items()}
            for action in actions.values():
                is_once = action.microbatch == microbatch and action.kind not in REPEATED
                if counts[action] > 1 and is_once:
                    yield f"{who} does {action} {counts[action]} times (duplicated): once is enough"
            for kind in _missing(count):
                yield (
                    f"{never} {stage}{kind}{microbatch} (missing): every stage needs F and B (or I and W) of "
                    f"micro-batches 0..{schedule.n_microbatches - 1}"
                )
            halves = [actions[kind] for kind in ("I", "W", "W*") if count[kind]]
            if count["B"] and halves:
                yield (
                    f"{who} does {stage}B{microbatch} and also its half {halves[0]} (duplicated): use B, or "
                    "I and W"
                )
            elif count["W"] and count["W*"]:
                yield (
                    f"{who} does {stage}W{microbatch} and also {halves[-1]}, which takes it in (duplicated): "
                    "use one of them"
                )


def _missing(count):
    """The kinds that a stage lacks for a micro-batch; where both halves of a backward are missing, B is."""
    missing = [kind for kind in "FBIW" if not any(count[other] for other in adding(RULES[kind].adds))]
    return [kind for kind in missing if kind in "FB" or "B" not in missing]


def _wrong_order(schedule):
    """Actions before one that they need, or after one that they must come before."""
    for device in range(len(schedule.devices)):
        positions = {}
        for position, part in enumerate(schedule.parts(device)):
            if part.kind in RULES:
                positions.setdefault(part, position)
        for part, position in positions.items():
            rule = RULES[part.kind]
            needed, too_early = (
                _others(schedule, part, bits, positions) for bits in (rule.needs, rule.forbids)
            )
            too_late = [other for other in needed if position < positions[other]]
            if too_late:
                yield f"device {device}: {part} comes before {_needed(too_late[0], part)}"
            for other in too_early:
                said = RULES[other.kind].needs & rule.adds  # of `other`, which comes before what it needs
                if position > positions[other] and not said:
                    yield f"device {device}: {part} comes after {other}, which needs it"


def _others(schedule, part, bits, known):
    """Those of `known` that add any of `bits` where `part` works, but do not do its work.

    Who does the same work twice has a wrong count, not a wrong order.
    """
    kinds = [kind for kind in adding(bits) if not RULES[kind].adds & RULES[part.kind].adds]
    actions = [_at(schedule, kind, part.stage, i) for kind in kinds for i in works_on(part, schedule.copy_of)]
    return [action for action in dict.fromkeys(actions) if action in known]


def _at(schedule, kind, stage, microbatch):
    """The action of this kind that works on a micro-batch: one for all of a copy is named by its last."""
    if RULES[kind].wide and 0 <= microbatch < schedule.n_microbatches:
        microbatch = schedule.last_of_copy[schedule.copies[microbatch]]
    return Action(kind, stage, microbatch)


def _needed(other, part):
    """What `part` needs of the action `other`, in words."""
    if RULES[other.kind].adds == FORWARD:
        return f"its forward {other}"
    if RULES[part.kind].needs == INPUT:
        return f"{other}, the other half, which it needs"
    return f"the gradient of micro-batch {part.microbatch} is complete"


def _weights_too_new(schedule):
    """Forwards with weights that no update has made yet."""
    for device, part, made in schedule.walk():
        if schedule.versions and part.kind == "F" and _is_known(part, schedule):
            version = schedule.versions[part.stage][part.microbatch]
            if version > made:
                yield (
                    f"device {device}: {part} needs the weights after {version} updates, but there were only "
                    f"{made} by then"
                )


def _too_old_weights(schedule, most_versions):
    for device, part, made in schedule.walk():
        version = schedule.versions[part.stage][part.microbatch]
        if part.kind not in CLOSING and not made - version < most_versions:
            yield (
                f"device {device}: {part} needs the weights after {version} updates, which no longer exist: "
                f"there were {made}, and only the newest {most_versions} versions are kept"
            )


def _too_many_alive(schedule, most_alive):
    try:
        limits = one_for_each("most_alive", most_alive, "limits", len(schedule.devices), "device")
    except ValueError as error:
        yield str(error)
        return
    for device, limit in enumerate(limits):
        kept = 0
        for action in schedule.devices[device]:
            kept += sum(part.alive for part in action.parts if part.alive > 0)
            alive = as_float(share(kept, schedule.stages_on[device]))
            if not alive <= limit:
                yield (
                    f"device {device}: with {action}, {alive} micro-batches are alive at once, above the "
                    f"limit of {limit}: put a backward before it"
                )
                break
            kept += sum(part.alive for part in action.parts if part.alive < 0)
