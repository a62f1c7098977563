"""All that can be wrong with who has which parameters, in an order where devices update parts of them."""

from .rules import RULES


def whole_faults(schedule, parts_of):
    """The faults of the `G` and `X` of an order with S, in which everything else is as it should be.

    Without X, devices have all parameters at the beginning and at the end; with X, only their own parts.

    parts_of: {(device, stage): all that one does for the other, in order}
    """
    in_parts = "X" in schedule.kinds
    found = [
        f"device {device}: {fault}"
        for (device, stage), parts in parts_of.items() for fault in _faults_of_stage(stage, parts, in_parts)
    ]
    for stage in range(schedule.n_stages):
        devices = schedule.holders(stage)
        numbers = [sum(part.kind == "G" for part in parts_of[device, stage]) for device in devices]
        if len(set(numbers)) > 1:
            found.append(
                f"devices {', '.join(map(str, devices))} have {', '.join(map(str, numbers))} gathers of "
                f"stage {stage}: each of them is a meeting of all, so put equally many on each"
            )
    return found


def _faults_of_stage(stage, parts, in_parts):
    """What one device lacks, or has already, when an action of a stage begins; and at the end."""
    whole, last = not in_parts, None
    for part in parts:
        rule = RULES[part.kind]
        if rule.whole not in (None, whole):
            yield _has_not(part, last) if rule.whole else _has_all(part, in_parts)
            return
        if rule.leaves is not None:
            whole, last = rule.leaves, part
    if whole and in_parts:
        yield f"{last} leaves the parameters whole at the end: put {_at('X', last)} behind their last use"
    elif not whole and not in_parts:
        yield (
            f"each device has updated a part of stage {stage} by {last}, which no G sends to the others: "
            f"put {_at('G', last)} behind it"
        )


def _has_all(part, in_parts):
    """A gather of what is there already."""
    remedy = f"leave it out, or put {_at('X', part)} before it" if in_parts else "put it behind their update"
    return f"{part} gathers parameters of which the device has all: {remedy}"


def _has_not(part, last):
    """An action before which some of the parameters are missing since the action `last`."""
    since = "" if last is None else f" since {last}"
    remedy = "leave it out" if part.kind == "X" else f"put {_at('G', part)} before it"
    return f"{part} needs all parameters of its stage, but the device has its own part{since}: {remedy}"


def _at(kind, part):
    return part._replace(kind=kind)
