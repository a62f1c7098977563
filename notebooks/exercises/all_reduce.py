"""Checkers for notebook 38, the all-reduce."""

import inspect

import numpy as np

from minipipe.cluster import Cluster, DeadlockError
from minipipe.collectives import Group, all_reduce_ticks
from . import called, judged, same, stopped


def check_ring_ticks(ring_ticks):
    """Judge `ring_ticks(N, n, alpha, beta)`: how long the all-reduce in a ring takes; n is a multiple of N.

    >>> check_ring_ticks(lambda N, n, alpha, beta: 2 * (N - 1) * (alpha + n * beta))
    'Each message has one chunk, n / N bytes, not all n.'
    """
    cases = [(4, 1024, 100, 1 / 16), (8, 4096, 100, 1 / 16), (3, 30, 7, 1), (1, 8, 5, 1)]
    right = [float(all_reduce_ticks("ring", *case)) for case in cases]
    mistakes = [
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
    return judged(ring_ticks, ("N", "n", "alpha", "beta"), cases, right, mistakes) or (
        "Right: 2 (N - 1) alpha + 2 (N - 1)/N n beta. The bytes hardly grow with N, the latency does.")


def check_all_gather(all_gather):
    """Judge the program `all_gather(group, part)`: afterwards each rank returns the list of all parts.

    It is run on 1 to 5 ranks, and must send each part N - 1 times and no more.
    """
    if all_gather is None:
        return "Not solved yet: the answer is None."
    for N in (2, 3, 4, 5, 1):
        parts = [np.full(3, 10.0 * rank + 1) for rank in range(N)]
        found, messages, sentence = _run(all_gather, parts)
        if sentence is not None:
            return sentence
        if all(got is None for got in found.values()):
            return "Not solved yet: your program returns None."
        sentence = _fault(found, parts, messages)
        if sentence is not None:
            return f"With {N} ranks: {sentence}"
    return "Right: N - 1 steps, in each of which every rank hands on what it got last."


def _run(program, parts):
    """(what each rank returns, the bytes of all messages, None), or (None, None, sentence)."""
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
    """What is wrong with what the ranks return, or None."""
    N = len(parts)
    for rank, got in sorted(found.items()):
        if not isinstance(got, list) or len(got) != N:
            return f"rank {rank} must return a list of {N} parts."
        missing = [place for place, part in enumerate(got) if part is None]
        if missing:
            return f"rank {rank} has nothing in place {missing[0]} of its list."
        if not all(same(part, right) for part, right in zip(got, parts)):
            if sorted(map(_first, got)) == sorted(map(_first, parts)):
                return f"rank {rank} has all parts, but not in the order of the ranks."
            return f"rank {rank} has a wrong part in its list."
    least = N * (N - 1) * parts[0].nbytes
    if n_bytes != least:
        return f"the ranks send {n_bytes} bytes; {least} are enough: each part once to each other rank."
    return None


def _first(part):
    return float(np.ravel(part)[0]) if np.size(part) else 0.0


def check_fastest(fastest):
    """Judge the names of the fastest all-reduce for 64 bytes and for 1 MB, if 8 ranks pay for each send.

    >>> check_fastest(["owners", "owners"])
    'Not quite: for 64 bytes owners takes 1407 ticks, doubling 312.'
    """
    if fastest is None or not isinstance(fastest, (list, tuple)) or None in list(fastest):
        return "Not solved yet: write two names, such as [\"naive\", \"tree\"]."
    if len(fastest) != 2 or not all(name in _PAID for name in fastest):
        return f"Write two names, each one of {', '.join(_PAID)}."
    for name, n, words in zip(fastest, (64, 2**20), ("64 bytes", "1 MB")):
        ticks = {other: formula(n) for other, formula in _PAID.items()}
        best = min(ticks, key=ticks.get)
        if ticks[name] > ticks[best]:
            return f"Not quite: for {words} {name} takes {ticks[name]:.0f} ticks, {best} {ticks[best]:.0f}."
    return "Right: few steps where messages are small, few bytes where they are large; halving has both few."


def _paid(steps, share):
    """Ticks of n bytes: `steps` messages one after the other, `share` n bytes through a port."""
    return lambda n: 100 * steps + share * n / 16


_PAID = {
    "naive": _paid(2 * 7, 2 * 7), "tree": _paid(2 * 3, 2 * 3), "doubling": _paid(3, 3),
    "halving": _paid(2 * 3, 2 * 7 / 8), "ring": _paid(2 * 7, 2 * 7 / 8), "owners": _paid(2 * 7, 2 * 7 / 8),
}
