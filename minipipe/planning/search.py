"""From a network, a mini-batch and a cluster to the best way to train it."""

from heapq import heapify, heappop, heappush
from itertools import accumulate, count
from typing import NamedTuple

import numpy as np

from ..checks import chosen, listed, whole_number
from ..cluster import Link
from ..layers.layer import checked_layers
from ..partitioning import costs_of_layers, loads, min_max
from ..schedules import (
    BUILDERS, RECOMPUTE, STAGES_PER_DEVICE, Costs, build, in_copies, with_all_reduce, with_recompute,
    with_zero,
)
from ..watching import with_progress
from .fitting import MOST_MICROBATCHES, MOST_SAMPLES
from .foresight import patterns_of
from .nodes import Nodes
from .plans import Plan, Plans
from .simulation import simulate
from .without_numbers import WithoutNumbers

SCHEDULES = ("1f1b", "gpipe", "interleaved", "zb-h1", "zb-v")
OF_ONE_COPY = [name for name in BUILDERS if name not in ("chimera", "dualpipe")]
NOT_TRIED = [
    "tensor parallelism (Hybrid's n_shards) and ZeRO-3",
    "schedules with two copies of the network on the same devices (chimera, dualpipe)",
    "micro-batches that are no powers of two, or more than 64 for a copy",
    "stages of one copy on unequally many devices (see replicated_stages and meshed_stages)",
]


class _Setting(NamedTuple):
    """D copies on K devices each, M micro-batches of m samples for each copy; the others as in `Plan`."""

    D: int
    K: int
    M: int
    m: int
    name: str
    mode: str
    zero: int | None


def plan(
    layers, loss, input_shape, batch_size, cluster,
    precision=None, dtype=np.float32, optimizer=None, schedules=SCHEDULES, recompute=("never", "always"),
    zero=(None, 1, 2), n_replicas=None, n_microbatches=None, partition="macs", accumulate="running", n_best=3,
):
    """The fastest ways to train a network on all devices of a cluster that fit into its memory: `Plans`.

    layers, loss, input_shape: of the network, as for `what_fits`.
    batch_size: the samples of a mini-batch.
    cluster: `Nodes`, which say what computing and sending take, and the memory of a device.
    precision, dtype, optimizer, accumulate, partition: as for `what_fits`.
    schedules, recompute: the names to try.
    zero: the levels to try, out of None, 1 and 2; these two only with an optimizer, and several copies.
    n_replicas: the numbers of copies to try; left out, all divisors of the number of devices.
    n_microbatches: the numbers to try for each copy; left out, the powers of two up to 64 that divide its
        share of the batch.
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
    4 copies on 1 device, 4 micro-batches, 1f1b, recompute never, ZeRO-1
    """
    if not isinstance(cluster, Nodes):
        raise ValueError(f"cluster={cluster!r} must be Nodes(n_nodes, n_devices, inside=Link(...), ...)")
    layers = checked_layers(layers)
    network = WithoutNumbers(layers, loss, input_shape, dtype, optimizer, accumulate, precision)
    search = _Search(network, costs_of_layers(layers, partition, input_shape), cluster)
    batch_size = whole_number("batch_size", batch_size, 1, MOST_SAMPLES)
    names = chosen("schedules", schedules, OF_ONE_COPY), chosen("recompute", recompute, RECOMPUTE)
    for level in listed("zero", zero):
        if level not in (None, 1, 2):
            raise ValueError(f"zero={zero!r} must be a list out of None, 1 and 2")
    levels = [level for level in zero if level is None or optimizer is not None]
    settings = _settings(cluster.size, batch_size, *names, levels, n_replicas, n_microbatches)
    return search.best_of(settings, whole_number("n_best", n_best, 1))


def _settings(n_devices, batch_size, schedules, modes, levels, n_replicas, n_microbatches):
    """Every `_Setting` whose sizes go together."""
    if n_replicas is None:
        n_replicas = [D for D in range(1, n_devices + 1) if n_devices % D == 0]
    if n_microbatches is None:
        n_microbatches = [2**power for power in range(MOST_MICROBATCHES.bit_length())]
    found = []
    for D in (whole_number("n_replicas", D, 1) for D in listed("n_replicas", n_replicas)):
        for M in (whole_number("n_microbatches", M, 1) for M in listed("n_microbatches", n_microbatches)):
            if n_devices % D or batch_size % (D * M):
                continue
            K, m = n_devices // D, batch_size // (D * M)
            names = schedules if K > 1 else schedules[:1]  # on one device, all are alike
            for name in names:
                of_name = levels if D > 1 else [None]
                if STAGES_PER_DEVICE.get(name, 1) == 1 and 1 in of_name:  # with one stage, 2 is 1
                    of_name = [level for level in of_name if level != 2]
                found += [_Setting(D, K, M, m, name, mode, level) for mode in modes for level in of_name]
    if not found:
        raise ValueError(
            f"no number of copies out of {n_replicas} and of micro-batches out of {n_microbatches} divides "
            f"{n_devices} devices and batch_size={batch_size}: try others"
        )
    return found


class _Search:
    """What all settings of a search share; results are kept, as many settings need the same."""

    def __init__(self, network, sizes, cluster):
        self.network, self.sizes = network, sizes
        self.cluster, self.links = cluster, cluster.links()
        rows = self.network.description.rows
        self.macs, self.n_bytes = [row.macs for row in rows], [row.n_bytes for row in rows]
        self._counts, self._costs, self._orders, self._alone = {}, {}, {}, {}

    def best_of(self, settings, n_best):
        """The search itself."""
        order, left, too_large, found, tops = count(), [], 0, [], []
        for setting in settings:
            bound = self.bound(setting)
            if bound is not None:
                left.append((bound, next(order), setting, 0))
        n_settings = len(left)
        if not left:
            raise ValueError(
                f"no schedule exists for {len(self.macs)} layers on {self.cluster.size} devices: use fewer "
                "devices, more copies, or other schedules"
            )
        heapify(left)
        n_simulated, closest = 0, None
        for _ in with_progress(range(2 * n_settings), "looks at settings, at most"):
            if not left or (len(tops) >= n_best and tops[n_best - 1] <= left[0][0]):
                break
            bound, number, setting, level = heappop(left)
            if level == 0:
                least = self.least_bytes(setting)
                if least > self.cluster.memory:
                    too_large += 1
                    if closest is None or least < closest[0]:
                        closest = least, setting
                    continue
                makespan = self.alone(setting)
                if makespan is None:
                    n_settings -= 1
                    continue
                heappush(left, (max(bound, self.with_exchange(setting)), number, setting, 1))
                continue
            plan_, n_simulated = self.simulated(setting), n_simulated + 1
            if plan_.peak_bytes > self.cluster.memory:
                if closest is None or closest[0] > plan_.peak_bytes or closest[0] <= self.cluster.memory:
                    closest = plan_.peak_bytes, setting
                continue
            found.append(plan_)
            tops = sorted(plan.makespan for plan in found)
        if not found:
            raise ValueError(self._nothing_fits(*closest))
        found.sort(key=lambda plan: (float(f"{float(plan.makespan):.9g}"), plan.peak_bytes))
        return Plans(found[:n_best], n_settings, too_large, n_simulated, NOT_TRIED)

    def bound(self, setting):
        """A time below which the setting's makespan cannot be; None if there are too few layers for it."""
        _, K, M, m, name, mode, _ = setting
        v = STAGES_PER_DEVICE.get(name, 1)
        if K * v > len(self.macs):
            return None
        F, B, W = self._costs_of(K * v, m)[1:]
        R = F if mode == "always" else [0] * len(F)
        in_halves = "W" in build(name, 2, 4).kinds
        there = back = best = 0
        for f, b, w, r in zip(F, B, W, R):
            if in_halves:  # its last W has no gradient to send back
                best = max(best, there + M * (f + b + r), there + M * (f + b - w + r) + back)
                back += b - w
            else:
                best = max(best, there + M * (f + b + r) + back)
                back += b
            there += f
        return max(best, M * (sum(F) + sum(B) + sum(R)) / K)

    def least_bytes(self, setting):
        """On the fullest device: parameters, and one sum of gradients or what one micro-batch keeps."""
        counts = self._counts_of(setting.K * STAGES_PER_DEVICE.get(setting.name, 1))
        of_stages = zip(self._parameters(counts), self._kept(counts, setting))
        return max(parameters + max(parameters, kept) for parameters, kept in of_stages)

    def _parameters(self, counts):
        itemsize = self.network.precision.numbers
        return loads([itemsize * row.parameters for row in self.network.description.rows], counts)

    def _kept(self, counts, setting):
        kept = self.network.kept(counts, setting.m)
        return [of_stage.input if setting.mode == "always" else of_stage.caches for of_stage in kept]

    def alone(self, setting):
        """The makespan of one copy, without exchange; None if there is no such schedule."""
        key = setting._replace(D=1, zero=None)
        if key not in self._alone:
            try:
                order = self._order(key)
            except ValueError:
                self._alone[key] = None
                return None
            links = {pair: link for pair, link in self.links.items() if max(pair) < setting.K}
            trace = simulate(order, self._costs_of(order.n_stages, setting.m)[0], links)
            self._alone[key] = trace.makespan
        return self._alone[key]

    def with_exchange(self, setting):
        """A bound that is closer: the device of `alone` that ends last has its gradients to exchange then.

        To add them up at their owners takes the slowest link of a group of copies, and to hand them round at
        least the fastest.
        """
        D, K, alone = setting.D, setting.K, self.alone(setting)
        if D == 1:
            return alone
        group = [copy * K for copy in range(D)]
        links = {self.links.get((r, s), Link()) for r in group[:1] for s in group[1:]}
        counts = self._counts_of(K * STAGES_PER_DEVICE.get(setting.name, 1))
        parts = [n_bytes // D for n_bytes in self._parameters(counts)]
        part = min(parts) - self.network.precision.numbers  # the smallest chunk
        ticks = [link.latency + link.ticks_occupied(max(part, 0)) for link in links]
        return (alone + max(ticks) + min(ticks)) * (1 - 1e-12)

    def simulated(self, setting):
        """The `Plan` of a setting, from a simulation of the whole run with all bytes."""
        order = self._order(setting)
        counts, costs = self._counts_of(order.n_stages), self._costs_of(order.n_stages, setting.m)[0]
        patterns = sorted(set(patterns_of(order).values()))
        footprints = self.network.footprints(counts, setting.m, patterns)
        trace = simulate(order, costs, self.links, footprints)
        busiest = max(trace.busy_ticks())
        alone = self.alone(setting)
        makespan = float(trace.makespan)
        shares = {"computing": float(busiest) / makespan, "bubble": float(alone - busiest) / makespan,
                  "exchange": 1 - float(alone) / makespan}
        return Plan(
            setting.D, setting.K, setting.D * setting.M, setting.name, setting.mode, setting.zero, counts,
            costs, order, self.links, trace.makespan, max(trace.peak_bytes()), shares,
            self.network.accumulate, self.network.precision.name,
        )

    def _order(self, setting):
        D, K, M, _, name, mode, level = setting
        key = D, K, M, name, mode, level
        if key not in self._orders:
            order = in_copies(with_recompute(build(name, K, M), mode), D)
            if D > 1:
                order = with_all_reduce(order) if level is None else with_zero(order, level)
            self._orders[key] = order
        return self._orders[key]

    def _counts_of(self, n_stages):
        if n_stages not in self._counts:
            self._counts[n_stages] = min_max(self.sizes, n_stages)
        return self._counts[n_stages]

    def _costs_of(self, n_stages, m):
        """(Costs, F, B, W) of the stages for micro-batches of m samples."""
        if (n_stages, m) not in self._costs:
            counts = self._counts_of(n_stages)
            F = [self.cluster.seconds(m * max(macs, 1)) for macs in loads(self.macs, counts)]
            B = [2 * f for f in F]
            message_bytes = [m * self.n_bytes[end - 1] for end in accumulate(counts)]
            costs = Costs(F=F, B=B, W=F, message_bytes=message_bytes)
            costs.table([1] * len(F))
            self._costs[n_stages, m] = costs, F, B, F
        return self._costs[n_stages, m]

    def _nothing_fits(self, least, setting):
        memory = self.cluster.memory
        D, K, M, m, name, mode, _ = setting
        return (
            f"nothing fits {memory:,} bytes a device: the closest, {name} with {D} x {M} micro-batches of "
            f"{m} on {D} x {K} devices, recompute {mode}, needs {least:,} or more, {least - memory:,} too "
            "many: give each device so much, or take more devices, a smaller batch, or mixed precision"
        )
