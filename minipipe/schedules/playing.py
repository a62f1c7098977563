"""A schedule performed action by action: whether it comes to its end, and when."""

from collections import deque
from typing import NamedTuple

from .rules import RULES, WEIGHT


class Stop(NamedTuple):
    """Where a schedule stops that does not come to its end.

    heads: for each device, how many of its actions it can do.
    lanes: for each device, the all-reduces that it has started and that are not over, in order.
    """

    heads: list
    lanes: list


def play(schedule, observer=None):
    """None if all devices come to their end with everything done; else the `Stop`.

    observer: two of its methods are called, each for something of which all that it needs is done.
        `perform(device, action, parts)`: the device does the action. An `A` only starts the all-reduce.
        `meet(actions)`: the all-reduce {device: its A} of a stage takes place. It is the next one that is not
        over on each of these devices, which are all that have a copy of the stage.

    Each device's order is given, so it does not matter which device is looked at first, and no clock is
    needed: each goes on until a message is missing, and is looked at again when that is there. Takes time in
    proportion to the number of actions.
    """
    n_stages, n_microbatches, versions = schedule.n_stages, schedule.n_microbatches, schedule.versions
    done = [bytearray(n_microbatches) for _ in range(n_stages)]
    steps, sent, arrived = _messages(schedule)
    waiting = {}  # (message, stage, micro-batch) that was not sent yet -> the device that waits for it
    device_of, copy_of = schedule.device_of, schedule.copy_of or bytes(n_microbatches)
    updates = [[0] * n_stages for _ in schedule.devices]
    meetings = Meetings(schedule)
    heads, ready = [0] * len(schedule.devices), list(range(len(schedule.devices)))
    perform = None if observer is None else observer.perform
    while ready:
        device = ready.pop()
        order = schedule.devices[device]
        for head in range(heads[device], len(order)):
            action = order[head]
            parts = (action,) if action[0].__class__ is str else action
            for kind, stage, i in parts:
                if kind not in steps or not (0 <= stage < n_stages and 0 <= i < n_microbatches):
                    break
                needs, forbids, _, way, message = steps[kind]
                state = done[stage][i]
                if state & needs != needs or state & forbids or device_of[copy_of[i]][stage] != device:
                    break
                if versions and kind == "F" and versions[stage][i] > updates[device][stage]:
                    break
                if not arrived[kind][stage][i]:
                    waiting[message, stage - way, i] = device
                    break
            else:
                heads[device] = head + 1
                if perform is not None:
                    perform(device, action, parts)
                for kind, stage, i in parts:
                    _, _, adds, way, message = steps[kind]
                    done[stage][i] |= adds
                    if way:
                        sent[message][stage][i] = True
                        if (message, stage, i) in waiting:
                            ready.append(waiting.pop((message, stage, i)))
                    elif kind == "U":
                        updates[device][stage] += 1
                    elif kind == "A":
                        for actions in meetings.start(device, action):
                            if observer is not None:
                                observer.meet(actions)
                            for _, summed, last in actions.values():
                                sent["A"][summed][last] = True
                                if ("A", summed, last) in waiting:
                                    ready.append(waiting.pop(("A", summed, last)))
                continue
            break
    complete = all(state & WEIGHT for row in done for state in row)
    at_the_end = all(head == len(order) for head, order in zip(heads, schedule.devices))
    return None if complete and at_the_end and not any(meetings.lanes) else Stop(heads, meetings.lanes)


def _messages(schedule):
    """(steps, sent, arrived): what `play` looks up for each action, and the rows in which it notes messages.

    steps: kind -> (needs, forbids, adds, way, message), which come from the rules. An update waits for the
    sum of its gradients, the message "A", if there are all-reduces in the order.
    sent: message -> stage -> for each micro-batch, whether the stage has sent it.
    arrived: kind -> stage -> for each micro-batch, whether that is there which an action of this kind waits
    for: a row of `sent`, that of the stage from which it comes.
    """
    stages, n_microbatches = range(schedule.n_stages), schedule.n_microbatches
    nobody = bytes([True]) * n_microbatches  # for whom both ends wait, and actions that go no way
    sent = {message: [bytearray(n_microbatches) for _ in stages] for message in "FBA"}
    steps, arrived = {}, {}
    for kind, rule in RULES.items():
        steps[kind] = rule.needs, rule.forbids, rule.adds, rule.way, rule.message
        sources = [stage - rule.way for stage in stages]
        arrived[kind] = [sent[rule.message][s] if rule.way and s in stages else nobody for s in sources]
    if "A" in schedule.kinds:
        steps["U"] = *steps["U"][:-1], "A"
        arrived["U"] = sent["A"]
    return steps, sent, arrived


class Meetings:
    """The all-reduces of a run. One takes place when it is the next on all devices with a copy of its stage.

    A device's communication lane holds those that it has started, and works on one after the other, in that
    order.
    """

    def __init__(self, schedule):
        self.devices = devices_with_copies(schedule)
        self.lanes = [deque() for _ in schedule.devices]

    def start(self, device, action):
        """`device` starts `action`. The all-reduces that take place now: a list of {device: its A}."""
        self.lanes[device].append(action)
        to_look_at, found = [device], []
        while to_look_at:
            lane = self.lanes[to_look_at.pop()]
            if lane and all(self._is_at(lane[0].stage, other) for other in self.devices[lane[0].stage]):
                found.append({other: self.lanes[other].popleft() for other in self.devices[lane[0].stage]})
                to_look_at += found[-1]
        return found

    def _is_at(self, stage, device):
        lane = self.lanes[device]
        return lane and lane[0].stage == stage


def devices_with_copies(schedule):
    """For each stage, the devices that have a copy of it, in order."""
    return [
        sorted({device_of[stage] for device_of in schedule.device_of if stage in device_of})
        for stage in range(schedule.n_stages)
    ]


def devices_of_stages(schedule):
    """For each copy of the network, {stage: device}; if a stage is on several, the last of them."""
    copy_of = schedule.copy_of or bytes(schedule.n_microbatches)
    found = [{} for _ in range(schedule.n_copies)]
    for device in range(len(schedule.devices)):
        several, parts = len(found) > 1, schedule.parts(device)
        places = {(stage, microbatch if several else 0) for _, stage, microbatch in parts}
        for stage, microbatch in places:
            found[copy_of[microbatch] if 0 <= microbatch < len(copy_of) else 0][stage] = device
    return found
