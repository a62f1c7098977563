"""Parts of layers: what one of several devices computes of a layer that they share."""

from functools import reduce

import numpy as np

from ..collectives import all_gather, all_reduce, all_to_all
from ..functions import even_slices
from ..layers import Dropout, Embedding, Layer
from ..layers.layer import as_dtype_of
from ..losses import SoftmaxCrossEntropy


class Bias(Layer):
    """A = A_prev + b: what is left of a layer whose product is a sum over devices.

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


class DropoutPart(Dropout):
    """A `Dropout` of one run of the positions of a sequence, with the mask that the whole has there.

    whole: the `Dropout`.
    rank, size: which of how many equal runs.
    """

    def __init__(self, whole, rank, size):
        super().__init__(whole.p)
        self.key, self.index, self._rank, self._size = whole.key, whole.index, rank, size

    def _kept(self, shape):
        d, n, *rest = shape
        whole = super()._kept((d, n * self._size, *rest))
        return whole[:, n * self._rank:n * (self._rank + 1)].copy()


class EmbeddingPart(Embedding):
    """An `Embedding` that knows the tokens of one run, and has zeros for all others.

    whole: the `Embedding`.
    run: the slice of its tokens.

    The sum over all devices is the whole Embedding's A: each token has its vector on one of them.
    """

    def __init__(self, whole, run):
        super().__init__(whole.n_tokens, whole.d, whole.tie)
        self.run, self.W = run, whole.W[run].copy()

    def forward(self, A_prev):
        tokens, n = self._checked(A_prev), len(self.W)
        inside = (tokens >= self.run.start) & (tokens < self.run.stop)
        self.cache = np.where(inside, tokens - self.run.start, n)
        W = np.concatenate([self.W, self.W[:1] * 0])
        return np.moveaxis(W[self.cache], -1, 0).copy()

    def backward_weight(self, dZ):
        n = len(self.W)
        return self._by_token(self.cached(dZ), dZ, n + 1)[:n].copy(), None

    def parameter_shapes(self):
        return self.W.shape, None


class SoftmaxCrossEntropyPart(SoftmaxCrossEntropy):
    """`SoftmaxCrossEntropy` of logits whose classes are split over the devices of a group.

    n_classes: of the whole.

    With z_max the largest logit of a column and s = sum_c e^(z_c - z_max) over all classes,

        J  = 1/m sum over the columns of (S log s - sum_c y_c (z_c - z_max))
        dZ = (S e^(z - z_max) / s - Y) / m

    with S, the sums of Y's columns. So three numbers a column are exchanged, z_max and the two sums, and not
    the logits; then each device has the dZ of its own classes. Source: Megatron-LM, its cross-entropy over a
    split vocabulary.
    """

    exchanges = True, False
    group = None

    def __init__(self, n_classes):
        self.n_classes = n_classes

    def forward(self, Z, Y, m=None):
        if Y.shape != (self.n_classes, *Z.shape[1:]):
            raise ValueError(self._shape_message((self.n_classes, *Z.shape[1:]), Y.shape))
        run = even_slices(self.n_classes, self.group.size)[self.group.rank]
        Y = Y.astype(Z.dtype, copy=False)
        return self._cost(Z, Y[run], Y.sum(axis=0), Z.shape[-1] if m is None else m)

    def _cost(self, Z, Y, S, m):
        """A program that returns J. Y, of this device's classes."""
        m = m * int(np.prod(Z.shape[1:-1]))
        largest = yield from largest_of(self.group, Z.max(axis=0))
        shifted = Z - largest
        exponentials = np.exp(shifted)
        sums = np.concatenate([
            exponentials.sum(axis=0, keepdims=True), (Y * shifted).sum(axis=0, keepdims=True)
        ])
        total, of_labels = yield from all_reduce(self.group, sums)
        exponentials /= total
        self.cache = exponentials * S, Y, m
        return (S * np.log(total) - of_labels).sum() / m

    def derivative(self, P, Y, m):
        dZ = P - Y
        dZ /= m
        return dZ

    def __repr__(self):
        return "SoftmaxCrossEntropy()"


def largest_of(group, array):
    """A program: the largest of all devices' numbers, place by place; each finds it for a run of the places.

    array: of one shape on all devices. Its bytes travel as in a ring's all-reduce: 2 (N - 1)/N of them.
    """
    runs = even_slices(array.size, group.size)
    parts = yield from all_to_all(group, [array.ravel()[run].copy() for run in runs])
    largest = reduce(np.maximum, parts)
    return np.concatenate((yield from all_gather(group, largest))).reshape(array.shape)
