"""What all pipelines share: a network cut into stages, on the devices of a simulated cluster."""

from ..network import Network
from ..schedules.costs import checked_costs
from ..partitioning.partition import counts_of, cut
from .program import Routes, cluster_of
from .stage import Stage


class StagedNetwork(Network):
    """A network in `n_stages` parts, each an object of class `stage_class`; a schedule is loaded, and then run."""

    stage_class = Stage

    def __init__(self, layers, loss, n_stages, seed, dtype, partition, sample, costs, link, memory_limit):
        super().__init__(layers, loss, seed, dtype)
        checked_costs(costs)
        self.n_stages = n_stages
        counts = counts_of(partition, self.layers, n_stages, sample, loss)
        parts = cut(self.layers, counts)
        costs.table(n_stages)
        self._costs, self._link, self._memory_limit = costs, link, memory_limit
        self.stages = [self.stage_class(s, part, loss if s == n_stages - 1 else None) for s, part in enumerate(parts)]
        self._copies = [self.stages]
        self._stage_of_layer = [s for s, part in enumerate(parts) for _ in part]
        self._routes = Routes(tuple(
            (name, *stages) for name, places in self.skips.items()
            if len(set(stages := [self._stage_of_layer[index] for index in places])) == 2
        ))
        self._cluster = None

    @property
    def trace(self):
        """The `Trace` of the last run, or of what has happened of it so far."""
        return self._running_cluster().trace

    def _load(self, schedule, flush=None):
        """Make a cluster that will run `schedule`; its clock is at 0."""
        self._copy_of = schedule.copy_of
        self._recomputed = {action[1:] for order in schedule.devices for action in order if action.kind == "R"}
        self._cluster = cluster_of(
            schedule, self._costs, self._link, self._perform, self._holdings_of_devices(schedule), self._memory_limit,
            self._routes, self._copies, flush,
        )

    def _running_cluster(self):
        if self._cluster is None:
            raise RuntimeError("nothing has run yet: call forward_backward(X, Y), or start(X, Y) and tick()")
        return self._cluster

    def _perform(self, parts, inputs):
        """[(outgoing, skips)] of the parts of an action, from the (incoming, skips) of each."""
        return [self._perform_part(part, *given) for part, given in zip(parts, inputs)]

    def _perform_part(self, part, incoming, skips):
        kind, stage, i = part
        stage = self._copies[self._copy_of[i] if self._copy_of else 0][stage]
        if kind == "F":
            return stage.forward(i, incoming, skips, keep_input_only=part[1:] in self._recomputed)
        if kind == "B":
            return stage.backward(i, incoming, skips)
        if kind == "I":
            return stage.backward_input(i, incoming, skips)
        if kind == "U":
            stage.update(i)
        else:
            (stage.recompute if kind == "R" else stage.backward_weight)(i)
        return None, {}

    def _holdings_of_devices(self, schedule):
        stages_of = [[] for _ in schedule.devices]
        for stages, placement in zip(self._copies, schedule.placements):
            for stage, device in zip(stages, placement):
                stages_of[device].append(stage)
        return [stages[0].holdings if len(stages) == 1 else _joined(stages) for stages in stages_of]


def _joined(stages):
    """The holdings of all stages on one device."""
    def holdings():
        held = [stage.holdings() for stage in stages]
        return {kind: [part[kind] for part in held] for kind in held[0]}

    return holdings
