"""The time of a search: a schedule that grows action by action, and when each of them begins and ends."""

from .actions import Action
from .rules import RULES
from .schedule import Schedule


class Clock:
    """The actions that each device has done so far.

    request: the `Request` whose ticks they take.
    orders: for each device, its actions.
    begun, free: for each device, when its first action began (None: not yet), and when its last one ended.
    idle: for each device, for how long it waited in between.
    kept: for each device, how much it keeps now, in the unit of the request's limits.
    """

    def __init__(self, request):
        self.request, self._lags = request, request.lags
        devices = range(len(request.limits))
        self.orders, self.begun = [[] for _ in devices], [None for _ in devices]
        self.free, self.idle, self.kept = ([0 for _ in devices] for _ in range(3))
        not_yet = [None] * request.n_microbatches
        self._ends = {kind: [not_yet.copy() for _ in request.placement] for kind in request.kinds}

    def start(self, action):
        """When its device could begin it; None if the message that it waits for has not been sent yet."""
        free, source = self.free[self.request.placement[action.stage]], self.source(action)
        if source is None:
            return free
        end = self._ends[source.kind][source.stage][source.microbatch]
        return None if end is None else max(free, end + self._lags[min(action.stage, source.stage)])

    def source(self, action):
        """The action that sends it a message, or None."""
        kind, stage, i = action
        way = RULES[kind].way
        return Action(kind, stage - way, i) if way and 0 <= stage - way < self.request.n_stages else None

    def do(self, action, start):
        """Add `action`, which begins at `start`, to those of its device."""
        kind, stage, i = action
        device = self.request.placement[stage]
        if self.begun[device] is None:
            self.begun[device] = start
        else:
            self.idle[device] += start - self.free[device]
        self.free[device] = self._ends[kind][stage][i] = start + self.request.ticks[kind][stage]
        self.orders[device].append(action)
        self.kept[device] += self.request.keeps[kind]

    def has_room(self, device):
        """Whether the device can keep the activations of one more forward."""
        return self.kept[device] + self.request.keeps["F"] <= self.request.limits[device]

    def cost(self):
        """The objective: ticks until the last device is free, or those of the longest device span."""
        begun = [0] * len(self.free) if self.request.objective == "makespan" else self.begun
        return max(end - begin for begin, end in zip(begun, self.free))

    def schedule(self, name):
        """The actions so far as a `Schedule`."""
        devices = tuple(map(tuple, self.orders))
        return Schedule(devices, self.request.n_stages, self.request.n_microbatches, name)
