"""A schedule turned into programs for the devices of a cluster."""

from ..cluster import COMPUTE, Bytes, Cluster, Compute, Receive, Send, checked_ports, links_between
from ..collectives import OWNERS
from .actions import Action
from .closing import Closing
from .programs import MAIN, NOTHING
from .rules import CLOSING, MEETING, RULES


def program(order, wires, perform, close=()):
    """The pipeline on one device: receive what an action needs, perform it, send what it gives.

    Messages are called as the actions that they come from.

    order: the actions of the device.
    wires: the `Wires` between the stages.
    perform: `perform(action, inputs)` is a program, too. For each part of the action, inputs has (incoming,
        skips), what has come from the neighbouring stage, and {name: what a skip connection has brought};
        and the list that it returns has (outgoing, skips), what is to be sent on in the same way.
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
        inputs = incoming = skips = None  # nothing is kept alive while the device waits for its next message
        for part, sends in outlets:
            outgoing, skips = results.pop(0)
            for name, message, _, to in sends:
                label = part if message == part.kind else part._replace(kind=message)
                if name == MAIN:
                    yield Send(label, outgoing, to)
                else:
                    yield Send(f"{label} {name}", skips.get(name), to)
        outgoing = skips = None
    yield from close


def programs_of(wires, perform_on, stages=None, sum_tied=None, all_reduce=OWNERS):
    """The programs of the devices, one for each line of the schedule of `wires`, as a `Cluster` takes them.

    wires: as for `program`.
    perform_on: `perform_on(device)` is the `perform` of a device on the cluster.
    stages, sum_tied: as for `Closing`; left out in a run without numbers.
    all_reduce: the algorithm by which copies of a stage put their gradients together.
    """
    programs, schedule = [], wires.schedule
    for device, order in enumerate(schedule.devices):
        closing = Closing(wires, device, stages or {}, sum_tied, all_reduce)
        perform = perform_on(wires.ranks[device])
        if schedule.kinds & CLOSING:
            perform = closing.around(perform)
        lanes = {COMPUTE: program(order, wires, perform, closing.close())}
        if schedule.kinds & MEETING:
            lanes["communication"] = closing.communicate()
        programs.append(lanes)
    return programs


def cluster_of(
    programs, schedule, costs, link, holdings=None, memory_limit=None, ports=(), shares=None
):
    """A cluster that runs the programs of a schedule.

    programs: as `programs_of` gives them.
    costs, link: the ticks of its actions, and of its messages.
    holdings, memory_limit, ports: as for `Cluster`.
    shares: for each device, how many stages share it; left out, as in the schedule.
    """
    links, ports = links_between(link, len(programs)), checked_ports(ports, len(programs))
    times = {time for one in links.values() for time in (one.latency, one.bandwidth)}
    times |= {port.bandwidth for port in ports}
    return Cluster(
        programs, costs.duration(schedule.sharing, times, schedule.copy_of), links, holdings, memory_limit,
        ports, shares=shares or schedule.stages_on, unit=costs.unit,
    )


def without_numbers(costs, n_stages):
    """A `perform_on` for `programs_of`: all devices only take their time, and send the bytes of `costs`."""
    sent = sent_without_numbers(costs, n_stages)

    def perform(action, inputs):
        yield Compute(action)
        results = []
        for kind, stage, _ in action.parts:
            results.append(sent[kind][stage])
        return results

    return lambda device: perform


def sent_without_numbers(costs, n_stages):
    """What an action sends in a run without numbers: {kind: for each stage, (`Bytes` or None, {})}."""
    sizes = costs.bytes_sent(n_stages)
    sent = {kind: [NOTHING] * n_stages for kind in RULES}
    for kind, rule in RULES.items():
        results = sent[kind]
        for stage in range(n_stages):
            neighbour = stage + rule.way
            if neighbour != stage and 0 <= neighbour < n_stages and sizes[min(stage, neighbour)]:
                results[stage] = Bytes(sizes[min(stage, neighbour)]), {}
    return sent
