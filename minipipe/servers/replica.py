"""A worker's copy of the network."""

import numpy as np

from ..collectives.group import cut, flattened
from ..layers.layer import finite
from ..parallel.batches import MicroBatches
from ..parallel.own_part import put_together
from ..parallel.stage import Stage
from .share import Push


class Replica:
    """A copy of the network that computes gradients of mini-batches.

    layers, loss: its own.
    batches: the mini-batches, a list of (X, Y).
    n_microbatches: the parts of each, M.
    run: the range of those that this worker works on.
    n_servers: how many parts the gradient is sent in.
    step: the updates before mini-batch 0.
    """

    def __init__(self, layers, loss, batches, n_microbatches, run, n_servers, step):
        self._stage = Stage(0, layers, loss)
        self._batches, self._n, self._run = batches, n_microbatches, run
        self._size, self._step = n_servers, step

    def take(self, parts):
        """Go on with these weights. parts: for each server its vectors."""
        put_together(self._stage.layers, parts)

    def gradient(self, number, versions):
        """For each server its `Push` of mini-batch `number`.

        Every gradient carries the 1/m of the whole mini-batch, so that those of its parts add up.
        """
        X, Y = self._batches[number]
        stage, line = self._stage, MicroBatches([(X, Y)], self._n, self._step + number)
        stage.begin(line)
        for i in self._run:
            stage.forward(i, line.take_inputs(i), {})
            stage.backward(i, None, {})
        costs, statistics = stage.totals.pending(0)
        for J in costs.values():
            finite(stage.loss, np.asarray(J), "the cost")
        chunks = [{} for _ in range(self._size)]
        for node, term in stage.totals.gradients(0).pending.items():
            vectors = flattened([pair for _, pair in sorted(term.items())])
            for chunk, part in zip(chunks, cut(vectors, self._size), strict=True):
                chunk[node] = part
        m_here = sum(line.labels[i].shape[-1] for i in self._run)
        extra = [(costs, statistics), *[(None, None)] * (self._size - 1)]
        return [
            Push(number, version, chunk, m_here, *more)
            for version, chunk, more in zip(versions, chunks, extra, strict=True)
        ]
