"""A schedule performed action by action, without a clock: where and why it stops."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .actions import FORWARD, INPUT, RULES, WEIGHT, Action, Fault, Overlap, adding, before

if TYPE_CHECKING:
    from .schedule import Schedule


class Standing(NamedTuple):
    """The place at which a device stops in an order that cannot finish.

    Args:
        device, position, action: the device cannot start this action of its line, or
            cannot end this exchange.
        needs: the `Action` that must come first; None if the action itself is wrong, or
            waits for an exchange.
        source: the device that has not done `needs` yet; None if there is none.
        in_lane: whether the communication lane stops, and not the lane that computes.
        words: a sentence that says so.
    """

    device: int
    position: int
    action: Action | Overlap
    needs: Action | None
    source: int | None
    in_lane: bool
    words: str


@dataclass(frozen=True)
class Stop:
    """The places at which an order that cannot finish stops; it prints as a sentence.

    Args:
        faults: the `Fault`s of the order.
        n_done: for each device, how many actions of its line it has done.
        standing: {device: its `Standing`} of the devices that have not finished.
    """

    faults: list[Fault]
    n_done: list[int]
    standing: dict[int, Standing]

    def __str__(self) -> str:
        others = len(self.faults) - 1
        return f"{self.faults[0]}{f'; and {others} more fault' + 's' * (others > 1) if others else ''}"


def play(schedule: "Schedule") -> "Progress | None":
    """Return None if all devices finish with everything done, else the `Progress`.

    The order of each device is given, so *whether* all is done does not depend on
    *when*. Each device goes on until something is missing, and is tried again once that
    is done, in time proportional to the actions of `schedule`.
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


def unknown(schedule: "Schedule", part: Action) -> str | None:
    """Return why `part` cannot be in `schedule` at all, or None."""
    kind, stage, i = part
    if kind not in RULES:
        return f"{part} is of unknown kind {kind!r}: use {', '.join(RULES)}"
    if not 0 <= stage < schedule.n_stages:
        return f"{part} is unknown: stages are 0..{schedule.n_stages - 1}"
    if not 0 <= i < schedule.n_microbatches:
        return f"{part} is unknown: micro-batches are 0..{schedule.n_microbatches - 1}"
    return None


class Progress:
    """The progress of the devices in a schedule.

    For each device, `left` has the actions that it has still to do, and `lanes` its
    unfinished exchanges, both in order; `done` has what has been done for each stage
    and micro-batch, as bits.
    """

    def __init__(self, schedule: "Schedule"):
        self._schedule, kinds = schedule, schedule.kinds
        self.left = list(map(deque, schedule.devices))
        self.lanes: list[deque[Action]] = [deque() for _ in schedule.devices]
        self.done = [bytearray(schedule.n_microbatches) for _ in range(schedule.n_stages)]
        self._waiting: dict = {}  # (bits not done yet, stage, micro-batch) -> the device that waits for them
        self._updates: Counter = Counter()  # {(device, stage): its updates so far}
        self._holders = [schedule.holders(stage) for stage in range(schedule.n_stages)]
        # (device, stage) -> whether the device has all parameters; None in an order without S. Where an X
        # frees what was gathered, devices begin with only their own shards.
        self._whole: Any = defaultdict(lambda: "X" not in kinds) if "S" in kinds else None

    def can_begin(self, device: int, part: Action) -> bool:
        """Tell whether `device` can do `part` now; note a message that it waits for."""
        if self.wrong(device, part) is not None:
            return False
        kind, stage, i = part
        rule = RULES[kind]
        source = stage - rule.way
        if source != stage and 0 <= source < len(self.done) and not self.done[source][i] & rule.handed_on:
            self._waiting[rule.handed_on, source, i] = device
            return False
        return not (self.lanes[device] and _waits_for(kind, stage, self.lanes[device]))

    def wrong(self, device: int, part: Action) -> str | None:
        """Return why `device` cannot do `part`, whatever others do; None if it can.

        The result is "" where another action is missing, which is a fault of its own.
        """
        kind, stage, i = part
        schedule = self._schedule
        if kind not in RULES or not (0 <= stage < schedule.n_stages and 0 <= i < schedule.n_microbatches):
            return unknown(schedule, part)
        copy, done, rule = schedule.copies[i], self.done[stage][i], RULES[kind]
        if schedule.device_of[copy].get(stage) != device:
            devices = ", ".join(map(str, sorted(schedule.devices_of[copy][stage])))
            remedy = "" if schedule.copy_of else ", unless there are replicas: say so by copy_of"
            where = f"stage {stage}{f' of copy {copy}' if schedule.copy_of else ''} is on devices {devices}"
            return f"{where}: a stage's parameters are on one device only{remedy}"
        if done & rule.forbids & rule.adds:
            once = "once is enough" + (", as B, or as I and W" if kind in "BIW" else "")
            return f"{part} is done already (duplicated): {once}"
        if done & (rule.needs | rule.forbids) != rule.needs:
            return self._out_of_order(device, part)
        made = self._updates[device, stage]
        if kind == "F" and schedule.versions and schedule.versions[stage][i] > made:
            version = schedule.versions[stage][i]
            return f"{part} needs the weights after {version} updates, but there were only {made} by then"
        if self._whole is not None and rule.whole not in (None, self._whole[device, stage]):
            before, has = ("G", "only its own shard") if rule.whole else ("X", "all")
            return (
                f"{part} comes when the device has {has} of the parameters: leave it out, or put "
                f"{part._replace(kind=before)} before it"
            )
        return None

    def _out_of_order(self, device, part):
        """Return the fault of an action that comes too late or too early."""
        rule, done = RULES[part.kind], self.done[part.stage][part.microbatch]
        for kind in adding(done & rule.forbids):
            other = part._replace(kind=kind)
            if (device, other) in self._schedule.position_of:
                return f"{part} comes after {other}, which needs it"
        later = {other for action in self.left[device] for other in action.parts}
        needed = [part._replace(kind=kind) for kind in adding(rule.needs)]
        if not later.intersection(needed):
            return ""
        if rule.needs == FORWARD:
            return f"{part} comes before its forward {needed[0]}"
        if rule.needs == INPUT:
            return f"{part} comes before {part._replace(kind='I')}, the other half, which it needs"
        return f"{part} comes before the gradient of micro-batch {part.microbatch} is complete"

    def wrong_actions(self) -> list[Fault]:
        """Return a `Fault` for each device that stops at a wrong action."""
        return [
            Fault(each.words, each.device, each.position) for each in self.standing().values()
            if each.needs is each.source is None
        ]

    def perform(self, device: int, part: Action) -> Sequence[int]:
        """Do `part` on `device`; return the devices that can perhaps go on."""
        kind, stage, i = part
        rule = RULES[kind]
        self.done[stage][i] |= rule.adds
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
        """End all exchanges that can end now; return the devices in them.

        An `A`, an `S` and a `G` only start an exchange. A lane works on one exchange
        after the other, so an exchange takes place when it is the first in the lanes of
        all devices that hold its stage. `device` has just started one.
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

    def deadlock(self) -> Fault:
        """Return the `Fault` of devices that wait for each other in a circle."""
        circle = self.circle(self.standing())
        remedy = ""
        if all(standing.in_lane for standing in circle):
            remedy = ": start the exchanges in the same order of stages on all devices"
        words = ", and ".join(standing.words for standing in circle)
        return Fault(f"deadlock: {words}{remedy}", circle[0].device, circle[0].position)

    def stop(self, faults: Sequence[Fault]) -> Stop:
        """Return the `Stop` of an order with these `faults`."""
        places = self.standing()
        n_done = [len(line) - len(left) for line, left in zip(self._schedule.devices, self.left)]
        # a device that has done its line stops in its communication lane
        by_device = {place[0]: places[place] for place in sorted(places, reverse=True)}
        return Stop(list(faults), n_done, dict(sorted(by_device.items())))

    def standing(self) -> dict[tuple[int, bool], Standing]:
        """Return the `Standing` of each (device, whether its exchanges stop)."""
        to_come: dict = {}  # {action: the device that has not done it yet}
        for device, actions in enumerate(self.left):
            to_come |= {part: device for action in actions for part in action.parts}
        found = {(r, False): self._standing_of(r, to_come) for r, actions in enumerate(self.left) if actions}
        return found | {(r, True): self._standing_of_lane(r) for r, lane in enumerate(self.lanes) if lane}

    def circle(self, places: dict[Any, Standing]) -> list[Standing]:
        """Return `Standing`s, each of which waits for the next; [] without a circle.

        Args:
            places: as `standing` returns them.
        """
        for place in places:
            path: list = []
            while place in places and place not in path:
                path.append(place)
                standing = places[place]
                waits_for_lane = not standing.in_lane and standing.needs is None
                source: Any = standing.source
                theirs = standing.in_lane and bool(self.lanes[source])
                place = source, waits_for_lane or theirs
            if place in path:
                return [places[place] for place in path[path.index(place):]]
        return []

    def _standing_of(self, device, to_come):
        """Return the `Standing` of a device whose next action cannot start."""
        action, done, needs, source = self.left[device][0], self.done, None, None
        position, words = len(self._schedule.devices[device]) - len(self.left[device]), ""
        for part in action.parts:
            wrong = self.wrong(device, part)
            if wrong:
                return Standing(device, position, action, None, None, False, f"device {device}: {wrong}")
        wanted = [Action(*need) for part in action.parts for need in before(*part)]
        coming = [need for need in wanted if need in to_come]
        exchanges = [
            end for part in action.parts for end in _waits_for(part.kind, part.stage, self.lanes[device])[:1]
        ]
        missing = [
            need for need in wanted
            if 0 <= need.stage < len(done) and 0 <= need.microbatch < self._schedule.n_microbatches
            and not done[need.stage][need.microbatch] & RULES[need.kind].adds
        ]
        if coming:
            needs, source = coming[0], to_come[coming[0]]
            words = f" before {needs} on device {source}"
        elif exchanges:
            source, words = device, f" before {exchanges[0]} is over"
        elif missing:
            needs, words = missing[0], f" before {missing[0]}, which no device does"
        said = f"device {device} cannot start {action}{words}"
        return Standing(device, position, action, needs, source, False, said)

    def _standing_of_lane(self, device):
        """Return the `Standing` of a device whose next exchange cannot end."""
        lanes, mine = self.lanes, self.lanes[device][0]
        others = [r for r in self._holders[mine.stage] if not lanes[r] or lanes[r][0][:2] != mine[:2]]
        other = others[0]
        left = [*lanes[other], *self.left[other]]
        needs = next((action for action in left if action[:2] == mine[:2]), None)
        words = f"device {device} cannot end {mine}, which device {other} does not start for its stage"
        if needs is not None:
            words = f"device {device} cannot end {mine} before {needs} on device {other}, after {left[0]}"
        return Standing(device, self._schedule.position_of[device, mine], mine, needs, other, True, words)


def _waits_for(kind, stage, lane):
    """Return the exchanges in a `lane` that must end before an action of this `kind`.

    An update waits for the sum that it applies. An action that needs all parameters
    waits for their gather.
    """
    ends = [exchange for exchange in lane if exchange.stage == stage]
    if kind == "U":
        return ends
    return [exchange for exchange in ends if RULES[kind].whole and RULES[exchange.kind].leaves]
