"""Runs of a collective on the ranks of one group, for the tests of collectives."""

from minipipe.cluster import Cluster, Link, ports
from minipipe.collectives import Group


def run(collective, values, *args, link=Link(), bandwidth=None, gamma=0):
    """(what each rank gets, the trace) of `collective(group, value, *args)` on one rank for each value."""
    N, found = len(values), {}

    def program(rank):
        group = Group(rank, range(N), gamma=gamma)
        found[rank] = yield from collective(group, values[rank], *args)

    programs = [program(rank) for rank in range(N)]
    trace = Cluster(programs, link=link, ports=ports(N, bandwidth) if bandwidth else ()).run()
    return [found[rank] for rank in range(N)], trace


def bytes_sent(trace, N):
    """The bytes that each rank sends: a list."""
    return [sum(m.n_bytes for m in trace.messages if m.source == rank) for rank in range(N)]
