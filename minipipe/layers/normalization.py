"""Normalisation: a group of entries gets mean 0 and variance 1, a scale and a shift.

LayerNorm, GroupNorm and BatchNorm differ only in what forms a group.
"""

from __future__ import annotations  # so that help() shows names, not what they stand for

from collections.abc import Callable, Generator
from functools import reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import Gradients, Shape, constant, not_zero_in
from ..checks import Number, real_number, whole_number
from ..collectives import all_gather, all_reduce
from .layer import LAYERS, Layer, as_dtype_of, finite


class Normalization(Layer):
    """A = W X + b  with  X = (A_prev - mean) / s,  s = sqrt(var + epsilon).

    mean and var are taken over groups of N entries. A_prev, A (n, ..., m); W, b (n, 1),
    a scale and a shift for each row; var is the mean squared distance from the mean.
    `n` is the number of rows; `epsilon` keeps a group of equal entries from division by
    0.

    Backward, within one group: dX = W dZ, dW = row sums of dZ X, db = row sums of dZ.
    An entry x_j of X depends on every entry a_i of the group in A_prev: directly,
    through the mean and through s, with ds/da_i = (a_i - mean) / (N s) = x_i / N. So

        dx_j/da_i = (1[i = j] - 1/N - x_i x_j / N) / s
        dA_prev   = (dX - mean of dX - X * mean of (dX * X)) / s

    dW and db are much smaller than dZ and X, so `backward_input` computes them already.
    """

    weight_after_input = True
    decays = ()  # a scale and a shift multiply no input of the network

    def __init__(self, n: int, epsilon: Number = 1e-5):
        self.n = whole_number("n", n, 1)
        note = ": it keeps equal numbers from being divided by 0"
        self.epsilon = real_number("epsilon", epsilon, above=0, note=note)

    def draw(self, rng: np.random.Generator) -> np.ndarray:
        return np.ones(self.n)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        self.checked_input(A_prev)
        grouped, axes = self.groups(A_prev)
        mean = grouped.mean(axis=axes, keepdims=True)
        centred = grouped - mean
        var = finite(self, (centred * centred).mean(axis=axes, keepdims=True), "the variance of its input")
        inverse = 1 / np.sqrt(var + self.epsilon_like(var))
        X = (centred * inverse).reshape(A_prev.shape)
        self.cache = NormalizationCache(X, inverse, None)
        self.count(mean, var, grouped.size // mean.size)
        return self.scaled(X)

    def backward_input(self, dZ: np.ndarray) -> np.ndarray:
        self.check_forward(self.cache and self.cache.X)
        X, inverse, _ = self.cached(dZ, lambda cache: cache.X.shape)
        self.cache = NormalizationCache(None, None, self._row_sums(dZ, X))
        X, axes = self.groups(X)
        dX, _ = self.groups(dZ * self.per_row(self.W, dZ))
        mean, mean_with_X = (part.mean(axis=axes, keepdims=True) for part in (dX, dX * X))
        return ((dX - mean - X * mean_with_X) * inverse).reshape(dZ.shape)

    def backward_weight(self, dZ: np.ndarray) -> Gradients:
        if self.cache is None or self.cache.gradients is None:
            self.backward_input(dZ)
        return self.cache.gradients

    def _row_sums(self, dZ, X):
        rows = (self.n, -1)
        return (dZ * X).reshape(rows).sum(axis=1, keepdims=True), dZ.reshape(rows).sum(axis=1, keepdims=True)

    groups: Callable[[np.ndarray], tuple]  # A -> (A reshaped, the axes of it that form a group)

    def count(self, mean: np.ndarray, var: np.ndarray, n: int) -> None:
        """Count groups of `n` entries with this `mean` and variance `var`."""

    def epsilon_like(self, var: np.ndarray) -> Any:
        not_zero_in(var.dtype, "epsilon", self.epsilon)
        return constant(self.epsilon, var)

    def scaled(self, X: np.ndarray) -> np.ndarray:
        return X * self.per_row(self.W, X) + self.per_row(self.b, X)

    def per_row(self, parameter: np.ndarray, A: np.ndarray) -> np.ndarray:
        """Return `parameter` (n, 1) in a shape that broadcasts along the rows of A."""
        return as_dtype_of(A, parameter).reshape(self.n, *(1,) * (A.ndim - 1))

    def output_shape(self, shape: Shape) -> Shape:
        if len(shape) < 2 or shape[0] != self.n:
            raise self.misfit(f"({self.n}, ..., m)", shape)
        return shape

    def parameter_shapes(self) -> tuple:
        return (self.n, 1), (self.n, 1)


class NormalizationCache(NamedTuple):
    """X and 1/s until `backward_input`, then (dW, db)."""

    X: np.ndarray | None
    inverse: np.ndarray | None
    gradients: tuple | None


@LAYERS(examples=lambda: [(LayerNorm(5), (5,)), (LayerNorm(5), (5, 3))])
class LayerNorm(Normalization):
    """The `Normalization` in which the n entries of a sample at a position are a group.

    A sample's result does not depend on other samples, so full batch and micro-batches
    agree. In a Transformer, each token is normalised by itself. Source: Ba, Kiros,
    Hinton 2016, arXiv 1607.06450.

    >>> layer = LayerNorm(2)
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.array([[1.0, 5.0], [3.0, 5.0]])).round(3) + 0
    array([[-1.,  0.],
           [ 1.,  0.]])
    """

    def groups(self, A: np.ndarray) -> tuple:
        return A, 0


@LAYERS(examples=lambda: [
    (GroupNorm(2, 6), (6,)),
    (GroupNorm(3, 6), (6, 3, 2)),
    (GroupNorm(3, 3), (3, 7)),  # instance normalisation
])
class GroupNorm(Normalization):
    """The `Normalization` in which n / n_groups channels of one sample form a group.

    A group has all positions of its channels. n_groups must divide n; n_groups = n is
    instance normalisation. Source: Wu and He 2018, arXiv 1803.08494.

    >>> layer = GroupNorm(2, 4)
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.array([[1.0], [3.0], [10.0], [30.0]])).round(3).ravel()
    array([-1.,  1., -1.,  1.])
    """

    def __init__(self, n_groups: int, n: int, epsilon: Number = 1e-5):
        super().__init__(n, epsilon)
        self.n_groups = whole_number("n_groups", n_groups, 1)
        if self.n % self.n_groups:
            raise ValueError(f"n_groups={n_groups} does not divide the n={n} channels: use a divisor of {n}")

    def groups(self, A: np.ndarray) -> tuple:
        return A.reshape(self.n_groups, -1, A.shape[-1]), 1


@LAYERS(examples=lambda: [(BatchNorm(3), (3,)), (BatchNorm(3), (3, 5, 2))])
class BatchNorm(Normalization):
    """The `Normalization` in which a row, for all samples of a micro-batch, is a group.

    A sample's result depends on the other samples. In training, mean and var are taken
    over the micro-batch, not over the full batch, as in GPipe. So a gradient depends on
    how the batch is cut. A group needs at least 2 entries.

    Outside of training, `running_mean` and `running_var` (n, 1) are used instead. The
    step after each mini-batch updates them:

        running <- (1 - momentum) * running + momentum * (value of the whole mini-batch)

    The mean and variance of the mini-batch are combined from those of its
    micro-batches, of any sizes (`Moments`). The variance is unbiased, with n - 1 as the
    divisor. A recomputed forward is not counted again.

    Sources: Ioffe and Szegedy 2015, arXiv 1502.03167; Huang et al. 2018, arXiv
    1811.06965, section 2.

    >>> layer = BatchNorm(1)
    >>> layer.initialize(np.random.default_rng(0))
    >>> layer.forward(np.array([[1.0, 3.0]])).round(3)
    array([[-1.,  1.]])
    >>> layer.statistics
    Moments(n=2, mean=array([[2.]]), M2=array([[2.]]))
    """

    arrays = ("W", "b", "running_mean", "running_var")
    alone_per_sample = False
    running_mean: Any = None
    running_var: Any = None

    def __init__(self, n: int, epsilon: Number = 1e-5, momentum: Number = 0.1):
        super().__init__(n, epsilon)
        note = ": it is the share of the newest mini-batch"
        self.momentum = real_number("momentum", momentum, above=0, most=1, note=note)

    def initialize(self, rng: np.random.Generator, dtype: DTypeLike = np.float64) -> None:
        super().initialize(rng, dtype)
        if self.running_mean is None:
            self.running_mean = np.zeros((self.n, 1), dtype)
            self.running_var = np.ones((self.n, 1), dtype)

    def forward(self, A_prev: np.ndarray) -> np.ndarray:
        if self.training:
            return super().forward(A_prev)
        self.checked_input(A_prev)
        self.cache = None
        mean, var = self.per_row(self.running_mean, A_prev), self.per_row(self.running_var, A_prev)
        return self.scaled((A_prev - mean) / np.sqrt(var + self.epsilon_like(var)))

    def groups(self, A: np.ndarray) -> tuple:
        return A.reshape(self.n, -1), 1

    def count(self, mean: np.ndarray, var: np.ndarray, n: int) -> None:
        if n < 2:
            self.cache = None
            raise ValueError(
                f"{self!r} in training got {n} number in a row, but needs at least 2 to have a variance: "
                "use fewer micro-batches, or a larger batch"
            )
        self.statistics = Moments(n, mean, var * n)

    def synchronised(self) -> SynchronisedBatchNorm:
        return SynchronisedBatchNorm(self)

    def commit(self, moments: Moments) -> None:
        """Update the running mean and variance from `moments` of a whole mini-batch."""
        for name, value in (("running_mean", moments.mean), ("running_var", moments.M2 / (moments.n - 1))):
            running = getattr(self, name)
            share = constant(self.momentum, value)
            moved = ((1 - share) * running + share * value).astype(running.dtype)
            setattr(self, name, finite(self, moved, name))


class Moments(NamedTuple):
    """The number of values, their mean, and M2, the sum of squared distances from it.

    The sum of two `Moments` describes both sets of values together:

        n    = n1 + n2
        mean = (n1 mean1 + n2 mean2) / n
        M2   = M2_1 + M2_2 + (mean1 - mean2)^2 n1 n2 / n

    Unlike with a sum of squares, no large number is subtracted from another one.
    Source: Chan, Golub, LeVeque 1979, Stanford report STAN-CS-79-773.

    >>> Moments(1, 1.0, 0.0) + Moments(1, 3.0, 0.0)
    Moments(n=2, mean=2.0, M2=2.0)
    """

    n: int
    mean: np.ndarray
    M2: np.ndarray

    def __add__(self, other: Any) -> Moments:
        n = self.n + other.n
        distance = self.mean - other.mean
        mean = (self.n * self.mean + other.n * other.mean) / n
        return Moments(n, mean, self.M2 + other.M2 + distance * distance * (self.n * other.n) / n)


class SynchronisedBatchNorm(BatchNorm):
    """A `BatchNorm` whose mean and variance are those of a row over all replicas.

    Args:
        layer: the `BatchNorm`; both objects share its attributes, parameters and
            running statistics included.

    Forward: each replica r sends its `Moments`, n_r, mean_r and M2_r. Their sum has

        mean = sum_r n_r mean_r / n       var = sum_r (M2_r + n_r (mean_r - mean)^2) / n

    Backward: as for any `Normalization`; the two sums over a row run over all replicas:

        dA_prev = (dX - sum of dX / n - X * sum of (dX * X) / n) / s

    dW and db are sums over the replica's own entries, added up later with the other
    gradients. `statistics` are those of the replica's own entries, so that each sample
    counts once in the mini-batch. A row needs 2 entries, over all replicas together.
    """

    __slots__ = ("_layer",)  # all other attributes are in the `__dict__` of the layer
    exchanges = True, True
    over_copies = True
    group: Any = None  # the `Group` of the devices that have this layer, set by a run

    def __init__(self, layer: BatchNorm):
        self._layer = layer
        self.__dict__ = layer.__dict__

    def __reduce__(self) -> tuple:
        """Copy and pickle the layer, whose attributes the new object then shares."""
        return SynchronisedBatchNorm, (self._layer,)

    def copy(self, *convert: Callable) -> SynchronisedBatchNorm:
        """Return a `SynchronisedBatchNorm` of a copy of the layer."""
        return SynchronisedBatchNorm(self._layer.copy(*convert))

    def forward(  # type: ignore[override]  # a program
        self, A_prev: np.ndarray
    ) -> Generator[Any, Any, np.ndarray]:
        """Compute A from A_prev as a program, in training."""
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
        inverse = 1 / np.sqrt(var + self.epsilon_like(var))
        X = ((grouped - moments.mean) * inverse).reshape(A_prev.shape)
        self.cache = NormalizationCache(X, inverse, None), moments.n
        return self.scaled(X)

    def backward_input(  # type: ignore[override]  # a program
        self, dZ: np.ndarray
    ) -> Generator[Any, Any, np.ndarray]:
        """Compute dA_prev from dZ as a program."""
        (X, inverse, _), n = self.cache
        self.cache = NormalizationCache(None, None, self._row_sums(dZ, X))
        X, axes = self.groups(X)
        dX, _ = self.groups(dZ * self.per_row(self.W, dZ))
        own = [part.sum(axis=axes, keepdims=True) for part in (dX, dX * X)]
        total, total_with_X = yield from all_reduce(self.group, own)
        return ((dX - total / n - X * (total_with_X / n)) * inverse).reshape(dZ.shape)
