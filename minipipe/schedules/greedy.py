"""A schedule for any sizes, costs and memory, by rules of thumb and by name: quick, good, without a proof."""

from .actions import Action
from .costs import Costs
from .named import named_schedules
from .request import request_of
from .rules import RULES, adding
from .schedule import Schedule


def greedy_schedule(
    n_devices, n_microbatches, costs=Costs(), most_alive=None, halves=False, v=1, placement=None, latency=0
):
    """A good schedule for these stages, costs and memory: the shortest that rules make, or that has a name.

    Every schedule with a name that has one copy of the network, these stages and this memory is tried, so
    none of them is shorter. One that is shorter than what the rules make keeps its name, with "+halves" or
    "+whole" where its backwards were not as asked for.

    n_devices, n_microbatches: at least 1 each.
    costs: ticks of F and B, or of F, I and W.
    most_alive: the micro-batches whose activations a device can keep, from the start of F to the end of B, or
        of W: a number, or one for each device. Of v stages on a device, each counts 1/v.
    halves: whether to split each backward into I and W.
    v: stages a device, stage s on device s mod K; or else
    placement: the device of each stage, for instance [0, 1, 1, 0] for a V.
    latency: ticks of a message between two devices.

    Raises `ValueError` for what makes no sense.

    The rules: whenever a device is free, it takes the first of these that can begin: by one rule a backward,
    then a forward, by the other the other way round; of several forwards that of the latest stage, of
    backwards that of the earliest, which are closest to giving memory back; W only where it would wait. A cap
    keeps the forwards of a stage from running ahead of its backwards by more than n (S - s) / S, rounded up:
    as 1F1B does on stage s of S, where n = S. Caps from n = L - v to L for room for L activations of a stage,
    and no cap, are tried under both rules.

    It always comes to an end: with several stages on a device, no forward begins after which the
    micro-batches on their way, oldest first, would not find room for all that they have still to do
    (Dijkstra's banker).

    >>> schedule = greedy_schedule(4, 8, most_alive=[4, 3, 2, 1])
    >>> print(schedule)
    device 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7
    device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7
    device 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7
    device 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
    """
    return greedy_answer(
        request_of(n_devices, n_microbatches, costs, most_alive, halves, latency, v, placement)
    )


def greedy_answer(request):
    """The shortest of the schedules that the rules make, and of those with a name."""
    found = [
        _Run(request, preferred, cap).schedule()
        for preferred in RULES_OF[request.kinds] for cap in _caps(request)
    ]
    return min(found + named_schedules(request), key=request.makespan)


def _caps(request):
    """A list of caps: for each stage s of S, how far its forwards may be ahead, n (S - s) / S rounded up."""
    n_stages, room = request.n_stages, request.limits[request.placement[0]]
    most_stages = max(map(request.placement.count, request.placement))
    numbers = sorted({min(max(n, 1), n_stages) for n in range(room - most_stages, room + 1)})
    caps = [[max(1, -(-n * (n_stages - s) // n_stages)) for s in range(n_stages)] for n in numbers]
    return [[request.n_microbatches] * n_stages, *caps]


# By kinds of action, the orders in which a free device prefers them.
RULES_OF = {"FB": ("BF", "FB"), "FIW": ("IFW", "FIW")}


class _Run:
    """One pass: all actions in the order of their starts, by one rule and one cap.

    kinds: "FIW" or "FB"; the second of them sends the gradient back.
    preferred: the kinds from the one that a free device takes first to the one that it takes last.
    done: kind -> for each stage, how many have been done.
    ends: kind -> for each stage, when each of them ended.
    """

    def __init__(self, request, preferred, cap):
        placement, self.n_microbatches, kinds, self.ticks, limits, _ = request
        n_stages, n_devices = len(placement), len(limits)
        self.placement, self.kinds, self.lags = placement, kinds, request.lags
        self.preferred, self.cap = preferred, cap
        self.stages = [[s for s in range(n_stages) if placement[s] == r] for r in range(n_devices)]
        self.needs = {kind: adding(RULES[kind].needs, kinds) for kind in kinds}
        self.done = {kind: [0] * n_stages for kind in kinds}
        self.ends = {kind: [[] for _ in range(n_stages)] for kind in kinds}
        self.released = self.done[kinds[-1]]
        self.free, self.room, self.orders = [0] * n_devices, list(limits), [[] for _ in range(n_devices)]

    def schedule(self):
        """Do all that there is to do."""
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
        return Schedule(tuple(map(tuple, self.orders)), len(self.placement), self.n_microbatches, "greedy")

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
        return max(free, ends[i] + self.lags[min(stage, source)]) if i < len(ends) else None

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
