"""The part of the parameters that a server has, the replica of a worker, and what they send each other."""

from typing import NamedTuple

import numpy as np

from ..collectives.group import cut_into_chunks, flattened, unflattened
from ..layers import every_layer
from ..layers.layer import commit, finite, pairs_of_layers
from ..parallel.batches import MicroBatches
from ..parallel.layout import parameters_in_parts, put_together, update_part
from ..parallel.stage import Stage
from ..sums import TreeSum
from ..ties import sum_of_tied


# What workers and servers do, as the trace calls it, and what they send.

class Gradient(NamedTuple):
    """A worker computes the gradient of a mini-batch, or of its part of it.

    batch: the number of the mini-batch.
    versions: for each server, how many updates the weights have had with which the worker computes.

    >>> print(Gradient(5, (3,)), Gradient(5, (3, 4)))
    5@3 5@3,4
    """

    batch: int
    versions: tuple

    @property
    def kind(self):
        return "gradient"

    def __str__(self):
        return f"{self.batch}@{','.join(map(str, self.versions))}"


class Update(NamedTuple):
    """A server changes its part of the weights.

    number: of this update, from 1 on; the weights have had that many updates then.
    batch: the number of the mini-batch.
    workers: those whose gradients count.
    read: how many updates the weights had had with which these gradients were computed.

    >>> update = Update(number=5, batch=4, workers=(2,), read=3)
    >>> print(update, update.staleness)
    u5 1
    """

    number: int
    batch: int
    workers: tuple
    read: int

    @property
    def kind(self):
        return "U"

    @property
    def staleness(self):
        """How many updates there were between the weights that the gradient is of and this update."""
        return self.number - 1 - self.read

    def __str__(self):
        return f"u{self.number}"


class Push(NamedTuple):
    """What a worker sends to a server.

    batch, read: the number of the mini-batch, and the version of the weights.
    terms: {node of the tree over the workers' parts: vectors}, the server's part of the gradient.
    costs, statistics: {node: term}, for server 0; None for the others.
    """

    batch: int
    read: int
    terms: dict
    costs: dict | None
    statistics: dict | None


class Answer(NamedTuple):
    """What a server sends back.

    batch: the mini-batch to go on with, None at the end. Only the one of server 0 counts.
    version, part: of the server's weights.
    """

    batch: int | None
    version: int
    part: list


class Share:
    """Server `rank` of `size`: its part of the parameters, an optimizer for it, and what has happened.

    layers: copies of the network's; the server keeps its part of their parameters up to date.
    ties: {name: the indices of the tied layers}.
    optimizer: its own.
    n_parts: the parts of each mini-batch, whose gradients make an update.
    keep_every: None; or a number of updates after which its part is kept, again and again.

    version: how many updates its part has had.
    updates, arrivals: a list of `Update`, and of the workers whose gradients came, in order.
    costs: J of each update, on server 0.
    kept: {version: vectors}.
    """

    def __init__(self, layers, ties, rank, size, optimizer, n_parts, keep_every):
        self.layers, self.rank, self.size, self.optimizer = layers, rank, size, optimizer
        self._ties, self._n_parts, self._keep_every = ties, n_parts, keep_every
        self.version, self.updates, self.arrivals, self.costs = 0, [], [], []
        self.kept = {} if keep_every is None else {0: self._copy()}

    @property
    def part(self):
        """The server's part of the parameters: vectors, views of the arrays of `layers`."""
        return parameters_in_parts(self.layers, self.size)[self.rank]

    def label(self, pushes):
        """Return the next `Update`, from {worker: push}."""
        push = next(iter(pushes.values()))
        return Update(self.version + 1, push.batch, tuple(sorted(pushes)), push.read)

    def update(self, label, pushes):
        """Update the part with the gradients of {worker: push}."""
        ordered = [pushes[worker] for worker in label.workers]
        self._step(self._sum([push.terms for push in ordered]))
        if self.rank == 0:
            self.costs.append(self._sum([push.costs for push in ordered]))
            counted = [push.statistics for push in ordered]
            if any(counted):
                commit(list(every_layer(self.layers)), self._sum(counted))
        self.version += 1
        self.updates.append(label)
        if self._keep_every is not None and self.version % self._keep_every == 0:
            self.kept[self.version] = self._copy()

    def _sum(self, terms):
        """Return the sum of what the workers have sent, along the tree over their parts."""
        total = TreeSum(self._n_parts)
        for pending in terms:
            total.absorb(pending)
        return total.value

    def _step(self, gradient):
        if self.size > 1:
            update_part(self.optimizer, self.layers, gradient, self.rank, self.size)
            return
        gradients = unflattened(gradient, pairs_of_layers(self.layers))
        for indices in self._ties.values():
            total = sum_of_tied([gradients[index][0] for index in indices])
            for index in indices:
                gradients[index] = total, gradients[index][1]
        self.optimizer.update(self.layers, gradients)

    def _copy(self):
        return [vector.copy() for vector in self.part]


def counted_places(layers):
    """Return [(layer, name)] of each array that layers have counted, such as a running mean."""
    return [
        (layer, name) for layer in every_layer(layers) for name in layer.arrays if name not in ("W", "b")
    ]


class Replica:
    """A copy of the network that computes gradients of mini-batches.

    layers, loss: its own.
    batches: the mini-batches, a list of (X, Y).
    n_parts: how many parts each is cut into.
    part: the number of the part that this worker works on.
    n_servers: how many chunks the gradient is sent in.
    step: the updates before mini-batch 0.
    """

    def __init__(self, layers, loss, batches, n_parts, part, servers, step):
        self._stage = Stage(0, layers, loss)
        self._batches, self._n_parts, self._part = batches, n_parts, part
        self._n_servers, self._step = servers, step

    def take(self, parts):
        """Go on with these weights. parts: for each server its vectors."""
        put_together(self._stage.layers, parts)

    def gradient(self, number, versions):
        """Return for each server its `Push` of mini-batch `number`.

        Every gradient carries the 1/m of the whole mini-batch, so that those of its parts add up.
        """
        stage, i = self._stage, self._part
        line = MicroBatches([self._batches[number]], self._n_parts, self._step + number)
        stage.begin(line)
        stage.forward(i, line.take_inputs(i), {})
        stage.backward(i, None, {})
        costs, statistics = stage.totals.pending(0)
        for J in costs.values():
            finite(stage.loss, np.asarray(J), "the cost")
        chunks = [{} for _ in range(self._n_servers)]
        for node, term in stage.totals.gradients(0).pending.items():
            vectors = flattened([pair for _, pair in sorted(term.items())])
            for chunk, part in zip(chunks, cut_into_chunks(vectors, self._n_servers), strict=True):
                chunk[node] = part
        extra = [(costs, statistics), *[(None, None)] * (self._n_servers - 1)]
        return [
            Push(number, version, chunk, *more)
            for version, chunk, more in zip(versions, chunks, extra, strict=True)
        ]
