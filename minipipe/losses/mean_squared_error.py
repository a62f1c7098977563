"""The squared distance between predictions and labels."""

from .loss import LOSSES, Loss


@LOSSES(examples=lambda: [(MeanSquaredError(), "numbers")], source="Gauss 1809")
class MeanSquaredError(Loss):
    """J = 1/(2m) sum_k ||a_k - y_k||^2,  dA = (A - Y) / m.

    The half cancels the 2 of the derivative.

    >>> import numpy as np
    >>> loss = MeanSquaredError()
    >>> loss.forward(np.array([[1.0, 3.0]]), np.array([[0.0, 1.0]]))      # (1 + 4) / (2 * 2)
    np.float64(1.25)
    >>> loss.backward()
    array([[0.5, 1. ]])
    """

    def cost(self, A, Y, m):
        error = A - Y
        self.cache = error, m
        return (error * error).sum() / (2 * m)

    def derivative(self, error, m):
        return error / m

