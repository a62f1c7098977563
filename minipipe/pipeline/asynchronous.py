"""Pipelines without a flush: each stage updates its weights as soon as it has a gradient, and keeps older versions."""

import copy
import math
from itertools import zip_longest

import numpy as np

from ..cluster import Link, Links
from ..functions import whole_number
from ..network import commit
from ..optimizers import checked_optimizer
from ..schedules import ASYNCHRONOUS, Costs, pipedream_2bw
from ..schedules.counting import check_versions, updates
from .batches import Stream
from .stage import Stage
from .staged import StagedNetwork
from ..sums import SumForEach
from .versions import Versions


class VersionedStage(Stage):
    """A stage that keeps several versions of its parameters, and updates them itself.

    `versions[v]` are the parameters after v updates of this run, a list of one array for each (layer, name) in `places`.
    """

    def begin_stream(self, stream, wanted, optimizer):
        """Start a run over a `Stream`; micro-batch i uses version `wanted[i]`."""
        n = len(wanted)
        self.begin(n, stream)
        self.gradient_sum, self.cost_sum, self.statistics_sum = (SumForEach(stream.n) for _ in range(3))
        self.optimizer, self.costs = optimizer, []
        self.places = [(layer, name) for layer in self._everyone for name in layer.arrays]
        self._first = [getattr(layer, name) for layer, name in self.places]
        self.versions = Versions(wanted, self._first)

    def forward(self, i, A_prev, skips, keep_input_only=False):
        self._use(self.versions.of(i))
        return super().forward(i, A_prev, skips, keep_input_only)

    def recompute(self, i):
        self._use(self.versions.of(i))
        super().recompute(i)

    def backward(self, i, dA, skips):
        self._use(self.versions.of(i))
        results = super().backward(i, dA, skips)
        self.versions.used_by(i)
        return results

    def backward_input(self, i, dA, skips):
        self._use(self.versions.of(i))
        return super().backward_input(i, dA, skips)

    def backward_weight(self, i):
        self._use(self.versions.of(i))
        super().backward_weight(i)
        self.versions.used_by(i)

    def update(self, i):
        """Make the next version from the newest one and the gradients of the mini-batch whose last part is i."""
        self._use(self.versions[self.versions.newest])
        for layer, name in self.places:
            if getattr(layer, name) is not None:
                setattr(layer, name, np.array(getattr(layer, name)))
        self.optimizer.update(self.layers, self.gradient_sum.pop(i))
        commit(self._everyone, self.statistics_sum.pop(i))
        if self.loss is not None:
            self.costs.append(self.cost_sum.pop(i))
        self.versions.add([getattr(layer, name) for layer, name in self.places])
        self._count_sums()

    def restore(self):
        """The parameters as they were before this run."""
        self._use(self._first)

    def holdings(self):
        versions, state = self.versions, self.optimizer.memory_of(range(len(self.layers)))
        return super().holdings() | {
            "parameters": versions[versions.newest], "optimizer state": state, "weight versions": versions.older,
        }

    def _use(self, arrays):
        for (layer, name), array in zip(self.places, arrays, strict=True):
            setattr(layer, name, array)


class AsynchronousPipeline(StagedNetwork):
    """A pipeline that trains on a stream of mini-batches without ever waiting for the last of one before the next begins.

    layers, loss, n_stages, seed, dtype, partition, sample, costs, link, memory_limit: as for `Pipeline`. optimizer: each stage gets a
    copy of it. schedule: "pipedream", "pipedream-vertical" or "pipedream-2bw"; or a function (n_stages, number of
    micro-batches in the stream) -> `Schedule` with an update after the last backward of each mini-batch. n_microbatches: the
    parts of each mini-batch, for which one update is made: 1 for PipeDream, at least K for PipeDream-2BW.

    `train(batches)` runs a list of mini-batches through the pipeline, and returns their costs. Which weights a gradient is
    computed at, is said by the schedule's `versions`; a stage keeps each version as long as a micro-batch needs it. The
    update rules are in the docstrings of `minipipe.schedules.pipedream` and `pipedream_2bw`. Tied weights are refused, since
    they would need a flush. A run that fails leaves the parameters as they were.

    >>> from minipipe.layers import Linear, Tanh
    >>> from minipipe.losses import MeanSquaredError
    >>> from minipipe.optimizers import SGD
    >>> layers = [Linear(1, 2), Tanh(), Linear(2, 1)]
    >>> pipe = AsynchronousPipeline(layers, MeanSquaredError(), 3, SGD(learning_rate=0.1))
    >>> X = np.array([[0.5, 1.0]])
    >>> costs = pipe.train([(X, X)] * 8)
    >>> len(costs), bool(costs[-1] < costs[0]), pipe.trace.makespan         # (M + K - 1)(F + B)
    (8, True, 30)
    """

    stage_class = VersionedStage

    def __init__(self, layers, loss, n_stages, optimizer, schedule="pipedream", n_microbatches=1, seed=0, dtype=np.float64,
                 partition=None, sample=None, costs=Costs(), link=Link(), memory_limit=None):
        super().__init__(layers, loss, whole_number("n_stages", n_stages), seed, dtype, partition, sample, costs, link, memory_limit)
        if self.ties:
            raise ValueError(f"tie={next(iter(self.ties))!r}: tied weights need a flush, which an asynchronous pipeline does not have")
        self.n_microbatches = whole_number("n_microbatches", n_microbatches)
        self._build = _checked_builder(schedule, self.n_microbatches)
        self._checked_schedule(n_batches=1)
        Links(link, n_stages)
        self._optimizers = [copy.deepcopy(checked_optimizer(optimizer)) for _ in self.stages]

    def train(self, batches):
        """The costs of the mini-batches `batches`, a list of (X, Y), which go through the pipeline one behind another.

        Afterwards every stage has made one update for each. Raises `FloatingPointError` if a cost is not finite.
        """
        batches = list(batches)
        if not all(isinstance(batch, (tuple, list)) and len(batch) == 2 for batch in batches):
            raise ValueError("batches must be a list of pairs (X, Y), even for one mini-batch: [(X, Y)]")
        batches = [self.checked_batch(X, Y) for X, Y in batches]
        if not batches:
            raise ValueError("0 mini-batches: pass a list of at least 1 pair (X, Y)")
        smallest = min(X.shape[-1] for X, _ in batches)
        if smallest < self.n_microbatches:
            raise ValueError(f"n_microbatches={self.n_microbatches} exceeds a mini-batch of m={smallest} samples: use at most {smallest}")
        self.schedule = self._checked_schedule(len(batches))
        stream = Stream(batches, self.n_microbatches, self.n_steps)
        for stage, optimizer in zip(self.stages, self._optimizers):
            stage.begin_stream(stream, self.schedule.versions[stage.index], copy.deepcopy(optimizer))
        self._load(self.schedule)
        try:
            self._cluster.run()
            costs = self.stages[-1].costs
            if not all(map(math.isfinite, costs)):
                raise FloatingPointError(f"the costs became {costs}: the parameters are those before; try a lower learning_rate")
        except BaseException:
            for stage in self.stages:
                stage.restore()
            raise
        self._optimizers = [stage.optimizer for stage in self.stages]
        self.n_steps += len(batches)
        return costs

    def _checked_schedule(self, n_batches):
        n = self.n_microbatches
        schedule, asked = self._build(self.n_stages, n_batches * n), (self.n_stages, n_batches * n)
        sizes = schedule.n_stages, schedule.n_microbatches
        if sizes != asked or schedule.n_copies > 1:
            raise ValueError(
                f"the schedule {schedule.name!r} has {sizes[0]} stages, {sizes[1]} micro-batches and copies of the network: "
                f"{schedule.n_copies}; make it with {asked[0]}, {asked[1]} and 1"
            )
        schedule.validate()
        applied = [[] for _ in range(self.n_stages)]
        for _, stage, _, microbatches in updates(schedule):
            applied[stage].append(sorted(microbatches))
        mini_batches = [list(range(start, start + n)) for start in range(0, asked[1], n)]
        for stage, found in enumerate(applied):
            for number, (update, mini_batch) in enumerate(zip_longest(found, mini_batches, fillvalue=[])):
                if update != mini_batch:
                    raise ValueError(
                        f"the schedule {schedule.name!r} applies micro-batches {update} in update {number} of stage {stage}, but mini-batch "
                        f"{number} is {mini_batch}: put one U behind the last backward of each"
                    )
        check_versions(schedule)
        return schedule


def _checked_builder(schedule, per_update):
    """A function (n_stages, micro-batches of the stream) -> Schedule."""
    if callable(schedule):
        return schedule
    if schedule not in ASYNCHRONOUS:
        raise ValueError(f"schedule={schedule!r} is not asynchronous: use one of {', '.join(ASYNCHRONOUS)}, or a Pipeline")
    if schedule == "pipedream-2bw":
        return lambda n_stages, n_microbatches: pipedream_2bw(n_stages, n_microbatches, per_update)
    if per_update != 1:
        raise ValueError(f"n_microbatches={per_update}: {schedule!r} makes an update after each, so use 1; or 'pipedream-2bw'")
    return ASYNCHRONOUS[schedule]
