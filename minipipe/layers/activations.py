"""Activation functions, applied to each number by itself. `Z` and `A` have any shape `(..., m)`."""

import numpy as np

from ..functions import sigmoid
from .layer import Layer


class Elementwise(Layer):
    """A = g(Z). Because A[i, k] depends on Z[i, k] alone, dZ = dA * g'(Z), entry by entry."""

    def backward_input(self, dA):
        return dA * self.slope(self.cached(dA, np.shape))

    def slope(self, cache):
        """g'(Z), from what `forward` has cached."""


class ReLU(Elementwise):
    """A = max(Z, 0).  dZ = dA where Z > 0, else 0 (at Z = 0, too).

    Source: Nair and Hinton 2010.

    >>> ReLU().forward(np.array([[-1.0, 2.0]])) + 0
    array([[0., 2.]])
    """

    def forward(self, Z):
        self.cache = Z > 0
        return Z * self.cache

    def slope(self, cache):
        return cache


class Sigmoid(Elementwise):
    """A = 1 / (1 + e^-Z).  dZ = dA * A * (1 - A).

    The derivative: A' = e^-Z / (1 + e^-Z)^2 = A (1 - A). Computed as e^min(Z, 0) / (1 + e^-|Z|),
    the same number, in which no exponential can overflow.

    >>> Sigmoid().forward(np.array([[-1000.0, 0.0]]))
    array([[0. , 0.5]])
    """

    def forward(self, Z):
        self.cache = sigmoid(Z)
        return self.cache

    def slope(self, A):
        return A * (1 - A)


class Tanh(Elementwise):
    """A = tanh(Z).  dZ = dA * (1 - A^2).

    >>> Tanh().forward(np.array([[0.0]]))
    array([[0.]])
    """

    def forward(self, Z):
        self.cache = np.tanh(Z)
        return self.cache

    def slope(self, A):
        return 1 - A * A
