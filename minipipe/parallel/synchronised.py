"""Batch norm whose statistics are those of all copies of the network."""

from functools import reduce
from operator import add

import numpy as np

from ..collectives import all_gather, all_reduce
from ..layers import BatchNorm, every_layer
from ..layers.layer import finite
from ..layers.normalization import Moments, NormalizationCache


class SynchronisedBatchNorm(BatchNorm):
    """A `BatchNorm` in which a row has one group of numbers over all copies of the network.

    layer: the `BatchNorm`, whose attributes this one has as its own: parameters and running statistics.

    Forward: each copy sends how many numbers it has in a row, their mean and M2, the sum of their squared
    distances from it, and all add up these `Moments`, which weighs them by their counts:

        mean = sum_r n_r mean_r / n         var = sum_r (M2_r + n_r (mean_r - mean)^2) / n

    Backward: as for any `Normalization`, with the sums over the row that all copies have, two numbers a row:

        dA_prev = (dX - sum of dX / n - X * sum of (dX * X) / n) / s

    dW and db are each copy's own sums, which are added up with the other gradients. A forward counts the
    copy's own numbers, so that the running statistics of the mini-batch count each sample once.

    Where `BatchNorm` needs 2 numbers in a row, here all copies together do.
    """

    __slots__ = ("_layer",)  # beside the attributes, which are the layer's
    exchanges = True, True
    group = None  # the `Group` of the devices that have a copy of it, which a run hands over

    def __init__(self, layer):
        self._layer = layer
        self.__dict__ = layer.__dict__

    def __reduce__(self):
        """Copies and pickles are made of the layer, so that one of both shares its attributes, too."""
        return SynchronisedBatchNorm, (self._layer,)

    def copy(self, *convert):
        """A `SynchronisedBatchNorm` of a copy of the layer."""
        return SynchronisedBatchNorm(self._layer.copy(*convert))

    def forward(self, A_prev):
        """A program, in training."""
        self.checked_input(A_prev)
        grouped, axes = self.groups(A_prev)
        mean = grouped.mean(axis=axes, keepdims=True)
        centred = grouped - mean
        own = Moments(grouped.size // mean.size, mean, (centred * centred).sum(axis=axes, keepdims=True))
        moments = reduce(add, (yield from all_gather(self.group, own)))
        if moments.n < 2:
            raise ValueError(f"{self!r} in training got {moments.n} number in a row: use at least 2 samples")
        self.statistics = own
        var = finite(self, moments.M2 / moments.n, "the variance of its input")
        inverse = 1 / np.sqrt(var + self.epsilon_beside(var))
        X = ((grouped - moments.mean) * inverse).reshape(A_prev.shape)
        self.cache = NormalizationCache(X, inverse, None), moments.n
        return self.scaled(X)

    def backward_input(self, dZ):
        """A program."""
        (X, inverse, _), n = self.cache
        self.cache = NormalizationCache(None, None, self._row_sums(dZ, X))
        X, axes = self.groups(X)
        dX, _ = self.groups(dZ * self.per_row(self.W, dZ))
        own = [part.sum(axis=axes, keepdims=True) for part in (dX, dX * X)]
        total, total_with_X = yield from all_reduce(self.group, own)
        return ((dX - total / n - X * (total_with_X / n)) * inverse).reshape(dZ.shape)


def synchronised(layer):
    """The layer; a `SynchronisedBatchNorm` of it, if it is a `BatchNorm`.

    `ValueError` for a layer with a `BatchNorm` inside, or a subclass, which may compute something else.
    """
    if type(layer) is BatchNorm:
        return SynchronisedBatchNorm(layer)
    inside = next((part for part in every_layer([layer]) if isinstance(part, BatchNorm)), None)
    if inside is layer:
        raise ValueError(
            f"{layer!r} is a BatchNorm of your own, of which nobody knows what copies must exchange: "
            "use BatchNorm, or sync_batch_norm=False"
        )
    if inside is not None:
        raise ValueError(
            f"{inside!r} is inside {layer!r}, but only layers of the network itself talk to other devices: "
            "use a Fork and a Join around it, or sync_batch_norm=False"
        )
    return layer
