"""Which device is a server, which a worker, what a gradient and a round take, and a line of mini-batches."""

from fractions import Fraction
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from ..arrays import even_slices, real_numbers
from ..checks import listed, real_number, whole_number
from ..cluster import checked_ports
from ..cluster.links import check_link, links_between
from ..training import shuffled

MOST = 10**6  # devices, rounds and mini-batches: more than any run could hold


class Places(NamedTuple):
    """The devices of the servers and of the workers.

    >>> Places.of(servers=1, workers=2, on_workers=False)
    Places(servers=[0], workers=[1, 2])
    """

    servers: list
    workers: list

    @staticmethod
    def of(servers, workers, on_workers):
        """Return the devices: servers first; `on_workers`, server k is a lane on the device of worker k."""
        first = 0 if on_workers else servers
        return Places(list(range(servers)), list(range(first, first + workers)))

    def programs(self, servers, workers):
        """Return the programs of all devices, as a cluster takes them."""
        if self.servers[0] != self.workers[0]:
            return [*servers, *workers]
        lanes = [{"compute": worker, "server": server} for server, worker in zip(servers, workers)]
        return [*lanes, *workers[len(servers):]]

    def names(self):
        """Return what pictures call the devices.

        >>> Places.of(1, 2, on_workers=False).names()
        ['server', 'worker 0', 'worker 1']
        """
        workers = [f"worker {number}" for number in range(len(self.workers))]
        if self.servers[0] == self.workers[0]:
            return workers
        return [f"server {k}" if len(self.servers) > 1 else "server" for k in self.servers] + workers

    def from_next(self, worker):
        """Return the numbers of the servers, in the order in which this worker talks to them.

        Each worker begins with another server, so that not all of them wait for the first.
        """
        n, first = len(self.servers), worker % len(self.servers)
        return [(first + step) % n for step in range(n)]


def checked_way(link, ports, n_devices):
    """Return {"link": link, "ports": ports} for a `Cluster`; raise `ValueError` if they do not fit it."""
    check_link(link)
    links_between(link, n_devices)
    return {"link": link, "ports": checked_ports(ports, n_devices)}


def ticks_of_each(n, ticks, speeds, who="workers"):
    """Return what takes `ticks` at speed 1 on each of n devices: ticks / speed, exactly where both are exact.

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


def round_ticks(times, n_bytes, bandwidth, *, servers=1, latency=0, update_ticks=0):
    """Return the ticks of a synchronous round, from weights on all workers to new weights on all of them.

        max over i of (t_i + (N - i + 1) c) + N c + 2 latency + update_ticks

    where t_1 <= t_2 <= ... are the workers' times, and c = n / (s b) is what a server's part takes through
    its port in or its port out; nothing else is in the way. After the i-th gradient, N - i more pass the
    port. With equal workers, that is t + 2 N c + ...; if one is far slower, its t + (N + 1) c + ...

    Rounds in a row with equal workers take t + (N + s) c + ... each, up to the last one: the worker that gets
    its weights first is back first, so that the next gradients come in while these weights go out.

    Args:
        times: the ticks of a gradient, for each of the N workers, at least as many as servers.
        n_bytes: n, the bytes of all weights; a multiple of `servers`.
        bandwidth: b, of each port of a server, bytes per tick.
        servers: s.
        latency, update_ticks: ticks of a message and of an update.

    >>> int(round_ticks([5, 5, 5], n_bytes=8, bandwidth=4)), int(round_ticks([5, 5, 50], 8, 4))
    (17, 58)
    """
    def checked(name, value, note=" ticks"):
        return real_number(name, value, least=0, note=note, clock=True)

    times = sorted(checked(f"times[{i}]", t) for i, t in enumerate(listed("times", times)))
    n_bytes, s = checked("n_bytes", n_bytes, " bytes"), whole_number("servers", servers, 1, MOST)
    bandwidth = real_number("bandwidth", bandwidth, above=0, note=" bytes per tick", clock=True)
    latency, update_ticks = checked("latency", latency), checked("update_ticks", update_ticks)
    N, c = len(times), Fraction(n_bytes) / (s * Fraction(bandwidth))
    gathered = max(t + (N - i) * c for i, t in enumerate(times))
    return gathered + N * c + 2 * latency + update_ticks


def mini_batches(X, Y, batch_size, *, n, seed=0):
    """Return the first n mini-batches of one pass over the samples after the other: a list of (X, Y).

    X, Y: (n[0], m) and (n[L], m).
    batch_size: the most samples of each; those of a pass are as equal as can be.
    n: how many mini-batches.
    seed: each pass is shuffled as by `fit`, so that `fit` meets the same mini-batches in the same order.

    >>> X = np.arange(4.0).reshape(1, 4)
    >>> [part.tolist() for part, _ in mini_batches(X, X, batch_size=2, n=3)]
    [[[3.0, 0.0]], [[2.0, 1.0]], [[2.0, 1.0]]]
    """
    X, Y = real_numbers("X", X), real_numbers("Y", Y)
    if not X.shape or X.shape[-1:] != Y.shape[-1:] or not X.shape[-1]:
        raise ValueError(
            f"X of shape {X.shape} and Y of shape {Y.shape}: give both "
            "the same samples, at least 1, as their last axis"
        )
    m, batch_size = X.shape[-1], whole_number("batch_size", batch_size, 1)
    n, seed = whole_number("n", n, 1, MOST), whole_number("seed", seed, 0)
    parts = even_slices(m, -(-m // batch_size))
    line = ((shuffled(m, seed, epoch), part) for epoch in count(1) for part in parts)
    chosen = (order[part] for order, part in islice(line, n))
    return [(np.take(X, at, axis=-1), np.take(Y, at, axis=-1)) for at in chosen]
