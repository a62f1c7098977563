"""A choice on the exact engine, with messages and exchanges on NVLink and NICs."""

from dataclasses import dataclass, replace
from math import gcd

from ..checks import shown
from ..cluster import SECONDS, Bytes, Compute, Label, Link, Trace, ports
from ..cluster.links import in_nodes
from ..cluster.requests import Program
from ..collectives.group import Group, ring_gather
from ..order import Costs, Schedule, costs_in_segments, in_copies, in_segments, with_all_reduce, with_zero
from ..order.programs import Wires, cluster_of, perform_without_numbers, programs_of_schedule
from ..schedules import build, interleaved_one_f_one_b
from .hardware import half_ring
from .search import Estimate, text_of_seconds
from .seconds import layer, logits, optimizer, times
from .transformer import Choice, Transformer, layers_of_stages, parameters_of_stages

SEGMENTS = 8  # the segments of a stage, whose gradients travel one after the other
MOST_STEPS = 100_000  # the most computations and messages of a run: some seconds


@dataclass(frozen=True)
class Confirmed:
    """A step by formulas and on the engine; it prints both.

    Args:
        asked: the `Estimate` to confirm.
        run: the `Estimate` that was run: the same, or one with fewer micro-batches or
            replicas.
        trace: the `Trace` of the run, in seconds. Each device stands for T GPUs.
    """

    asked: Estimate
    run: Estimate
    trace: Trace

    @property
    def makespan(self) -> float:
        """The seconds of a step on the engine."""
        return float(self.trace.makespan)

    def __str__(self):
        formula, engine = self.run.step, self.makespan
        smaller = "" if self.run == self.asked else f", run as {self.run.choice}"
        return (
            f"{self.asked.choice}{smaller}: {text_of_seconds(formula)} s by formulas, "
            f"{text_of_seconds(engine)} s on the engine ({engine / formula - 1:+.1%})"
        )


def confirm(found: Estimate) -> Confirmed:
    """Return the step of a plan on the exact engine, compared with the formulas.

    An action takes the seconds of the formulas, with the exchanges of T shards. The
    engine finds the waits: for messages between stages, and for exchanges of replicas,
    first within a node and then between nodes. Each GPU has ports for NVLink and others
    for its NIC. The gradients of a stage travel in 8 segments, each as soon
    as its backward is done; with ZeRO, parameters are gathered when a step begins.

    A run has at most 100,000 computations and messages, which take some seconds. For a
    larger one, the micro-batches are halved until fewer than 4 K are left, then the
    replicas and nodes; the formulas are evaluated for the same numbers.

    Args:
        found: an `Estimate`, such as `plan(...).best`.

    Raises:
        ValueError: `found` is not an `Estimate`, its step stays too large, or its nodes
            have fewer `rails` than GPUs.

    >>> from minipipe.planning import GPUS, MODELS, Nodes, plan
    >>> found = plan(MODELS["llama-7b"], Nodes(2, 4, GPUS["h100"], 450e9, 50e9), batch=64)
    >>> print(confirm(found.best))
    D=8 T=1 K=1 b=2 M=4 ZeRO-2: 2.91 s by formulas, 2.94 s on the engine (+0.9%)
    """
    if not isinstance(found, Estimate):
        raise ValueError(f"found={shown(found)} must be an Estimate, such as plan(...).best")
    if found.nodes.rails < found.nodes.gpus:
        raise ValueError(
            f"rails={found.nodes.rails:g} with {found.nodes.gpus} GPUs in a node: the engine has a NIC "
            "for each GPU, so leave rails out to confirm a plan"
        )
    run = small_enough(found)
    model, nodes, choice, recipe = run.model, run.nodes, run.choice, run.recipe
    whole, n_segments = order_of(choice), segments_of(model, choice)
    schedule = with_exchanges(in_segments(whole, n_segments), choice)
    costs = costs_in_segments(costs_of_stages(run), whole, n_segments)
    numbers = [n / n_segments for n in parameters_of_stages(model, choice) for _ in range(n_segments)]
    near = replicas_in_node(run)
    stages = {
        (stage, device): OnTheWire(numbers[stage] * recipe.wire, numbers[stage] * recipe.parameter, near)
        for device in range(len(schedule.devices))
        for stage in {action.stage for action in schedule.parts(device)}
    }
    perform_on = perform_without_numbers(costs, schedule.n_stages)
    programs = programs_of_schedule(Wires(schedule), perform_on, stages)
    for device, lanes in enumerate(programs):
        n = sum(numbers[stage] for stage, place in stages if place == device)
        lanes["compute"] = updated(lanes["compute"], optimizer(run, n))
    size = nodes.gpus // choice.T  # devices of a node
    links = in_nodes(len(programs), size, Link(nodes.nvlink_latency), Link(nodes.nic_latency))
    ways = ports(len(programs), nodes.inward, within=size) + ports(len(programs), nodes.outward, between=size)
    trace = cluster_of(programs, schedule, costs, links, ports=ways).run()
    if choice.D > 1 and choice.K > 1:
        places = (place(choice, device) for device in range(len(programs)))
        trace.names = [f"device {device}: d{d} p{k}" for device, (d, k) in enumerate(places)]
    return Confirmed(found, run, trace)


def place(choice: Choice, device: int) -> tuple[int, int]:
    """Return (replica, position in the pipeline) of `device` in `choice`."""
    if choice.inner == "K":
        return divmod(device, choice.K)
    k, d = divmod(device, choice.D)
    return d, k


def segments_of(model: Transformer, choice: Choice) -> int:
    """Return the segments of a stage of `model` in `choice`: one without exchanges."""
    return min(SEGMENTS, max(1, model.layers // choice.K // choice.v)) if choice.D > 1 else 1


def small_enough(found: Estimate) -> Estimate:
    """Return `found`, with fewer micro-batches or replicas if its run is too long."""
    while steps_of(found) > MOST_STEPS:
        choice, nodes, batch = found.choice, found.nodes, found.batch
        if choice.M % (2 * choice.K) == 0 and choice.M >= 4 * choice.K:
            choice = choice._replace(M=choice.M // 2)
        elif choice.D % 2 == 0 and nodes.nodes % 2 == 0:
            choice, nodes = choice._replace(D=choice.D // 2), replace(nodes, nodes=nodes.nodes // 2)
        else:
            raise ValueError(
                f"a run of {choice} has {steps_of(found):,} computations and messages, and at most "
                f"{MOST_STEPS:,} are run: confirm a choice of fewer GPUs or micro-batches"
            )
        found = replace(found, choice=choice, nodes=nodes, batch=batch // 2)
    return found


def steps_of(found: Estimate) -> int:
    """Return about how many computations and messages a run of `found` has."""
    choice, near = found.choice, replicas_in_node(found)
    exchanges = 2 * (near - 1 + choice.D // near - 1) * (choice.M if choice.zero > 1 else 1)
    return choice.D * choice.K * choice.v * segments_of(found.model, choice) * (3 * choice.M + exchanges)


def replicas_in_node(found: Estimate) -> int:
    """Return the number of replicas of a stage of `found` within each node."""
    choice, size = found.choice, found.nodes.gpus // found.choice.T
    if choice.inner == "K":
        size = size // choice.K if size % choice.K == 0 else 1
    return gcd(choice.D, size)


def order_of(choice: Choice) -> Schedule:
    """Return the `Schedule` of `choice`; devices of a node have consecutive numbers."""
    if choice.v > 1:
        order = interleaved_one_f_one_b(choice.K, choice.M, choice.v)
    else:
        order = build(choice.schedule, choice.K, choice.M)
    order = in_copies(order, choice.D)
    places = (place(choice, device) for device in range(choice.D * choice.K))
    return replace(order, devices=tuple(order.devices[d * choice.K + k] for d, k in places))


def with_exchanges(schedule: Schedule, choice: Choice) -> Schedule:
    """Return `schedule` with the exchanges of replicas in `choice`.

    Without ZeRO, these are all-reduces. ZeRO 1 scatters gradients (S) after the last
    backward of a segment, ZeRO 2 and 3 after each backward. ZeRO 1 and 2 gather
    parameters (G) when a step begins, ZeRO 3 before each piece of work; X frees them.
    """
    if choice.D == 1:
        return schedule
    changed = with_zero(schedule, 3) if choice.zero == 3 else with_all_reduce(schedule)
    if choice.zero == 0:
        return changed
    devices: list = []
    for device in range(len(changed.devices)):
        order = changed.parts(device)
        first = {action.stage: action for action in reversed(order) if action.kind == "F"}
        firsts = [*first.values()] if choice.zero < 3 else []  # last segment first
        steps = [action._replace(kind="G") for action in reversed(firsts)]
        for action in order:
            if action.kind not in ("A", "S", "U"):
                steps.append(action)
            if action.kind == ("A" if choice.zero == 1 else "B"):
                steps.append(action._replace(kind="S"))
        devices.append((*steps, *(action._replace(kind="X") for action in firsts)))
    return replace(changed, devices=tuple(devices))


def costs_of_stages(found: Estimate) -> Costs:
    """Return the `Costs` of the stages of a replica of `found`, in seconds."""
    model, nodes, choice = found.model, found.nodes, found.choice
    of_layer, layers, seconds = layer(found), layers_of_stages(model, choice), []
    for stage, n in enumerate(layers, 1):
        parts = times(of_layer, n, logits(found) if stage == len(layers) else {})
        seconds.append(list(map(sum, zip(*parts.values(), strict=True))))
    F, I, W = map(list, zip(*seconds, strict=True))
    n_bytes = 2 * model.seq * choice.b * model.hidden
    if not choice.sequence:  # the receivers of a message first gather the parts of T senders
        gather = half_ring(nodes, n_bytes, choice.T, choice.T)
        F[1:], I[:-1] = ([x + gather for x in of_stages] for of_stages in (F[1:], I[:-1]))
    costs = Costs(
        F=F, B=list(map(sum, zip(I, W))), message_bytes=round(n_bytes / choice.T), unit=SECONDS
    )
    return replace(costs, I=I, W=W) if choice.schedule == "zb-h1" else costs


class OnTheWire:
    """The exchanges of replicas for a segment on one device.

    Args:
        gradients, parameters: the bytes of the segment's gradients and parameters.
        near: the number of replicas within each node.
    """

    def __init__(self, gradients: float, parameters: float, near: int):
        self.gradients, self.parameters, self.near = gradients, parameters, near

    def all_reduce(self, i: int, group: Group, algorithm: str) -> Program:
        """A program: scatter gradients over `group`, and gather their sums.

        i, algorithm: not used, but arguments of every stage.
        """
        label = group.begin("all-reduce")
        yield from self._half(group, self.gradients, f"{label}: scatter")
        yield from self._half(group, self.gradients, f"{label}: gather")

    def reduce_scatter(self, i: int, group: Group) -> Program:
        """A program: scatter gradients over `group`. i: not used."""
        yield from self._half(group, self.gradients, group.begin("reduce-scatter"))

    def gather(self, group: Group) -> Program:
        """A program: gather parameters over `group`."""
        yield from self._half(group, self.parameters, group.begin("gather of parameters"))

    def _half(self, group, n_bytes, label):
        """A program: send the chunks of a half ring in the node, then between nodes."""
        node, place = divmod(group.rank, self.near)
        inside = group.part(range(node * self.near, (node + 1) * self.near))
        between = group.part(range(place, group.size, self.near))
        for ring, size, where in ((inside, self.near, "in a node"), (between, group.size, "between nodes")):
            chunks = [Bytes(round(n_bytes / size))] * ring.size
            yield from ring_gather(ring, chunks, ring.rank, f"{label} {where}")


def updated(program: Program, seconds: float) -> Program:
    """A program: do `program`, then update parameters, which takes `seconds`."""
    yield from program
    yield Compute(Label("update", "U"), ticks=seconds)
