"""A schedule for any sizes, costs and memory, by rules of thumb: quick, good, and without a proof."""

from itertools import pairwise

from .actions import Action
from .costs import Costs
from .limits import check_sizes, limits_of
from .rules import RULES, adding
from .schedule import Schedule


def greedy_schedule(
    n_devices, n_microbatches, costs=Costs(), most_alive=None, halves=False, v=1, placement=None, latency=0
):
    """A good schedule for stages of these costs in this memory: the shortest that a few simple rules make.

    n_devices, n_microbatches: at least 1 each.
    costs: ticks of F and B, or of F, I and W, on each stage.
    most_alive: the activations that a device can keep, from the start of F to the end of B, or of W; each
        stage's count by themselves, so 2K of them on each device are K micro-batches where v = 2. A number,
        or one for each device.
    halves: whether to split each backward into I and W.
    v: stages a device, stage s on device s mod K; or else
    placement: the device of each stage, for instance [0, 1, 1, 0] for a V.
    latency: ticks of a message between two devices.

    Raises `ValueError` for what makes no sense.

    Whenever a device is free, it takes the first of these that can begin: by one rule a backward, then a
    forward, by the other the other way round; of several forwards that of the latest stage, of backwards that
    of the earliest, which are closest to giving memory back; W only where it would wait. A cap keeps the
    forwards of a stage from running ahead of its backwards by more than n (S - s) / S, rounded up: as 1F1B
    does on stage s of S, where n = S. Caps from n = L - v to L for a limit of L, and no cap, are tried under
    both rules.

    It always comes to an end: with several stages on a device, no forward begins after which the
    micro-batches on their way, oldest first, would not find room for all that they have still to do
    (Dijkstra's banker).

    How close it comes, for K = 4..8 (tests/test_searching.py): T of 1F1B with K - r alive, of ZB-H1 with K,
    of ZB-H2 with 2K - 1 (I no longer than F), and, with two stages a device in a V and F = I = W, of ZB-V
    with K and V-Half with (K + 2)//2, exactly; of V-Min with (K + 4)//3, 3.3 % more for K = 4 and exactly for
    K = 8.

    >>> schedule = greedy_schedule(4, 8, most_alive=[4, 3, 2, 1])
    >>> print(schedule)
    device 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7
    device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7
    device 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7
    device 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
    """
    check_sizes(n_devices, n_microbatches, v, latency)
    placement = _placement(n_devices, v, placement)
    n_stages = len(placement)
    stages_on = [placement.count(device) for device in range(n_devices)]
    limits = limits_of(most_alive, stages_on, n_microbatches)
    ticks = costs.table(n_stages)
    room = limits[placement[0]]
    numbers_ahead = {min(max(n, 1), n_stages) for n in range(room - max(stages_on), room + 1)}
    caps = [_cap(n, n_stages) for n in sorted(numbers_ahead)]
    kinds, rules = ("FIW", ("IFW", "FIW")) if halves else ("FB", ("BF", "FB"))
    runs = [
        _Run(placement, n_microbatches, ticks, limits, kinds, latency, preferred, cap)
        for preferred in rules for cap in [[n_microbatches] * n_stages, *caps]
    ]
    best = min(runs, key=_Run.makespan)
    return Schedule(tuple(map(tuple, best.orders)), n_stages, n_microbatches, "greedy")


def _cap(n, n_stages):
    """For each stage s of S, how far forwards may be ahead of backwards: n (S - s) / S, rounded up."""
    return [max(1, -(-n * (n_stages - s) // n_stages)) for s in range(n_stages)]


def _placement(n_devices, v, placement):
    if placement is None:
        return [stage % n_devices for stage in range(n_devices * v)]
    placement = list(placement)
    if v != 1:
        raise ValueError(f"v={v} and placement={placement} both say where the stages are: give one of them")
    if sorted(set(placement)) != list(range(n_devices)):
        raise ValueError(
            f"placement={placement} must have each of the devices 0..{n_devices - 1}, and no others"
        )
    return placement


class _Run:
    """One pass: all actions in the order of their starts, by one rule and one cap.

    kinds: "FIW" or "FB"; the second of them sends the gradient back.
    preferred: the kinds from the one that a free device takes first to the one that it takes last.
    done: kind -> for each stage, how many have been done.
    ends: kind -> for each stage, when each of them ended.
    """

    def __init__(self, placement, n_microbatches, ticks, limits, kinds, latency, preferred, cap):
        n_stages, n_devices = len(placement), len(limits)
        self.placement, self.n_microbatches, self.kinds = placement, n_microbatches, kinds
        self.preferred, self.cap, self.ticks = preferred, cap, ticks
        self.stages = [[s for s in range(n_stages) if placement[s] == r] for r in range(n_devices)]
        self.lag = [latency if r != after else 0 for r, after in pairwise(placement)]  # s to s + 1
        self.needs = {kind: adding(RULES[kind].needs, kinds) for kind in kinds}
        self.done = {kind: [0] * n_stages for kind in kinds}
        self.ends = {kind: [[] for _ in range(n_stages)] for kind in kinds}
        self.released = self.done[kinds[-1]]
        self.free, self.room, self.orders = [0] * n_devices, list(limits), [[] for _ in range(n_devices)]

    def makespan(self):
        """Do all that there is to do. The tick at which the last device is free."""
        candidates = [self._candidates(device) for device in range(len(self.free))]
        several = max(map(len, self.stages)) > 1
        refused = set()
        while any(candidates):
            device = min((r for r, found in enumerate(candidates) if found), key=lambda r: candidates[r][0])
            start, _, _, kind, stage = candidates[device][0]
            if kind == "F" and several and not self._has_room_after(stage):
                candidates[device].pop(0)
                refused.add(device)
                continue
            self._do(kind, stage, start)
            neighbour = stage + RULES[kind].way
            changed = refused | {device}
            if 0 <= neighbour < len(self.placement):
                changed.add(self.placement[neighbour])
            refused = set()
            for other in changed:
                candidates[other] = self._candidates(other)
        return max(self.free)

    def _candidates(self, device):
        """What the device could do next, best first: (start, rank by kind, rank by stage, kind, stage)."""
        found = []
        for s in self.stages[device]:
            for kind in self.kinds:
                i = self.done[kind][s]
                if i < self.n_microbatches and all(self.done[need][s] > i for need in self.needs[kind]):
                    start = self._start(kind, s, i)
                    if start is not None and (kind != "F" or self._may_go_ahead(s)):
                        found.append((start, self.preferred.index(kind), -s if kind == "F" else s, kind, s))
        return sorted(found)

    def _may_go_ahead(self, stage):
        """Whether there is room for another forward, within the cap."""
        ahead = self.done["F"][stage] - self.done[self.kinds[1]][stage]
        return self.room[self.placement[stage]] and ahead < self.cap[stage]

    def _start(self, kind, stage, i):
        """When micro-batch i can begin; None if it is not known yet when what it waits for ends."""
        free, way = self.free[self.placement[stage]], RULES[kind].way
        source = stage - way
        if not way or not 0 <= source < len(self.placement):
            return free
        ends = self.ends[kind][source]
        return max(free, ends[i] + self.lag[min(stage, source)]) if i < len(ends) else None

    def _do(self, kind, stage, start):
        device, end = self.placement[stage], start + self.ticks[kind][stage]
        action = Action(kind, stage, self.done[kind][stage])
        self.orders[device].append(action)
        self.free[device] = end
        self.room[device] -= action.alive
        self.done[kind][stage] += 1
        self.ends[kind][stage].append(end)

    def _has_room_after(self, stage):
        """Whether, after the stage's next forward, all micro-batches could still end, oldest first."""
        forwards, room = list(self.done["F"]), list(self.room)
        forwards[stage] += 1
        room[self.placement[stage]] -= 1
        for i in range(min(self.released), forwards[0]):
            if all(free >= len(stages) for free, stages in zip(room, self.stages)):
                return True
            kept = [0] * len(room)
            for s, device in enumerate(self.placement):
                if forwards[s] <= i:
                    room[device] -= 1
                if self.released[s] <= i:
                    kept[device] += 1
            if min(room) < 0:
                return False
            room = [free + back for free, back in zip(room, kept)]
        return True
