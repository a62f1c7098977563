"""Attention, its selective recomputation, and the Transformer block.

Sequences are (d, T, m): features, positions, samples.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Mapping, Sequence
from typing import ClassVar

import numpy as np

from ..arrays import Shape, constant
from ..checks import truth, whole_number
from .activations import GELU, Dropout
from .blocks import Block, Chain, Residual
from .layer import LAYERS, Layer, checked_layers, every_layer, finite, he, xavier
from .linear import Linear
from .normalization import LayerNorm


@LAYERS(examples=lambda: [
    (MultiHeadAttention(6, 3), (6, 5)),
    (MultiHeadAttention(4, 2, causal=True), (4, 3)),
    (MultiHeadAttention(3, 1, causal=True), (3, 1)),  # one position
])
class MultiHeadAttention(Block):
    """Attention: at each position, a mean of the values whose keys fit its query.

    Args:
        d: features of a position, a multiple of n_heads.
        n_heads: heads, of d_h = d / n_heads features each.
        causal: whether a position sees only itself and the positions before it.

    A_prev, A (d, T, m). Four Linear(d, d) compute Q, K, V and the output. The d rows of
    Q, K and V are divided among the heads. For one head of one sample, with Q, K, V
    (d_h, T):

        S = K^T Q / sqrt(d_h)      (T, T): S[j, t] says how well key j fits query t
        P = softmax of the columns of S; with causal=True, P[j, t] = 0 for j > t
        O = V P                    A = W_o O + b_o, with the O of all heads, stacked

    Backward, with dO = W_o^T dA:

        dV = dO P^T                  dP = V^T dO
        dS = P * (dP - column sums of dP * P)                         (as in `Softmax`)
        dQ = K dS / sqrt(d_h)        dK = Q dS^T / sqrt(d_h)

    and dA_prev = W_q^T dQ + W_k^T dK + W_v^T dV. Where P is 0, dS is 0: no gradient
    comes from the future. P has T^2 entries for each head of each sample. It is kept
    for the backward or, if the layer `recomputes`, recomputed from Q and K.

    Sources: Vaswani et al. 2017, arXiv 1706.03762, section 3.2; Korthikanti et al.
    2022, arXiv 2205.05198.

    >>> layer = MultiHeadAttention(4, n_heads=2, causal=True)
    >>> layer.initialize(np.random.default_rng(0))
    >>> A_prev = np.random.default_rng(1).standard_normal((4, 3, 1))
    >>> early = layer.forward(A_prev[:, :2])
    >>> bool(abs(layer.forward(A_prev)[:, :2] - early).max() < 1e-15)  # 2 tells 0 and 1 nothing
    True
    """

    recomputes = False
    splits: ClassVar[Mapping] = {"heads": ("outputs", "outputs", "outputs", "inputs")}

    def __init__(self, d: int, n_heads: int, causal: bool = False):
        d, n_heads = whole_number("d", d, 1), whole_number("n_heads", n_heads, 1)
        if d % n_heads:
            raise ValueError(f"n_heads={n_heads} does not divide d={d}: use a divisor of {d}")
        self.d, self.n_heads, self.causal = d, n_heads, truth("causal", causal)
        super().__init__([Linear(d, d, xavier) for _ in range(4)])

    def through(self, A_prev: np.ndarray) -> np.ndarray:
        self.output_shape(A_prev.shape)
        *inputs, output = self.layers
        Q, K, V = (self._by_head(layer.forward(A_prev)) for layer in inputs)
        P = self._shares(Q, K)
        self.kept = Q, K, V, None if self.recomputes else P
        return output.forward(self._joined(V @ P))

    def derivatives(self, dZ: np.ndarray) -> tuple:
        *inputs, output = self.layers
        Q, K, V, P = self.kept
        P = self._shares(Q, K) if P is None else P
        dO = self._by_head(output.backward_input(dZ))
        dP = np.swapaxes(V, 2, 3) @ dO
        dS = P * (dP - (dP * P).sum(axis=2, keepdims=True)) * self._scale(Q)
        dQ, dK, dV = K @ dS, Q @ np.swapaxes(dS, 2, 3), dO @ np.swapaxes(P, 2, 3)
        parts = [self._joined(part) for part in (dQ, dK, dV)]
        through_Q, through_K, through_V = (layer.backward_input(part) for layer, part in zip(inputs, parts))
        return through_Q + through_K + through_V, [*parts, dZ]

    def part(self, how: str, rank: int, size: int) -> MultiHeadAttention:
        if self.n_heads % size:
            raise ValueError(
                f"{self!r}: {self.n_heads} heads over {size} shards: shards must divide the number of heads"
            )
        part = super().part(how, rank, size)
        part.n_heads = self.n_heads // size
        return part

    def _by_head(self, A):
        """Return A (d, T, m) as (m, n_heads, d_h, T), a matrix for each head."""
        A = A.reshape(self.n_heads, -1, *A.shape[1:])
        return np.ascontiguousarray(A.transpose(3, 0, 1, 2), like=A)

    def _joined(self, A):
        """Return A (m, n_heads, d_h, T) as (d, T, m)."""
        return np.ascontiguousarray(A.transpose(1, 2, 3, 0), like=A).reshape(-1, A.shape[3], A.shape[0])

    def _scale(self, Q):
        return constant(1 / math.sqrt(Q.shape[2]), Q)

    def _shares(self, Q, K):
        """Return P (m, n_heads, T, T)."""
        S = np.swapaxes(K, 2, 3) @ Q * self._scale(Q)
        return self._softmax(finite(self, S, "the product of its keys and queries"))

    def _softmax(self, S):
        """Return P, the softmax of the columns of S.

        Entries that the causal mask hides are first set to the smallest of their
        column, so that none of them is the maximum that is subtracted.
        """
        if self.causal:
            positions = np.arange(S.shape[2], like=S)
            visible = positions[:, None] <= positions  # row j, column t: j <= t
            S = np.where(visible, S, S.min(axis=2, keepdims=True))
        exponentials = np.exp(S - S.max(axis=2, keepdims=True))
        if self.causal:
            exponentials = exponentials * visible
        return exponentials / exponentials.sum(axis=2, keepdims=True)

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3 or shape[0] != self.d:
            raise self.misfit(f"({self.d}, T, m)", shape)
        return shape

    def macs(self, shape: Shape) -> int:
        """Return the multiply-accumulates: 4 d^2 per position, 2 d per pair.

        `shape` is that of A_prev.
        """
        _, T, m = shape
        return (4 * self.d**2 * T + 2 * self.d * T**2) * m


SELECTIVE = "selective"  # the mode of recomputation that is done inside of layers


def recomputing(layers: Sequence[Layer]) -> list[Layer]:
    """Return copies of `layers` whose attentions recompute P in their backward.

    This saves the most bytes for the least work: P has T^2 entries per head, and costs
    one product, K^T Q. The order of actions and the bits of the gradients stay the
    same. A layer of your own takes part if its class says `recomputes = False` and its
    methods read `self.recomputes`, which is True in the copies.

    Raises `ValueError` if no layer can recompute. Source: Korthikanti et al. 2022,
    arXiv 2205.05198, section 5.

    >>> (block,) = recomputing([TransformerBlock(8, n_heads=2)])
    >>> [layer for layer in every_layer([block]) if layer.recomputes]
    [MultiHeadAttention(8, 2)]
    """
    twins = [layer.copy() for layer in checked_layers(layers)]
    can_recompute = [layer for layer in every_layer(twins) if layer.recomputes is not None]
    if not can_recompute:
        raise ValueError(
            f"none of these {len(twins)} layers is or has a MultiHeadAttention, "
            "which selective recomputation is for: use recompute='always', 'sqrt' or 'never'"
        )
    for layer in can_recompute:
        layer.recomputes = True
    return twins


@LAYERS(examples=lambda: [(TransformerBlock(4, 2, n_hidden=5, causal=True, dropout=0.25), (4, 3))])
class TransformerBlock(Chain):
    """Attention and a network of two layers at each position, each with a shortcut.

        B = A_prev + attention(LayerNorm(A_prev))
        A = B + W2 GELU(W1 LayerNorm(B) + b1) + b2            all (d, T, m)

    Args:
        d: features.
        n_heads: heads of the attention.
        n_hidden: rows of W1 (n_hidden, d) and columns of W2 (d, n_hidden); None: 4 d.
        causal: whether a position sees only itself and the positions before it.
        dropout: the p of `Dropout` on what attention, and the two layers, add.

    With n_hidden = 4 d it has 12 d^2 + 13 d parameters. Sources: Vaswani et al. 2017,
    arXiv 1706.03762; with the normalisation before instead of after, Xiong et al. 2020,
    arXiv 2002.04745.

    >>> layer = TransformerBlock(8, n_heads=2, causal=True)
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.zeros((8, 5, 3))).shape
    (8, 5, 3)
    """

    def __init__(
        self, d: int, n_heads: int, n_hidden: int | None = None, causal: bool = False, dropout: float = 0
    ):
        d = whole_number("d", d, 1)
        units = 4 * d if n_hidden is None else n_hidden
        drop = (lambda: [Dropout(dropout)]) if dropout else list
        super().__init__(
            Residual(LayerNorm(d), MultiHeadAttention(d, n_heads, causal), *drop()),
            Residual(LayerNorm(d), Linear(d, units, he), GELU(), Linear(units, d, xavier), *drop()),
        )
        self.d, self.n_heads, self.n_hidden, self.dropout = d, n_heads, n_hidden, dropout
        self.causal = bool(causal)
