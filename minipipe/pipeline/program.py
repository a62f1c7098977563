"""A schedule turned into programs for the devices of a cluster."""

from ..cluster import COMPUTE, Bytes, Cluster, Compute, Receive, Send
from ..schedules.rules import CLOSING, RULES
from .closing import Closing
from .wires import MAIN


def program(order, wires, perform):
    """The pipeline on one device: receive what an action needs, perform it, send what it gives.

    order: the actions of the device.
    wires: the `Wires` between the stages.
    perform: `perform(action, inputs)` is a program, too. For each part of the action, inputs has {name: what
        has arrived by this name}, and what it returns has {name: what is to be sent by this name}.
    """
    for action in order:
        inputs, parts = [], action.parts
        for part in parts:
            inputs.append({})
            for name, label, source in wires.into[part]:
                inputs[-1][name] = yield Receive(label, source)
        results = yield from perform(action, inputs)
        inputs = None  # so that nothing is kept alive while the device waits for its next message
        for part, result in zip(parts, results, strict=True):
            for name, label, to in wires.out_of[part]:
                yield Send(label, result.get(name), to)
        results = result = None


def cluster_of(
    schedule, costs, link, wires, perform, stages=None, ties=None,
    holdings=None, memory_limit=None, memory=None,
):
    """A cluster with one device per line of `schedule`.

    costs, link: the ticks of its actions, and of its messages.
    wires, perform: as for `program`.
    stages, ties: as for `Closing`; left out in a run without numbers.
    holdings, memory_limit, memory: as for `Cluster`.
    """
    programs = []
    for device, order in enumerate(schedule.devices):
        closing = Closing(schedule, device, stages or {}, ties or {})
        lanes = {COMPUTE: _computing(order, wires, perform, closing)}
        if "A" in schedule.kinds:
            lanes["communication"] = closing.communicate()
        programs.append(lanes)
    return Cluster(programs, costs.duration(schedule.n_stages), link, holdings, memory_limit, memory=memory)


def _computing(order, wires, perform, closing):
    """The pipeline on one device, and what closes the mini-batch there."""
    def perform_any(action, inputs):
        return closing.perform(action, inputs, perform) if action.kind in CLOSING else perform(action, inputs)

    yield from program(order, wires, perform_any)
    yield from closing.close()


def without_numbers(costs, n_stages):
    """A `perform` for `program` that only takes its time: what it sends is as many bytes as `costs` says."""
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
