"""Which device is a server, which a worker, what a gradient and a round take, and a line of mini-batches."""

from fractions import Fraction
from itertools import count, islice
from typing import NamedTuple

import numpy as np

from ..arguments import argument
from ..arrays import even_slices, real_numbers
from ..checks import listed, python_number, real_number, shown, whole_number
from ..training import shuffled
from .options import Pace


class Places(NamedTuple):
    """The devices of the servers and of the workers.

    >>> Places.of(n_servers=1, n_workers=2, on_workers=False)
    Places(servers=[0], workers=[1, 2])
    """

    servers: list
    workers: list

    @staticmethod
    def of(n_servers, n_workers, on_workers):
        """Servers first; or, `on_workers`, server k in a lane of its own on the device of worker k."""
        first = 0 if on_workers else n_servers
        return Places(list(range(n_servers)), list(range(first, first + n_workers)))

    def programs(self, servers, workers):
        """The programs of all devices, as a cluster takes them."""
        if self.servers[0] != self.workers[0]:
            return [*servers, *workers]
        lanes = [{"compute": worker, "server": server} for server, worker in zip(servers, workers)]
        return [*lanes, *workers[len(servers):]]

    def names(self):
        """What pictures call the devices.

        >>> Places.of(1, 2, on_workers=False).names()
        ['server', 'worker 0', 'worker 1']
        """
        workers = [f"worker {number}" for number in range(len(self.workers))]
        if self.servers[0] == self.workers[0]:
            return workers
        return [f"server {k}" if len(self.servers) > 1 else "server" for k in self.servers] + workers

    def from_next(self, worker):
        """The numbers of the servers, in the order in which this worker talks to them.

        Each worker begins with another one, so that not all wait for the first.
        """
        n, first = len(self.servers), worker % len(self.servers)
        return [(first + step) % n for step in range(n)]


class GradientTimes:
    """How long each gradient of each worker takes.

    n_workers: how many workers there are.
    pace: the `Pace`.
    seed: of the random delays.

    >>> times = GradientTimes(2, Pace(ticks=2, speeds=[1, Fraction(1, 4)]))
    >>> times.of(0, 0), times.of(1, 0)
    (2, 8)
    """

    def __init__(self, n_workers: int, pace: Pace, seed: int = 0) -> None:
        speeds = [1] * n_workers if pace.speeds is None else pace.speeds
        if len(speeds) != n_workers:
            raise ValueError(f"speeds has {len(speeds)} numbers for {n_workers} workers: give each one")
        self._ticks = [_divided(pace.ticks, python_number(speed)) for speed in speeds]
        self._delay, self._seed = pace.delay, seed

    def of(self, worker, number):
        """The ticks of gradient `number` of a worker, from 0 on."""
        if not self._delay:
            return self._ticks[worker]
        rng = np.random.default_rng([self._seed, worker, number])
        return self._ticks[worker] + rng.exponential(self._delay)


def speeds_with(n_workers, slower):
    """Speeds of which some are lower. slower: {worker: how many times as long it takes}.

    >>> speeds_with(3, {0: 4, 2: 2})
    [Fraction(1, 4), 1, Fraction(1, 2)]
    """
    n_workers = argument("n_workers", n_workers)
    if not isinstance(slower, dict):
        raise ValueError(f"slower={shown(slower)} must be a dict {{worker: how many times as long it takes}}")
    for worker, times in slower.items():
        whole_number("slow worker", worker, 0, n_workers - 1)
        if python_number(times) == 0:
            raise ValueError(f"worker {worker} takes {shown(times)} times as long: use a number above 0")
        real_number(f"times of worker {worker}", times, above=0, clock=True)
    return [_divided(1, slower.get(worker, 1)) for worker in range(n_workers)]


def _divided(a, b):
    """a / b, exactly where both are exact."""
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    quotient = Fraction(a) / b
    return quotient.numerator if quotient.denominator == 1 else quotient


# What synchronous rounds through servers cost, in closed form.
#
# N workers, s servers, n bytes of weights; each server has a port in and a port out of b bytes per tick, and
# nothing else is in the way. A server's part passes a port in c = n / (s b) ticks.

def round_ticks(times, n_bytes, bandwidth, n_servers=1, latency=0, update=0):
    """The ticks of one round, from weights on all workers to new weights on all of them.

        max over i of (t_i + (N - i + 1) c) + N c + 2 latency + update

    where t_1 <= t_2 <= ... are the workers' times: behind the i-th gradient, N - i more pass the port. With
    equal workers, that is t + 2 N n / (s b) + ...; if one is far slower, its t + (N + 1) c + ...

    times: of a gradient on each worker.
    n_bytes: of all weights; a multiple of n_servers.
    bandwidth: of each port of a server, bytes per tick.
    latency, update: ticks of a message and of an update.

    >>> int(round_ticks([5, 5, 5], n_bytes=8, bandwidth=4)), int(round_ticks([5, 5, 50], 8, 4))
    (17, 58)
    """
    times = [argument("ticks", t) for t in listed("times", times)]
    N, c = len(times), _ticks_of_a_part(n_bytes, bandwidth, n_servers)
    latency, update = argument("latency", latency), argument("update", update)
    gathered = max(t + (N - i) * c for i, t in enumerate(sorted(times)))
    return gathered + N * c + 2 * latency + update


def synchronous_ticks(
    n_rounds, n_workers, ticks, n_bytes, bandwidth, n_servers=1, latency=0, update=0
):
    """The ticks of many rounds with equal workers, at least as many as servers.

        (R - 1) (t + (N + s) c + 2 latency + update) + t + 2 N c + 2 latency + update

    Only the last round takes the 2 N c of `round_ticks`: who gets its weights first is back first, so that
    the next gradients come in while these weights go out.

    n_rounds, n_workers, ticks: R, N, and t of a gradient.
    all others: as for `round_ticks`.

    >>> int(synchronous_ticks(1, 3, 5, n_bytes=8, bandwidth=4)), int(synchronous_ticks(11, 3, 5, 8, 4))
    (17, 147)
    """
    n_rounds, ticks = argument("n_rounds", n_rounds), argument("ticks", ticks)
    N, s, c = argument("n_workers", n_workers), n_servers, _ticks_of_a_part(n_bytes, bandwidth, n_servers)
    if N < s:
        raise ValueError(f"n_servers={s} exceeds n_workers={N}: use at most {N} servers, or `round_ticks`")
    latency, update = argument("latency", latency), argument("update", update)
    of_all = ticks + 2 * latency + update
    return (n_rounds - 1) * (of_all + (N + s) * c) + of_all + 2 * N * c


def bytes_through_server(n_workers, n_bytes, n_servers=1):
    """The bytes that go into each server in a round, and as many out: N n / s.

    >>> int(bytes_through_server(32, 100, n_servers=4))
    800
    """
    n_workers, n_servers = argument("n_workers", n_workers), argument("n_servers", n_servers)
    return n_workers * Fraction(argument("n_bytes", n_bytes)) / n_servers


def bytes_on_workers(n_workers, n_bytes):
    """The bytes that each device sends in a round if each worker is also a server: 2 (N - 1)/N n, as a ring.

    >>> int(bytes_on_workers(32, 100_000_000))
    193750000
    """
    n_workers = argument("n_workers", n_workers)
    return 2 * Fraction(n_workers - 1, n_workers) * Fraction(argument("n_bytes", n_bytes))


def _ticks_of_a_part(n_bytes, bandwidth, n_servers):
    """Return c = n / (s b), the ticks that the part of one server takes through a port."""
    n_bytes, bandwidth = argument("n_bytes", n_bytes), argument("bandwidth", bandwidth)
    return Fraction(n_bytes) / (argument("n_servers", n_servers) * Fraction(bandwidth))


def mini_batches(X, Y, batch_size, n, seed=0):
    """The first n mini-batches of one pass over the samples after the other: a list of (X, Y).

    X, Y: (n[0], m) and (n[L], m).
    batch_size: the most samples of each; those of a pass are as equal as can be.
    n: how many.
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
    m, batch_size = X.shape[-1], argument("batch_size", batch_size)
    n, seed = argument("mini_batches.n", n), argument("seed", seed)
    parts = even_slices(m, -(-m // batch_size))
    line = ((shuffled(m, seed, epoch), part) for epoch in count(1) for part in parts)
    chosen = (order[part] for order, part in islice(line, n))
    return [(np.take(X, at, axis=-1), np.take(Y, at, axis=-1)) for at in chosen]
