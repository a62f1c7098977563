"""From tokens to vectors: Embedding and PositionalEmbedding, with A in (d, T, m)."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from ..arrays import Gradients, Shape, even_slices
from ..checks import checked_name, whole_number
from .layer import LAYERS, Layer, as_dtype_of


@LAYERS(examples=lambda: [(Embedding(7, 3), (5,)), (Embedding(3, 4), ())])
class Embedding(Layer):
    """A[:, t, k] = W[token, :]  for the token in A_prev[t, k]: a vector for each token.

    Args:
        n_tokens: the number of different tokens, 0 to n_tokens - 1.
        d: features of a vector.
        tie: a name; layers of a network with the same `tie` share one W, for instance
            this one and Linear(d, n_tokens): Press and Wolf 2016, arXiv 1608.05859.

    A_prev (T, m) or any shape (..., m) of whole numbers; W (n_tokens, d), drawn from
    N(0, 1/d); A (d, T, m). It is the Linear layer W^T A_prev for one-hot columns
    A_prev, without the multiplications by 0, hence

        dW[v, :] = sum of dZ[:, t, k] over all positions (t, k) with token v

    Tokens have no gradient: dA_prev is None. Other tokens raise `ValueError`. Source:
    Bengio et al. 2003, JMLR 3.

    >>> layer = Embedding(3, 2)
    >>> layer.W = np.array([[0.0, 1.0], [2.0, 3.0], [4.0, 5.0]])
    >>> layer.forward(np.array([[2, 0]]))[:, 0, :]
    array([[4., 0.],
           [5., 1.]])
    >>> layer.backward(np.ones((2, 1, 2)))[1]
    array([[1., 1.],
           [0., 0.],
           [1., 1.]])
    """

    can_overflow = False
    takes = "tokens"
    splits: ClassVar[Mapping] = {"tokens": {"W": 0}}

    def __init__(self, n_tokens: int, d: int, tie: str | None = None):
        self.n_tokens, self.d = whole_number("n_tokens", n_tokens, 1), whole_number("d", d, 1)
        self.tie = None if tie is None else checked_name("tie", tie)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((self.n_tokens, self.d)) / math.sqrt(self.d)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        self.checked_input(A_prev)
        self.cache = self._checked(A_prev)
        return np.moveaxis(self.W[self.cache], -1, 0).copy()

    def part(self, how: str, rank: int, size: int) -> EmbeddingPart:
        return EmbeddingPart(self, even_slices(self.n_tokens, size)[rank])

    def backward_input(self, dZ: np.ndarray) -> None:
        self.cached(dZ)

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        return self._by_token(self.cached(dZ), dZ, self.n_tokens), None

    def _by_token(self, tokens, dZ, n_tokens):
        """Return (n_tokens, d): for each token, the sum of dZ at its positions."""
        tokens = tokens.ravel()
        order = np.argsort(tokens, kind="stable")
        tokens, vectors = tokens[order], dZ.reshape(self.d, -1).T[order]
        first = np.flatnonzero(np.diff(tokens, prepend=-1))       # where each token's run begins
        sums = np.full((n_tokens, self.d), dZ.flat[0] * 0, dZ.dtype, like=dZ)
        sums[tokens[first]] = np.add.reduceat(vectors, first)
        return sums

    def _checked(self, A_prev):
        tokens = A_prev.astype(np.intp)
        if not np.array_equal(tokens, A_prev):
            raise ValueError(f"{self!r} needs whole numbers as tokens, got {A_prev[tokens != A_prev][0]}")
        if tokens.min() < 0 or tokens.max() >= self.n_tokens:
            raise ValueError(
                f"{self!r}: tokens run from {tokens.min()} to {tokens.max()}, "
                f"but it knows 0 to {self.n_tokens - 1}: use a larger n_tokens, or other tokens"
            )
        return tokens

    def output_shape(self, shape: Shape) -> Shape:
        return self.d, *shape

    def parameter_shapes(self) -> tuple:
        return (self.n_tokens, self.d), None


class EmbeddingPart(Embedding):
    """A device's part of an `Embedding`: the vectors of some tokens, zeros for others.

    Args:
        whole: the `Embedding`; its A is the sum of the A of all devices.
        run: the slice of its tokens.
    """

    def __init__(self, whole: Embedding, run: slice):
        super().__init__(whole.n_tokens, whole.d, whole.tie)
        self.run, self.W = run, whole.W[run].copy()

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        tokens, n = self._checked(A_prev), len(self.W)
        inside = (tokens >= self.run.start) & (tokens < self.run.stop)
        self.cache = np.where(inside, tokens - self.run.start, n)
        W = np.concatenate([self.W, self.W[:1] * 0])
        return np.moveaxis(W[self.cache], -1, 0).copy()

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        n = len(self.W)
        return self._by_token(self.cached(dZ), dZ, n + 1)[:n].copy(), None

    def parameter_shapes(self) -> tuple:
        return self.W.shape, None


@LAYERS(examples=lambda: [(PositionalEmbedding(3, 7), (3, 5))])
class PositionalEmbedding(Layer):
    """A[:, t, k] = A_prev[:, t, k] + W[:, t]: a learned vector for each position.

    A_prev, A (d, T, m) with T <= n_places; W (d, n_places), drawn from N(0, 1/d).

        dA_prev = dZ      dW[:, t] = sum of dZ[:, t, k] over samples k; 0 for t >= T

    Sources: Gehring et al. 2017, arXiv 1705.03122; Vaswani et al. 2017, arXiv
    1706.03762, section 3.5.

    >>> layer = PositionalEmbedding(1, 3)
    >>> layer.W = np.array([[10.0, 20.0, 30.0]])
    >>> layer.forward(np.array([[[1.0, 2.0], [3.0, 4.0]]]))
    array([[[11., 12.],
            [23., 24.]]])
    """

    def __init__(self, d: int, n_places: int):
        self.d, self.n_places = whole_number("d", d, 1), whole_number("n_places", n_places, 1)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return rng.standard_normal((self.d, self.n_places)) / math.sqrt(self.d)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        self.checked_input(A_prev)
        self.cache = A_prev.shape
        return A_prev + as_dtype_of(A_prev, self.W)[:, :A_prev.shape[1], None]

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        self.cached(dZ, tuple)
        return dZ

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        self.cached(dZ, tuple)
        dW = np.full((self.d, self.n_places), dZ.flat[0] * 0, dZ.dtype, like=dZ)
        dW[:, :dZ.shape[1]] = dZ.sum(axis=-1)
        return dW, None

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) != 3 or shape[0] != self.d:
            raise self.misfit(f"({self.d}, T, m)", shape)
        if shape[1] > self.n_places:
            raise ValueError(f"{self!r}: T={shape[1]} positions exceed n_places={self.n_places}")
        return shape

    def parameter_shapes(self) -> tuple:
        return (self.d, self.n_places), None
