"""The programs of workers and servers.

A worker computes a gradient, pushes to each server its part of it, and waits for the answers: each server's
part of the weights, and from server 0 the number of the mini-batch to go on with. A server waits for the next
gradient, whoever sends it. What the modes differ in is when it answers.
"""

from math import inf

from ..cluster import ANY, Compute, Receive, Send
from .labels import Gradient
from .share import Answer

PUSH, PULL = "gradient", "weights"  # the names of the messages


def worker(number, first, replica, times, places):
    """A worker, until it is handed no mini-batch any more.

    number: of the worker.
    first: the mini-batch that it begins with, or None.
    replica: its `Replica`, with the first weights.
    times: the `Times` of gradients.
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
        for sender in in_turn(pushes, share.rank):
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


def in_turn(numbers, first):
    """`numbers` in order, beginning with the first that is at least `first`.

    >>> in_turn([0, 2, 3], 1)
    [2, 3, 0]
    """
    return sorted(numbers, key=lambda number: (number < first, number))
