"""Checkers for notebooks 33 and 34, memory and recomputation."""

import math
from functools import cache

from minipipe import Chain, Linear, MeanSquaredError, footprints, simulate
from minipipe.order import in_segments, with_recompute
from minipipe.schedules import build
from . import judged

WIDTH = 2


def check_peak(peak):
    """Judge `peak(N, M, L, K, n, a, c)`: the most bytes of activations on device 0 of K >= 2, GPipe with n
    segments a stage.

    N samples in M micro-batches, L equal layers, all recomputed; of a sample, a bytes are a layer's input,
    and c is all that a layer keeps for its backward, that input among it. Activations are stashed inputs and
    caches. The truth is counted.

    >>> check_peak(lambda N, M, L, K, n, a, c: n * N * a + L / (K * n) * N / M * c)
    'Nearly: the input of the segment whose caches are there is among these. Of M n inputs,
    M n - 1 lie beside.'
    """
    cases = [(N, M, L, K, n, 8 * WIDTH, 8 * (WIDTH + hidden)) for N, M, L, K, n, hidden in (
        (24, 8, 24, 4, 3, 6), (12, 3, 8, 2, 2, 4), (10, 10, 15, 3, 1, 3), (6, 1, 12, 3, 4, 6),
        (36, 4, 16, 2, 4, 1),
    )]

    def with_parts(inputs, caches):
        """Of micro-batches' inputs, and of layers' caches of a micro-batch, so many."""
        return lambda N, M, L, K, n, a, c: N / M * (inputs(M, n) * a + caches(M, L / K, n) * c)

    mistakes = [
        (with_parts(lambda M, n: M * n, lambda M, l, n: l / n),
         "Nearly: the input of the segment whose caches are there is among these. Of M n "
         "inputs, M n - 1 lie beside."),
        (with_parts(lambda M, n: (M - 1) * n, lambda M, l, n: l / n),
         "Nearly: the micro-batch that goes backward has inputs, too: of all its segments but "
         "the one that is there."),
        (with_parts(lambda M, n: M - 1, lambda M, l, n: l),
         "That is one segment a stage. With n, each micro-batch keeps n inputs, and the "
         "caches are of one segment."),
        (with_parts(lambda M, n: M * n - 1, lambda M, l, n: l),
         "One segment at a time is recomputed: the caches are those of L / (K n) layers."),
        (with_parts(lambda M, n: M - 1, lambda M, l, n: l / n),
         "The price of segments is missing: each micro-batch keeps an input for each of its n segments."),
        (with_parts(lambda M, n: M * n - 1, lambda M, l, n: M * l / n),
         "One micro-batch at a time is recomputed: its caches are of N / M samples, not of N."),
        (with_parts(lambda M, n: M * n, lambda M, l, n: 0),
         "Those are the inputs alone: the segment that goes backward needs its caches, too."),
        (with_parts(lambda M, n: 0, lambda M, l, n: l / n),
         "Those are the caches alone: all else that waits, waits with its input."),
        (with_parts(lambda M, n: 0, lambda M, l, n: M * l), "That is GPipe without recomputation."),
        (lambda N, M, L, K, n, a, c: N / M * ((M * n - 1) * a + L / n * c),
         "A device has L / K of the layers, not L."),
        (lambda N, M, L, K, n, a, c: (M * n - 1) * a + L / (K * n) * c,
         "a and c are of one sample: a micro-batch has N / M of them."),
        (lambda N, M, L, K, n, a, c: M * n * a + L / n * c,
         "That is section 4's rule of thumb for one device: a and c are of one sample, and a "
         "device has L / K layers."),
    ]
    right = [_counted("gpipe", K, M, N // M, L, hidden_of(a, c), n)[0] for N, M, L, K, n, a, c in cases]
    return judged(peak, ("N", "M", "L", "K", "n", "a", "c"), cases, right, mistakes) or (
        "Right: N/M ((M n - 1) a + L/(K n) c). With n = 1 that is the formula of section 3.")


def check_segments(segments):
    """Judge `segments(L, a, c, q)`: how many segments of L layers need the least memory, with q micro-batches
    alive.

    a, c: as for `check_peak`. The cases are such that the answer divides L. The truth is counted, for all
    divisors.

    >>> check_segments(lambda L, a, c, q: L ** 0.5)
    'That is the rule for c = a and one micro-batch: an input costs a bytes in each of q
    micro-batches, a cache c.'
    """
    sizes = ((16, 0, 1), (16, 6, 1), (16, 0, 4), (36, 6, 4), (36, 6, 1))
    cases = [(L, 8 * WIDTH, 8 * (WIDTH + hidden), q) for L, hidden, q in sizes]
    mistakes = [
        (lambda L, a, c, q: math.sqrt(L),
         "That is the rule for c = a and one micro-batch: an input costs a bytes in each of q "
         "micro-batches, a cache c."),
        (lambda L, a, c, q: math.sqrt(L * c / a),
         "That is for one micro-batch: each of the q that are alive keeps the inputs of all segments."),
        (lambda L, a, c, q: math.sqrt(L / q), "Caches may be larger than inputs: c bytes against a."),
        (lambda L, a, c, q: math.sqrt(L * a / (q * c)),
         "Upside down: dear caches ask for more segments, dear inputs for fewer."),
        (lambda L, a, c, q: math.sqrt(q * L * c / a),
         "Upside down: the more micro-batches keep inputs, the fewer segments are best."),
        (lambda L, a, c, q: L * c / (q * a),
         "Take the root: the derivative of q n a + L c / n is q a - L c / n^2."),
        (lambda L, a, c, q: q * math.sqrt(L * c / a),
         "q stands below the root: q n a + L c / n, differentiated by n."),
        (lambda L, a, c, q: math.sqrt(L * c / a) / q,
         "q stands below the root: q n a + L c / n, differentiated by n."),
        (lambda L, a, c, q: math.sqrt(L * q),
         "Upside down: the more micro-batches keep inputs, the fewer segments are best."),
    ]
    right = [_best_segments(L, hidden_of(a, c), q) for L, a, c, q in cases]
    return judged(segments, ("L", "a", "c", "q"), cases, right, mistakes) or (
        "Right: sqrt(L c / (q a)), which is sqrt(L) for c = a and q = 1. Below 1, do not cut at all.")


def check_held(held):
    """Judge `held(K, M, r, b, L, a, c)`: the most bytes of activations of 1F1B with recomputation on device r
    < K - 1.

    b: samples in a micro-batch; the rest as for `check_peak`. The truth is counted.

    >>> check_held(lambda K, M, r, b, L, a, c: b * ((M - 1) * a + L / K * c))
    'That is GPipe, with all M micro-batches alive: 1F1B has fewer, and how many depends on r.'
    """
    cases = [(K, M, r, b, L, 8 * WIDTH, 8 * (WIDTH + hidden)) for K, M, r, b, L, hidden in (
        (4, 8, 0, 2, 12, 6), (4, 8, 1, 2, 12, 6), (5, 9, 3, 1, 10, 4), (4, 2, 0, 3, 8, 3), (6, 7, 2, 2, 6, 5),
    )]

    def with_alive(alive):
        return lambda K, M, r, b, L, a, c: b * ((alive(K, M, r) - 1) * a + L / K * c)

    mistakes = [
        (with_alive(lambda K, M, r: M),
         "That is GPipe, with all M micro-batches alive: 1F1B has fewer, and how many depends on r."),
        (with_alive(lambda K, M, r: K - r),
         "Nearly: where M is smaller than K - r, there are no more than M micro-batches."),
        (with_alive(lambda K, M, r: min(M, K)),
         "That is device 0, with K alive: each device further on has one less."),
        (with_alive(lambda K, M, r: min(M, r + 1)),
         "The other way round: the first device has most, since its gradients come last."),
        (with_alive(lambda K, M, r: min(M, K - r - 1)),
         "K - r - 1 is the warm-up; then one more forward comes before the first "
         "backward. So K - r are alive."),
        (lambda K, M, r, b, L, a, c: b * (min(M, K - r) * a + L / K * c),
         "Nearly: of the micro-batches alive, the one whose caches are there has its input among them."),
        (lambda K, M, r, b, L, a, c: b * min(M, K - r) * L / K * c, "That is 1F1B without recomputation."),
        (lambda K, M, r, b, L, a, c: b * ((min(M, K - r) - 1) * a + L * c),
         "A device has L / K of the layers, not L."),
        (lambda K, M, r, b, L, a, c: (min(M, K - r) - 1) * a + L / K * c,
         "a and c are of one sample: a micro-batch has b of them."),
    ]
    right = [_counted("1f1b", K, M, b, L, hidden_of(a, c))[r] for K, M, r, b, L, a, c in cases]
    return judged(held, ("K", "M", "r", "b", "L", "a", "c"), cases, right, mistakes) or (
        "Right: b ((min(M, K - r) - 1) a + L/K c). From M = K - r on, a larger M changes nothing any more.")


def hidden_of(a, c):
    """The units inside a layer that keeps c bytes of a sample, a of them its input; 0 for a Linear without
    any inside.
    """
    return (c - a) // 8


@cache
def _counted(name, K, M, m, L, hidden, n_segments=1):
    """For each device, the most bytes of activations with recomputation: of a simulation, with micro-batches
    of m samples.
    """
    layer = Chain(Linear(WIDTH, hidden), Linear(hidden, WIDTH)) if hidden else Linear(WIDTH, WIDTH)
    schedule = with_recompute(in_segments(build(name, K, M), n_segments))
    of_stages = footprints([layer] * L, MeanSquaredError(), K * n_segments, (WIDTH,), m, patterns=("FRB",))
    return simulate(schedule, footprints=of_stages).peak_bytes(["stashed inputs", "caches"])


@cache
def _best_segments(L, hidden, q):
    """The number of segments with the least memory of all that divide L, if GPipe has q micro-batches on one
    device.
    """
    return min((n for n in range(1, L + 1) if L % n == 0),
               key=lambda n: _counted("gpipe", 1, q, 1, L, hidden, n))
