"""What workers and servers do.

A worker computes a gradient, pushes to each server its part of it, and waits for the
answers: each server's part of the weights, and from server 0 the number of the
mini-batch to go on with. A server waits for as many gradients as make an update,
whichever workers send them, and answers these workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
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
    """A worker computes the gradient of a mini-batch, or of its part of it.

    Args:
        batch: the number of the mini-batch.
        versions: for each server, how many updates the weights have had with which the
            worker computes.

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
    """A server changes its part of the weights.

    Args:
        number: of this update, from 1 on; the weights have had that many updates then.
        batch: the number of the mini-batch.
        workers: those whose gradients count.
        read: how many updates the weights had had with which these gradients were
            computed.

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
        """How many updates there were between the weights that the gradient is of and this update."""
        return self.number - 1 - self.read

    def __str__(self) -> str:
        return f"u{self.number}"


# A worker.

class Push(NamedTuple):
    """What a worker sends to a server.

    Args:
        batch, read: the number of the mini-batch, and the version of the weights.
        terms: the server's part of the gradient, a list of vectors; J and what layers
            have counted, for server 0, and None for the others. Servers sum each of
            them over the workers' parts of the mini-batch.
    """

    batch: int
    read: int
    terms: tuple


def worker(number: int, replica: Replica, n_batches: int, n_servers: int, ticks: float) -> Program:
    """Compute gradients, send them to the servers, and go on with the weights that they answer.

    The program of a worker. It ends when it is handed a number beyond the last
    mini-batch.

    Args:
        number: of the worker.
        replica: its `Replica`, with the first weights.
        ticks: of each gradient.
    """
    batch, versions = number // replica.n_parts, (0,) * n_servers
    order = [(number + k) % n_servers for k in range(n_servers)]  # so that not all wait for the same server
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
    """A copy of the network that computes gradients of mini-batches.

    Args:
        net: its own, a `Sequential`.
        batches: the mini-batches, a list of (X, Y).
        n_parts: how many parts each is cut into.
        part: the number of the part that this worker works on.
        step: the updates before mini-batch 0.
    """

    def __init__(self, net: Sequential, batches: Sequence[tuple], n_parts: int, part: int, step: int) -> None:
        self._net, self._batches = net, batches
        self.n_parts, self._part, self._step = n_parts, part, step

    def take(self, parts: Sequence[list]) -> None:
        """Go on with these weights. parts: for each server its vectors."""
        write_shards(self._net.layers, parts)

    def gradient(self, number: int, versions: tuple[int, ...]) -> list[Push]:
        """Return for each server its `Push` of mini-batch `number`.

        Every gradient carries the 1/m of the whole mini-batch, so that those of its
        parts add up.
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

class Answer(NamedTuple):
    """What a server sends back.

    Args:
        batch: the mini-batch to go on with; one that is not there ends the work. Only
            that of server 0 counts.
        version, part: of the server's weights.
    """

    batch: int
    version: int
    part: list


def server(share: Share, workers: range, n_batches: int, arrivals: Iterable[int] | None = None) -> Program:
    """Update the weights as soon as enough gradients are there, and answer the workers that sent them.

    The program of a server.

        w <- w - (the optimizer's step with the sum of their gradients)

    Synchronous: all workers' gradients, each of a part of one mini-batch, make an update. So the slowest
    worker decides how long a round takes.

    Asynchronous: each gradient makes one, and is of a mini-batch of its own. No worker waits for another one,
    and gradients are stale: of weights that other workers' updates have changed since. Source: Dean et al.
    2012 (Downpour).

    Args:
        share: the server's `Share`.
        workers: their devices, a range.
        n_batches: how many mini-batches there are, one for each update.
        arrivals: None, or the order in which the workers' gradients are taken, as
            recorded in another run.
    """
    n_parts, order = share.n_parts, iter(arrivals or ())
    given = len(workers) // n_parts  # how many mini-batches the workers have begun with
    for _ in range(n_batches):
        pushes: dict = {}
        while len(pushes) < n_parts:
            if arrivals is None:
                device, push = yield Receive(PUSH, source=ANY)
                number = workers.index(device)
            else:
                number = next(order)
                push = yield Receive(PUSH, source=workers[number])
            share.arrivals.append(number)
            pushes[number] = push
        label = Update(len(share.updates) + 1, push.batch, tuple(sorted(pushes)), push.read)
        yield Compute(label, share.update, label, pushes, ticks=0)
        for number in sorted(pushes, key=lambda number: (number < share.rank, number)):  # each server begins
            yield Send(PULL, Answer(given, label.number, share.part), to=workers[number])  # with another one
        given += 1


class Share:
    """Server `rank` of `size`: its part of the parameters, an optimizer for it, and what has happened.

    Args:
        layers: copies of the network's; the server keeps its part of their parameters
            up to date.
        optimizer: its own; it takes each number by itself.
        n_parts: the parts of each mini-batch, whose gradients make an update.
        keep_every: None; or a number of updates after which its part is kept, again and
            again.

    Attributes:
        updates, arrivals: a list of `Update`, and of the workers whose gradients came,
            in order.
        costs: J of each update, on server 0.
        kept: {number of updates: vectors}.
    """

    def __init__(
        self, layers: Sequence[Layer], rank: int, size: int, optimizer: Optimizer, n_parts: int,
        keep_every: int | None,
    ) -> None:
        self.layers, self.rank, self.optimizer = layers, rank, optimizer
        self._owned = ParameterShard(layers, rank, size, has_all=True)
        self.n_parts, self._keep_every = n_parts, keep_every
        self.updates: list = []
        self.arrivals: list = []
        self.costs: list = []
        self.kept = {} if keep_every is None else {0: self._copy()}

    @property
    def part(self) -> list:
        """The server's part of the parameters: vectors, views of the arrays of `layers`."""
        return self._owned.vectors

    def update(self, label: Update, pushes: Mapping[int, Push]) -> None:
        """Update the part with the gradients of {worker: push}."""
        total = TreeSum(self.n_parts)
        for place, number in enumerate(label.workers):
            total.add(place, pushes[number].terms)
        gradient, J, counted = total.value
        self._owned.update(self.optimizer, gradient)
        if self.rank == 0:
            self.costs.append(J)
            commit(list(every_layer(self.layers)), counted)
        self.updates.append(label)
        if self._keep_every is not None and label.number % self._keep_every == 0:
            self.kept[label.number] = self._copy()

    def _copy(self):
        return [vector.copy() for vector in self.part]


def ticks_of_each(n: int, ticks: float, speeds: Sequence[float] | None, who: str = "workers") -> list:
    """Return what takes `ticks` at speed 1 on each of n devices: ticks / speed, exactly where both are exact.

    Args:
        speeds: a list of n numbers above 0; None, if all have speed 1.
        who: what an error calls the devices.

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
