"""Checkers for notebooks 27 and 28, slow links."""

from fractions import Fraction
from functools import cache

from minipipe import Costs, Link, simulate
from minipipe.schedules import eager_one_f_one_b, gpipe
from . import judged


def check_hidden(hidden):
    """Judge `hidden(K, F, B)`: the longest latency of a hop with which eager 1F1B does a micro-batch every F
    + B ticks.

    K devices, F and B the ticks of a forward and of a backward. The truth is counted in runs, in steps of a
    quarter tick.

    >>> check_hidden(lambda K, F, B: F + B)
    'Twice too long: a gradient comes back after two hops for each device on the way, one up and one down.'
    """
    cases = [(4, 1, 2), (6, 1, 2), (3, 2, 4), (5, 3, 2), (2, 1, 1)]
    mistakes = [
        (lambda K, F, B: F + B,
         "Twice too long: a gradient comes back after two hops for each device on the "
         "way, one up and one down."),
        (lambda K, F, B: (K - 1) * (F + B) / 2,
         "That is the latency of all K - 1 hops together; asked was that of one."),
        (lambda K, F, B: (K - 1) * (F + B),
         "That is the latency of all 2 (K - 1) hops together; asked was that of one."),
        (lambda K, F, B: (2 * K - 1) * (F + B) / (2 * (K - 1)),
         "You left out the work of the round trip: of (2K - 1)(F + B) ticks, K (F + B) are spent computing."),
        (lambda K, F, B: K * (F + B) / (2 * (K - 1)),
         "Eager 1F1B has 2K - 1 micro-batches under way from device 0, not 2K: one less than you counted."),
        (lambda K, F, B: 0,
         "That is plain 1F1B: it has as many micro-batches under way as the round trip "
         "needs with free links."),
        (lambda K, F, B: F / 2,
         "Device 0 works for F + B ticks in each step, not for F: both hide the links."),
        (lambda K, F, B: B / 2,
         "Device 0 works for F + B ticks in each step, not for B: both hide the links."),
        (lambda K, F, B: F, "A hop is hidden by a share of a whole step, F + B, not by one forward."),
        (lambda K, F, B: B, "A hop is hidden by a share of a whole step, F + B, not by one backward."),
    ]
    return judged(hidden, ("K", "F", "B"), cases, [_longest_hidden(*case) for case in cases], mistakes) or (
        "Right: (F + B)/2, whatever K is. Each device more makes the way longer by two hops, and adds two "
        "micro-batches to those under way.")


@cache
def _longest_hidden(K, F, B):
    """The longest latency, in steps of 1/4, with which 2K - 1 micro-batches more take (2K - 1)(F + B) ticks
    more.
    """
    M, more = 4 * K, 2 * K - 1
    latencies = [Fraction(quarters, 4) for quarters in range(8 * (F + B))]
    too_long = next(c for c in latencies
                    if _eager(K, M + more, F, B, c) - _eager(K, M, F, B, c) > more * (F + B))
    return float(too_long - Fraction(1, 4))


def _eager(K, M, F, B, c):
    return simulate(eager_one_f_one_b(K, M), Costs(F=F, B=B), Link(latency=c)).makespan


def check_blocking(makespan):
    """Judge `makespan(K, M, F, B, c)` of GPipe, K >= 2, if a send blocks its device for c ticks. The truth is
    counted.

    >>> check_blocking(lambda K, M, F, B, c: (M + K - 1) * (F + B) + 2 * (K - 1) * c)
    'That is GPipe with sends that do not block: now every send of a device delays its next action, too.'
    """
    cases = [(4, 8, 1, 2, 1), (2, 3, 2, 5, 3), (6, 10, 1, 1, 2), (3, 1, 4, 2, 1)]
    mistakes = [
        (lambda K, M, F, B, c: (M + K - 1) * (F + B) + 2 * (K - 1) * c,
         "That is GPipe with sends that do not block: now every send of a device delays "
         "its next action, too."),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B), "That is GPipe with free links."),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B + 2 * c),
         "One send too many each way: the last device sends no activations, and device 0 no gradients."),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B) + (M + K - 2) * c,
         "That is one way only: gradients travel back just as slowly."),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B) + (M + K - 1) * c,
         "That is one way only: gradients travel back just as slowly."),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B) + 2 * M * c,
         "Those are the sends of one device; the fill and the drain pass K - 2 more of them each."),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B) + 2 * (M - 1) * c,
         "Those are the sends of one device; the fill and the drain pass K - 1 more of them each."),
        (lambda K, M, F, B, c: (M + K - 1) * (F + B) + 2 * M * (K - 1) * c,
         "Those are all messages, one after the other: devices are blocked at the same time."),
    ]
    right = [simulate(gpipe(K, M), Costs(F=F, B=B), Link(latency=c, blocking=True)).makespan
             for K, M, F, B, c in cases]
    return judged(makespan, ("K", "M", "F", "B", "c"), cases, right, mistakes) or (
        "Right: (M + K - 1)(F + B) + 2 (M + K - 2) c. Without blocking it was 2 (K - 1) c: the messages of M "
        "- 1 more micro-batches are no longer hidden.")
