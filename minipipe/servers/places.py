"""Which device is a server, which a worker, and how long a worker takes."""

from fractions import Fraction
from typing import NamedTuple

import numpy as np

from ..arguments import argument
from ..checks import python_number, real_number, shown, whole_number
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


class Times:
    """How long each gradient of each worker takes.

    n_workers: how many workers there are.
    pace: the `Pace`.
    seed: of the random delays.

    >>> times = Times(2, Pace(ticks=2, speeds=[1, Fraction(1, 4)]))
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
