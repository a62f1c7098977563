"""The best schedule for a few stages and micro-batches, with a proof."""

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import NamedTuple

from .. import watching
from ..checks import function, real_number, whole_number
from .actions import Action, before
from .costs import Costs
from .greedy import greedy_answer, request_of, timed
from .schedule import Schedule


@dataclass(frozen=True)
class Found:
    """The result of a search.

    Args:
        schedule, makespan: the best schedule, and its ticks.
        bound: no schedule takes fewer ticks than this.
        proved: whether bound and makespan are equal: no schedule is shorter.
        n_nodes: the number of partial schedules that were examined.
    """

    schedule: Schedule
    makespan: float
    bound: float
    proved: bool
    n_nodes: int


def best_schedule(
    devices: int, microbatches: int, costs: Costs = Costs(),
    most_alive: float | Sequence[float] | None = None, halves: bool = False, latency: float = 0,
    most_nodes: int = 10_000, seconds: float | None = None,
    on_progress: Callable[[Found], object] | None = None,
) -> Found:
    """Return the schedule with the smallest makespan, of one stage on each device.

    Args:
        devices, microbatches, costs, most_alive, halves, latency: as for
            `greedy_schedule`.
        most_nodes: give up the proof after this number of partial schedules; the best
            one so far is returned, with `proved=False`. Each takes some microseconds
            for each action of a schedule. The search starts from the answer of
            `greedy_schedule`, so it never loses to that one, or to one with a name.
        seconds: give up the proof after this time as well; None for no limit.
        on_progress: a function that is called about four times a second with the
            `Found` so far, or None.

    >>> best_schedule(3, 4, most_alive=[3, 2, 1]).makespan    # 1F1B's, (M + K - 1)(F + B), in its memory
    18
    >>> best_schedule(3, 4, Costs(B=2, I=1, W=1), most_alive=3, halves=True).makespan   # that of ZB-H1
    14

    Method: branch and bound over the active schedules, those in which no action could
    begin earlier with all others where they are (Giffler, Thompson 1960). Take the
    unfinished device with the action that can end first, at t. Whatever this device
    does next begins before t: otherwise that action would fit in front of it. This
    covers a device that waits on purpose. A partial schedule is dropped if its bound is
    not below the best makespan, or if another one has done the same actions, with all
    devices free and all messages arrived no later. The bound: on each device, each
    remaining action takes its ticks, begins when its inputs can have arrived and is
    followed by the ticks that must follow (the one-machine problem with preemption).

    Three orders lose nothing, and make the search small:

    - Every stage takes the micro-batches in order, in F, B, I and W each. Take any
      schedule, keep the time of each action, and give the k-th action of a kind on a
      stage to micro-batch k. When it begins, k actions of this kind have begun, so k
      micro-batches have their inputs: in the new schedule these are the first k.
      Times and numbers alive are unchanged.
    - So with room for L, the forward of k follows the B (or W) of k - L: the limit is
      one more action to wait for.
    - The last stage does B or I right after its F. Another F in between can come after
      it: only the same stage's next B waits for that F.
    """
    request = request_of(devices, microbatches, costs, most_alive, halves, latency)
    most_nodes = whole_number("most_nodes", most_nodes, 1)
    if costs.A is not None or costs.U is not None:
        raise ValueError("the search orders F, B, I and W only: leave A and U out of its costs")
    whole, unit = request.in_whole_ticks()
    known, shortest = greedy_answer(whole)
    problem = _Problem(whole)

    def found(best, bound, n_nodes):
        schedule = known if best is None else problem.schedule(best)
        proved = bound == timed(whole, schedule.devices).cost()
        makespan = timed(request, schedule.devices).cost()
        return Found(schedule, makespan, makespan if proved else bound / unit, proved, n_nodes)

    seconds = math.inf if seconds is None else real_number("seconds", seconds, above=0, infinite=True)
    tell = None if on_progress is None else function("on_progress", on_progress)
    for state in _search(problem, shortest, most_nodes, time.perf_counter() + seconds):
        last = found(*state)
        if tell is not None:
            tell(last)
    return last


def _search(problem, shortest, most_nodes, deadline):
    """Yield (best node or None, lower bound, number of nodes) from time to time.

    It gives up after `most_nodes`, or at `deadline`, in seconds. A node must beat the
    makespan `shortest`.
    """
    root = _Node(0, (0,) * len(problem.limits), (None,) * len(problem.actions))
    starts = problem.earliest_starts(root)
    open_nodes = [(problem.bound(root, starts, math.inf), root, starts)]
    best, n_nodes = None, 0
    seen: dict = {}  # set of done actions -> times of partial schedules with it, none better than another
    due = time.perf_counter() + watching.PAUSE
    while open_nodes and n_nodes < most_nodes:
        now = time.perf_counter()
        if now >= deadline:
            break
        if now >= due:
            due = now + watching.PAUSE
            yield best, min([shortest] + [bound for bound, *_ in open_nodes]), n_nodes
        bound, node, starts = open_nodes.pop()
        n_nodes += 1
        if bound >= shortest:
            continue
        choices = problem.choices(node, starts)
        if not choices:
            best, shortest = node, max(node.free)
            continue
        children = []
        for task in choices:
            child = problem.after(node, task, starts[task])
            if _is_new(seen.setdefault(child.done, []), problem.times(child)):
                starts_then = problem.earliest_starts(child)
                bound = problem.bound(child, starts_then, shortest)
                if bound < shortest:
                    children.append((bound, "WFBI".index(problem.actions[task].kind), child, starts_then))
        children.sort(key=lambda child: (-child[0], child[1]))  # the last one is looked at next
        open_nodes += [(bound, child, starts_then) for bound, _, child, starts_then in children]
    yield best, min([shortest] + [bound for bound, *_ in open_nodes]), n_nodes


def _is_new(known, times):
    """Tell whether no entry of `known` is as early; if so, put `times` among them."""
    if any(all(a <= b for a, b in zip(other, times)) for other in known):
        return False
    known[:] = [other for other in known if not all(a <= b for a, b in zip(times, other))] + [times]
    return True


class _Node(NamedTuple):
    """A partial schedule.

    Args:
        done: the tasks that are done, as bits.
        free: for each device, the tick from which on it is free.
        ends: for each task, the tick at which it ends; None if it is not done.
    """

    done: int
    free: tuple
    ends: tuple


class _Problem:
    """The tasks; `before[task]` are pairs (task that it needs, message's ticks)."""

    def __init__(self, request):
        self.limits, self.latency, kinds = request.limits, request.latency, request.kinds
        self.kinds, self.n_microbatches = kinds, request.n_microbatches
        devices = range(len(self.limits))
        self.actions = []
        for i in range(self.n_microbatches):
            self.actions += [Action("F", r, i) for r in devices]
            self.actions += [Action(kind, r, i) for r in reversed(devices) for kind in kinds[1:]]
        number = {action: task for task, action in enumerate(self.actions)}
        self.device = [action.stage for action in self.actions]
        self.ticks = [request.ticks[kind][r] for kind, r, _ in self.actions]
        self.before = [
            [(number[need], lag) for need, lag in self._needs(action) if need in number]
            for action in self.actions
        ]
        self.messages = [
            (task, after) for after, needs in enumerate(self.before)
            for task, _ in needs if self.device[task] != self.device[after]
        ]
        self.tails = [0] * len(self.actions)  # for each task, the ticks that must follow its end
        for task in reversed(range(len(self.actions))):
            for need, lag in self.before[task]:
                self.tails[need] = max(self.tails[need], lag + self.ticks[task] + self.tails[task])

    def _needs(self, action):
        """Return [(earlier action, ticks of its message)]; some may not exist."""
        kind, r, i = action
        needs = [(Action(kind, r, i - 1), 0)]
        for need in before(kind, r, i, self.kinds):
            needs.append((Action(*need), self.latency if need[1] != r else 0))
        if kind == "F":
            backward, last = self.kinds[1], self.kinds[-1]
            needs.append((Action(last, r, i - self.limits[r]), 0))
            if r == len(self.limits) - 1:
                needs.append((Action(backward, r, i - 1), 0))
        return needs

    def after(self, node, task, start):
        """Return the node in which `task` begins next, at `start`."""
        end, r, (done, free, ends) = start + self.ticks[task], self.device[task], node
        free, ends = free[:r] + (end,) + free[r + 1:], ends[:task] + (end,) + ends[task + 1:]
        return _Node(done | 1 << task, free, ends)

    def earliest_starts(self, node):
        """Return each task's earliest start after `node`; None if it is done."""
        ends, starts = list(node.ends), [None] * len(node.ends)
        for task, end in enumerate(node.ends):
            if end is None:
                start = node.free[self.device[task]]
                for need, lag in self.before[task]:
                    start = max(start, ends[need] + lag)
                starts[task], ends[task] = start, start + self.ticks[task]
        return starts

    def choices(self, node, starts):
        """Return the tasks of one device that can follow `node`; [] at the end.

        By Giffler and Thompson. `starts` are the earliest starts.
        """
        ready = [[] for _ in self.limits]
        for task, start in enumerate(starts):
            if start is not None and all(node.ends[need] is not None for need, _ in self.before[task]):
                ready[self.device[task]].append(task)
        choices = []
        for tasks in filter(None, ready):
            first_end = min(starts[task] + self.ticks[task] for task in tasks)
            choices.append((first_end, [task for task in tasks if starts[task] < first_end]))
        return min(choices, key=lambda choice: (choice[0], len(choice[1])))[1] if choices else []

    def times(self, node):
        """Return when devices are free, and messages can be read, after `node`."""
        pending = [
            max(node.ends[task] + self.latency, node.free[self.device[after]])
            for task, after in self.messages if node.ends[after] is None and node.ends[task] is not None
        ]
        return [*node.free, *pending]

    def bound(self, node, starts, enough):
        """Return a lower bound of the makespan after `node`, whose tasks have `starts`.

        It stops as soon as the bound reaches `enough`.
        """
        left = [task for task, start in enumerate(starts) if start is not None]
        bound = max(node.free)
        for r in range(len(self.limits)):
            if bound < enough:
                of_r = [(starts[t], self.ticks[t], self.tails[t]) for t in left if self.device[t] == r]
                bound = max(bound, _one_machine(of_r))
        return bound

    def schedule(self, node):
        """Return the `Schedule` of a finished `node`, in the order of the ends."""
        tasks = sorted(range(len(node.ends)), key=node.ends.__getitem__)
        orders = [[self.actions[t] for t in tasks if self.device[t] == r] for r in range(len(self.limits))]
        return Schedule(tuple(map(tuple, orders)), len(orders), self.n_microbatches, "best")


def _one_machine(tasks):
    """Return the shortest makespan of `tasks` (start, ticks, tail), with preemption.

    The ready task with the longest tail runs (Jackson's preemptive schedule).
    """
    tasks, waiting, now, makespan = sorted(tasks), [], 0, 0
    next_starts = [start for start, _, _ in tasks[1:]] + [math.inf]
    for (start, ticks, tail), until in zip(tasks, next_starts):
        now = max(now, start)
        heappush(waiting, (-tail, ticks))
        while waiting and now < until:
            tail, ticks = heappop(waiting)
            worked = min(ticks, until - now)
            now += worked
            if worked < ticks:
                heappush(waiting, (tail, ticks - worked))
            else:
                makespan = max(makespan, now - tail)
    return makespan
