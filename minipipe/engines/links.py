"""How long a message takes on real hardware, as the programs of a run notice it."""

from math import inf
from statistics import median

import numpy as np

from ..checks import whole_number
from ..cluster import Link, Receive, Send


def measured_link(engine, devices, n_bytes, rounds=20):
    """The `Link` over which messages go as they do from device 0 to 1 and back, in seconds.

    engine: what runs the programs: `Mpi`, where all ranks make this call, or `Threads`.
    devices: as many as there are.
    n_bytes: the size of the larger messages; the others have one byte.

    A message of n bytes takes latency + n / bandwidth, which is half of a round trip, in the median of the
    rounds: the copy that the sender makes, the way, and the time until the program that waits goes on.

    >>> from ..cluster import Cluster
    >>> from functools import partial
    >>> measured_link(partial(Cluster, link=Link(latency=4, bandwidth=64)), 2, 129)
    Link(latency=4.0, bandwidth=64.0, blocking=False, rendezvous=False)
    """
    devices, rounds = whole_number("devices", devices, 1), whole_number("rounds", rounds, 1)
    n_bytes = whole_number("n_bytes", n_bytes, 0)
    if devices == 1 or n_bytes <= 1:
        return Link()
    machine = engine([_there_and_back(device, n_bytes, rounds) for device in range(devices)])
    machine.run()
    there, back = ({str(message.label): message for message in machine.trace.messages if message.to == to}
                   for to in (1, 0))
    small, large = (
        median((back[label].received - there[label].sent) / 2 for label in _message_labels(size, rounds))
        for size in ("small", "large")
    )
    bandwidth = (n_bytes - 1) / (large - small) if large > small else inf
    return Link(max(0, small - 1 / bandwidth), bandwidth)


def _there_and_back(device, n_bytes, rounds):
    """The program of a device: the first two send each other messages of one byte, and then larger ones."""
    for size, n in (("small", 1), ("large", n_bytes)):
        value = np.zeros(n, np.uint8)
        for label in _message_labels(size, rounds):
            if device == 0:
                yield Send(label, value, to=1)
                yield Receive(label, source=1)
            elif device == 1:
                yield Receive(label, source=0)
                yield Send(label, value, to=0)


def _message_labels(size, rounds):
    return [f"{size} {number}" for number in range(rounds)]
