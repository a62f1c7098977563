"""A schedule performed action by action: whether it comes to its end, and who waits for whom if not."""

from collections import deque
from typing import NamedTuple

from .actions import CLOSING, RULES, WEIGHT, WIDE, before, works_on


class Stop(NamedTuple):
    """Where a schedule stops that does not come to its end.

    left: for each device, the actions that it cannot do, in order.
    lanes: for each device, the exchanges that it has started and that are not over, in order.
    """

    left: list
    lanes: list


def play(schedule):
    """None if all devices come to their end with everything done; else the `Stop`.

    Each device's order is given, so it does not matter which device is looked at first, and no clock is
    needed: each goes on until something is missing, and is looked at again when that is there. An `A`,
    an `S` and a `G` only start an exchange: that is over when all devices have come to it. Takes time in
    proportion to the number of actions.
    """
    n_microbatches, copies = schedule.n_microbatches, schedule.copies
    done = [bytearray(n_microbatches) for _ in range(schedule.n_stages)]
    closing = _Closing(schedule, done) if schedule.versions or schedule.kinds & (CLOSING | WIDE) else None
    (begins, ends), stages_on = _lookups(done), _stages_on(schedule)
    waiting = {}  # (what is not done yet, stage, micro-batch) -> the device that waits for it
    heads, ready = [0] * len(schedule.devices), list(range(len(schedule.devices)))
    while ready:
        device = ready.pop()
        order, own = schedule.devices[device], stages_on[device]
        for head in range(heads[device], len(order)):
            action = order[head]
            parts = (action,) if action[0].__class__ is str else action
            for kind, stage, i in parts:
                if kind not in begins or not 0 <= i < n_microbatches or stage not in own[copies[i]]:
                    break
                looked_at, needs, way, handed_on, heard = begins[kind]
                if done[stage][i] & looked_at != needs:
                    break
                if heard[stage][i] & handed_on != handed_on:
                    waiting[handed_on, stage - way, i] = device
                    break
                if closing and closing.holds_back(device, kind, stage, i):
                    break
            else:
                for kind, stage, i in parts:
                    adds, handed_on = ends[kind]
                    done[stage][i] |= adds
                    if handed_on and (handed_on, stage, i) in waiting:
                        ready.append(waiting.pop((handed_on, stage, i)))
                    elif closing:
                        ready += closing.after(device, action, kind, stage, i)
                continue
            break
        else:
            head = len(order)
        heads[device] = head
    left = [order[head:] for head, order in zip(heads, schedule.devices)]
    lanes = closing.lanes if closing else [()] * len(left)
    complete = all(state & WEIGHT for row in done for state in row)
    return None if complete and not any(left) and not any(lanes) else Stop(left, lanes)


def _lookups(done):
    """What `play` looks up for an action of each kind, from the rules and what is `done` on each stage.

    Two dicts, for its beginning {kind: (needs and forbids, needs, way, handed on, for each stage the row that
    it hears from)}, and for its end {kind: (adds, handed on)}.
    """
    stages, everything = range(len(done)), bytes([255]) * len(done[0])  # both ends wait for nobody
    begins, ends = {}, {}
    for kind, rule in RULES.items():
        heard = [done[stage - rule.way] if stage - rule.way in stages else everything for stage in stages]
        begins[kind] = rule.needs | rule.forbids, rule.needs, rule.way, rule.handed_on, heard
        ends[kind] = rule.adds, rule.handed_on
    return begins, ends


def _stages_on(schedule):
    """For each device, its stages: for each copy of the network, a set."""
    found = [[frozenset()] * schedule.n_copies for _ in schedule.devices]
    for copy, placed in enumerate(schedule.device_of):
        for stage, device in placed.items():
            if 0 <= stage < schedule.n_stages:
                found[device][copy] |= {stage}
    return found


class _Closing:
    """Where a schedule stands whose order has more than work on one micro-batch, or versions of weights.

    lanes: for each device, the exchanges that it has started and that are not over, in order.
    done: for each stage, what has been done for each micro-batch.
    """

    def __init__(self, schedule, done):
        self.lanes = [deque() for _ in schedule.devices]
        self._done, self._versions, self._copies = done, schedule.versions, schedule.copy_of
        self._updates = [[0] * schedule.n_stages for _ in schedule.devices]
        self._holders = [schedule.holders(stage) for stage in range(schedule.n_stages)]
        # for each device and stage, whether it has all of the stage's parameters, in an order with S: they
        # are in parts from the beginning where the order frees what it has gathered
        self._whole = "S" in schedule.kinds and [
            ["X" not in schedule.kinds] * schedule.n_stages for _ in schedule.devices
        ]

    def holds_back(self, device, kind, stage, i):
        """Whether an action, of which nothing else is missing, cannot begin."""
        rule = RULES[kind]
        if rule.wide and not self._all_are_ready(rule, kind, stage, i):
            return True
        if self._versions and kind == "F" and self._versions[stage][i] > self._updates[device][stage]:
            return True
        if self._whole and rule.whole not in (None, self._whole[device][stage]):
            return True
        return bool(waits_for(kind, stage, self.lanes[device]))

    def after(self, device, action, kind, stage, i):
        """The devices that can perhaps go on when this one has performed a part of `action`."""
        rule = RULES[kind]
        if self._whole and rule.leaves is not None:
            self._whole[device][stage] = rule.leaves
        if kind == "U":
            self._updates[device][stage] += 1
        elif rule.meets:
            self.lanes[device].append(action)
            return _meet(self.lanes, device, self._holders)
        elif rule.wide:
            for microbatch in works_on((kind, stage, i), self._copies):
                self._done[stage][microbatch] |= rule.adds
        return ()

    def _all_are_ready(self, rule, kind, stage, i):
        """Whether what works on all micro-batches of a copy has what it needs of each."""
        states = [self._done[stage][microbatch] for microbatch in works_on((kind, stage, i), self._copies)]
        return all(state & rule.needs == rule.needs and not state & rule.forbids for state in states)


def waits_for(kind, stage, lane):
    """The exchanges of a stage in a device's lane that must be over before an action of this kind begins.

    An update waits for the sum that it applies; what needs all parameters, for their gather.
    """
    ends = [exchange for exchange in lane if exchange.stage == stage]
    if kind == "U":
        return ends
    return [exchange for exchange in ends if RULES[kind].whole and RULES[exchange.kind].leaves]


def _meet(lanes, device, holders):
    """End what can end now that `device` has started an exchange. The devices that took part.

    A lane works on one exchange after the other, so one takes place when it is the first in the lanes of
    all devices that have a copy of its stage, `holders[stage]`.
    """
    to_look_at, took_part = [device], []
    while to_look_at:
        lane = lanes[to_look_at.pop()]
        devices = holders[lane[0].stage] if lane else []
        if lane and all(lanes[r] and lanes[r][0][:2] == lane[0][:2] for r in devices):
            for r in devices:
                lanes[r].popleft()
            to_look_at += devices
            took_part += devices
    return took_part


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
