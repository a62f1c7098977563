"""`minipipe verify`: layers x schedules x K x M x ragged x recompute, with a verdict for each strength of exactness."""

from itertools import product
from typing import NamedTuple

import numpy as np

from ..exact import rational
from ..functions import one_hot
from ..layers import (
    BatchNorm, Conv2d, Dropout, Embedding, Flatten, Fork, Join, LayerNorm, Linear, MaxPool2d, MultiHeadAttention, ReLU, Residual,
    Sigmoid, Tanh,
)
from ..losses import BinaryCrossEntropy, MeanSquaredError, SoftmaxCrossEntropy
from ..network import Sequential
from ..pipeline import Pipeline
from ..schedules import BUILDERS, names_for
from ..verification import equals_full_batch, equals_same_groups, same_bits, share_of_bound

PURPOSE = "prove many combinations equal to the full batch, as a table"
EPILOG = """example:
  python3 -m minipipe verify
"""
SIZES = [(1, 4, 8), (2, 3, 8), (2, 4, 8), (4, 2, 8), (4, 5, 8)]  # K, M, m; 3 and 5 do not divide 8

HEAD = """Each row: one network in one pipeline against the same network and one full-width batch; J and every parameter.

  ==       equal in rational arithmetic (with BatchNorm, whose statistics are the micro-batches' own, to a plain loop over
           these instead of the full batch)
  dyadic   equal bits in float32 and float64 on numbers that need no rounding; - where exp or tanh must round
  bits     float32 and float64, any numbers: equal bits to GPipe on one device
  bound    float32 and float64, any numbers: largest difference to the full batch, in % of what rounding can explain;
           - where no bound is derived
"""


def add_options(parser):
    """There are none."""


class Example(NamedTuple):
    """A network with its loss, and what kind of labels it takes."""

    name: str
    layers: list
    loss: object
    labels: str
    representable: bool = False
    bounded: bool = True
    shape: tuple = (3,)
    n_tokens: int | None = None  # for inputs that are tokens


EXAMPLES = [
    Example("Linear ReLU, mean squared error", [Linear(3, 4), ReLU(), Linear(4, 3), ReLU(), Linear(3, 2)], MeanSquaredError(),
            "numbers", representable=True),
    Example("Linear ReLU, softmax", [Linear(3, 4), ReLU(), Linear(4, 3), ReLU(), Linear(3, 2)], SoftmaxCrossEntropy(), "classes"),
    Example("Linear Tanh Sigmoid, binary", [Linear(3, 4), Tanh(), Linear(4, 2), Sigmoid()], BinaryCrossEntropy(), "bits"),
    Example("Linear Sigmoid, binary from logits", [Linear(3, 4), Sigmoid(), Linear(4, 3), Linear(3, 2)],
            BinaryCrossEntropy(from_logits=True), "bits"),
    Example("Conv2d MaxPool skip, softmax",
            [Fork("skip"), Conv2d(1, 2, 3, padding=1), ReLU(), Join("skip", "concat"), MaxPool2d(2), Flatten(), Linear(3, 2)],
            SoftmaxCrossEntropy(), "classes", bounded=False, shape=(1, 2, 3)),
    Example("BatchNorm, softmax", [Linear(3, 4), BatchNorm(4), ReLU(), Linear(4, 2)], SoftmaxCrossEntropy(), "classes", bounded=False),
    Example("attention dropout tied, softmax",
            [Embedding(2, 4, tie="tokens"), Residual(LayerNorm(4), MultiHeadAttention(4, n_heads=2, causal=True)), Dropout(0.5),
             Linear(4, 2, tie="tokens")], SoftmaxCrossEntropy(), "classes", bounded=False, shape=(2,), n_tokens=2),
]


def run(options):
    print(HEAD)
    print(f"{'network':36}{'schedule':12}{'K':>3}{'M':>3}{'m':>3}  {'recompute':11}{'==':>5}{'dyadic':>8}{'bits':>6}{'bound':>8}")
    failures = n_rows = 0
    for example, name, (K, M, m), recompute in product(EXAMPLES, BUILDERS, SIZES, (False, True)):
        if name not in names_for(K, M) or (M > m // 2 and _has_batch_norm(example)):
            continue  # a schedule for other sizes, or micro-batches of one sample, which has no variance
        good, words = _verdicts(example, m, lambda layers: Pipeline(layers, example.loss, K, M, name, recompute))
        ragged = "ragged" if m % M else ""
        print(f"{example.name:36}{name:12}{K:>3}{M:>3}{m:>3}  {'yes' if recompute else 'no':11}{words}  {ragged}".rstrip(), flush=True)
        failures += not good
        n_rows += 1
    print(f"\n{n_rows - failures} of {n_rows} rows hold in every strength")
    return 1 if failures else 0


def _verdicts(example, m, pipeline_of):
    layers, X, Y = _coarse(example, m, rational)
    exact = (equals_same_groups if _has_batch_norm(example) else equals_full_batch)(pipeline_of(layers), X, Y)
    dyadic, bits, shares = [], [], []
    for dtype in (np.float32, np.float64):
        if example.representable:
            layers, X, Y = _whole(example, m, dtype)
            dyadic.append(equals_full_batch(pipeline_of(layers), X, Y))
        layers, X, Y = _random(example, m, dtype)
        bits.append(same_bits(pipeline_of(layers), X, Y))
        if example.bounded:
            shares.append(share_of_bound(pipeline_of(layers), X, Y))
    bound = f"{100 * max(shares):>6.2f} %" if shares else f"{'-':>6}  "
    words = f"{_word(exact):>5}{_word(all(dyadic)) if dyadic else '-':>8}{_word(all(bits)):>6}{bound}"
    return exact and all(dyadic) and all(bits) and max(shares, default=0) <= 1, words


def _word(verdict):
    return "yes" if verdict else "NO"


def _has_batch_norm(example):
    return any(isinstance(layer, BatchNorm) for layer in example.layers)


def _random(example, m, dtype):
    """(layers, X, Y) with normally distributed numbers, or random tokens."""
    rng = np.random.default_rng([m, len(example.name)])
    layers = Sequential(example.layers, example.loss, seed=m, dtype=dtype).layers
    shape = (*example.shape, m)
    X = rng.standard_normal(shape).astype(dtype) if example.n_tokens is None else rng.integers(0, example.n_tokens, shape)
    return layers, X, _labels(example, m, rng).astype(dtype)


def _coarse(example, m, convert):
    """The same, rounded to multiples of 1/8."""
    layers, X, Y = _random(example, m, np.float64)
    X = X if example.n_tokens is not None else convert(np.round(8 * X) / 8)
    return [layer.copy(lambda p: convert(np.round(8 * p) / 8)) for layer in layers], X, convert(Y)


def _whole(example, m, dtype):
    """The same, with weights -1, 0, 1 and whole numbers for data: with m a power of two, nothing ever rounds."""
    layers, X, Y = _random(example, m, np.float64)
    return [layer.copy(lambda p: np.sign(p).astype(dtype)) for layer in layers], np.round(X).astype(dtype), Y.astype(dtype)


def _labels(example, m, rng):
    if example.labels == "classes":
        return one_hot(rng.integers(0, 2, m if example.n_tokens is None else (*example.shape, m)), n_classes=2)
    return rng.integers(*((-2, 3) if example.labels == "numbers" else (0, 2)), (2, m)).astype(float)
