"""A worker's copy of the network."""

import numpy as np

from ...collectives.vectors import cut, flattened
from ...functions import even_slices
from ...layers.layer import finite
from ...pipeline import Stage
from ...pipeline.batches import Origin
from ...pipeline.own_part import put_together
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
        m, stage, parts = X.shape[-1], self._stage, even_slices(X.shape[-1], self._n)
        stage.begin(self._n)
        for i in self._run:
            origin = Origin(m, self._step + number, parts[i].start)
            X_i, Y_i = X[..., parts[i]].copy(), Y[..., parts[i]].copy()
            stage.forward(i, X_i, {}, origin, Y_i)
            stage.backward(i, None, {})
        costs, statistics = stage.totals.pending(0)
        for J in costs.values():
            finite(stage.loss, np.asarray(J), "the cost")
        chunks = [{} for _ in range(self._size)]
        for node, term in stage.totals.gradients(0).pending.items():
            vectors = flattened([pair for _, pair in sorted(term.items())])
            for chunk, part in zip(chunks, cut(vectors, self._size), strict=True):
                chunk[node] = part
        m_here = sum(parts[i].stop - parts[i].start for i in self._run)
        extra = [(costs, statistics), *[(None, None)] * (self._size - 1)]
        return [
            Push(number, version, chunk, m_here, *more)
            for version, chunk, more in zip(versions, chunks, extra, strict=True)
        ]
