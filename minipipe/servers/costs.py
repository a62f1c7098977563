"""What synchronous rounds through servers cost, in closed form.

N workers, s servers, n bytes of weights; each server has a port in and a port out of b bytes per tick, and
nothing else is in the way. A server's part passes a port in c = n / (s b) ticks.
"""

from fractions import Fraction

from ..arguments import argument
from ..checks import listed


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
