"""Orders in which devices wait for each other: a cycle, in words."""

from .playing import devices_with_copies
from .rules import before


def deadlock(schedule, stop):
    """The cycle of who waits for whom."""
    waits = _Waits(schedule, stop)
    path = [waits.first()]
    while (following := waits.after(path[-1])[1]) not in path:
        path.append(following)
    cycle = path[path.index(following):]
    remedy = ""
    if all(communicates for _, communicates in cycle):
        remedy = ": start the all-reduces in the same order of stages on all devices"
    return "deadlock: " + ", and ".join(waits.after(place)[0] for place in cycle) + remedy


class _Waits:
    """Who waits for whom in a schedule that stops at `stop`.

    A place is (device, whether it is the communication lane).
    """

    def __init__(self, schedule, stop):
        self.schedule, self.stop = schedule, stop
        self.placements, self.devices_of = schedule.placements, devices_with_copies(schedule)
        self.to_come = {
            part for head, order in zip(stop.heads, schedule.devices)
            for action in order[head:] for part in action.parts
        }

    def first(self):
        """A place that waits."""
        for device, order in enumerate(self.schedule.devices):
            if self.stop.heads[device] < len(order):
                return device, False
        return next(device for device, lane in enumerate(self.stop.lanes) if lane), True

    def after(self, place):
        """(what a place waits for, in words; the place that it waits for)"""
        device, communicates = place
        return self._of_an_all_reduce(device) if communicates else self._of_an_action(device)

    def _of_an_action(self, device):
        action = self._next_action(device)
        needs = [need for part in action.parts for need in before(*part) if need in self.to_come]
        if not needs:  # an update, whose gradients are complete
            words = f"device {device} cannot start {action} before {action.stage}A{action.microbatch} is over"
            return words, (device, True)
        kind, stage, microbatch = needs[0]
        copy = self.schedule.copy_of[microbatch] if self.schedule.copy_of else 0
        holder = self.placements[copy][stage]
        words = f"device {device} cannot start {action} before {stage}{kind}{microbatch} on device {holder}"
        return words, (holder, False)

    def _of_an_all_reduce(self, device):
        """It waits for a device that has something else to do before its part in it."""
        stage, lanes = self.stop.lanes[device][0].stage, self.stop.lanes
        other = next(r for r in self.devices_of[stage] if not (lanes[r] and lanes[r][0].stage == stage))
        now = lanes[other][0] if lanes[other] else self._next_action(other)
        to_come = [*lanes[other], *(part for part in self.schedule.parts(other) if part in self.to_come)]
        theirs = next(part for part in to_come if (part.kind, part.stage) == ("A", stage))
        mine = lanes[device][0]
        words = f"device {device} cannot end {mine} before {theirs} on device {other}, behind {now}"
        return words, (other, bool(lanes[other]))

    def _next_action(self, device):
        return self.schedule.devices[device][self.stop.heads[device]]
