"""The pipeline: a network cut into stages, run by a schedule on a cluster."""

import copy
import math

import numpy as np

from ..cluster import Buffers, Link, links_between
from ..functions import whole_number
from ..network import Network
from ..optimizers import checked_optimizer
from ..partitioning.partition import counts_of, cut
from ..schedules import Costs
from ..schedules.costs import checked_costs
from .batches import MicroBatches
from .closing import Tied
from .every_sqrt import EVERY_SQRT, every_sqrt
from .orders import checked_order, updates_at_the_end

from .run import Run
from .stage import Stage
from .wires import Wires


class Pipeline(Network):
    """A drop-in for `Sequential` that trains on simulated devices.

    layers, loss, seed, dtype: as for `Sequential`.
    n_stages: K, the parts that the layers are cut into.
    n_microbatches: M, the parts that each mini-batch is cut into, ragged ones if need be.
    schedule: one of the names in `minipipe.schedules.BUILDERS` or `ASYNCHRONOUS`; a `Schedule`; or a function
        (n_stages, number of micro-batches) -> `Schedule`.
    recompute: True or "always", keep only each stage's input and compute its forward again before the backward; "except_last",
        for all but the last micro-batch; "sqrt", always, but keep an input for every sqrt(L) of a stage's L layers: each stage
        then becomes about sqrt(L) stages on one device, which share its costs.
    partition: a list with the number of layers of each stage; left out, as equal as can be; "parameters", or "macs", "bytes",
        "time" or a function, to balance that, see `partition`.
    sample: a micro-batch (X, Y), for all of these but "parameters".
    costs, link: the ticks of the actions and of the messages.
    memory_limit: bytes per device, past which a run stops with `MemoryLimitError`.
    optimizer: for an order that updates the stages itself, by `U`: each stage gets a copy of it.

    `forward_backward(X, Y)` runs a mini-batch to its end; `start(X, Y)` and `tick()` run it tick by tick. Then J,
    `gradients` and `trace` are those of that run. Every forward and backward of a mini-batch uses the same
    parameters; only `step(optimizer)`, or the order's own updates at its end, change them. Wrong arguments and data raise
    `ValueError` at once, a schedule with faults `ScheduleError`. Source: Huang et al. 2018, arXiv 1811.06965.

    `train(batches)` runs a list of mini-batches, with an update after each: one after another or, with an asynchronous schedule,
    one behind another, without ever waiting for the last of one before the next begins. The schedule's `versions` then say at
    which weights a gradient is computed; a stage keeps each version as long as a micro-batch needs it. A run that fails leaves
    the parameters as they were.

    >>> from minipipe.layers import Linear, ReLU
    >>> from minipipe.losses import MeanSquaredError
    >>> layers = [Linear(2, 4), ReLU(), Linear(4, 1)]
    >>> pipe = Pipeline(layers, MeanSquaredError(), n_stages=3, n_microbatches=2)
    >>> X, Y = np.array([[1.0, 2.0, 3.0], [0.0, 1.0, 0.0]]), np.array([[1.0, 0.0, 1.0]])
    >>> J = pipe.forward_backward(X, Y)
    >>> pipe.trace.makespan, [dW.shape for dW, db in pipe.gradients if dW is not None]
    (12, [(4, 2), (1, 4)])
    """

    def __init__(self, layers, loss, n_stages, n_microbatches, schedule="gpipe", recompute=False, seed=0,
                 dtype=np.float64, partition=None, sample=None, costs=Costs(), link=Link(), memory_limit=None, optimizer=None):
        n_stages, n_microbatches = whole_number("n_stages", n_stages), whole_number("n_microbatches", n_microbatches)
        super().__init__(layers, loss, seed, dtype)
        checked_costs(costs)
        counts = counts_of(partition, self.layers, n_stages, sample, loss)
        self.schedule, self._stream = checked_order(schedule, n_stages, n_microbatches, recompute)
        if recompute == EVERY_SQRT:
            self.schedule, counts, costs = every_sqrt(self.schedule, counts, costs)
        costs.table(self.schedule.n_stages)
        self.n_stages, self.n_microbatches = self.schedule.n_stages, n_microbatches
        parts = cut(self.layers, counts)
        links_between(link, len(self.schedule.devices))
        self._costs, self._link, self._memory_limit = costs, link, memory_limit
        self.stages = [Stage(s, part, loss if s == self.n_stages - 1 else None) for s, part in enumerate(parts)]
        self._stage_of = [(s, index) for s, part in enumerate(parts) for index in range(len(part))]  # and where it is there
        self._tied = {name: [Tied(layer, *self._stage_of[layer]) for layer in layers] for name, layers in self.ties.items()}
        self._optimizers = self._one_for_each_stage(optimizer)
        self._wires = self._run = None
        self._memory_of = {}  # kind of a run -> what the first of its kind has held

    def _one_for_each_stage(self, optimizer):
        """Copies of `optimizer`, if the order updates the stages; None if it does not."""
        name = self.schedule.name
        if "U" not in self.schedule.kinds:
            if optimizer is not None:
                raise ValueError(f"the order of {name!r} has no U for an optimizer: hand it to step(optimizer)")
            return None
        if optimizer is None:
            raise ValueError(f"the order of {name!r} updates the stages: pass optimizer=..., such as SGD(learning_rate=0.1)")
        if self.ties and (self._stream is not None or not updates_at_the_end(self.schedule)):
            raise ValueError(
                f"tie={next(iter(self.ties))!r}: tied weights need a flush, which the order of {name!r} does not have on each "
                "device: put all its U behind all other actions"
            )
        return [copy.deepcopy(checked_optimizer(optimizer)) for _ in self.stages]

    def forward_backward(self, X, Y):
        """The cost J of the mini-batch X (n[0], m), Y (n[L], m); the gradients are then in `gradients`."""
        self._finish_run(self._order_of_one(), self._checked_batches([(X, Y)]))
        return self.J

    def start(self, X, Y):
        """Load a mini-batch, and leave the clock at tick 0; `tick` goes on from there."""
        self._load(self._order_of_one(), self._checked_batches([(X, Y)]))

    def tick(self):
        """Move every device by one tick; returns whether the mini-batch needs more of them.

        After the last tick, J, gradients and trace are those that `forward_backward` would have left.
        """
        unfinished = self._loaded_run().tick()
        if not unfinished:
            self._commit()
        return unfinished

    def train(self, batches):
        """The costs of the mini-batches `batches`, a list of (X, Y), with an update by the pipeline's optimizer after each.

        With an asynchronous schedule they go through the pipeline one behind another. Raises `FloatingPointError` if a cost is
        not finite; the parameters are then those before that run.
        """
        if self._optimizers is None:
            raise ValueError(f"the order of {self.schedule.name!r} has no U: pass an optimizer, or use forward_backward and step")
        batches = self._checked_batches(batches)
        if self._stream is None:
            costs = []
            for batch in batches:
                self._finish_run(self.schedule, [batch])
                costs.append(self.J)
            return costs
        self.schedule = self._stream(len(batches))
        self._finish_run(self.schedule, batches)
        return self.stages[-1].costs

    def step(self, optimizer):
        """One update of all parameters by `optimizer`, with the current gradients; what it keeps for them lies with their stages."""
        checked_optimizer(optimizer)
        if self._optimizers is not None:
            raise RuntimeError(f"the order of {self.schedule.name!r} updates the stages itself: a step would be a second update")
        super().step(optimizer)
        first = 0
        for stage in self.stages:
            stage.keep_optimizer_state(optimizer.memory_of(range(first, first + len(stage.layers))))
            first += len(stage.layers)

    @property
    def J(self):
        """The cost of the mini-batch that was run last."""
        self._loaded_run().check()
        last = self.stages[-1]
        return last.costs[-1] if last.costs else last.cost()

    @property
    def gradients(self):
        """A list over the layers of `(dW, db)`, summed over the micro-batches of the last mini-batch."""
        if self._gradients is None:
            self._loaded_run().check()
            if self._optimizers is not None:
                raise RuntimeError(f"the updates in the order of {self.schedule.name!r} have used the gradients up")
            self._gradients = [pair for stage in self.stages for pair in stage.gradients()]
        return self._gradients

    @property
    def trace(self):
        """The `Trace` of the last run, or of what has happened of it so far."""
        return self._loaded_run().cluster.trace

    def __repr__(self):
        return f"Pipeline({self.stages}, {self.loss}, schedule={self.schedule.name!r}, n_microbatches={self.n_microbatches})"

    def _order_of_one(self):
        if self._stream is not None:
            raise ValueError(f"the schedule {self.schedule.name!r} updates weights under way: use train([(X, Y), ...])")
        return self.schedule

    def _checked_batches(self, batches):
        batches = list(batches)
        if not all(isinstance(batch, (tuple, list)) and len(batch) == 2 for batch in batches):
            raise ValueError("batches must be a list of pairs (X, Y), even for one mini-batch: [(X, Y)]")
        batches = [self.checked_batch(X, Y) for X, Y in batches]
        if not batches:
            raise ValueError("0 mini-batches: pass a list of at least 1 pair (X, Y)")
        smallest = min(X.shape[-1] for X, _ in batches)
        if self.n_microbatches > smallest:
            raise ValueError(
                f"n_microbatches={self.n_microbatches} exceeds the batch of m={smallest} samples: "
                f"use at most {smallest}, or a larger batch"
            )
        return batches

    def _finish_run(self, order, batches):
        """Load mini-batches and run them to their end.

        What is held depends on shapes alone. So it is counted in the first run of its kind, and taken from there in the others;
        with a memory limit, it is always counted.
        """
        arrays = [(array.shape, array.dtype) for batch in batches for array in batch]
        between_runs = [sum(Buffers([stage.weights(), stage.optimizer_state()]).values()) for stage in self.stages]
        kind = order.n_microbatches, *arrays, *between_runs
        self._load(order, batches, self._memory_of.get(kind))
        self._run.to_the_end()
        self._memory_of[kind] = self._run.cluster.memory
        self._commit()

    def _load(self, order, batches, memory=None):
        """Make a run of `order`, with its clock at 0."""
        self._gradients, self._committed, self._run = None, False, None
        if self._wires is None or self._wires.schedule is not order:
            self._wires = Wires(order, self._skips_across_stages())
        line = MicroBatches(batches, self.n_microbatches, self.n_steps)
        self._run = Run(
            order, self._wires, self.stages, line, self._optimizers, self._tied, self._costs, self._link, self._memory_limit,
            None if self._memory_limit is not None else memory,
        )

    def _commit(self):
        """Once for each run that came to its end: what it has found reaches the layers."""
        if self._committed:
            return
        if self._optimizers is None:
            for stage in self.stages:
                stage.commit()
        else:
            costs = self.stages[-1].costs
            if not all(map(math.isfinite, costs)):
                self._run.restore()
                raise FloatingPointError(
                    f"the costs became {costs}: the parameters are those before; try a lower learning_rate"
                )
            self._optimizers = [stage.optimizer for stage in self.stages]
            self.n_steps += len(costs)
        self._committed = True

    def _loaded_run(self):
        if self._run is None:
            raise RuntimeError("nothing has run yet: call forward_backward(X, Y), or start(X, Y) and tick()")
        return self._run

    def _skips_across_stages(self):
        """(name, stage of its Fork, stage of its Join) of the skip connections from one stage to another."""
        ends = [(name, *(self._stage_of[index][0] for index in layers)) for name, layers in self.skips.items()]
        return [(name, begin, end) for name, begin, end in ends if begin != end]
