"""Dropout, with masks that can be drawn again."""

import math
from fractions import Fraction

import numpy as np

from ..checks import real_number
from ..arrays import constant
from .layer import LAYERS, Layer


@LAYERS(
    examples=lambda: [(Dropout(0.25), (9,)), (Dropout(0.5), (3, 5)), (Dropout(0), (3,))],
    source="Srivastava et al. 2014, JMLR 15",
)
class Dropout(Layer):
    """A = A_prev * D / (1 - p)  in training, where each number of D is 0 with probability p, else 1.

    Outside of training, A = A_prev. dA_prev = dZ * D / (1 - p). The division keeps the expected value of A at
    A_prev.

    D is a function of (seed, layer, step, sample) alone: of the network's seed and the layer's index in it,
    which make the `key`, the number of updates so far, and the sample's position in the mini-batch.
    So a sample has the same mask in any micro-batch, in the full batch, and when its forward is recomputed.
    A counter-based generator makes that cheap: its n-th number is a function of n and the key, and each
    sample has a range of n of its own.

    Sources: Srivastava et al. 2014, JMLR 15; Salmon et al. 2011, SC 11, for the generator, Philox.

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

    def __init__(self, p=0.5):
        self.p = real_number("p", p, least=0, below=1, note=", the probability of 0")

    def initialize(self, rng, dtype=np.float64):
        if self.key is None:
            self.key = rng.integers(0, 2**64, size=2, dtype=np.uint64)

    def forward(self, A_prev):
        if not self.training:
            self.cache = None
            return A_prev
        if self.key is None:
            raise RuntimeError(f"{self!r} has no key yet: call initialize(rng), or put it into a Sequential")
        kept = np.asarray(self._kept(A_prev.shape), A_prev.dtype, like=A_prev)
        self.cache = kept * constant(1 / (1 - Fraction(self.p)), A_prev)
        return A_prev * self.cache

    def backward_input(self, dZ):
        return dZ * self.cached(dZ)

    def _kept(self, shape):
        """Where D is 1.

        Each value of the counter gives eight numbers of 32 bits; a sample takes as many values as it needs.
        """
        n, m = math.prod(shape[:-1]), shape[-1]
        blocks = -(-n // 8)
        generator = np.random.Philox(key=self.key, counter=(self.step << 128) + self.first_sample * blocks)
        numbers = generator.random_raw(4 * blocks * m).view(np.uint32).reshape(m, 8 * blocks)[:, :n]
        return np.ascontiguousarray((numbers >= int(self.p * 2**32)).T).reshape(shape)
