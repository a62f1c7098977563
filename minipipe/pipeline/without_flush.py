"""Pipelines without a flush, under a name of their own."""

import numpy as np

from ..cluster import Link
from ..optimizers import checked_optimizer
from ..schedules import Costs, names_having
from .pipeline import Pipeline


class AsynchronousPipeline(Pipeline):
    """A `Pipeline` without a flush: no mini-batch waits until the one before has left, as in PipeDream.

    It differs from other pipelines in its order alone; its arguments begin with those that it always needs.

    layers, loss, n_stages: as for `Pipeline`.
    optimizer: each stage gets a copy of it.
    schedule: "pipedream", "pipedream-vertical" or "pipedream-2bw"; or a function (n_stages, number of
        micro-batches in the stream) -> `Schedule` with an update after the last backward of each mini-batch.
    n_microbatches: the parts of each mini-batch, for which one update is made: 1 for PipeDream, at least
        K for PipeDream-2BW.
    seed, dtype, partition, sample, costs, link, memory_limit, accumulate: as for `Pipeline`.

    `train(batches)` runs a list of mini-batches through the pipeline, and returns their costs. The update
    rules are in the docstrings of `minipipe.schedules.pipedream` and `pipedream_2bw`. Tied weights are
    refused: they would need a flush.

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

    def __init__(
        self, layers, loss, n_stages, optimizer, schedule="pipedream", n_microbatches=1, seed=0,
        dtype=np.float64, partition=None, sample=None, costs=Costs(), link=Link(), memory_limit=None,
        accumulate="tree",
    ):
        names = names_having(flush=False)
        if isinstance(schedule, str) and schedule not in names:
            raise ValueError(
                f"schedule={schedule!r} is not asynchronous: use one of {', '.join(names)}, or a Pipeline"
            )
        super().__init__(
            layers, loss, n_stages, n_microbatches, schedule, seed=seed, dtype=dtype, partition=partition,
            sample=sample, costs=costs, link=link, memory_limit=memory_limit,
            optimizer=checked_optimizer(optimizer), accumulate=accumulate,
        )
