"""A good schedule for any sizes, costs and memory, by rules, without a proof."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from functools import partial
from inspect import signature
from itertools import pairwise
from typing import Any, NamedTuple

from ..checks import one_of, real_number, truth, whole_numbers
from .actions import RULES, Action, adding
from .costs import Costs, check_sizes, checked_costs, one_for_each
from .names import SCHEDULES, names_having
from .schedule import Schedule


# A schedule that grows action by action, with the times of its actions.

class GrowingSchedule:
    """The actions that each device has done so far, and their times.

    It computes times without the clock, which needs the orders that are chosen here.
    Attributes, each a list over the devices:
        orders: the actions.
        begun, free: when the first action began (None: not yet), the last one ended.
        idle: the ticks of waiting in between.
        kept, most_kept: the activations kept now, and at most so far, in the unit of
            the `limits` of the `request`.
    """

    def __init__(self, request: Request):
        self.request = request
        # for each stage but the last, the ticks of a message between it and the next one
        self._lags = [request.latency if r != after else 0 for r, after in pairwise(request.placement)]
        devices = range(len(request.limits))
        self.orders: list[list[Action]] = [[] for _ in devices]
        self.begun: list = [None for _ in devices]
        self.free, self.idle, self.kept, self.most_kept = ([0 for _ in devices] for _ in range(4))
        not_yet: list = [None] * request.n_microbatches
        self._ends = {kind: [not_yet.copy() for _ in request.placement] for kind in request.kinds}

    def start(self, action: Action) -> Any:
        """Return when `action` could begin; None without the message it needs."""
        free, source = self.free[self.request.placement[action.stage]], self.source(action)
        if source is None:
            return free
        end = self._ends[source.kind][source.stage][source.microbatch]
        return None if end is None else max(free, end + self._lags[min(action.stage, source.stage)])

    def source(self, action: Action) -> Action | None:
        """Return the action that sends the message which `action` needs, or None."""
        kind, stage, i = action
        way = RULES[kind].way
        return Action(kind, stage - way, i) if way and 0 <= stage - way < self.request.n_stages else None

    def do(self, action: Action, start: Any) -> None:
        """Add `action`, which begins at `start`, to the order of its device."""
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

    def has_room(self, device: int) -> bool:
        """Tell whether the device can keep the activations of one more forward."""
        return self.kept[device] + self.request.keeps["F"] <= self.request.limits[device]

    def cost(self) -> Any:
        """Return the objective: the makespan, or the longest span of a device."""
        begun = [0] * len(self.free) if self.request.objective == "makespan" else self.begun
        return max(end - begin for begin, end in zip(begun, self.free))

    def schedule(self, name: str) -> Schedule:
        """Return the actions so far as a `Schedule` called `name`."""
        orders = tuple(map(tuple, self.orders))
        return Schedule(orders, self.request.n_stages, self.request.n_microbatches, name)


# The times of a given order: as it is, or with each W moved to where its device would wait.

def timed(request: Request, orders: Sequence[Sequence[Any]], allowance: Any = None) -> Any:
    """Compute the times of `orders`; return a `GrowingSchedule`.

    Return None if a device exceeds its limit. The order on each device is given, so the
    devices can be taken in any order: each goes on until a message is missing. Source
    of the rule for W: Qi et al. 2023, arXiv 2401.10241, section 3.1.

    Args:
        request: the `Request`.
        orders: for each device, its actions, of the kinds of `request`, without faults.
        allowance: None: the actions keep their order. Otherwise all W are taken out.
            The oldest one is put back as soon as it fits into a gap, as its device
            would otherwise have waited for more than `allowance` ticks in all, or as a
            forward finds no room. The rest come at the end.
    """
    growing, filled = GrowingSchedule(request), allowance is not None
    waiting: dict = {}
    orders = [[action for action in order if not (filled and action.kind == "W")] for order in orders]
    heads, weights = [0] * len(orders), [deque[Action]() for _ in orders]
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
    """Do W before `action`, which could begin at `start`; return its new start."""
    while weights:
        gap = start - growing.free[device]
        fits = gap >= growing.request.ticks["W"][weights[0].stage]
        waits = gap > 0 and growing.idle[device] + gap > allowance
        if not (fits or waits or (action.kind == "F" and not growing.has_room(device))):
            break
        growing.do(weights.popleft(), growing.free[device])
        start = max(start, growing.free[device])
    return start


# An order made action by action: of all that can begin first, a free device takes the preferred one.

class _Run:
    """A search that does all actions once, in the order of their starts, by rules.

    Of all actions that can begin, a device takes one that can begin first; of several,
    one of the kind that comes first in `after_forward` or `after_backward`, by what it
    did last; of several forwards, the one on the last stage, and of several backwards,
    the one on the first stage, since these free memory soonest. W is done only where
    the device would wait. The forwards of stage s are at most `cap[s]` micro-batches
    ahead of its backwards.

    It always finishes: with several stages on a device, a forward begins only if
    afterwards the micro-batches in flight, oldest first, still find room for all that
    they have to do (Dijkstra's banker's algorithm).
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
        """Do all actions; return the order of the actions on each device."""
        candidates = [self._candidates(device) for device in range(len(self.stages))]
        refused = set()
        while any(candidates):
            # the action that can begin first comes next; of equals, the lower rank by kind, then by stage
            device = min((r for r, found in enumerate(candidates) if found), key=lambda r: candidates[r][0])
            start, _, _, action = candidates[device][0]
            if action.kind == "F" and not self._has_room_after(action.stage):
                # leave it until another action has been done, which may have freed memory
                candidates[device].pop(0)
                refused.add(device)
                continue
            self.growing.do(action, start)
            self.done[action.kind][action.stage] += 1
            if action.kind != "W":
                self.preferred[device] = self.after[action.kind]
            # only this device, the receiver of its message, and the refused ones can have a new candidate
            neighbour = action.stage + RULES[action.kind].way
            changed = refused | {device}
            if 0 <= neighbour < self.request.n_stages:
                changed.add(self.request.placement[neighbour])
            refused = set()
            for other in changed:
                candidates[other] = self._candidates(other)
        return self.growing.orders

    def _candidates(self, device):
        """Return rows (start, rank of kind, rank of stage, action), the best first."""
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
        """Tell whether what `action` needs is done; for a forward, also memory."""
        kind, stage, i = action
        if i >= self.request.n_microbatches or any(self.done[need][stage] <= i for need in self.needs[kind]):
            return False
        if kind != "F":
            return True
        ahead = i - self.done[self.request.kinds[1]][stage]
        return ahead < self.cap[stage] and self.growing.has_room(self.request.placement[stage])

    def _has_room_after(self, stage):
        """Tell whether all could finish, oldest first, after a forward of `stage`.

        When those before i have finished, the device keeps what later ones have there,
        and needs room for the remaining forwards of i. Other devices keep what they
        have, so it is enough to check this one.
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
    """The checked sizes, costs and limits of a schedule that is to be found.

    Args:
        placement: the device of each stage.
        n_microbatches: the number of micro-batches.
        kinds: the kinds of actions, "FB" or "FIW"; B or I sends the gradient back, B or
            W frees the activations.
        ticks: kind -> ticks on each stage.
        keeps: kind -> by how much its device's kept activations grow after it.
        limits: for each device, how much it can keep, in the same whole numbers.
        latency: ticks of a message between two devices.
        objective: what is minimized, one of `OBJECTIVES`.
    """

    placement: tuple[int, ...]
    n_microbatches: int
    kinds: str
    ticks: dict[str, Any]
    keeps: dict[str, Any]
    limits: list[int]
    latency: Any
    objective: str

    @property
    def n_stages(self) -> int:
        """The number of stages, on all devices together."""
        return len(self.placement)

    def in_whole_ticks(self) -> tuple[Request, int]:
        """Return (the request in whole 1 / unit ticks, unit), so nothing is rounded."""
        exact = {kind: list(map(Fraction, row)) for kind, row in self.ticks.items()}
        latency = Fraction(self.latency)
        unit = math.lcm(latency.denominator, *(cost.denominator for row in exact.values() for cost in row))
        ticks = {kind: [int(cost * unit) for cost in row] for kind, row in exact.items()}
        return self._replace(ticks=ticks, latency=int(latency * unit)), unit


def request_of(
    devices: int, microbatches: int, costs: Costs, most_alive: float | Sequence[float] | None, halves: bool,
    latency: float, v: int = 1, placement: Sequence[int] | None = None, kept_for_W: float = 1,
    objective: str = "makespan",
) -> Request:
    """Return a `Request`; raise `ValueError` for wrong arguments.

    Args:
        devices, microbatches, costs, most_alive, halves, latency, v, placement,
            kept_for_W, objective: as for `greedy_schedule`.
    """
    devices, microbatches, v = check_sizes(devices, microbatches, v)
    latency = real_number("latency", latency, least=0, note=" ticks", clock=True)
    placement = _placement(devices, v, placement)
    stages_on = [placement.count(device) for device in range(devices)]
    rooms = one_for_each(
        "most_alive", microbatches if most_alive is None else most_alive, "limits", devices, "device"
    )
    for device, room in enumerate(rooms):  # a micro-batch's backward begins after all its forwards
        real_number(f"device {device}: most_alive", room, least=1, infinite=True)
    costs = checked_costs(costs).by_stage(placement, stages_on)
    table = costs.table([stages_on[device] for device in placement], [latency])
    costs.bytes_sent(len(placement))
    one_of("objective", objective, OBJECTIVES)
    kinds = "FIW" if truth("halves", halves) else "FB"
    kept = Fraction(real_number("kept_for_W", kept_for_W, least=0, most=1))
    whole = kept.denominator
    keeps = {"F": whole, "B": -whole, "I": kept.numerator - whole, "W": -kept.numerator}
    limits = [int(n * min(room, microbatches)) * whole for room, n in zip(rooms, stages_on)]
    return Request(
        tuple(placement), microbatches, kinds, {kind: table[kind] for kind in kinds},
        {kind: keeps[kind] for kind in kinds}, limits, latency, objective,
    )


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


# The schedules with a name that fit a request: a search that starts from them finds none worse.

INSTEAD = {"B": "IW", "I": "B", "W": ""}  # kind -> the kinds that do its work, where it is not in use
NAME_ENDINGS = {"FB": "+whole", "FIW": "+halves"}  # added to a name then


def named_schedules(request: Request) -> list[Schedule]:
    """Return the registered schedules of one replica with the placement of `request`.

    They are converted to its kinds: a B becomes an I and a W; or an I becomes a B, and
    its W is left out. Overlaps are split.
    """
    devices = len(request.limits)
    v = request.n_stages // devices
    builders = [SCHEDULES[name] for name in names_having(flush=True, stages_per_device=v)]
    if v > 2:  # only builders that take v, the number of stages on each device
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
    """Return a good schedule: the best that rules make or that has a name.

    Args:
        devices, microbatches: at least 1 each.
        costs: ticks of F and B, or of F, I and W.
        most_alive: the micro-batches whose activations a device can keep, from the
            start of F to the end of B, or of W: a number, or one for each device. Of v
            stages on a device, each counts 1/v.
        halves: whether to split each backward into I and W.
        v: the number of stages on each device, with stage s on device s mod K.
        placement: instead of v, the device of each stage, such as [0, 1, 1, 0] for a V.
        latency: ticks of a message between two devices.
        kept_for_W: the share of a micro-batch's activations that a device keeps from
            the end of I to the end of W. In a Transformer's block it is
            32 h / (34 h + 5 a s), with h features, a heads and s tokens.
        objective: what is minimized: "makespan", or "span", the longest span from a
            device's first action to the end of its last one.

    Raises:
        ValueError: an argument is wrong, such as room for less than one micro-batch.

    All schedules with a name that fit are tried, so none of them is better. Then simple
    rules make more orders: after a forward a device prefers a backward, or another
    forward; after a backward the same or the other. The forwards of stage s of S are at
    most n (S - s) / S, rounded up, ahead of its backwards: in 1F1B, n = S, and in ZB-H2
    n = 2S. Several n, and no such cap, are tried with each rule. With halves, the W of
    each order are tried in other places, too (Qi et al. 2023, arXiv 2401.10241, section
    3.1).

    The schedule is called "greedy", or by the name that its order has, with "+halves"
    or "+whole" where the backwards of that order were changed, and "+filled" where its
    W were moved.

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


def greedy_answer(request: Request) -> tuple[Any, Any]:
    """Return (schedule, cost) of the best draft with its W in the best places.

    Of equally good drafts it is the one that keeps the fewest activations on its
    fullest device, then on all devices of `request` together.
    """
    drafts: list[tuple[str, Any]] = [
        ("greedy", _Run(request, *rules, cap).orders())
        for rules in RULES_OF[request.kinds] for cap in _caps(request)
    ]
    drafts += [(schedule.name, schedule.devices) for schedule in named_schedules(request)]
    # for `timed`: None leaves each W where it is; a number is how long a device may wait without doing one
    allowances: list = [None]
    if "W" in request.kinds:
        W = max(request.ticks["W"])
        allowances += [0, W, 4 * W, math.inf]
    best, least = None, (math.inf, math.inf, math.inf)
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


# kinds of action -> rules: the kinds as a device prefers them after a forward, and after a backward
RULES_OF = {
    "FB": [("BF", "BF"), ("FB", "FB"), ("BF", "FB")],
    "FIW": [("IFW", "IFW"), ("FIW", "FIW"), ("IFW", "FIW")],
}


def _caps(request):
    """Return several lists, each with the most micro-batches in flight for each stage.

    The first list has no cap; the others have n (S - s) / S for stage s of S.
    """
    n_stages, room = request.n_stages, request.limits[request.placement[0]] // request.keeps["F"]
    most_stages = max(map(request.placement.count, request.placement))
    rooms = range(room - most_stages, room + 1)
    numbers = {max(min(n, most), 1) for n in rooms for most in (n_stages, 2 * n_stages)}
    caps = [[max(1, -(-n * (n_stages - s) // n_stages)) for s in range(n_stages)] for n in sorted(numbers)]
    return [[request.n_microbatches] * n_stages, *caps]
