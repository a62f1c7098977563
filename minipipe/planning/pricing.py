"""What a candidate of a plan takes: bounds of it, and a simulation of its whole run. And the plans found."""

from dataclasses import replace
from functools import cache
from itertools import accumulate
from typing import NamedTuple

from ..arguments import argument
from ..checks import listed
from ..cluster import Link
from ..description import parameters_of_layers
from ..order import Costs, Schedule, in_copies, with_all_reduce, with_recompute, with_zero
from ..order.actions import FORWARD, INPUT, RULES
from ..order.simulate import simulate
from ..parallel import Parallel
from ..parallel.options import Cut, Machine, Split, Sums, Weights
from ..parallel.shards import macs_of_shard
from ..parallel.splitting import Shard
from ..partitioning import costs_of_layers, loads, min_max
from ..schedules import build, data_parallel
from .foresight import patterns_of
from .one_microbatch import numbers_kept
from .rehearsal import rehearse, without_arrays


# The earliest end of copies on one device each that exchange bucket by bucket.

def least_with_buckets(M, F, B, scatter, gather, zero=0):
    """A time below which the makespan cannot be.

    M: the micro-batches of a copy.
    F, B: the time of a forward and of a backward of each bucket, what is recomputed included.
    scatter, gather: for each bucket, a time below which to add its gradients up at their owners, and to hand
        its parameters round, cannot be. A device does one of these at a time, while it computes.
    zero: 0; or 1, 2 or 3, as for `with_zero`, with a prefetch of 1.

    The gradients of a bucket are there when the last backward has passed it; the last bucket comes first.
    Without ZeRO, an exchange scatters and gathers at once. With 1, all exchanges follow the last backward;
    with 2, they scatter before it, and gather behind it. With 3, each forward and backward waits for its
    parameters, which travel while the piece of work before it is done, unless that needs the same bucket.

    >>> for zero in (0, 1, 2, 3):
    ...     print(zero, least_with_buckets(1, [4, 4], [8, 8], [3, 3], [3, 3], zero))
    0 30
    1 36
    2 33
    3 33
    """
    backwards = range(len(F))[::-1]
    if zero == 3:
        return _with_gathers(M, F, B, scatter, gather)
    now = M * (sum(F) + sum(B)) - sum(B)
    sent = 0
    for bucket in backwards:
        now += B[bucket]
        if zero != 1:
            sent = max(sent, now) + scatter[bucket] + (0 if zero else gather[bucket])
    if not zero:
        return sent
    return max(sent, now) + (sum(scatter) if zero == 1 else 0) + sum(gather)


def _with_gathers(M, F, B, scatter, gather):
    """That of ZeRO-3."""
    forth = list(enumerate(F))
    pieces = (forth + list(enumerate(B))[::-1]) * M
    begin = end = sent = 0  # of the piece before, and when all is there that has travelled so far
    before = None
    for number, (bucket, ticks) in enumerate(pieces):
        there = sent = max(sent, end if bucket == before else begin) + gather[bucket]
        if number > len(pieces) - len(B):  # behind the last backward of the bucket before
            sent = max(sent, end) + scatter[before]
        begin = max(end, there)
        end, before = begin + ticks, bucket
    return max(sent, end) + scatter[before]


# What a search for the best way to train has found.

class Plan(NamedTuple):
    """A way to train on a cluster, and what a run of it takes.

    n_replicas, n_devices: D copies of the network, on so many devices each.
    n_shards: T, the devices that share the work inside each layer.
    n_microbatches: M, of the whole mini-batch.
    schedule, recompute: by name. Where a device has a whole copy, there is nothing to schedule: each of its
        micro-batches goes forward and back in turn, whatever the name.
    zero: 0; or 1, 2 or 3, where each copy updates a part of the parameters, see `with_zero`.
    partition: the number of layers of each stage.
    costs: of the stages.
    order: the `Schedule` of all devices, with the exchanges between the copies.
    links, ports: between the devices; device t of group k of copy d is number t + T (k + K d).
    makespan: of a mini-batch, in the unit of the costs.
    peak_bytes: on the device that holds most, at the start or the end of an action.
    shares: {"computing", "bubble", "exchange"}: the parts of the makespan in which the busiest device
        computes, in which it waits for others of its copy, and which the exchanges of copies and shards add.
    accumulate, precision: as in `Setting`.
    """

    n_replicas: int
    n_devices: int
    n_shards: int
    n_microbatches: int
    schedule: str
    recompute: str
    zero: int
    partition: list
    costs: Costs
    order: Schedule
    links: dict
    ports: tuple
    makespan: float
    peak_bytes: int
    shares: dict
    accumulate: str
    precision: str

    @property
    def bound_by(self):
        """What takes most of the makespan beside computing; "computing", where that is 0.9 or more of it."""
        if self.shares["computing"] >= 0.9:
            return "computing"
        return max(("bubble", "exchange"), key=self.shares.get)

    def pipeline(self, layers, loss, seed=0, dtype="float32", engine="cluster"):
        """The network that trains so; its trace has the makespan and, once updated, the peak.

        layers, loss: those that the plan was made for.
        seed, dtype: as for `Weights`.
        engine: as for `Machine`.
        """
        stages = Cut(self.partition)
        split = Split(self.n_replicas, self.n_shards, stages, self.n_microbatches, "tp-pp-dp")
        machine = Machine(engine, self.costs, self.links, self.ports)
        return Parallel(
            layers, loss, split, self.order, sums=Sums(self.accumulate), on=machine,
            weights=Weights(seed, dtype),
        )

    def __str__(self):
        zero = f", ZeRO-{self.zero}" if self.zero else ""
        copies = "1 copy" if self.n_replicas == 1 else f"{self.n_replicas} copies"
        shards = "" if self.n_shards == 1 else f", {self.n_shards} shards"
        if self.n_devices == self.n_shards and len(self.partition) > 1:
            shards += f", {len(self.partition)} buckets"
        return (
            f"{copies} on {self.n_devices} {'device' if self.n_devices == 1 else 'devices'}{shards}, "
            f"{self.n_microbatches} micro-batches, {self.schedule}, recompute {self.recompute}{zero}"
        )


class Plans(NamedTuple):
    """The plans that fit, the fastest first, and what was done to find them.

    found: a list of `Plan`s.
    n_settings: how many settings there are.
    n_too_large: those left out because a part of their bytes alone exceeds the memory.
    n_simulated: those of which a whole run was simulated.
    not_tried: sentences about what no setting has.
    """

    found: list
    n_settings: int
    n_too_large: int
    n_simulated: int
    not_tried: list

    @property
    def best(self):
        """The fastest `Plan`."""
        return self.found[0]

    def __str__(self):
        rows = ["copies  devices each  shards  stages  micro-batches  schedule     recompute  ZeRO  bound "
                "by       makespan     peak bytes"]
        for plan in self.found:
            rows.append(
                f"{plan.n_replicas:6}  {plan.n_devices:12}  {plan.n_shards:6}  {len(plan.partition):6}  "
                f"{plan.n_microbatches:13}  "
                f"{plan.schedule:<11}  {plan.recompute:<9}  {plan.zero or '-':>4}  "
                f"{plan.bound_by:<9}  {float(plan.makespan):12.6g}  {plan.peak_bytes:13,}"
            )
        n_slower = self.n_settings - self.n_too_large - self.n_simulated
        rows.append(
            f"of {self.n_settings:,} settings, {self.n_simulated:,} were simulated, {self.n_too_large:,} are "
            f"too large for the memory, and {n_slower:,} no faster by a lower bound"
        )
        return "\n".join([*rows, *(f"not tried: {sentence}" for sentence in self.not_tried)])


# What a candidate takes.

class Pricing:
    """What the candidates of a plan take; what many of them need is computed once.

    layers, loss: of the network; `network` is the same `WithoutNumbers`.
    by: what the stages are balanced by, as for `partition`.
    cluster: the `Nodes`. Device t of group k of copy d has the number t + T (k + K d).
    """

    def __init__(self, network, layers, loss, by, cluster):
        self.network, self.layers, self.loss = network, layers, loss
        self.cluster, self.links = cluster, cluster.links()
        self._sizes = costs_of_layers(layers, by, network.description.input_shape)
        self._rows = network.description.rows
        self._has_pairs = any(isinstance(part, tuple) for row in self._rows for part in row.output_shape)
        self._of_a_shard, self._cut, self._timed = map(cache, (self._of_a_shard, self._cut, self._timed))
        self._order, self._makespan = cache(_order), cache(self._makespan)
        self._links_between = cache(self._links_between)
        self._n_kept = 0 if network.optimizer is None else numbers_kept(network.optimizer)

    def bound(self, one):
        """A time below which the makespan cannot be; None if the candidate cannot be.

        The work of a stage on all micro-batches, with the shortest way of the first one there and of the last
        one back; or an even share of all work.
        """
        if one.n_stages > len(self._rows) or self._speeds(one) is None:
            return None
        costs = self.costs(one)
        in_halves = "W" in build(one.name, 2, 4).kinds
        there = back = best = total = 0
        for f, b, w in zip(costs.F, costs.B, costs.W):
            work = one.M * (f + b + (f if one.mode == "always" else 0))
            if in_halves:  # all W may come after the last gradient is sent back
                best = max(best, there + work, there + work - one.M * w + back)
                back += b - w
            else:
                best = max(best, there + work + back)
                back += b
            there, total = there + f, total + work
        return max(best, total / one.K)

    def possible_shards(self, numbers):
        """Those of the numbers of shards into which the layers can be split; `ValueError` if none is."""
        possible, refused = [], None
        for T in [argument("n_shards", T) for T in listed("n_shards", numbers)]:
            try:
                self._of_a_shard(T)
                possible.append(T)
            except ValueError as error:
                refused = error
        if not possible:
            raise refused
        return possible

    def exists(self, one):
        """Whether there is such an order."""
        try:
            self._order(one._replace(D=1, m=1, zero=0))
        except ValueError:
            return False
        return True

    def least_bytes(self, one):
        """On the fullest device, at the least.

        It has the parameters of its stages, and what the optimizer keeps; and at some time what micro-batches
        keep between their forward and their backward, a whole sum of gradients with its parameters, or all
        sums. Of what ZeRO divides, each copy has a part.
        """
        counts, precision = self.counts(one), self.network.precision
        parameters = self._parameters(one, counts)
        state = [precision.optimizer_state(n, self._n_kept * n) for n in parameters]
        kept = [0] * one.n_stages  # by a shard, it is not known before the rehearsal
        if one.T == 1:
            of_stages = self.network.kept(counts, one.m)
            kept = [of_stage.input if one.mode == "always" else of_stage.caches for of_stage in of_stages]
        for_state, for_sums, for_all = [1 if one.zero < level else one.D for level in (1, 2, 3)]
        fullest = 0
        for actions in self._order(one._replace(D=1, m=1, zero=0)).devices:
            most, stages = _most_kept(actions, kept)
            always = sum(parameters[s] // for_all + state[s] // for_state for s in stages)
            sums = sum(parameters[s] // for_sums for s in stages)
            whole = max(2 * parameters[s] - parameters[s] // for_all for s in stages)
            fullest = max(fullest, always + max(most, sums, whole))
        return fullest

    def alone(self, one):
        """A time below which the run of a copy cannot be."""
        return self._makespan(one._replace(D=1, zero=0))

    def with_exchange(self, one):
        """A bound that is closer: gradients are exchanged when they are there.

        Each device gets something from all others of its group, to add gradients up, and when parameters are
        handed round: each takes the slowest of its links. With the stages of a copy on several devices, the
        one that ends last has one exchange then; ZeRO-3 gathers parameters before the first action instead.
        """
        D, alone = one.D, self.alone(one)
        if D == 1:
            return alone
        group = range(0, self.cluster.size, one.T * one.K)
        groups, ticks = self._links_between(group), []  # of each stage
        for n_bytes in self._parameters(one, self.counts(one)):
            part = max(0, n_bytes // D - self.network.precision.numbers)  # the smallest chunk
            slowest = [max(link.latency + link.ticks_occupied(part) for link in links) for links in groups]
            ticks.append(min(slowest))
        bound = alone + 2 * min(ticks)
        if one.K == 1:
            costs = self.costs(one)
            B = [b + f * (one.mode == "always") for f, b in zip(costs.F, costs.B)]
            bound = least_with_buckets(one.M, costs.F, B, ticks, ticks, one.zero)
        return bound * (1 - 1e-12)

    def _links_between(self, group):
        """For each device of a group, the different links to it from the others."""
        return [{self.links.get((s, r), Link()) for s in group if s != r} for r in group]

    def simulated(self, one, optimizer):
        """Its `Plan`, from a simulation of the whole run with all bytes."""
        order = self._order(one._replace(m=1))
        counts, costs = self.counts(one), self.costs(one)
        found = Plan(
            one.D, one.K * one.T, one.T, one.D * one.M, one.name, one.mode, one.zero, counts, costs, order,
            self.links, self.cluster.ports, None, None, None, self.network.accumulate,
            self.network.precision.name,
        )
        if one.T == 1:
            footprints = self.network.footprints(counts, one.m, sorted(set(patterns_of(order).values())))
            trace = simulate(order, costs, self.links, footprints, ports=self.cluster.ports)
        else:
            trace = self._rehearsed(found, optimizer, one.m * one.M * one.D)
        makespan, alone = float(trace.makespan), float(self.alone(one))
        busiest = float(max(trace.busy_ticks()))
        shares = {"computing": busiest / makespan, "bubble": (alone - busiest) / makespan,
                  "exchange": 1 - alone / makespan}
        return found._replace(makespan=trace.makespan, peak_bytes=max(trace.peak_bytes()), shares=shares)

    def _rehearsed(self, found, optimizer, batch_size):
        network = self.network

        def build(layers, loss):
            return found.pipeline(layers, loss, dtype=network.dtype)

        shape = network.description.input_shape
        return rehearse(build, self.layers, self.loss, shape, batch_size, network.dtype, optimizer)

    def counts(self, one):
        """How many layers each stage has."""
        return list(self._cut(one.n_stages, self._speeds(one)))

    def costs(self, one):
        """The `Costs` of the stages for micro-batches of m samples."""
        return self._timed(one.T, one.n_stages, one.m, self._speeds(one))

    def _speeds(self, one):
        """Those of the devices that have the stages; (), if all are 1; None, if those of one stage differ."""
        speeds = self.cluster.speeds
        if not speeds:
            return ()
        of_groups = [
            {speeds[t + one.T * (k + one.K * d)] for t in range(one.T) for d in range(one.D)}
            for k in range(one.K)
        ]
        if max(map(len, of_groups)) > 1:
            return None
        if not self.exists(one):
            return None
        (placement,) = self._order(one._replace(D=1, m=1, zero=0)).placements
        return tuple(min(of_groups[k]) for k in placement)

    def _cut(self, n_stages, speeds):
        return tuple(min_max(self._sizes, n_stages, speeds or None))

    def _timed(self, T, n_stages, m, speeds):
        """A backward takes two forwards, and each half of it one."""
        counts = self._cut(n_stages, speeds)
        macs, _ = self._of_a_shard(T)
        F = [self.cluster.seconds(m * max(of_stage, 1)) for of_stage in loads(macs, counts)]
        if speeds:
            F = [f / speed for f, speed in zip(F, speeds)]
        message_bytes = [m * self._rows[end - 1].n_bytes for end in accumulate(counts)]
        costs = Costs(F=F, B=[2 * f for f in F], W=F, message_bytes=message_bytes)
        costs.table([1] * len(F))
        return costs

    def _of_a_shard(self, T):
        """(multiply-accumulates, parameters) of each layer on the first of T shards, which has the most."""
        macs, parameters = [row.macs for row in self._rows], [row.parameters for row in self._rows]
        if T == 1:
            return macs, parameters
        shard = Shard(without_arrays(self.layers, self.network.dtype), self.loss, 0, T)
        macs = macs_of_shard(self.layers, shard, macs)
        return macs, [sum(parameters_of_layers(parts)) for parts in shard.layers]

    def _parameters(self, one, counts):
        """The bytes of those of each stage, on one device."""
        return loads([self.network.precision.numbers * n for n in self._of_a_shard(one.T)[1]], counts)

    def _makespan(self, one):
        """Of one copy, without ports, and with what its first shards alone send one another."""
        order = self._order(one._replace(m=1))
        in_parts = one.T > 1 or self._has_pairs  # then less may be sent than the costs say
        links = {}
        for (r, s), link in self.links.items():
            if max(r, s) < one.T * one.K and r % one.T == s % one.T == 0:
                link = replace(link, bandwidth=float("inf")) if in_parts else link
                links[r // one.T, s // one.T] = link
        return simulate(order, self.costs(one), links).makespan


def _order(one):
    """The `Schedule` of all copies of a candidate."""
    D, _, K, M, _, name, n_stages, mode, level = one
    order = data_parallel(1, M, n_stages) if K == 1 else build(name, K, M)
    order = in_copies(with_recompute(order, mode), D)
    if D == 1:
        return order
    return with_zero(order, level) if level else with_all_reduce(order)


def _most_kept(actions, kept):
    """(the most bytes between forwards and backwards, the stages) of a device with these actions in turn.

    kept: the bytes that a micro-batch keeps there of each stage.
    """
    held = most = 0
    stages = set()
    for action in actions:
        for kind, stage, _ in action.parts:
            adds = RULES[kind].adds
            held += kept[stage] * (bool(adds & FORWARD) - bool(adds & INPUT))
            stages.add(stage)
        most = max(most, held)
    return most, stages
