"""What a candidate of a plan takes: bounds of it, and a simulation of its whole run."""

from dataclasses import replace
from functools import cache
from itertools import accumulate

from ..arguments import argument
from ..checks import listed
from ..cluster import Link
from ..description import parameters_of_layers, weights_of_layers
from ..order import Costs, in_copies, with_all_reduce, with_recompute, with_zero
from ..order.rules import FORWARD, INPUT, RULES
from ..order.simulate import simulate
from ..parallel.splitting import Shard
from ..partitioning import costs_of_layers, loads, min_max
from ..schedules import build, data_parallel
from .exposed import least_with_buckets
from .foresight import patterns_of
from .one_microbatch import numbers_kept
from .plans import Plan
from .rehearsal import rehearse, without_arrays


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
        """(multiply-accumulates, parameters) of each layer on the first of T shards, which has the most.

        Its multiply-accumulates are the layer's in proportion to the weights W that it holds.
        """
        macs, parameters = [row.macs for row in self._rows], [row.parameters for row in self._rows]
        if T == 1:
            return macs, parameters
        shard = Shard(without_arrays(self.layers, self.network.dtype), self.loss, 0, T)
        whole = weights_of_layers(self.layers)
        held = [sum(weights_of_layers(parts)) for parts in shard.layers]
        macs = [n * part // all_ if all_ else n for n, part, all_ in zip(macs, held, whole)]
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
