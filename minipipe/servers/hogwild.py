"""Updates without a lock, as in Hogwild: workers read and write the weights of a memory as they like.

A lock would let one worker at a time read a number, add to it and write it. Without one, another worker may
write in between, and what it has written is overwritten: its update is lost; unless a third one, who had read
it, writes later still, and brings it back. If gradients are sparse, few workers meet at one number, and few
updates are lost. Source: Niu et al. 2011, arXiv 1106.5730.
"""

import numpy as np

from ..cluster import ANY, Compute, Label, Receive, Send
from ..layers import every_layer
from ..layers.statistics import commit
from .labels import Gradient, Update
from .programs import PULL
from .share import Answer, Share

ACCESS = "access"


class Memory(Share):
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


def memory(share, places, n_batches, arrivals=None):
    """The memory: it serves one access after the other, as they come.

    share: the `Memory`.
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


def worker(number, first, replica, times, places, learning_rate, ticks):
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
