"""A schedule performed action by action: whether it comes to its end."""

from collections import deque
from typing import NamedTuple

from .rules import MEETING, RULES, WEIGHT, WIDE


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
    n_stages, n_microbatches, versions = schedule.n_stages, schedule.n_microbatches, schedule.versions
    done = [bytearray(n_microbatches) for _ in range(n_stages)]
    steps, senders = _steps(done)
    waiting = {}  # (what is not done yet, stage, micro-batch) -> the device that waits for it
    device_of, copies = schedule.device_of, schedule.copies
    updates = [[0] * n_stages for _ in schedule.devices]
    holders = [schedule.holders(stage) for stage in range(n_stages)]
    lanes = [deque() for _ in schedule.devices]
    whole = _wholes(schedule)
    heads, ready = [0] * len(schedule.devices), list(range(len(schedule.devices)))
    while ready:
        device = ready.pop()
        order, lane = schedule.devices[device], lanes[device]
        for head in range(heads[device], len(order)):
            action = order[head]
            parts = (action,) if action[0].__class__ is str else action
            for kind, stage, i in parts:
                if kind not in steps or not (0 <= stage < n_stages and 0 <= i < n_microbatches):
                    break
                needs, forbids, _, way, handed_on = steps[kind]
                state = done[stage][i]
                if state & needs != needs or state & forbids or device_of[copies[i]][stage] != device:
                    break
                if kind in WIDE and not _all_are_ready(done[stage], i, needs, forbids):
                    break
                if versions and kind == "F" and versions[stage][i] > updates[device][stage]:
                    break
                if senders[kind][stage][i] & handed_on != handed_on:
                    waiting[handed_on, stage - way, i] = device
                    break
                if lane and waits_for(kind, stage, lane):
                    break
                if whole and RULES[kind].whole not in (None, whole[device][stage]):
                    break
            else:
                heads[device] = head + 1
                for kind, stage, i in parts:
                    _, _, adds, way, handed_on = steps[kind]
                    done[stage][i] |= adds
                    if whole and RULES[kind].leaves is not None:
                        whole[device][stage] = RULES[kind].leaves
                    if way:
                        if (handed_on, stage, i) in waiting:
                            ready.append(waiting.pop((handed_on, stage, i)))
                    elif kind == "U":
                        updates[device][stage] += 1
                    elif kind in MEETING:
                        lane.append(action)
                        ready += _meet(lanes, device, holders)
                    elif kind in WIDE:
                        for microbatch in range(i):
                            done[stage][microbatch] |= adds
                continue
            break
    left = [order[head:] for head, order in zip(heads, schedule.devices)]
    complete = all(state & WEIGHT for row in done for state in row)
    return None if complete and not any(left) and not any(lanes) else Stop(left, lanes)


def _wholes(schedule):
    """For each device and stage, whether it begins with all of the stage's parameters, in an order with S.

    They are in parts from the beginning where the order frees what it has gathered. Else None.
    """
    if "S" not in schedule.kinds:
        return None
    return [["X" not in schedule.kinds] * schedule.n_stages for _ in schedule.devices]


def waits_for(kind, stage, lane):
    """The exchanges of a stage in a device's lane that must be over before an action of this kind begins.

    An update waits for the sum that it applies; what needs all parameters, for their gather.
    """
    ends = [exchange for exchange in lane if exchange.stage == stage]
    if kind == "U":
        return ends
    return [exchange for exchange in ends if RULES[kind].whole and RULES[exchange.kind].leaves]


def _all_are_ready(row, i, needs, forbids):
    """Whether what works on all micro-batches is named by the last one, i, and has what it needs of each."""
    return i == len(row) - 1 and all(state & needs == needs and not state & forbids for state in row)


def _steps(done):
    """(steps, senders): what `play` looks up for each action.

    steps: kind -> (needs, forbids, adds, way, handed on), which come from the rules.
    senders: kind -> stage -> the row of `done` of the stage from which an action of this kind hears.
    """
    stages, everything = range(len(done)), bytes([255]) * len(done[0])  # both ends wait for nobody
    steps = {
        kind: (rule.needs, rule.forbids, rule.adds, rule.way, rule.handed_on) for kind, rule in RULES.items()
    }
    senders = {
        kind: [done[stage - rule.way] if stage - rule.way in stages else everything for stage in stages]
        for kind, rule in RULES.items()
    }
    return steps, senders


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
