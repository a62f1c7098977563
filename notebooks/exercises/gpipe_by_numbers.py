"""Checkers for notebooks 35, 36 and 37, GPipe by the numbers."""

from fractions import Fraction
from functools import cache
from itertools import count
from math import ceil

from minipipe import Costs, describe, simulate
from minipipe.models import transformer
from minipipe.order import with_recompute
from minipipe.schedules import gpipe

from . import judged

GIB = 2 ** 30


def check_memory(memory):
    """Judge `memory(L, d, V, s)`: GiB of parameters, gradients and Adam's two moments, in float32, of a
    Transformer.

    L blocks of width d, feed-forward 4 d, V tokens, s places that are embedded, too; the last Linear shares
    its W with the Embedding and has a bias. The truth is counted by `describe`.

    >>> def with_two_tables(L, d, V, s):
    ...     return 16 * (L * (12 * d**2 + 13 * d) + 2 * V * d + V + s * d + 2 * d) / 2**30
    >>> check_memory(with_two_tables)
    'You counted the W of the tokens twice: the last Linear is tied to the Embedding, so V d
    numbers are there once.'
    """
    cases = [(12, 768, 50257, 1024), (2, 64, 100, 16), (5, 512, 1000, 300), (1, 2048, 32000, 1024)]
    right = [_counted_memory(*case) for case in cases]
    return judged(memory, ("L", "d", "V", "s"), cases, right, MEMORY_MISTAKES) or (
        "Right: the first case is the small GPT-2, but for the bias, which that has not: 124 million "
        "parameters, 1.86 GiB.")


def _counted_memory(L, d, V, s):
    return 16 * describe(transformer(V, d, 1, L, n_places=s, tied=True), (s,)).parameters / GIB


def _parameters(L, d, V, s):
    return L * (12 * d * d + 13 * d) + V * d + V + s * d + 2 * d


MEMORY_MISTAKES = [
    (lambda L, d, V, s: 16 * (_parameters(L, d, V, s) + V * d) / GIB,
     "You counted the W of the tokens twice: the last Linear is tied to the Embedding, so V d "
     "numbers are there once."),
    (lambda L, d, V, s: 16 * (_parameters(L, d, V, s) - 13 * L * d) / GIB,
     "Those are the matrices of a block alone: its biases and its two LayerNorms are 13 d numbers more."),
    (lambda L, d, V, s: 16 * (_parameters(L, d, V, s) - 4 * L * d) / GIB,
     "You left out the two LayerNorms of each block, 4 d numbers."),
    (lambda L, d, V, s: 16 * (_parameters(L, d, V, s) - 9 * L * d) / GIB,
     "You left out the biases of each block: 4 d in the attention, 5 d in the feed-forward part."),
    (lambda L, d, V, s: 16 * (_parameters(L, d, V, s) - V) / GIB,
     "You left out the bias of the last Linear: V numbers, which are not tied."),
    (lambda L, d, V, s: 16 * (_parameters(L, d, V, s) - 2 * d) / GIB,
     "You left out the LayerNorm behind the last block: 2 d numbers."),
    (lambda L, d, V, s: 16 * (_parameters(L, d, V, s) - s * d) / GIB,
     "You left out the places: they are embedded, too, s d numbers."),
    (lambda L, d, V, s: 16 * _parameters(L, d, V, s) / 1e9,
     "That is in GB, 10^9 bytes: a GiB is 2^30 bytes."),
    (lambda L, d, V, s: 12 * _parameters(L, d, V, s) / GIB,
     "12 bytes are GPipe's, with one moment. Adam keeps two: with the value and its gradient, "
     "4 numbers of 4 bytes."),
    (lambda L, d, V, s: 8 * _parameters(L, d, V, s) / GIB,
     "Four numbers belong to each parameter: value, gradient and two moments."),
    (lambda L, d, V, s: 4 * _parameters(L, d, V, s) / GIB,
     "That is the parameters alone: a gradient and two moments belong to each."),
    (lambda L, d, V, s: 16 * _parameters(L, d, V, s), "That is in bytes: divide by 2^30 for GiB."),
    (_parameters, "That is the number of parameters: each has 16 bytes, and a GiB has 2^30."),
]


def check_relative(relative):
    """Judge `relative(K, M)`: the throughput with K devices, relative to 2, if recomputation runs before the
    gradient is there.

    The same network in equal stages, M micro-batches each time, free links; in a stage R = F and B = 2 F. The
    truth is counted.

    >>> check_relative(lambda K, M: K * (M + 1) / (2 * (M + K - 1)))
    'That is the ideal of the first section: there recomputation waits for the gradient, or
    is not there at all.'
    """
    cases = [(8, 32), (4, 32), (8, 1), (2, 5), (16, 64)]
    mistakes = [
        (lambda K, M: K * (M + 1) / (2 * (M + K - 1)),
         "That is the ideal of the first section: there recomputation waits for the gradient, "
         "or is not there at all."),
        (lambda K, M: 4 * M * K / (4 * M + 3 * (K - 1)),
         "That compares with one device; asked was with two."),
        (lambda K, M: M * K / (M + K - 1),
         "That compares with one device, and lets recomputation wait; asked was with two."),
        (lambda K, M: K / 2,
         "That is without a bubble: a pipeline of K devices needs longer to fill and drain than one of 2."),
        (lambda K, M: (4 * M + 3) / (4 * M + 3 * (K - 1)),
         "You gave each stage the same time: it is the same network, so that with K stages each "
         "is K/2 times as short."),
        (lambda K, M: 2 * (4 * M + 3 * (K - 1)) / (K * (4 * M + 3)),
         "Upside down: throughput grows as the makespan shrinks."),
        (lambda K, M: K * (4 * M + 1) / (2 * (4 * M + K - 1)),
         "Of fill and drain you counted the forwards alone: the drain is made of backwards, 2 F each."),
        (lambda K, M: K * (4 * M + 2) / (2 * (4 * M + 2 * (K - 1))),
         "Of fill and drain you counted the backwards alone: the fill is made of forwards, 1 F each."),
        (lambda K, M: K * (3 * M + 4) / (2 * (3 * M + 4 * (K - 1))),
         "It is the other way round: recomputation is hidden in the drain, and takes its time "
         "for all M micro-batches."),
    ]
    return judged(relative, ("K", "M"), cases, [_counted_relative(*case) for case in cases], mistakes) or (
        "Right: with M = 32 that is 1.912 for K = 4 and 3.517 for K = 8. The published 3.4/1.8 and "
        "6.3/1.8 are 1.889 and 3.5.")


def _counted_relative(K, M):
    makespans = [simulate(with_recompute(gpipe(n, M)), Costs(F=1, B=2, R=1)).makespan for n in (2, K)]
    return K * makespans[0] / (2 * makespans[1])


def check_fewest(fewest):
    """Judge `fewest(K, share)`: the smallest M with which GPipe's devices are idle for at most `share` of the
    whole time.

    Equal stages and free links; share is a `Fraction` between 0 and 1. The truth is counted.

    >>> check_fewest(lambda K, share: (K - 1) * (1 - share) / share)
    'Nearly: M is a whole number, so round up.'
    """
    shares = {4: (1, 10), 8: (1, 5), 2: (1, 4), 6: (3, 20), 5: (2, 7), 3: (1, 8)}
    cases = [(K, Fraction(*share)) for K, share in shares.items()]
    mistakes = [
        (lambda K, share: float((K - 1) * (1 - share) / share), "Nearly: M is a whole number, so round up."),
        (lambda K, share: (K - 1) * (1 - share) // share,
         "Round up, not down: one micro-batch fewer, and the bubble is too large."),
        (lambda K, share: (K - 1) * (1 - share) // share + 1,
         "One too many where the division leaves nothing over: at most means that the share "
         "itself is good enough."),
        (lambda K, share: ceil((K - 1) / share),
         "That is M + K - 1, the whole time in forwards and backwards of a stage. Take K - "
         "1 away, and M is left."),
        (lambda K, share: ceil(K * (1 - share) / share), "A device waits for K - 1 others, not for K."),
        (lambda K, share: ceil((K - 1) * share / (1 - share)),
         "share is the idle part; you took it for the busy one."),
        (lambda K, share: 4 * K,
         "4 K is the paper's rule. Its bubble is just below a fifth, whatever K is; asked was any share."),
    ]
    return judged(fewest, ("K", "share"), cases, [_counted_fewest(*case) for case in cases], mistakes) or (
        "Right: (K - 1)(1 - share)/share, rounded up. It grows with K - 1: twice the devices want "
        "twice the micro-batches.")


@cache
def _counted_fewest(K, share):
    return next(M for M in count(1) if _idle(K, M) <= share)


def _idle(K, M):
    """Idle time as a share of all devices' time."""
    trace = simulate(gpipe(K, M), Costs(F=1, B=2))
    return 1 - Fraction(sum(trace.busy_ticks()), K * trace.makespan)


def check_bound(bound):
    """Judge `bound(base, K, M)`: the largest relative throughput of any schedule with recomputation or
    without, on K devices with M equal micro-batches.

    base: the time of the cell that all are divided by, K = 2 and M = 1, in forwards of the whole network; a
    backward is two of them.

    >>> check_bound(lambda base, K, M: base * K / 3)
    'That is the work alone, spread evenly: with M = 1 only one device works at a time.'
    """
    cases = [(3.5, 8, 4), (3.5, 8, 1), (4, 4, 32), (3.5, 2, 4), (4, 3, 3)]
    mistakes = [
        (lambda base, K, M: base * M / 3,
         "That is the way of one micro-batch alone: with many of them, each device still has M / K of all "
         "the work to do."),
        (lambda base, K, M: base * K / 3,
         "That is the work alone, spread evenly: with M = 1 only one device works at a time."),
        (lambda base, K, M: base / 4 * min(K, M),
         "You counted a recomputation: for a bound on any schedule, not even that has to be computed again."),
        (lambda base, K, M: min(K, M) / 3, "The cells are relative to the base: multiply by its time."),
        (lambda base, K, M: min(K, M), "The cells are relative to the base: multiply by its time over 3."),
        (lambda base, K, M: base / 3 * max(K, M), "The smaller of the two: both limits hold."),
        (lambda base, K, M: base * K * M / (M + K - 1) / 3,
         "That is GPipe's schedule with equal stages: other schedules can be faster."),
    ]
    right = [base / 3 * min(K, M) for base, K, M in cases]
    return judged(bound, ("base", "K", "M"), cases, right, mistakes) or (
        "Right: base / 3 * min(K, M). For K = 8, M = 4 and a base of 3.5 it is 4.67, and the paper prints "
        "4.8.")
