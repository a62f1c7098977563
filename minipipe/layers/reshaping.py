"""Layers that only arrange numbers anew."""

import math

from .layer import Layer


class Flatten(Layer):
    """A (n, m) from A_prev (C, *lengths, m), n = C * prod(lengths): each sample becomes a column.

    Nothing is computed, so dA_prev is dZ in the shape of A_prev.

    >>> import numpy as np
    >>> Flatten().forward(np.zeros((3, 4, 5, 2))).shape
    (60, 2)
    """

    def forward(self, A_prev):
        self.cache = A_prev.shape
        return A_prev.reshape(-1, A_prev.shape[-1])

    def backward_input(self, dZ):
        return dZ.reshape(self.cached(dZ, lambda shape: (math.prod(shape[:-1]), shape[-1])))
