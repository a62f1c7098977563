"""From a network, a mini-batch and a cluster of nodes to the best way to train it."""

from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from itertools import count
from typing import NamedTuple

from ..arguments import argument
from ..checks import chosen, function, listed, real_number, shown, whole_number
from ..cluster import Link
from ..cluster.links import checked_ports
from ..layers.layer import checked_layers
from ..order import RECOMPUTE
from ..order.names import chosen_schedules
from ..parallel import in_nodes
from ..schedules import names_having, stages_per_device
from ..watching import with_progress
from .fitting import MOST_MICROBATCHES
from .pricing import Plans, Pricing
from .without_numbers import WithoutNumbers


# Devices in nodes: how many, what joins them, and what each of them has.

@dataclass(frozen=True)
class Nodes:
    """A cluster, as far as a plan needs to know it.

    n_nodes, n_devices: how many nodes, and how many devices in each; they are numbered node by node.
    inside, between: the `Link` of two devices in one node, and in two; None where there are no two.
    memory: bytes of each device.
    seconds: a function (multiply-accumulates) -> time of a forward on a device; left out, one unit for each.
    ports: what several links have to share, see `Port`.
    speeds: of each device in all nodes, if they are unequal: 2 takes half of what `seconds` says.

    >>> Nodes(2, 8, Link(latency=1), Link(latency=10), memory=2**30).size
    16
    """

    n_nodes: int = 1
    n_devices: int = 1
    inside: Link | None = None
    between: Link | None = None
    memory: float = float("inf")
    seconds: object = float
    ports: tuple = ()
    speeds: tuple = ()

    def __post_init__(self):
        argument("n_nodes", self.n_nodes)
        argument("n_devices", self.n_devices)
        argument("Nodes.memory", self.memory)
        function("seconds", self.seconds)
        object.__setattr__(self, "ports", tuple(checked_ports(self.ports, self.size)))
        speeds = [real_number("speeds", speed, above=0) for speed in listed("speeds", self.speeds, least=0)]
        if speeds and len(speeds) != self.size:
            raise ValueError(
                f"speeds has {len(speeds)} numbers for {self.size} devices: give one for each, or none"
            )
        object.__setattr__(self, "speeds", tuple(speeds) if set(speeds) != {1} else ())
        joined = ("inside", self.n_devices, "devices in a node"), ("between", self.n_nodes, "nodes")
        for name, n, of in joined:
            link = getattr(self, name)
            if n > 1 and not isinstance(link, Link):
                raise ValueError(
                    f"this cluster has {n} {of} and no link between them: give it {name}=Link(latency, "
                    "bandwidth), or Link() for one that takes no time"
                )

    @property
    def size(self):
        """How many devices there are in all."""
        return self.n_nodes * self.n_devices

    def links(self):
        """{(source, to): Link}, those that take time."""
        if self.size == 1:
            return {}
        inside, between = self.inside or Link(), self.between or Link()
        links = in_nodes(self.size, self.n_devices, inside, between)
        return {pair: link for pair, link in links.items() if link != Link()}


# Which ways to train there are, for a number of devices and a mini-batch.

class Candidate(NamedTuple):
    """D copies on K groups of T devices each, M micro-batches of m samples for each copy.

    n_stages: of a copy: K, or a multiple of it.
    name, mode, zero: the schedule, the recomputation and the level, as in `Plan`.
    """

    D: int
    T: int
    K: int
    M: int
    m: int
    name: str
    n_stages: int
    mode: str
    zero: int


def candidates(
    n_devices, batch_size, schedules, modes, levels, n_replicas, n_shards, n_microbatches, n_buckets
):
    """Every `Candidate` whose sizes go together; `ValueError` if there is none."""
    if n_replicas is None:
        n_replicas = [D for D in range(1, n_devices + 1) if n_devices % D == 0]
    sizes = [
        (D, T, M)
        for D in _whole_numbers("n_replicas", n_replicas)
        for T in _whole_numbers("n_shards", n_shards)
        for M in _whole_numbers("n_microbatches", n_microbatches)
        if n_devices % (D * T) == 0 and batch_size % (D * M) == 0
    ]
    if not sizes:
        raise ValueError(
            f"no number of copies out of {n_replicas}, of shards out of {n_shards} and of "
            f"micro-batches out of {n_microbatches} divides {n_devices} devices and batch_size={batch_size}: "
            "try others"
        )
    buckets = _whole_numbers("n_buckets", n_buckets)
    found = []
    for D, T, M in sizes:
        K, m = n_devices // (D * T), batch_size // (D * M)
        for name in schedules if K > 1 else schedules[:1]:  # on one device, there is one order
            in_parts = buckets if K == 1 and D > 1 else [1]
            for v in in_parts if K == 1 else [stages_per_device(name)]:
                of_name = levels if D > 1 else [0]
                if v == 1 and 1 in of_name:  # with one stage, 2 is 1
                    of_name = [level for level in of_name if level != 2]
                found += [
                    Candidate(D, T, K, M, m, name, K * v, mode, level) for mode in modes for level in of_name
                ]
    return found


def _whole_numbers(name, numbers):
    return [whole_number(name, n, 1) for n in listed(name, numbers)]


# The search.

PLANNED_SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v")
NOT_TRIED = [
    f"schedules with two copies of the network on the same devices ({', '.join(names_having(copies=2))})",
    "micro-batches that are no powers of two, or more than 64 for a copy",
    "stages of one copy on unequally many devices (see partition_with_replicas and meshed_stages)",
]
NO_SHARDS = "devices that share the work inside layers: pass n_shards=[1, 2], for instance"
UNEQUAL = "copies or shards of a stage on devices of unequal speed"


def of_one_copy():
    """Return the names of the schedules that can be planned: a flush, and one copy of the network."""
    return names_having(flush=True, late_w=False, copies=1)


def plan(
    layers, loss, input_shape, batch_size, cluster,
    precision=None, dtype="float32", optimizer=None,
    schedules=PLANNED_SCHEDULES, recompute=("never", "always"), zero=(0, 1, 2, 3),
    n_replicas=None, n_shards=(1,), n_microbatches=None, n_buckets=(1, 4),
    by="macs", accumulate="running", n_best=3,
):
    """The fastest ways to train a network on all devices of a cluster that fit into its memory: `Plans`.

    layers, loss, input_shape: of the network, as for `what_fits`.
    batch_size: the samples of a mini-batch.
    cluster: `Nodes`, which say what computing and sending take, and the memory of a device.
    precision, dtype, optimizer, accumulate, by: as for `what_fits`.
    schedules, recompute: the names to try.
    zero: the levels to try, out of 0, 1, 2 and 3; the last three only with several copies, and an optimizer
        that takes each number by itself.
    n_replicas: the numbers of copies to try; left out, all divisors of the number of devices.
    n_shards: the numbers of devices to try that share the work inside each layer, as far as the layers can be
        split so. With 2 and more, each setting that could be the fastest is rehearsed, which takes seconds
        for a large network.
    n_microbatches: the numbers to try for each copy; left out, the powers of two up to 64 that divide its
        share of the batch.
    n_buckets: where a device has a whole copy, the numbers of parts to try in which its gradients are
        exchanged, while others are still computed.
    n_best: how many plans to find.

    No setting that it skips is faster than the first plan. Settings are taken up by lower bounds of their
    makespans: first, a stage's work with the shortest way to it and back; then the simulated run of one copy;
    then the simulated run of all. The search ends when what was simulated to the end is no slower than any
    bound that is left. Makespan and peak bytes are those of the run:

        best = plan(layers, loss, input_shape, batch_size, cluster).best
        pipe = best.pipeline(layers, loss)

    `what_fits` asks the same of single copies on 1, 2, 4 and 8 devices with one link, with all schedules and
    more ways to recompute. Raises `ValueError` for what cannot be, and where nothing fits: then with the
    closest plan, and with what is missing.

    >>> from minipipe import Adam, Linear, Link, MeanSquaredError, Tanh
    >>> layers = [layer for _ in range(8) for layer in (Linear(64, 64), Tanh())]
    >>> cluster = Nodes(1, 4, Link(latency=100, bandwidth=8), memory=400_000, seconds=float)
    >>> plans = plan(layers, MeanSquaredError(), (64,), 64, cluster, optimizer=Adam())
    >>> print(plans.best)
    4 copies on 1 device, 4 buckets, 4 micro-batches, 1f1b, recompute never, ZeRO-3
    """
    if not isinstance(cluster, Nodes):
        raise ValueError(f"cluster={shown(cluster)} must be Nodes(n_nodes, n_devices, inside=Link(...), ...)")
    layers = checked_layers(layers)
    network = WithoutNumbers(layers, loss, input_shape, dtype, optimizer, accumulate, precision)
    pricing = Pricing(network, layers, loss, by, cluster)
    batch_size = argument("batch_size", batch_size)
    names = chosen_schedules(schedules, of_one_copy()), chosen("recompute", recompute, RECOMPUTE)
    powers = [2**power for power in range(MOST_MICROBATCHES.bit_length())]
    settings = candidates(
        cluster.size, batch_size, *names, _levels(zero, layers, optimizer), n_replicas,
        pricing.possible_shards(n_shards), powers if n_microbatches is None else n_microbatches, n_buckets,
    )
    if n_microbatches is None and batch_size > 1 and not network.takes_single_samples():
        settings = [one for one in settings if one.m > 1]
    if network.precision.name != network.dtype.name and any(one.T > 1 for one in settings):
        raise ValueError(
            f"n_shards={n_shards} with precision={network.precision.name!r}: the bytes of shards are counted "
            "as a run has them, so leave precision out, or take n_shards=[1]"
        )
    return _best_of(settings, pricing, cluster.memory, optimizer, argument("n_best", n_best))


def _levels(zero, layers, optimizer):
    """Return the levels of ZeRO that can be: no device updates a part of what is tied, or must be whole."""
    levels = [argument("zero", level) for level in listed("zero", zero)]
    is_tied = any(layer.tie for layer in layers)
    if is_tied or optimizer is None or optimizer.needs_whole_parameters:
        if 0 not in levels:
            raise ValueError(
                f"zero={levels} needs an optimizer that takes each number by itself, and no tied layers: "
                "pass optimizer=Adam(), for instance, or put 0 among the levels"
            )
        return [0]
    return levels


def _best_of(candidates, pricing, memory, optimizer, n_best):
    """The search itself: `Plans`."""
    order, left, too_large, found, tops = count(), [], 0, [], []
    for one in candidates:
        bound = pricing.bound(one)
        if bound is not None:
            left.append((bound, next(order), one, 0))
    n_settings = len(left)
    if not left:
        raise ValueError(
            f"no schedule exists for {len(pricing.layers)} layers on {pricing.cluster.size} devices: use "
            "fewer devices, more copies, or other schedules"
        )
    heapify(left)
    n_simulated, closest = 0, None
    for _ in with_progress(range(2 * n_settings), "looks at settings, at most"):
        if not left or (len(tops) >= n_best and tops[n_best - 1] <= left[0][0]):
            break
        bound, number, one, level = heappop(left)
        if level == 0:
            if not pricing.exists(one):
                n_settings -= 1
                continue
            least = pricing.least_bytes(one)
            if least > memory:
                too_large += 1
                if closest is None or least < closest[0]:
                    closest = least, one
                continue
            heappush(left, (max(bound, pricing.with_exchange(one)), number, one, 1))
            continue
        plan_, n_simulated = pricing.simulated(one, optimizer), n_simulated + 1
        if plan_.peak_bytes > memory:
            if closest is None or closest[0] > plan_.peak_bytes or closest[0] <= memory:
                closest = plan_.peak_bytes, one
            continue
        found.append(plan_)
        tops = sorted(plan.makespan for plan in found)
    if not found:
        raise ValueError(_nothing_fits(memory, *closest))
    found.sort(key=lambda plan: (float(f"{float(plan.makespan):.9g}"), plan.peak_bytes))
    not_tried = [*[NO_SHARDS] * all(one.T == 1 for one in candidates), *NOT_TRIED]
    not_tried += [UNEQUAL] * bool(pricing.cluster.speeds)
    return Plans(found[:n_best], n_settings, too_large, n_simulated, not_tried)


def _nothing_fits(memory, least, one):
    return (
        f"nothing fits {memory:,} bytes a device: the closest, {one.name} with {one.D} x {one.M} "
        f"micro-batches of {one.m} on {one.D} x {one.K * one.T} devices, recompute {one.mode}, needs "
        f"{least:,} or more, {least - memory:,} too many: give each device so much, or take more devices, a "
        "smaller batch, or mixed precision"
    )
