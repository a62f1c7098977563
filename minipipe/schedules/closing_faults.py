"""All that can be wrong with what closes a mini-batch: the all-reduces `A` and the updates `U` of an order.

An order without any `A` is complete: the gradients of all copies are added up at its end. So is one without
any `U`: the optimizer makes its step after it. An order with some must have all, on each stage of each copy.
Copies that have a stage on the same device share it there, so it has one `A` and one `U` for all of them.
"""

from .rules import CLOSING, RULES, WEIGHT, works_on


def wrong_closings(schedule):
    """The faults of the `A` and `U` of an order in which everything else is as it should be."""
    if not schedule.kinds & CLOSING:
        return []
    parts_of = {}
    for device, part, _ in schedule.walk():
        parts_of.setdefault((device, part.stage), []).append(part)
    found = [
        f"device {device}: {fault}"
        for (device, _), parts in parts_of.items() for fault in _faults_of_stage(schedule, parts)
    ]
    if "A" not in schedule.kinds or not found:
        found += _faults_between_devices(schedule, parts_of)
    return found


def _faults_of_stage(schedule, parts):
    """What is wrong with the closing actions among `parts`, all that one device does for one stage."""
    gradients = []  # the micro-batches whose gradients were made since the last update
    summed = updated = None  # the `A` that has added them up, and that update
    refused = set()  # closing actions that come too early, which is said once
    sums = "A" in schedule.kinds
    for part in parts:
        kind, stage, i = part
        if kind in CLOSING:
            yield from _wrong_name(part, gradients)
        elif updated and not schedule.versions and updated not in refused:
            refused.add(updated)
            yield (
                f"{part} comes after {updated}, so the order updates weights but does not say which ones it "
                "works with: pass versions, for each stage a row with the number of updates in the weights "
                "for each micro-batch, or put the update behind the stage's last backward"
            )
        if kind == "A":
            summed = part
        elif kind == "U":
            if sums and not summed:
                yield (
                    f"{part} applies gradients that no all-reduce has added up: put {stage}A{i} before it"
                )
            gradients, summed, updated = [], None, part
        elif RULES[kind].adds & WEIGHT:
            gradients += works_on(part)
            if summed and summed not in refused:
                refused.add(summed)
                yield (
                    f"{summed} comes before {part}, whose gradient it leaves out: put it behind the stage's "
                    "last backward"
                )
    left_out = {"U": "U" in schedule.kinds and updated not in refused, "A": sums and not summed}
    for kind in [kind for kind in left_out if left_out[kind] and gradients]:
        yield (
            f"no {RULES[kind].name} of stage {stage} takes in micro-batch{'es' * (len(gradients) > 1)} "
            f"{_listed(sorted(gradients))}: an order with some {kind} has all of them, so put "
            f"{stage}{kind}{max(gradients)} behind the stage's last backward"
        )


def _wrong_name(part, gradients):
    """An `A` or `U` is named by the last of the micro-batches whose gradients it takes in."""
    kind, stage, i = part
    takes_in = {"A": "add up", "U": "apply"}[kind]
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
    for stage in range(schedule.n_stages):
        devices = schedule.holders(stage)
        numbers = [[part.kind for part in parts_of[r, stage]].count("A") for r in devices]
        if len(devices) > 1 and "A" not in schedule.kinds:
            yield (
                f"stage {stage} is on devices {_listed(devices)}, so an update needs the sum of their "
                "gradients: put an A before each U, as with_all_reduce does"
            )
        elif len(set(numbers)) > 1:
            yield (
                f"devices {_listed(devices)} have {_listed(numbers)} all-reduces of stage {stage}: each of "
                "them is a meeting of all, so put equally many on each"
            )


def _listed(numbers):
    return ", ".join(map(str, numbers))
