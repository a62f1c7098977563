"""What a Transformer's block keeps, in the units of the papers, and what that makes of ZB-H1's memory.

s, b, h, a: positions, samples, features, heads. The papers count arrays of 16 bits, 2 bytes a number:

    s b (34 h + 5 a s)   kept for the backward: Korthikanti et al. 2022, arXiv 2205.05198, equation 1
    34 s b h             where the attention's shares are made again: table 2 there, "selective"
    2 s b h              where all is made again, from the input: "full"
    32 s b h             of the first, for W: Qi et al. 2023, arXiv 2401.10241, table 1

Ours is another number, as follows:

    -2 s b h     without dropout, of the first two: the paper's two masks have a byte a number
    +4 s b h     with dropout: two masks, of 2 bytes a number
    -3 a s^2 b   no dropout of the shares P: there, a mask and the shares behind it, 1 + 2 bytes a share
    +4 s b       1/s of both LayerNorms, for each position; the paper leaves such small ones out
    +8 h         of those for W: dW and db of both LayerNorms, which their I has made
"""

from functools import cache

import numpy as np
import pytest
from sampling import one_in

import minipipe as mp
from minipipe.schedules import build

CROSS_ENTROPY = mp.SoftmaxCrossEntropy()
KEPT = ("stashed inputs", "caches")
SIZES = [(3, 2, 8, 2), (8, 5, 12, 3), (8, 2, 8, 2), (3, 5, 12, 3)]


@cache
def kept_by_a_block(s, b, h, a, recompute="never", dropout=0):
    """{kind: bytes} that a stage of one block keeps after its F, and after its I with its dZ."""
    layers = [mp.TransformerBlock(h, a, dropout=dropout) for _ in range(3)]
    layers = mp.recomputing(layers) if recompute == "selective" else layers
    pattern = "FRIW" if recompute == "always" else "FIW"
    *_, stage, _ = mp.footprints(
        layers, mp.MeanSquaredError(), 3, (h, s), b, dtype=np.float16, patterns=[pattern]
    )
    return {kind: sum(kept.values()) for kind, (_, _, kept) in stage.actions[pattern].items()}


@pytest.mark.parametrize("s, b, h, a", SIZES)
def test_a_block_keeps_what_is_published(s, b, h, a):
    """After F, and after R the same; where only its input is kept, that is the published number."""
    whole, selective, full = (kept_by_a_block(s, b, h, a, mode) for mode in ("never", "selective", "always"))
    assert whole["F"] == s * b * (34 * h + 5 * a * s) - 2 * s * b * h - 3 * a * s * s * b + 4 * s * b
    assert selective["F"] == 34 * s * b * h - 2 * s * b * h + 4 * s * b
    assert full == full | {"F": 2 * s * b * h, "R": whole["F"]}


@pytest.mark.parametrize("recompute", ["never", "selective"])
@pytest.mark.parametrize("s, b, h, a", SIZES)
def test_a_block_keeps_what_is_published_for_W(s, b, h, a, recompute):
    """32 s b h: for each of the six products, A_prev and dZ, where Q, K and V share an A_prev.

        A_prev     2 (Q, K, V) + 2 (output) + 2 (W1) + 8 (W2)             14 s b h
        dZ         2 + 2 + 2 (Q, K, V) + 2 (output) + 8 (W1) + 2 (W2)     18 s b h

    Dropout is over by then; its masks are kept until I.
    """
    plain, with_masks = (kept_by_a_block(s, b, h, a, recompute, dropout) for dropout in (0, 0.5))
    assert with_masks["F"] == plain["F"] + 4 * s * b * h
    for kept in (plain, with_masks):
        assert kept == kept | {"I": 32 * s * b * h + 8 * h, "W": 0}


@pytest.mark.parametrize("schedule", ["1f1b", "zb-h1"])
def test_the_bytes_of_selective_recomputation_are_foreseen_and_less(schedule):
    """In a real run: the counted peaks are the footprints', and each device with blocks holds less."""
    layers, loss, m = mp.models.transformer(11, 8, n_heads=4, n_layers=4, n_places=12), CROSS_ENTROPY, 3
    tokens = np.random.default_rng(0).integers(0, 11, (12, 4 * m))
    Y = mp.one_hot(tokens, 11, np.float32)
    peak = {}
    for mode in ("never", "selective"):
        pipe = mp.Pipeline(layers, loss, 4, 4, schedule, mode, dtype=np.float32)
        pipe.forward_backward(tokens, Y)
        counted = layers if mode == "never" else mp.recomputing(layers)
        sizes = mp.footprints(counted, loss, 4, (12,), m, dtype=np.float32)
        peak[mode] = pipe.trace.peak_bytes()
        assert mp.simulate(pipe.schedule, footprints=sizes).peak_bytes() == peak[mode]
    assert max(peak["selective"]) < max(peak["never"])


def test_what_fits_knows_selective_recomputation():
    """Its peak and its makespan are those of a run; only where an attention is, and slower by K^T Q."""
    layers = mp.models.transformer(11, 8, n_heads=4, n_layers=4, n_places=12)
    found = {}
    for mode in ("never", "selective"):
        (found[mode],) = mp.what_fits(layers, CROSS_ENTROPY, (12,), 12, 1, [2], [4], ["zb-h1"], [mode])
        fit = found[mode]
        pipe = fit.pipeline(layers, CROSS_ENTROPY)
        tokens = np.random.default_rng(0).integers(0, 11, (12, 12))
        pipe.forward_backward(tokens, mp.one_hot(tokens, 11, np.float32))
        assert max(pipe.trace.peak_bytes()) == fit.peak_bytes and pipe.trace.makespan == fit.makespan
    never, selective = found["never"].costs, found["selective"].costs
    K_and_Q = 3 * 2 * 8 * 12 * 12  # samples, blocks, d T^2
    assert selective.F == never.F and [b - a for a, b in zip(never.B, selective.B)] == [K_and_Q, K_and_Q]
    assert selective.W == never.W == never.F  # the first half has it
    assert found["selective"].peak_bytes < found["never"].peak_bytes
    limit = (found["never"].peak_bytes + found["selective"].peak_bytes) // 2
    (fit,) = mp.what_fits(layers, CROSS_ENTROPY, (12,), 12, limit, [2], [4], ["zb-h1"])
    assert (fit.recompute, fit.fits) == ("selective", True)


@pytest.mark.parametrize("ask", [
    lambda layers: mp.Pipeline(layers, mp.MeanSquaredError(), 1, 1, recompute="selective"),
    lambda layers: mp.what_fits(layers, mp.MeanSquaredError(), (2,), 8, 10**9, [1], recompute=["selective"]),
    mp.recomputing,
])
def test_networks_without_attention_are_refused_in_words(ask):
    words = "none of these 2 layers is or has a MultiHeadAttention, which selective recomputation is for"
    with pytest.raises(ValueError, match=words):
        ask([mp.Linear(2, 2), mp.ReLU()])


def test_the_layers_that_were_handed_in_go_on_to_keep_their_shares():
    layers = [mp.TransformerBlock(8, 2), mp.TransformerBlock(8, 2)]
    pipe = mp.Pipeline(layers, mp.MeanSquaredError(), 2, 1, recompute="selective")
    assert [any(part.recomputes for part in mp.every_layer(of)) for of in (layers, pipe.layers)] == [0, 1]


def runs_of(layers, loss, shape, cut, M, m):
    """Return (the footprints of the stages, {schedule: its simulated run})."""
    sizes = mp.footprints(layers, loss, cut, shape, m, "float32", patterns=["FB", "FIW"])
    return sizes, {name: mp.simulate(build(name, cut.n, M), footprints=sizes) for name in ("1f1b", "zb-h1")}


def peaks(runs, kinds=KEPT):
    """Return {schedule: for each device, the most bytes of these kinds}."""
    return {name: trace.peak_bytes(kinds) for name, trace in runs.items()}


def test_zb_h1_holds_no_more_than_1f1bs_first_device_in_a_large_transformer():
    """24 blocks, d = 1024, 1024 positions, 2 samples: after F, one keeps 1/4 GiB of a micro-batch."""
    blocks = [mp.TransformerBlock(1024, 16, causal=True) for _ in range(24)]
    found = peaks(runs_of(blocks, mp.MeanSquaredError(), (1024, 1024), mp.Cut(4), M=8, m=2)[1])
    GiB = {name: [round(n / 2**30, 2) for n in of_devices] for name, of_devices in found.items()}
    assert GiB == {"1f1b": [6.0, 4.5, 3.0, 1.51], "zb-h1": [6.0, 5.25, 4.5, 3.76]}
    assert max(found["zb-h1"]) == max(found["1f1b"])


CASES = {  # name: (layers, loss, shape of a sample, where they are cut)
    "transformer": (
        mp.models.transformer(65, 64, n_heads=4, n_layers=8), mp.SoftmaxCrossEntropy(), (32,),
        mp.Cut([3, 2, 2, 4]),
    ),
    "resnet": (mp.models.resnet(), mp.SoftmaxCrossEntropy(), (3, 32, 32), mp.Cut(4, "macs")),
}


@pytest.mark.parametrize("name, M", one_in(2, CASES, [4, 8, 32]))
def test_zb_h1_keeps_no_more_than_1f1bs_fullest_device(name, M):
    """Of activations. In all, one message more: ZB-H1's device 0 gets its next dA before it is free."""
    sizes, runs = runs_of(*CASES[name], M, m=4)
    found, in_all = peaks(runs), peaks(runs, None)
    assert max(found["zb-h1"]) == max(found["1f1b"])
    message = sizes[0].sent["F"]
    assert max(in_all["zb-h1"]) == max(in_all["1f1b"]) + (message if M > 4 else 0)
