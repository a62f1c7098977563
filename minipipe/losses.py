"""Cost functions, and the only place where 1/m appears.

J = 1/m sum of L(a, y) over the m samples of the *whole* mini-batch. A micro-batch passes fewer columns
than m but divides by the same m, so J = J_1 + J_2 + ... and dW = dW_1 + dW_2 + ... over micro-batches,
whatever their sizes.
"""

import math

import numpy as np

from .checks import is_finite, real_numbers, shown, to_be_written, whole_number, without_return
from .functions import sigmoid

__all__ = ["BinaryCrossEntropy", "MeanSquaredError", "SoftmaxCrossEntropy"]

MOST_SAMPLES = 10**12  # of a mini-batch


class Loss:
    """A cost of predictions `A` (n, m) against labels `Y` of the same shape.

        forward(A, Y, m)  -> J     this micro-batch's part of the cost, divided by m
        backward()        -> dA    its derivative by A, which carries the factor 1/m

    `m` is the size of the whole mini-batch; left out, it is the number of columns of `A`. `cache` is the
    one value that `backward` needs. The dtype of `A` is the dtype of both results. `forward` raises
    `ValueError` where the shapes differ, and for labels that this cost cannot have.
    """

    cache = None
    exchanges = False, False  # whether forward and backward are programs, which talk to other devices

    def forward(self, A, Y, m=None):
        A, Y = _array("A", A), _array("Y", Y)
        m = A.shape[-1] if m is None else whole_number("m", m, 1, MOST_SAMPLES)
        if A.shape != Y.shape:
            raise ValueError(self._shape_message(A.shape, Y.shape))
        if A.dtype.kind in "iub":
            A = A.astype(np.float64)
        if Y.dtype == object:
            Y = real_numbers("Y", Y)
        self.check(Y)
        J = self.cost(A, Y.astype(A.dtype, copy=False), m)
        if J is None:
            raise without_return(self, "cost", "J")
        return J

    def backward(self):
        if self.cache is None:
            raise RuntimeError(f"{self!r}: backward needs the cache of a forward: call forward(A, Y) first")
        dA = self.derivative(*self.cache)
        if dA is None:
            raise without_return(self, "derivative", "dA")
        return dA

    def cost(self, A, Y, m):
        """J, with all that `derivative` needs left in `cache`, a tuple."""
        raise to_be_written(self, "Loss", "cost(self, A, Y, m)", "J, and leaves self.cache")

    def derivative(self, *cache):
        """dA."""
        raise to_be_written(self, "Loss", "derivative(self, *cache)", "dA")

    def check(self, Y):
        """Raise `ValueError` for labels that this cost cannot have."""
        if not is_finite(Y):
            raise ValueError(f"{self!r}: the labels hold NaN or infinity: clean the data first")

    def _shape_message(self, shape, shape_of_labels):
        message = f"{self!r}: the labels have shape {shape_of_labels}, but the predictions have {shape}: "
        if len(shape_of_labels) == 1 and shape[0] == 1:
            return message + "make them one row with Y.reshape(1, -1)"
        if len(shape_of_labels) == 1:
            one_hot = f"minipipe.one_hot(labels, n_classes={shape[0]})"
            return message + f"turn class numbers into columns with {one_hot}"
        return message + "one column of labels for each sample, one row for each output"

    def __repr__(self):
        return f"{type(self).__name__}()"


def _array(name, values):
    """`values`, if that is an array of numbers or one without; a list becomes one."""
    is_array = not isinstance(values, (type, np.ma.MaskedArray)) and getattr(values, "ndim", 0)
    if not is_array or values.dtype.kind not in "fiubO":
        values = real_numbers(name, values)
    if not values.ndim:
        raise ValueError(f"{name}={shown(values)} is one number: pass an array of shape (n, m)")
    return values


class MeanSquaredError(Loss):
    """J = 1/(2m) sum_k ||a_k - y_k||^2,  dA = (A - Y) / m.

    The half cancels the 2 of the derivative.

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


class SoftmaxCrossEntropy(Loss):
    """Softmax and cross-entropy in one, from logits Z (n_classes, m) and one-hot (or soft) labels Y.

        P = e^Z / column sums,   J = -1/m sum_k sum_c Y[c, k] log P[c, k],   dZ = (S P - Y) / m

    with S, the sums of Y's columns, which are 1 but for rounding; if one is off by more than 0.001,
    `ValueError` is raised.

    With more axes, as in (n_classes, T, m), a sample's cost is the mean over its positions, and m above
    stands for T m.

    The derivative: L = s log(sum_c e^z_c) - sum_c y_c z_c for a column of Y that adds up to s, so
    dL/dz_c = s p_c - y_c. Each column is shifted by its own maximum, which changes neither P nor J and keeps
    e^Z from overflowing; a maximum over the batch would make a sample's cost depend on its neighbours.

    >>> loss = SoftmaxCrossEntropy()
    >>> J = loss.forward(np.array([[0.0], [0.0]]), np.array([[1.0], [0.0]]))
    >>> bool(J == np.log(2)), loss.backward()
    (True, array([[-0.5],
           [ 0.5]]))
    """

    def cost(self, Z, Y, m):
        m = m * math.prod(Z.shape[1:-1])
        shifted = Z - Z.max(axis=0, keepdims=True)
        exponentials = np.exp(shifted)
        total = exponentials.sum(axis=0, keepdims=True)
        exponentials /= total
        self.cache = exponentials, Y, m
        sums = Y.sum(axis=0, keepdims=True)
        return (sums * np.log(total) - (Y * shifted).sum(axis=0, keepdims=True)).sum() / m

    def derivative(self, P, Y, m):
        dZ = P * Y.sum(axis=0, keepdims=True)
        dZ -= Y
        dZ /= m
        return dZ

    def check(self, Y):
        sums = Y.sum(axis=0)
        fits = (abs(sums - 1) <= 1e-3) & (Y.min(axis=0) >= 0)  # leaves room for rounded probabilities
        if not fits.all():
            column = tuple(np.argwhere(~fits)[0].tolist())
            raise ValueError(
                f"{self!r}: column {', '.join(map(str, column))} of the labels adds up to {sums[column]}, "
                "not 1, or has a negative entry: "
                "pass one-hot columns, as minipipe.one_hot makes them, or probabilities"
            )


class BinaryCrossEntropy(Loss):
    """J = -1/m sum (y log a + (1 - y) log(1 - a)), from probabilities or, better, from logits.

    `BinaryCrossEntropy()` follows a `Sigmoid`: A holds probabilities, and

        dA = 1/m (-y/a + (1 - y)/(1 - a))

    A term whose factor y or 1 - y is zero counts as zero. If a = 0 where y > 0, or a = 1 where y < 1, the
    cost is infinite and `forward` raises `ValueError`: a sigmoid in float32 rounds to 1 from Z = 17 on.

    `BinaryCrossEntropy(from_logits=True)` takes Z instead and has the sigmoid built in. Then

        J = 1/m sum (max(z, 0) - z y + log(1 + e^-|z|)),    dZ = (sigmoid(Z) - Y) / m

    which stays finite for every Z: with a = sigmoid(z), -log a = log(1 + e^-z), and dL/dz = a - y.

    >>> Z, Y = np.array([[-1.0, 2.0]]), np.array([[0.0, 1.0]])
    >>> loss = BinaryCrossEntropy(from_logits=True)
    >>> from_logits = loss.forward(Z, Y)
    >>> from_probabilities = BinaryCrossEntropy().forward(sigmoid(Z), Y)
    >>> round(from_logits, 12) == round(from_probabilities, 12)
    np.True_
    """

    def __init__(self, from_logits=False):
        self.from_logits = from_logits

    def cost(self, A, Y, m):
        if not self.from_logits:
            self._check_probabilities(A, Y)
        self.cache = A, Y, m
        if self.from_logits:
            return (A * (A > 0) - A * Y + np.log1p(np.exp(-abs(A)))).sum() / m
        return -(_where(Y != 0, np.log, A, Y) + _where(Y != 1, np.log, 1 - A, 1 - Y)).sum() / m

    def _check_probabilities(self, A, Y):
        least = np.finfo(A.dtype).tiny if A.dtype.kind == "f" else 0  # below it, 1/a overflows
        if ((A < 0) | (A > 1)).any():
            raise ValueError(
                f"{self!r}: the predictions lie outside 0..1: "
                "put a Sigmoid before it, or use from_logits=True"
            )
        infinite = ((A <= least) & (Y > 0)) | ((A >= 1) & (Y < 1))
        if infinite.any():
            raise ValueError(
                f"{self!r}: the cost is infinite, "
                f"{int(infinite.sum())} of {A.size} probabilities are 0 or 1 where the label says otherwise: "
                "drop the Sigmoid and use BinaryCrossEntropy(from_logits=True)"
            )

    def derivative(self, A, Y, m):
        if self.from_logits:
            return (sigmoid(A) - Y) / m
        return (_where(Y != 1, np.reciprocal, 1 - A, 1 - Y) - _where(Y != 0, np.reciprocal, A, Y)) / m

    def check(self, Y):
        inside = (Y >= 0) & (Y <= 1)
        if not inside.all():
            outside = ~inside
            raise ValueError(
                f"{self!r}: {int(outside.sum())} of {Y.size} labels lie outside 0..1, "
                f"the first is {Y[outside][0]}: pass 0 and 1, or probabilities"
            )

    def __repr__(self):
        return f"BinaryCrossEntropy(from_logits={self.from_logits})"


def _where(relevant, function, values, factors):
    """factors * function(values), and 0 where not `relevant`, without computing function there."""
    # a 1 of the factors' own kind, Rational among Rationals
    safe = np.where(relevant, values, factors * 0 + 1)
    return factors * function(safe)
