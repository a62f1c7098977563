"""Activation peaks follow the closed forms: the bytes of the fullest moment, formula == run == simulation.

Activations are what a device keeps between the actions of a micro-batch: "stashed inputs" and "caches"
of the ledger. The letters of all formulas:

    N, M    samples, in M micro-batches of N/M
    L, K    equal layers, in K stages of L/K, one on each device; r is a device
    a       bytes of a sample between two layers: what a message carries, and what recomputation keeps
    c       bytes that a layer keeps of a sample for its backward, its input among them
    e       bytes that the loss keeps of a sample, on the last device only
"""

import math
from functools import cache

import pytest
from sampling import one_in

import minipipe as mp
from minipipe.arrays import even_slices
from minipipe.order import in_segments, with_recompute
from minipipe.schedules import build, pipedream

WIDTH, HIDDEN = 2, 3
A = 8 * WIDTH                           # bytes of a sample between two layers
C = 8 * WIDTH + HIDDEN + 8 * HIDDEN     # the input of each Linear, and a byte for each number of the ReLU
E = 8 * WIDTH                           # the error of MeanSquaredError
LOSS = mp.MeanSquaredError()
KEPT = ("stashed inputs", "caches")
SIZES = [(K, M) for K in (1, 2, 3, 4) for M in (1, 2, 3, 6)]


def equal_layers(n):
    return [mp.Chain(mp.Linear(WIDTH, HIDDEN), mp.ReLU(), mp.Linear(HIDDEN, WIDTH)) for _ in range(n)]


def layers_with_many_activations(n):
    """Each keeps 2 * 8 * HIDDEN bytes more of a sample: what Tanh gives, and GELU's slopes."""
    inside = [mp.Linear(WIDTH, HIDDEN), mp.ReLU(), mp.Tanh(), mp.GELU(), mp.Linear(HIDDEN, WIDTH)]
    return [mp.Chain(*(layer.copy() for layer in inside)) for _ in range(n)]


@cache
def footprints(counts, m, make=equal_layers):
    layers = make(sum(counts))
    return mp.footprints(layers, LOSS, mp.Cut(counts), (WIDTH,), m, patterns=("FB", "FRB", "FIW"))


def peaks(schedule, counts, N, make=equal_layers, recompute="never"):
    """For each device, the most bytes of activations in a run, which are those of the simulation."""
    layers, cut = make(sum(counts)), mp.Cut(counts)
    pipe = mp.Pipeline(layers, LOSS, cut, schedule.n_microbatches, schedule, recompute)
    X = mp.datasets.digits().train[0][:WIDTH, :N]
    pipe.forward_backward(X, X)
    counts = tuple(len(stage.layers) for stage in pipe.stages)
    sizes = [part.stop - part.start for part in even_slices(N, schedule.n_microbatches)]
    foreseen = mp.simulate(pipe.schedule, footprints=[footprints(counts, m, make) for m in sizes])
    assert foreseen.peak_bytes(KEPT) == pipe.trace.peak_bytes(KEPT)
    return pipe.trace.peak_bytes(KEPT)


def of_the_loss(K, n_bytes=E):
    """What the loss adds on each device: nothing but on the last."""
    return [0] * (K - 1) + [n_bytes]


@pytest.mark.parametrize("K, M", SIZES)
def test_gpipe_keeps_what_all_layers_keep_of_all_samples(K, M):
    """GPipe: N (L/K c), on the last device N (L/K c + e); on one device N (L c + e), the O(N L) of the paper.

    Micro-batches may be ragged.
    """
    N = 3 * M - 1 if M > 1 else 3
    assert peaks(build("gpipe", K, M), (3,) * K, N) == [N * (3 * C + e) for e in of_the_loss(K)]


@pytest.mark.parametrize("mode, K_and_M", one_in(2, ["always", "except_last"], SIZES))
def test_gpipe_with_recomputation_keeps_all_inputs_and_the_caches_of_one_micro_batch(mode, K_and_M):
    """GPipe, recomputing: (N - N/M) a + N/M (L/K c), on the last device N/M e more: the paper's
    O(N + L/K N/M).

    The micro-batch whose caches are there has its input among them, so M - 1 inputs lie beside.
    That the last micro-batch is not recomputed changes nothing: it is the first to go backward,
    and its caches are there before the first R.
    """
    K, M = K_and_M
    schedule = with_recompute(build("gpipe", K, M), mode)
    assert peaks(schedule, (4,) * K, 2 * M) == [2 * ((M - 1) * A + 4 * C + e) for e in of_the_loss(K)]


@pytest.mark.parametrize("K, M", SIZES)
def test_1f1b_keeps_min_of_M_and_K_minus_r_micro_batches(K, M):
    """1F1B, with q = min(M, K - r): q N/M (L/K c), recomputing N/M ((q - 1) a + L/K c).

    On the last device, where q = 1, N/M e more in both.
    """
    alive = [min(M, K - r) for r in range(K)]
    whole = build("1f1b", K, M)
    assert peaks(whole, (4,) * K, 2 * M) == [2 * q * (4 * C + e) for q, e in zip(alive, of_the_loss(K))]
    recomputed = [2 * ((q - 1) * A + 4 * C + e) for q, e in zip(alive, of_the_loss(K))]
    assert peaks(with_recompute(whole), (4,) * K, 2 * M) == recomputed


@pytest.mark.slow
@pytest.mark.parametrize("name", ["gpipe", "1f1b", "naive"])
def test_recomputation_in_segments_keeps_an_input_for_each_and_the_caches_of_one(name):
    """n segments in each stage: N/M ((q n - 1) a + L/(K n) c), e more on the last device; q as above,
    M for GPipe, 1 if naive.

    With n = sqrt(L/K), that is sqrt(L/K) inputs of each micro-batch and the caches of sqrt(L/K) layers.
    The last segment is recomputed first, while the inputs of all others are there.
    """
    for K, M in [(1, 1), (1, 6), (2, 2), (3, 5), (4, 6)]:
        alive = {"gpipe": [M] * K, "1f1b": [min(M, K - r) for r in range(K)], "naive": [1] * K}[name]
        for layers, n in ((4, 1), (4, 2), (4, 4), (6, 3)):
            schedule = with_recompute(in_segments(build(name, K, M), n))
            formula = [2 * ((q * n - 1) * A + layers // n * C + e) for q, e in zip(alive, of_the_loss(K))]
            assert peaks(schedule, (layers // n,) * (K * n), 2 * M) == formula
        root = [(2 * q - 1) * A + 2 * C + e for q, e in zip(alive, of_the_loss(K))]
        assert peaks(build(name, K, M), (4,) * K, M, recompute="sqrt") == root


@pytest.mark.parametrize("layers, M", [(4, 1), (16, 1), (16, 2), (16, 8), (4, 10)])
def test_the_best_number_of_segments_is_the_root_of_L_c_over_a_q(layers, M):
    """q n a + L/n c, for q micro-batches alive, is least near n = sqrt(L c / (q a)): at one of the two
    divisors of L around it.

    So it is sqrt(L) where c = a and one micro-batch is alive, and a single segment where q a is about L c
    or more, as in the last case.
    """
    held = {}
    for n in (n for n in range(1, layers + 1) if layers % n == 0):
        schedule = with_recompute(in_segments(build("gpipe", 1, M), n))
        held[n], = mp.simulate(schedule, footprints=footprints((layers // n,) * n, 1)).peak_bytes(KEPT)
        assert held[n] == (M * n - 1) * A + layers // n * C + E
    best, root = min(held, key=held.get), math.sqrt(layers * C / (M * A))
    assert best in (max(n for n in held if n <= root), min((n for n in held if n > root), default=layers))
    assert best == 1 if M == 10 else best > 1


@pytest.mark.parametrize("name, make, K", one_in(
    2, ["zb-h1", "zb-h2"], [equal_layers, layers_with_many_activations], [1, 2, 3, 4]
))
def test_zero_bubble_keeps_c_from_F_to_I_and_w_from_I_to_W(name, make, K):
    """Of a sample, a layer keeps c from F to I, and w from I to W: for each product, its A_prev and its dZ.

    Device r is fullest at the end of an F or of an I. With f forwards before the first I, i micro-batches
    that wait for their W behind an I, and q that are alive, each at most M,

        after an F: N/M L/K (f c + (q - f) w), on the last device N/M e more
        after an I: N/M L/K ((q - i) c + i w)

    H1: f = K - r, i = r + 1, q = K.    H2: f = 2(K - r) - 1, i = 2r + 1, q = 2K - 1.

    1F1B keeps f c, with the f of H1. So for w <= c no device of H1 holds more than 1F1B's first, K c. For
    w > c the last one holds K w, and in H1's 3M + K - 1 ticks no order holds less there: below its last I are
    K - 1 others and a W, so that I is over by tick 3M - 1. Since tick K - 1, when the device got its first
    input, it has had time for M F, M I and M - K of the W. K wait.
    """
    c, w = {equal_layers: C, layers_with_many_activations: C + 2 * 8 * HIDDEN}[make], 2 * 8 * (WIDTH + HIDDEN)
    assert (w > c) == (make is equal_layers)
    for M in {1, 2, K, 2 * K - 1, 2 * K + 1}:
        after_F, after_I = [], []
        for r in range(K):
            ahead, waiting, alive = K - r, r + 1, K
            if name == "zb-h2":
                ahead, waiting, alive = 2 * (K - r) - 1, 2 * r + 1, 2 * K - 1
            f, i, q = min(M, ahead), min(M, waiting), min(M, alive)
            after_F.append(2 * (f * c + (q - f) * w))
            after_I.append(2 * ((q - i) * c + i * w))
        with_loss = map(sum, zip(after_F, of_the_loss(K)))
        formula = [3 * max(pair) for pair in zip(with_loss, after_I)]
        assert peaks(build(name, K, M), (2,) * K, 3 * M, make) == formula
        if name == "zb-h1" and M >= K:
            assert max(after_F + after_I) == 2 * K * max(c, w)


def test_pipedream_keeps_1f1bs_activations_and_the_older_weights():
    """Device r: (K - r) m L/K c, and at most K - r - 1 older versions of its weights, P bytes each:
    the opposite trade.
    """
    for K in (1, 2, 3, 4):
        sizes = footprints((2,) * K, 5)
        trace = mp.simulate(pipedream(K, 3 * K), footprints=sizes)
        assert trace.peak_bytes(KEPT) == [5 * (K - r) * (2 * C + e) for r, e in enumerate(of_the_loss(K))]
        assert trace.peak_bytes(["weight versions"]) == [(K - r - 1) * sizes[r].parameters for r in range(K)]
