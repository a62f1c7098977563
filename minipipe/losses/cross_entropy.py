"""Cross-entropy between predicted probabilities, or logits, and labels."""

from __future__ import annotations  # so that help() shows names, not what they stand for

import math
from collections.abc import Generator
from functools import reduce
from typing import Any

import numpy as np

from ..arrays import even_slices, sigmoid
from ..checks import Number
from ..collectives import Group, all_gather, all_reduce, all_to_all
from .loss import LOSSES, Loss


@LOSSES(examples=lambda: [(SoftmaxCrossEntropy(), "classes")])
class SoftmaxCrossEntropy(Loss):
    """Softmax and cross-entropy in one, from logits Z (n_classes, m) and labels Y.

        P = e^Z / column sums,  J = -1/m sum_ck Y[c, k] log P[c, k],  dZ = (S P - Y) / m

    Y is one-hot, or has probabilities. S are the sums of Y's columns: 1, up to
    rounding; `ValueError` if one is off by more than 0.001. With more axes, as in
    (n_classes, T, m), a sample's cost is the mean over its positions, and m above is T
    m.

    The derivative: L = s log(sum_c e^z_c) - sum_c y_c z_c for a column of Y that adds
    up to s, so dL/dz_c = s p_c - y_c. The maximum of each column is subtracted first;
    this changes neither P nor J, and keeps e^Z from overflowing. A maximum over the
    whole batch would make a sample's cost depend on other samples. Source: Bridle 1990,
    NIPS 2.

    >>> loss = SoftmaxCrossEntropy()
    >>> J = loss.forward(np.array([[0.0], [0.0]]), np.array([[1.0], [0.0]]))
    >>> bool(J == np.log(2)), loss.backward()
    (True, array([[-0.5],
           [ 0.5]]))
    """

    def cost(self, Z: np.ndarray, Y: np.ndarray, m: int) -> Number:
        m = m * math.prod(Z.shape[1:-1])
        shifted = Z - Z.max(axis=0, keepdims=True)
        exponentials = np.exp(shifted)
        total, S = exponentials.sum(axis=0, keepdims=True), Y.sum(axis=0, keepdims=True)
        self.cache = exponentials / total * S, Y, m
        return (S * np.log(total) - (Y * shifted).sum(axis=0, keepdims=True)).sum() / m

    def derivative(self, SP: np.ndarray, Y: np.ndarray, m: int) -> np.ndarray:
        return (SP - Y) / m

    def part(self, n_classes: int) -> SoftmaxCrossEntropyPart:
        return SoftmaxCrossEntropyPart(n_classes)

    def check(self, Y: np.ndarray) -> None:
        sums = Y.sum(axis=0)
        fits = (abs(sums - 1) <= 1e-3) & (Y.min(axis=0) >= 0)  # leaves room for rounded probabilities
        if not fits.all():
            column = tuple(np.argwhere(~fits)[0].tolist())
            raise ValueError(
                f"{self!r}: column {', '.join(map(str, column))} of the labels adds up to {sums[column]}, "
                "not 1, or has a negative entry: use minipipe.one_hot, or pass probabilities"
            )


class SoftmaxCrossEntropyPart(SoftmaxCrossEntropy):
    """`SoftmaxCrossEntropy` of logits whose classes are split over devices.

    Args:
        n_classes: the number of classes on all devices together.

    With z_max the largest logit of a column and s = sum_c e^(z_c - z_max) over all
    classes,

        J  = 1/m sum over the columns of (S log s - sum_c y_c (z_c - z_max))
        dZ = (S e^(z - z_max) / s - Y) / m

    So three numbers per column are exchanged, z_max and the two sums, instead of the
    logits. Then each device has the dZ of its own classes. Source: Megatron-LM, its
    cross-entropy over a split vocabulary.
    """

    exchanges = True, False
    group: Any = None

    def __init__(self, n_classes: int):
        self.n_classes = n_classes

    def forward(  # type: ignore[override]  # a program
        self, Z: np.ndarray, Y: np.ndarray, m: int | None = None
    ) -> Generator[Any, Any, Number]:
        """Compute J as a program, from this device's classes in Z and all in Y.

        `m` is as for `Loss`.
        """
        if Y.shape != (self.n_classes, *Z.shape[1:]):
            raise ValueError(self._shape_message((self.n_classes, *Z.shape[1:]), Y.shape, m or Z.shape[-1]))
        run = even_slices(self.n_classes, self.group.size)[self.group.rank]
        Y = Y.astype(Z.dtype, copy=False)
        S, Y = Y.sum(axis=0), Y[run]  # from now on, Y has the labels of this device's classes alone
        m = (Z.shape[-1] if m is None else m) * math.prod(Z.shape[1:-1])
        largest = yield from largest_of(self.group, Z.max(axis=0))
        shifted = Z - largest
        exponentials = np.exp(shifted)
        sums = np.concatenate([
            exponentials.sum(axis=0, keepdims=True), (Y * shifted).sum(axis=0, keepdims=True)
        ])
        total, of_labels = yield from all_reduce(self.group, sums)
        self.cache = exponentials / total * S, Y, m
        return (S * np.log(total) - of_labels).sum() / m

    def __repr__(self) -> str:
        return "SoftmaxCrossEntropy()"


def largest_of(group: Group, array: np.ndarray) -> Generator[Any, Any, np.ndarray]:
    """Compute the elementwise maximum of all devices' arrays, as a program.

    Each device of `group` computes it for a part of the entries of `array`, and sends 2
    (N - 1)/N of its bytes, as in a ring all-reduce.
    """
    runs = even_slices(array.size, group.size)
    parts = yield from all_to_all(group, [array.ravel()[run].copy() for run in runs])
    largest = reduce(np.maximum, parts)
    return np.concatenate((yield from all_gather(group, largest))).reshape(array.shape)


@LOSSES(examples=lambda: [(BinaryCrossEntropy(), "bits"), (BinaryCrossEntropy(from_logits=True), "bits")])
class BinaryCrossEntropy(Loss):
    """J = -1/m sum (y log a + (1 - y) log(1 - a)), from probabilities A or logits.

    `BinaryCrossEntropy()` follows a `Sigmoid`:

        dA = 1/m (-y/a + (1 - y)/(1 - a))

    A term whose factor y or 1 - y is zero counts as zero. If a = 0 where y > 0, or a =
    1 where y < 1, the cost is infinite and `forward` raises `ValueError`. In float32, a
    sigmoid rounds to 1 for Z >= 17.

    `BinaryCrossEntropy(from_logits=True)` takes Z instead, and contains the sigmoid:

        J = 1/m sum (max(z, 0) - z y + log(1 + e^-|z|)),    dZ = (sigmoid(Z) - Y) / m

    It is finite for every Z: with a = sigmoid(z), -log a = log(1 + e^-z), and dL/dz =
    a - y. Source: Rumelhart, Durbin, Golden, Chauvin 1995.

    >>> Z, Y = np.array([[-1.0, 2.0]]), np.array([[0.0, 1.0]])
    >>> loss = BinaryCrossEntropy(from_logits=True)
    >>> from_logits = loss.forward(Z, Y)
    >>> from_probabilities = BinaryCrossEntropy().forward(sigmoid(Z), Y)
    >>> round(from_logits, 12) == round(from_probabilities, 12)
    np.True_
    """

    def __init__(self, from_logits: bool = False):
        self.from_logits = from_logits

    takes = property(lambda self: "numbers" if self.from_logits else "probabilities")

    def cost(self, A: np.ndarray, Y: np.ndarray, m: int) -> Number:
        if not self.from_logits:
            self._check_probabilities(A, Y)
        self.cache = A, Y, m
        if self.from_logits:
            return (A * (A > 0) - A * Y + np.log1p(np.exp(-abs(A)))).sum() / m
        return -(_apply_where(Y != 0, np.log, A, Y) + _apply_where(Y != 1, np.log, 1 - A, 1 - Y)).sum() / m

    def _check_probabilities(self, A, Y):
        least = np.finfo(A.dtype).tiny if A.dtype.kind == "f" else 0  # below it, 1/a overflows
        if ((A < 0) | (A > 1)).any():
            raise ValueError(f"{self!r}: the predictions lie outside 0..1: put a Sigmoid before it")
        infinite = ((A <= least) & (Y > 0)) | ((A >= 1) & (Y < 1))
        if infinite.any():
            n = int(infinite.sum())
            raise ValueError(
                f"{self!r}: the cost is infinite, {n} of {A.size} probabilities are 0 or 1 where the label "
                "says otherwise: drop the Sigmoid and use BinaryCrossEntropy(from_logits=True)"
            )

    def derivative(self, A: np.ndarray, Y: np.ndarray, m: int) -> np.ndarray:
        if self.from_logits:
            return (sigmoid(A) - Y) / m
        of_zeros = _apply_where(Y != 1, np.reciprocal, 1 - A, 1 - Y)
        return (of_zeros - _apply_where(Y != 0, np.reciprocal, A, Y)) / m

    def check(self, Y: np.ndarray) -> None:
        inside = (Y >= 0) & (Y <= 1)
        if not inside.all():
            outside = ~inside
            raise ValueError(
                f"{self!r}: {int(outside.sum())} of {Y.size} labels lie outside 0..1, "
                f"the first is {Y[outside][0]}: pass 0 and 1, or probabilities"
            )


def _apply_where(relevant, function, values, factors):
    """Return factors * function(values); where not `relevant`, `factors` must be 0."""
    # 1 in the type of the factors, Rational for Rationals
    safe = np.where(relevant, values, factors * 0 + 1)
    return factors * function(safe)
