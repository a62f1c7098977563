"""What a Transformer's block keeps, in the units of the papers, and what that makes of ZB-H1's memory.

s, b, h, a: positions, samples, features, heads. The papers count arrays of 16 bits, 2 bytes a number:

    s b (34 h + 5 a s)   kept for the backward: Korthikanti et al. 2022, arXiv 2205.05198, equation 1
    32 s b h             of it for W: Qi et al. 2023, arXiv 2401.10241, table 1
"""

import numpy as np
import pytest

import minipipe as mp
from minipipe.schedules import build

KEPT = ("stashed inputs", "caches")
SIZES = [(s, b, h, a) for s in (3, 8) for b in (2, 5) for h, a in ((8, 2), (12, 3))]


def kept_by_a_block(s, b, h, a, dtype=np.float16, **options):
    """{kind: bytes} that a stage of one block keeps after its F, and after its I with its dZ."""
    layers = [mp.TransformerBlock(h, a, **options) for _ in range(3)]
    *_, stage, _ = mp.footprints(layers, mp.MeanSquaredError(), 3, (h, s), b, dtype=dtype, patterns=["FIW"])
    return {kind: sum(kept.values()) for kind, (_, _, kept) in stage.actions["FIW"].items()}


@pytest.mark.parametrize("s, b, h, a", SIZES)
def test_a_block_keeps_what_is_published_after_F(s, b, h, a):
    """Ours: s b (32 h + 2 a s) + 4 s b bytes.

    -2 s b h     no dropout here; the paper's two masks have a byte a number
    -3 a s^2 b   no dropout of the shares P: there, a mask and the shares behind it, 1 + 2 bytes a share
    +4 s b       1/s of both LayerNorms, for each position; the paper leaves such small ones out
    """
    published = s * b * (34 * h + 5 * a * s)
    ours = published - 2 * s * b * h - 3 * a * s * s * b + 4 * s * b
    assert kept_by_a_block(s, b, h, a)["F"] == ours == s * b * (32 * h + 2 * a * s) + 4 * s * b


@pytest.mark.parametrize("dropout", [0, 0.5])
@pytest.mark.parametrize("s, b, h, a", SIZES)
def test_a_block_keeps_what_is_published_for_W(s, b, h, a, dropout):
    """32 s b h: for each of the six products, A_prev and dZ, where Q, K and V share an A_prev.

        A_prev     2 (Q, K, V) + 2 (output) + 2 (W1) + 8 (W2)             14 s b h
        dZ         2 + 2 + 2 (Q, K, V) + 2 (output) + 8 (W1) + 2 (W2)     18 s b h

    + 8 h      dW and db of both LayerNorms, which their I has made
    """
    assert kept_by_a_block(s, b, h, a, dropout=dropout)["I"] == 32 * s * b * h + 8 * h
    assert kept_by_a_block(s, b, h, a, dropout=dropout)["W"] == 0


def peaks(layers, loss, shape, K, M, m, partition=None, kinds=KEPT):
    """{schedule: for each device, the most bytes of these kinds}"""
    sizes = mp.footprints(layers, loss, K, shape, m, partition, np.float32, patterns=["FB", "FIW"])
    runs = {name: mp.simulate(build(name, K, M), footprints=sizes) for name in ("1f1b", "zb-h1")}
    return {name: trace.peak_bytes(kinds) for name, trace in runs.items()}


def test_zb_h1_holds_no_more_than_1f1bs_first_device_in_a_large_transformer():
    """24 blocks, d = 1024, 1024 positions, 2 samples: after F, one keeps 1/4 GiB of a micro-batch."""
    blocks = [mp.TransformerBlock(1024, 16, causal=True) for _ in range(24)]
    found = peaks(blocks, mp.MeanSquaredError(), (1024, 1024), K=4, M=8, m=2)
    GiB = {name: [round(n / 2**30, 2) for n in of_devices] for name, of_devices in found.items()}
    assert GiB == {"1f1b": [6.0, 4.5, 3.0, 1.51], "zb-h1": [6.0, 5.25, 4.5, 3.76]}
    assert max(found["zb-h1"]) == max(found["1f1b"])


CASES = {  # name: (layers, loss, shape of a sample, layers of each stage)
    "transformer": (
        mp.models.transformer(65, 64, n_heads=4, n_layers=8), mp.SoftmaxCrossEntropy(), (32,), [3, 2, 2, 4],
    ),
    "resnet": (mp.models.resnet(), mp.SoftmaxCrossEntropy(), (3, 32, 32), "macs"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("M", [4, 8, 32])
def test_zb_h1_keeps_no_more_than_1f1bs_fullest_device(name, M):
    """Of activations. In all, one message more: ZB-H1's device 0 gets its next dA before it is free."""
    layers, loss, shape, partition = CASES[name]
    found, in_all = (peaks(layers, loss, shape, 4, M, 4, partition, kinds) for kinds in (KEPT, None))
    assert max(found["zb-h1"]) == max(found["1f1b"])
    message = mp.footprints(layers, loss, 4, shape, 4, partition, np.float32, patterns=["FB"])[0].sent["F"]
    assert max(in_all["zb-h1"]) == max(in_all["1f1b"]) + (message if M > 4 else 0)
