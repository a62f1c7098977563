"""What is left of a layer whose product is a sum over devices."""

import numpy as np

from ..layers.layer import Layer, as_dtype_of


class Bias(Layer):
    """A = A_prev + b, the last step of a layer that is split by its inputs.

    b (n, 1) or (n, 1, ..., 1); A_prev, A (n, ..., m). It stands behind that sum, so that b is added once, and
    db is the same on all devices.

        db = sums of dZ over all axes but the first

    >>> layer = Bias(np.array([[10.0], [20.0]]))
    >>> layer.forward(np.array([[1.0, 2.0], [3.0, 4.0]]))
    array([[11., 12.],
           [23., 24.]])
    """

    def __init__(self, b):
        self.b = b

    def forward(self, A_prev):
        self.cache = A_prev.ndim
        return A_prev + as_dtype_of(A_prev, self.b).reshape(-1, *[1] * (self.cache - 1))

    def backward_input(self, dZ):
        return dZ

    def backward_weight(self, dZ):
        rows = dZ.reshape(len(dZ), -1)
        return None, (rows @ np.ones((rows.shape[1], 1), dZ.dtype)).reshape(self.b.shape)

    def parameter_shapes(self):
        return None, self.b.shape

    def __repr__(self):
        return f"Bias of shape {self.b.shape}"
