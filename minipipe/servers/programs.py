"""The programs of workers and servers.

A worker computes a gradient, pushes to each server its part of it, and waits for the answers: each server's
part of the weights, and from server 0 the number of the mini-batch to go on with. A server waits for the next
gradient, whoever sends it. What the modes differ in is when it answers; without a lock, as in Hogwild,
workers read and write the weights of a memory as they like.
"""

from math import inf

import numpy as np

from ..cluster import ANY, Compute, Label, Receive, Send
from ..layers import every_layer
from ..layers.layer import commit
from .share import Answer, Gradient, Share, Update

PUSH, PULL = "gradient", "weights"  # the names of the messages


def training_worker(number, first, replica, times, places):
    """A worker, until it is handed no mini-batch any more.

    number: of the worker.
    first: the mini-batch that it begins with, or None.
    replica: its `Replica`, with the first weights.
    times: the `GradientTimes`.
    places: the `Places`.
    """
    batch, versions, n_done, order = first, (0,) * len(places.servers), 0, places.from_next(number)
    while batch is not None:
        ticks = times.of(number, n_done)
        pushes = yield Compute(Gradient(batch, versions), replica.gradient, batch, versions, ticks=ticks)
        for k in order:
            yield Send(PUSH, pushes[k], to=places.servers[k])
        answers = [None] * len(order)
        for k in order:
            answers[k] = yield Receive(PULL, source=places.servers[k])
        replica.take([answer.part for answer in answers])
        batch, versions, n_done = answers[0].batch, tuple(answer.version for answer in answers), n_done + 1


def synchronous(share, places, n_wanted, m_of, arrivals=None, ticks=0):
    """A server that waits in each round for `n_wanted` workers, updates once, and answers these.

        w <- w - (the optimizer's step by the sum of their gradients)

    Each worker has its part of the mini-batch. With fewer wanted than there are, the others are backups: a
    gradient that comes too late is thrown away, and its worker goes on with the round under way; the sum of
    the others is scaled to the whole mini-batch. Source: Chen et al. 2016, arXiv 1604.00981.

    share: the server's `Share`.
    n_wanted: the gradients that it waits for.
    m_of: for each mini-batch, its samples.
    arrivals: None, or the order in which the workers' gradients are taken, as recorded in another run.
    ticks: of an update.
    """
    n_workers, order = len(places.workers), None if arrivals is None else iter(arrivals)

    def answer(number):
        batch = share.version if share.version < len(m_of) else None
        return Send(PULL, Answer(batch, share.version, share.part), to=places.workers[number])

    for m in m_of:
        pushes = {}
        while len(pushes) < n_wanted:
            sender, push = yield from next_push(share, places, order)
            if is_late(push.read, share.version):
                share.drop(sender, push)
                yield answer(sender)
            else:
                pushes[sender] = push
        label = share.label(pushes)
        yield Compute(label, share.update, label, pushes, m if n_wanted < n_workers else None, ticks=ticks)
        for sender in rotate_to(pushes, share.rank):
            yield answer(sender)
    for _ in range(n_workers - n_wanted):
        sender, push = yield from next_push(share, places, order)
        share.drop(sender, push)
        yield answer(sender)


def asynchronous(share, places, n_batches, bound=None, arrivals=None, ticks=0):
    """A server that updates by each gradient as it comes, also one at older weights, and then answers.

        w <- w - (the optimizer's step by the gradient at older weights)

    With a bound s, a worker with c gradients behind it gets no answer as long as another has fewer than
    c - s: it waits. With s = 0, all wait for each other after each gradient. Sources: Dean et al. 2012
    (Downpour); Ho et al. 2013 (stale-synchronous).

    share: the server's `Share`.
    n_batches: the mini-batches, of which server 0 hands out one after the other.
    bound: s; None for no bound.
    arrivals: None, or the order in which the workers' gradients are taken, as recorded in another run.
    ticks: of an update.
    """
    clocks = dict.fromkeys(range(min(len(places.workers), n_batches)), 0)
    given, waiting, bound = len(clocks), [], inf if bound is None else bound
    order = None if arrivals is None else iter(arrivals)
    for done in range(1, n_batches + 1):
        sender, push = yield from next_push(share, places, order)
        label = share.label({sender: push})
        yield Compute(label, share.update, label, {sender: push}, ticks=ticks)
        clocks[sender] += 1
        waiting.append(sender)
        slowest = min(clocks.values())
        for number in list(waiting):
            nothing_left = done == n_batches or (share.rank == 0 and given == n_batches)
            if nothing_left or may_read(clocks[number], slowest, bound):
                batch = given if given < n_batches else None
                given += batch is not None
                waiting.remove(number)
                share.remember(number)
                yield Send(PULL, Answer(batch, share.version, share.part), to=places.workers[number])


def is_late(read, version):
    """Whether a gradient is of weights that have been updated since."""
    return read < version


def may_read(clock, slowest, bound):
    """Whether a worker that has pushed `clock` gradients may go on, if the slowest has pushed `slowest`.

    >>> may_read(clock=3, slowest=1, bound=2), may_read(clock=4, slowest=1, bound=2)
    (True, False)
    """
    return clock - slowest <= bound


def next_push(share, places, order):
    """A program: (worker, push) of the gradient that comes first, or of the next in `order`."""
    if order is None:
        device, push = yield Receive(PUSH, source=ANY)
        number = places.workers.index(device)
    else:
        number = next(order)
        push = yield Receive(PUSH, source=places.workers[number])
    share.arrivals.append(number)
    return number, push


def rotate_to(numbers, first):
    """`numbers` in order, beginning with the first that is at least `first`.

    >>> rotate_to([0, 2, 3], 1)
    [2, 3, 0]
    """
    return sorted(numbers, key=lambda number: (number < first, number))


# Updates without a lock, as in Hogwild: workers read and write the weights of a memory as they like.
#
# A lock would let one worker at a time read a number, add to it and write it. Without one, another worker may
# write in between, and what it has written is overwritten: its update is lost; unless a third one, who had
# read it, writes later still, and brings it back. If gradients are sparse, few workers meet at one number,
# and few updates are lost. Source: Niu et al. 2011, arXiv 1106.5730.

ACCESS = "access"


class SharedMemory(Share):
    """The weights of all, as one row of numbers that everybody reads and writes."""

    touched = ()  # for each update, the places of the numbers that it has written

    def load(self, places):
        """(the numbers at these places, the version that they are of)"""
        return np.concatenate(self.part)[places], self.version

    def overwrites(self, places, loaded):
        """The updates since version `loaded` that a write at these places undoes, in whole or in part."""
        later = enumerate(self.touched[loaded:], start=loaded + 1)
        return tuple(number for number, others in later if np.isin(places, others).any())

    def store(self, label, places, numbers, push):
        """Write the numbers at these places, whatever stands there now."""
        start = 0
        for vector in self.part:
            inside = (places >= start) & (places < start + vector.size)
            vector[places[inside] - start] = numbers[inside]
            start += vector.size
        self.touched = (*self.touched, places)
        self.costs.extend(push.costs.values())
        for counted in push.statistics.values():
            commit(list(every_layer(self.layers)), counted)
        self.count(label)


def hogwild_memory(share, places, n_batches, arrivals=None):
    """The memory: it serves one access after the other, as they come.

    share: the `SharedMemory`.
    n_batches: the mini-batches, which it hands out one after the other.
    arrivals: None, or the order of the workers' accesses, as recorded in another run.
    """
    given, order = min(len(places.workers), n_batches), None if arrivals is None else iter(arrivals)
    while share.version < n_batches:
        if order is None:
            device, access = yield Receive(ACCESS, source=ANY)
        else:
            device = places.workers[next(order)]
            access = yield Receive(ACCESS, source=device)
        share.arrivals.append(places.workers.index(device))
        if len(access) == 1:
            yield Send(PULL, share.load(*access), to=device)
            continue
        at, numbers, loaded, push = access
        lost = share.overwrites(at, loaded)
        label = Update(share.version + 1, push.batch, (share.arrivals[-1],), push.read, loaded, lost)
        yield Compute(label, share.store, label, at, numbers, push, ticks=0)
        batch = given if given < n_batches else None
        given += batch is not None
        yield Send(PULL, Answer(batch, share.version, share.part), to=device)


def hogwild_worker(number, first, replica, times, places, learning_rate, ticks):
    """A worker: it computes a gradient, loads the numbers that this changes, adds, and stores them.

    number, first, replica, times, places: as for the worker of a server.
    learning_rate: W - learning_rate * g is stored, where g is not 0.
    ticks: from the load to the store.
    """
    (device,), batch, version, n_done = places.servers, first, 0, 0
    while batch is not None:
        ticks_of_gradient = times.of(number, n_done)
        label = Gradient(batch, (version,))
        push, = yield Compute(label, replica.gradient, batch, (version,), ticks=ticks_of_gradient)
        gradient = np.concatenate(push.terms[0, 0])
        at = np.flatnonzero(gradient)
        yield Send(ACCESS, (at,), to=device)
        numbers, loaded = yield Receive(PULL, source=device)
        step = learning_rate * gradient[at]
        numbers = yield Compute(Label(f"add {batch}", "add"), np.subtract, numbers, step, ticks=ticks)
        yield Send(ACCESS, (at, numbers.astype(gradient.dtype), loaded, push._replace(terms={})), to=device)
        answer = yield Receive(PULL, source=device)
        replica.take([answer.part])
        batch, version, n_done = answer.batch, answer.version, n_done + 1
