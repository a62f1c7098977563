"""The programs of workers and servers.

A worker computes a gradient, pushes to each server its part of it, and waits for the answers: each server's
part of the weights, and from server 0 the number of the mini-batch to go on with. A server waits for the next
gradient, whichever worker sends it. The two modes differ in when it answers.
"""

from ..cluster import ANY, Compute, Receive, Send
from .share import Answer, Gradient

PUSH, PULL = "gradient", "weights"  # the names of the messages


def training_worker(number, first, replica, ticks, places):
    """A worker, until it is handed no more mini-batches.

    number: of the worker.
    first: the mini-batch that it begins with, or None.
    replica: its `Replica`, with the first weights.
    ticks: of each gradient.
    places: the `Places`.
    """
    batch, versions, order = first, (0,) * len(places.servers), places.from_next(number)
    while batch is not None:
        pushes = yield Compute(Gradient(batch, versions), replica.gradient, batch, versions, ticks=ticks)
        for k in order:
            yield Send(PUSH, pushes[k], to=places.servers[k])
        answers = [None] * len(order)
        for k in order:
            answers[k] = yield Receive(PULL, source=places.servers[k])
        replica.take([answer.part for answer in answers])
        batch, versions = answers[0].batch, tuple(answer.version for answer in answers)


def synchronous(share, places, n_batches, arrivals=None, ticks=0):
    """A server that waits for the gradients of all workers, updates once, and answers all of them.

        w <- w - (the optimizer's step with the sum of their gradients)

    Each worker has its part of the same mini-batch. So the slowest worker decides how long a round takes.

    share: the server's `Share`.
    n_batches: how many mini-batches there are.
    arrivals: None, or the order in which the workers' gradients are taken, as recorded in another run.
    ticks: of an update.
    """
    N, order = len(places.workers), None if arrivals is None else iter(arrivals)
    for _ in range(n_batches):
        pushes = {}
        while len(pushes) < N:
            number, push = yield from next_push(share, places, order)
            pushes[number] = push
        label = share.label(pushes)
        yield Compute(label, share.update, label, pushes, ticks=ticks)
        batch = share.version if share.version < n_batches else None
        for number in [*range(share.rank, N), *range(min(share.rank, N))]:  # each server begins with another
            yield Send(PULL, Answer(batch, share.version, share.part), to=places.workers[number])


def asynchronous(share, places, n_batches, arrivals=None, ticks=0):
    """A server that updates with each gradient on arrival, and answers its worker at once.

        w <- w - (the optimizer's step with the gradient at older weights)

    Each gradient is of a mini-batch of its own. No worker waits for another one, and gradients are stale: of
    weights that other workers' updates have changed since. Source: Dean et al. 2012 (Downpour).

    share: the server's `Share`.
    n_batches: how many mini-batches there are; server 0 hands out one after the other.
    arrivals: None, or the order in which the workers' gradients are taken, as recorded in another run.
    ticks: of an update.
    """
    given, order = min(len(places.workers), n_batches), None if arrivals is None else iter(arrivals)
    for _ in range(n_batches):
        number, push = yield from next_push(share, places, order)
        label = share.label({number: push})
        yield Compute(label, share.update, label, {number: push}, ticks=ticks)
        batch = given if given < n_batches else None
        given += batch is not None
        yield Send(PULL, Answer(batch, share.version, share.part), to=places.workers[number])


def next_push(share, places, order):
    """A program: (worker, push) of the gradient that comes first, or of the next worker in `order`."""
    if order is None:
        device, push = yield Receive(PUSH, source=ANY)
        number = places.workers.index(device)
    else:
        number = next(order)
        push = yield Receive(PUSH, source=places.workers[number])
    share.arrivals.append(number)
    return number, push
