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
    MultiHeadAttention, ReLU, Residual,
)
from ..losses import Loss, MeanSquaredError, SoftmaxCrossEntropy
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
        shape: the shape of a sample.
        n_tokens: the number of different tokens, if the inputs are tokens.
        representable: whether its labels are numbers, not classes, and floats do not
            round on small whole numbers.
    """

    name: str
    layers: list
    loss: Loss = SoftmaxCrossEntropy()
    shape: tuple = (3,)
    n_tokens: int | None = None
    representable: bool = False

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
        return False not in self


EXAMPLES = [
    Example(
        "Linear ReLU, mean squared error", [Linear(3, 4), ReLU(), Linear(4, 3), ReLU(), Linear(3, 2)],
        MeanSquaredError(), representable=True,
    ),
    Example(
        "Conv2d MaxPool skip, softmax",
        [
            Fork("skip"), Conv2d(1, 2, 3, padding=1), ReLU(), Join("skip", "concat"),
            MaxPool2d(2), Flatten(), Linear(3, 2),
        ],
        shape=(1, 2, 3),
    ),
    Example("BatchNorm, softmax", [Linear(3, 4), BatchNorm(4), ReLU(), Linear(4, 2)]),
    Example(
        "attention dropout tied, softmax",
        [
            Embedding(2, 4, tie="tokens"),
            Residual(LayerNorm(4), MultiHeadAttention(4, n_heads=2, causal=True)),
            Dropout(0.5),
            Linear(4, 2, tie="tokens"),
        ],
        shape=(2,), n_tokens=2,
    ),
]


def verdicts(
    example: Example, m: int, pipeline_of: Callable[[Sequence], Parallel], is_sharded: bool = False
) -> Verdicts:
    """Return the `Verdicts` of an example on m samples.

    Args:
        example: the `Example`.
        m: the number of samples.
        pipeline_of: a function of the layers that returns the pipeline.
        is_sharded: whether its layers are split over several shards.
    """
    layers, X, Y = random(example, m, np.float64)
    X = X if example.n_tokens else rational(coarse(X))
    layers = [layer.copy(lambda parameter: rational(coarse(parameter))) for layer in layers]
    equal = equals_same_groups if example.has_batch_norm else equals_full_batch
    exact = equal(pipeline_of(layers), X, rational(Y))
    dyadic, bits = [], []
    for dtype in (np.float32, np.float64):
        layers, X, Y = random(example, m, dtype)
        if not is_sharded:
            bits.append(same_bits(pipeline_of(layers), X, Y))
        if example.representable:  # with -1, 0 and 1 in W and b: if m is a power of 2, nothing rounds
            layers = [layer.copy(np.sign) for layer in layers]
            dyadic.append(equals_full_batch(pipeline_of(layers), np.round(X), Y))
    return Verdicts(exact, all(dyadic) if dyadic else None, all(bits) if bits else None)


def random(example: Example, m: int, dtype: DTypeLike) -> tuple[Sequence, np.ndarray, np.ndarray]:
    """Return (layers, X, Y): m normal samples of `example`, or tokens, in `dtype`."""
    rng = np.random.default_rng([m, len(example.name)])
    layers = Sequential(example.layers, example.loss, seed=m, dtype=dtype).layers
    shape = (*example.shape, m)
    if example.n_tokens is None:
        X, of_labels = rng.standard_normal(shape).astype(dtype), (m,)
    else:
        X, of_labels = rng.integers(0, example.n_tokens, shape), shape
    if example.representable:
        return layers, X, rng.integers(-2, 3, (2, m)).astype(dtype)
    return layers, X, one_hot(rng.integers(0, 2, of_labels), n_classes=2, dtype=dtype)
