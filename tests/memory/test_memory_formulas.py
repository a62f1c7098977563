"""Activation peaks follow the closed forms: the bytes of the fullest moment, formula == run.

First of schedules, then what a Transformer's block keeps, and what that makes of ZB-H1's memory.

Activations are what a device keeps between the actions of a micro-batch: "stashed inputs" and "caches"
of the ledger. The letters of the formulas of schedules:

    N, M    samples, in M micro-batches of N/M
    L, K    equal layers, in K stages of L/K, one on each device; r is a device
    a       bytes of a sample between two layers: what a message carries, and what recomputation keeps
    c       bytes that a layer keeps of a sample for its backward, its input among them
    e       bytes that the loss keeps of a sample, on the last device only
"""

import math
from functools import cache

import numpy as np
import pytest
from compared import assert_refused
from sampling import one_in

import minipipe as mp
from minipipe.cluster import bytes_by_kind
from minipipe.layers import every_layer
from minipipe.layers.through import put_aside
from minipipe.meta import MetaArray
from minipipe.order import in_segments, with_recompute
from minipipe.schedules import build

WIDTH, HIDDEN = 2, 3
A = 8 * WIDTH                           # bytes of a sample between two layers
C = 8 * WIDTH + HIDDEN + 8 * HIDDEN     # the input of each Linear, and a byte for each number of the ReLU
E = 8 * WIDTH                           # the error of MeanSquaredError
LOSS = mp.MeanSquaredError()
KEPT = ("stashed inputs", "caches")
SIZES = [(K, M) for K in (1, 2, 4) for M in (1, 3, 6)]


def equal_layers(n):
    return [mp.Chain(mp.Linear(WIDTH, HIDDEN), mp.ReLU(), mp.Linear(HIDDEN, WIDTH)) for _ in range(n)]


def layers_with_many_activations(n):
    """Each keeps 2 * 8 * HIDDEN bytes more of a sample: what Tanh gives, and GELU's slopes."""
    inside = [mp.Linear(WIDTH, HIDDEN), mp.ReLU(), mp.Tanh(), mp.GELU(), mp.Linear(HIDDEN, WIDTH)]
    return [mp.Chain(*(layer.copy() for layer in inside)) for _ in range(n)]


def peaks(schedule, counts, N, make=equal_layers, recompute="never"):
    """For each device, the most bytes of activations in a run."""
    layers, cut = make(sum(counts)), mp.Cut(counts)
    pipe = mp.Pipeline(
        layers, LOSS, cut, schedule.n_microbatches, schedule=schedule, recompute=recompute, count_bytes=True
    )
    X = mp.datasets.digits().train[0][:WIDTH, :N]
    pipe.forward_backward(X, X)
    return pipe.trace.peak_bytes(KEPT)


def of_the_loss(K, n_bytes=E):
    """What the loss adds on each device: nothing but on the last."""
    return [0] * (K - 1) + [n_bytes]


def test_gpipe_keeps_what_all_layers_keep_of_all_samples():
    """GPipe: N (L/K c), on the last device N (L/K c + e); on one device N (L c + e), the O(N L) of the paper.

    Micro-batches may be ragged.
    """
    for K, M in SIZES:
        N = 3 * M - 1 if M > 1 else 3
        expected = [N * (3 * C + e) for e in of_the_loss(K)]
        assert peaks(build("gpipe", K, M), (3,) * K, N) == expected, f"K={K}, M={M}"


def test_gpipe_recomputing_keeps_inputs_and_the_caches_of_one():
    """GPipe, recomputing: (N - N/M) a + N/M (L/K c), on the last device N/M e more: the paper's
    O(N + L/K N/M).

    The micro-batch whose caches are there has its input among them, so M - 1 inputs lie beside.
    That the last micro-batch is not recomputed changes nothing: it is the first to go backward,
    and its caches are there before the first R.
    """
    for K, M in SIZES:
        mode = "always" if (K + M) % 2 else "except_last"
        schedule = with_recompute(build("gpipe", K, M), mode)
        expected = [2 * ((M - 1) * A + 4 * C + e) for e in of_the_loss(K)]
        assert peaks(schedule, (4,) * K, 2 * M) == expected, f"K={K}, M={M}"


def test_1f1b_keeps_min_of_M_and_K_minus_r_micro_batches():
    """1F1B, with q = min(M, K - r): q N/M (L/K c), recomputing N/M ((q - 1) a + L/K c).

    On the last device, where q = 1, N/M e more in both.
    """
    for K, M in SIZES:
        alive = [min(M, K - r) for r in range(K)]
        whole, losses = build("1f1b", K, M), of_the_loss(K)
        expected = [2 * q * (4 * C + e) for q, e in zip(alive, losses)]
        assert peaks(whole, (4,) * K, 2 * M) == expected, f"K={K}, M={M}"
        expected = [2 * ((q - 1) * A + 4 * C + e) for q, e in zip(alive, losses)]
        assert peaks(with_recompute(whole), (4,) * K, 2 * M) == expected, f"recomputing, K={K}, M={M}"


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
        held[n], = peaks(schedule, (layers // n,) * n, M)
        assert held[n] == (M * n - 1) * A + layers // n * C + E
    best, root = min(held, key=held.get), math.sqrt(layers * C / (M * A))
    assert best in (max(n for n in held if n <= root), min((n for n in held if n > root), default=layers))
    assert best == 1 if M == 10 else best > 1


@pytest.mark.parametrize("name, make, K", one_in(
    3, ["zb-h1", "zb-h2"], [equal_layers, layers_with_many_activations], [1, 2, 3]
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
    for M in {1, K, 2 * K - 1, 2 * K + 1}:
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
        pipe = mp.Pipeline(equal_layers(2 * K), LOSS, K, 1, schedule="pipedream", count_bytes=True)
        X = np.ones((WIDTH, 5))
        pipe.train([(X, X)] * 3 * K, mp.SGD(0.1))
        trace, parameters = pipe.trace, pipe.trace.peak_bytes(["parameters"])
        assert trace.peak_bytes(KEPT) == [5 * (K - r) * (2 * C + e) for r, e in enumerate(of_the_loss(K))]
        assert trace.peak_bytes(["weight versions"]) == [(K - r - 1) * parameters[r] for r in range(K)]


# --- a Transformer's block, in the units of the papers
#
# s, b, h, a: positions, samples, features, heads. The papers count arrays of 16 bits, 2 bytes a number:
#
#     s b (34 h + 5 a s)   kept for the backward: Korthikanti et al. 2022, arXiv 2205.05198, equation 1
#     34 s b h             where the attention's shares are made again: table 2 there, "selective"
# #     32 s b h             of the first, for W: Qi et al. 2023, arXiv 2401.10241, table 1
#
# Ours is another number, as follows:
#
#     -2 s b h     without dropout, of the first two: the paper's two masks have a byte a number
#     +4 s b h     with dropout: two masks, of 2 bytes a number
#     -3 a s^2 b   no dropout of the shares P: there, a mask and the shares behind it, 1 + 2 bytes a share
#     +4 s b       1/s of both LayerNorms, for each position; the paper leaves such small ones out
#     +8 h         of those for W: dW and db of both LayerNorms, which their I has made

CROSS_ENTROPY = mp.SoftmaxCrossEntropy()
BLOCKS = [(3, 2, 8, 2), (8, 5, 12, 3)]


@cache
def kept_by_a_block(s, b, h, a, recompute="never", dropout=0):
    """{kind: bytes} that a block keeps after its F, its input among them; and after its I, with its dZ."""
    blocks = mp.without_values([mp.TransformerBlock(h, a, dropout=dropout)])
    blocks = mp.layers.recomputing(blocks) if recompute == "selective" else blocks
    (block,) = mp.Sequential(blocks, LOSS, dtype=np.float16).layers
    parameters = [(part.W, part.b) for part in every_layer([block])]

    def n_bytes(kept):
        return bytes_by_kind({"parameters": parameters, "kept": kept})["kept"]

    dZ = block.forward(MetaArray((h, s, b), np.float16)).copy()
    kept = {"F": n_bytes(block.cache)}
    block.backward_input(dZ)
    return kept | {"I": n_bytes(put_aside(block, dZ))}


@pytest.mark.parametrize("s, b, h, a", BLOCKS)
def test_a_block_keeps_the_published_activation_bytes(s, b, h, a):
    whole, selective = (kept_by_a_block(s, b, h, a, mode) for mode in ("never", "selective"))
    assert whole["F"] == s * b * (34 * h + 5 * a * s) - 2 * s * b * h - 3 * a * s * s * b + 4 * s * b
    assert selective["F"] == 34 * s * b * h - 2 * s * b * h + 4 * s * b


@pytest.mark.parametrize("recompute", ["never", "selective"])
@pytest.mark.parametrize("s, b, h, a", BLOCKS)
def test_a_block_keeps_the_published_bytes_for_W(s, b, h, a, recompute):
    """32 s b h: for each of the six products, A_prev and dZ, where Q, K and V share an A_prev.

        A_prev     2 (Q, K, V) + 2 (output) + 2 (W1) + 8 (W2)             14 s b h
        dZ         2 + 2 + 2 (Q, K, V) + 2 (output) + 8 (W1) + 2 (W2)     18 s b h

    Dropout is over by then; its masks are kept until I.
    """
    plain, with_masks = (kept_by_a_block(s, b, h, a, recompute, dropout) for dropout in (0, 0.5))
    assert with_masks["F"] == plain["F"] + 4 * s * b * h
    for kept in (plain, with_masks):
        assert kept["I"] == 32 * s * b * h + 8 * h


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_selective_recomputation_holds_less(schedule):
    """Each device with blocks holds less, and without values as much."""
    layers, loss, m = mp.models.transformer(11, 8, n_heads=4, n_layers=2, n_places=12), CROSS_ENTROPY, 3
    tokens = np.random.default_rng(0).integers(0, 11, (12, 4 * m))
    Y = mp.one_hot(tokens, 11, np.float32)
    peak = {}
    for mode in ("never", "selective"):
        for of_layers, labels in ((layers, Y), (mp.without_values(layers), MetaArray(Y.shape))):
            pipe = mp.Pipeline(
                of_layers, loss, 2, 4, schedule=schedule, recompute=mode, dtype=np.float32, count_bytes=True
            )
            pipe.forward_backward(tokens, labels)
            assert peak.setdefault(mode, pipe.trace.peak_bytes()) == pipe.trace.peak_bytes()
    assert max(peak["selective"]) < max(peak["never"])


def test_networks_without_attention_are_refused_in_words():
    layers = [mp.Linear(2, 2), mp.ReLU()]
    words = "none of these 2 layers is or has a MultiHeadAttention, which selective recomputation is for"
    assert_refused([(call, words) for call in (
        lambda: mp.Pipeline(layers, LOSS, 1, 1, recompute="selective"),
        lambda: mp.layers.recomputing(layers),
    )])


def test_selective_recomputation_leaves_the_users_layers_alone():
    layers = [mp.TransformerBlock(8, 2), mp.TransformerBlock(8, 2)]
    pipe = mp.Pipeline(layers, LOSS, 2, 1, recompute="selective")
    all_parts = map(mp.layers.every_layer, (layers, pipe.layers))
    assert [any(part.recomputes for part in parts) for parts in all_parts] == [0, 1]
