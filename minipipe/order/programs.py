"""An order turned into programs for the devices of a cluster.

First what travels between the stages, then what closes a mini-batch on a device, then
the programs.
"""

from collections import Counter
from itertools import chain

from ..cluster import COMPUTE, Bytes, Cluster, Compute, Receive, Send, checked_ports, links_between
from ..collectives import (
    OWNERS, Group, all_reduce_sum_and_gather, exchanged, reduce_scatter_sum_and_gather,
)
from ..sums import TreeSum
from .actions import CLOSING, MEETING, RULES, SUMMED, Action, adding
from .names import title_of


# What travels between the stages.

MAIN = ""  # what goes from stage to neighbouring stage, A or dA on the way back; skip connections have names
NOTHING = None, {}  # (outgoing, skips) of what sends nothing; nobody writes into it


class Wires:
    """For each action of a schedule, what it waits for and what it sends.

    Args:
        schedule: a `Schedule` without faults.
        skips: (name, stage where it begins, stage where it ends) of each skip
            connection from one stage to another: what a Fork puts aside travels to its
            Join beside A, and the derivative by it travels back beside dA.
        ranks: for each device of the schedule, its number on the cluster; left out, the
            same. With T shards there are T `Wires`, each with its own ranks.

    >>> from .actions import Action
    >>> from ..schedules import gpipe
    >>> wires = Wires(gpipe(4, 2), skips=[("s", 0, 2)])
    >>> waits_for, _ = wires.ends(Action("F", 2, 1))
    >>> waits_for
    [('', 'F', 1, 1), ('s', 'F', 0, 0)]
    >>> _, sends = wires.ends(Action("I", 2, 1))
    >>> sends
    [('', 'B', 1, 1), ('s', 'B', 0, 0)]
    """

    def __init__(self, schedule, skips=(), ranks=None):
        self.schedule = schedule
        self.ranks = range(len(schedule.devices)) if ranks is None else ranks
        self.placements = [
            [None if device is None else self.ranks[device] for device in placement]
            for placement in schedule.placements
        ]
        self._stages_on = {}
        for stage, device in chain(*map(enumerate, self.placements)):
            self._stages_on.setdefault(device, set()).add(stage)
        self._copy_of = schedule.copy_of or [0] * schedule.n_microbatches
        self._ends = [_ends(placement, skips) for placement in self.placements]  # in each copy of the network

    def ends(self, part):
        """What a part of an action waits for and what it sends, two lists of rows.

        The first are (name, kind of the message, stage and device that send it), the
        others (name, kind of the message, stage and device that get it).
        """
        kind, stage, i = part
        return self._ends[self._copy_of[i]][kind][stage]

    def stages_on(self, device):
        """The stages of which a device on the cluster has a copy, in order."""
        return sorted(self._stages_on.get(device, ()))

    def holders(self, stage):
        """The devices on the cluster that have a copy of the stage, in the order of the copies."""
        placed = dict.fromkeys(placement[stage] for placement in self.placements)
        return [device for device in placed if device is not None]

    def group(self, stage, device):
        """The `Group` of the devices that have a copy of the stage, for one of them; None if it is alone."""
        devices = self.holders(stage)
        if len(devices) == 1:
            return None
        # stays: sums and parameters are replaced in a run, never changed
        return Group(devices.index(device), devices, f"stage {stage}: ", stays=True)

    def device(self, stage, microbatch):
        """The device on the cluster that has the stage, in that copy through which a micro-batch passes."""
        return self.placements[self._copy_of[microbatch]][stage]


def skips_across_stages(skips, places):
    """(name, stage of its Fork, stage of its Join) of the skip connections from one stage to another.

    Args:
        skips: {name: the indices of its Fork and its Join in the network}.
        places: for each layer of the network its (stage, index there).
    """
    ends = [(name, places[fork][0], places[join][0]) for name, (fork, join) in skips.items()]
    return [(name, begin, end) for name, begin, end in ends if begin != end]


def _ends(placement, skips):
    """Return what each kind of action waits for and sends: {kind: [(waits_for, sends) of each stage]}.

    Both are lists of rows (name, kind of the message, the other stage, its device).

    Args:
        placement: the device of each stage.
    """
    stages = range(len(placement))
    ends = {kind: [([], []) for _ in stages] for kind in RULES}
    connections = [(MAIN, stage, stage + 1) for stage in stages[:-1]] + list(skips)
    for kind, rule in RULES.items():
        for name, begin, end in connections if rule.way else ():
            if None in (placement[begin], placement[end]):  # a stage that an order with faults leaves out
                continue
            source, to = (begin, end) if rule.way > 0 else (end, begin)
            waits_for, _ = ends[kind][to]
            waits_for.append((name, rule.message, source, placement[source]))
            _, sends = ends[kind][source]
            sends.append((name, rule.message, to, placement[to]))
    return ends


# What closes a mini-batch on a device: sums over copies of a stage and over tied layers, then updates.

class Closing:
    """When a device sums, updates and gathers: at the end of a mini-batch, or where its order says so.

    What is sent then, and what becomes of what arrives, knows the stage: its programs
    `all_reduce`, `reduce_scatter` and `gather`.

    Args:
        wires: the `Wires` of the `Schedule`, which may have all-reduces and updates in
            its order, or leave them to its end.
        device: the number of this one in the schedule.
        stages: {(stage, device): the stage there}; empty in a run without numbers.
        sum_tied: a function (device) -> program, which sums the gradients of tied
            layers; None without any.
        algorithm: the all-reduce, one of `minipipe.collectives.ALL_REDUCES`.
    """

    def __init__(self, wires, device, stages, sum_tied, algorithm):
        schedule, self._device = wires.schedule, wires.ranks[device]
        self._sum_tied, self._algorithm = sum_tied, algorithm
        self._last = schedule.n_microbatches - 1
        own = wires.stages_on(self._device)
        self._stages = {stage: stages.get((stage, self._device), WithoutNumbers()) for stage in own}
        self._groups = {stage: wires.group(stage, self._device) for stage in own}
        summing = adding(SUMMED, schedule.kinds)
        self._has_sums, self._has_U = bool(summing), "U" in schedule.kinds
        self._started, times = [], Counter()  # [(action, a name of its own)]: a gather may come several times
        for action in schedule.devices[device] if schedule.kinds & MEETING else ():
            if action.kind in MEETING:
                times[action] += 1
                name = f"{action}" if times[action] == 1 else f"{action} (time {times[action]})"
                self._started.append((action, name))
        self._sums = [action for action, _ in self._started if action.kind in summing]
        self._is_waited_for = "X" in schedule.kinds  # the end of a gather
        self._to_start, self._coming = iter(self._started), {}  # stage -> the name of the gather under way
        self._over = set()  # the names of sums that this device knows to be over

    def around(self, perform):
        """`perform`, as `program` takes it, with what closes a mini-batch.

        An `A`, an `S` and a `G` only start an exchange; a `U` first waits for the sums
        that it applies, and what needs all parameters for their gather.
        """
        def perform_any(action, inputs):
            if action.kind in MEETING:
                _, name = next(self._to_start)
                if action.kind == "G" and self._is_waited_for:
                    self._coming[action.stage] = name
                yield Send(f"the start of {name}", None, self._device)
                return [NOTHING]
            for part in action.parts:
                if part.stage in self._coming and RULES[part.kind].whole:
                    yield Receive(f"the end of {self._coming.pop(part.stage)}", self._device)
            if action.kind == "U":
                if self._has_sums:
                    yield from self._wait_for(self._sums if self._sum_tied else [action])
                yield from self._exchange_tied()
            return (yield from perform(action, inputs))

        return perform_any

    def communicate(self):
        """The program of the communication lane: the exchanges, in the order in which they are started."""
        for action, name in self._started:
            yield Receive(f"the start of {name}", self._device)
            yield from self._exchange(*action)
            yield Compute(action)
            if action in self._sums:
                yield Send(_end(action), None, self._device)
            elif self._is_waited_for:
                yield Send(f"the end of {name}", None, self._device)

    def close(self):
        """A program that does what the order has left to the end of the mini-batch."""
        if not self._has_sums and not self._has_U:
            for stage in self._stages:
                yield from self._exchange("A", stage, self._last)
        elif self._has_sums and not self._has_U:
            yield from self._wait_for(self._sums)
        yield from self._exchange_tied()

    def _wait_for(self, sums):
        """Wait until these sums are complete. A sum that was waited for before is skipped."""
        for action in sums:
            if _end(action) not in self._over:
                self._over.add(_end(action))
                yield Receive(_end(action), self._device)

    def _exchange(self, kind, stage, i):
        """A program: an `A`, `S` or `G` of a stage, with the other devices that have a copy of it."""
        group, own = self._groups[stage], self._stages[stage]
        # all devices of a group make its calls in the same order, by which their messages find each other
        if group is not None and kind == "A":
            yield from own.all_reduce(i, group, self._algorithm)
        elif group is not None and kind == "S":
            yield from own.reduce_scatter(i, group)
        elif group is not None:
            yield from own.gather(group)

    def _exchange_tied(self):
        """Sum the dW of tied layers over their devices. Called again in the same run, do nothing."""
        sum_tied, self._sum_tied = self._sum_tied, None
        if sum_tied is not None:
            yield from sum_tied(self._device)


def _end(action):
    """One name for the `A` or `S` of a mini-batch, which is over then, and its `U`, which waits for that."""
    return f"the end of the sum of stage {action.stage} up to micro-batch {action.microbatch}"


def gather_parameters(group, part):
    """A program: return the parts of a stage's parameters of all ranks. part: this rank's."""
    return exchanged(group, lambda rank: part, group.begin("gather of parameters"))


class WithoutNumbers:
    """Stand for a stage in a run that has only ticks.

    Args:
        n_bytes: of its gradients, and of its parameters.
    """

    def __init__(self, n_bytes=0):
        self._n_bytes = n_bytes

    def all_reduce(self, i, group, algorithm):
        """A program: send the messages of an all-reduce of gradients."""
        return all_reduce_sum_and_gather(group, self._total(group), (), algorithm)

    def reduce_scatter(self, i, group):
        """A program: send the messages of a reduce-scatter of gradients."""
        return reduce_scatter_sum_and_gather(group, self._total(group), ())

    def gather(self, group):
        """A program: send the messages of a gather of parameters."""
        return gather_parameters(group, [Bytes(self._n_bytes // group.size)])

    def _total(self, group):
        total = TreeSum(group.size)
        total.add(group.rank, Bytes(self._n_bytes))
        return total


# The programs.

def program(order, wires, perform, close=()):
    """The pipeline on one device: receive what an action needs, perform it, send what it gives.

    Messages are called as the actions that they come from.

    Args:
        order: the actions of the device.
        wires: the `Wires` between the stages.
        perform: `perform(action, inputs)` is a program, too. For each part of the
            action, inputs has (incoming, skips), what has come from the neighbouring
            stage, and {name: what a skip connection has brought}; and the list that it
            returns has (outgoing, skips), what is to be sent on in the same way.
        close: the program that follows the last action.
    """
    for action in order:
        inputs, outlets = [], []
        for part in action.parts:
            waits_for, sends = wires.ends(part)
            incoming, skips = None, {}
            for name, message, stage, source in waits_for:
                label = Action(message, stage, part.microbatch)
                if name == MAIN:
                    incoming = yield Receive(label, source)
                else:
                    skips[name] = yield Receive(f"{label} {name}", source)
            inputs.append((incoming, skips))
            outlets.append((part, sends))
        results = yield from perform(action, inputs)
        # let go before sending: a device that waits for its next message keeps no array of this one alive
        inputs = incoming = skips = None
        for part, sends in outlets:
            outgoing, skips = results.pop(0)
            for name, message, _, to in sends:
                # an I sends what a B sends: who receives it need not know that the backward is in halves
                label = part if message == part.kind else part._replace(kind=message)
                if name == MAIN:
                    yield Send(label, outgoing, to)
                else:
                    yield Send(f"{label} {name}", skips.get(name), to)
        outgoing = skips = None
    yield from close


def programs_of_schedule(
    wires, perform_on, stages=None, sum_tied=None, all_reduce=OWNERS, n_done=None
):
    """The programs of the devices, one for each line of the schedule of `wires`, as a `Cluster` takes them.

    Args:
        wires: as for `program`.
        perform_on: `perform_on(device)` is the `perform` of a device on the cluster.
        stages, sum_tied: as for `Closing`; left out in a run without numbers.
        all_reduce: the algorithm by which copies of a stage put their gradients
            together.
        n_done: for each device, how many of its actions it does before it stands; left
            out, it does all.
    """
    programs, schedule = [], wires.schedule
    for device, order in enumerate(schedule.devices):
        closing = Closing(wires, device, stages or {}, sum_tied, all_reduce)
        perform = perform_on(wires.ranks[device])
        if schedule.kinds & CLOSING:
            perform = closing.around(perform)
        n = len(order) if n_done is None else n_done[device]
        close = closing.close() if n == len(order) else _stands(wires.ranks[device])
        lanes = {COMPUTE: program(order[:n], wires, perform, close)}
        if schedule.kinds & MEETING:
            lanes["communication"] = closing.communicate()
        programs.append(lanes)
    return programs


def _stands(device):
    """A program that waits for what never comes."""
    yield Receive("what an order that cannot go on lacks", device)


def cluster_of(
    programs, schedule, costs, link, holdings=None, memory_limit=None, ports=(), shares=None, samples=None
):
    """A cluster that runs the programs of a schedule.

    Args:
        programs: as `programs_of_schedule` gives them.
        costs, link: the ticks of its actions, and of its messages.
        holdings, memory_limit, ports: as for `Cluster`.
        shares: for each device, how many stages share it; left out, as in the schedule.
        samples: of a micro-batch, on the average; None where there are no data.
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


def perform_without_numbers(costs, stages):
    """Return a `perform_on` for `programs_of_schedule`: it takes the ticks and sends the bytes of `costs`."""
    sizes = costs.bytes_sent(stages)
    sent = {kind: [NOTHING] * stages for kind in RULES}  # kind -> for each stage, (outgoing, skips)
    for kind, rule in RULES.items():
        for stage in range(stages):
            neighbour = stage + rule.way
            if neighbour != stage and 0 <= neighbour < stages and sizes[min(stage, neighbour)]:
                sent[kind][stage] = Bytes(sizes[min(stage, neighbour)]), {}

    def perform(action, inputs):
        yield Compute(action)
        return [sent[kind][stage] for kind, stage, _ in action.parts]

    return lambda device: perform
