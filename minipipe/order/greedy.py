"""A schedule for any sizes, costs and memory, by rules of thumb and by name: quick, good, without a proof."""

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from inspect import signature
from itertools import pairwise
from typing import NamedTuple

from ..checks import one_of, real_number, truth, whole_numbers
from .actions import RULES, Action, adding
from .costs import Costs, check_sizes, checked_costs, limits_of
from .names import SCHEDULES, names_having
from .schedule import Schedule


# A schedule that grows action by action, and when each of them begins and ends.

class GrowingSchedule:
    """The actions that each device has done so far, and their times.

    It keeps a time of its own: these times choose which action comes next, and the
    clock runs given orders.

    Args:
        request: the `Request` whose ticks they take.

    Attributes:
        orders: for each device, its actions.
        begun, free: for each device, when its first action began (None: not yet), and
            when its last one ended.
        idle: for each device, for how long it waited in between.
        kept, most_kept: for each device, how much it keeps now, and has kept at most,
            in the unit of the request's limits.
    """

    def __init__(self, request):
        self.request = request
        # for each stage but the last, the ticks of a message between it and the next one
        self._lags = [request.latency if r != after else 0 for r, after in pairwise(request.placement)]
        devices = range(len(request.limits))
        self.orders, self.begun = [[] for _ in devices], [None for _ in devices]
        self.free, self.idle, self.kept, self.most_kept = ([0 for _ in devices] for _ in range(4))
        not_yet = [None] * request.n_microbatches
        self._ends = {kind: [not_yet.copy() for _ in request.placement] for kind in request.kinds}

    def start(self, action):
        """Return when its device could begin it; None if the message that it waits for is not sent yet."""
        free, source = self.free[self.request.placement[action.stage]], self.source(action)
        if source is None:
            return free
        end = self._ends[source.kind][source.stage][source.microbatch]
        return None if end is None else max(free, end + self._lags[min(action.stage, source.stage)])

    def source(self, action):
        """Return the action that sends it a message, or None."""
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
        self.most_kept[device] = max(self.most_kept[device], self.kept[device])

    def has_room(self, device):
        """Tell whether the device can keep the activations of one more forward."""
        return self.kept[device] + self.request.keeps["F"] <= self.request.limits[device]

    def cost(self):
        """Return the objective: ticks until the last device is free, or of the longest device span."""
        begun = [0] * len(self.free) if self.request.objective == "makespan" else self.begun
        return max(end - begin for begin, end in zip(begun, self.free))

    def schedule(self, name):
        """Return the actions so far as a `Schedule`."""
        devices = tuple(map(tuple, self.orders))
        return Schedule(devices, self.request.n_stages, self.request.n_microbatches, name)


# A given order with its times: as it is, or with each W put where its device would wait.

def timed(request, orders, allowance=None):
    """Return the `GrowingSchedule` after the `orders`, or None if a device keeps more than its limit.

    Args:
        orders: for each device, its actions; those of a schedule without faults, of the
            kinds of `request`.
        allowance: None, and the actions come as they are. Otherwise each W is taken out
            and put back, the oldest first, where its device would wait: if it fits into
            the gap, or if without it the device had waited for more than `allowance`
            ticks in all since its first action. A W also makes room for a forward that
            finds none. Those left come at the end.

    The order on each device is given, so it does not matter which one is looked at
    first: each goes on until something is missing. Source of the rule: Qi et al. 2023,
    arXiv 2401.10241, section 3.1.
    """
    growing, waiting, filled = GrowingSchedule(request), {}, allowance is not None
    orders = [[action for action in order if not (filled and action.kind == "W")] for order in orders]
    heads, weights = [0] * len(orders), [deque() for _ in orders]
    ready = list(range(len(orders)))
    while ready:
        device = ready.pop()
        order = orders[device]
        for head in range(heads[device], len(order)):
            action = order[head]
            start = growing.start(action)
            if start is None:
                waiting[growing.source(action)], heads[device] = device, head
                break
            if weights[device]:
                start = _fill(growing, device, action, start, weights[device], allowance)
            if action.kind == "F" and not growing.has_room(device):
                return None
            growing.do(action, start)
            if filled and action.kind == "I":
                weights[device].append(action._replace(kind="W"))
            if action in waiting:
                ready.append(waiting.pop(action))
    for device, left in enumerate(weights):
        for action in left:
            growing.do(action, growing.free[device])
    return growing


def _fill(growing, device, action, start, weights, allowance):
    """Do the W that come before `action`, which could begin at `start`; return when it can begin then."""
    while weights:
        gap = start - growing.free[device]
        fits = gap >= growing.request.ticks["W"][weights[0].stage]
        waits = gap > 0 and growing.idle[device] + gap > allowance
        if not (fits or waits or (action.kind == "F" and not growing.has_room(device))):
            break
        growing.do(weights.popleft(), growing.free[device])
        start = max(start, growing.free[device])
    return start


# An order made action by action: of all that can begin first, a free device takes what a rule prefers.

class _Run:
    """One pass through all actions, in the order of their starts, by rules.

    Args:
        request: the `Request`.
        after_forward, after_backward: the kinds in the order in which a device prefers
            them when the last thing that it did was a forward, or a backward or the
            first half of one.
        cap: for each stage, by how many micro-batches its forwards may be ahead of its
            backwards.

    Of all that can begin, the device takes what can begin first; of these, the
    preferred kind; of several forwards, the one of the latest stage, and of several
    backwards, the one of the earliest, since these are closest to giving memory back; W
    only where it would wait.

    It always comes to an end: with several stages on a device, no forward begins after
    which the micro-batches on their way, oldest first, would not find room for all that
    they have still to do (Dijkstra's banker).

    Attributes:
        stages: for each device, its stages.
        done: kind -> for each stage, how many have been done.
        preferred: for each device, the kinds in the order in which it prefers them now.
    """

    def __init__(self, request, after_forward, after_backward, cap):
        self.request, self.growing, self.cap = request, GrowingSchedule(request), cap
        self.after = dict.fromkeys(request.kinds, after_backward) | {"F": after_forward}
        stages, devices = range(request.n_stages), range(len(request.limits))
        self.stages = [[s for s in stages if request.placement[s] == r] for r in devices]
        self.preferred = [after_backward for _ in devices]
        self.needs = {kind: adding(RULES[kind].needs, request.kinds) for kind in request.kinds}
        self.done = {kind: [0 for _ in stages] for kind in request.kinds}

    def orders(self):
        """Return for each device its actions, after all have been done."""
        candidates = [self._candidates(device) for device in range(len(self.stages))]
        refused = set()
        while any(candidates):
            # what can begin first comes next; of equals the lower rank by kind, then by stage
            device = min((r for r, found in enumerate(candidates) if found), key=lambda r: candidates[r][0])
            start, _, _, action = candidates[device][0]
            if action.kind == "F" and not self._has_room_after(action.stage):
                # put aside until another action has been done, which may have released room
                candidates[device].pop(0)
                refused.add(device)
                continue
            self.growing.do(action, start)
            self.done[action.kind][action.stage] += 1
            if action.kind != "W":
                self.preferred[device] = self.after[action.kind]
            # only this device, the one that gets its message, and those that were refused can do anything new
            neighbour = action.stage + RULES[action.kind].way
            changed = refused | {device}
            if 0 <= neighbour < self.request.n_stages:
                changed.add(self.request.placement[neighbour])
            refused = set()
            for other in changed:
                candidates[other] = self._candidates(other)
        return self.growing.orders

    def _candidates(self, device):
        """Return what the device could do next, best first: (start, rank by kind, rank by stage, action)."""
        found = []
        for stage in self.stages[device]:
            for kind in self.request.kinds:
                action = Action(kind, stage, self.done[kind][stage])
                start = self.growing.start(action) if self._can_do(action) else None
                if start is not None:
                    rank = self.preferred[device].index(kind)
                    found.append((start, rank, -stage if kind == "F" else stage, action))
        return sorted(found)

    def _can_do(self, action):
        """Tell whether its stage has done what it needs, and, for a forward, has room within the cap."""
        kind, stage, i = action
        if i >= self.request.n_microbatches or any(self.done[need][stage] <= i for need in self.needs[kind]):
            return False
        if kind != "F":
            return True
        ahead = i - self.done[self.request.kinds[1]][stage]
        return ahead < self.cap[stage] and self.growing.has_room(self.request.placement[stage])

    def _has_room_after(self, stage):
        """Tell whether all micro-batches could still end, oldest first, after the stage's next forward.

        When those before i have ended, its device keeps what later ones have there, and
        needs room for what is left of the forwards of i. Other devices keep what they
        have, so it is enough to look at this one.
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


# What is asked of a search for a schedule, and how good a schedule is at it.

OBJECTIVES = ("makespan", "span")


class Request(NamedTuple):
    """The sizes, costs and limits of a schedule that is to be found, all of them checked.

    Args:
        placement: the device of each stage.
        n_microbatches: how many there are.
        kinds: of actions, "FB" or "FIW"; the second one sends the gradient back, the
            last one frees activations.
        ticks: kind -> ticks on each stage.
        keeps: kind -> by how much more its device keeps after it, in whole numbers.
        limits: for each device, how much it can keep, in the same unit; each of its
            stages counts by itself.
        latency: ticks of a message between two devices.
        objective: what is to be small, one of `OBJECTIVES`.
    """

    placement: tuple
    n_microbatches: int
    kinds: str
    ticks: dict
    keeps: dict
    limits: list
    latency: float
    objective: str

    @property
    def n_stages(self):
        """How many stages there are, on all devices together."""
        return len(self.placement)

    def in_whole_ticks(self):
        """Return (request, unit): the same times in 1 / unit ticks, all whole, so that nothing is rounded."""
        exact = {kind: list(map(Fraction, row)) for kind, row in self.ticks.items()}
        latency = Fraction(self.latency)
        unit = math.lcm(latency.denominator, *(cost.denominator for row in exact.values() for cost in row))
        ticks = {kind: [int(cost * unit) for cost in row] for kind, row in exact.items()}
        return self._replace(ticks=ticks, latency=int(latency * unit)), unit


def request_of(
    devices, microbatches, costs, most_alive, halves, latency, v=1, placement=None, kept_for_W=1,
    objective="makespan",
):
    """Return these arguments of `greedy_schedule` as a `Request`; raise `ValueError` for wrong ones."""
    devices, microbatches, v = check_sizes(devices, microbatches, v)
    latency = real_number("latency", latency, least=0, note=" ticks", clock=True)
    placement = _placement(devices, v, placement)
    stages_on = [placement.count(device) for device in range(devices)]
    limits = limits_of(most_alive, stages_on, microbatches)
    costs = checked_costs(costs).by_stage(placement, stages_on)
    table = costs.table([stages_on[device] for device in placement], [latency])
    costs.bytes_sent(len(placement))
    one_of("objective", objective, OBJECTIVES)
    kinds = "FIW" if truth("halves", halves) else "FB"
    kept = Fraction(real_number("kept_for_W", kept_for_W, least=0, most=1))
    whole = kept.denominator
    keeps = {"F": whole, "B": -whole, "I": kept.numerator - whole, "W": -kept.numerator}
    ticks, keeps = ({kind: of[kind] for kind in kinds} for of in (table, keeps))
    limits = [limit * whole for limit in limits]
    return Request(tuple(placement), microbatches, kinds, ticks, keeps, limits, latency, objective)


def _placement(devices, v, placement):
    if placement is None:
        return [stage % devices for stage in range(devices * v)]
    placement = list(whole_numbers("placement", placement, 0))
    if v != 1:
        raise ValueError(f"v={v} and placement={placement} both say where the stages are: give one of them")
    if sorted(set(placement)) != list(range(devices)):
        raise ValueError(
            f"placement={placement} must have each of the devices 0..{devices - 1}, and no others"
        )
    return placement


# The schedules with a name that answer a request: a search that starts from them never loses to one.

INSTEAD = {"B": "IW", "I": "B", "W": ""}  # kind -> what does its work, where the order has no such kind
NAME_ENDINGS = {"FB": "+whole", "FIW": "+halves"}  # what is added to a name then


def named_schedules(request):
    """Return the registered schedules with the placement of `request`, converted to its kinds of actions.

    Those that keep several replicas are left out. Where halves are asked for, a
    backward in one piece becomes its two halves in turn. Where they are not, an I
    becomes a B, and its W is left out. Overlaps are taken apart.
    """
    devices = len(request.limits)
    v = request.n_stages // devices
    builders = [SCHEDULES[name] for name in names_having(flush=True, stages_per_device=v)]
    if v > 2:  # those that can be built for any number of stages on each device
        builders = [
            partial(builder, v=v) for builder in SCHEDULES.values() if "v" in signature(builder).parameters
        ]
    found = []
    for build in builders:
        try:
            schedule = _in_kinds(build(devices, request.n_microbatches), request.kinds)
        except ValueError:  # it does not exist for these sizes
            continue
        if schedule.n_copies == 1 and tuple(schedule.placement) == request.placement:
            found.append(schedule)
    return found


def _in_kinds(schedule, kinds):
    if schedule.kinds <= set(kinds):
        return schedule
    devices = []
    for device in range(len(schedule.devices)):
        order = []
        for kind, stage, i in schedule.parts(device):
            order += [Action(other, stage, i) for other in (kind if kind in kinds else INSTEAD[kind])]
        devices.append(tuple(order))
    return replace(schedule, devices=tuple(devices), name=schedule.name + NAME_ENDINGS[kinds])


# The search: all drafts of an order, each timed with its W in several places.

def greedy_schedule(
    devices: int, microbatches: int, costs: Costs = Costs(),
    most_alive: float | Sequence[float] | None = None, halves: bool = False, v: int = 1,
    placement: Sequence[int] | None = None, latency: float = 0, kept_for_W: float = 1,
    objective: str = "makespan",
) -> Schedule:
    """Return a good schedule for these stages, costs and memory: the best that rules make or that has a name.

    Args:
        devices, microbatches: at least 1 each.
        costs: ticks of F and B, or of F, I and W.
        most_alive: the micro-batches whose activations a device can keep, from the
            start of F to the end of B, or of W: a number, or one for each device. Of v
            stages on a device, each counts 1/v.
        halves: whether to split each backward into I and W.
        v: stages a device, stage s on device s mod K; or else
        placement: the device of each stage, for instance [0, 1, 1, 0] for a V.
        latency: ticks of a message between two devices.
        kept_for_W: the share of a micro-batch's activations that W needs: all that a
            device keeps of it from the end of I to the end of W. In a Transformer's
            block it is 32 h / (34 h + 5 a s), with h features, a heads and s tokens.
        objective: what is to be small: "makespan", or "span", the longest device span,
            from the start of a device's first action to the end of its last one.

    Raises `ValueError` for what makes no sense.

    Every schedule with a name that has one copy of the network, these stages and this
    memory is tried, so none of them is better. So are the orders that a few simple
    rules make: after a forward a device prefers a backward, or another forward; after a
    backward the same or the other. A cap keeps the forwards of a stage from running
    ahead of its backwards by more than n (S - s) / S, rounded up: as 1F1B does on stage
    s of S, where n = S, and ZB-H2 with n = 2S. Several caps, and no cap, are tried
    under each rule. With halves, the W of each order are tried in other places, too.

    What is found is called "greedy", or by the name that its order has, with "+halves"
    or "+whole" where the backwards of that were not as asked for, and "+filled" where
    its W are in other places. Source: Qi et al. 2023, arXiv 2401.10241, section 3.1,
    has these rules for W, and a search over a few choices.

    >>> schedule = greedy_schedule(4, 8, most_alive=[4, 3, 2, 1])
    >>> print(schedule)
    device 0: 0F0 0F1 0F2 0F3 0B0 0F4 0B1 0F5 0B2 0F6 0B3 0F7 0B4 0B5 0B6 0B7
    device 1: 1F0 1F1 1F2 1B0 1F3 1B1 1F4 1B2 1F5 1B3 1F6 1B4 1F7 1B5 1B6 1B7
    device 2: 2F0 2F1 2B0 2F2 2B1 2F3 2B2 2F4 2B3 2F5 2B4 2F6 2B5 2F7 2B6 2B7
    device 3: 3F0 3B0 3F1 3B1 3F2 3B2 3F3 3B3 3F4 3B4 3F5 3B5 3F6 3B6 3F7 3B7
    """
    request = request_of(
        devices, microbatches, costs, most_alive, halves, latency, v, placement, kept_for_W, objective
    )
    return greedy_answer(request.in_whole_ticks()[0])[0]


def greedy_answer(request):
    """Return (schedule, its cost by `request.objective`): the best draft with its W in the best places.

    Of equally good ones it is the one that keeps least on its fullest device, and then
    on all together.
    """
    drafts = [
        ("greedy", _Run(request, *rules, cap).orders())
        for rules in RULES_OF[request.kinds] for cap in _caps(request)
    ]
    drafts += [(schedule.name, schedule.devices) for schedule in named_schedules(request)]
    # what `timed` is told: to leave the W where they are, or how long a device may wait and not do one
    allowances = [None]
    if "W" in request.kinds:
        W = max(request.ticks["W"])
        allowances += [0, W, 4 * W, math.inf]
    best, least = None, (math.inf,)
    for allowance in allowances:
        for name, orders in drafts:
            growing = timed(request, orders, allowance)
            if growing is None:
                continue
            takes = growing.cost(), max(growing.most_kept), sum(growing.most_kept)
            if takes < least:
                filled = allowance is not None and name != "greedy"
                best, least = growing.schedule(f"{name}+filled" if filled else name), takes
    return best, least[0]


# By kinds of action, the rules: what a device prefers after a forward, and after a backward.
RULES_OF = {
    "FB": [("BF", "BF"), ("FB", "FB"), ("BF", "FB")],
    "FIW": [("IFW", "IFW"), ("FIW", "FIW"), ("IFW", "FIW")],
}


def _caps(request):
    """Return a list of caps: how many forwards each stage s of S may be ahead, n (S - s) / S rounded up."""
    n_stages, room = request.n_stages, request.limits[request.placement[0]] // request.keeps["F"]
    most_stages = max(map(request.placement.count, request.placement))
    rooms = range(room - most_stages, room + 1)
    numbers = {max(min(n, most), 1) for n in rooms for most in (n_stages, 2 * n_stages)}
    caps = [[max(1, -(-n * (n_stages - s) // n_stages)) for s in range(n_stages)] for n in sorted(numbers)]
    return [[request.n_microbatches] * n_stages, *caps]
