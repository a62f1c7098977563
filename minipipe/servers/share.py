"""The part of the parameters that a server has, the replica of a worker, and what they tell each other."""

from typing import NamedTuple

import numpy as np

from ..arrays import constant
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

    number: of this update, from 1 on; so many the weights have had then.
    batch: the number of the mini-batch.
    workers: those whose gradients count.
    read: how many updates the weights had had with which these gradients were computed.
    onto: how many updates the numbers had had that it was added to: all before, unless there is no lock.
    lost: the numbers of the updates since then that have changed the same numbers, which it undoes.

    >>> update = Update(number=5, batch=4, workers=(2,), read=3, onto=4)
    >>> print(update, update.staleness)
    u5 1
    """

    number: int
    batch: int
    workers: tuple
    read: int
    onto: int
    lost: tuple = ()

    @property
    def kind(self):
        return "U"

    @property
    def staleness(self):
        """How many updates there were between the weights that the gradient is of and this update."""
        return self.number - 1 - self.read

    def __str__(self):
        return f"u{self.number}"


class Late(NamedTuple):
    """A gradient that came too late, and was thrown away: of which worker, mini-batch and version."""

    worker: int
    batch: int
    read: int


class Push(NamedTuple):
    """What a worker sends to a server.

    batch, read: the number of the mini-batch, and the version of the weights.
    terms: {node of the tree over micro-batches: vectors}, the server's part of the gradient.
    m: the samples that they are of.
    costs, statistics: {node: term}, for server 0; None for the others.
    """

    batch: int
    read: int
    terms: dict
    m: int
    costs: dict | None
    statistics: dict | None


class Answer(NamedTuple):
    """What a server sends back: the mini-batch to go on with, None at the end; its weights and their version.

    Only server 0 hands out mini-batches.
    """

    batch: int | None
    version: int
    part: list


class Share:
    """Server `rank` of `size`: its part of the parameters, an optimizer for it, and what has happened.

    layers: the network's, copies; of their parameters the server keeps its part up to date.
    ties: {name: the indices of the tied layers}.
    optimizer: its own.
    n_microbatches: the parts of each mini-batch.
    compensation: lambda of `compensated`.
    keep_every: None; or a number of updates after which its part is kept, again and again.

    version: how many updates its part has had.
    updates, late, arrivals: a list of `Update`, of `Late`, and of the workers whose gradients came, in order.
    costs: J of each update, on server 0.
    kept: {version: vectors}.
    """

    def __init__(self, layers, ties, rank, size, optimizer, n_microbatches, compensation, keep_every):
        self.layers, self.rank, self.size, self.optimizer = layers, rank, size, optimizer
        self._ties, self._n, self._compensation = ties, n_microbatches, compensation
        self._keep_every, self._first, self._read = keep_every, self._copy(), {}
        self.version, self.updates, self.late, self.arrivals, self.costs = 0, [], [], [], []
        self.kept = {} if keep_every is None else {0: self._first}

    @property
    def part(self):
        """The server's part of the parameters: vectors, views of the arrays of `layers`."""
        return parameters_in_parts(self.layers, self.size)[self.rank]

    @property
    def memory(self):
        """What its optimizer remembers for its part."""
        return self.optimizer.memory

    @property
    def counted(self):
        """What the layers have counted, such as running means: a list of arrays."""
        return [getattr(*place) for place in counted_places(self.layers)]

    def remember(self, worker):
        """This worker goes on with the weights as they are now."""
        if self._compensation:
            self._read[worker] = self._copy()

    def drop(self, worker, push):
        """Throw a late gradient away."""
        self.late.append(Late(worker, push.batch, push.read))

    def label(self, pushes):
        """The next update, from {worker: push}."""
        push = next(iter(pushes.values()))
        return Update(self.version + 1, push.batch, tuple(sorted(pushes)), push.read, self.version)

    def update(self, label, pushes, m=None):
        """One update by the gradients of {worker: push}.

        m: if some workers are missing, the samples of the whole mini-batch, of which only a part counts.
        """
        ordered = [pushes[worker] for worker in label.workers]
        gradient = self._sum([push.terms for push in ordered], m is None)
        if m is not None:
            m_here = sum(push.m for push in ordered)
            gradient = [vector * constant(m, vector) / constant(m_here, vector) for vector in gradient]
        if self._compensation:
            worker, = label.workers
            read = self._read.get(worker, self._first)
            gradient = compensated(gradient, self.part, read, self._compensation)
        self._step(gradient)
        if self.rank == 0:
            J = self._sum([push.costs for push in ordered], m is None)
            self.costs.append(J if m is None else J * m / m_here)
            counted = [push.statistics for push in ordered]
            if any(counted):
                commit(list(every_layer(self.layers)), self._sum(counted, m is None))
        self.count(label)

    def count(self, label):
        """An update has been made."""
        self.version += 1
        self.updates.append(label)
        if self._keep_every is not None and self.version % self._keep_every == 0:
            self.kept[self.version] = self._copy()

    def _sum(self, terms, is_complete):
        """The sum of what is pending in the trees of several workers.

        If micro-batches are missing, the tree is one over what is there.
        """
        if is_complete:
            total = TreeSum(self._n)
            for pending in terms:
                total.absorb(pending)
            return total.value
        found = [pending[node] for pending in terms for node in sorted(pending)]
        total = TreeSum(len(found))
        for place, term in enumerate(found):
            total.add(place, term)
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
    """(layer, name) of each array of these layers that is no parameter, such as a running mean."""
    return [
        (layer, name) for layer in every_layer(layers) for name in layer.arrays if name not in ("W", "b")
    ]


def compensated(gradient, now, read, factor):
    """g + lambda * g * g * (w - w_read), number by number: a guess of the gradient at w, from that at w_read.

    gradient, now, read: lists of vectors; w is what the server has now, w_read what the worker had.
    factor: lambda; 0 leaves g as it is.

    It is the first-order Taylor step with g g^T in the place of the Hessian, and of that the diagonal alone.
    Source: Zheng et al. 2016, arXiv 1609.08326, equation 10.
    """
    return [
        g + constant(factor, g) * g * g * (w - w_read)
        for g, w, w_read in zip(gradient, now, read, strict=True)
    ]


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
            for chunk, part in zip(chunks, cut_into_chunks(vectors, self._size), strict=True):
                chunk[node] = part
        m_here = sum(line.labels[i].shape[-1] for i in self._run)
        extra = [(costs, statistics), *[(None, None)] * (self._size - 1)]
        return [
            Push(number, version, chunk, m_here, *more)
            for version, chunk, more in zip(versions, chunks, extra, strict=True)
        ]
