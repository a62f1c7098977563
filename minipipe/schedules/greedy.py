"""A schedule for any sizes, costs and memory, by rules of thumb: quick, close to the best, and without a proof."""

import math

from .actions import Action
from .builders import check
from .costs import Costs
from .limits import limits_of
from .schedule import Schedule


def greedy_schedule(n_devices, n_microbatches, costs=Costs(), most_alive=None, halves=False, v=1, placement=None, latency=0):
    """A good schedule for stages of these costs in this memory: the shortest that a handful of simple rules make.

    most_alive: the activations that a device can keep, from the start of F to the end of B, or of W; each stage's count
    by themselves, so 2K of them on each device are K micro-batches where v = 2. A number, or one for each device. halves: split
    each backward into I and W. v: stages a device, stage s on device s mod K; or else placement: the device of each stage, for
    instance [0, 1, 1, 0] for a V. latency: ticks of a message between two devices. Raises `ValueError` for what makes no sense.

    Whenever a device is free, it takes the first of these that can begin: by one rule a backward, then a forward, by
    the other the other way round; of several forwards that of the latest stage, of backwards that of the earliest, which are
    closest to giving memory back; W only where it would wait. A cap keeps the forwards of a stage from running
    ahead of its backwards by more than n (S - s) / S, rounded up: as 1F1B does on stage s of S, where n = S. Caps from
    n = L - v to L for a limit of L, and no cap, are tried under both rules.

    It always comes to an end: with several stages on a device, no forward begins after which the micro-batches on their way,
    oldest first, would not find room for all that they have still to do (Dijkstra's banker).

    How close it comes, for K = 4..8 (tests/test_searching.py): T of 1F1B with K - r alive, of ZB-H1 with K, of ZB-H2 with
    2K - 1 (I no longer than F), and, with two stages a device in a V and F = I = W, of ZB-V with K and V-Half with (K + 2)//2,
    exactly; of V-Min with (K + 4)//3, 3.3 % more for K = 4 and exactly for K = 8.

    >>> schedule = greedy_schedule(4, 8, most_alive=[4, 3, 2, 1])
    >>> print(schedule)
    device 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7
    device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7
    device 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7
    device 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
    """
    check(n_devices, n_microbatches)
    if not 0 <= latency < math.inf:
        raise ValueError(f"latency={latency} must be a finite number of ticks of at least 0")
    placement = _placement(n_devices, v, placement)
    n_stages = len(placement)
    stages_on = [placement.count(device) for device in range(n_devices)]
    limits = limits_of(most_alive, stages_on, n_microbatches)
    ticks = costs.table(n_stages)
    room = limits[placement[0]]
    caps = [[max(1, -(-n * (n_stages - s) // n_stages)) for s in range(n_stages)] for n in _caps(room, max(stages_on), n_stages)]
    best = None
    for preferred in ("BF", "FB"):
        for cap in [[n_microbatches] * n_stages, *caps]:
            run = _Run(placement, n_microbatches, ticks, limits, halves, latency, preferred, cap)
            run.go()
            if best is None or max(run.free) < max(best.free):
                best = run
    return Schedule(tuple(map(tuple, best.orders)), n_stages, n_microbatches, "greedy")


def _caps(room, v, n_stages):
    return sorted({min(max(n, 1), n_stages) for n in range(room - v, room + 1)})


def _placement(n_devices, v, placement):
    if v < 1:
        raise ValueError(f"v={v} stages on each device must be at least 1")
    if placement is None:
        return [stage % n_devices for stage in range(n_devices * v)]
    placement = list(placement)
    if v != 1:
        raise ValueError(f"v={v} and placement={placement} both say where the stages are: give one of them")
    if sorted(set(placement)) != list(range(n_devices)):
        raise ValueError(f"placement={placement} must have each of the devices 0..{n_devices - 1}, and no others")
    return placement


class _Run:
    """One pass: all actions in the order of their starts, by one rule and one cap.

    `done[kind][stage]` counts what has been done, kind "F", "B" (or "I", as "B") and "W"; `ends` has the ends of F and B.
    """

    def __init__(self, placement, n_microbatches, ticks, limits, halves, latency, preferred, cap):
        n_stages, n_devices = len(placement), len(limits)
        self.placement, self.n_microbatches, self.halves = placement, n_microbatches, halves
        self.preferred, self.cap = preferred, cap
        self.stages = [[s for s in range(n_stages) if placement[s] == r] for r in range(n_devices)]
        self.ticks = {"F": ticks["F"], "B": ticks["I" if halves else "B"], "W": ticks["W"]}
        self.lag = [latency if placement[s] != placement[s + 1] else 0 for s in range(n_stages - 1)]  # between s and s + 1
        self.done = {kind: [0] * n_stages for kind in "FBW"}
        self.ends = {kind: [[] for _ in range(n_stages)] for kind in "FB"}
        self.released = self.done["W" if halves else "B"]
        self.free, self.room, self.orders = [0] * n_devices, list(limits), [[] for _ in range(n_devices)]

    def go(self):
        left = len(self.placement) * self.n_microbatches * (2 + self.halves)
        candidates = [self._candidates(device) for device in range(len(self.free))]
        several = max(map(len, self.stages)) > 1
        refused = set()
        while left:
            device = min((r for r, options in enumerate(candidates) if options), key=lambda r: candidates[r][0])
            start, _, _, kind, stage = candidates[device][0]
            if kind == "F" and several and not self._has_room_after(stage):
                candidates[device].pop(0)
                refused.add(device)
                continue
            self._do(kind, stage, start)
            left -= 1
            neighbour = stage + {"F": 1, "B": -1, "W": 0}[kind]
            changed = refused | {device}
            if 0 <= neighbour < len(self.placement):
                changed.add(self.placement[neighbour])
            refused = set()
            for other in changed:
                candidates[other] = self._candidates(other)

    def _candidates(self, device):
        """What the device could do next, best first: (start, rank by kind, rank by stage, kind, stage)."""
        free, done, found = self.free[device], self.done, []
        for s in self.stages[device]:
            i = done["F"][s]
            if i < self.n_microbatches and self.room[device] and i - done["B"][s] < self.cap[s]:
                start = self._start("F", s, s - 1, i, free)
                if start is not None:
                    found.append((start, self.preferred.index("F"), -s, "F", s))
            i = done["B"][s]
            if i < done["F"][s]:
                start = self._start("B", s, s + 1, i, free)
                if start is not None:
                    found.append((start, self.preferred.index("B"), s, "B", s))
            if self.halves and done["W"][s] < i:
                found.append((free, 2, s, "W", s))
        return sorted(found)

    def _start(self, kind, stage, source, i, free):
        """When micro-batch i can begin, whose input comes from stage `source`; None if that is not known yet."""
        if not 0 <= source < len(self.placement):
            return free
        ends = self.ends[kind][source]
        return max(free, ends[i] + self.lag[min(stage, source)]) if i < len(ends) else None

    def _do(self, kind, stage, start):
        device, i = self.placement[stage], self.done[kind][stage]
        end = start + self.ticks[kind][stage]
        self.orders[device].append(Action("I" if kind == "B" and self.halves else kind, stage, i))
        self.free[device] = end
        self.done[kind][stage] += 1
        if kind != "W":
            self.ends[kind][stage].append(end)
        if kind == "F":
            self.room[device] -= 1
        elif kind == "W" or not self.halves:
            self.room[device] += 1

    def _has_room_after(self, stage):
        """Whether, after the next forward of `stage`, all micro-batches could still be completed one by one, oldest first."""
        forwards, room = list(self.done["F"]), list(self.room)
        forwards[stage] += 1
        room[self.placement[stage]] -= 1
        for i in range(min(self.released), forwards[0]):
            if all(places >= len(stages) for places, stages in zip(room, self.stages)):
                return True
            kept = [0] * len(room)
            for s, device in enumerate(self.placement):
                if forwards[s] <= i:
                    room[device] -= 1
                if self.released[s] <= i:
                    kept[device] += 1
            if min(room) < 0:
                return False
            room = [places + back for places, back in zip(room, kept)]
        return True
