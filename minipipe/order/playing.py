"""A schedule performed action by action: whether it comes to its end, and who waits for whom if not."""

from collections import Counter, defaultdict, deque

from .actions import RULES, WEIGHT, before, works_on


def play(schedule):
    """Return None if all devices come to their end with everything done, else the `Progress` so far.

    It needs no clock: the order of each device is given, so *whether* all is done does not depend on *when*,
    and every schedule is played before it is run. Each device goes on until something is missing, and is
    looked at again when that is there. Takes time in proportion to the number of actions.
    """
    progress = Progress(schedule)
    ready = list(range(len(schedule.devices)))
    while ready:
        device = ready.pop()
        actions = progress.left[device]
        while actions and all(progress.can_begin(device, part) for part in actions[0].parts):
            for part in actions.popleft().parts:
                ready += progress.perform(device, part)
    complete = all(state & WEIGHT for row in progress.done for state in row)
    return None if complete and not any(progress.left) and not any(progress.lanes) else progress


class Progress:
    """How far the devices of a schedule are.

    left: for each device, the actions that it has still to do, in order.
    lanes: for each device, the exchanges that it has started and that are not over, in order.
    done: for each stage and micro-batch, what has been done, as bits.
    """

    def __init__(self, schedule):
        self._schedule, kinds = schedule, schedule.kinds
        self.left = list(map(deque, schedule.devices))
        self.lanes = [deque() for _ in schedule.devices]
        self.done = [bytearray(schedule.n_microbatches) for _ in range(schedule.n_stages)]
        self._waiting = {}  # (what is not done yet, stage, micro-batch) -> the device that waits for it
        self._updates = Counter()  # of (device, stage)
        self._holders = [schedule.holders(stage) for stage in range(schedule.n_stages)]
        # (device, stage) -> whether the device has all parameters of the stage; None in an order without S.
        # Where the order frees what it has gathered, devices have their own parts from the beginning.
        self._whole = defaultdict(lambda: "X" not in kinds) if "S" in kinds else None

    def can_begin(self, device, part):
        """Tell whether nothing is missing for an action; if a message is, the device waits for it."""
        kind, stage, i = part
        done, schedule, rule = self.done, self._schedule, RULES.get(kind)
        exists = rule and 0 <= stage < len(done) and 0 <= i < schedule.n_microbatches
        if not exists or schedule.device_of[schedule.copies[i]].get(stage) != device:
            return False
        looked_at = rule.needs | rule.forbids
        for j in works_on(part, schedule.copy_of) if rule.wide else (i,):
            if done[stage][j] & looked_at != rule.needs:
                return False
        source = stage - rule.way
        if source != stage and 0 <= source < len(done) and not done[source][i] & rule.handed_on:
            self._waiting[rule.handed_on, source, i] = device
            return False
        if kind == "F" and schedule.versions and schedule.versions[stage][i] > self._updates[device, stage]:
            return False
        if self._whole is not None and rule.whole not in (None, self._whole[device, stage]):
            return False
        return not (self.lanes[device] and _waits_for(kind, stage, self.lanes[device]))

    def perform(self, device, part):
        """Do an action; return the devices that can perhaps go on."""
        kind, stage, i = part
        rule = RULES[kind]
        for j in works_on(part, self._schedule.copy_of) if rule.wide else (i,):
            self.done[stage][j] |= rule.adds
        if self._whole is not None and rule.leaves is not None:
            self._whole[device, stage] = rule.leaves
        if kind == "U":
            self._updates[device, stage] += 1
        elif rule.meets:
            self.lanes[device].append(part)
            return self._meet(device)
        elif rule.way and (rule.handed_on, stage, i) in self._waiting:
            return [self._waiting.pop((rule.handed_on, stage, i))]
        return ()

    def _meet(self, device):
        """End all exchanges that can end now that `device` has started one; return who took part.

        An `A`, an `S` and a `G` only start an exchange. A lane works on one exchange after the other, so an
        exchange takes place when it is the first in the lanes of all devices that hold its stage.
        """
        lanes, to_look_at, took_part = self.lanes, [device], []
        while to_look_at:
            lane = lanes[to_look_at.pop()]
            devices = self._holders[lane[0].stage] if lane else []
            if lane and all(lanes[r] and lanes[r][0][:2] == lane[0][:2] for r in devices):
                for r in devices:
                    lanes[r].popleft()
                to_look_at += devices
                took_part += devices
        return took_part

    def deadlock(self):
        """Return the cycle of who waits for whom, in words.

        Each place in the cycle is (device, whether its communication lane waits).
        """
        to_come = {part for actions in self.left for action in actions for part in action.parts}
        path = [(r, False) for r, actions in enumerate(self.left) if actions]
        path = (path or [(r, True) for r, lane in enumerate(self.lanes) if lane])[:1]
        while (following := self._obstacle(*path[-1], to_come)[1]) not in path:
            path.append(following)
        cycle = path[path.index(following):]
        remedy = ""
        if all(communicates for _, communicates in cycle):
            remedy = ": start the exchanges in the same order of stages on all devices"
        return "deadlock: " + ", and ".join(self._obstacle(*place, to_come)[0] for place in cycle) + remedy

    def _obstacle(self, device, communicates, to_come):
        """Return (what a device, or its communication lane, waits for, in words; the place of that).

        to_come: all actions that are left.
        """
        schedule, lanes = self._schedule, self.lanes
        if communicates:
            mine = lanes[device][0]
            holders = self._holders[mine.stage]
            other = next(r for r in holders if not lanes[r] or lanes[r][0][:2] != mine[:2])
            behind = [*lanes[other], *self.left[other]]
            theirs = next(action for action in behind if action[:2] == mine[:2])
            words = f"device {device} cannot end {mine} before {theirs} on device {other}, behind {behind[0]}"
            return words, (other, bool(lanes[other]))
        action = self.left[device][0]
        words = f"device {device} cannot start {action} before "
        needs = [need for part in action.parts for need in before(*part) if need in to_come]
        if not needs:
            ends = (_waits_for(part.kind, part.stage, lanes[device]) for part in action.parts)
            return f"{words}{next(filter(None, ends))[0]} is over", (device, True)
        kind, stage, microbatch = needs[0]
        holder = schedule.device_of[schedule.copies[microbatch]][stage]
        return f"{words}{stage}{kind}{microbatch} on device {holder}", (holder, False)


def _waits_for(kind, stage, lane):
    """Return the exchanges in a device's lane that must be over before an action of this kind begins.

    An update waits for the sum that it applies; an action that needs all parameters, for their gather.
    """
    ends = [exchange for exchange in lane if exchange.stage == stage]
    if kind == "U":
        return ends
    return [exchange for exchange in ends if RULES[kind].whole and RULES[exchange.kind].leaves]
