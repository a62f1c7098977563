"""The networks of `minipipe check`, and how exactly a pipeline equals one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike

from ..arrays import one_hot
from ..exact import rational
from ..layers import (
    BatchNorm, Conv2d, Dropout, Embedding, Flatten, Fork, Join, LayerNorm, Linear, MaxPool2d,
    MultiHeadAttention, ReLU, Residual, Sigmoid, Tanh,
)
from ..losses import BinaryCrossEntropy, Loss, MeanSquaredError, SoftmaxCrossEntropy
from ..network import Sequential
from ..parallel import Parallel
from .trial import coarse
from .verdicts import equals_full_batch, equals_same_groups, same_bits


class Example(NamedTuple):
    """A network with its loss and the kind of its data.

    Args:
        name: its name in the table.
        layers: the layers of the network.
        loss: the loss that it minimises.
        labels: the kind of its labels: "numbers", "classes" or "bits".
        representable: whether floats do not round on small whole numbers.
        shape: the shape of a sample.
        n_tokens: the number of different tokens, if the inputs are tokens.
    """

    name: str
    layers: list
    loss: Loss
    labels: str
    representable: bool = False
    shape: tuple = (3,)
    n_tokens: int | None = None

    @property
    def has_batch_norm(self) -> bool:
        """Whether a sample's result depends on the other samples."""
        return not all(layer.alone_per_sample for layer in self.layers)


class Verdicts(NamedTuple):
    """How exactly a pipeline of an example equals its reference.

    Args:
        exact: whether it is `==` in rational arithmetic, to the full batch, or with
            BatchNorm to a loop over the micro-batches.
        dyadic: whether it has the bits of the full batch on floats that need no
            rounding; None where exp or tanh must round.
        bits: whether it has the bits of GPipe on one device, on any floats; None where
            layers are split over shards, whose products are added in another order.
    """

    exact: bool
    dyadic: bool | None
    bits: bool | None

    @property
    def good(self) -> bool:
        """Whether none of the three is False."""
        return self.exact and self.dyadic is not False and self.bits is not False


EXAMPLES = [
    Example(
        "Linear ReLU, mean squared error",
        [Linear(3, 4), ReLU(), Linear(4, 3), ReLU(), Linear(3, 2)],
        MeanSquaredError(), "numbers", representable=True,
    ),
    Example(
        "Linear ReLU, softmax",
        [Linear(3, 4), ReLU(), Linear(4, 3), ReLU(), Linear(3, 2)],
        SoftmaxCrossEntropy(), "classes",
    ),
    Example(
        "Linear Tanh Sigmoid, binary",
        [Linear(3, 4), Tanh(), Linear(4, 2), Sigmoid()],
        BinaryCrossEntropy(), "bits",
    ),
    Example(
        "Linear Sigmoid, binary from logits",
        [Linear(3, 4), Sigmoid(), Linear(4, 3), Linear(3, 2)],
        BinaryCrossEntropy(from_logits=True), "bits",
    ),
    Example(
        "Conv2d MaxPool skip, softmax",
        [
            Fork("skip"), Conv2d(1, 2, 3, padding=1), ReLU(), Join("skip", "concat"),
            MaxPool2d(2), Flatten(), Linear(3, 2),
        ],
        SoftmaxCrossEntropy(), "classes", shape=(1, 2, 3),
    ),
    Example(
        "BatchNorm, softmax",
        [Linear(3, 4), BatchNorm(4), ReLU(), Linear(4, 2)],
        SoftmaxCrossEntropy(), "classes",
    ),
    Example(
        "attention dropout tied, softmax",
        [
            Embedding(2, 4, tie="tokens"),
            Residual(LayerNorm(4), MultiHeadAttention(4, n_heads=2, causal=True)),
            Dropout(0.5),
            Linear(4, 2, tie="tokens"),
        ],
        SoftmaxCrossEntropy(), "classes", shape=(2,), n_tokens=2,
    ),
]


def verdicts(
    example: Example, m: int, pipeline_of: Callable[[Sequence], Parallel], in_parts: bool = False
) -> Verdicts:
    """Return the `Verdicts` of an example on m samples.

    Args:
        example: the `Example`.
        m: the number of samples.
        pipeline_of: a function of the layers that returns the pipeline.
        in_parts: whether its layers are split over several shards.
    """
    layers, X, Y = in_eighths(example, m, rational)
    equal = equals_same_groups if example.has_batch_norm else equals_full_batch
    exact = equal(pipeline_of(layers), X, Y)
    dyadic, bits = [], []
    for dtype in (np.float32, np.float64):
        if example.representable:
            layers, X, Y = whole(example, m, dtype)
            dyadic.append(equals_full_batch(pipeline_of(layers), X, Y))
        layers, X, Y = random(example, m, dtype)
        if not in_parts:
            bits.append(same_bits(pipeline_of(layers), X, Y))
    return Verdicts(exact, all(dyadic) if dyadic else None, all(bits) if bits else None)


def random(example: Example, m: int, dtype: DTypeLike) -> tuple[Sequence, np.ndarray, np.ndarray]:
    """Return (layers, X, Y) of m samples of `example`: normal numbers, or tokens.

    Args:
        example: the `Example`.
        m: the number of samples.
        dtype: of parameters, X and Y.
    """
    rng = np.random.default_rng([m, len(example.name)])
    layers = Sequential(example.layers, example.loss, seed=m, dtype=dtype).layers
    shape = (*example.shape, m)
    if example.n_tokens is None:
        X = rng.standard_normal(shape).astype(dtype)
    else:
        X = rng.integers(0, example.n_tokens, shape)
    return layers, X, _labels(example, m, rng).astype(dtype)


def in_eighths(example: Example, m: int, convert: Callable) -> tuple[Sequence, np.ndarray, np.ndarray]:
    """Return (layers, X, Y) of m samples of `example`, in multiples of 1/8.

    `convert` is a function of each array.
    """
    layers, X, Y = random(example, m, np.float64)
    if example.n_tokens is None:
        X = convert(coarse(X))
    layers = [layer.copy(lambda p: convert(coarse(p))) for layer in layers]
    return layers, X, convert(Y)


def whole(example: Example, m: int, dtype: DTypeLike) -> tuple[Sequence, np.ndarray, np.ndarray]:
    """Return (layers, X, Y) of `example` in `dtype`: m whole samples, W and b in -1..1.

    If m is a power of two, nothing rounds.
    """
    layers, X, Y = random(example, m, np.float64)
    layers = [layer.copy(lambda p: np.sign(p).astype(dtype)) for layer in layers]
    return layers, np.round(X).astype(dtype), Y.astype(dtype)


def _labels(example, m, rng):
    if example.labels == "classes":
        shape = m if example.n_tokens is None else (*example.shape, m)
        return one_hot(rng.integers(0, 2, shape), n_classes=2)
    low, high = (-2, 3) if example.labels == "numbers" else (0, 2)
    return rng.integers(low, high, (2, m)).astype(float)
