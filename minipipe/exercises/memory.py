"""Checkers for notebook 14, memory and recomputation."""

import math
from functools import cache

from ..layers import Chain, Linear
from ..losses import MeanSquaredError
from ..pipeline import footprints, simulate
from ..schedules import build, in_segments, with_recompute
from . import judged

WIDTH = 2


def check_peak(peak):
    """Judge `peak(N, M, L, K, a, c)`: the most bytes of activations that GPipe with recomputation has on device 0 of K >= 2.

    N samples in M micro-batches, L equal layers; of a sample, a bytes are a layer's input, and c is all that a layer keeps for its
    backward, that input among it. Activations are the stashed inputs and the caches. The truth is counted.

    >>> check_peak(lambda N, M, L, K, a, c: N * a + L / K * N / M * c)
    'Nearly: that is the sum of the paper. But the input of the micro-batch whose caches are there is among these, so M - 1 lie beside.'
    """
    cases = [(N, M, L, K, 8 * WIDTH, 8 * (WIDTH + hidden)) for N, M, L, K, hidden in (
        (24, 8, 12, 4, 6), (12, 3, 8, 2, 4), (10, 10, 15, 3, 3), (6, 1, 12, 4, 6), (36, 4, 16, 2, 1),
    )]
    mistakes = [
        (lambda N, M, L, K, a, c: N * a + L / K * N / M * c,
         "Nearly: that is the sum of the paper. But the input of the micro-batch whose caches are there is among these, so M - 1 "
         "lie beside."),
        (lambda N, M, L, K, a, c: (N - N / M) * a + L * N / M * c,
         "A device has L / K of the layers, and keeps the caches of these alone."),
        (lambda N, M, L, K, a, c: N * a + L * N / M * c,
         "A device has L / K of the layers, and keeps the caches of these alone."),
        (lambda N, M, L, K, a, c: L / K * N * c, "That is GPipe without recomputation."),
        (lambda N, M, L, K, a, c: (N - N / M) * a + N / M * c,
         "A recomputation brings back the caches of all L / K layers of the stage, not of one."),
        (lambda N, M, L, K, a, c: (N - N / M) * a + L / K * N * c,
         "One micro-batch at a time is recomputed: its caches are of N / M samples, not of N."),
        (lambda N, M, L, K, a, c: N * a, "Those are the inputs alone: the micro-batch that goes backward needs its caches, too."),
        (lambda N, M, L, K, a, c: L / K * N / M * c, "Those are the caches alone: the other micro-batches wait with their inputs."),
        (lambda N, M, L, K, a, c: L / K * (N - N / M) * a + L / K * N / M * c,
         "Of a micro-batch that waits, the input of the stage is kept, not that of each of its layers."),
        (lambda N, M, L, K, a, c: (M - 1) * a + L / K * c,
         "a and c are of one sample: a micro-batch has N / M of them."),
    ]
    right = [_counted("gpipe", K, M, N // M, L, hidden_of(a, c))[0] for N, M, L, K, a, c in cases]
    return judged(peak, ("N", "M", "L", "K", "a", "c"), cases, right, mistakes) or (
        "Right: (N - N/M) a + L/K N/M c. The larger M is, the nearer it comes to N a.")


def check_segments(segments):
    """Judge `segments(L, a, c, q)`: how many segments of a stage of L layers need the least memory, if q micro-batches are alive.

    a, c: as for `check_peak`. The cases are such that the answer divides L. The truth is counted, for all divisors.

    >>> check_segments(lambda L, a, c, q: L ** 0.5)
    'That is the rule for c = a and one micro-batch: weigh an input, a bytes of each of q micro-batches, against a cache of c bytes.'
    """
    cases = [(L, 8 * WIDTH, 8 * (WIDTH + hidden), q) for L, hidden, q in ((16, 0, 1), (16, 6, 1), (16, 0, 4), (36, 6, 4), (36, 6, 1))]
    mistakes = [
        (lambda L, a, c, q: math.sqrt(L),
         "That is the rule for c = a and one micro-batch: weigh an input, a bytes of each of q micro-batches, against a cache of c "
         "bytes."),
        (lambda L, a, c, q: math.sqrt(L * c / a),
         "That is for one micro-batch: each of the q that are alive keeps the inputs of all segments."),
        (lambda L, a, c, q: math.sqrt(L / q), "Caches may be larger than inputs: c bytes against a."),
        (lambda L, a, c, q: math.sqrt(L * a / (q * c)), "Upside down: dear caches ask for more segments, dear inputs for fewer."),
        (lambda L, a, c, q: math.sqrt(q * L * c / a), "Upside down: the more micro-batches keep inputs, the fewer segments are best."),
        (lambda L, a, c, q: L * c / (q * a), "Take the root: the derivative of q n a + L c / n is q a - L c / n^2."),
        (lambda L, a, c, q: q * math.sqrt(L * c / a), "q stands below the root: q n a + L c / n, differentiated by n."),
        (lambda L, a, c, q: math.sqrt(L * c / a) / q, "q stands below the root: q n a + L c / n, differentiated by n."),
        (lambda L, a, c, q: math.sqrt(L * q), "Upside down: the more micro-batches keep inputs, the fewer segments are best."),
    ]
    right = [_best_segments(L, hidden_of(a, c), q) for L, a, c, q in cases]
    return judged(segments, ("L", "a", "c", "q"), cases, right, mistakes) or (
        "Right: sqrt(L c / (q a)), which is sqrt(L) for c = a and q = 1. Below 1, do not cut at all.")


def check_held(held):
    """Judge `held(K, M, r, b, L, a, c)`: the most bytes of activations of 1F1B with recomputation on device r < K - 1.

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
        (with_alive(lambda K, M, r: M), "That is GPipe, with all M micro-batches alive: 1F1B has fewer, and how many depends on r."),
        (with_alive(lambda K, M, r: K - r), "Nearly: where M is smaller than K - r, there are no more than M micro-batches."),
        (with_alive(lambda K, M, r: min(M, K)), "That is device 0, with K alive: each device further on has one less."),
        (with_alive(lambda K, M, r: min(M, r + 1)), "The other way round: the first device has most, since its gradients come last."),
        (with_alive(lambda K, M, r: min(M, K - r - 1)),
         "K - r - 1 is the warm-up; then one more forward comes before the first backward. So K - r are alive."),
        (lambda K, M, r, b, L, a, c: b * (min(M, K - r) * a + L / K * c),
         "Nearly: of the micro-batches alive, the one whose caches are there has its input among them."),
        (lambda K, M, r, b, L, a, c: b * min(M, K - r) * L / K * c, "That is 1F1B without recomputation."),
        (lambda K, M, r, b, L, a, c: b * ((min(M, K - r) - 1) * a + L * c), "A device has L / K of the layers, not L."),
        (lambda K, M, r, b, L, a, c: (min(M, K - r) - 1) * a + L / K * c, "a and c are of one sample: a micro-batch has b of them."),
    ]
    right = [_counted("1f1b", K, M, b, L, hidden_of(a, c))[r] for K, M, r, b, L, a, c in cases]
    return judged(held, ("K", "M", "r", "b", "L", "a", "c"), cases, right, mistakes) or (
        "Right: b ((min(M, K - r) - 1) a + L/K c). From M = K - r on, a larger M changes nothing any more.")


def hidden_of(a, c):
    """The units inside a layer that keeps c bytes of a sample, a of them its input; 0 for a Linear without any inside."""
    return (c - a) // 8


@cache
def _counted(name, K, M, m, L, hidden, n_segments=1):
    """For each device, the most bytes of activations with recomputation: of a simulation, with micro-batches of m samples."""
    layer = Chain(Linear(WIDTH, hidden), Linear(hidden, WIDTH)) if hidden else Linear(WIDTH, WIDTH)
    schedule = with_recompute(in_segments(build(name, K, M), n_segments))
    of_stages = footprints([layer] * L, MeanSquaredError(), K * n_segments, (WIDTH,), m, patterns=("FRB",))
    trace = simulate(schedule, footprints=of_stages)
    return [max(held.get("stashed inputs", 0) + held.get("caches", 0) for _, held in trace.ledger(device)) for device in range(K)]


@cache
def _best_segments(L, hidden, q):
    """The number of segments with the least memory of all that divide L, if GPipe has q micro-batches on one device."""
    return min((n for n in range(1, L + 1) if L % n == 0), key=lambda n: _counted("gpipe", 1, q, 1, L, hidden, n))
