"""An order turned into programs for the devices of a cluster.

First come the messages between stages, then the end of a mini-batch, then the programs.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any

from ..cluster import (
    COMPUTE, Bytes, Cluster, Compute, Link, Port, Receive, Send, checked_ports, links_between,
)
from ..cluster.requests import Program
from ..collectives import (
    OWNERS, Group, all_reduce_sum_and_gather, exchanged, reduce_scatter_sum_and_gather,
)
from ..sums import TreeSum
from .actions import CLOSING, MEETING, RULES, SUMMED, Action, Overlap, adding
from .costs import Costs
from .names import title_of
from .schedule import Schedule


# The messages between stages.

MAIN = ""  # the name of A and dA between neighbouring stages; skip connections have names of their own
NOTHING: tuple[None, dict] = None, {}  # (outgoing, skips) of an action that sends nothing; never written to


class Wires:
    """The messages that each action of a schedule waits for and sends.

    Args:
        schedule: a `Schedule` without faults.
        skips: (name, stage where it begins, stage where it ends) of each skip
            connection: the output of a Fork travels to its Join in addition to A, and
            its gradient travels back in addition to dA.
        ranks: for each device of the schedule, its number on the cluster; left out, the
            same. With T shards there are T `Wires`, each with its own ranks.

    For each replica, `placements` has the device of each stage on the cluster.

    >>> from .actions import Action
    >>> from ..schedules import gpipe
    >>> Wires(gpipe(4, 2), skips=[("s", 0, 2)]).ends(Action("I", 2, 1))
    ([('', 'B', 3, 3)], [('', 'B', 1, 1), ('s', 'B', 0, 0)])
    """

    def __init__(
        self, schedule: Schedule, skips: Iterable[tuple[str, int, int]] = (),
        ranks: Sequence[int] | None = None,
    ):
        self.schedule = schedule
        self.ranks = range(len(schedule.devices)) if ranks is None else ranks
        self.placements: list[list[Any]] = [
            [None if device is None else self.ranks[device] for device in placement]
            for placement in schedule.placements
        ]
        self._stages_on: dict[int | None, set[int]] = {}
        for stage, device in chain(*map(enumerate, self.placements)):
            self._stages_on.setdefault(device, set()).add(stage)
        self._copy_of = schedule.copy_of or [0] * schedule.n_microbatches
        self._ends = [_ends(placement, skips) for placement in self.placements]  # one for each replica

    def ends(self, part: Action) -> tuple[list, list]:
        """Return the messages that `part` waits for, and those that it sends.

        A message is (name, kind of the message, the other stage, its device).
        """
        kind, stage, i = part
        return self._ends[self._copy_of[i]][kind][stage]

    def stages_on(self, device: int) -> list[int]:
        """Return the stages that a `device` on the cluster has, in order."""
        return sorted(self._stages_on.get(device, ()))

    def holders(self, stage: int) -> list[int]:
        """Return the devices that have the `stage`, in the order of the replicas."""
        placed = dict.fromkeys(placement[stage] for placement in self.placements)
        return [device for device in placed if device is not None]

    def group(self, stage: int, device: int) -> Group | None:
        """Return the `Group` of `device` in the holders of `stage`; None if alone."""
        devices = self.holders(stage)
        if len(devices) == 1:
            return None
        # stays: sums and parameters are replaced in a run, never changed
        return Group(devices.index(device), devices, f"stage {stage}: ", stays=True)

    def device(self, stage: int, microbatch: int) -> int:
        """Return the device of `stage` in the replica of this `microbatch`."""
        return self.placements[self._copy_of[microbatch]][stage]


def _ends(placement, skips):
    """Return {kind: [(messages it waits for, those it sends) on each stage]}."""
    stages = range(len(placement))
    ends: dict = {kind: [([], []) for _ in stages] for kind in RULES}
    connections = [(MAIN, stage, stage + 1) for stage in stages[:-1]]
    connections += [(name, begin, end) for name, begin, end in skips if begin != end]
    for kind, rule in RULES.items():
        for name, begin, end in connections if rule.way else ():
            if None in (placement[begin], placement[end]):  # an order with faults leaves this stage out
                continue
            source, to = (begin, end) if rule.way > 0 else (end, begin)
            waits_for, _ = ends[kind][to]
            waits_for.append((name, rule.message, source, placement[source]))
            _, sends = ends[kind][source]
            sends.append((name, rule.message, to, placement[to]))
    return ends


# The end of a mini-batch on a device: sums over copies of a stage and over tied layers, then updates.

class Closing:
    """The times at which a device sums, updates and gathers, in or after its order.

    The stage does the exchanges, by its programs `all_reduce`, `reduce_scatter` and
    `gather`.

    Args:
        wires: the `Wires` of the `Schedule`.
        device: the number of this one in the schedule.
        stages: {(stage, device): the stage there}; empty in a run without numbers.
        sum_tied: a function (device) -> program, which sums the gradients of tied
            layers; None without any.
        algorithm: the all-reduce, one of `minipipe.collectives.ALL_REDUCES`.
    """

    def __init__(
        self, wires: Wires, device: int, stages: dict, sum_tied: Callable | None, algorithm: str
    ):
        schedule, self._device = wires.schedule, wires.ranks[device]
        self._sum_tied, self._algorithm = sum_tied, algorithm
        self._last = schedule.n_microbatches - 1
        own = wires.stages_on(self._device)
        self._stages = {stage: stages.get((stage, self._device), WithoutNumbers()) for stage in own}
        self._groups = {stage: wires.group(stage, self._device) for stage in own}
        summing = adding(SUMMED, schedule.kinds)
        self._has_sums, self._has_U = bool(summing), "U" in schedule.kinds
        self._started: list = []  # (action, unique name): a gather may come several times
        times: Counter = Counter()
        for action in schedule.devices[device] if schedule.kinds & MEETING else ():
            if action.kind in MEETING:
                times[action] += 1
                name = f"{action}" if times[action] == 1 else f"{action} (time {times[action]})"
                self._started.append((action, name))
        self._sums = [action for action, _ in self._started if action.kind in summing]
        self._is_waited_for = "X" in schedule.kinds  # the end of a gather
        self._to_start = iter(self._started)
        self._coming: dict[int, str] = {}  # stage -> the name of the gather in flight
        self._begun: dict[int, Action] = {}  # stage -> the last sum that no update has waited for
        self._over: set[str] = set()  # the names of sums that this device knows to be complete

    def around(self, perform: Callable[..., Program]) -> Callable[..., Program]:
        """Return `perform`, as `program` takes it, with the closing actions.

        An `A`, an `S` and a `G` only start an exchange. A `U` first waits for the sums
        that it applies; an action that needs all parameters waits for their gather.
        """
        def perform_any(action, inputs):
            if action.kind in MEETING:
                _, name = next(self._to_start)
                if action.kind != "G":
                    self._begun[action.stage] = action
                elif self._is_waited_for:
                    self._coming[action.stage] = name
                yield Send(f"the start of {name}", None, self._device)
                return [NOTHING]
            for part in action.parts:
                if part.stage in self._coming and RULES[part.kind].whole:
                    yield Receive(f"the end of {self._coming.pop(part.stage)}", self._device)
            if action.kind == "U":
                begun = self._begun.pop(action.stage, None)
                if begun is not None:  # an order with faults may update without a sum
                    yield from self._wait_for(self._sums if self._sum_tied else [begun])
                yield from self._exchange_tied()
            return (yield from perform(action, inputs))

        return perform_any

    def communicate(self) -> Program:
        """A program: do the exchanges in the order in which they are started."""
        for action, name in self._started:
            yield Receive(f"the start of {name}", self._device)
            yield from self._exchange(*action)
            yield Compute(action)
            if action in self._sums:
                yield Send(_end(action), None, self._device)
            elif self._is_waited_for:
                yield Send(f"the end of {name}", None, self._device)

    def close(self) -> Program:
        """A program: do the sums that the order leaves to the end of the mini-batch."""
        if not self._has_sums and not self._has_U:
            for stage in self._stages:
                yield from self._exchange("A", stage, self._last)
        elif self._has_sums and not self._has_U:
            yield from self._wait_for(self._sums)
        yield from self._exchange_tied()

    def _wait_for(self, sums):
        """Wait until these sums are complete; skip those waited for before."""
        for action in sums:
            if _end(action) not in self._over:
                self._over.add(_end(action))
                yield Receive(_end(action), self._device)

    def _exchange(self, kind, stage, i):
        """A program: do an `A`, `S` or `G` of a stage in the stage's group."""
        group, own = self._groups[stage], self._stages[stage]
        # all devices of a group make its calls in the same order, by which their messages find each other
        if group is not None and kind == "A":
            yield from own.all_reduce(i, group, self._algorithm)
        elif group is not None and kind == "S":
            yield from own.reduce_scatter(i, group)
        elif group is not None:
            yield from own.gather(group)

    def _exchange_tied(self):
        """Sum the dW of tied layers over their devices, once in a run."""
        sum_tied, self._sum_tied = self._sum_tied, None
        if sum_tied is not None:
            yield from sum_tied(self._device)


def _end(action):
    """Return the message at the end of an `A` or `S`, which a `U` waits for."""
    return f"the end of the sum of stage {action.stage} up to micro-batch {action.microbatch}"


def gather_parameters(group: Group, part: list) -> Program:
    """A program: return all shards of a stage in `group`; `part` is this rank's."""
    return exchanged(group, lambda rank: part, group.begin("gather of parameters"))


class WithoutNumbers:
    """A stand-in for a stage in a run that has only ticks.

    Its gradients, and its parameters, have `n_bytes` bytes.
    """

    def __init__(self, n_bytes: int = 0):
        self._n_bytes = n_bytes

    def all_reduce(self, i: int, group: Group, algorithm: str) -> Program:
        """A program: all-reduce gradients in `group` by `algorithm`, whatever `i`."""
        return all_reduce_sum_and_gather(group, self._total(group), (), algorithm)

    def reduce_scatter(self, i: int, group: Group) -> Program:
        """A program: reduce-scatter gradients in `group`, whatever `i`."""
        return reduce_scatter_sum_and_gather(group, self._total(group), ())

    def gather(self, group: Group) -> Program:
        """A program: gather the parameters in `group`."""
        return gather_parameters(group, [Bytes(self._n_bytes // group.size)])

    def _total(self, group):
        total = TreeSum(group.size)
        total.add(group.rank, Bytes(self._n_bytes))
        return total


# The programs.

def program(
    order: Sequence[Action | Overlap], wires: Wires, perform: Callable[..., Program],
    close: Iterable = (),
) -> Program:
    """The pipeline on one device: receive, perform, send, for each action of its order.

    Messages have the names of the actions that send them.

    Args:
        order: the actions of the device.
        wires: the `Wires` between the stages.
        perform: `perform(action, inputs)` is a program, too. For each part of the
            action, `inputs` has (incoming, skips): the message of the neighbouring
            stage, and {name: the message of a skip connection}. The program returns
            (outgoing, skips) for each part, the messages to send.
        close: the program that follows the last action.
    """
    for action in order:
        inputs: Any = []
        outlets = []
        for part in action.parts:
            waits_for, sends = wires.ends(part)
            incoming: Any = None
            skips: Any = {}
            for name, message, stage, source in waits_for:
                label = Action(message, stage, part.microbatch)
                if name == MAIN:
                    incoming = yield Receive(label, source)
                else:
                    skips[name] = yield Receive(f"{label} {name}", source)
            inputs.append((incoming, skips))
            outlets.append((part, sends))
        results = yield from perform(action, inputs)
        # drop them before sending: a device that waits for its next message keeps no array of this one alive
        inputs = incoming = skips = None
        for part, sends in outlets:
            outgoing, skips = results.pop(0)
            for name, message, _, to in sends:
                # an I has the messages of a B: a receiver need not know whether the backward is in halves
                label = part if message == part.kind else part._replace(kind=message)
                if name == MAIN:
                    yield Send(label, outgoing, to)
                else:
                    yield Send(f"{label} {name}", skips.get(name), to)
        outgoing = skips = None
    yield from close


def programs_of_schedule(
    wires: Wires, perform_on: Callable[[int], Callable[..., Program]], stages: dict | None = None,
    sum_tied: Callable | None = None, all_reduce: str = OWNERS, n_done: Sequence[int] | None = None,
) -> list[dict[str, Program]]:
    """Return a `Cluster`'s programs: those of each line of the schedule.

    `perform_on(device)` is the `perform` of a device on the cluster. `wires` are as for
    `program`, `stages`, `sum_tied` and the algorithm `all_reduce` as for `Closing`.
    Each device stops after `n_done` of its actions; left out, it does all.
    """
    programs, schedule = [], wires.schedule
    for device, order in enumerate(schedule.devices):
        closing = Closing(wires, device, stages or {}, sum_tied, all_reduce)
        perform = perform_on(wires.ranks[device])
        if schedule.kinds & CLOSING:
            perform = closing.around(perform)
        n = len(order) if n_done is None else n_done[device]
        # a device that stops waits for a message that never comes
        stopped = [Receive("what an order that cannot go on lacks", wires.ranks[device])]
        close = closing.close() if n == len(order) else stopped
        lanes = {COMPUTE: program(order[:n], wires, perform, close)}
        if schedule.kinds & MEETING:
            lanes["communication"] = closing.communicate()
        programs.append(lanes)
    return programs


def cluster_of(
    programs: Sequence, schedule: Schedule, costs: Costs, link: Link | dict,
    holdings: Sequence[Callable[[], dict]] | None = None, memory_limit: float | None = None,
    ports: Port | Sequence[Port] = (), shares: Sequence[int] | None = None, samples: Any = None,
) -> Cluster:
    """Return a cluster that runs the `programs` of a `schedule`, with its title.

    `costs` and `link` are the ticks of actions and messages; `holdings`, `memory_limit`
    and `ports` are as for `Cluster`. For each device, `shares` says how many stages
    share it, if not as in the schedule; `samples` is the mean size of a micro-batch, if
    known.
    """
    links, ports = links_between(link, len(programs)), checked_ports(ports, len(programs))
    times = {time for one in links.values() for time in (one.latency, one.bandwidth)}
    times |= {port.bandwidth for port in ports}
    cluster = Cluster(
        programs, costs.duration(schedule, times), links, holdings, memory_limit, ports,
        shares=shares or schedule.stages_on, unit=costs.unit,
    )
    n_shards = len(programs) // len(schedule.devices)
    cluster.record.tick_is = costs.tick_of(schedule.sharing, samples, n_shards)
    cluster.record.title = title_of(schedule.name)
    return cluster


def perform_without_numbers(costs: Costs, stages: int) -> Callable[[int], Callable[..., Program]]:
    """Return a `perform_on` of ticks alone, for the bytes and `stages` of `costs`."""
    sizes = costs.bytes_sent(stages)
    sent: dict = {kind: [NOTHING] * stages for kind in RULES}  # kind -> for each stage, (outgoing, skips)
    for kind, rule in RULES.items():
        for stage in range(stages):
            neighbour = stage + rule.way
            if neighbour != stage and 0 <= neighbour < stages and sizes[min(stage, neighbour)]:
                sent[kind][stage] = Bytes(sizes[min(stage, neighbour)]), {}

    def perform(action, inputs):
        yield Compute(action)
        return [sent[kind][stage] for kind, stage, _ in action.parts]

    return lambda device: perform
