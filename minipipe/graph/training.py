"""The training of a network as a graph: what people arrange by hand comes out of a list."""

from typing import NamedTuple

from ..order.costs import check_number_of_actions
from .tasks import Task, checked_orders
from ..arguments import argument
from ..checks import listed, shown, whole_number, whole_numbers
from ..cluster import COMPUTE
from ..order import Action, Schedule

LINK_LANE = "communication"  # the lane of a device beside its computing


class Part(NamedTuple):
    """A part of a mini-batch, written `2F0` as an action is.

    kind: "F", "I", "W", as those of actions; "send" and "back", messages; "A", an all-reduce; "G", a gather.
    layer: counted from 0.
    microbatch: counted from 0; of a gather, 0 before the forward, 1 before the backward.
    """

    kind: str
    layer: int
    microbatch: int

    def __str__(self):
        return f"{self.layer}{self.kind}{self.microbatch}"


def training_tasks(
    F, I, W=None, n_microbatches=1, devices=None, transfer=0, all_reduce=None, gather=None, rooms=None,
):
    """The tasks of one mini-batch: forward, input gradient, weight gradient of each layer and micro-batch.

    F, I, W: for each layer, the ticks of its forward and of the two halves of its backward; without W, I is
        the whole backward.
    n_microbatches: M.
    devices: for each layer, its device; left out, all are on device 0.
    transfer: ticks of a message between two devices, in the communication lane of its sender.
    all_reduce: for each layer, the ticks in which its gradients are added up over copies that work in step,
        in the communication lane, behind its last weight gradient; left out, there are none.
    gather: for each layer, the ticks in which its parameters come together before its forward, and again
        before its backward, as in ZeRO-3, in the communication lane; for one micro-batch. Left out, they are
        there.
    rooms: for each layer, how many micro-batches may be between its forward and its weight gradient; with
        `gather`, {"layers": n}: how many gathered layers have room at once. None: any number.

    The name of a task is a `Part`.

    >>> from minipipe.graph import list_schedule
    >>> tasks = training_tasks([1] * 4, [2] * 4, all_reduce=[2] * 4)        # 12 ticks of computing
    >>> list_schedule(tasks).makespan       # the exchange of the first layer alone is exposed
    14
    """
    F, I, W = listed("F", F), listed("I", I), None if W is None else listed("W", W)
    last = "I" if W is None else "W"
    n_layers, M = len(F), argument("n_microbatches", n_microbatches)
    check_number_of_actions(3 * n_layers * M)
    devices = None if devices is None else whole_numbers("devices", devices, 0)
    all_reduce = None if all_reduce is None else listed("all_reduce", all_reduce)
    gather = None if gather is None else listed("gather", gather)
    if isinstance(rooms, dict):
        whole_number("rooms", rooms.get("layers"), 1)
    elif rooms is not None:
        rooms = whole_numbers("rooms", rooms, 1)
    given_lists = {
        "I": I, "W": W, "devices": devices, "all_reduce": all_reduce, "gather": gather,
        "rooms": None if isinstance(rooms, dict) else rooms,
    }
    for name, given in given_lists.items():
        if given is not None and len(given) != n_layers:
            raise ValueError(f"{name} has {len(given)} numbers for {n_layers} layers: give one for each")
    devices = [0] * n_layers if devices is None else list(devices)
    numbers, tasks = {}, []

    def add(name, ticks, lane, *before):
        numbers[name] = len(tasks)
        after = tuple(numbers[one] for one in before if one is not None)
        tasks.append(Task(Part(*name), ticks, after, lane, name[0]))
        return name

    def arrived(kind, source, to, i, what):
        """The name of what brings `what` from one layer to another."""
        if devices[source] == devices[to] or not transfer:
            return what
        return add((kind, source, i), transfer, (devices[source], LINK_LANE), what)

    def gathered(layer, way):
        if gather is None:
            return None
        return add(("G", layer, way), gather[layer], (devices[layer], LINK_LANE))

    for i in range(M):
        before = None
        for layer in range(n_layers):
            if layer:
                before = arrived("send", layer - 1, layer, i, before)
            there = gathered(layer, 0) if i == 0 else None
            before = add(("F", layer, i), F[layer], devices[layer], before, there)
        for layer in reversed(range(n_layers)):
            if layer + 1 < n_layers:
                before = arrived("back", layer + 1, layer, i, before)
            there = gathered(layer, 1) if i == 0 else None
            before = add(("I", layer, i), I[layer], devices[layer], before, ("F", layer, i), there)
            if W is not None:
                add(("W", layer, i), W[layer], devices[layer], before)
    for layer in reversed(range(n_layers)) if all_reduce is not None else ():
        after = ((last, layer, i) for i in range(M))
        add(("A", layer, 0), all_reduce[layer], (devices[layer], LINK_LANE), *after)
    return _in_rooms(tasks, numbers, rooms, n_layers, M, last)


def _in_rooms(tasks, numbers, rooms, n_layers, M, last):
    """The tasks with the edges by which each waits until there is room."""
    if rooms is None:
        return tasks
    more = {}
    if isinstance(rooms, dict):
        users = [("F", layer) for layer in range(n_layers)]
        users += [("I", layer) for layer in reversed(range(n_layers))]
        gathers = [("G", layer, 0 if kind == "F" else 1) for kind, layer in users]
        for place in range(rooms["layers"], len(users)):
            kind, layer = users[place - rooms["layers"]]
            more[numbers[gathers[place]]] = [numbers[kind, layer, M - 1]]
    else:
        for layer, room in enumerate(rooms):
            for i in range(room, M):
                more[numbers["F", layer, i]] = [numbers[last, layer, i - room]]
    return [task._replace(after=(*task.after, *more.get(number, ()))) for number, task in enumerate(tasks)]


def schedule_of(tasks, orders, name="listed"):
    """The `Schedule` in which devices do the forwards and backwards of `training_tasks`, a layer a stage.

    tasks, orders: of `training_tasks`, and of a list. Exchanges are left out: a pipeline has its own.

    >>> from minipipe.graph import list_schedule
    >>> tasks = training_tasks([1, 1], [2, 2], n_microbatches=2, devices=[0, 1])
    >>> print(schedule_of(tasks, list_schedule(tasks).orders))
    device 0: 0F0 0F1 0B0 0B1
    device 1: 1F0 1F1 1B0 1B1
    """
    tasks = listed("tasks", tasks)
    if not all(isinstance(getattr(task, "name", None), Part) for task in tasks):
        raise ValueError(f"tasks={shown(tasks)} must be those of `training_tasks`, whose names are parts")
    orders = checked_orders(orders, len(tasks))
    kinds = {"F": "F", "W": "W", "I": "I" if any(task.name[0] == "W" for task in tasks) else "B"}
    devices = []
    for lane in sorted(lane for lane in orders if lane[1] == COMPUTE):
        names = [tasks[number].name for number in orders[lane]]
        devices.append([Action(kinds[kind], layer, i) for kind, layer, i in names])
    n_layers, M = (1 + max(task.name[place] for task in tasks if task.name[0] == "F") for place in (1, 2))
    return Schedule(devices, n_layers, M, name)
