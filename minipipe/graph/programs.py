"""An order of tasks as programs for the cluster's devices, or for threads."""

from typing import NamedTuple

from .tasks import TaskGraph
from ..checks import listed, shown, whole_number
from ..arguments import MOST_RANKS
from ..cluster import COMPUTE, Cluster, Compute, Label, Receive, Send


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
