"""Graphs of tasks, list scheduling, and the tasks of an order as programs."""

from bisect import insort
from collections.abc import Callable, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, NamedTuple

from ..checks import listed, real_number, shown, whole_number, whole_numbers
from ..cluster import COMPUTE, Cluster, Compute, Label, Receive, Send, Trace
from ..order import Action, Schedule
from ..order.costs import check_number_of_actions


class Task(NamedTuple):
    """A piece of work.

    Args:
        name: its name in pictures.
        ticks: how long it takes.
        after: the numbers of the tasks that must be done before it.
        lane: where it runs: (device, name of the lane), or a device, for its lane
            "compute"; None: any free device.
        kind: the kind of work, which determines its colour in pictures; left out, the
            name.
    """

    name: str
    ticks: float = 1
    after: tuple = ()
    lane: object = None
    kind: str = ""


class TaskGraph:
    """Checked tasks with their order, successors and ranks.

    Args:
        tasks: a list of `Task`s.
        devices: the number of devices for tasks without a lane; left out, the number of
            devices that lanes name, at least 1.
    """

    def __init__(self, tasks: Sequence[Task], devices: int | None = None) -> None:
        self.tasks = listed("tasks", tasks, least=0)
        n = len(self.tasks)
        self.lanes = [_lane_of(task) for task in self.tasks]
        self.successors: list = [[] for _ in range(n)]
        for number, task in enumerate(self.tasks):
            real_number(f"task {task.name!r}: ticks", task.ticks, least=0, clock=True)
            for before in set(task.after):
                if not (isinstance(before, int) and 0 <= before < n):
                    raise ValueError(
                        f"task {task.name!r} comes after {shown(before)}: use numbers of tasks, 0 to {n - 1}"
                    )
                self.successors[before].append(number)
        named = 1 + max((lane[0] for lane in self.lanes if lane is not None), default=0)
        self.n_devices = named if devices is None else whole_number("devices", devices, 1)
        if named > self.n_devices:
            raise ValueError(
                f"a task is on device {named - 1}, but devices={self.n_devices}: use devices={named}"
            )
        try:
            earlier = {number: task.after for number, task in enumerate(self.tasks)}
            self.order = list(TopologicalSorter(earlier).static_order())
        except CycleError as error:
            names = " -> ".join(str(self.tasks[number].name) for number in reversed(error.args[1]))
            raise ValueError(
                f"tasks wait for each other in a circle: {names}: take one of these out of `after`"
            ) from None
        self.ranks = [0] * n  # for each task, the longest path from its start to the end of all tasks
        for number in reversed(self.order):
            longest = max((self.ranks[after] for after in self.successors[number]), default=0)
            self.ranks[number] = self.tasks[number].ticks + longest

    def lower_bound(self) -> float:
        """Return a lower bound of the makespan for every order of the tasks.

        It is the largest of the longest chain of tasks; the work of all devices,
        divided evenly; and each lane's work plus the shortest path from the start to
        its tasks and from these to the end.
        """
        ticks, ranks = [task.ticks for task in self.tasks], self.ranks
        of_lanes: dict = {}
        heads = [0] * len(ticks)  # for each task, the longest path to its start
        for number in self.order:
            heads[number] = max((heads[n] + ticks[n] for n in self.tasks[number].after), default=0)
        for number, lane in enumerate(self.lanes):
            of_lanes.setdefault(lane, []).append(number)
        computed, bound = 0, max(ranks, default=0)
        for lane, numbers in of_lanes.items():
            work = sum(ticks[n] for n in numbers)
            if lane is None or lane[1] == COMPUTE:
                computed += work
            if lane is not None:
                tail = min(ranks[n] - ticks[n] for n in numbers)
                bound = max(bound, min(heads[n] for n in numbers) + work + tail)
        return max(bound, computed / self.n_devices)


def _lane_of(task):
    """Return (device, name of its lane), or None."""
    if task.lane is None:
        return None
    device, name = task.lane if isinstance(task.lane, tuple) else (task.lane, COMPUTE)
    if not isinstance(device, int) or device < 0:
        raise ValueError(
            f"task {task.name!r} is on {shown(task.lane)}: use a device, 0, 1, ..., or (device, lane's name)"
        )
    return device, name


# List scheduling.

class Listed(NamedTuple):
    """The result of list scheduling.

    Args:
        tasks: the list of `Task`s.
        orders: {(device, lane): the numbers of its tasks, in order}.
        makespan: the tick at which all tasks are done.
        bound: a lower bound of the makespan, see `TaskGraph.lower_bound`.
    """

    tasks: list
    orders: dict
    makespan: float
    bound: float

    def run(self) -> Trace:
        """Simulate these orders; return the `Trace`, without calling functions.

        >>> tasks = [Task("load", 2, (), (0, "copy")), Task("work", 3, (0,), 0)]
        >>> list_schedule(tasks).run().makespan
        5
        """
        return Cluster(programs_of(self.tasks, self.orders)).run()


def list_schedule(
    tasks: Sequence[Task], devices: int | None = None, priority: Sequence[int] | None = None
) -> Listed:
    """Schedule tasks greedily: a free lane starts its ready task of highest priority.

    A task without a lane runs on the first free device; of several, on the lowest. A
    lane never waits while one of its tasks is ready. So on p equal devices the makespan
    is at most (2 - 1/p) times the best one (Graham 1966, Bell System Technical Journal
    45), but it may grow with more devices, shorter tasks or fewer dependencies:

    >>> ticks, before = [3, 2, 2, 2, 4, 4, 4, 4, 9], {9: 1, 5: 4, 6: 4, 7: 4, 8: 4}
    >>> tasks = [Task(n, ticks[n - 1], (before[n] - 1,) if n in before else ()) for n in range(1, 10)]
    >>> [list_schedule(tasks, n, priority=range(9)).makespan for n in (3, 4)]
    [12, 15]

    Args:
        tasks: a list of `Task`s.
        devices: the number of devices for tasks without a lane, see `TaskGraph`.
        priority: the numbers of all tasks, the most urgent first; left out, tasks with
            the longest path to the end come first, and of equal ones the lower number.
    """
    graph = TaskGraph(tasks, devices)
    n = len(graph.tasks)
    if priority is None:
        priority = sorted(range(n), key=lambda number: (-graph.ranks[number], number))
    elif sorted(whole_numbers("priority", listed("priority", priority, least=0), 0)) != list(range(n)):
        raise ValueError(f"priority must have each of the numbers 0 to {n - 1} of the tasks once")
    places = {number: place for place, number in enumerate(priority)}
    lanes = {*graph.lanes} - {None}
    if None in graph.lanes:
        lanes |= {(device, COMPUTE) for device in range(graph.n_devices)}
    running, done, now = {}, set(), 0
    orders: dict = {lane: [] for lane in sorted(lanes)}
    ready = sorted(places[number] for number in range(n) if not graph.tasks[number].after)
    while True:
        for lane in (lane for lane in orders if lane not in running):
            suited = (lane, None) if lane[1] == COMPUTE else (lane,)
            place = next((place for place in ready if graph.lanes[priority[place]] in suited), None)
            if place is not None:
                number = priority[place]
                ready.remove(place)
                orders[lane].append(number)
                running[lane] = now + graph.tasks[number].ticks, number
        if not running:
            return Listed(graph.tasks, orders, now, graph.lower_bound())
        now = min(end for end, _ in running.values())
        # finish all tasks that end now before any lane chooses its next task
        for lane, number in [(lane, number) for lane, (end, number) in running.items() if end == now]:
            del running[lane]
            done.add(number)
            for after in graph.successors[number]:
                if done.issuperset(graph.tasks[after].after):
                    insort(ready, places[after])


# Orders of tasks as programs, for a `Cluster` or `Threads`.

def programs_of(
    tasks: Sequence[Task], orders: Mapping[tuple[int, str], Sequence[int]],
    functions: Sequence[Callable] | None = None,
) -> list[dict]:
    """Return, for each device, {name of a lane: program} that runs its tasks in order.

    A lane waits for a task of another lane by receiving a message without bytes.

    Args:
        tasks: a list of `Task`s.
        orders: {(device, lane): numbers of tasks, in order}, such as `Listed.orders`.
        functions: for each task a function without arguments, or None.
    """
    if sorted(number for numbers in orders.values() for number in numbers) != list(range(len(tasks))):
        raise ValueError(f"orders must have each of the {len(tasks)} tasks once, in one of the lanes")
    n_devices = 1 + max((device for device, _ in orders), default=0)
    orders = {**{(device, COMPUTE): () for device in range(n_devices)}, **orders}
    lane_of = {number: lane for lane, numbers in orders.items() for number in numbers}
    wanted: dict = {number: {} for number in lane_of}  # {number: {lane that waits for it: None}}
    for number, lane in lane_of.items():
        for before in tasks[number].after:
            if lane_of[before] != lane:
                wanted[before][lane] = None
    devices: list = [{} for _ in range(n_devices)]
    for (device, name), numbers in orders.items():
        devices[device][name] = _program((device, name), numbers, tasks, lane_of, wanted, functions)
    return devices


def _program(lane, numbers, tasks, lane_of, wanted, functions):
    """Wait for earlier tasks, run each task, notify other lanes: a lane's program."""

    def over(number, to):
        """Return the label by which lane `to` learns that task `number` is done."""
        return f"task {number}, {tasks[number].name}, is over: for {to[1]} on device {to[0]}"

    received = set()
    for number in numbers:
        task = tasks[number]
        for before in task.after:
            if lane_of[before] != lane and before not in received:
                received.add(before)
                yield Receive(over(before, lane), lane_of[before][0])
        label = Label(str(task.name), task.kind or str(task.name))
        yield Compute(label, functions and functions[number], ticks=task.ticks)
        for other in wanted[number]:
            yield Send(over(number, other), None, to=other[0])


# A mini-batch of a network as tasks, from which list scheduling makes a pipeline schedule.

def training_tasks(
    F: Sequence[float], I: Sequence[float], W: Sequence[float] | None = None, microbatches: int = 1,
    devices: Sequence[int] | None = None, all_reduce: Sequence[float] | None = None,
    rooms: Sequence[int] | None = None,
) -> list[Task]:
    """Return the tasks of one mini-batch: forwards, backwards, then all-reduces.

    The name of a task is an `Action`, with the layer in the place of the stage.

    Args:
        F, I, W: for each layer, the ticks of its forward, input gradient and weight
            gradient; without W, I is the whole backward.
        microbatches: M.
        devices: for each layer, its device; left out, all are on device 0.
        all_reduce: for each layer, the ticks of the all-reduce of its gradients, in the
            communication lane, after its last weight gradient; left out, there is none.
        rooms: for each layer, how many micro-batches may be between its forward and its
            weight gradient; left out, any number.

    >>> tasks = training_tasks([1] * 4, [2] * 4, all_reduce=[2] * 4)        # 12 ticks of computing
    >>> list_schedule(tasks).makespan       # the exchange of the first layer alone is exposed
    14
    """
    F, I, W = listed("F", F), listed("I", I), None if W is None else listed("W", W)
    n_layers, M = len(F), whole_number("microbatches", microbatches, 1)
    check_number_of_actions(3 * n_layers * M)
    devices = [0] * n_layers if devices is None else listed("devices", devices)
    all_reduce = None if all_reduce is None else listed("all_reduce", all_reduce)
    rooms = [M] * n_layers if rooms is None else whole_numbers("rooms", rooms, 1)
    given = {"I": I, "W": W, "devices": devices, "all_reduce": all_reduce, "rooms": rooms}
    for name, row in given.items():
        if row is not None and len(row) != n_layers:
            raise ValueError(f"{name} has {len(row)} numbers for {n_layers} layers: give one for each")
    backward, last = ("B", "B") if W is None else ("I", "W")
    numbers = {}
    tasks: list = []

    def add(kind, layer, i, ticks, after, lane=None):
        action = Action(kind, layer, i)
        numbers[action] = len(tasks)
        lane = devices[layer] if lane is None else (devices[layer], lane)
        tasks.append(Task(action, ticks, tuple(numbers[earlier] for earlier in after), lane, kind))

    for i in range(M):
        for layer in range(n_layers):
            after = [("F", layer - 1, i)] if layer else []
            if i >= rooms[layer]:
                after.append((last, layer, i - rooms[layer]))
            add("F", layer, i, F[layer], after)
        for layer in reversed(range(n_layers)):
            after = [(backward, layer + 1, i)] if layer + 1 < n_layers else []
            add(backward, layer, i, I[layer], [*after, ("F", layer, i)])
            if W is not None:
                add("W", layer, i, W[layer], [("I", layer, i)])
    if all_reduce is not None:
        for layer in reversed(range(n_layers)):
            add("A", layer, M - 1, all_reduce[layer], [(last, layer, i) for i in range(M)], "communication")
    return tasks


def schedule_of(found: Listed) -> Schedule:
    """Return the `Schedule` of the forwards and backwards, with each layer as a stage.

    All-reduces are left out: a `Schedule` without `A` implies them.

    Args:
        found: the `Listed` of `training_tasks`.

    >>> tasks = training_tasks([1, 1], [2, 2], microbatches=2, devices=[0, 1])
    >>> print(schedule_of(list_schedule(tasks)))
    device 0: 0F0 0F1 0B0 0B1
    device 1: 1F0 1F1 1B0 1B1
    """
    lanes = [lane for lane in found.orders if lane[1] == COMPUTE]
    devices: Any = tuple(tuple(found.tasks[number].name for number in found.orders[lane]) for lane in lanes)
    actions = [action for order in devices for action in order]
    n_layers = 1 + max(action.stage for action in actions)
    return Schedule(devices, n_layers, 1 + max(action.microbatch for action in actions), "listed")
