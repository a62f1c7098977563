"""The programs of workers and servers.

A worker computes a gradient and sends each server its shard of it. Each server answers
with its shard of the weights, server 0 also with the number of the next mini-batch. A
server waits for as many gradients as an update needs, from any workers, updates its
shard, and answers these workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any, NamedTuple

from ..arrays import even_slices
from ..checks import listed, real_number
from ..cluster import ANY, Compute, Receive, Send
from ..collectives.group import Program, cut_into_chunks, flattened
from ..layers import Layer, every_layer
from ..layers.layer import commit
from ..network import Sequential, check_finite_run
from ..optimizers import Optimizer
from ..parallel.layout import ParameterShard, write_shards
from ..sums import TreeSum

PUSH, PULL = "gradient", "weights"  # the names of the messages


class Gradient(NamedTuple):
    """The label of a worker's Compute: a gradient of a mini-batch, or of a part of it.

    Args:
        batch: the number of the mini-batch.
        versions: for each server, the version of its weights: the number of updates.

    >>> print(Gradient(5, (3,)), Gradient(5, (3, 4)))
    5@3 5@3,4
    """

    batch: int
    versions: tuple

    @property
    def kind(self) -> str:
        return "gradient"

    def __str__(self) -> str:
        return f"{self.batch}@{','.join(map(str, self.versions))}"


class Update(NamedTuple):
    """The label of a server's Compute: an update of its shard of the weights.

    Args:
        number: the number of this update, from 1; it is the version that it makes.
        batch: the number of the mini-batch.
        workers: the workers whose gradients it uses.
        read: the version of the weights with which these gradients were computed.

    >>> update = Update(number=5, batch=4, workers=(2,), read=3)
    >>> print(update, update.staleness)
    u5 1
    """

    number: int
    batch: int
    workers: tuple
    read: int

    @property
    def kind(self) -> str:
        return "U"

    @property
    def staleness(self) -> int:
        """The number of other updates since the worker read the weights."""
        return self.number - 1 - self.read

    def __str__(self) -> str:
        return f"u{self.number}"


class Push(NamedTuple):
    """What a worker sends to a server: a gradient of `batch`, at version `read`.

    `terms` are (the server's shard of the gradient, a list of vectors; J; the layers'
    statistics); the last two are None for all servers but server 0.
    """

    batch: int
    read: int
    terms: tuple


class Answer(NamedTuple):
    """What a server sends to a worker: `part`, its shard of the weights at `version`.

    `batch` is the number of the worker's next mini-batch; a number beyond the last ends
    its program. Workers read it from server 0 only.
    """

    batch: int
    version: int
    part: list


# A worker.

def worker(number: int, replica: Replica, n_batches: int, n_servers: int, ticks: float) -> Program:
    """The program of a worker: compute gradients, send them, and receive new weights.

    Args:
        number: the number of the worker.
        replica: its `Replica`, with the first weights.
        n_batches: the number of mini-batches.
        n_servers: the number of servers, which are devices 0 to n_servers - 1.
        ticks: the ticks of a gradient.
    """
    batch, versions = number // replica.n_parts, (0,) * n_servers
    order = [(number + k) % n_servers for k in range(n_servers)]  # each worker begins with another server
    while batch < n_batches:
        pushes = yield Compute(Gradient(batch, versions), replica.gradient, batch, versions, ticks=ticks)
        for k in order:
            yield Send(PUSH, pushes[k], to=k)
        answers: dict[int, Answer] = {}
        for k in order:
            answers[k] = yield Receive(PULL, source=k)
        replica.take([answers[k].part for k in range(n_servers)])
        batch, versions = answers[0].batch, tuple(answers[k].version for k in range(n_servers))


class Replica:
    """A worker's replica of the network, which computes gradients of mini-batches.

    Args:
        net: a `Sequential` that only this worker uses.
        batches: the mini-batches, a list of (X, Y).
        n_parts: the number of parts that each mini-batch is cut into.
        part: the index of the part that this worker computes.
        step: the number of updates before mini-batch 0.
    """

    def __init__(self, net: Sequential, batches: Sequence[tuple], n_parts: int, part: int, step: int) -> None:
        self._net, self._batches = net, batches
        self.n_parts, self._part, self._step = n_parts, part, step

    def take(self, parts: Sequence[list]) -> None:
        """Set the weights to `parts`: for each server, the vectors of its shard."""
        write_shards(self._net.layers, parts)

    def gradient(self, number: int, versions: tuple[int, ...]) -> list[Push]:
        """Compute the gradient of mini-batch `number`; return a `Push` for each server.

        It carries the 1/m of the whole mini-batch, so the gradients of its parts add
        up. `versions` are those of the weights, for each server.
        """
        net, (X, Y) = self._net, self._batches[number]
        loss: Any = net.loss
        net.n_steps = self._step + number
        J, gradients, counted = net.terms_of(even_slices(X.shape[-1], self.n_parts)[self._part], X, Y)
        check_finite_run(loss, J, net.layers, gradients)
        chunks = cut_into_chunks(flattened(gradients), len(versions))
        rest = [(J, counted), *[(None, None)] * (len(versions) - 1)]
        return [
            Push(number, version, (chunk, *more))
            for version, chunk, more in zip(versions, chunks, rest, strict=True)
        ]


# A server.

def server(share: Share, workers: range, n_batches: int) -> Program:
    """The program of a server: update with enough gradients, and answer their workers.

        w <- w - (the optimizer's step with the sum of the gradients)

    Synchronous: an update needs the gradients of all workers, each of a part of one
    mini-batch. Asynchronous: it needs one gradient, of a whole mini-batch. Updates by
    other workers may have changed the weights since it was computed: it is stale.
    Source: Dean et al. 2012 (Downpour).

    Args:
        share: the server's `Share`.
        workers: the range of the workers' devices.
        n_batches: the number of mini-batches, one for each update.
    """
    given = len(workers) // share.n_parts  # the number of mini-batches that workers have begun
    for _ in range(n_batches):
        pushes: dict = {}
        while len(pushes) < share.n_parts:
            device, push = yield Receive(PUSH, source=ANY)
            pushes[workers.index(device)] = push
        label = Update(len(share.updates) + 1, push.batch, tuple(sorted(pushes)), push.read)
        yield Compute(label, share.update, label, pushes, ticks=0)
        # each server answers another worker first
        for number in sorted(pushes, key=lambda number: (number < share.rank, number)):
            yield Send(PULL, Answer(given, label.number, share.part), to=workers[number])
        given += 1


class Share:
    """The shard of the parameters that a server updates, and the record of its updates.

    Args:
        layers: copies of the layers, in which the server updates its shard.
        rank, size: which of how many servers.
        optimizer: a copy of the optimizer, which updates each entry by itself.
        n_parts: the number of parts of a mini-batch, whose gradients make an update.

    Attributes:
        updates: the list of `Update`s.
        costs: J of each update, on server 0.
    """

    def __init__(
        self, layers: Sequence[Layer], rank: int, size: int, optimizer: Optimizer, n_parts: int
    ) -> None:
        self.layers, self.rank, self.optimizer, self.n_parts = layers, rank, optimizer, n_parts
        self._shard = ParameterShard(layers, rank, size, has_all=True)
        self.updates: list = []
        self.costs: list = []

    @property
    def part(self) -> list:
        """The server's shard of the parameters: vectors, views of `layers`' arrays."""
        return self._shard.vectors

    def update(self, label: Update, pushes: Mapping[int, Push]) -> None:
        """Make the update `label` with `pushes`, {worker: its `Push`}."""
        total = TreeSum(self.n_parts)
        for place, number in enumerate(label.workers):
            total.add(place, pushes[number].terms)
        gradient, J, counted = total.value
        self._shard.update(self.optimizer, gradient)
        if self.rank == 0:
            self.costs.append(J)
            commit(list(every_layer(self.layers)), counted)
        self.updates.append(label)


def ticks_of_each(n: int, ticks: float, speeds: Sequence[float] | None, who: str = "workers") -> list:
    """Return ticks / speed for each of n devices, exact unless one of them is a float.

    Args:
        n: the number of devices.
        ticks: the ticks at speed 1.
        speeds: n numbers above 0; None, if all have speed 1.
        who: the name of the devices in errors.

    >>> ticks_of_each(2, 2, speeds=[1, Fraction(1, 4)])
    [2, 8]
    """
    ticks = real_number("ticks", ticks, least=0, note=" ticks", clock=True)
    speeds = [1] * n if speeds is None else listed("speeds", speeds)
    if len(speeds) != n:
        raise ValueError(f"speeds has {len(speeds)} numbers for {n} {who}: give each one")
    found = []
    for index, speed in enumerate(speeds):
        speed = real_number(f"speeds[{index}]", speed, above=0, clock=True)
        if isinstance(ticks, float) or isinstance(speed, float):
            found.append(ticks / speed)
        else:
            quotient = Fraction(ticks) / speed
            found.append(quotient.numerator if quotient.denominator == 1 else quotient)
    return found
