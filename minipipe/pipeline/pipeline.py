"""The pipeline: a network cut into stages, run by a schedule on a cluster."""

from itertools import chain

import numpy as np

from ..cluster import Link, Links, Receive, Send
from ..functions import whole_number
from ..network import sum_of_tied
from ..optimizers import checked_optimizer
from ..schedules import Costs, Schedule, build, with_recompute
from .batches import MicroBatches
from ..partitioning.partition import counts_of
from .every_sqrt import EVERY_SQRT, every_sqrt
from .staged import StagedNetwork


class Pipeline(StagedNetwork):
    """A drop-in for `Sequential` that trains on simulated devices.

    layers, loss, seed, dtype: as for `Sequential`. n_stages: K, the parts that the layers are cut into.
    n_microbatches: M, the parts that each mini-batch is cut into, ragged ones if need be. schedule: one of
    the names in `minipipe.schedules.BUILDERS`, or a `Schedule`. recompute: True or "always", keep only
    each stage's input and compute its forward again before the backward; "except_last", for all but the last micro-batch;
    "sqrt", always, but keep an input for every sqrt(L) of a stage's L layers: each stage then becomes about sqrt(L) stages on
    one device, which share its costs.
    partition: a list with the number of layers of each stage; left out, as equal as can be; "parameters", or "macs",
    "bytes", "time" or a function, to balance that, see `partition`. sample: a micro-batch (X, Y), for all of these but
    "parameters". costs, link: the ticks of the actions and of the messages. memory_limit: bytes per device, past which a
    run stops with `MemoryLimitError`.

    `forward_backward(X, Y)` runs a mini-batch to its end; `start(X, Y)` and `tick()` run it tick by tick. Then J,
    `gradients` and `trace` are those of that run. Every forward and backward of a mini-batch uses the same
    parameters; only `step(optimizer)` changes them. Wrong arguments and data raise `ValueError` at once, a schedule
    with faults `ScheduleError`. Source: Huang et al. 2018, arXiv 1811.06965.

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
                 dtype=np.float64, partition=None, sample=None, costs=Costs(), link=Link(), memory_limit=None):
        n_stages, n_microbatches = whole_number("n_stages", n_stages), whole_number("n_microbatches", n_microbatches)
        if recompute == EVERY_SQRT:
            counts = counts_of(partition, layers, n_stages, sample, loss)
            schedule = _checked_schedule(schedule, n_stages, n_microbatches, "never")
            schedule, partition, costs = every_sqrt(schedule, counts, costs)
            n_stages, recompute = schedule.n_stages, "never"
        super().__init__(layers, loss, n_stages, seed, dtype, partition, sample, costs, link, memory_limit)
        self.n_microbatches = n_microbatches
        self.schedule = _checked_schedule(schedule, n_stages, n_microbatches, recompute)
        Links(link, len(self.schedule.devices))

    def forward_backward(self, X, Y):
        """The cost J of the mini-batch X (n[0], m), Y (n[L], m); the gradients are then in `gradients`."""
        self.start(X, Y)
        self._cluster.run()
        self._commit()
        return self.J

    def start(self, X, Y):
        """Load a mini-batch, and leave the clock at tick 0; `tick` goes on from there."""
        X, Y = self.checked_batch(X, Y)
        if self.n_microbatches > X.shape[-1]:
            raise ValueError(
                f"n_microbatches={self.n_microbatches} exceeds the batch of m={X.shape[-1]} samples: "
                f"use at most {X.shape[-1]}, or a larger batch"
            )
        batch = MicroBatches(X, Y, self.n_microbatches, self.n_steps)
        self._gradients = None
        self._committed = False
        self._copies = [self.stages, *([stage.twin() for stage in self.stages] for _ in range(self.schedule.n_copies - 1))]
        for stage in chain(*self._copies):
            stage.begin(self.n_microbatches, batch)
        self._load(self.schedule, self._exchange_tied)

    def tick(self):
        """Move every device by one tick; returns whether the mini-batch needs more of them.

        After the last tick, J, gradients and trace are those that `forward_backward` would have left.
        """
        unfinished = self._running_cluster().tick()
        if not unfinished:
            self._commit()
        return unfinished

    def step(self, optimizer):
        """One update of all parameters by `optimizer`, with the current gradients; what it keeps for them lies with their stages."""
        super().step(checked_optimizer(optimizer))
        for stage in self.stages:
            first = self._stage_of_layer.index(stage.index)
            stage.keep_optimizer_state(optimizer.memory_of(range(first, first + len(stage.layers))))

    @property
    def J(self):
        """The cost of the mini-batch that was run last."""
        self._finished_cluster()
        return self.stages[-1].cost()

    @property
    def gradients(self):
        """A list over the layers of `(dW, db)`, summed over the micro-batches of the last mini-batch."""
        if self._gradients is None:
            self._finished_cluster()
            self._gradients = [pair for stage in self.stages for pair in stage.gradients()]
        return self._gradients

    def __repr__(self):
        return f"Pipeline({self.stages}, {self.loss}, schedule={self.schedule.name!r}, n_microbatches={self.n_microbatches})"

    def _finished_cluster(self):
        if self._running_cluster().failure is not None:
            raise RuntimeError(f"the mini-batch has stopped with an error ({self._cluster.failure}): start it again")
        if not self._cluster.done:
            raise RuntimeError("the mini-batch is not finished: call tick() until it returns False")

    def _commit(self):
        """Once for each mini-batch that came to its end: statistics of its micro-batches reach the layers."""
        if not self._committed:
            for stage in self.stages:
                stage.commit()
            self._committed = True

    def _exchange_tied(self, device):
        """A program: tied layers send their dW to the first of them, which sends the sum back to the others."""
        place = [self.schedule.placement[stage] for stage in self._stage_of_layer]
        for name, (first, *others) in self.ties.items():
            for layer in others:
                if place[layer] == device:
                    yield Send(f"dW of layer {layer} ({name})", self._own_dW(layer), place[first])
        for name, (first, *others) in self.ties.items():
            if place[first] == device:
                parts = [self._own_dW(first)]
                for layer in others:
                    parts.append((yield Receive(f"dW of layer {layer} ({name})", place[layer])))
                total = sum_of_tied(parts)
                self._keep_tied_sum(first, total)
                for layer in others:
                    yield Send(f"sum for layer {layer} ({name})", total, place[layer])
        for name, (first, *others) in self.ties.items():
            for layer in others:
                if place[layer] == device:
                    self._keep_tied_sum(layer, (yield Receive(f"sum for layer {layer} ({name})", place[first])))

    def _own_dW(self, layer):
        stage, place = self._stage_and_place(layer)
        return stage.gradients()[place][0]

    def _keep_tied_sum(self, layer, dW):
        stage, place = self._stage_and_place(layer)
        stage.keep_tied_sum(place, dW)

    def _stage_and_place(self, layer):
        """The stage that a layer is in, and its place there."""
        stage = self._stage_of_layer[layer]
        return self.stages[stage], layer - self._stage_of_layer.index(stage)


def _checked_schedule(schedule, n_stages, n_microbatches, recompute):
    if not isinstance(schedule, Schedule):
        schedule = build(schedule, n_stages, n_microbatches)
    if (schedule.n_stages, schedule.n_microbatches) != (n_stages, n_microbatches):
        raise ValueError(
            f"the schedule {schedule.name!r} is for {schedule.n_stages} stages and {schedule.n_microbatches} micro-batches, "
            f"but n_stages={n_stages} and n_microbatches={n_microbatches}: make them equal"
        )
    if schedule.asynchronous:
        raise ValueError(f"the schedule {schedule.name!r} updates weights under way: use an AsynchronousPipeline")
    mode = {True: "always", False: "never"}.get(recompute, recompute)
    return with_recompute(schedule, mode).validate()
