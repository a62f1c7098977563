"""Activation functions, and Dropout.

`Z` and `A` have the same shape, any `(..., m)`; all but Softmax act on each entry by
itself. No activation function overflows, however large the entries of Z are.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import ClassVar

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import constant, masked, sigmoid
from ..checks import Number, real_number
from .layer import LAYERS, Layer


class Elementwise(Layer):
    """A = g(Z), so A[i, k] depends on Z[i, k] alone, and dZ = dA * g'(Z)."""

    splits: ClassVar[Mapping] = {"units": {}}

    def backward_input(self, dA: np.ndarray) -> np.ndarray:
        return dA * self.slope(self.cached(dA))

    def slope(self, cache: np.ndarray) -> np.ndarray:
        """Return g'(Z) from `cache`: g'(Z) itself, or A where g' is a function of A."""
        return cache


@LAYERS(examples=lambda: [(ReLU(), (4,)), (ReLU(), (3, 4))])
class ReLU(Elementwise):
    """A = max(Z, 0).  dZ = dA where Z > 0, else 0, also at Z = 0.

    Source: Nair and Hinton 2010.

    >>> ReLU().forward(np.array([[-1.0, 2.0]])) + 0
    array([[0., 2.]])
    """

    can_overflow = False

    def forward(self, Z: np.ndarray) -> np.ndarray:
        self.cache = Z > 0
        return masked(Z, self.cache)

    def backward_input(self, dA: np.ndarray) -> np.ndarray:
        return masked(dA, self.cached(dA))


@LAYERS(examples=lambda: [(Sigmoid(), (4,))])
class Sigmoid(Elementwise):
    """A = 1 / (1 + e^-Z).  dZ = dA * A * (1 - A).

    The derivative: A' = e^-Z / (1 + e^-Z)^2 = A (1 - A). Computed as e^min(Z, 0) / (1 +
    e^-|Z|), the same number, in which no exponential can overflow.

    >>> Sigmoid().forward(np.array([[-1000.0, 0.0]]))
    array([[0. , 0.5]])
    """

    can_overflow = False

    def forward(self, Z: np.ndarray) -> np.ndarray:
        self.cache = sigmoid(Z)
        return self.cache

    def slope(self, A: np.ndarray) -> np.ndarray:
        return A * (1 - A)


@LAYERS(examples=lambda: [(Tanh(), (4,))])
class Tanh(Elementwise):
    """A = tanh(Z).  dZ = dA * (1 - A^2).

    >>> Tanh().forward(np.array([[0.0]]))
    array([[0.]])
    """

    can_overflow = False

    def forward(self, Z: np.ndarray) -> np.ndarray:
        self.cache = np.tanh(Z)
        return self.cache

    def slope(self, A: np.ndarray) -> np.ndarray:
        return 1 - A * A


@LAYERS(examples=lambda: [(LeakyReLU(), (4,))])
class LeakyReLU(Elementwise):
    """A = Z where Z > 0, else negative_slope * Z.  dZ = dA, or negative_slope * dA.

    Forward and backward multiply by the same D: 1 where Z > 0, negative_slope
    elsewhere, also at Z = 0. `negative_slope` is from 0 to 1. Source: Maas, Hannun, Ng
    2013, ICML workshop on deep learning.

    >>> LeakyReLU(negative_slope=0.5).forward(np.array([[-1.0, 2.0]]))
    array([[-0.5,  2. ]])
    """

    can_overflow = False

    def __init__(self, negative_slope: Number = 0.01):
        self.negative_slope = real_number("negative_slope", negative_slope, least=0, most=1)

    def forward(self, Z: np.ndarray) -> np.ndarray:
        self.cache = np.maximum((Z > 0).astype(Z.dtype), constant(self.negative_slope, Z))
        return Z * self.cache


@LAYERS(examples=lambda: [(Softplus(), (4,))])
class Softplus(Elementwise):
    """A = log(1 + e^Z), a smooth ReLU.  dZ = dA * sigmoid(Z).

    The derivative: A' = e^Z / (1 + e^Z). A is computed as max(Z, 0) + log(1 + e^-|Z|),
    in which no exponential can overflow. Source: Dugas et al. 2001, NIPS 13.

    >>> Softplus().forward(np.array([[-1000.0, 1000.0]])) + 0
    array([[   0., 1000.]])
    """

    can_overflow = False

    def forward(self, Z: np.ndarray) -> np.ndarray:
        self.cache = sigmoid(Z)
        return Z * (Z > 0) + np.log1p(np.exp(-abs(Z)))


@LAYERS(examples=lambda: [(SiLU(), (4,))])
class SiLU(Elementwise):
    """A = Z * S with S = sigmoid(Z), also called swish.  dZ = dA * (S + A * (1 - S)).

    The derivative, with S' = S (1 - S): A' = S + Z S (1 - S) = S + A (1 - S). Sources:
    Elfwing, Uchibe, Doya 2017, arXiv 1702.03118, equation 4; Ramachandran, Zoph, Le
    2017, arXiv 1710.05941.

    >>> SiLU().forward(np.array([[-1000.0, 0.0, 1000.0]])) + 0
    array([[   0.,    0., 1000.]])
    """

    can_overflow = False

    def forward(self, Z: np.ndarray) -> np.ndarray:
        S = sigmoid(Z)
        A = Z * S
        self.cache = S + A * (1 - S)
        return A


@LAYERS(examples=lambda: [(GELU(), (4,))])
class GELU(Elementwise):
    """A = Z * P, where P is about the share of normally distributed numbers below Z.

    With T = tanh(c * (Z + k * Z^3)), c = sqrt(2/pi), k = 0.044715 and tanh' =
    1 - tanh^2:

        P = (1 + T)/2,    A = Z * P,    A' = P + Z/2 * (1 - T^2) * c * (1 + 3 * k * Z^2)

    P differs from P(N(0, 1) <= Z) so little that A differs by less than 0.0005; in
    PyTorch, this form is GELU(approximate="tanh"). For |Z| > 10, the second term of A'
    is 0 to more than 64 bits. So it is computed from Z clipped to -10..10: then no
    power overflows. Source: Hendrycks and Gimpel 2016, arXiv 1606.08415, section 2.

    >>> GELU().forward(np.array([[-1e30, 0.0, 1e30]])) + 0
    array([[0.e+00, 0.e+00, 1.e+30]])
    """

    can_overflow = False

    def forward(self, Z: np.ndarray) -> np.ndarray:
        c, k, ten = (constant(value, Z) for value in (math.sqrt(2 / math.pi), 0.044715, 10))
        U = np.clip(Z, -ten, ten)
        kU2 = k * (U * U)
        T = np.tanh((1 + kU2) * (c * U))
        share = (1 + T) / 2
        self.cache = share + U * (c / 2) * (1 - T * T) * (1 + 3 * kU2)
        return share * Z


@LAYERS(examples=lambda: [(Softmax(), (4,))])
class Softmax(Layer):
    """A = e^Z / (sum of e^Z over axis 0): each sample's features add up to 1.

    Z, A (n, ..., m). The derivative: da_i/dz_j = a_i (1[i = j] - a_j), so for one
    sample

        dz_j = sum_i da_i a_i (1[i = j] - a_j) = a_j (da_j - sum_i da_i a_i)
        dZ   = A * (dA - column sums of dA * A)

    The maximum of each column is subtracted first; this does not change A, and keeps
    e^Z from overflowing. To learn classes, leave this layer out and use the loss
    SoftmaxCrossEntropy, which contains it. Source: Bridle 1990, NIPS 2.

    >>> Softmax().forward(np.array([[0.0, 1000.0], [0.0, 0.0]]))
    array([[0.5, 1. ],
           [0.5, 0. ]])
    """

    can_overflow = False

    def forward(self, Z: np.ndarray) -> np.ndarray:
        exponentials = np.exp(Z - Z.max(axis=0, keepdims=True))
        self.cache = exponentials / exponentials.sum(axis=0, keepdims=True)
        return self.cache

    def backward_input(self, dA: np.ndarray) -> np.ndarray:
        A = self.cached(dA)
        return A * (dA - (dA * A).sum(axis=0, keepdims=True))


@LAYERS(examples=lambda: [(Dropout(0.25), (9,)), (Dropout(0.5), (3, 5)), (Dropout(0), (3,))])
class Dropout(Layer):
    """A = A_prev * D / (1 - p) in training; D is 0 with probability p, else 1.

    Outside of training, A = A_prev. dA_prev = dZ * D / (1 - p). The division keeps the
    expected value of A at A_prev.

    D depends only on (seed, layer, step, sample): the network's seed and the layer's
    index give the `key`; then come the number of updates so far, and the sample's
    position in the mini-batch. So a sample has the same mask in any micro-batch, in the
    full batch, and when its forward is recomputed. The generator counts: its n-th
    number is a function of n and the key, and each sample has its own range of n.

    Sources: Srivastava et al. 2014, JMLR 15; Salmon et al. 2011, SC 11, for the
    generator, Philox.

    >>> layer = Dropout(0.5)
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.ones((2, 4)))
    array([[0., 2., 2., 0.],
           [2., 2., 0., 0.]])
    >>> layer.first_sample = 2                        # the second half of that mini-batch
    >>> layer.forward(np.ones((2, 2)))
    array([[2., 0.],
           [0., 0.]])
    """

    key = None
    drawn = ("key",)

    def __init__(self, p: Number = 0.5):
        self.p = real_number("p", p, least=0, below=1, note=", the probability of 0")

    def initialize(self, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> None:
        if self.key is None:
            self.key = rng.integers(0, 2**64, size=2, dtype=np.uint64)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        if not self.training:
            self.cache = None
            return A_prev
        if self.key is None:
            raise RuntimeError(f"{self!r} has no key yet: call initialize(rng), or put it into a Sequential")
        kept = np.asarray(self._kept(A_prev.shape), A_prev.dtype, like=A_prev)
        self.cache = kept * constant(1 / (1 - Fraction(self.p)), A_prev)
        return A_prev * self.cache

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        return dZ * self.cached(dZ)

    def _kept(self, shape):
        """Return a boolean array of `shape`, (..., m), True where D is 1.

        Each value of the counter gives eight 32-bit numbers.
        """
        n, m = math.prod(shape[:-1]), shape[-1]
        blocks = -(-n // 8)
        generator = np.random.Philox(key=self.key, counter=(self.step << 128) + self.first_sample * blocks)
        numbers = generator.random_raw(4 * blocks * m).view(np.uint32).reshape(m, 8 * blocks)[:, :n]
        return np.ascontiguousarray((numbers >= int(self.p * 2**32)).T).reshape(shape)
