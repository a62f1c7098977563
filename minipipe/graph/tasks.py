"""A graph of tasks: what must be over before each of them, and a list schedule of them as programs."""

from heapq import heappop, heappush
from typing import NamedTuple

from ..arguments import MOST_RANKS, argument
from ..checks import is_plain, listed, real_number, shown, whole_number, whole_numbers
from ..cluster import COMPUTE, Cluster, Compute, Label, Receive, Send


class Task(NamedTuple):
    """A piece of work.

    name: what pictures call it.
    ticks: how long it takes; a tuple has one number for each device that may take it.
    after: the numbers of the tasks that must be over before.
    lane: where it is done: (device, name of the lane), or a device, which stands for its lane "compute";
        None: any device that is free.
    kind: of work, which has its own colour in pictures; left out, the name.
    """

    name: str
    ticks: float = 1
    after: tuple = ()
    lane: object = None
    kind: str = ""


class LowerBounds(NamedTuple):
    """Three times, in ticks, below which no order of the tasks can end.

    critical_path: the longest chain of tasks that must follow each other.
    work: all that the devices compute, shared evenly among them.
    busiest: the most work of one lane, with the shortest way there before it, and from there behind it.
    """

    critical_path: float
    work: float
    busiest: float

    @property
    def best(self):
        """The highest of them."""
        return max(self)


def from_names(tasks):
    """A list of `Task`s from a dict {name: (ticks, names of those before, lane)}, in its order.

    What stands at the end may be left out. `ValueError` for a name that no task has.

    >>> from_names({"load": (2,), "work": (3, ["load"], 0)})[1]
    Task(name='work', ticks=3, after=(0,), lane=0, kind='')
    """
    if not isinstance(tasks, dict):
        raise ValueError(f"tasks={shown(tasks)} must be a dict {{name: (ticks, names before, lane)}}")
    numbers = {name: number for number, name in enumerate(tasks)}
    found = []
    for name, task in tasks.items():
        ticks, *more = listed(f"tasks[{shown(name)}]", task)
        before = listed(f"what comes before {shown(name)}", more[0], least=0) if more else ()
        unknown = [other for other in before if other not in numbers]
        if unknown:
            raise ValueError(
                f"task {name!r} comes after {unknown[0]!r}, which is not among the tasks: add it"
            )
        after = tuple(numbers[other] for other in before)
        found.append(Task(name, ticks, after, more[1] if len(more) > 1 else None))
    return found


class TaskGraph:
    """The tasks, checked, with what follows from them.

    tasks: a list of `Task`s.
    n_devices: on how many devices those without a lane may run; left out, as many as the lanes name, or 1.

    order: the numbers of the tasks, each behind all that it comes after.
    successors: for each task, those that come after it.
    lanes: for each task (device, lane), or None.
    ranks: for each task, the longest way from its start to the end of all: HEFT's upward rank. A task with
        several times counts their mean.

    Raises `ValueError` for a circle of tasks that wait for each other, and for what is no task.

    >>> TaskGraph(from_names({"a": (1, ["b"]), "b": (1, ["a"])}))
    Traceback (most recent call last):
    ValueError: 2 tasks wait for each other in a circle: a -> b -> a: take one of these out of `after`
    """

    def __init__(self, tasks, n_devices=None):
        self.tasks = listed("tasks", tasks, least=0)
        n = len(self.tasks)
        self.successors = [[] for _ in range(n)]
        self.lanes = []
        for number, task in enumerate(self.tasks):
            _check_ticks(task)
            self.lanes.append(_lane_of(task))
            for before in task.after:
                if not (before.__class__ is int and 0 <= before < n):
                    raise ValueError(
                        f"task {task.name!r} comes after {shown(before)}: use numbers of tasks, 0 to {n - 1}"
                    )
                self.successors[before].append(number)
        named = 1 + max((lane[0] for lane in self.lanes if lane is not None), default=0)
        self.n_devices = named if n_devices is None else argument("list_schedule.n_devices", n_devices)
        if named > self.n_devices:
            raise ValueError(f"a task is on device {named - 1}, but n_devices={self.n_devices}: use {named}")
        for task, lane in zip(self.tasks, self.lanes):
            if task.ticks.__class__ is tuple and (lane is not None or len(task.ticks) != self.n_devices):
                raise ValueError(
                    f"task {task.name!r} has {len(task.ticks)} times for {self.n_devices} devices and lane "
                    f"{task.lane}: give one for each, and no lane; or one number"
                )
        self.means = [_mean(task.ticks) for task in self.tasks]
        self.order = self._order()
        self.ranks = self._ranks(self.means)

    def bounds(self):
        """The `LowerBounds` of every order."""
        least, ranks = self.means, self.ranks
        if any(task.ticks.__class__ is tuple for task in self.tasks):
            least = [min(task.ticks) if task.ticks.__class__ is tuple else task.ticks for task in self.tasks]
            ranks = self._ranks(least)
        heads = [0] * len(least)
        for number in self.order:
            end = heads[number] + least[number]
            for after in self.successors[number]:
                if heads[after] < end:
                    heads[after] = end
        of_lanes, computed = {}, 0
        for number, lane in enumerate(self.lanes):
            of_lanes.setdefault(lane, []).append(number)
            if lane is None or lane[1] == COMPUTE:
                computed += least[number]
        of_lanes.pop(None, None)
        busiest = max((
            min(heads[number] for number in numbers) + sum(least[number] for number in numbers)
            + min(ranks[number] - least[number] for number in numbers) for numbers in of_lanes.values()
        ), default=0)
        return LowerBounds(max(ranks, default=0), computed / self.n_devices, busiest)

    def _order(self):
        missing = [len(task.after) for task in self.tasks]
        order = [number for number, n in enumerate(missing) if n == 0]
        for number in order:
            for after in self.successors[number]:
                missing[after] -= 1
                if missing[after] == 0:
                    order.append(after)
        if len(order) < len(self.tasks):
            raise ValueError(self._circle(missing))
        return order

    def _circle(self, missing):
        """The sentence about tasks that wait for each other."""
        number = next(number for number, n in enumerate(missing) if n)
        path = []
        while number not in path:
            path.append(number)
            number = next(before for before in self.tasks[number].after if missing[before])
        path = path[path.index(number):]
        names = " -> ".join(str(self.tasks[n].name) for n in [*path, number])
        n_tasks = "a task waits for itself" if len(path) == 1 else f"{len(path)} tasks wait for each other"
        return f"{n_tasks} in a circle: {names}: take one of these out of `after`"

    def _ranks(self, ticks):
        ranks = [0] * len(ticks)
        successors = self.successors
        for number in reversed(self.order):
            longest = 0
            for after in successors[number]:
                if ranks[after] > longest:
                    longest = ranks[after]
            ranks[number] = ticks[number] + longest
        return ranks


def _check_ticks(task):
    if not isinstance(task, Task):
        raise ValueError(f"{shown(task)} is no task: use Task(name, ticks, after, lane)")
    for ticks in task.ticks if task.ticks.__class__ is tuple else (task.ticks,):
        if not (is_plain(ticks) and ticks >= 0):
            real_number(f"task {task.name!r}: ticks", ticks, least=0, clock=True)


def _lane_of(task):
    lane = task.lane
    if lane is None:
        return None
    if lane.__class__ is tuple and len(lane) == 2:
        device, name = lane
    else:
        device, name = lane, COMPUTE
    if device.__class__ is not int or device < 0:
        raise ValueError(
            f"task {task.name!r} is on {shown(lane)}: use a device, 0, 1, ..., or (device, name of a lane)"
        )
    return device, name


def _mean(ticks):
    return sum(ticks) / len(ticks) if ticks.__class__ is tuple else ticks


# Which task goes where and when: list scheduling.

class Listed(NamedTuple):
    """What list scheduling has come to.

    orders: {(device, lane): the numbers of its tasks, in order}.
    starts: for each task, the tick at which it starts.
    makespan: the tick at which all are over.
    bounds: the `LowerBounds` below which no makespan can be.
    """

    orders: dict
    starts: list
    makespan: float
    bounds: LowerBounds


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


# An order of tasks as programs for the cluster's devices, or for threads.

class Over(NamedTuple):
    """The message from one lane to another that a task is over.

    name: of the task. number: of the task. lane: that it is meant for.
    """

    name: object
    number: int
    lane: tuple

    def __str__(self):
        return f"{self.name} is over"


def programs_of(tasks, orders, functions=None):
    """For each device {name of a lane: its program}, which does the tasks in the order that it is given.

    tasks: a list of `Task`s.
    orders: {(device, lane): numbers of tasks, in order}, such as `Listed.orders`.
    functions: for each task a function without arguments, or None.

    A lane waits for a task of another one by a message without bytes, on links that are free.
    """
    tasks = TaskGraph(tasks).tasks
    orders = checked_orders(orders, len(tasks))
    lane_of = {number: lane for lane, numbers in orders.items() for number in numbers}
    wanted = {number: {} for number in lane_of}  # {number: {lane that waits for it: None}}
    for number, lane in lane_of.items():
        for before in tasks[number].after:
            if lane_of[before] != lane:
                wanted[before][lane] = None
    devices = [{} for _ in range(1 + max((device for device, _ in orders), default=0))]
    for (device, name), numbers in orders.items():
        devices[device][name] = _program((device, name), numbers, tasks, lane_of, wanted, functions)
    for lanes in devices:
        lanes.setdefault(COMPUTE, iter_of_nothing())
    return devices


def checked_orders(orders, n_tasks):
    """Return `orders` if it is {(device, lane): numbers of tasks}; raise `ValueError` for anything else."""
    if not isinstance(orders, dict):
        raise ValueError(f"orders={shown(orders)} must be a dict {{(device, lane): numbers of tasks}}")
    for lane, numbers in orders.items():
        if not (isinstance(lane, tuple) and len(lane) == 2):
            raise ValueError(f"orders has {shown(lane)}: write (device, lane)")
        whole_number("device", lane[0], 0, MOST_RANKS)
        for number in listed(f"orders[{lane}]", numbers, least=0):
            whole_number(f"orders[{lane}]", number, 0, n_tasks - 1)
    return orders


def _program(lane, numbers, tasks, lane_of, wanted, functions):
    heard = set()
    for number in numbers:
        task = tasks[number]
        for before in task.after:
            source = lane_of[before]
            if source != lane and before not in heard:
                heard.add(before)
                yield Receive(Over(tasks[before].name, before, lane), source[0])
        ticks = task.ticks[lane[0]] if task.ticks.__class__ is tuple else task.ticks
        label = Label(str(task.name), task.kind or str(task.name))
        yield Compute(label, functions and functions[number], ticks=ticks)
        for other in wanted[number]:
            yield Send(Over(task.name, number, other), None, to=other[0])


def iter_of_nothing():
    """The program of a lane with nothing to do."""
    yield from ()


def run_listed(tasks, orders):
    """The `Trace` of tasks that take their ticks and compute nothing, in these orders.

    >>> from minipipe.graph import list_schedule, from_names
    >>> tasks = from_names({"load": (2, [], (0, "copy")), "work": (3, ["load"], 0)})
    >>> run_listed(tasks, list_schedule(tasks).orders).makespan
    5
    """
    return Cluster(programs_of(tasks, orders)).run()
