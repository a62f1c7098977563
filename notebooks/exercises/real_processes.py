"""Checkers for notebook 39, real processes."""

import inspect

import numpy as np

from minipipe.cluster import DeadlockError
from minipipe.engines import Threads
from . import judged, stopped


def check_speed_up(speed_up):
    """Judge `speed_up(K, M)`: how many times as fast K devices are as one, at best, with M micro-batches.

    >>> check_speed_up(lambda K, M: K)
    'That is without the bubble: K - 1 of the M + K - 1 steps of a device are idle.'
    """
    cases = [(2, 8), (4, 8), (3, 1), (1, 5), (8, 64)]
    right = [K * M / (M + K - 1) for K, M in cases]
    mistakes = [
        (lambda K, M: K, "That is without the bubble: K - 1 of the M + K - 1 steps of a device are idle."),
        (lambda K, M: M / (M + K - 1), "That is the share of the time in which one device works."),
        (lambda K, M: (M + K - 1) / (K * M), "That is the time; the speed-up is one over it."),
        (lambda K, M: (K - 1) / (M + K - 1), "That is the bubble."),
        (lambda K, M: K * M / (M + K), "Nearly: one device, K = 1, must have a speed-up of 1."),
    ]
    return judged(speed_up, ("K", "M"), cases, right, mistakes) or (
        "Right: K M / (M + K - 1), 16/9 for two devices and eight micro-batches.")


def check_lead(lead):
    """Judge `lead(t0, t1, t2)`: by how much the other clock is ahead, if it said t1 between our t0 and t2.

    >>> check_lead(lambda t0, t1, t2: t1 - t0)
    'That takes the way there for no time: the other clock was read in the middle, at (t0 + t2)/2.'
    """
    cases = [(0, 7, 2), (10, 4, 10.5), (3, 5, 7), (100, 100, 108)]
    right = [t1 - (t0 + t2) / 2 for t0, t1, t2 in cases]
    middle = "the other clock was read in the middle, at (t0 + t2)/2."
    mistakes = [
        (lambda t0, t1, t2: t1 - t0, f"That takes the way there for no time: {middle}"),
        (lambda t0, t1, t2: t1 - t2, f"That takes the way back for no time: {middle}"),
        (lambda t0, t1, t2: (t0 + t2) / 2 - t1, "That is by how much ours is ahead: the sign is wrong."),
        (lambda t0, t1, t2: t1 - (t2 - t0) / 2, "(t2 - t0)/2 is the length of one way, not a time of day."),
    ]
    return judged(lead, ("t0", "t1", "t2"), cases, right, mistakes) or (
        "Right: t1 - (t0 + t2)/2, with an error of at most half of t2 - t0.")


def check_swap(swap):
    """Judge the program `swap(rank, value)` of two ranks, which return each other's value.

    It is run where a send waits until the message is received, too.
    """
    if swap is None:
        return "Not solved yet: the answer is None."
    if not callable(swap):
        return "Pass the function itself, which is a program with two arguments, rank and value."
    values = [np.arange(3.0), np.ones(2)]
    for synchronous in (False, True):
        found, sentence = _run(swap, values, synchronous)
        if sentence is not None:
            return sentence
        if all(got is None for got in found.values()):
            return "Not solved yet: your program returns None."
        for rank in range(2):
            if not np.array_equal(found[rank], values[1 - rank]):
                return f"Rank {rank} must return what the other rank had, {values[1 - rank].tolist()}."
    return "Right: one sends first, the other receives first, and nothing has to be stored on the way."


def _run(swap, values, synchronous):
    """({rank: what it returns}, None), or (None, sentence)."""
    found = {}

    def keeps(rank):
        found[rank] = yield from swap(rank, values[rank].copy())

    try:
        for rank in range(2):
            if not inspect.isgenerator(swap(rank, values[rank].copy())):
                return None, "A program is a generator: it must `yield` its send and its receive."
        Threads([keeps(rank) for rank in range(2)], synchronous=synchronous).run()
    except DeadlockError as error:
        where = "where a send waits for its receive" if synchronous else "even where messages are stored"
        return None, f"Nobody can go on, {where}: {error}."
    except Exception as error:  # whatever the learner's code does wrong becomes a sentence
        return None, stopped("Your program", error)
    return found, None
