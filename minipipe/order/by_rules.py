"""An order made action by action: of all that can begin first, a free device takes what a rule prefers."""

from .actions import Action
from .clock import Clock
from .rules import RULES, adding


def order_by_rules(request, after_forward, after_backward, cap):
    """For each device, its actions, as these rules order them.

    request: the `Request`.
    after_forward, after_backward: the kinds in the order in which a device prefers them when the last thing
        that it did was a forward, or a backward or the first half of one.
    cap: for each stage, by how many micro-batches its forwards may be ahead of its backwards.

    Of all that can begin, the device takes what can begin first; of these, the preferred kind; of several
    forwards that of the latest stage, of backwards that of the earliest, which are closest to giving memory
    back; W only where it would wait.

    It always comes to an end: with several stages on a device, no forward begins after which the
    micro-batches on their way, oldest first, would not find room for all that they have still to do
    (Dijkstra's banker).
    """
    return _Run(request, after_forward, after_backward, cap).orders()


class _Run:
    """One pass through all actions, in the order of their starts.

    stages: for each device, its stages.
    done: kind -> for each stage, how many have been done.
    preferred: for each device, the kinds in the order in which it prefers them now.
    """

    def __init__(self, request, after_forward, after_backward, cap):
        self.request, self.clock, self.cap = request, Clock(request), cap
        self.after = dict.fromkeys(request.kinds, after_backward) | {"F": after_forward}
        stages, devices = range(request.n_stages), range(len(request.limits))
        self.stages = [[s for s in stages if request.placement[s] == r] for r in devices]
        self.preferred = [after_backward for _ in devices]
        self.needs = {kind: adding(RULES[kind].needs, request.kinds) for kind in request.kinds}
        self.done = {kind: [0 for _ in stages] for kind in request.kinds}

    def orders(self):
        """Do all that there is to do."""
        candidates = [self._candidates(device) for device in range(len(self.stages))]
        refused = set()
        while any(candidates):
            device = min((r for r, found in enumerate(candidates) if found), key=lambda r: candidates[r][0])
            start, _, _, action = candidates[device][0]
            if action.kind == "F" and not self._has_room_after(action.stage):
                candidates[device].pop(0)
                refused.add(device)
                continue
            self.clock.do(action, start)
            self.done[action.kind][action.stage] += 1
            if action.kind != "W":
                self.preferred[device] = self.after[action.kind]
            neighbour = action.stage + RULES[action.kind].way
            changed = refused | {device}
            if 0 <= neighbour < self.request.n_stages:
                changed.add(self.request.placement[neighbour])
            refused = set()
            for other in changed:
                candidates[other] = self._candidates(other)
        return self.clock.orders

    def _candidates(self, device):
        """What the device could do next, best first: (start, rank by kind, rank by stage, action)."""
        found = []
        for stage in self.stages[device]:
            for kind in self.request.kinds:
                action = Action(kind, stage, self.done[kind][stage])
                start = self.clock.start(action) if self._can_do(action) else None
                if start is not None:
                    rank = self.preferred[device].index(kind)
                    found.append((start, rank, -stage if kind == "F" else stage, action))
        return sorted(found)

    def _can_do(self, action):
        """Whether its own stage has done what it needs, and, for a forward, has room, within the cap."""
        kind, stage, i = action
        if i >= self.request.n_microbatches or any(self.done[need][stage] <= i for need in self.needs[kind]):
            return False
        if kind != "F":
            return True
        ahead = i - self.done[self.request.kinds[1]][stage]
        return ahead < self.cap[stage] and self.clock.has_room(self.request.placement[stage])

    def _has_room_after(self, stage):
        """Whether, after the stage's next forward, all micro-batches could still end, oldest first.

        When those before i have ended, its device keeps what later ones have there, and needs room for what
        is left of the forwards of i. Other devices keep what they have, so it is enough to look at this one.
        """
        device, (_, *backwards) = self.request.placement[stage], self.request.kinds
        forwards = {s: self.done["F"][s] + (s == stage) for s in self.stages[device]}
        oldest = min(self.done[self.request.kinds[-1]])
        for i in range(oldest, max(forwards.values())):
            kept = 0
            for s, n_forwards in forwards.items():
                kept += self.request.keeps["F"] * max(n_forwards - i, 1)
                for kind in backwards:
                    kept += self.request.keeps[kind] * max(self.done[kind][s] - i, 0)
            if kept > self.request.limits[device]:
                return False
        return True
