"""A schedule turned into programs for the devices of a cluster."""

from ..cluster import COMPUTE, Bytes, Cluster, Compute, Receive, Send
from ..schedules.rules import RULES
from .closing import all_reduce, exchange_tied
from .wires import MAIN


def program(order, wires, perform):
    """One device: receive what an action needs, perform it, send its results to where they are needed.

    order: its actions. wires: the `Wires` between the stages. perform: `perform(action, inputs)` is a program, too; inputs has
    for each part of the action {name: what has arrived by this name}, and so has what it returns.
    """
    for action in order:
        inputs = []
        for part in action.parts:
            inputs.append({})
            for name, label, source in wires.into(part):
                inputs[-1][name] = yield Receive(label, source)
        results = yield from perform(action, inputs)
        inputs = None  # so that nothing is kept alive while the device waits for its next message
        for part, result in zip(action.parts, results, strict=True):
            for name, label, to in wires.out_of(part):
                yield Send(label, result.get(name), to)
        results = result = None


class Ends:
    """What a device does at the end of a mini-batch, or wherever its order has an `A`.

    stages: {(stage, device): what holds the sums of this stage there}; empty in a run without numbers.
    ties: {name: the `Tied` layers}.
    """

    def __init__(self, schedule, device, stages, ties):
        self._order, self._device, self._stages, self._ties = schedule.devices[device], device, stages, ties
        self._placements = schedule.placements
        self._has_A, self._has_U = "A" in schedule.kinds, "U" in schedule.kinds
        self._last = schedule.n_microbatches - 1
        self._ties_are_open = bool(ties)

    def perform(self, action, inputs, perform):
        """A program: an `A` only starts its all-reduce, and a `U` waits for what it needs; all else is left to `perform`."""
        if action.kind == "A":
            yield Send(_begin(action), None, self._device)
            return [{}]
        if action.kind == "U":
            if self._has_A:
                yield Receive(_end(action), self._device)
            yield from self._exchange_tied()
        return (yield from perform(action, inputs))

    def communicate(self):
        """The program of the lane beside: the all-reduces of the order, one after another, as the device starts them."""
        met = {}
        for action in self._order:
            if action.kind == "A":
                yield Receive(_begin(action), self._device)
                number = met[action.stage] = met.get(action.stage, -1) + 1
                yield from self._all_reduce(number, action.stage, action.microbatch)
                yield Compute(action)
                yield Send(_end(action), None, self._device)

    def close(self):
        """A program: what is left to do behind the last action."""
        if self._has_A and not self._has_U:
            for action in self._order:
                if action.kind == "A":
                    yield Receive(_end(action), self._device)
        if not self._has_A:
            for stage in range(len(self._placements[0])):
                yield from self._all_reduce(0, stage, self._last)
        yield from self._exchange_tied()

    def _all_reduce(self, number, stage, i):
        devices = list(dict.fromkeys(placement[stage] for placement in self._placements))
        if len(devices) > 1 and self._device in devices:
            holder = self._stages.get((stage, self._device))
            totals = None if holder is None else holder.totals
            yield from all_reduce(number, totals, stage, i, self._device, devices)

    def _exchange_tied(self):
        if self._ties_are_open:
            self._ties_are_open = False
            yield from exchange_tied(self._ties, self._placements, self._stages, self._device)


def _begin(action):
    return f"{action} begins"


def _end(action):
    """The same for the `A` and for the `U` of one mini-batch."""
    return f"{action.stage}A{action.microbatch} is over"


def cluster_of(
    schedule, costs, link, wires, perform, stages=None, ties=None, holdings=None, memory_limit=None, memory=None
):
    """A cluster with one device per line of `schedule`.

    costs, link: the ticks of its actions, and of its messages.
    wires, perform: as for `program`.
    stages, ties: as for `Ends`; left out in a run without numbers.
    holdings, memory_limit, memory: as for `Cluster`.
    """
    programs = []
    for device, order in enumerate(schedule.devices):
        ends = Ends(schedule, device, stages or {}, ties or {})
        lanes = {COMPUTE: _compute(order, wires, perform, ends, schedule.kinds)}
        if "A" in schedule.kinds:
            lanes["communication"] = ends.communicate()
        programs.append(lanes)
    return Cluster(programs, costs.duration(schedule.n_stages), link, holdings, memory_limit, memory=memory)


def _compute(order, wires, perform, ends, kinds):
    """The program of a device that computes."""
    performed = perform
    if kinds & {"A", "U"}:
        def performed(action, inputs):
            return ends.perform(action, inputs, perform)
    yield from program(order, wires, performed)
    yield from ends.close()


def without_numbers(costs, n_stages):
    """A `perform` for `program` that only takes its time: what it sends are the bytes that `costs` says, and no arrays."""
    sizes = costs.bytes_sent(n_stages)
    sent = {(kind, stage): {} for kind in RULES for stage in range(n_stages)}
    for (kind, stage), results in sent.items():
        neighbour = stage + RULES[kind].way
        if neighbour != stage and 0 <= neighbour < n_stages and sizes[min(stage, neighbour)]:
            results[MAIN] = Bytes(sizes[min(stage, neighbour)])

    def perform(action, inputs):
        yield Compute(action)
        return [sent[kind, stage] for kind, stage, _ in action.parts]

    return perform
