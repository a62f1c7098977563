"""Checkers for notebook 24, one sum on N devices."""

import inspect

import numpy as np

from minipipe.cluster import Cluster, DeadlockError
from minipipe.collectives import Group, all_reduce_ticks
from . import called, judged, same, stopped

RING_MISTAKES = [
    (lambda N, n, alpha, beta: 2 * (N - 1) * (alpha + n * beta),
     "Each message has one chunk, n / N bytes, not all n."),
    (lambda N, n, alpha, beta: (N - 1) * (alpha + n / N * beta),
     "That is half of it: after N - 1 steps each chunk is summed, but on one rank only."),
    (lambda N, n, alpha, beta: 2 * N * (alpha + n / N * beta),
     "One step too many in each round: a rank has a chunk of its own, which does not travel."),
    (lambda N, n, alpha, beta: 2 * alpha + 2 * (N - 1) / N * n * beta,
     "The bytes are right. But each step waits for the one before, so each pays the latency."),
    (lambda N, n, alpha, beta: 2 * N * (N - 1) * (alpha + n / N * beta),
     "You added up the messages of all ranks. In each step they travel at the same time."),
]


def check_ring_ticks(ring_ticks):
    """Judge `ring_ticks(N, n, alpha, beta)`: the ticks of a ring all-reduce; n is a multiple of N.

    >>> check_ring_ticks(lambda N, n, alpha, beta: 2 * (N - 1) * (alpha + n * beta))
    'Each message has one chunk, n / N bytes, not all n.'
    """
    cases = [(4, 1024, 100, 1 / 16), (8, 4096, 100, 1 / 16), (3, 30, 7, 1), (1, 8, 5, 1)]
    right = [float(all_reduce_ticks("ring", *case)) for case in cases]
    return judged(ring_ticks, ("N", "n", "alpha", "beta"), cases, right, RING_MISTAKES) or (
        "Right: 2 (N - 1) alpha + 2 (N - 1)/N n beta. The bytes hardly grow with N, the latency does.")


def check_all_gather(all_gather):
    """Judge the program `all_gather(group, part)`: afterwards each rank returns the list of all parts.

    It is run on 1 to 5 ranks, and must send each part N - 1 times and no more.
    """
    if all_gather is None:
        return "Not solved yet: the answer is None."
    for N in (2, 3, 4, 5, 1):
        parts = [np.full(3, 10.0 * rank + 1) for rank in range(N)]
        found, n_bytes, sentence = _run(all_gather, parts)
        if sentence is None and all(got is None for got in found.values()):
            sentence = "Not solved yet: your program returns None."
        if sentence is not None:
            return sentence
        fault = _fault(found, parts, n_bytes)
        if fault is not None:
            return f"With {N} ranks: {fault}"
    return "Right: N - 1 steps, in each of which every rank passes on what it got last."


def _run(program, parts):
    """Return (what each rank returns, the bytes of all messages, None), or (None, None, a sentence)."""
    N, found = len(parts), {}
    first, sentence = called(program, Group(0, range(N)), parts[0])
    if sentence is not None:
        return None, None, sentence
    if not inspect.isgenerator(first):
        return None, None, "A program is a generator: it must `yield` each of its sends and receives."

    def keeps(rank):
        found[rank] = yield from program(Group(rank, range(N)), parts[rank].copy())

    try:
        trace = Cluster([keeps(rank) for rank in range(N)]).run()
    except DeadlockError as error:
        return None, None, f"With {N} ranks nobody can go on: {error}."
    except Exception as error:  # whatever the learner's code does wrong becomes a sentence
        return None, None, stopped("Your program", error)
    return found, sum(message.n_bytes for message in trace.messages), None


def _fault(found, parts, n_bytes):
    """Return what is wrong with what the ranks return, or None."""
    N = len(parts)
    for rank, got in sorted(found.items()):
        if not isinstance(got, list) or len(got) != N:
            return f"rank {rank} must return a list of {N} parts."
        missing = [place for place, part in enumerate(got) if part is None]
        if missing:
            return f"rank {rank} has nothing in place {missing[0]} of its list."
        if not all(same(part, right) for part, right in zip(got, parts)):
            return f"rank {rank} has a wrong part in place, or the parts are not in the order of the ranks."
    least = N * (N - 1) * parts[0].nbytes
    if n_bytes != least:
        return f"the ranks send {n_bytes} bytes; {least} are enough: each part once to each other rank."
    return None
