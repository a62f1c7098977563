"""Which task goes where and when: list scheduling."""

from heapq import heappop, heappush
from typing import NamedTuple

from ..checks import listed, whole_numbers
from ..cluster import COMPUTE
from .tasks import Bounds, TaskGraph


class Listed(NamedTuple):
    """What list scheduling has come to.

    orders: {(device, lane): the numbers of its tasks, in order}.
    starts: for each task, the tick at which it starts.
    makespan: the tick at which all are over.
    bounds: the `Bounds` below which no makespan can be.
    """

    orders: dict
    starts: list
    makespan: float
    bounds: Bounds


def list_schedule(tasks, n_devices=None, priority=None):
    """List scheduling: whenever a lane is free, it starts the ready task of the highest priority.

    tasks: a list of `Task`s.
    n_devices: as for `TaskGraph`.
    priority: the numbers of all tasks, the most urgent first; left out, those with the longest way to the end
        come first, and of equals the lower number.

    A task without a lane goes to the first device that is free; of several, to the lowest. A lane never waits
    while it has something to do. So it ends within (2 - 1/p) times the best makespan of p equal devices
    (Graham 1966, Bell System Technical Journal 45), and may end later with more devices, shorter tasks or
    fewer dependencies:

    >>> from minipipe.graph import Task, list_schedule
    >>> ticks, before = [3, 2, 2, 2, 4, 4, 4, 4, 9], {9: 1, 5: 4, 6: 4, 7: 4, 8: 4}
    >>> tasks = [Task(n, ticks[n - 1], (before[n] - 1,) if n in before else ()) for n in range(1, 10)]
    >>> [list_schedule(tasks, n, priority=range(9)).makespan for n in (3, 4)]
    [12, 15]

    Where devices take unequal times (`Task.ticks` is a tuple), use `earliest_finish`, which may wait for a
    fast one.
    """
    graph = TaskGraph(tasks, n_devices)
    if priority is None:
        priority = sorted(range(len(graph.tasks)), key=lambda number: (-graph.ranks[number], number))
    else:
        priority = _checked_priority(priority, len(graph.tasks))
    places = [0] * len(priority)
    for place, number in enumerate(priority):
        places[number] = place
    return _listed(graph, priority, places)


def _listed(graph, priority, places):
    """The loop of `list_schedule`: heaps of ready tasks, and of the ends of those that run."""
    tasks, lanes, successors = graph.tasks, graph.lanes, graph.successors
    missing = [len(task.after) for task in tasks]
    has_pool = None in lanes
    names = {lane: None for lane in lanes if lane is not None}
    if has_pool:
        names = {(device, COMPUTE): None for device in range(graph.n_devices)} | names
    names = sorted(names)  # lanes by number
    numbers = {lane: number for number, lane in enumerate(names)}
    of_task = [None if lane is None else numbers[lane] for lane in lanes]
    sharing = [lane for lane, name in enumerate(names) if has_pool and name[1] == COMPUTE]
    ready, pool = [[] for _ in names], []  # heaps of places
    free, orders = [True] * len(names), [[] for _ in names]
    starts, running, now, makespan = [None] * len(tasks), [], 0, 0
    over = [number for number, n in enumerate(missing) if n == 0]
    touched = set()

    def released(number):
        lane = of_task[number]
        if lane is None:
            heappush(pool, places[number])
        else:
            heappush(ready[lane], places[number])
            touched.add(lane)

    for number in over:
        released(number)
    while True:
        candidates = touched
        if pool:
            candidates = touched.union(lane for lane in sharing if free[lane])
        for lane in sorted(candidates):
            if not free[lane]:
                continue
            queue = ready[lane]
            if pool and names[lane][1] == COMPUTE and (not queue or pool[0] < queue[0]):
                queue = pool
            if not queue:
                continue
            number = priority[heappop(queue)]
            ticks = tasks[number].ticks
            if ticks.__class__ is tuple:
                ticks = ticks[names[lane][0]]
            starts[number], free[lane] = now, False
            orders[lane].append(number)
            heappush(running, (now + ticks, lane, number))
        touched = set()
        if not running:
            break
        now = running[0][0]
        while running and running[0][0] == now:
            _, lane, number = heappop(running)
            free[lane] = True
            touched.add(lane)
            for after in successors[number]:
                missing[after] -= 1
                if missing[after] == 0:
                    released(after)
        makespan = now
    return Listed(dict(zip(names, orders)), starts, makespan, graph.bounds())


def earliest_finish(tasks, n_devices=None):
    """HEFT: in the order of their ranks, each task goes to the device on which it ends first.

    tasks, n_devices: as for `list_schedule`. A device may wait for a task that suits it while others are
    ready. Source: Topcuoglu et al. 2002, IEEE Transactions on Parallel and Distributed Systems 13(3), without
    its filling of gaps.

    >>> from minipipe.graph import Task
    >>> work = [Task(n, ticks=(1, 10)) for n in "abc"]          # on a GPU, and on a CPU
    >>> earliest_finish(work, 2).makespan, list_schedule(work, 2).makespan
    (3, 10)
    """
    graph = TaskGraph(tasks, n_devices)
    free = {(device, COMPUTE): 0 for device in range(graph.n_devices)}
    free |= {lane: 0 for lane in graph.lanes if lane is not None}
    place = {number: place for place, number in enumerate(graph.order)}
    ends, starts = [0] * len(graph.tasks), [0] * len(graph.tasks)
    orders = {lane: [] for lane in sorted(free)}
    for number in sorted(place, key=lambda number: (-graph.ranks[number], place[number])):
        task = graph.tasks[number]
        since = max([ends[before] for before in task.after], default=0)
        lanes = [graph.lanes[number]]
        if lanes == [None]:
            lanes = [(device, COMPUTE) for device in range(graph.n_devices)]
        of_lanes = []
        for lane in lanes:
            ticks = task.ticks[lane[0]] if task.ticks.__class__ is tuple else task.ticks
            start = max(since, free[lane])
            of_lanes.append((start + ticks, lane, start))
        ends[number], lane, starts[number] = min(of_lanes)
        free[lane] = ends[number]
        orders[lane].append(number)
    return Listed(orders, starts, max(ends, default=0), graph.bounds())


def _checked_priority(priority, n_tasks):
    priority = listed("priority", priority, least=0)
    if sorted(whole_numbers("priority", priority, 0)) != list(range(n_tasks)):
        raise ValueError(f"priority must have each of the numbers 0 to {n_tasks - 1} of the tasks once")
    return priority
