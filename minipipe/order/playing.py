"""A schedule performed action by action: whether it can finish, and if not, which device waits for which."""

from collections import Counter, defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from .actions import RULES, WEIGHT, Action, Fault, Overlap, before

if TYPE_CHECKING:
    from .schedule import Schedule


class Standing(NamedTuple):
    """The place at which a device stops in an order that cannot finish.

    Args:
        device, position, action: the device cannot start this action of its line, or
            cannot end this exchange.
        needs: the `Action` that must come first; None if the action itself is wrong, or
            waits for an exchange.
        source: the device that has `needs` still to do; None if no device has.
        in_lane: whether the communication lane of the device stops, and not the lane
            that computes.
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
    """Return None if all devices finish with everything done, else the `Progress` so far.

    This needs no clock: the order of each device is given, so *whether* all is done
    does not depend on *when*, and every schedule is played before it is run. Each
    device goes on until something is missing, and is tried again once that is done.
    Takes time in proportion to the number of actions.
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
    """The progress of the devices in a schedule.

    Attributes:
        left: for each device, the actions that it has still to do, in order.
        lanes: for each device, the exchanges that it has started and that have not
            ended, in order.
        done: for each stage and micro-batch, what has been done, as bits.
    """

    def __init__(self, schedule: "Schedule"):
        self._schedule, kinds = schedule, schedule.kinds
        self.left = list(map(deque, schedule.devices))
        self.lanes: list[deque[Action]] = [deque() for _ in schedule.devices]
        self.done = [bytearray(schedule.n_microbatches) for _ in range(schedule.n_stages)]
        self._waiting: dict = {}  # (bits not done yet, stage, micro-batch) -> the device that waits for them
        self._updates: Counter = Counter()  # of (device, stage)
        self._holders = [schedule.holders(stage) for stage in range(schedule.n_stages)]
        # (device, stage) -> whether the device has all parameters of the stage; None in an order without S.
        # Where the order frees what it has gathered, devices begin with only their own shards.
        self._whole: Any = defaultdict(lambda: "X" not in kinds) if "S" in kinds else None

    def can_begin(self, device: int, part: Action) -> bool:
        """Tell whether nothing is missing for an action; if a message is, note that the device waits."""
        kind, stage, i = part
        done, schedule, rule = self.done, self._schedule, RULES.get(kind)
        exists = 0 <= stage < len(done) and 0 <= i < schedule.n_microbatches
        if rule is None or not exists or schedule.device_of[schedule.copies[i]].get(stage) != device:
            return False
        if done[stage][i] & (rule.needs | rule.forbids) != rule.needs:
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

    def perform(self, device: int, part: Action) -> Sequence[int]:
        """Do an action; return the devices that can perhaps go on."""
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
        """End all exchanges that can end now that `device` has started one; return the devices in them.

        An `A`, an `S` and a `G` only start an exchange. A lane works on one exchange
        after the other, so an exchange takes place when it is the first in the lanes of
        all devices that hold its stage.
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
        """Return the `Fault` of an order whose single actions are right: devices wait in a circle."""
        circle = self.circle(self.standing())
        remedy = ""
        if all(standing.in_lane for standing in circle):
            remedy = ": start the exchanges in the same order of stages on all devices"
        words = ", and ".join(standing.words for standing in circle)
        return Fault(f"deadlock: {words}{remedy}", circle[0].device, circle[0].position)

    def stop(self, faults: Sequence[Fault]) -> Stop:
        """Return the `Stop` of an order with these `Fault`s."""
        said = {(fault.device, fault.position): fault for fault in reversed(faults)}
        places = self.standing()
        for place, standing in places.items():
            if standing.needs is standing.source is None:  # the action itself is wrong
                words = said.get((standing.device, standing.position), standing.words)
                places[place] = standing._replace(words=words)
        n_done = [len(line) - len(left) for line, left in zip(self._schedule.devices, self.left)]
        # a device that has done its line stops in its communication lane
        by_device = {place[0]: places[place] for place in sorted(places, reverse=True)}
        return Stop(list(faults), n_done, dict(sorted(by_device.items())))

    def standing(self) -> dict[tuple[int, bool], Standing]:
        """Return {(device, whether its communication lane has stopped): `Standing`} of all that have."""
        to_come: dict = {}  # {action: the device that has it still to do}
        for device, actions in enumerate(self.left):
            to_come |= {part: device for action in actions for part in action.parts}
        found = {(r, False): self._stands(r, to_come) for r, actions in enumerate(self.left) if actions}
        return found | {(r, True): self._lane_stands(r) for r, lane in enumerate(self.lanes) if lane}

    def circle(self, places: dict[Any, Standing]) -> list[Standing]:
        """Return a circle of `Standing`s, each of which waits for the next; [] if there is none.

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

    def _stands(self, device, to_come):
        """Return the `Standing` of a device whose next action cannot start."""
        action, done, needs, source = self.left[device][0], self.done, None, None
        position, words = len(self._schedule.devices[device]) - len(self.left[device]), ""
        parts = [part for part in action.parts if part.kind in RULES]
        wanted = [Action(*need) for part in parts for need in before(*part)]
        coming = [need for need in wanted if need in to_come]
        exchanges = [
            end for part in parts for end in _waits_for(part.kind, part.stage, self.lanes[device])[:1]
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

    def _lane_stands(self, device):
        """Return the `Standing` of a device's communication lane, whose next exchange cannot end."""
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
    """Return the exchanges in a device's lane that must end before an action of this kind begins.

    An update waits for the sum that it applies. An action that needs all parameters
    waits for their gather.
    """
    ends = [exchange for exchange in lane if exchange.stage == stage]
    if kind == "U":
        return ends
    return [exchange for exchange in ends if RULES[kind].whole and RULES[exchange.kind].leaves]
