"""All that can be wrong with what closes a mini-batch: the `A` and `U` of an order, or its `S`, `U` and `G`.

An order without any `A` is complete: the gradients of all copies are added up at its end. So is one without
any `U`: the optimizer makes its step after it. An order with some must have all, on each stage of each copy.
Copies that have a stage on the same device share it there, so it has one `A` and one `U` for all of them.

Where gradients are added up by `S`, each device has a part of the sum: a `U` applies that, and then a `G`
gathers the parameters. `whole_faults` says what is wrong with who has which of these.
"""

from .rules import CLOSING, REPEATED, RULES, SUMMED, WEIGHT, adding, works_on
from .whole_faults import whole_faults


def wrong_closings(schedule):
    """The faults of the `A` and `U` of an order in which everything else is as it should be."""
    if not schedule.kinds & CLOSING:
        return []
    out_of_place = list(_parts_out_of_place(schedule))
    if out_of_place:
        return out_of_place
    parts_of = {}
    for device, part, _ in schedule.walk():
        parts_of.setdefault((device, part.stage), []).append(part)
    found = [
        f"device {device}: {fault}"
        for (device, _), parts in parts_of.items() for fault in _faults_of_stage(schedule, parts)
    ]
    if "S" in schedule.kinds and not found:
        found = whole_faults(schedule, parts_of)
    if not _sums(schedule) or not found:
        found += _faults_between_devices(schedule, parts_of)
    return found


def _parts_out_of_place(schedule):
    """What an order cannot be that works with parts of a sum, or that gathers what there are no parts of."""
    kinds = schedule.kinds
    if "A" in kinds and "S" in kinds:
        yield "the order adds gradients up by A and by S: use one of them for all stages"
    if "S" in kinds and "U" not in kinds:
        yield (
            "an S leaves each device a part of the sum, which only its own update can apply: put a U and a G "
            "behind each S, as with_zero does"
        )
    if "S" in kinds and schedule.versions:
        yield "an S needs an order whose weights do not change on the way: leave out versions, or use A"
    for kind in sorted(kinds & REPEATED if "S" not in kinds else ()):
        does = {"G": "gathers", "X": "leaves"}[kind]
        yield (
            f"{'a' if kind == 'G' else 'an'} {kind} {does} what devices update in parts: put an S in the "
            f"place of each A, or leave out {kind}"
        )


def _sums(schedule):
    """The kinds of action in the order that add up gradients of several devices: none, or one."""
    return adding(SUMMED, schedule.kinds)


def _faults_of_stage(schedule, parts):
    """What is wrong with the closing actions among `parts`, all that one device does for one stage."""
    gradients = []  # the micro-batches whose gradients were made since the last update
    summed = updated = None  # the `A` that has added them up, and that update
    refused = set()  # closing actions that come too early, which is said once
    sums = _sums(schedule)
    for part in parts:
        kind, stage, i = part
        if kind in REPEATED:
            continue
        if kind in CLOSING:
            yield from _wrong_name(part, gradients)
        elif updated and not schedule.versions and updated not in refused:
            refused.add(updated)
            yield (
                f"{part} comes after {updated}, so the order updates weights but does not say which ones it "
                "works with: pass versions, for each stage a row with the number of updates in the weights "
                "for each micro-batch, or put the update behind the stage's last backward"
            )
        if kind in sums:
            summed = part
        elif kind == "U":
            if sums and not summed:
                yield (
                    f"{part} applies gradients that no {RULES[sums[0]].name} has added up: "
                    f"put {stage}{sums[0]}{i} before it"
                )
            gradients, summed, updated = [], None, part
        elif RULES[kind].adds & WEIGHT:
            gradients += works_on(part, schedule.copy_of)
            if summed and summed not in refused:
                refused.add(summed)
                yield (
                    f"{summed} comes before {part}, whose gradient it leaves out: put it behind the stage's "
                    "last backward"
                )
    left_out = {"U": "U" in schedule.kinds and updated not in refused} | dict.fromkeys(sums, not summed)
    for kind in [kind for kind in left_out if left_out[kind] and gradients]:
        yield (
            f"no {RULES[kind].name} of stage {stage} takes in micro-batch{'es' * (len(gradients) > 1)} "
            f"{_listed(sorted(gradients))}: an order with some {kind} has all of them, so put "
            f"{stage}{kind}{max(gradients)} behind the stage's last backward"
        )


def _wrong_name(part, gradients):
    """An `A` or `U` is named by the last of the micro-batches whose gradients it takes in."""
    kind, stage, i = part
    takes_in = "apply" if kind == "U" else "add up"
    if i not in gradients:
        yield (
            f"{part} has nothing to {takes_in}: an update before it applied the gradient of micro-batch {i}"
        )
    elif max(gradients) > i:
        yield (
            f"{part} comes after the backward of micro-batch {max(gradients)}, whose gradient it would "
            f"{takes_in}, too: put it before that, or write {stage}{kind}{max(gradients)}"
        )


def _faults_between_devices(schedule, parts_of):
    """What is wrong with stages that are on several devices: each all-reduce of them is a meeting of all."""
    sums = _sums(schedule)
    for stage in range(schedule.n_stages):
        devices = schedule.holders(stage)
        numbers = [sum(part.kind in sums for part in parts_of[r, stage]) for r in devices]
        if len(devices) > 1 and not sums:
            yield (
                f"stage {stage} is on devices {_listed(devices)}, so an update needs the sum of their "
                "gradients: put an A before each U, as with_all_reduce does"
            )
        elif len(set(numbers)) > 1:
            yield (
                f"devices {_listed(devices)} have {_listed(numbers)} {RULES[sums[0]].name}s of stage "
                f"{stage}: each of them is a meeting of all, so put equally many on each"
            )
        elif len(devices) == 1 and "S" in schedule.kinds:
            yield (
                f"stage {stage} is on device {devices[0]} alone, so an S has nobody to share it with: leave "
                "out S, G and X"
            )


def _listed(numbers):
    return ", ".join(map(str, numbers))
