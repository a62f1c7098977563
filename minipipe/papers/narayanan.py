"""Narayanan et al.'s ten Transformers on up to 3,072 A100s: what they chose, and what a plan would choose.

Source: Narayanan et al. 2021, arXiv 2104.04473, table 1 and figure 13.
"""

from typing import NamedTuple

from ..arguments import argument, arguments
from .formulas import EqualLayers, all_dimensions, in_dimensions, megatron_parameters

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


def equal_layers(n_layers, h):
    """A Transformer's `EqualLayers`, in seconds and bytes.

    For one sequence, a layer does 96 s h^2 operations, forward, recomputed and backward, and six all-reduces
    of 2 s h bytes over the shards. Gradients have 2 bytes a parameter; all that is kept for it has 16 (Adam,
    mixed precision). The input of each layer is kept, and of the one that is recomputed, 34 s h bytes.
    """
    n_layers, h = arguments(n_layers=n_layers, h=h)
    parameters = megatron_parameters(n_layers, h, V, S) / n_layers
    return EqualLayers(
        n_layers, work=96 * S * h**2 / SPEED, exchanged=6 * 2 * S * h, gradients=2 * parameters,
        state=16 * parameters, whole=2 * S * h, again=34 * S * h,
    )


def estimate(n_layers, h, T, P, D, b, B):
    """What a mini-batch of B sequences takes in T x P x D parts, `Dimensions`, in seconds and bytes.

    >>> [round(estimate(32, 20480, T, 64 // T, 1, 1, 32).time, 1) for T in (2, 4, 8, 16, 32)]
    [16.8, 12.7, 10.8, 19.8, 29.3]
    """
    D, b, B = arguments(D=D, b=b, B=B)
    if B < D * b:
        raise ValueError(f"B={B} sequences are fewer than D b = {D} x {b}: use at least {D * b}")
    return in_dimensions(equal_layers(n_layers, h), D, T, P, B // (D * b), b, NODE, 1 / INSIDE, 1 / BETWEEN)


def choices(row, memory=MEMORY):
    """Every way to divide a row's GPUs that fits into `memory`, with up to 8 sequences in a micro-batch, the
    fastest first.
    """
    memory, row = argument("choices.memory", memory), argument("row", row)
    layers = equal_layers(row.n_layers, row.h)
    found = all_dimensions(layers, row.B, row.n_gpus, NODE, 1 / INSIDE, 1 / BETWEEN, memory)
    return [one for one in found if row.n_heads % one.T == 0 and one.b <= 8]


def teraflops(row, one):
    """Operations of a GPU in a second, in 10^12, if a mini-batch of the row takes the time of `one`.

    With recomputation, there are 96 B s l h^2 (1 + s/(6 h) + V/(16 l h)), section 5.1.
    """
    l, h = row.n_layers, row.h
    return 96 * row.B * S * l * h**2 * (1 + S / (6 * h) + V / (16 * l * h)) / one.time / row.n_gpus / 1e12


def text_of_choices():
    """A line for each row of table 1: what they chose and reached, and what is the fastest by `estimate`."""
    heads = f"{'they chose':>22}{'TFLOP/s':>9}{'estimated':>11}{'the estimate chooses':>28}{'TFLOP/s':>9}"
    lines = [" " * 8 + heads]
    for row in TABLE:
        found = choices(row)
        theirs = [one for one in found if (one.T, one.P) == (row.T, row.P)]
        best, same = found[0], f"{teraflops(row, theirs[0]):.0f}" if theirs else "too large"
        lines.append(
            f"{row.billions:6}B  {f'T={row.T} P={row.P} D={row.n_gpus // (row.T * row.P)}':>20}"
            f"{row.teraflops:9}{same:>11}{f'T={best.T} P={best.P} D={best.D} b={best.b}':>28}"
            f"{teraflops(row, best):9.0f}"
        )
    return "\n".join(lines)
