"""The training of a network as a graph: what people arrange by hand comes out of a list."""

from ..checks import listed, shown, whole_number, whole_numbers
from ..cluster import COMPUTE
from ..order import Action, Schedule
from ..order.costs import check_number_of_actions
from .tasks import Listed, Task

LINK_LANE = "communication"  # the lane of a device beside its computing


def training_tasks(F, I, W=None, microbatches=1, devices=None, all_reduce=None, rooms=None):
    """Return the tasks of one mini-batch: forwards and backwards of each layer, then all-reduces.

    The name of a task is an `Action`, with the layer in the place of the stage.

    Args:
        F, I, W: for each layer, the ticks of its forward and of the two halves of its backward; without W, I
            is the whole backward.
        microbatches: M.
        devices: for each layer, its device; left out, all are on device 0.
        all_reduce: for each layer, the ticks in which its gradients are added up over replicas that work in
            step, in the communication lane, after its last weight gradient; left out, there are none.
        rooms: for each layer, how many micro-batches may be between its forward and its weight gradient;
            left out, any number.

    >>> from minipipe.graph import list_schedule
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
    tasks, numbers = [], {}

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
            add("A", layer, M - 1, all_reduce[layer], [(last, layer, i) for i in range(M)], LINK_LANE)
    return tasks


def schedule_of(found, name="listed"):
    """Return the `Schedule` in which devices do the forwards and backwards, with a layer as a stage.

    All-reduces are left out: a pipeline has its own.

    Args:
        found: the `Listed` of `training_tasks`.
        name: of the schedule.

    >>> from minipipe.graph import list_schedule
    >>> tasks = training_tasks([1, 1], [2, 2], microbatches=2, devices=[0, 1])
    >>> print(schedule_of(list_schedule(tasks)))
    device 0: 0F0 0F1 0B0 0B1
    device 1: 1F0 1F1 1B0 1B1
    """
    if not isinstance(found, Listed):
        raise ValueError(f"found={shown(found)} must be what list_schedule(training_tasks(...)) returns")
    lanes = [lane for lane in found.orders if lane[1] == COMPUTE]
    devices = [[found.tasks[number].name for number in found.orders[lane]] for lane in lanes]
    actions = [action for order in devices for action in order]
    n_layers = 1 + max(action.stage for action in actions)
    return Schedule(devices, n_layers, 1 + max(action.microbatch for action in actions), name)
