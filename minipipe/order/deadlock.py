"""Orders in which devices wait for each other: a cycle, in words."""

from .playing import waits_for
from .rules import before


def deadlock(schedule, stop):
    """The cycle of who waits for whom, where `play` comes to this `Stop`.

    Those who wait are (device, whether it is its communication lane).
    """
    to_come = {part for actions in stop.left for action in actions for part in action.parts}

    def after(device, communicates):
        if communicates:
            return _behind_an_exchange(schedule, stop, device)
        return _behind_an_action(schedule, stop, device, to_come)

    path = [(r, False) for r, actions in enumerate(stop.left) if actions]
    path = (path or [(r, True) for r, lane in enumerate(stop.lanes) if lane])[:1]
    while (following := after(*path[-1])[1]) not in path:
        path.append(following)
    cycle = path[path.index(following):]
    remedy = ""
    if all(communicates for _, communicates in cycle):
        remedy = ": start the exchanges in the same order of stages on all devices"
    return "deadlock: " + ", and ".join(after(*place)[0] for place in cycle) + remedy


def _behind_an_action(schedule, stop, device, to_come):
    """(what a device waits for that cannot start its next action, in words; who should do that)"""
    action = stop.left[device][0]
    words = f"device {device} cannot start {action} before "
    needs = [need for part in action.parts for need in before(*part) if need in to_come]
    if not needs:
        lane = stop.lanes[device]
        first = next(found for part in action.parts for found in waits_for(part.kind, part.stage, lane))
        return words + f"{first} is over", (device, True)
    kind, stage, microbatch = needs[0]
    holder = schedule.device_of[schedule.copies[microbatch]][stage]
    return words + f"{stage}{kind}{microbatch} on device {holder}", (holder, False)


def _behind_an_exchange(schedule, stop, device):
    """The same for its lane: it waits for a device that has something else to do before its part in it."""
    mine, lanes = stop.lanes[device][0], stop.lanes
    others = [r for r in schedule.holders(mine.stage) if not lanes[r] or lanes[r][0][:2] != mine[:2]]
    to_come = [*lanes[others[0]], *stop.left[others[0]]]
    theirs = next(action for action in to_come if action[:2] == mine[:2])
    words = f"device {device} cannot end {mine} before {theirs} on device {others[0]}, behind {to_come[0]}"
    return words, (others[0], bool(lanes[others[0]]))
