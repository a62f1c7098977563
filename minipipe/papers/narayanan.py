"""Narayanan et al.'s ten Transformers on up to 3,072 A100s: what they chose, and what a plan would choose.

Source: Narayanan et al. 2021, arXiv 2104.04473, table 1 and figure 13.
"""

from itertools import product
from typing import NamedTuple

from .formulas import megatron_parameters

V, S = 51_200, 2048          # tokens of the vocabulary, and of a sequence
NODE = 8                     # GPUs
SPEED = 156e12               # operations a second of a GPU: half of an A100's peak in 16 bits
INSIDE, BETWEEN = 300e9, 25e9  # bytes a second inside a node, and between nodes, for each GPU
MEMORY = 80e9


class Published(NamedTuple):
    """A row of table 1.

    n_layers, h, n_heads: of the Transformer.
    T, P, n_gpus, B: shards of a layer, stages, all GPUs, sequences in a mini-batch.
    billions: its parameters. teraflops: operations of a GPU in a second, in 10^12.
    """

    n_layers: int
    h: int
    n_heads: int
    T: int
    P: int
    n_gpus: int
    B: int
    billions: float
    teraflops: int


TABLE = [
    Published(24, 2304, 24, 1, 1, 32, 512, 1.7, 137),
    Published(30, 3072, 32, 2, 1, 64, 512, 3.6, 138),
    Published(36, 4096, 32, 4, 1, 128, 512, 7.5, 142),
    Published(40, 6144, 48, 8, 1, 256, 1024, 18.4, 135),
    Published(48, 8192, 64, 8, 2, 512, 1536, 39.1, 138),
    Published(60, 10240, 80, 8, 4, 1024, 1792, 76.1, 140),
    Published(80, 12288, 96, 8, 8, 1536, 2304, 145.6, 148),
    Published(96, 16384, 128, 8, 16, 1920, 2160, 310.1, 155),
    Published(105, 20480, 128, 8, 35, 2520, 2520, 529.6, 163),
    Published(128, 25600, 160, 8, 64, 3072, 3072, 1008, 163),
]


class Estimated(NamedTuple):
    """T, P, D copies, b sequences in a micro-batch; seconds of a mini-batch, bytes of a GPU, teraflops."""

    T: int
    P: int
    D: int
    b: int
    seconds: float
    n_bytes: float
    teraflops: float


def estimate(n_layers, h, T, P, D, b, B):
    """What a mini-batch of B sequences takes in T x P x D parts, `Estimated`.

    A stage does a micro-batch, forward, recomputed and backward, in

        l/P (96 b s h^2 / (T speed) + 12 (T - 1)/T 2 b s h / bandwidth)

    seconds: products, and six all-reduces in a layer of 2 bytes a number, inside a node if T <= 8. 1F1B takes
    B/(D b) + P - 1 of these; then all gradients of a stage are added up over the copies, in 2 bytes a number.
    Bytes: 16 for each parameter (Adam, mixed precision), the input of each layer for each micro-batch alive,
    and the activations of the one layer that is recomputed, 34 s b h / T.

    >>> [round(estimate(32, 20480, T, 64 // T, 1, 1, 32).seconds, 1) for T in (2, 4, 8, 16, 32)]
    [16.8, 12.7, 10.8, 19.8, 29.3]
    """
    M, tokens = B // (D * b), b * S
    inside = INSIDE if T <= NODE else BETWEEN
    stage = n_layers / P * (96 * tokens * h**2 / (T * SPEED) + 12 * (T - 1) / T * 2 * tokens * h / inside)
    parameters = megatron_parameters(n_layers, h, V, S) / (T * P)
    bandwidth = INSIDE if T * D <= NODE else BETWEEN
    exchange = 2 * (D - 1) / D * 2 * parameters / bandwidth
    seconds = (M + P - 1) * stage + exchange
    kept = 2 * tokens * h * n_layers / P * min(M, P) + 34 * tokens * h / T
    return Estimated(T, P, D, b, seconds, 16 * parameters + kept, _operations(n_layers, h, B) / seconds
                     / (T * P * D) / 1e12)


def choices(row, memory=MEMORY):
    """Every way to divide a row's GPUs that fits into `memory`, the fastest first."""
    sizes = [size for size in range(1, row.n_gpus + 1) if row.n_gpus % size == 0]
    found = []
    for T, P, b in product(sizes, sizes, (1, 2, 4, 8)):
        if row.n_heads % T or row.n_layers % P or row.n_gpus % (T * P):
            continue
        D = row.n_gpus // (T * P)
        if row.B % (D * b) == 0:
            found.append(estimate(row.n_layers, row.h, T, P, D, b, row.B))
    return sorted((one for one in found if one.n_bytes <= memory), key=lambda one: one.seconds)


def text_of_choices():
    """A line for each row of table 1: what they chose and reached, and what is the fastest by `estimate`."""
    heads = f"{'they chose':>22}{'TFLOP/s':>9}{'estimated':>11}{'the estimate chooses':>28}{'TFLOP/s':>9}"
    lines = [" " * 8 + heads]
    for row in TABLE:
        found = choices(row)
        theirs = [one for one in found if (one.T, one.P) == (row.T, row.P)]
        best, same = found[0], f"{theirs[0].teraflops:.0f}" if theirs else "too large"
        lines.append(
            f"{row.billions:6}B  {f'T={row.T} P={row.P} D={row.n_gpus // (row.T * row.P)}':>20}"
            f"{row.teraflops:9}{same:>11}{f'T={best.T} P={best.P} D={best.D} b={best.b}':>28}"
            f"{best.teraflops:9.0f}"
        )
    return "\n".join(lines)


def _operations(n_layers, h, B):
    """Of a mini-batch with recomputation: 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)), section 5.1."""
    return 96 * B * S * n_layers * h**2 * (1 + S / (6 * h) + V / (16 * n_layers * h))
