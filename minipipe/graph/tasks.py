"""A graph of tasks: what there is to do, how long it takes, and what must be over before."""

from typing import NamedTuple

from ..arguments import argument
from ..checks import is_plain, listed, real_number, shown
from ..cluster import COMPUTE


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


class Bounds(NamedTuple):
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
        """The `Bounds` of every order."""
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
        return Bounds(max(ranks, default=0), computed / self.n_devices, busiest)

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
